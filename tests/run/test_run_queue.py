"""Handing out work: built when wanted, a document's longest probe first and alone, nothing lost."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal

import pytest

from leadline.core.contracts import Task
from leadline.core.errors import LengthError
from leadline.core.types import Cell, Document
from leadline.run.documents import PlannedDocument
from leadline.run.queue import BATCH_TOKENS, Queue, Work
from support.scripted_model import document_of


def feed_of(
    documents: int, probes: int, asked_per: Literal["probe", "document"] = "probe", length: int = 1024
) -> tuple[Queue, list[PlannedDocument]]:
    built: list[PlannedDocument] = []

    def build(planned: PlannedDocument) -> Document:
        built.append(planned)
        return document_of(probes, length)

    cells = tuple(Cell("niah", length, 0.5, n) for n in range(probes))
    return Queue((PlannedDocument(Task(), cells, cells) for _ in range(documents)), build, asked_per), built


def take(feed: Queue) -> Work | None:
    with feed.turn:
        return feed.take()


def finish(feed: Queue, work: Work) -> None:
    with feed.turn:
        feed.finished(work)


def test_a_document_is_built_when_it_is_wanted_and_not_before() -> None:
    feed, built = feed_of(3, 1, length=BATCH_TOKENS)
    assert built == []
    take(feed)
    assert len(built) == 1


def test_small_documents_are_built_several_at_a_time_and_never_beyond_the_tokens_for_it() -> None:
    feed, built = feed_of(100, 1, length=BATCH_TOKENS // 10)
    take(feed)
    assert len(built) == 10
    for _ in range(9):
        take(feed)
    assert len(built) == 10
    take(feed)
    assert len(built) == 20


def test_small_documents_for_a_model_that_reads_them_whole_are_built_one_at_a_time() -> None:
    feed, built = feed_of(3, 2, "document")
    take(feed)
    assert len(built) == 1


def test_the_rest_of_a_document_goes_before_others_that_are_built_already() -> None:
    feed, built = feed_of(3, 2)
    leader = take(feed)
    assert leader is not None
    assert len(built) == 3
    finish(feed, leader)
    rest = take(feed)
    assert rest is not None
    assert rest.document is leader.document


def test_by_document_all_probes_come_at_once() -> None:
    feed, _ = feed_of(2, 3, "document")
    assert [len(w.probes) for w in iter(partial(take, feed), None)] == [3, 3]


def test_the_longest_probe_goes_alone_and_the_others_when_it_is_answered() -> None:
    feed, built = feed_of(2, 3)
    leader, other_leader = take(feed), take(feed)
    assert leader is not None
    assert other_leader is not None
    assert [p.cell.sample for p in leader.probes] == [2]
    assert len(built) == 2
    finish(feed, leader)
    rest = [take(feed), take(feed)]
    assert [w.probes[0].cell.sample for w in rest if w] == [1, 0]
    assert all(w.document is leader.document for w in rest if w)


def test_only_missing_probes_are_handed_out() -> None:
    cells = tuple(Cell("niah", 1024, 0.5, n) for n in range(4))
    feed = Queue(iter([PlannedDocument(Task(), cells, cells[1:2])]), lambda planned: document_of(4), "probe")
    work = take(feed)
    assert work is not None
    assert [p.cell.sample for p in work.probes] == [1]
    assert take(feed) is None


def test_a_worker_waits_for_what_depends_on_another_and_closing_frees_it() -> None:
    feed, _ = feed_of(1, 2)
    leader = take(feed)
    assert leader is not None
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(take, feed)
        finish(feed, leader)
        work = waiting.result(120)
        assert work is not None
        assert work.probes[0].cell.sample == 0
        assert take(feed) is None
        closing, _ = feed_of(1, 2)
        take(closing)
        blocked = pool.submit(take, closing)
        closing.close()
        assert blocked.result(120) is None


def test_many_workers_together_get_every_probe_once() -> None:
    feed, _ = feed_of(20, 7)
    seen: list[int] = []
    guard = threading.Lock()

    def work() -> None:
        while (taken := take(feed)) is not None:
            with guard:
                seen.append(taken.probes[0].cell.sample)
            finish(feed, taken)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(seen) == sorted(list(range(7)) * 20)


def test_what_was_built_before_one_that_cannot_be_is_handed_out_and_asked_to_its_end() -> None:
    cells = tuple(Cell("niah", 1024, 0.5, n) for n in range(2))
    all_planned = [PlannedDocument(Task(), cells, cells) for _ in range(4)]

    def build(planned: PlannedDocument) -> Document:
        if planned is all_planned[2]:
            raise LengthError("it cannot exist")
        return document_of(2)

    feed = Queue(iter(all_planned), build, "probe")
    for _ in range(4):
        work = take(feed)
        assert work is not None
        finish(feed, work)
    for _ in range(2):  # for every worker that asks for more
        with pytest.raises(LengthError, match="it cannot exist"):
            take(feed)


def test_closing_ends_a_row_of_documents_after_the_one_that_is_being_built() -> None:
    built: list[PlannedDocument] = []

    def build(planned: PlannedDocument) -> Document:
        built.append(planned)
        if len(built) == 2:
            closing.start()
            while not feed._closed:
                time.sleep(0.001)
        return document_of(1)

    cells = (Cell("niah", 1024, 0.5, 0),)
    feed = Queue((PlannedDocument(Task(), cells, cells) for _ in range(10)), build, "probe")
    closing = threading.Thread(target=feed.close)
    assert take(feed) is None
    assert len(built) == 2
    closing.join(120)
    assert not closing.is_alive()


def test_while_a_worker_waits_for_what_it_builds_others_have_their_turn_and_nobody_else_builds() -> None:
    begun, go = threading.Event(), threading.Event()
    at_once: list[int] = []

    def build(planned: PlannedDocument) -> Document:
        at_once.append(1)
        begun.set()
        assert go.wait(120)
        at_once.append(-1)
        return document_of(1)

    cells = (Cell("niah", 1024, 0.5, 0),)
    feed = Queue((PlannedDocument(Task(), cells, cells) for _ in range(5)), build, "probe", waits=True)
    with ThreadPoolExecutor(5) as pool:
        taking = [pool.submit(take, feed) for _ in range(5)]
        assert begun.wait(120)
        with feed.turn:
            assert not any(t.done() for t in taking)
        go.set()
        assert all(t.result(120) is not None for t in taking)
    assert at_once == [1, -1] * 5
    assert take(feed) is None
