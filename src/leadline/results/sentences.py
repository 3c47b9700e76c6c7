"""Statistics in sentences: effective lengths, shapes of maps, differences, gates, stopping rules."""

from __future__ import annotations

from itertools import groupby

from leadline.core.format import (
    format_count,
    format_list,
    format_number,
    format_percent,
    format_span,
    format_tokens,
    sanitise,
)
from leadline.stats.allocate import CellWidths, GateLook, LengthSearch, SamplingStep
from leadline.stats.compare import Comparison, Difference
from leadline.stats.diagnose import Diagnosis, MapFinding
from leadline.stats.effective import RULER_THRESHOLD, EffectiveLength, Threshold
from leadline.stats.gate import GateResult
from leadline.stats.intervals import FEW_CLUSTERS

# --- effective lengths --------------------------------------------------------------------------


def first_failure(effective: EffectiveLength) -> str:
    """`; it fails at 8k, between the two about 5.7k by interpolation`; empty where no longer length fails."""
    if effective.bound != "crossing":
        return ""
    after = min(
        (score for score in effective.scores if score.length > effective.length), key=lambda score: score.length
    )
    at = format_tokens(after.length)
    fails = f"it fails at {at}" if after.state == "below" else f"at {at} its score is below the threshold"
    if effective.interpolated is None:
        return f"; {fails}"
    return f"; {fails}, between the two about {format_tokens(effective.interpolated)} by interpolation"


def against_the_curve(effective: EffectiveLength) -> str:
    """The lengths whose own score is on the other side of the threshold than the falling curve; empty where none is."""
    reached = effective.length if effective.bound != "below" else 0
    below = [format_tokens(s.length) for s in effective.scores if s.length <= reached and s.mean < effective.threshold]
    above = [format_tokens(s.length) for s in effective.scores if s.length > reached and s.mean >= effective.threshold]
    sides = {"below the threshold": below, "above it" if below else "above the threshold": above}
    parts = [f"{side} at {format_list(lengths)}" for side, lengths in sides.items() if lengths]
    return f"; its score is {format_list(parts)}, within what chance does to a falling curve" if parts else ""


def reached_lengths(effective: EffectiveLength) -> str:
    """`clears the threshold at 4k and from 16k to 512k, not at 8k`, `fails the threshold at 8k, not decided at 4k and
    from 16k to 512k`: every length by its own documents."""
    runs: dict[str, list[str]] = {"above": [], "below": [], "open": []}
    for state, group in groupby(effective.scores, key=lambda score: score.state):
        first, *others = [format_tokens(score.length) for score in group]
        runs[state].append(f"from {first} to {others[-1]}" if others else f"at {first}")
    fails = "not" if runs["above"] else "fails the threshold"
    said = {"above": "clears the threshold", "below": fails, "open": "not decided"}
    return ", ".join(f"{what} {format_list(runs[state])}" for state, what in said.items() if runs[state])


def effective_warning(effective: EffectiveLength) -> str:
    """What makes an effective length unreliable; empty when nothing does."""
    few = ""
    if effective.n_clusters < FEW_CLUSTERS:
        few = f"only {format_count(effective.n_clusters, 'document')} behind a length; plan on {FEW_CLUSTERS} or more"
    uneven = "scores fail the threshold and reach it again at longer lengths" if not effective.falls else ""
    gap = (
        f"{effective.missing} of {effective.wanted} task lengths have no answer and are left out"
        if effective.missing
        else ""
    )
    return "; ".join(part for part in (uneven, few, gap) if part)


def format_threshold(effective: EffectiveLength) -> str:
    """`85.6%, RULER's threshold`, or `85% of its score at the shortest length`."""
    if effective.rule.share is not None:
        return f"{format_percent(effective.rule.share)}% of its score at the shortest length"
    known = ", RULER's threshold" if effective.rule.value == RULER_THRESHOLD else ""
    return f"{100 * effective.threshold:g}%{known}"


# --- the shape of a map -------------------------------------------------------------------------


NO_DECLINE = "no decline shown"
"""Instead of `healthy`, where the score at a length is below the threshold and chance may explain it."""


