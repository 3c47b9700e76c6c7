"""Kept, lost or undecided, from the paired answers of two runs, at one of a few looks.

**Lost**: a part of the grid (all of it, a family, a length, a third of the depths) scores less in the candidate, by the
paired tests of `leadline compare` with Holm's correction over all parts. **Kept**: a loss of the margin is ruled out:
the one asked for overall, one and a half times it for every part, which has a fraction of the prompts. Everything else
is undecided.

Answers are tested at several looks while they come in, so both errors of 5 % are divided. The looks before the last
share three tenths of the false alarms, and the last look has the rest. A spending function divides the losses of a
margin that are called kept: much of it early, so that sides that answer alike are kept early. By the union bound
neither is ever above 5 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy  # loads its parts when they are first used

from leadline.core.errors import UsageError
from leadline.core.format import format_length
from leadline.features.certify.blame import blamed_parts, subset
from leadline.features.certify.drift import Drift
from leadline.results.repeats import Repeats
from leadline.stats.compare import Comparison, Difference, Pairs, Scope, compare, group_pairs
from leadline.stats.gate import Clause, GateCheck, GateResult, check_gate, parse_gate
from leadline.stats.intervals import Interval, wilson
from leadline.stats.observations import FloatArray

Outcome = Literal["kept", "lost", "undecided"]
EXIT_CODES: dict[Outcome, int] = {"kept": 0, "lost": 1, "undecided": 2}
ALPHA = 0.05
EARLY_SHARE = 0.3
FIRST_LOOK = 4
"""Samples a cell at the first look."""
EARLY_LOOKS = (1 / 6, 0.4, 0.7)
"""Looks at these shares of all samples. Earlier looks are for obvious losses, each at four times as many samples."""
LAST_BUT_ONE = 0.8
"""The last early look is at most at this share of all samples."""
FIRST_KEPT = 0.15
"""The share of all samples from which sides can be kept: with fewer, a part is too small even if nothing is lost."""
SPENDING_POWER = 0.65
CERTAIN = 1e-4
"""Below this adjusted p of a loss, more samples would not show better where it is."""
PART_MARGIN = 1.5
"""The margin of a part, in margins of the whole."""
PART_SCOPES: tuple[Scope, ...] = ("task", "length", "depth")
DRAWN_AT_ONCE = 1_000_000
"""Documents of a bootstrap in memory at a time."""
TIE_NATS = 0.1
"""A flip is a tie if the answer's first token was ahead of the second candidate by less than this."""
FEWEST_TIMES = 3
"""Prompts of a length on each side for an interval of a speed."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict of the answers so far."""

    outcome: Outcome
    comparison: Comparison
    gate: GateResult
    blamed: tuple[Difference, ...]
    """The parts that are worse, none of them only because of another part. Empty if the loss cannot be placed."""
    alpha: float
    """Of this look."""
    is_settled: bool
    """Whether no more samples are needed. A certain loss is searched for in the parts until the last look."""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the answers, after `samples` samples a cell."""

    samples: int
    alpha: float
    """Its share of the false alarms, two-sided."""
    kept_alpha: float
    """Its share of the losses that are called kept, one-sided."""
    is_last: bool


def looks(samples: int) -> tuple[Look, ...]:
    """The looks on the way to `samples` a cell. One shortly before the last would only cost significance."""
    first = [FIRST_LOOK * 4**n for n in range(8) if n == 0 or FIRST_LOOK * 4**n <= EARLY_LOOKS[0] * samples / 2]
    early = {*first, *(round(share * samples) for share in EARLY_LOOKS)}
    steps = [*sorted(n for n in early if FIRST_LOOK <= n <= LAST_BUT_ONE * samples), samples]
    kept = np.diff([_kept_alpha_spent(n / samples) for n in (0, *steps)])
    alphas = [ALPHA] if len(steps) == 1 else [ALPHA * EARLY_SHARE / (len(steps) - 1)] * (len(steps) - 1)
    alphas = [*alphas, ALPHA * (1 - EARLY_SHARE)][: len(steps)]
    return tuple(
        Look(n, alpha, float(share), n == samples) for n, alpha, share in zip(steps, alphas, kept, strict=True)
    )


def only_look(samples: int) -> Look:
    """At two finished runs."""
    return Look(samples, ALPHA, ALPHA, is_last=True)


def _kept_alpha_spent(share: float) -> float:
    """Of the 5 %, up to a share of the samples (a power of it: Kim and DeMets 1987)."""
    return ALPHA * share**SPENDING_POWER if share >= FIRST_KEPT else 0.0


def decide(pairs: Pairs, margin: float, look: Look) -> Decision:
    """`margin` is a share: 0.05 accepts a loss of five points."""
    comparison = compare(pairs)
    clauses = parse_gate(gate_rules(margin, [scope for scope in PART_SCOPES if comparison.of(scope)]))
    gate = _judge_kept(pairs, clauses, check_gate(pairs, clauses, confidence=1 - look.alpha), look)
    worst = min((d.adjusted for d in comparison.differences if d.estimate.mean < 0), default=1.0)
    is_lost = worst <= look.alpha or gate.verdict == "fail"
    blamed = blamed_parts(pairs, comparison, look.alpha) if is_lost else ()
    outcome: Outcome = "lost" if is_lost else "kept" if gate.verdict == "pass" else "undecided"
    is_settled = look.is_last or outcome == "kept" or (is_lost and (bool(blamed) or worst <= CERTAIN))
    return Decision(outcome, comparison, gate, blamed, look.alpha, is_settled)


def gate_rules(margin: float, scopes: Iterable[str]) -> str:
    """The losses that must be ruled out for the verdict kept."""
    overall = f"overall >= {-100 * margin:g}"
    return "; ".join([overall, *(f"{scope}:* >= {-100 * PART_MARGIN * margin:g}" for scope in scopes)])


def _judge_kept(pairs: Pairs, clauses: Sequence[Clause], gate: GateResult, look: Look) -> GateResult:
    """The gate with the checks that this look passes. At the last look an interval must lie above the bound. Before
    that, a check passes with so few lost prompts that a loss of the bound would rarely show fewer."""
    if look.is_last:
        bounded = check_gate(pairs, clauses, confidence=1 - 2 * look.kept_alpha)
        passed = [check.interval.low >= check.bound for check in bounded.checks]
    else:
        p_of_so_few = _p_of_so_few_lost(pairs, gate.checks)
        passed = [p_of_so_few[check.name] <= look.kept_alpha for check in gate.checks]
    checks = tuple(
        replace(check, verdict="fail" if check.verdict == "fail" else "pass" if is_passed else "undecided")
        for check, is_passed in zip(gate.checks, passed, strict=True)
    )
    verdicts = {check.verdict for check in checks}
    return replace(
        gate,
        checks=checks,
        verdict="fail" if "fail" in verdicts else "undecided" if "undecided" in verdicts else "pass",
    )


def _p_of_so_few_lost(pairs: Pairs, checks: Sequence[GateCheck]) -> dict[str, float]:
    """For each check, the chance that no more documents lost anything, if the loss were as large as the bound. A
    document loses at most 1, so the share of losing documents is at least the mean loss (binomial; exact where all
    weigh alike)."""
    bounds = {check.name: -check.bound for check in checks}
    chances: dict[str, float] = {}
    for scope in ("overall", *PART_SCOPES):
        grouped = group_pairs(pairs, scope)
        clusters, document = grouped.difference.documents, grouped.difference.code(("cluster",))
        numbers, size = grouped.code * clusters + document, len(grouped.keys) * clusters
        weight = np.bincount(numbers, weights=grouped.weight, minlength=size).reshape(-1, clusters)
        lost = np.bincount(numbers, weights=grouped.difference.value < 0, minlength=size).reshape(-1, clusters) > 0
        documents = np.floor(grouped.documents + 1e-9)  # that would weigh alike
        counts = np.ceil(documents * np.sum(weight * lost, axis=1) - 1e-9)
        for (_, name), count, n in zip(grouped.keys, counts.tolist(), documents.tolist(), strict=True):
            if name in bounds:
                chances[name] = float(scipy.special.bdtr(count, int(n), bounds[name])) if grouped.unit else 1.0
    return chances


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
    return _ratio_of_means("MRCR AUC ratio", subset(pairs, rows))


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
    drawn = np.sort(_drawn_ratios(sums, draws))
    tail = int(ALPHA / 2 * draws)
    interval = Interval(float(drawn[tail]), float(drawn[-1 - tail]), 1 - ALPHA, "bootstrap over documents")
    return QuotedFigure(name, whole, interval)


def _drawn_ratios(sums: FloatArray, draws: int, at_once: int = DRAWN_AT_ONCE) -> FloatArray:
    """Of the sums of both sides (2 x documents) over as many documents, drawn again and again."""
    documents, rng = sums.shape[1], np.random.default_rng(0)
    rows = max(1, at_once // documents)
    totals = [
        sums[:, rng.integers(0, documents, (min(rows, draws - first), documents))].sum(axis=-1)
        for first in range(0, draws, rows)
    ]
    base, candidate = np.concatenate(totals, axis=1)
    return np.asarray(candidate / np.maximum(base, 1e-9))


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
    ratios: dict[int, tuple[float, Interval | None]] = {}
    for length in sorted({n for n, _ in base} & {n for n, _ in candidate}):
        old, new = (np.array([s for n, s in side if n == length]) for side in (base, candidate))
        value = float(np.median(new) / max(float(np.median(old)), 1e-9))
        rng = np.random.default_rng(length)
        drawn = [np.median(side[rng.integers(0, len(side), (1000, len(side)))], axis=1) for side in (old, new)]
        drawn_ratios = np.sort(drawn[1] / np.maximum(drawn[0], 1e-9))
        enough = min(len(old), len(new)) >= FEWEST_TIMES
        interval = (
            Interval(float(drawn_ratios[25]), float(drawn_ratios[-26]), 1 - ALPHA, "bootstrap") if enough else None
        )
        ratios[length] = value, interval
    return ratios


@dataclass(frozen=True, slots=True)
class SelfFlips:
    """The answers of one side to prompts that it was asked twice."""

    role: str
    repeats: Repeats


@dataclass(frozen=True, slots=True)
class Ties:
    """The number of prompts that score differently on the two sides (flips), and of ties among those with a known
    margin."""

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
