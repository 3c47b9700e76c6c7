"""Intervals of log-probability metrics end where the metrics do, and nowhere else."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from leadline.core.answers import Measurement
from leadline.core.records import Record
from leadline.core.types import Cell
from leadline.stats.logprobs import estimate, ratio_interval
from leadline.stats.observations import FloatArray
from support.planted_runs import planted_record

Draw = Callable[[np.random.Generator, int], tuple[FloatArray, FloatArray]]


def measured(name: str, *values: float) -> list[Record]:
    return [
        msgspec.structs.replace(
            planted_record(Cell("proxies", 4096, 0.5, n), 1.0), outcome=Measurement({name: value}), cluster=f"d{n}"
        )
        for n, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("name", "values", "low", "high"),
    [
        ("needle_chance", (0.1, 0.9), 0.0, 1.0),
        ("retrieval_nll", (0.2, 1.4), 0.0, math.inf),
        ("retrieval_gain", (0.2, 1.4), -math.inf, math.inf),
    ],
)
def test_an_interval_of_two_documents_stays_where_its_metric_can_be(
    name: str, values: tuple[float, ...], low: float, high: float
) -> None:
    """Two documents, t of one degree: 0.5 +- 7.19 and 0.8 +- 10.8, before the ends are looked at."""
    half = 12.706 * (values[1] - values[0]) / math.sqrt(2)
    centre = sum(values) / 2
    found = estimate(measured(name, *values), name)
    assert found.mean == pytest.approx(centre)
    assert found.interval.low == pytest.approx(max(low, centre - half), abs=5e-3)
    assert found.interval.high == pytest.approx(min(high, centre + half), abs=5e-3)


@pytest.mark.parametrize("documents", [10, 20, 40])
def test_a_chance_near_one_allows_for_documents_that_were_not_seen(documents: int) -> None:
    """Nearly all documents are read with certainty, one in twenty not at all: often none of those is seen."""
    draw = random.Random(documents)
    runs, held = 300, 0
    for _ in range(runs):
        values = [0.02 if draw.random() < 0.05 else 1 - 0.01 * draw.random() for _ in range(documents)]
        held += estimate(measured("needle_chance", *values), "needle_chance").interval.holds(0.05 * 0.02 + 0.95 * 0.995)
    assert held / runs >= 0.92


def longppl(rng: np.random.Generator, documents: int) -> tuple[FloatArray, FloatArray]:
    """Documents with few and with many key tokens, which have the lower losses."""
    size = rng.standard_normal(documents)
    return np.exp(-0.5 * size + 0.5 * rng.standard_normal(documents)), np.exp(size)


def unrelated(rng: np.random.Generator, documents: int) -> tuple[FloatArray, FloatArray]:
    return rng.gamma(2, 0.5, documents), np.exp(rng.standard_normal(documents))


def exponential(rng: np.random.Generator, documents: int) -> tuple[FloatArray, FloatArray]:
    return rng.exponential(1.0, documents), np.ones(documents)


def lognormal(rng: np.random.Generator, documents: int) -> tuple[FloatArray, FloatArray]:
    return np.exp(0.8 * rng.standard_normal(documents)), np.ones(documents)


@pytest.mark.parametrize("documents", [5, 8, 20])
@pytest.mark.parametrize(
    ("drawn", "truth"),
    [(longppl, math.exp(-0.25)), (unrelated, 1.0), (exponential, 1.0), (lognormal, math.exp(0.32))],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_skewed_documents_and_unequal_weights_are_covered(drawn: Draw, truth: float, documents: int) -> None:
    rng, runs, names = np.random.default_rng(documents), 600, [str(n) for n in range(documents)]
    held = 0
    for _ in range(runs):
        loss, weight = drawn(rng, documents)
        held += ratio_interval((loss * weight).tolist(), weight.tolist(), names).interval.holds(truth)
    assert held >= 0.92 * runs
