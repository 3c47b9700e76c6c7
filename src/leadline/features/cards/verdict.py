"""The four honest verdicts on a claimed window: uses all of it, uses part of it, not decided, not measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from leadline.core.format import format_length, format_tokens
from leadline.results.run import Run
from leadline.results.verdict import verdict
from leadline.stats.effective import NOT_DECIDED, EffectiveLength

Use = Literal["uses all it claims", "uses part", "not decided", "not measured"]
COLOURS: dict[Use, str] = {
    "uses all it claims": "#1b7f4b", "uses part": "#b3541e", "not decided": "#8a6100", "not measured": "#5b6470",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class WindowUse:
    """A run's verdict on the window that a model claims."""

    use: Use
    value: str
    """`32k of 128k`, `below 4k of 128k`, `not decided`, `not measured`."""
    interval: str
    """`95%: at least 16k, below 64k`; empty where there is none."""


def window_use(run: Run) -> WindowUse:
    effective, claimed = verdict(run).effective, run.window
    if effective is None or not run.totals.done:
        return WindowUse("not measured", "not measured", "")
    interval = f"{100 * effective.confidence:g}%: {effective.ends}" if effective.ends else ""
    of = f" of {format_length(claimed)}" if claimed else " tokens"
    if not effective.falls:
        return WindowUse("not decided", "not decided", "scores do not fall steadily with length")
    if not effective.decided:
        return _open_use(effective, claimed, of)
    if effective.bound == "at least":
        if claimed is None or effective.length < claimed:
            longest = format_tokens(effective.length)
            return WindowUse("not decided", f"at least {longest}{of}", f"longer prompts than {longest} were not asked")
        return WindowUse("uses all it claims", f"{format_length(claimed)}{of}", interval)
    # Longer prompts than the claimed window were asked too.
    if claimed is not None and effective.bound == "crossing" and effective.length >= claimed:
        return WindowUse("uses all it claims", f"{effective.point}{of}", interval)
    return WindowUse("uses part", f"{effective.point}{of}", interval)


def _open_use(effective: EffectiveLength, claimed: int | None, of: str) -> WindowUse:
    """The certain part of the claimed window, while some lengths may be on either side of the threshold."""
    sure, reached, failed = f"{100 * effective.confidence:g}%: ", effective.surely_reached, effective.surely_failed
    if reached is None and failed is None:
        return WindowUse("not decided", NOT_DECIDED, f"{sure}{effective.ends}")
    if claimed is not None and reached is not None and reached >= claimed:
        return WindowUse(
            "uses all it claims", f"{format_length(claimed)}{of}", f"{sure}{effective.point}; {effective.ends}"
        )
    use: Use = "not decided" if failed is None or (claimed is not None and failed > claimed) else "uses part"
    if reached is not None:
        also = "" if failed is None else f"below {format_tokens(failed)}; "
        return WindowUse(use, f"at least {format_tokens(reached)}{of}", f"{sure}{also}{effective.ends}")
    return WindowUse(use, f"{effective.point}{of if use == 'uses part' else ''}", f"{sure}{effective.ends}")
