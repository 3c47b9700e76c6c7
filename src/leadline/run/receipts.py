"""Receipts: did the model read as many tokens as we sent? And the count of them over a run."""

from __future__ import annotations

from dataclasses import dataclass

from leadline.core.types import Completion, Outcome, Probe, Receipt


def receipt_for(probe: Probe, outcome: Outcome) -> Receipt:
    """Our count beside the model's own. A failure or a measurement has no receipt to show."""
    theirs = outcome.prompt_tokens if isinstance(outcome, Completion) else None
    return Receipt(ours=probe.prompt_tokens, theirs=theirs)


@dataclass(slots=True)
class ReceiptCount:
    """Of the answers of a run: how many receipts agree, disagree, or were never given."""

    ok: int = 0
    wrong: int = 0
    absent: int = 0
    worst: int = 0
    """The largest disagreement: tokens reported less tokens sent."""

    def add(self, receipt: Receipt) -> None:
        if receipt.theirs is None:
            self.absent += 1
        elif receipt.theirs == receipt.ours:
            self.ok += 1
        else:
            self.wrong += 1
            off = receipt.theirs - receipt.ours
            self.worst = off if abs(off) > abs(self.worst) else self.worst
