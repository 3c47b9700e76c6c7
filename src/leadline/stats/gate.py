"""A gate for checkpoints: pass, fail or undecided, from a line like `overall >= -1; task:* >= -3; effective >= -10%`.

Bounds are points of a score out of a hundred, or per cent of the base run's number. Every clause is judged on its
interval. It passes when the whole interval lies above the bound, and fails when what was seen would be rare (after
Holm's correction over all clauses) if the truth were at the bound; anything else is undecided and asks for more
samples. A gate passes when every clause does, and fails when any does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

import numpy as np
import scipy  # loads its parts when they are first used

from leadline.core.errors import UsageError
from leadline.core.seeds import bulk_rng
from leadline.stats.compare import SETTLED, Grouped, Pairs, difference_interval, group_pairs, holm
from leadline.stats.effective import Threshold, crossings, isotonic_decreasing
from leadline.stats.intervals import Interval, normal_quantile, t_quantile
from leadline.stats.marginals import GroupMeans, group_means, overall_means
from leadline.stats.observations import FloatArray
from leadline.stats.sequential import asymptotic_p

GateVerdict = Literal["pass", "fail", "undecided"]
Subject = Literal["overall", "task", "length", "depth", "effective"]
EXIT_CODES: dict[GateVerdict, int] = {"pass": 0, "fail": 1, "undecided": 2}

_CLAUSE = re.compile(
    r"\s*(?P<subject>overall|effective|(?:task|length|depth):(?P<name>[^;<>]+?))\s*>=\s*"
    r"(?P<bound>[+-]?\d+(?:\.\d+)?)\s*(?P<unit>%|pts?|points?)?\s*"
)


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause. `bound` is a share: -0.01 for one point, or one per cent when `relative`."""

    subject: Subject
    pattern: str
    bound: float
    relative: bool
    text: str


@dataclass(frozen=True, slots=True)
class GateCheck:
    """One clause on one part of the grid. For `effective`, difference and interval are relative changes."""

    clause: str
    name: str
    base: float
    candidate: float
    difference: float
    interval: Interval
    bound: float
    p_fail: float
    verdict: GateVerdict
    documents: int
    """Independent documents behind it."""

    @property
    def times_more(self) -> float | None:
        """The approximate multiple of the samples that would decide it if the difference stayed the same; None when
        decided, or when the difference is exactly the bound."""
        gap = abs(self.difference - self.bound)
        if self.verdict != "undecided" or gap < 1e-3:
            return None
        return max(1.0, (self.interval.half_width / gap) ** 2)


@dataclass(frozen=True, slots=True)
class GateResult:
    verdict: GateVerdict
    checks: tuple[GateCheck, ...]
    alpha: float
    pairs: int
    documents: int
    """Independent documents behind the pairs."""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]


def parse_gate(text: str) -> tuple[Clause, ...]:
    """The clauses of a gate, separated by semicolons."""
    clauses = []
    for part in filter(str.strip, re.split(r"[;\n]", text)):
        match = _CLAUSE.fullmatch(part)
        if not match:
            raise UsageError(
                f"{part.strip()!r} is not a clause of a gate",
                where="--gate",
                fix='write "overall >= -1; task:* >= -3; length:128k >= -5; depth:* >= -5; effective >= -10%"',
            )
        word, name = match["subject"], (match["name"] or "").strip()
        relative = match["unit"] == "%"
        subject: Subject = word.partition(":")[0]  # type: ignore[assignment]
        if subject == "effective" and not relative:
            raise UsageError(f"{part.strip()!r} needs a per cent sign", where="--gate", fix='write "effective >= -10%"')
        clauses.append(Clause(subject, name, float(match["bound"]) / 100, relative, " ".join(part.split())))
    if not clauses:
        raise UsageError("the gate is empty", where="--gate", fix='write "overall >= -1"')
    return tuple(clauses)


