"""Means of a judge's verdicts, corrected with a few labels by people.

A judge's mean has a bias that its own interval does not show: people's labels on some samples show it. Two estimates:

corrected_mean   a control variate. The labels' mean plus the difference between the judge's mean over everything and
                 its mean over the labelled samples (Angelopoulos et al. 2023, arXiv 2311.01453). Any scores.
rogan_gladen     from the judge's sensitivity and specificity on the labelled samples (Rogan and Gladen 1978; Lee et al.
                 2025, arXiv 2511.21140). Verdicts and labels that are yes or no.

Variances of means over answers are cluster-robust: samples of one document count as one. Labels drawn by strata
(verdict and length) are weighted by their strata.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from leadline.features.judges.agreement import Agreement, Rating, agreement
from leadline.stats.intervals import CONFIDENCE, Estimate, Interval, mean_interval, t_quantile
from leadline.stats.observations import BoolArray, FloatArray, IntArray

UNSEEN = 0.5
"""Squared errors that two more labels in every stratum would have shown."""
LEAST_LABELS = 5
"""With fewer labels nothing is corrected: the interval would say nothing."""
LEAST_DOCUMENTS = 3
LEAST_INFORMATION = 0.1
"""Below this value of sensitivity + specificity - 1, verdicts are hardly better than a coin, and Rogan-Gladen has no
answer."""


@dataclass(frozen=True, slots=True)
class Corrected:
    """The mean that people would have given, estimated from their labels and all verdicts."""

    mean: float
    interval: Interval
    labels: int
    documents: int
    """Documents with a label."""
    slope: float
    """How closely people's labels follow the judge's differences between samples."""
    label_multiplier: float
    """Without the judge, an equally narrow interval needs this many times as many labels. NaN where all labels are the
    same, since an interval from them alone has no width."""


@dataclass(frozen=True, slots=True)
class RoganGladen:
    mean: float
    interval: Interval
    sensitivity: float
    """The share of answers that the judge calls right, among those that people call right."""
    specificity: float
    """The share of answers that the judge calls wrong, among those that people call wrong."""
    labels: int


@dataclass(frozen=True, slots=True)
class _Labelled:
    """Verdicts, labels and weights as arrays; `where` has the labelled samples, `group` the cluster of each sample."""

    values: FloatArray
    labels: FloatArray
    where: FloatArray
    strata: IntArray
    group: IntArray
    groups: int

    def by_group(self, contributions: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(self.group, contributions, minlength=self.groups), np.float64)


def corrected_mean(
    values: Sequence[float],
    clusters: Sequence[str],
    labels: Sequence[float | None],
    strata: Sequence[str] | None = None,
) -> Corrected | None:
    """The corrected mean, or None with too few labels. `strata` are those that the labelled samples were drawn from."""
    data = _arrays(values, clusters, labels, strata)
    drawn = data.where > 0
    free = drawn & _partly_labelled(data)
    count = int(free.sum())
    if drawn.all():  # nothing is left to estimate
        known = mean_interval(data.labels.tolist(), clusters)
        return Corrected(known.mean, known.interval, len(labels), data.groups, 0.0, math.nan)
    if count < LEAST_LABELS or len(np.unique(data.group[free])) < LEAST_DOCUMENTS:
        return None
    weights, size = _weights(data), len(data.values)
    slope = _slope(data, free, weights)
    rest = np.where(drawn, data.labels - slope * data.values, 0.0)
    offset = _stratum_means(data.strata, rest, data.where * weights)
    fitted = offset[data.strata] + slope * data.values
    mean = float(fitted.mean())
    residual = np.where(drawn, data.labels - fitted, 0.0)
    spread = np.where(drawn, weights * residual, 0.0) * _small_strata(data, free)
    unseen = _unseen(data, free, residual)
    influence = data.by_group((fitted - mean + spread) / size)
    groups = len(np.unique(data.group[free]))
    variance = float(np.sum(influence**2)) + float(unseen.sum()) / size**2
    half = t_quantile(CONFIDENCE, _degrees(data, free, spread, unseen)) * math.sqrt(variance)
    alone = _labels_alone(data, free)
    method = "control variate over documents"
    if bool(free[drawn].all()) and int(data.strata.max()) == 0:
        # A weak judge adds more variance than it removes, and labels that are all the same cannot show its errors: its
        # mean is then not used.
        known = mean_interval(
            data.labels[drawn].tolist(), [c for c, is_drawn in zip(clusters, drawn, strict=True) if is_drawn]
        )
        same = float(np.ptp(data.labels[drawn])) == 0
        if same or known.interval.half_width < (min(mean + half, 1.0) - max(mean - half, 0.0)) / 2:
            interval = Interval(known.interval.low, known.interval.high, CONFIDENCE, "labels alone")
            return Corrected(known.mean, interval, count, groups, 0.0, 1.0)
    return Corrected(
        mean=min(max(mean, 0.0), 1.0),
        interval=Interval(max(mean - half, 0.0), min(mean + half, 1.0), CONFIDENCE, method),
        labels=count,
        documents=groups,
        slope=slope,
        label_multiplier=(alone / half) ** 2 if half > 0 and alone > 0 else math.nan,
    )


def rogan_gladen(
    values: Sequence[float],
    clusters: Sequence[str],
    labels: Sequence[float | None],
    strata: Sequence[str] | None = None,
    decided: Sequence[tuple[float, str]] = (),
) -> RoganGladen | None:
    """The share of right answers from yes/no verdicts and the judge's errors; None where it cannot be computed.

    `decided` has the value and cluster of every further answer, which a rule decided and no judge can get wrong. The
    variances of sensitivity and specificity have one right and one wrong verdict added, as few labels may show no error
    at all.
    """
    data = _arrays(values, clusters, labels, strata)
    drawn = data.where > 0
    binary = np.isin(data.values, (0, 1)).all() and np.isin(data.labels[drawn], (0, 1)).all()
    group, groups = _numbered([*clusters, *(cluster for _, cluster in decided)])
    if not binary or int(drawn.sum()) < LEAST_LABELS or groups < LEAST_DOCUMENTS:
        return None
    weights = np.where(drawn, _weights(data), 0.0)
    right, wrong = weights * data.labels, weights * (1 - data.labels)
    if not right.sum() or not wrong.sum():
        return None
    sensitivity = float(right @ data.values / right.sum())
    specificity = float(wrong @ (1 - data.values) / wrong.sum())
    information = sensitivity + specificity - 1
    if information < LEAST_INFORMATION:
        return None
    answers = len(data.values) + len(decided)
    sent = len(data.values) / answers
    share = float(data.values.mean())
    judged = min(max((share + specificity - 1) / information, 0.0), 1.0)
    mean = sent * judged + math.fsum(value for value, _ in decided) / answers
    # What each answer adds to the mean, and how far the sums of documents are from it.
    added = np.concatenate([judged + (data.values - share) / information, [value for value, _ in decided]])
    sums = np.bincount(group, (added - mean) / answers, minlength=groups)
    variances = [(groups / (groups - 1) * float(np.sum(sums**2)), groups - 1.0)]
    for part, rate, factor in ((right, sensitivity, judged), (wrong, specificity, 1 - judged)):
        effective = float(part.sum() ** 2 / np.sum(part**2))  # labels of equal weight that would vary as much
        smoothed = (rate * effective + 1) / (effective + 2)
        variance = (sent * factor / information) ** 2 * smoothed * (1 - smoothed) / effective
        variances.append((variance, max(effective - 1, 1.0)))
    half = t_quantile(CONFIDENCE, _satterthwaite(variances)) * math.sqrt(sum(v for v, _ in variances))
    return RoganGladen(
        mean=mean,
        interval=Interval(max(mean - half, 0.0), min(mean + half, 1.0), CONFIDENCE, "Rogan-Gladen"),
        sensitivity=sensitivity,
        specificity=specificity,
        labels=int(drawn.sum()),
    )


class KnownCase(NamedTuple):
    """A case whose truth is known, with what a judge made of it: a value from 0 to 1, or None without a verdict."""

    kind: str
    right: bool
    value: float | None

    @property
    def is_hit(self) -> bool:
        return self.value is not None and (self.value >= 0.5) is self.right


@dataclass(frozen=True, slots=True)
class KnownCases:
    """How a judge graded the cases whose truth is known."""

    right: int
    accepted: int
    wrong: int
    rejected: int
    unparsed: int
    by_kind: Mapping[str, tuple[int, int]]
    """For each kind of case, the number graded rightly and the number of cases."""

    @property
    def sensitivity(self) -> float:
        return self.accepted / self.right if self.right else math.nan

    @property
    def specificity(self) -> float:
        return self.rejected / self.wrong if self.wrong else math.nan


def known_cases(cases: Sequence[KnownCase]) -> KnownCases:
    kinds: dict[str, tuple[int, int]] = {}
    for case in cases:
        hits, number = kinds.get(case.kind, (0, 0))
        kinds[case.kind] = (hits + case.is_hit, number + 1)
    return KnownCases(
        right=sum(case.right for case in cases),
        accepted=sum(case.right and case.is_hit for case in cases),
        wrong=sum(not case.right for case in cases),
        rejected=sum(not case.right and case.is_hit for case in cases),
        unparsed=sum(case.value is None for case in cases),
        by_kind=kinds,
    )


@dataclass(frozen=True, slots=True)
class Trend:
    """The change of a share per doubling of the length, with its interval."""

    slope: float
    interval: Interval

    @property
    def falls(self) -> bool:
        return self.interval.high < 0


def trend(values: Sequence[float], lengths: Sequence[int], clusters: Sequence[str]) -> Trend | None:
    """The least-squares slope over the logarithm of length, its variance over documents; None for a single length."""
    if len(set(lengths)) < 2 or len(set(clusters)) < 3:
        return None
    x = np.log2(np.asarray(lengths, np.float64))
    y = np.asarray(values, np.float64)
    x = x - x.mean()
    slope = float(x @ y / (x @ x))
    residual = y - y.mean() - slope * x
    group, groups = _numbered(clusters)
    sums = np.bincount(group, x * residual, minlength=groups)
    half = t_quantile(CONFIDENCE, groups - 1) * math.sqrt(groups / (groups - 1) * float(np.sum(sums**2))) / float(x @ x)
    return Trend(slope, Interval(slope - half, slope + half, CONFIDENCE, "slope over documents"))


@dataclass(frozen=True, slots=True)
class RaterQuality:
    """A rater compared with the truth, where both are known. The means are over all items it rated."""

    agreement: Agreement
    """With the truth."""
    naive: Estimate | None
    """Its own mean, as if it were the truth; None where labels are no numbers."""
    truth: float | None
    """The mean of the truth where it is known."""
    bias: float | None
    corrected: Corrected | None


def rater_quality(
    ratings: Sequence[Rating | None], truth: Sequence[Rating | None], clusters: Sequence[str], resamples: int = 1000
) -> RaterQuality:
    """Compares a rater with the truth. If the truth is known for some items only, they correct the rater's mean."""
    paired = [i for i, label in enumerate(ratings) if label is not None and truth[i] is not None]
    both = [(ratings[i], truth[i]) for i in paired]
    rated = [i for i, label in enumerate(ratings) if label is not None]
    numbers = all(not isinstance(label, str) for label in (*ratings, *truth) if label is not None)
    naive = known_mean = corrected = None
    if numbers and rated and both:
        values, groups = [float(ratings[i] or 0) for i in rated], [clusters[i] for i in rated]
        naive = mean_interval(values, groups)
        known_mean = math.fsum(float(known or 0) for _, known in both) / len(both)
        if len(both) < len(rated):
            known_labels = [None if truth[i] is None else float(truth[i] or 0) for i in rated]
            corrected = corrected_mean(values, groups, known_labels)
    mean_of_both = math.fsum(float(rating or 0) for rating, _ in both) / len(both) if numbers and both else None
    bias = None if mean_of_both is None or known_mean is None else mean_of_both - known_mean
    measured = agreement(both, clusters=[clusters[i] for i in paired], resamples=resamples)
    return RaterQuality(measured, naive, known_mean, bias, corrected)


