"""What somebody who only looks can know of a run: whether it is being written, and whether it ended by itself."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest

from leadline.core.errors import LockedError
from leadline.store.lock import Lock, is_held, machine_of
from leadline.store.manifest import read_manifest, session
from leadline.store.runs import open_run
from support.planted_runs import cliff, planted_records, write_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", list(planted_records(cliff, lengths=[1024], depths=[0.5])))


def test_the_lock_says_whether_a_run_is_being_written(folder: Path) -> None:
    assert is_held(folder) is False
    with open_run(folder, read_manifest(folder)):
        assert is_held(folder) is True
        assert machine_of(folder)
    assert is_held(folder) is False
    assert is_held(folder / "nothing here") is False


def test_looking_keeps_no_writer_out(folder: Path) -> None:
    """A look holds the lock for an instant: thousands of them against hundreds of writers, and none is refused."""
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            is_held(folder)

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(200):
            Lock(folder).release()
    finally:
        over.set()
        for looker in lookers:
            looker.join()


def test_a_second_writer_is_still_refused(folder: Path) -> None:
    with open_run(folder, read_manifest(folder)), pytest.raises(LockedError, match="is writing this run"):
        Lock(folder)


def test_a_run_that_ended_by_itself_says_when(folder: Path) -> None:
    assert read_manifest(folder).sessions[-1].ended


def test_a_run_that_was_stopped_does_not(folder: Path) -> None:
    again = msgspec.structs.replace(read_manifest(folder), sessions=(session([]),))
    with pytest.raises(KeyboardInterrupt), open_run(folder, again):
        raise KeyboardInterrupt
    assert [bool(s.ended) for s in read_manifest(folder).sessions] == [True, False]
