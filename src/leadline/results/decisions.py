"""Decisions in sentences: what a gate says, and what a stopping rule has found so far."""

from __future__ import annotations

from leadline.core.format import format_count, format_tokens
from leadline.stats.allocate import CellWidths, GateLook, LengthSearch, Step
from leadline.stats.effective import Threshold
from leadline.stats.gate import GateResult

SHOWN = 6
"""Names of checks that a one-line summary lists."""


def format_wanted(line: Threshold) -> str:
    """`a score of 85.6`, or `85% of the score at the shortest length`."""
    if line.share is not None:
        return f"{100 * line.share:g}% of the score at the shortest length"
    return f"a score of {100 * line.value:g}"


def format_gate(result: GateResult) -> str:
    """`fail: task:vt, length:128k`: the verdict and the checks that gave it."""
    if result.verdict == "pass":
        return f"pass: all {len(result.checks)} checks lie above their bounds"
    return f"{result.verdict}: {_deciding_checks(result)}"


def _deciding_checks(result: GateResult) -> str:
    names = [check.name for check in result.checks if check.verdict == result.verdict]
    return f"{', '.join(names[:SHOWN])}{' ...' if len(names) > SHOWN else ''}"


def format_step(step: Step) -> str:
    """What a stopping rule found, without the outcome itself, which is shown before it."""
    if isinstance(step.found, LengthSearch):
        text = _format_search(step.found)
    elif isinstance(step.found, CellWidths):
        text = _format_widths(step, step.found)
    else:
        text = _format_look(step.found)
    return f"{text}; its last samples got no answer" if step.unanswered else text


def format_saving(step: Step, fixed: int, unit: str = "tokens") -> str:
    """`spent 20M tokens, 14x less than 100 samples a cell`."""
    ratio = f"{step.saving:.3g}x less than" if step.saving >= 1 else f"{1 / step.saving:.3g}x as much as"
    if f"{step.saving:.3g}" == "1":
        ratio = "as much as"
    spent = f"spent {_short(step.spent)} {unit}, {ratio} {fixed} samples a cell"
    return spent if step.more is None else f"{spent}; about {_short(step.more)} more would settle the rest"


def _format_search(found: LengthSearch) -> str:
    if found.looking_at is not None:
        return f"looking at {format_tokens(found.looking_at)}"
    sure = f"({100 * found.confidence:g}% at every look)"
    above, below = found.last_above, found.first_below
    if found.between:
        known = [f"at least {format_tokens(above)}"] if above is not None else []
        known += [f"less than {format_tokens(below)}"] if below is not None else []
        *others, last = [format_tokens(length) for length in found.between]
        names = f"{', '.join(others)} and {last}" if others else last
        known.append(f"{names} {'are' if others else 'is'} too close to the line, {format_wanted(found.line)}")
        return f"{', '.join(known)} {sure}"
    if above is None:
        return f"below {format_tokens(found.shortest)} {sure}"
    if below is None:
        return f"at least {format_tokens(found.longest)} {sure}"
    return f"{format_tokens(above)} reaches {format_wanted(found.line)}, {format_tokens(below)} does not {sure}"


def _format_widths(step: Step, found: CellWidths) -> str:
    if not step.done:
        return f"widest cell +-{found.widest:.2f}"
    if step.outcome == "undecided":
        cells = f"{found.too_wide} of {format_count(found.cells, 'cell')}"
        return f"{cells} are wider than +-{found.half_width:g} at {found.cap} samples"
    width, sure = 2 * found.half_width, 100 * found.confidence
    return f"the interval of every cell is at most {width:g} wide ({sure:g}% for each cell by itself, at every look)"


def _format_look(found: GateLook) -> str:
    if found.result is None:
        text = "nothing to compare yet"
    elif found.result.verdict == "undecided":
        text = f"no verdict yet on {_deciding_checks(found.result)}"
    else:
        text = format_gate(found.result)
    return f"{text}; the base has no more samples to compare with" if found.base_exhausted else text


def _short(number: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"
