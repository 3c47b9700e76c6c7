"""Calls made at the same time: results in order, errors raised, nothing begun after one."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from leadline.core.workers import call_at_once


def test_results_are_in_the_order_of_the_calls() -> None:
    assert call_at_once([partial(pow, number, 2) for number in range(200)], 8) == [n * n for n in range(200)]


def test_as_many_calls_as_threads_are_made_at_the_same_time() -> None:
    meeting = threading.Barrier(4, timeout=120)
    assert sorted(call_at_once([meeting.wait] * 4, 4)) == [0, 1, 2, 3]


def test_one_thread_is_the_caller_itself() -> None:
    assert set(call_at_once([threading.get_ident] * 3, 1)) == {threading.get_ident()}


def test_an_error_is_raised_and_no_further_call_begins() -> None:
    begun: list[int] = []
    failed = threading.Event()

    def call(number: int) -> None:
        begun.append(number)
        if number == 0:
            failed.set()
            raise ValueError("the first")
        failed.wait(20)

    with pytest.raises(ValueError, match="the first"):
        call_at_once([partial(call, number) for number in range(1000)], 2)
    assert len(begun) < 1000
