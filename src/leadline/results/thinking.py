"""Accuracy against thinking: by length, how many tokens a model thought, how often it was cut off, and its score."""

from __future__ import annotations

from dataclasses import dataclass

from leadline.core.drafts import EXTRA_ALLOWANCE
from leadline.core.records import Completion, Record


@dataclass(slots=True)
class ThinkingUse:
    """Sums over the answers of a length, or of a run."""

    answers: int = 0
    thought: int = 0
    """Answers with thinking."""
    tokens: int = 0
    most: int = 0
    cut_off: int = 0
    """Answers that ended because the allowance did."""
    score: float = 0.0
    allowed: int = 0
    """The largest allowance beyond that of the answer."""

    def add(self, record: Record, outcome: Completion) -> None:
        if record.score is None:
            return
        tokens = outcome.thinking_tokens or 0
        allowed = record.labels.get(EXTRA_ALLOWANCE, "")
        self.answers += 1
        self.thought += bool(tokens or outcome.thinking)
        self.tokens += tokens
        self.most = max(self.most, tokens)
        self.cut_off += outcome.finish == "length"
        self.score += record.score
        self.allowed = max(self.allowed, int(allowed) if allowed.isdecimal() else 0)

    @property
    def mean_tokens(self) -> float:
        return self.tokens / self.answers if self.answers else 0.0

    @property
    def accuracy(self) -> float | None:
        return self.score / self.answers if self.answers else None

    @property
    def cut_share(self) -> float:
        return self.cut_off / self.answers if self.answers else 0.0


ThinkingByLength = dict[int, ThinkingUse]


def is_shown(found: ThinkingByLength) -> bool:
    """Whether the model thought at all, or had room to."""
    return any(use.thought or use.allowed for use in found.values())


def thinking_values(found: ThinkingByLength) -> list[dict[str, float | int | None]]:
    """For JSON."""
    return [
        {
            "length": length,
            "answers": use.answers,
            "mean_thinking_tokens": use.mean_tokens,
            "most_thinking_tokens": use.most,
            "cut_off": use.cut_share,
            "accuracy": use.accuracy,
            "allowance": use.allowed,
        }
        for length, use in sorted(found.items())
    ]
