"""The loss of items inside a document against the same items alone: paired, by length and depth, with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from leadline.core.records import Record
from leadline.stats.compare import Pairs, difference_interval, group_pairs
from leadline.stats.intervals import Estimate, mean_interval
from leadline.stats.observations import Failures, Observations

POINTS = 0.05
"""The loss whose length is reported."""


@dataclass(frozen=True, slots=True)
class LengthOfLoss:
    """The length at which `POINTS` are lost. `kept` is the longest length up to which surely less is lost, `lost` the
    shortest at which surely more is lost. `point` is interpolated between measured lengths; None if the means never
    lose as much."""

    kept: int | None
    lost: int | None
    point: float | None


@dataclass(frozen=True, slots=True)
class ItemLoss:
    """The losses of one task, as differences of scores (long less alone): negative if something is lost."""

    task: str
    alone: Estimate
    scores: Mapping[int, Estimate]
    by_length: Mapping[int, Estimate]
    by_depth: Mapping[float, Mapping[int, Estimate]]
    at: LengthOfLoss
    unpaired: int
    """Answers whose item alone failed or was not asked."""


def item_losses(samples: Observations, alone: Iterable[Record], failures: Failures = "excluded") -> list[ItemLoss]:
    """For each task that was asked at length 0. Intervals are over items: one item is in every length and depth."""
    short: dict[str, dict[int, float]] = {}
    for record in alone:
        score = record.score
        if score is None and failures == "zero":
            score = 0.0
        if score is not None:
            short.setdefault(record.cell.task, {})[record.cell.sample] = score
    return [_loss(task, samples.take(samples.task == task), known) for task, known in short.items()]


def _loss(task: str, samples: Observations, short: Mapping[int, float]) -> ItemLoss:
    known = np.isin(samples.sample, list(short)) & ~samples.failed
    long = samples.take(known)
    items = np.array([f"{task}/{n}" for n in long.sample.tolist()], dtype=np.str_)
    long = replace(long, cluster=items)
    base = replace(long, value=np.array([short[n] for n in long.sample.tolist()], dtype=np.float64))
    values = list(short.values())
    by_length = _differences(base, long)
    depths = [] if not len(long) else sorted({d for d in long.depth.tolist() if not math.isnan(d)})
    by_depth = {}
    for depth in depths:
        here = np.round(long.depth, 6) == round(depth, 6)
        by_depth[depth] = _differences(base.take(here), long.take(here))
    return ItemLoss(
        task=task,
        alone=mean_interval(values, [str(n) for n in short]),
        scores={n: _mean(long, n) for n in by_length},
        by_length=by_length,
        by_depth=by_depth,
        at=length_of_loss(by_length),
        unpaired=int(len(samples) - known.sum()),
    )


def _mean(samples: Observations, length: int) -> Estimate:
    here = samples.take(samples.length == length)
    return mean_interval(here.value.tolist(), here.cluster.tolist())


def _differences(base: Observations, long: Observations) -> dict[int, Estimate]:
    if not len(long):
        return {}
    grouped = group_pairs(Pairs(base, long, 0, 0, 0), "length")
    losses = {}
    for j, (key, _) in enumerate(grouped.keys):
        interval = difference_interval(grouped, j)
        n, clusters = int(grouped.means.n[j]), int(grouped.means.n_clusters[j])
        assert isinstance(key[0], int)
        losses[key[0]] = Estimate(float(grouped.means.means[j]), interval, n, clusters)
    return losses


def length_of_loss(by_length: Mapping[int, Estimate], points: float = POINTS) -> LengthOfLoss:
    """From losses by length. Length 0 has lost nothing, so the first measured length is interpolated from there."""
    kept: int | None = None
    for length, estimate in sorted(by_length.items()):
        if estimate.interval.low <= -points:
            break
        kept = length
    lost = next((n for n, estimate in sorted(by_length.items()) if estimate.interval.high < -points), None)
    return LengthOfLoss(kept, lost, _crossing(by_length, points))


def _crossing(by_length: Mapping[int, Estimate], points: float) -> float | None:
    """Between two lengths the loss is taken to grow with the logarithm of the length."""
    before_length, before = 0.0, 0.0
    for length, estimate in sorted(by_length.items()):
        loss = max(before, -estimate.mean)  # what was lost at a shorter length counts as lost
        if loss >= points:
            share = (points - before) / (loss - before)
            if not before_length:
                return share * length
            return math.exp(math.log(before_length) + share * math.log(length / before_length))
        before_length, before = float(length), loss
    return None
