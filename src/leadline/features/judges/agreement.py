"""How far raters agree: judges with one another, or a judge with people.

Kappa and alpha fall towards zero when nearly all answers are of one kind, however often raters agree; AC1 does
not. So all are given, beside the raw agreement and the share of every label.

The interval of raw agreement is that of a mean over documents: items of one document count as one. Those of the
coefficients are bootstraps over documents, and at least as wide as the ends of the raw agreement make them: 20 equal
ratings of 20 do not prove that raters never differ, though every resample of them is equal, too.
Sources: Cohen 1960, Fleiss 1971, Krippendorff 2011, Gwet 2008; with missing ratings Gwet 2014, chapter 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from leadline.core.errors import UsageError
from leadline.core.seeds import bulk_rng
from leadline.stats.intervals import Interval, mean_interval
from leadline.stats.observations import FloatArray, IntArray

Rating = str | int | float | bool
Ratings = Sequence[Sequence[Rating | None]]
"""Items by raters; None where a rater did not rate an item."""
Level = Literal["nominal", "ordinal", "interval"]


@dataclass(frozen=True, slots=True)
class Coefficient:
    """NaN where it is not defined, such as kappa when a rater used one label only and chance explains all."""

    value: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class Agreement:
    items: int
    raters: int
    shares: Mapping[Rating, tuple[float, ...]]
    """For each label, its share of each rater's ratings."""
    raw: Coefficient
    cohen: Coefficient | None
    """For two raters only."""
    quadratic: Coefficient | None
    """Cohen's kappa with disagreements weighted by their squared distance, for two raters and labels with an order."""
    fleiss: Coefficient
    krippendorff: Coefficient
    gwet: Coefficient
    level: Level = "nominal"

    @property
    def nearly_one_label(self) -> bool:
        """Whether one label is nine tenths of all ratings: then kappa and alpha mislead, and AC1 does not."""
        return max(sum(shares) / len(shares) for shares in self.shares.values()) >= 0.9


@dataclass(frozen=True, slots=True)
class _RatingTable:
    """For each item the number of times each label was given, and for two raters which pair."""

    labels: tuple[Rating, ...]
    counts: FloatArray
    pairs: FloatArray | None


def agreement(
    ratings: Ratings,
    *,
    clusters: Sequence[str] | None = None,
    level: Level = "nominal",
    resamples: int = 2000,
    seed: int = 0,
) -> Agreement:
    """Every coefficient with its 95 % interval. `clusters` has each item's document; None if all have their own."""
    table = _table(ratings)
    items, raters = len(ratings), max(len(row) for row in ratings)
    documents, document = np.unique(
        [str(i) for i in range(items)] if clusters is None else clusters, return_inverse=True
    )
    rng = bulk_rng(seed, "agreement")
    drawn = rng.multinomial(len(documents), np.full(len(documents), 1 / len(documents)), size=resamples)
    weights = drawn[:, document].astype(np.float64)
    raw = _raw_agreement(table, document)
    ends = [_pretending(table, raw.value, end) for end in (raw.interval.low, raw.interval.high)]

    def coefficient(measure: Callable[[_RatingTable, FloatArray], FloatArray]) -> Coefficient:
        value = float(measure(table, np.ones((1, items)))[0])
        resampled = np.concatenate([measure(table, weights), *(measure(*end) for end in ends)])
        draws = resampled[:-2][np.isfinite(resampled[:-2])]
        if not np.isfinite(value) or not len(draws):
            return Coefficient(value, Interval(np.nan, np.nan, 0.95, "not defined"))
        low, high = np.percentile(draws, [2.5, 97.5])
        low, high = np.nanmin([low, value, resampled[-2]]), np.nanmax([high, value, resampled[-1]])
        return Coefficient(value, Interval(float(low), float(high), 0.95, "bootstrap over documents"))

    def kappa(level: Level) -> Coefficient:
        return coefficient(lambda t, weights: _kappa(t, weights, level))

    two, ordered = table.pairs is not None, not any(isinstance(label, str) for label in table.labels)
    return Agreement(
        items,
        raters,
        _shares(ratings, table),
        raw=raw,
        cohen=kappa("nominal") if two else None,
        quadratic=kappa("interval") if two and ordered else None,
        fleiss=coefficient(_fleiss),
        krippendorff=coefficient(lambda t, weights: _alpha(t, weights, level)),
        gwet=coefficient(_ac1),
        level=level,
    )


