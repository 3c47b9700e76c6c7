"""How far raters agree: judges with one another, or a judge with people.

Kappa and alpha fall towards zero when nearly all answers are of one kind, however often raters agree; AC1 does
not. So all are given, beside the raw agreement and the share of every label. Intervals are bootstraps over items.
Sources: Cohen 1960, Fleiss 1971, Krippendorff 2011, Gwet 2008.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from leadline.core.errors import UsageError
from leadline.core.seeds import bulk_rng
from leadline.stats.intervals import Interval
from leadline.stats.observations import FloatArray

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
    """Of each label, the share of each rater's ratings that it is."""
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
        """Whether one label is nine tenths of all ratings: kappa and alpha mislead there, and AC1 is to be read."""
        return max(sum(shares) / len(shares) for shares in self.shares.values()) >= 0.9


@dataclass(frozen=True, slots=True)
class _RatingTable:
    """Per item: how often each label was given, and for two raters which pair."""

    labels: tuple[Rating, ...]
    counts: FloatArray
    pairs: FloatArray | None


def agreement(ratings: Ratings, *, level: Level = "nominal", resamples: int = 2000, seed: int = 0) -> Agreement:
    """Every coefficient with its 95 % interval."""
    table = _table(ratings)
    items, raters = len(ratings), max(len(row) for row in ratings)
    drawn = bulk_rng(seed, "agreement").multinomial(items, np.full(items, 1 / items), size=resamples).astype(np.float64)

    def coefficient(measure: Callable[[_RatingTable, FloatArray], FloatArray]) -> Coefficient:
        draws = measure(table, drawn)
        fine = draws[np.isfinite(draws)]
        low, high = np.percentile(fine, [2.5, 97.5]) if len(fine) else (np.nan, np.nan)
        value = float(measure(table, np.ones((1, items)))[0])
        return Coefficient(value, Interval(float(low), float(high), 0.95, "bootstrap over items"))

    def kappa(level: Level) -> Coefficient:
        return coefficient(lambda t, weights: _kappa(t, weights, level))

    two, ordered = table.pairs is not None, not any(isinstance(label, str) for label in table.labels)
    return Agreement(
        items,
        raters,
        _shares(ratings, table),
        raw=coefficient(_raw),
        cohen=kappa("nominal") if two else None,
        quadratic=kappa("interval") if two and ordered else None,
        fleiss=coefficient(_fleiss),
        krippendorff=coefficient(lambda t, weights: _alpha(t, weights, level)),
        gwet=coefficient(_ac1),
        level=level,
    )


# Each coefficient below is a function of sums over items, so `weights` (resamples x items: how often each item was
# drawn) gives all resamples in one product.


def _raw(table: _RatingTable, weights: FloatArray) -> FloatArray:
    n = table.counts.sum(axis=1)
    rated = n >= 2
    together = np.sum(table.counts * (table.counts - 1), axis=1) / np.where(rated, n * (n - 1), 1.0)
    return _ratio(weights @ np.where(rated, together, 0.0), weights @ rated.astype(np.float64))


def _kappa(table: _RatingTable, weights: FloatArray, level: Level) -> FloatArray:
    """Cohen's kappa; at the level `interval` with squared distances between labels."""
    assert table.pairs is not None
    q = len(table.labels)
    both = (weights @ table.pairs).reshape(-1, q, q)
    both = both / np.maximum(both.sum(axis=(1, 2), keepdims=True), 1.0)
    distance = _distances(table, both.sum(axis=2), level)
    expected = both.sum(axis=2)[:, :, None] * both.sum(axis=1)[:, None, :]
    return 1 - _ratio(np.sum(both * distance, axis=(1, 2)), np.sum(expected * distance, axis=(1, 2)))


def _fleiss(table: _RatingTable, weights: FloatArray) -> FloatArray:
    """With missing ratings, items that two raters or more rated, as irr software does for unbalanced tables."""
    rated = table.counts.sum(axis=1) >= 2
    share = weights @ np.where(rated[:, None], table.counts, 0.0)
    share = share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    expected = np.sum(share**2, axis=1)
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
    q = len(table.labels)
    n = table.counts.sum(axis=1)
    share = weights @ (table.counts / np.maximum(n, 1)[:, None])
    share = share / np.maximum(weights @ (n >= 1).astype(np.float64), 1.0)[:, None]
    expected = np.sum(share * (1 - share), axis=1) / max(q - 1, 1)
    return _ratio(_raw(table, weights) - expected, 1 - expected)


def _ratio(top: FloatArray, bottom: FloatArray) -> FloatArray:
    return np.asarray(np.divide(top, bottom, out=np.full(len(top), np.nan), where=np.abs(bottom) > 1e-12))


def _table(ratings: Ratings) -> _RatingTable:
    labels = sorted({label for row in ratings for label in row if label is not None}, key=_order)
    if not labels:
        raise UsageError("nothing was rated", where="agreement")
    place = {label: i for i, label in enumerate(labels)}
    counts = np.zeros((len(ratings), len(labels)))
    pairs = np.zeros((len(ratings), len(labels) ** 2))
    for i, row in enumerate(ratings):
        for label in row:
            if label is not None:
                counts[i, place[label]] += 1
        if len(row) == 2 and row[0] is not None and row[1] is not None:
            pairs[i, place[row[0]] * len(labels) + place[row[1]]] = 1
    two = all(len(row) == 2 for row in ratings)
    return _RatingTable(tuple(labels), counts, pairs if two else None)


def _shares(ratings: Ratings, table: _RatingTable) -> dict[Rating, tuple[float, ...]]:
    columns = list(zip(*ratings, strict=True))
    given = [max(sum(label is not None for label in column), 1) for column in columns]
    return {
        label: tuple(column.count(label) / n for column, n in zip(columns, given, strict=True))
        for label in table.labels
    }


def _order(label: Rating) -> tuple[int, float, str]:
    return (1, 0.0, label) if isinstance(label, str) else (0, float(label), "")


def _number(label: Rating) -> float:
    if isinstance(label, str):
        raise UsageError(f"the label {label!r} has no order", where="agreement", fix="rate with numbers, or nominal")
    return float(label)
