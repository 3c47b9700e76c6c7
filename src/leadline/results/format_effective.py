"""An effective length in words: the length, its interval, the threshold, and what to be careful about."""

from __future__ import annotations

from itertools import groupby

from leadline.core.format import format_count, format_list, format_percent, format_tokens
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
