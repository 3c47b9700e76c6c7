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
    """What a run says about the window that a model claims."""

    use: Use
    value: str
    """`32k of 128k`, `below 4k of 128k`, `not decided`, `not measured`."""
    interval: str
    """`95%: at least 16k, below 64k`; empty where there is none."""


def window_use(run: Run) -> WindowUse:
    found, claimed = verdict(run).effective, run.window
    if found is None or not run.totals.done:
        return WindowUse("not measured", "not measured", "")
    interval = f"{100 * found.confidence:g}%: {found.ends}" if found.ends else ""
    of = f" of {format_length(claimed)}" if claimed else " tokens"
    if not found.falls:
        return WindowUse("not decided", "not decided", "scores do not fall steadily with length")
    if not found.decided:
        return _open_use(found, claimed, of)
    if found.bound == "at least":
        if claimed is None or found.length < claimed:
            longest = format_tokens(found.length)
            return WindowUse("not decided", f"at least {longest}{of}", f"longer prompts than {longest} were not asked")
        return WindowUse("uses all it claims", f"{format_length(claimed)}{of}", interval)
    if claimed is not None and found.bound == "crossing" and found.length >= claimed:  # longer prompts were asked too
        return WindowUse("uses all it claims", f"{found.point}{of}", interval)
    return WindowUse("uses part", f"{found.point}{of}", interval)


def _open_use(found: EffectiveLength, claimed: int | None, of: str) -> WindowUse:
    """Where some length may be on either side: what is sure of the claimed window all the same."""
    sure, reached, failed = f"{100 * found.confidence:g}%: ", found.surely_reached, found.surely_failed
    if reached is None and failed is None:
        return WindowUse("not decided", NOT_DECIDED, f"{sure}{found.ends}")
    if claimed is not None and reached is not None and reached >= claimed:
        return WindowUse("uses all it claims", f"{format_length(claimed)}{of}", f"{sure}{found.point}; {found.ends}")
    use: Use = "not decided" if failed is None or (claimed is not None and failed > claimed) else "uses part"
    if reached is not None:
        also = "" if failed is None else f"below {format_tokens(failed)}; "
        return WindowUse(use, f"at least {format_tokens(reached)}{of}", f"{sure}{also}{found.ends}")
    return WindowUse(use, f"{found.point}{of if use == 'uses part' else ''}", f"{sure}{found.ends}")
