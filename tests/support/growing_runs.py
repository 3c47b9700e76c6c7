"""Run folders that grow during a test: records are appended in steps, under a real lock."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from leadline.core.records import Record
from leadline.store.manifest import read_manifest, session
from leadline.store.runs import RECORDS, RunWriter, open_run
from support.planted_runs import write_run


def begun_run(folder: Path, records: Sequence[Record], *, first: int = 0, samples: int = 3) -> Path:
    """A run that plans all of these records and holds the first `first` of them."""
    write_run(folder, records, samples=samples)
    lines = (folder / RECORDS).read_bytes().splitlines(keepends=True)
    (folder / RECORDS).write_bytes(b"".join(lines[:first]))
    return folder


@contextmanager
def writing(folder: Path) -> Iterator[RunWriter]:
    """A new session that writes to the run; it is marked as finished if no error is raised."""
    begun = (datetime.now(UTC) - timedelta(seconds=2)).isoformat(timespec="seconds")  # before `of_now`
    this = msgspec.structs.replace(session(["leadline", "run", "niah"]), started=begun)
    again = msgspec.structs.replace(read_manifest(folder), sessions=(this,))
    with open_run(folder, again) as writer:
        yield writer


def of_now(record: Record, seconds: float = 0.1) -> Record:
    """The same record, as if it had just been answered."""
    return msgspec.structs.replace(record, started=time.time() - seconds, seconds=seconds)
