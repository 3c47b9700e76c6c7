"""Kept, lost or undecided, from the paired answers of two runs, at one of a few looks.

**Lost**: a part of the grid (all of it, a family, a length, a third of the depths) scores less in the candidate, by the
paired tests of `leadline compare` with Holm's correction over all parts. **Kept**: intervals lie above a margin: the
one asked for overall, one and a half times it for every part, which has a fraction of the prompts. Everything else is
undecided.

Answers are looked at several times while they come in, so the 5 % of false alarms are divided: the looks before the
last share three tenths of them, the last has the rest (a union bound: the whole is never above 5 %).

Where a part is lost, others that contain its prompts look worse too. Parts are therefore blamed one at a time: the
surest first, then whatever is still worse among the prompts outside of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from leadline.core.errors import UsageError
from leadline.core.format import format_length
from leadline.features.certify.drift import Drift
from leadline.results.repeats import Repeats
from leadline.stats.compare import Comparison, Difference, Pairs, Scope, compare
from leadline.stats.gate import GateResult, check_gate, parse_gate
from leadline.stats.intervals import Interval, wilson
from leadline.stats.observations import DEPTH_BANDS, BoolArray, Observations

Outcome = Literal["kept", "lost", "undecided"]
EXIT_CODES: dict[Outcome, int] = {"kept": 0, "lost": 1, "undecided": 2}
ALPHA = 0.05
EARLY_SHARE = 0.3
FIRST_LOOK = 4
"""Samples a cell at the first look."""
LAST_BUT_ONE = 0.8
"""The share of all samples up to which there are earlier looks."""
PART_MARGIN = 1.5
"""The margin of a part, in margins of the whole."""
PART_SCOPES: tuple[Scope, ...] = ("task", "length", "depth")
MOST_BLAMED = 4
TIE_NATS = 0.1
"""A flip is a tie where the first token of the answer was ahead of the second candidate by less."""
FEWEST_TIMES = 3
"""Prompts of a length on each side for an interval of a speed."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the answers so far say."""

    outcome: Outcome
    comparison: Comparison
    gate: GateResult
    blamed: tuple[Difference, ...]
    """The parts that are worse, none of them only because of another one."""
    alpha: float
    """Of this look."""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]


def looks(samples: int) -> tuple[int, ...]:
    """Samples a cell at each look: doubling, to the most. One shortly before the last would only cost significance."""
    steps = []
    at = FIRST_LOOK
    while at <= LAST_BUT_ONE * samples:
        steps.append(at)
        at *= 2
    return (*steps, samples)


def alpha_at(number: int, count: int) -> float:
    """The share of false alarms of look `number` of `count`, counted from 0."""
    if count == 1:
        return ALPHA
    return ALPHA * (EARLY_SHARE / (count - 1) if number < count - 1 else 1 - EARLY_SHARE)


def decide(pairs: Pairs, margin: float, alpha: float = ALPHA) -> Decision:
    """`margin` is a share: 0.05 accepts a loss of five points."""
    comparison = compare(pairs)
    scopes = [scope for scope in PART_SCOPES if comparison.of(scope)]
    gate = check_gate(pairs, parse_gate(gate_rules(margin, scopes)), confidence=1 - alpha)
    blamed = _blame(pairs, comparison, alpha)
    outcome: Outcome = "lost" if blamed or gate.verdict == "fail" else "kept" if gate.verdict == "pass" else "undecided"
    return Decision(outcome, comparison, gate, blamed, alpha)


def gate_rules(margin: float, scopes: Iterable[str]) -> str:
    """What has to be ruled out for a side to be kept."""
    overall = f"overall >= {-100 * margin:g}"
    return "; ".join([overall, *(f"{scope}:* >= {-100 * PART_MARGIN * margin:g}" for scope in scopes)])


