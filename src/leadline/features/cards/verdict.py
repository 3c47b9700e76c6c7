"""The four honest verdicts on a claimed window: uses all of it, uses part of it, not decided, not measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from leadline.core.format import format_length, format_tokens
from leadline.results.run import Run
from leadline.results.verdict import verdict

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
        return WindowUse("not decided", "not decided", found.between)
    if found.bound == "at least":
        if claimed is None or found.length < claimed:
            longest = format_tokens(found.length)
            return WindowUse("not decided", f"at least {longest}{of}", f"longer prompts than {longest} were not asked")
        return WindowUse("uses all it claims", f"{format_length(claimed)}{of}", interval)
    if claimed is not None and found.bound == "crossing" and found.length >= claimed:  # longer prompts were asked too
        return WindowUse("uses all it claims", f"{found.point}{of}", interval)
    return WindowUse("uses part", f"{found.point}{of}", interval)