# --- details


def _arrays(
    values: Sequence[float], clusters: Sequence[str], labels: Sequence[float | None], strata: Sequence[str] | None
) -> _Labelled:
    if not len(values) == len(clusters) == len(labels):
        raise ValueError(f"{len(values)} verdicts, {len(clusters)} clusters and {len(labels)} labels")
    group, groups = _numbered(clusters)
    return _Labelled(
        values=np.asarray(values, np.float64),
        labels=np.array([0.0 if label is None else label for label in labels]),
        where=np.array([float(label is not None) for label in labels]),
        strata=_merged(_numbered(strata)[0] if strata is not None else np.zeros(len(values), np.int64), labels),
        group=group,
        groups=groups,
    )


def _numbered(names: Sequence[str]) -> tuple[IntArray, int]:
    number_of: dict[str, int] = {}
    numbers = [number_of.setdefault(name, len(number_of)) for name in names]
    return np.asarray(numbers, np.int64), len(number_of)


def _merged(strata: IntArray, labels: Sequence[float | None]) -> IntArray:
    """Strata with a single label, or with none, form one stratum: alone they would show no variance."""
    counts: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for stratum, label in zip(strata.tolist(), labels, strict=True):
        counts[stratum] = counts.get(stratum, 0) + (label is not None)
        sizes[stratum] = sizes.get(stratum, 0) + 1
    few = [s for s, n in counts.items() if n < 2 and n < sizes[s]]
    if few and sum(counts[s] for s in few) < 2 and len(few) < len(counts):
        partly = [s for s in counts if s not in few and counts[s] < sizes[s]]
        few += sorted(partly, key=lambda s: counts[s])[-1:]
    return np.where(np.isin(strata, few), -1, strata) + 1 if few else strata