def check_gate(
    pairs: Pairs,
    clauses: Sequence[Clause],
    *,
    threshold: Threshold | None = None,
    confidence: float = 0.95,
    anytime: bool = False,
) -> GateResult:
    """The verdict on a candidate. `anytime` keeps the false-alarm rate however often it is asked while sampling."""
    if len(pairs) == 0:
        raise UsageError("the runs have no answered prompt in common", where="--gate", fix="compare runs of one spec")
    alpha = 1 - confidence
    drafts = [d for clause in clauses for d in _drafts(pairs, clause, threshold, confidence, anytime)]
    adjusted = holm(np.array([d.p_fail for d in drafts]))
    checks = tuple(
        replace(d, p_fail=float(p), verdict=_verdict(d, p, alpha)) for d, p in zip(drafts, adjusted, strict=True)
    )
    verdicts = {check.verdict for check in checks}
    whole: GateVerdict = "fail" if "fail" in verdicts else "undecided" if "undecided" in verdicts else "pass"
    return GateResult(whole, checks, alpha, len(pairs), pairs.base.documents)


def _drafts(
    pairs: Pairs, clause: Clause, threshold: Threshold | None, confidence: float, anytime: bool
) -> list[GateCheck]:
    if clause.subject == "effective":
        return [_effective(pairs, clause, threshold or Threshold(), confidence, anytime)]
    grouped = group_pairs(pairs, clause.subject)
    wanted = matching([name for _, name in grouped.keys], clause)
    return [_score(grouped, j, clause, confidence, anytime) for j in wanted]


def matching(names: Sequence[str], clause: Clause) -> list[int]:
    """The indices of the names that a clause is about: those of all tasks for `task:*`. The name of a member of a
    sweep, `niah[hops=2]`, is no pattern but itself."""
    parts = [name.partition(":")[2] for name in names]
    indices = [j for j, part in enumerate(parts) if part == clause.pattern or fnmatchcase(part, clause.pattern)]
    if not indices:
        known = ", ".join(names)
        raise UsageError(
            f"nothing is called {clause.pattern!r}", where=f"--gate {clause.text}", fix=f"there is {known}"
        )
    return indices


def _score(grouped: Grouped, j: int, clause: Clause, confidence: float, anytime: bool) -> GateCheck:
    mine = grouped.code == j
    base = float(np.sum(grouped.weight[mine] * grouped.base[mine]))
    candidate = float(np.sum(grouped.weight[mine] * grouped.candidate[mine]))
    bound = clause.bound * base if clause.relative else clause.bound
    interval = difference_interval(grouped, j, confidence, anytime=anytime, by_document=True)
    p = _p_below(grouped, j, bound, anytime)
    return GateCheck(
        clause.text, grouped.keys[j][1], base, candidate, candidate - base, interval, bound, p, "undecided",
        documents=int(grouped.means.n_clusters[j]),
    )  # fmt: skip


def _p_below(grouped: Grouped, j: int, bound: float, anytime: bool) -> float:
    """One-sided p of a difference as low as the one seen, were the truth at the bound."""
    error = grouped.error(j)
    gap = bound - error.centre
    if not anytime:
        return float(scipy.special.stdtr(error.degrees, -gap / error.deviation)) if error.degrees >= 1 else 1.0
    if error.degrees < SETTLED or gap <= 0:
        return 1.0
    return asymptotic_p(gap, error.deviation * float(np.sqrt(error.rounds)), error.rounds)


def _verdict(check: GateCheck, p: float, alpha: float) -> GateVerdict:
    if check.interval.low >= check.bound:
        return "pass"
    return "fail" if p <= alpha else "undecided"


