"""Statistics in sentences: effective lengths, and the shape of a map."""

from __future__ import annotations

from itertools import groupby

from leadline.core.format import format_count, format_list, format_percent, format_tokens
from leadline.stats.diagnose import Diagnosis, MapFinding
from leadline.stats.effective import RULER_THRESHOLD, EffectiveLength
from leadline.stats.intervals import FEW_CLUSTERS


def first_failure(found: EffectiveLength) -> str:
    """`; it fails at 8k, between the two about 5.7k by interpolation`; empty where no longer length fails."""
    if found.bound != "crossing":
        return ""
    after = min((score for score in found.scores if score.length > found.length), key=lambda score: score.length)
    at = format_tokens(after.length)
    fails = f"it fails at {at}" if after.state == "below" else f"at {at} its score is below the threshold"
    if found.interpolated is None:
        return f"; {fails}"
    return f"; {fails}, between the two about {format_tokens(found.interpolated)} by interpolation"


def against_the_curve(found: EffectiveLength) -> str:
    """The lengths whose own score is on the other side of the threshold than the falling curve; empty where none is."""
    reached = found.length if found.bound != "below" else 0
    below = [format_tokens(s.length) for s in found.scores if s.length <= reached and s.mean < found.threshold]
    above = [format_tokens(s.length) for s in found.scores if s.length > reached and s.mean >= found.threshold]
    sides = {"below the threshold": below, "above it" if below else "above the threshold": above}
    parts = [f"{side} at {format_list(lengths)}" for side, lengths in sides.items() if lengths]
    return f"; its score is {format_list(parts)}, within what chance does to a falling curve" if parts else ""


def reached_lengths(found: EffectiveLength) -> str:
    """`clears the threshold at 4k and from 16k to 512k, not at 8k`, from the scores as they were measured."""
    runs: dict[bool, list[str]] = {True: [], False: []}
    for reached, group in groupby(found.scores, key=lambda score: score.mean >= found.threshold):
        first, *others = [format_tokens(score.length) for score in group]
        runs[reached].append(f"from {first} to {others[-1]}" if others else f"at {first}")
    return f"clears the threshold {format_list(runs[True])}, not {format_list(runs[False])}"


def length_range(found: EffectiveLength) -> str:
    """`32k (95%: 32k to 64k)`, `at least 128k`, `below 4k`."""
    spread = effective_interval(found)
    return f"{effective_point(found)} ({spread})" if spread else effective_point(found)


def effective_point(found: EffectiveLength) -> str:
    """`32k`, `at least 128k` or `below 4k`; `up to 128k, not steadily` where scores reach the threshold again."""
    point = format_tokens(found.length)
    if not found.falls:
        return f"up to {point}, not steadily"
    return point if found.bound == "crossing" else f"{found.bound} {point}"


def effective_interval(found: EffectiveLength, *, with_confidence: bool = True) -> str:
    """`95%: 35k to 52k`; empty when the whole interval lies outside the lengths measured."""
    shortest, longest = found.scores[0].length, found.scores[-1].length
    surely_below = found.low_open and not found.high_open and found.high <= shortest
    surely_beyond = found.high_open and not found.low_open and found.low >= longest
    if surely_below or surely_beyond:
        return ""
    low = f"below {format_tokens(shortest)}" if found.low_open else format_tokens(found.low)
    high = f"to {format_tokens(found.high)}"
    if found.high_open:
        high = f"to beyond {format_tokens(longest)}" if found.low_open else "or more"
    return f"{100 * found.confidence:g}%: {low} {high}" if with_confidence else f"{low} {high}"


def effective_warning(found: EffectiveLength) -> str:
    """What makes an effective length unreliable; empty when nothing does."""
    few = ""
    if found.n_clusters < FEW_CLUSTERS:
        few = f"only {format_count(found.n_clusters, 'document')} behind a length; plan on {FEW_CLUSTERS} or more"
    uneven = "scores fail the threshold and reach it again at longer lengths" if not found.falls else ""
    gap = f"{found.missing} of {found.wanted} task lengths have no answer and are left out" if found.missing else ""
    return "; ".join(part for part in (uneven, few, gap) if part)