def _partly_labelled(data: _Labelled) -> BoolArray:
    """Samples of strata that were sampled. A stratum whose every sample has a label has no sampling error."""
    labelled = np.bincount(data.strata, data.where)
    whole = np.bincount(data.strata)
    return np.asarray((labelled < whole)[data.strata])


def _weights(data: _Labelled) -> FloatArray:
    """The number of samples of its stratum that a labelled sample represents."""
    labelled = np.bincount(data.strata, data.where)
    return np.asarray((np.bincount(data.strata) / np.maximum(labelled, 1.0))[data.strata])


def _stratum_means(strata: IntArray, values: FloatArray, weights: FloatArray) -> FloatArray:
    totals = np.bincount(strata, weights)
    return np.asarray(np.bincount(strata, weights * values) / np.where(totals > 0, totals, 1.0))


def _slope(data: _Labelled, free: BoolArray, weights: FloatArray) -> float:
    """Of labels on verdicts, within strata and between documents; 0 where verdicts do not vary within a stratum."""
    inside = np.where(free, weights, 0.0)
    y = inside * (data.labels - _stratum_means(data.strata, data.labels, inside)[data.strata])
    f = inside * (data.values - _stratum_means(data.strata, data.values, inside)[data.strata])
    y_groups, f_groups = data.by_group(y), data.by_group(f)
    varies = float(f_groups @ f_groups)
    return float(y_groups @ f_groups) / varies if varies > 1e-12 else 0.0


