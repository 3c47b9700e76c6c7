"""What a check of a model or its server found. `leadline doctor` and the start of a run make these; reports show them.

Ok, Finding, Skipped   what one check found out
CheckResult            the same with the name of the check and what the finding does to results
CheckReport                the results of all checks of one model
"""

from __future__ import annotations

from typing import Literal

import msgspec

from leadline.core.secrets import redact

EVIDENCE_CHARACTERS = 600


class Ok(msgspec.Struct, frozen=True):
    """Nothing is wrong, as far as the check can see."""

    evidence: str


class Finding(msgspec.Struct, frozen=True):
    """Something that changes results, how it was seen, and what to do about it."""

    evidence: str
    fix: str


class Skipped(msgspec.Struct, frozen=True):
    """The check cannot be made on this model or server, and why."""

    evidence: str


CheckStatus = Literal["ok", "finding", "not_made"]


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check."""

    check: str
    title: str
    status: CheckStatus
    evidence: str
    """How it was seen; for a check that was not made, why not."""
    effect: str = ""
    """What a finding does to results."""
    fix: str = ""
    requests: int = 0
    seconds: float = 0.0

    @classmethod
    def of(
        cls, check: str, title: str, effect: str, outcome: Ok | Finding | Skipped, *, requests: int, seconds: float
    ) -> CheckResult:
        status: CheckStatus = (
            "ok" if isinstance(outcome, Ok) else "not_made" if isinstance(outcome, Skipped) else "finding"
        )
        return cls(
            check=check,
            title=title,
            status=status,
            evidence=redact(outcome.evidence)[:EVIDENCE_CHARACTERS],
            effect=effect if status == "finding" else "",
            fix=redact(outcome.fix) if isinstance(outcome, Finding) else "",
            requests=requests,
            seconds=seconds,
        )


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """All checks of one model."""

    model: str
    server: str = ""
    """The kind of server and its version; empty for a model in this process."""
    window: int | None = None
    results: tuple[CheckResult, ...]
    numbers: dict[str, float | int | None] = {}
    """Measured by the way: flip rate with its interval, tokens that are read whole, ..."""
    requests: int = 0
    prompt_tokens: int = 0
    seconds: float = 0.0

    @property
    def findings(self) -> tuple[CheckResult, ...]:
        return tuple(result for result in self.results if result.status == "finding")