def format_finding(finding: MapFinding, diagnosis: Diagnosis, *, mean: float | None = None, below: bool = False) -> str:
    """A finding of a diagnosis in a sentence without its capital and full stop. `mean` is the one that the report gives
    elsewhere, in which lengths weigh alike; `below`: the score at a length is below the threshold."""
    numbers = finding.statistic
    weight = f"weight {numbers['weight']:.2f}" if "weight" in numbers else ""
    share = numbers.get("mean", 0.0) if mean is None else mean
    shown = format_percent(share)
    if finding.kind == "healthy":
        return _format_healthy(finding, diagnosis, shown, below=below)
    if finding.kind == "noise" and "lowest" in numbers:
        low, high = 100 * numbers["lowest"], 100 * numbers["highest"]
        return f"no marked pattern: about {shown} over all, fitted between {low:.0f} and {high:.0f}"
    if finding.kind == "noise":
        how = "right or wrong by chance" if share >= 0.05 else "it fails nearly everywhere"
        return f"no pattern: about {shown} at every length and depth, {how}"
    if finding.kind == "cliff":
        before, after = 100 * numbers["before"], 100 * numbers["after"]
        fitted = "" if "last_good" in numbers else "fitted "  # a step has the means of both sides, a curve its own ends
        fall = f"between {format_tokens(numbers['low'])} and {format_tokens(numbers['high'])}"
        more = "; longer lengths would tell it from a decay that begins there" if "may_be_decay" in numbers else ""
        return f"cliff: {fitted}{before:.0f} before and {after:.0f} after a fall {fall} (95%; {weight}){more}"
    if finding.kind == "irregular":
        return _format_irregular(diagnosis, shown)
    if finding.kind == "smooth decay":
        ends = f"fitted from {100 * numbers['from']:.0f} at {format_tokens(numbers['shortest'])}"
        ends += f" to {100 * numbers['to']:.0f} at {format_tokens(numbers['longest'])}"
        if "middle" not in numbers or "floor" in numbers:
            return f"smooth decay: {ends} ({weight})"
        if not numbers["shortest"] <= numbers["middle"] <= numbers["longest"]:  # nothing was measured there
            return f"smooth decay: {ends} ({weight})"
        return (
            f"smooth decay: {ends}; it halves at {format_tokens(numbers['middle'])} and takes "
            f"{numbers['octaves_90_to_10']:.1f} doublings of length to fall from nine tenths to one tenth ({weight})"
        )
    if finding.kind == "lost in the middle":
        more = f"{100 * numbers['contrast']:.0f} points more than"
        if not weight:
            return f"the ends of documents score {more} their middle (p = {numbers['p']:.2g})"
        return f"lost in the middle: the ends score {more} the middle, p = {numbers['p']:.2g} ({weight})"
    if finding.kind == "mixed":
        first, second = (other.kind for other in diagnosis.findings[1:3])
        return (
            f"mixed: {first} (weight {numbers['first']:.2f}) or {second} ({numbers['second']:.2f}); "
            "more samples would tell"
        )
    return _format_depth(finding, weight)


def _format_depth(finding: MapFinding, weight: str) -> str:
    """A slope over depth, or a window at one end."""
    numbers = finding.statistic
    if finding.kind in ("rises with depth", "falls with depth"):
        start, end = 100 * numbers["at_start"], 100 * numbers["at_end"]
        way = "rise" if finding.kind == "rises with depth" else "fall"
        return (
            f"scores {way} with depth: fitted {start:.0f} at the start of the document, {end:.0f} at its end ({weight})"
        )
    side = "end" if finding.kind == "recency only" else "start"
    inside = f"{100 * numbers['inside']:.0f} within {format_tokens(numbers['window'])} tokens of the {side}"
    return f"{finding.kind}: {inside}, {100 * numbers['outside']:.0f} beyond ({weight})"


def _format_healthy(finding: MapFinding, diagnosis: Diagnosis, mean: str, *, below: bool) -> str:
    if "may_be" in finding.statistic:
        count, low = format_count(diagnosis.samples, "sample"), 100 * finding.statistic["may_be"]
        seen = f"{NO_DECLINE} in" if below else "no weak length or depth seen in"
        return f"{seen} {count}, mean {mean} (95%: {low:.0f} or more)"
    if below:
        return f"{NO_DECLINE}: {mean} over all"
    return f"healthy: {mean} everywhere, no length or depth falls behind"


def _format_irregular(diagnosis: Diagnosis, mean: str) -> str:
    parts = [
        " at ".join(
            ([] if length is None else [format_tokens(length)]) + ([] if depth is None else [f"depth {depth:.0%}"])
        )
        + f" ({100 * score:.0f})"
        for length, depth, score in diagnosis.behind
    ]
    where = f": lowest at {format_list(parts)}" if parts else "; no single length or depth falls behind"
    return f"none of the known shapes{where}, {mean} over all"


# --- differences between two runs ---------------------------------------------------------------


def format_comparison(comparison: Comparison) -> str:
    """The overall difference, and every part that differs after correction."""
    overall = comparison.overall
    total = f"{format_points(overall)} points overall on {format_pairs(comparison.pairs, comparison.documents)}"
    changed = [d for d in comparison.differences[1:] if d.verdict in ("worse", "better")]
    if overall.verdict == "not significant" and not changed:
        interval = overall.estimate.interval
        if interval.low <= 0 <= interval.high:
            return f"No difference seen: {total}."
        # With few documents or many tests, an interval without zero can still be chance.
        return f"Not settled: {total}, which may still be chance (p {overall.adjusted:.2g} after correction)."
    listed = "".join(f"; {d.verdict} {_format_part(d)}, {format_points(d)}" for d in changed)
    verdict = "mixed" if overall.verdict == "not significant" else overall.verdict
    return f"{verdict.capitalize()}: {total}{listed}."