def _small_strata(data: _Labelled, free: BoolArray) -> FloatArray:
    """The factor by which residuals of a stratum are too small, because its mean comes from few labels."""
    labels = np.bincount(data.strata, np.where(free, 1.0, 0.0))
    whole = float(labels.sum())
    fewer = np.where(labels > 1, labels / np.maximum(labels - 1, 1.0) * (whole - 1) / whole, 1.0)
    return np.asarray(np.sqrt(fewer)[data.strata])


def _unseen(data: _Labelled, free: BoolArray, residual: FloatArray) -> FloatArray:
    """The variance that few labels do not show, by stratum. They may show no error of the judge at all, so the variance
    within a stratum is averaged with that of `UNSEEN` errors in two more labels."""
    labels = np.bincount(data.strata, np.where(free, 1.0, 0.0))
    squares = np.bincount(data.strata, np.where(free, residual**2, 0.0))
    some = np.maximum(labels, 1.0)
    missed = np.maximum((squares + UNSEEN) / (labels + 2) - squares / some, 0.0)
    return np.asarray(np.where(labels > 0, np.bincount(data.strata) ** 2 * missed / some, 0.0))


def _degrees(data: _Labelled, free: BoolArray, spread: FloatArray, unseen: FloatArray) -> float:
    """Degrees of freedom of the variances of all strata together, less one for the slope."""
    parts = []
    for stratum in np.unique(data.strata[free]):
        inside = free & (data.strata == stratum)
        documents = len(np.unique(data.group[inside]))
        variance = float(np.sum(np.where(inside, spread, 0.0) ** 2)) + float(unseen[stratum])
        parts.append((variance, max(documents - 1, 1)))
    return max(_satterthwaite(parts) - 1, 1.0)


def _satterthwaite(parts: Sequence[tuple[float, float]]) -> float:
    """Degrees of freedom of a sum of variances, from each and its own degrees."""
    total = sum(variance for variance, _ in parts)
    if total <= 0:
        return float(sum(own for _, own in parts))
    return total**2 / sum(variance**2 / own for variance, own in parts)


def _labels_alone(data: _Labelled, free: BoolArray) -> float:
    """Half the width of the interval that as many labels drawn at random give without any verdict."""
    labels = data.labels[free]
    residual = np.bincount(data.group[free], labels - labels.mean())
    count = len(np.unique(data.group[free]))
    variance = count / (count - 1) * float(np.sum(residual**2)) / len(labels) ** 2
    sampled = float(_partly_labelled(data).mean())  # what rules decided needs no label in either case
    return sampled * t_quantile(CONFIDENCE, count - 1) * math.sqrt(variance)