def _raw_agreement(table: _RatingTable, document: IntArray) -> Coefficient:
    """The mean over items that two raters or more rated, with an interval over their documents."""
    rated = table.counts.sum(axis=1) >= 2
    if not rated.any():
        return Coefficient(np.nan, Interval(np.nan, np.nan, 0.95, "not defined"))
    estimate = mean_interval(_same(table)[rated].tolist(), [str(d) for d in document[rated]])
    return Coefficient(estimate.mean, estimate.interval)


def _pretending(table: _RatingTable, raw: float, target: float) -> tuple[_RatingTable, FloatArray]:
    """The table with pretended items that make its raw agreement `target`: equal ratings as often as labels were used,
    or unequal ones of every pair of labels."""
    if len(table.labels) == 1:  # raters who differ have used a label that was not seen
        unseen = None if table.pairs is None else np.pad(table.pairs, ((0, 0), (0, 3)))
        table = _RatingTable(2 * table.labels, np.pad(table.counts, ((0, 0), (0, 1))), unseen)
    q, items = len(table.labels), len(table.counts)
    rated = float(np.sum(table.counts.sum(axis=1) >= 2))
    pairs = np.array([(a, b) for a in range(q) for b in range(q) if (a != b) == (target < raw)])
    counts = np.eye(q)[pairs[:, 0]] + np.eye(q)[pairs[:, 1]]
    rest = target if target < raw else 1 - target
    many = rated * abs(target - raw) / rest if rest > 0 and np.isfinite(target) else 0.0
    often = table.counts.sum(axis=0)[pairs[:, 0]] if target >= raw else np.ones(len(pairs))
    weights = np.concatenate([np.ones(items), many * often / max(float(often.sum()), 1e-12)])
    both = None
    if table.pairs is not None:
        both = np.concatenate([table.pairs, np.eye(q * q)[pairs[:, 0] * q + pairs[:, 1]]])
    return _RatingTable(table.labels, np.concatenate([table.counts, counts]), both), weights[None, :]


# Each coefficient below is a function of sums over items, so `weights` (resamples x items: how often each item was
# drawn) gives all resamples in one product.


def _raw(table: _RatingTable, weights: FloatArray) -> FloatArray:
    rated = table.counts.sum(axis=1) >= 2
    return _ratio(weights @ np.where(rated, _same(table), 0.0), weights @ rated.astype(np.float64))


def _same(table: _RatingTable) -> FloatArray:
    """For each item the share of equal pairs of ratings; 0 where there is no pair."""
    n = table.counts.sum(axis=1)
    return np.asarray(np.sum(table.counts * (table.counts - 1), axis=1) / np.maximum(n * (n - 1), 1.0))


def _label_shares(table: _RatingTable, weights: FloatArray) -> FloatArray:
    """The use of each label: the mean over rated items of its share there (Gwet 2014), so that all rated items count
    alike."""
    n = table.counts.sum(axis=1)
    share = weights @ (table.counts / np.maximum(n, 1)[:, None])
    return np.asarray(share / np.maximum(weights @ (n >= 1).astype(np.float64), 1e-12)[:, None])


def _kappa(table: _RatingTable, weights: FloatArray, level: Level) -> FloatArray:
    """Cohen's kappa; at the level `interval` with squared distances between labels."""
    assert table.pairs is not None
    q = len(table.labels)
    both = (weights @ table.pairs).reshape(-1, q, q)
    both = both / np.maximum(both.sum(axis=(1, 2), keepdims=True), 1e-12)
    distance = _distances(table, both.sum(axis=2), level)
    expected = both.sum(axis=2)[:, :, None] * both.sum(axis=1)[:, None, :]
    return 1 - _ratio(np.sum(both * distance, axis=(1, 2)), np.sum(expected * distance, axis=(1, 2)))