def format_pairs(pairs: int, documents: int) -> str:
    """`220 paired prompts of 30 documents`, or `... (3 documents: too few to rely on)`."""
    of = f" of {format_count(documents, 'document')}" if FEW_CLUSTERS <= documents < pairs else ""
    return f"{pairs:,} paired prompts{of}{format_few(documents)}"


def format_few(documents: int) -> str:
    """` (3 documents: too few to rely on)`; empty from five documents on."""
    return f" ({format_count(documents, 'document')}: too few to rely on)" if documents < FEW_CLUSTERS else ""


def format_points(d: Difference) -> str:
    """`-4.2 (95%: -6.0 to -2.4)`."""
    interval = d.estimate.interval
    return f"{100 * d.estimate.mean:+.1f} (95%: {format_span(100 * interval.low, 100 * interval.high, '+.1f')})"


def _format_part(d: Difference) -> str:
    name = sanitise(d.name.partition(":")[2], 60)
    return {"length": f"at {name}", "task": f"on {name}", "depth": f"in the {name} of the document"}.get(d.scope, name)


# --- gates and stopping rules -------------------------------------------------------------------

SHOWN = 6
"""Names of checks that a one-line summary lists."""


def format_wanted(threshold: Threshold) -> str:
    """`a score of 85.6`, or `85% of the score at the shortest length`."""
    if threshold.share is not None:
        return f"{100 * threshold.share:g}% of the score at the shortest length"
    return f"a score of {100 * threshold.value:g}"


def format_gate(result: GateResult) -> str:
    """`fail: task:vt, length:128k`: the verdict and the checks that gave it."""
    if result.verdict == "pass":
        count = len(result.checks)
        return "pass: " + (
            f"all {count} checks lie above their bounds" if count > 1 else "the check lies above its bound"
        )
    return f"{result.verdict}: {_deciding_checks(result)}"


def _deciding_checks(result: GateResult) -> str:
    names = [check.name for check in result.checks if check.verdict == result.verdict]
    return f"{', '.join(names[:SHOWN])}{' ...' if len(names) > SHOWN else ''}"


def format_step(step: SamplingStep) -> str:
    """What a stopping rule found, without the outcome itself, which is shown before it."""
    if isinstance(step.found, LengthSearch):
        text = _format_search(step.found)
    elif isinstance(step.found, CellWidths):
        text = _format_widths(step, step.found)
    else:
        text = _format_look(step.found)
    return f"{text}; its last samples got no answer" if step.unanswered else text


def format_saving(step: SamplingStep, fixed: int) -> str:
    """`took up to 20 million tokens; 100 samples a cell would take 14 times as many`."""
    factor = f"{step.saving:.3g}"
    times = "as many" if factor == "1" else f"{factor} times as many"
    spent = f"took up to {format_number(step.spent)} tokens; {fixed} samples a cell would take {times}"
    return spent if step.more is None else f"{spent}; about {format_number(step.more)} more would settle the rest"


def _format_search(search: LengthSearch) -> str:
    if search.looking_at is not None:
        return f"looking at {format_tokens(search.looking_at)}"
    sure = f"({100 * search.confidence:g}% at every look)"
    above, below = search.last_above, search.first_below
    if search.between:
        known = [f"at least {format_tokens(above)}"] if above is not None else []
        known += [f"below {format_tokens(below)}"] if below is not None else []
        names = format_list([format_tokens(length) for length in search.between])
        verb = "is" if len(search.between) == 1 else "are"
        known.append(f"{names} {verb} too close to {format_wanted(search.threshold)} to tell with so many samples")
        return f"{', '.join(known)} {sure}"
    if above is None:
        return f"below {format_tokens(search.shortest)} {sure}"
    if below is None:
        return f"at least {format_tokens(search.longest)} {sure}"
    return f"{format_tokens(above)} reaches {format_wanted(search.threshold)}, {format_tokens(below)} does not {sure}"


def _format_widths(step: SamplingStep, widths: CellWidths) -> str:
    if not step.done:
        return f"widest cell +-{widths.widest:.2f}"
    if step.outcome == "undecided":
        cells = f"{widths.too_wide} of {format_count(widths.cells, 'cell')}"
        return f"{cells} are wider than +-{widths.half_width:g} at {widths.cap} samples"
    width, sure = 2 * widths.half_width, 100 * widths.confidence
    return f"the interval of every cell is at most {width:g} wide ({sure:g}% for each cell by itself, at every look)"


def _format_look(look: GateLook) -> str:
    if look.result is None:
        text = "nothing to compare yet"
    elif look.result.verdict == "undecided":
        text = f"no verdict yet on {_deciding_checks(look.result)}"
    else:
        text = format_gate(look.result)
    return f"{text}; the base has no more samples to compare with" if look.base_exhausted else text