def _blame(pairs: Pairs, comparison: Comparison, alpha: float) -> tuple[Difference, ...]:
    blamed: list[Difference] = []
    while len(blamed) < MOST_BLAMED:
        worse = [d for d in comparison.differences if d.adjusted <= alpha and d.estimate.mean < 0]
        parts = [d for d in worse if d.scope != "overall"]
        if not worse:
            break
        surest = min(parts, key=lambda d: (d.adjusted, d.estimate.mean), default=comparison.overall)
        outside = _outside(pairs, [*blamed, surest])
        rest = compare(outside) if len(outside) > 1 else None
        if not parts or (rest is not None and _is_everywhere(comparison, rest, alpha)):
            blamed.append(comparison.overall)
            break
        blamed.append(surest)
        if rest is None:
            break
        comparison = rest
    return _without_overlaps(pairs, blamed, alpha)


def _without_overlaps(pairs: Pairs, blamed: Sequence[Difference], alpha: float) -> tuple[Difference, ...]:
    """Parts that are no longer worse outside of the other blamed ones are taken back, the least sure first: a family
    that was named because of its prompts past a length, before the length was."""
    kept = list(blamed)
    while len(kept) > 1:
        alone = {part.name: _adjusted_alone(pairs, part, [d for d in kept if d is not part]) for part in kept}
        weakest = max(kept, key=lambda part: alone[part.name])
        if alone[weakest.name] <= alpha:
            break
        kept.remove(weakest)
    return tuple(kept)


def _adjusted_alone(pairs: Pairs, part: Difference, others: Sequence[Difference]) -> float:
    outside = _outside(pairs, others)
    differences = compare(outside).differences if len(outside) > 1 else ()
    same = next((d for d in differences if d.name == part.name), None)
    if same is None:  # no prompt of it, or nothing else, is left
        return 0.0 if part.scope == "overall" else 1.0
    return same.adjusted if same.estimate.mean < 0 else 1.0


def _outside(pairs: Pairs, parts: Sequence[Difference]) -> Pairs:
    rows = np.ones(len(pairs), dtype=np.bool_)
    for part in parts:
        if part.scope != "overall":
            rows &= ~_inside(pairs.base, part)
    return _subset(pairs, rows)


def _is_everywhere(comparison: Comparison, rest: Comparison, alpha: float) -> bool:
    """Whether no part is to blame: every family, length and depth third points down, and what is left without the
    surest part is still worse."""
    if max(comparison.overall.adjusted, rest.overall.p) > alpha or rest.overall.estimate.mean > 0:
        return False
    overall = comparison.overall.estimate.mean
    return all(d.estimate.mean <= overall / 3 for d in comparison.differences)


def _inside(data: Observations, part: Difference) -> BoolArray:
    key = part.key[0]
    if part.scope == "task":
        return np.asarray(data.task == key)
    if part.scope == "length":
        return np.asarray(data.length == key)
    low, high = DEPTH_BANDS[str(key)]
    last = max(band[1] for band in DEPTH_BANDS.values())
    return np.asarray((data.depth >= low) & ((data.depth < high) | (high == last)))


def _subset(pairs: Pairs, rows: BoolArray) -> Pairs:
    return replace(pairs, base=pairs.base.take(rows), candidate=pairs.candidate.take(rows))


# --- figures that people quote ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QuotedFigure:
    """A number with its interval; `interval` is None where it has none, and `value` where it was not measured."""

    name: str
    value: float | None
    interval: Interval | None = None
    note: str = ""


def quoted_figures(pairs: Pairs, decision: Decision, drift: Drift) -> tuple[QuotedFigure, ...]:
    """Recovery, area under the MRCR curve, flips, McNemar's p. Same-top-1 and KLD need log-probabilities."""
    overall = decision.comparison.overall
    flips = int(np.sum(pairs.base.value != pairs.candidate.value))
    same, kl = drift.overall.same_top, drift.overall.kl
    note = f"needs log-probabilities of both sides ({drift.problem})" if drift.problem else ""
    return (
        _recovery(pairs),
        _mrcr_area(pairs),
        QuotedFigure("same top-1", same.value, same.interval, note),
        QuotedFigure("mean KLD", kl.value, kl.interval, note),
        QuotedFigure("flip rate", flips / len(pairs), wilson(flips, len(pairs))),
        QuotedFigure(f"p ({overall.test})", overall.p, note="two-sided, of the whole, without correction"),
    )