def _effective(pairs: Pairs, clause: Clause, threshold: Threshold, confidence: float, anytime: bool) -> GateCheck:
    """The relative change of effective length, bootstrapped over the documents that both runs share.

    What lies between two measured lengths is placed alike for both: a gate can only judge what was measured. Lengths
    beyond the grid count as its end.
    """
    if anytime:
        raise UsageError(
            "effective length cannot be judged while sampling", where=f"--gate {clause.text}",
            fix="judge it when the run is done, or sample with --until effective",
        )  # fmt: skip
    draws = 2000
    lengths = _crossing_draws(pairs, threshold, draws, confidence)
    change = lengths[:, 1] / lengths[:, 0] - 1
    drawn = np.sort(change[1:])
    tail = int((1 - confidence) / 2 * draws)
    interval = Interval(float(drawn[tail]), float(drawn[-1 - tail]), confidence, "bootstrap over documents")
    p = float((1 + np.sum(drawn >= clause.bound)) / (draws + 1))
    base, candidate = lengths[0].tolist()
    return GateCheck(
        clause.text, "effective", base, candidate, float(change[0]), interval, clause.bound, p, "undecided",
        documents=pairs.base.documents,
    )  # fmt: skip


def _crossing_draws(pairs: Pairs, threshold: Threshold, draws: int, confidence: float) -> FloatArray:
    """The effective lengths of both runs in tokens: the estimates first, then a pair a draw.

    The means of both runs are drawn together, as correlated as their documents make them.
    """
    lengths, code = np.unique(pairs.base.length, return_inverse=True)
    count = len(lengths)
    both = pairs.base.joined(pairs.candidate)
    groups = group_means(both, np.concatenate([code, code + count]).astype(np.int64), 2 * count)
    degrees = float(overall_means(pairs.base).degrees[0])
    rng = bulk_rng(0, "gate", "effective")
    means = np.concatenate([groups.means[None, :], _draw_means(groups, degrees, draws, rng, confidence)])
    chance = np.concatenate([[0.5], rng.random(draws)])
    weights = groups.n[:count].astype(np.float64)
    log_lengths = np.log2(lengths)
    sides = []
    for curves in (isotonic_decreasing(means[:, :count], weights), isotonic_decreasing(means[:, count:], weights)):
        thresholds = (
            threshold.share * curves[:, 0] if threshold.share is not None else np.full(draws + 1, threshold.value)
        )
        crossed_at = crossings(curves, log_lengths, thresholds, chance, weights)
        sides.append(2.0 ** np.clip(crossed_at, log_lengths[0], log_lengths[-1]))
    return np.stack(sides, axis=1)


def _draw_means(
    groups: GroupMeans, degrees: float, draws: int, rng: np.random.Generator, confidence: float = 0.95
) -> FloatArray:
    """Bootstrap over documents: `draws` rows of what the means of the groups might be. Where all answers were right a
    document counts as one answer."""
    design_effect = groups.design_effect or groups.n.sum() / groups.n_clusters.sum()
    rows = groups.row_variances
    constant = rows <= 1e-12
    shrink = (normal_quantile(confidence) / t_quantile(confidence, max(degrees, 1.0))) ** 2
    means = groups.means
    size = np.where(
        constant, groups.n / design_effect, shrink * means * (1 - means) / np.where(constant, 1.0, rows) / design_effect
    )
    z = rng.standard_normal((draws, len(means))) @ _root_of_correlation(groups.covariance)
    return np.asarray(scipy.special.betaincinv(size * means + 0.5, size * (1 - means) + 0.5, scipy.special.ndtr(z)))


def _root_of_correlation(covariance: FloatArray) -> FloatArray:
    """A matrix that gives independent normal draws the correlation of the means. Five documents say little about the
    correlation of eight means, and the matrix may be singular: hence eigenvectors, not Cholesky. It is the symmetric
    root, the only one that does not depend on which eigenvectors a machine's linear algebra chooses."""
    spread = np.sqrt(np.diag(covariance))
    still = spread <= 1e-6
    scale = np.where(still, 1.0, spread)
    correlation = covariance / np.outer(scale, scale)
    correlation[still, :], correlation[:, still] = 0.0, 0.0
    np.fill_diagonal(correlation, 1.0)
    values, vectors = np.linalg.eigh(correlation)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
