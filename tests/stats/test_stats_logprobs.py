"""Intervals of log-probability metrics end where the metrics do, and nowhere else."""

from __future__ import annotations

import math
import random

import msgspec
import pytest

from leadline.core.types import Cell, Measurement, Record
from leadline.stats.logprobs import estimate
from support.planted_runs import planted_record


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
    """Two documents, t of one degree: 0.5 +- 5.08 and 0.8 +- 7.62, before the ends are looked at."""
    half = 12.706 * (values[1] - values[0]) / 2
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
