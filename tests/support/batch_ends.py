"""Ends of the program around a call: before or after a request, a batch that is saved, or a record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pytest

from leadline.store.batches import BatchFolder, SavedBatch
from leadline.store.runs import RunWriter
from support.batch_server import Watcher


class Killed(BaseException):
    """Stands for the end of the program."""


def counted(action: Callable[[], None], at: int) -> Callable[[], None]:
    """Does the action at its `at`-th call."""
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            action()

    return call


def die() -> None:
    raise Killed


def dies_around(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, at: int, *, after: bool, step: str = ""
) -> None:
    """The program ends before or after the `at`-th call of a method (with a batch at this step)."""
    whole, dies = getattr(owner, name), counted(die, at)

    def wrapped(self: Any, value: Any) -> Any:
        matters = not step or (isinstance(value, SavedBatch) and value.step == step)
        if matters and not after:
            dies()
        result = whole(self, value)
        if matters and after:
            dies()
        return result

    monkeypatch.setattr(owner, name, wrapped)


class Watched(Protocol):
    """A server that calls these around every request about batches."""

    before: Watcher
    after: Watcher


Place = Callable[[pytest.MonkeyPatch, Any], None]


def at_request(method: str, path: str, at: int = 1, *, after: bool = False) -> Place:
    def arrange(monkeypatch: pytest.MonkeyPatch, server: Watched) -> None:
        dies = counted(die, at)

        def watch(asked: str, asked_path: str) -> None:
            if asked == method and asked_path.startswith(path):
                dies()

        if after:
            server.after = watch
        else:
            server.before = watch

    return arrange


def at_saving(step: str, at: int = 1, *, after: bool) -> Place:
    return lambda monkeypatch, server: dies_around(monkeypatch, BatchFolder, "save", at, after=after, step=step)


def at_record(at: int, *, after: bool) -> Place:
    return lambda monkeypatch, server: dies_around(monkeypatch, RunWriter, "append", at, after=after)
