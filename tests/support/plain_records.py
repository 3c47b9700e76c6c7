"""Minimal records and a minimal manifest."""

from __future__ import annotations

import msgspec

from leadline.core.answers import Completion, Failure, Sent
from leadline.core.records import Receipt, Record, Score
from leadline.core.types import Cell, Question
from leadline.store.manifest import Manifest, session


def record(sample: int, *, text: str = "42", failed: bool = False, length: int = 1024) -> Record:
    outcome = Failure("server", "500", transient=True) if failed else Completion(text)
    return Record(
        cell=Cell("niah", length, 0.5, sample), reading="fresh", document=f"d{sample}", cluster=f"d{sample}",
        model="sim:perfect", question=Question("?", targets=("42",), allowance=64, scorers=("match.all",)), facts=(),
        body_tokens=900, prompt_tokens=960, sent=Sent("chat", "none"), outcome=outcome, receipt=Receipt(960, None),
        scores={} if failed else {"match.all": Score(1.0)}, failure_class="error" if failed else "correct",
        attempts=1, started=0.0, seconds=0.1,
    )  # fmt: skip


def manifest(**changes: object) -> Manifest:
    made = Manifest(
        digest="d", spec={"model": "sim:perfect", "lengths": [1024], "depths": [0.5], "samples": 3,
                          "tasks": [{"name": "niah", "options": {}}]},
        planned=3, fingerprints={"model.tokenizer": "t1", "task.niah.version": "1"}, model={"name": "perfect"},
        created="2026-01-01T00:00:00+00:00", sessions=(session(["leadline", "run"]),),
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)