def format_threshold(found: EffectiveLength) -> str:
    """`85.6%, RULER's threshold`, or `85% of its score at the shortest length`."""
    if found.line.share is not None:
        return f"{format_percent(found.line.share)}% of its score at the shortest length"
    known = ", RULER's threshold" if found.line.value == RULER_THRESHOLD else ""
    return f"{100 * found.threshold:g}%{known}"


def format_finding(found: MapFinding, diagnosis: Diagnosis) -> str:
    """A finding of a diagnosis in a sentence without its capital and full stop."""
    numbers = found.statistic
    weight = f"weight {numbers['weight']:.2f}" if "weight" in numbers else ""
    mean = f"{100 * numbers.get('mean', 0.0):.0f}"
    if found.kind == "healthy":
        if "may_be" in numbers:
            count = format_count(diagnosis.samples, "sample")
            return f"no weak length or depth seen in {count}, mean {mean} (95%: {100 * numbers['may_be']:.0f} or more)"
        return f"healthy: {mean} everywhere, no length or depth falls behind"
    if found.kind == "noise" and "lowest" in numbers:
        low, high = 100 * numbers["lowest"], 100 * numbers["highest"]
        return f"no marked pattern: about {mean} over all, between {low:.0f} and {high:.0f}"
    if found.kind == "noise":
        how = "right or wrong by chance" if numbers["mean"] >= 0.05 else "it fails nearly everywhere"
        return f"no pattern: about {mean} at every length and depth, {how}"
    if found.kind == "cliff":
        before, after = 100 * numbers["before"], 100 * numbers["after"]
        fall = f"between {format_tokens(numbers['low'])} and {format_tokens(numbers['high'])}"
        more = "; longer lengths would tell it from a decay that begins there" if "may_be_decay" in numbers else ""
        return f"cliff: {before:.0f} before and {after:.0f} after a fall {fall} (95%; {weight}){more}"
    if found.kind == "irregular":
        return _format_irregular(diagnosis, mean)
    if found.kind == "smooth decay":
        ends = f"from {100 * numbers['from']:.0f} at {format_tokens(numbers['shortest'])}"
        ends += f" to {100 * numbers['to']:.0f} at {format_tokens(numbers['longest'])}"
        if "middle" not in numbers or "floor" in numbers:
            return f"smooth decay: {ends} ({weight})"
        return (
            f"smooth decay: {ends}; it halves at {format_tokens(numbers['middle'])} and takes "
            f"{numbers['octaves_90_to_10']:.1f} doublings of length to fall from nine tenths to one tenth ({weight})"
        )
    if found.kind == "lost in the middle":
        more = f"{100 * numbers['contrast']:.0f} more than"
        if not weight:
            return f"the ends of documents score {more} their middle (p = {numbers['p']:.2g})"
        return f"lost in the middle: the ends score {more} the middle, p = {numbers['p']:.2g} ({weight})"
    if found.kind == "mixed":
        first, second = (other.kind for other in diagnosis.findings[1:3])
        return (
            f"mixed: {first} (weight {numbers['first']:.2f}) or {second} ({numbers['second']:.2f}); "
            "more samples would tell"
        )
    side = "end" if found.kind == "recency only" else "start"
    inside = f"{100 * numbers['inside']:.0f} within {format_tokens(numbers['window'])} tokens of the {side}"
    return f"{found.kind}: {inside}, {100 * numbers['outside']:.0f} beyond ({weight})"


def _format_irregular(diagnosis: Diagnosis, mean: str) -> str:
    parts = [
        f"{format_tokens(length)} ({100 * score:.0f})"
        if length is not None
        else f"depth {depth:.0%} ({100 * score:.0f})"
        for length, depth, score in diagnosis.behind
    ]
    where = f": lowest at {format_list(parts)}" if parts else "; no single length or depth falls behind"
    return f"none of the known shapes{where}, {mean} over all"
