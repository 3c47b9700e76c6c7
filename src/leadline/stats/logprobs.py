"""Log-probability metrics over records: means with intervals by document, and curves over length and distance.

A metric is a mean over records or, where records count differently, a ratio of sums: LongPPL weighs documents by their
key tokens, needle gain divides by the gain from the fact alone. Documents are the independent units: the variance is
that of the linearised ratio, summed by document (Cochran 1977, chapter 6). Documents are skewed and weigh unequally:
each residual is taken from the ratio of the other documents, and Student's t has the degrees of freedom of as many
documents as would share the variance evenly (Welch and Satterthwaite's rule on the residuals), less one.
Most numbers are in nats a token and have no upper bound, so no interval for shares is ever used; an interval ends where
its metric does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from leadline.core.answers import Measurement
from leadline.core.records import Record
from leadline.stats.intervals import CONFIDENCE, Estimate, Interval, mean_interval, t_quantile

FEW_RARE = 20
"""Documents below which one kind in ten may well not be among them: no interval can allow for it."""
Better = Literal["higher", "lower"]
K = TypeVar("K", int, float, str)


@dataclass(frozen=True, slots=True)
class LogprobMetric:
    """The definition of a metric: `weight` names the number by which a record counts, `top` the number divided by
    it."""

    better: Better
    weight: str = ""
    top: str = ""
    """Empty: the metric's own number times the weight."""
    is_loss: bool = False
    """Whether its exponential is a perplexity."""
    unit: str = ""
    """Where it is not that of the task's first metric."""
    least: float = -math.inf
    most: float = math.inf
    """The range of the metric, and so of its interval."""


METRICS: Mapping[str, LogprobMetric] = {
    "retrieval_gain": LogprobMetric("higher"),
    "retrieval_gain_bits": LogprobMetric("higher"),
    "retrieval_nll": LogprobMetric("lower", least=0.0),
    "retrieval_nll_bits": LogprobMetric("lower", least=0.0),
    "mean_nll": LogprobMetric("lower", is_loss=True, least=0.0),
    "mean_nll_bits": LogprobMetric("lower", least=0.0),
    "tail_loss": LogprobMetric("lower", is_loss=True, least=0.0),
    "tail_vs_head": LogprobMetric("lower"),
    "longppl": LogprobMetric("lower", weight="key_tokens", is_loss=True, least=0.0),
    "needle_gain": LogprobMetric("higher", weight="needle_gain_alone_nats", top="needle_gain_nats"),
    "needle_nll": LogprobMetric("lower", unit="nats a token", least=0.0),
    "needle_chance": LogprobMetric("higher", unit="chance of a token", least=0.0, most=1.0),
}


def metric_of(name: str) -> LogprobMetric:
    """The definition of a metric. One that is not listed is a plain mean, higher is better."""
    return METRICS.get(name, LogprobMetric("higher"))


def estimate(records: Iterable[Record], name: str) -> Estimate:
    """A metric over records. Failed samples, and documents that have no such number, are not in it."""
    metric = metric_of(name)
    tops: list[float] = []
    weights: list[float] = []
    clusters: list[str] = []
    for record in records:
        pair = _pair(record, name, metric)
        if pair is not None:
            tops.append(pair[0])
            weights.append(pair[1])
            clusters.append(record.cluster)
    ratio = ratio_interval(tops, weights, clusters)
    if math.isinf(ratio.interval.low):
        return ratio
    if (metric.least, metric.most) == (0.0, 1.0):
        # A share near 1 or 0 is skewed: Student's interval would take a few documents that agree for all there are.
        return replace(ratio, interval=mean_interval(tops, clusters).interval)
    low, high = max(ratio.interval.low, metric.least), min(ratio.interval.high, metric.most)
    return replace(ratio, interval=replace(ratio.interval, low=low, high=high))


def _pair(record: Record, name: str, metric: LogprobMetric) -> tuple[float, float] | None:
    """What a record adds above and below the line."""
    scores = {scorer: score.value for scorer, score in record.scores.items()}
    numbers = record.outcome.numbers if isinstance(record.outcome, Measurement) else scores
    if not metric.weight:
        return (numbers[name], 1.0) if name in numbers else None
    if metric.weight not in numbers:
        return None
    weight = numbers[metric.weight]
    top = numbers[metric.top] if metric.top else numbers.get(name, 0.0) * weight
    return top, weight


def ratio_interval(tops: Sequence[float], weights: Sequence[float], clusters: Sequence[str]) -> Estimate:
    """The ratio of two sums, and a t interval over documents."""
    everything = math.fsum(weights)
    if not tops or everything == 0:
        return Estimate(math.nan, Interval(-math.inf, math.inf, CONFIDENCE, "none"), 0, 0)
    ratio = math.fsum(tops) / everything
    sums: dict[str, tuple[float, float]] = {}
    for top, weight, cluster in zip(tops, weights, clusters, strict=True):
        first, second = sums.get(cluster, (0.0, 0.0))
        sums[cluster] = (first + top, second + weight)
    groups = len(sums)
    if groups == 1:
        return Estimate(ratio, Interval(-math.inf, math.inf, CONFIDENCE, "one document"), len(tops), 1)
    squares = [((top - ratio * weight) / max(1 - weight / everything, 1e-9)) ** 2 for top, weight in sums.values()]
    total = math.fsum(squares)
    degrees = total**2 / math.fsum(s * s for s in squares) - 1 if total > 0 else groups - 1
    half = t_quantile(CONFIDENCE, min(max(degrees, 1.0), groups - 1)) * math.sqrt(total) / everything
    interval = Interval(ratio - half, ratio + half, CONFIDENCE, "t over documents")
    return Estimate(ratio, interval, len(tops), groups)


def by_length(records: Iterable[Record], name: str) -> dict[int, Estimate]:
    return _grouped(records, name, lambda record: record.cell.length)


def by_distance(records: Iterable[Record], name: str) -> dict[int, Estimate]:
    """By the distance back to the answer, in octaves: the key 4096 holds distances from 4096 up to 8191."""
    there = (r for r in records if isinstance(r.outcome, Measurement) and r.outcome.numbers.get("distance", 0) >= 1)
    return _grouped(there, name, lambda record: 1 << (int(_number(record, "distance")).bit_length() - 1))


def _number(record: Record, name: str) -> float:
    assert isinstance(record.outcome, Measurement)
    return record.outcome.numbers[name]


def _grouped(records: Iterable[Record], name: str, key: Callable[[Record], K]) -> dict[K, Estimate]:
    groups: dict[K, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    estimates = {group_key: estimate(group, name) for group_key, group in sorted(groups.items())}
    return {group_key: value for group_key, value in estimates.items() if value.n}