def _fleiss(table: _RatingTable, weights: FloatArray) -> FloatArray:
    expected = np.sum(_label_shares(table, weights) ** 2, axis=1)
    return _ratio(_raw(table, weights) - expected, 1 - expected)


def _alpha(table: _RatingTable, weights: FloatArray, level: Level) -> FloatArray:
    counts, q = table.counts, len(table.labels)
    n = counts.sum(axis=1)
    pairs = counts[:, :, None] * counts[:, None, :] - np.eye(q) * counts[:, :, None]
    pairs = pairs / np.maximum(n - 1, 1)[:, None, None] * (n >= 2)[:, None, None]
    met = (weights @ pairs.reshape(len(counts), -1)).reshape(-1, q, q)
    totals = met.sum(axis=2)
    distance = _distances(table, totals, level)
    total = totals.sum(axis=1)
    seen = np.sum(met * distance, axis=(1, 2)) * (total - 1)
    expected = np.sum(totals[:, :, None] * totals[:, None, :] * distance, axis=(1, 2))
    return 1 - _ratio(seen, expected)


def _distances(table: _RatingTable, totals: FloatArray, level: Level) -> FloatArray:
    """Squared distances between labels; ordinal ones depend on how often the labels between were used."""
    q = len(table.labels)
    if level == "nominal":
        return np.broadcast_to(1 - np.eye(q), (len(totals), q, q))
    if level == "interval":
        values = np.array([_number(label) for label in table.labels])
        return np.broadcast_to((values[:, None] - values[None, :]) ** 2, (len(totals), q, q))
    for label in table.labels:
        _number(label)
    upto = np.cumsum(totals, axis=1) - totals / 2
    return np.asarray((upto[:, :, None] - upto[:, None, :]) ** 2)


def _ac1(table: _RatingTable, weights: FloatArray) -> FloatArray:
    share = _label_shares(table, weights)
    expected = np.sum(share * (1 - share), axis=1) / max(len(table.labels) - 1, 1)
    return _ratio(_raw(table, weights) - expected, 1 - expected)


def _ratio(top: FloatArray, bottom: FloatArray) -> FloatArray:
    return np.asarray(np.divide(top, bottom, out=np.full(len(top), np.nan), where=np.abs(bottom) > 1e-12))


def _table(ratings: Ratings) -> _RatingTable:
    labels = sorted({label for row in ratings for label in row if label is not None}, key=_order)
    if not labels:
        raise UsageError("nothing was rated", where="agreement")
    column_of = {label: i for i, label in enumerate(labels)}
    counts = np.zeros((len(ratings), len(labels)))
    pairs = np.zeros((len(ratings), len(labels) ** 2))
    for i, row in enumerate(ratings):
        for label in row:
            if label is not None:
                counts[i, column_of[label]] += 1
        if len(row) == 2 and row[0] is not None and row[1] is not None:
            pairs[i, column_of[row[0]] * len(labels) + column_of[row[1]]] = 1
    two = all(len(row) == 2 for row in ratings)
    return _RatingTable(tuple(labels), counts, pairs if two else None)


def _shares(ratings: Ratings, table: _RatingTable) -> dict[Rating, tuple[float, ...]]:
    columns = list(zip(*ratings, strict=True))
    rated = [max(sum(label is not None for label in column), 1) for column in columns]
    return {
        label: tuple(column.count(label) / n for column, n in zip(columns, rated, strict=True))
        for label in table.labels
    }


def _order(label: Rating) -> tuple[int, float, str]:
    return (1, 0.0, label) if isinstance(label, str) else (0, float(label), "")


def _number(label: Rating) -> float:
    if isinstance(label, str):
        raise UsageError(f"the label {label!r} has no order", where="agreement", fix="rate with numbers, or nominal")
    return float(label)
