"""What a run came to, counted from its records: nothing leaves the denominator."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from leadline.core.types import Completion, Failure
from leadline.run.recording import ReceiptCount
from leadline.store.runs import read_records


@dataclass(slots=True)
class Summary:
    """Of the newest record of every cell."""

    folder: Path
    planned: int
    done: int = 0
    failed: int = 0
    classes: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    """By kind, with one message of each in `messages`."""
    messages: dict[str, str] = field(default_factory=dict)
    receipts: ReceiptCount = field(default_factory=ReceiptCount)
    retried: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def missing(self) -> int:
        return self.planned - self.done - self.failed

    def as_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "planned": self.planned,
            "done": self.done,
            "failed": self.failed,
            "missing": self.missing,
            "retried": self.retried,
            "classes": dict(self.classes),
            "failures": dict(self.failures),
            "messages": self.messages,
            "receipts": asdict(self.receipts),
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
        }


def summarise(folder: Path, *, planned: int) -> Summary:
    summary = Summary(folder, planned)
    for record in read_records(folder):
        summary.classes[record.failure_class] += 1
        summary.retried += record.attempts > 1
        summary.prompt_tokens += record.prompt_tokens
        if isinstance(record.outcome, Failure):
            summary.failed += 1
            summary.failures[record.outcome.why] += 1
            summary.messages[record.outcome.why] = record.outcome.message
        else:
            summary.done += 1
            if isinstance(record.outcome, Completion):
                summary.receipts.add(record.receipt)
                summary.completion_tokens += record.outcome.completion_tokens or 0
    return summary