def _recovery(pairs: Pairs) -> QuotedFigure:
    return _ratio_of_means("recovery", pairs)


def _mrcr_area(pairs: Pairs) -> QuotedFigure:
    """The ratio of the areas over length bins: every length counts alike."""
    rows = np.array([str(task).startswith("mrcr") for task in pairs.base.task.tolist()], dtype=np.bool_)
    if not rows.any():
        return QuotedFigure("MRCR AUC ratio", None, note="no MRCR task was asked")
    return _ratio_of_means("MRCR AUC ratio", _subset(pairs, rows))


def _ratio_of_means(name: str, pairs: Pairs, draws: int = 2000) -> QuotedFigure:
    """Candidate over base, every length with the same weight; a percentile interval over documents."""
    clusters, document = np.unique(pairs.base.cluster, return_inverse=True)
    _, length = np.unique(pairs.base.length, return_inverse=True)
    weight = 1.0 / np.bincount(length)[length]
    sums = np.zeros((2, len(clusters)))
    for side, data in enumerate((pairs.base, pairs.candidate)):
        np.add.at(sums[side], document, weight * data.value)
    whole = float(sums[1].sum() / max(sums[0].sum(), 1e-9))
    if len(clusters) < 2:
        return QuotedFigure(name, whole, note="one document: no interval")
    chosen = np.random.default_rng(0).integers(0, len(clusters), (draws, len(clusters)))
    drawn = np.sort(sums[1][chosen].sum(-1) / np.maximum(sums[0][chosen].sum(-1), 1e-9))
    tail = int(ALPHA / 2 * draws)
    interval = Interval(float(drawn[tail]), float(drawn[-1 - tail]), 1 - ALPHA, "bootstrap over documents")
    return QuotedFigure(name, whole, interval)


Times = Sequence[tuple[int, float]]
"""(length, a number) for every prompt."""


def speed_figures(base: tuple[Times, Times], candidate: tuple[Times, Times]) -> list[QuotedFigure]:
    """Time to the first token and rate of decoding, candidate over base, by length: ratios of medians."""
    names = ("time to first token", "decode rate")
    return [
        QuotedFigure(f"{name} at {format_length(length)}", *ratio)
        for name, old, new in zip(names, base, candidate, strict=True)
        for length, ratio in _median_ratios(old, new).items()
    ]


def _median_ratios(base: Times, candidate: Times) -> dict[int, tuple[float, Interval | None]]:
    found: dict[int, tuple[float, Interval | None]] = {}
    for length in sorted({n for n, _ in base} & {n for n, _ in candidate}):
        old, new = (np.array([s for n, s in side if n == length]) for side in (base, candidate))
        value = float(np.median(new) / max(float(np.median(old)), 1e-9))
        rng = np.random.default_rng(length)
        drawn = [np.median(side[rng.integers(0, len(side), (1000, len(side)))], axis=1) for side in (old, new)]
        ratios = np.sort(drawn[1] / np.maximum(drawn[0], 1e-9))
        enough = min(len(old), len(new)) >= FEWEST_TIMES
        interval = Interval(float(ratios[25]), float(ratios[-26]), 1 - ALPHA, "bootstrap") if enough else None
        found[length] = value, interval
    return found


@dataclass(frozen=True, slots=True)
class SelfFlips:
    """Prompts that one side was asked twice, and what differed."""

    role: str
    repeats: Repeats


@dataclass(frozen=True, slots=True)
class Ties:
    """Prompts that score otherwise on the two sides; of those with a known margin, the ties."""

    flips: int
    known: int
    ties: int


def parse_margin(text: str) -> float:
    """`5pt` or `5`: points of a hundred."""
    try:
        points = float(text.strip().removesuffix("points").removesuffix("pts").removesuffix("pt").strip())
    except ValueError:
        points = -1.0
    if not 0 < points < 50:
        raise UsageError(
            f"{text!r} is not a margin", where="--detect", fix="write 5pt: the loss that matters, in points"
        )
    return points / 100
