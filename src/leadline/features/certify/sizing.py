"""The most samples a cell that a certification needs, so that each of its verdicts is reached with the power asked for.

- A loss of the margin everywhere is called lost.
- A loss of one and a half margins in one part alone (the smallest family, length or depth third) is found and named.
- Equal sides are called kept.

Answers flip both ways, as between equal servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leadline.core.seeds import bulk_rng
from leadline.features.certify.blame import OUTSIDE_ALPHA
from leadline.features.certify.decide import ALPHA, EARLY_SHARE, PART_MARGIN, gate_rules
from leadline.stats.allocate import GridPoint
from leadline.stats.compare import mcnemar_midp
from leadline.stats.gate import parse_gate
from leadline.stats.observations import DEPTH_BANDS, FloatArray, IntArray
from leadline.stats.power import POWER, Grid, Noise, compare_rates, fewest_samples, gate_rates

PLANNED_FLIPS = 0.05
"""The share of answers that flip between equal servers, for a plan: vLLM and llama.cpp flip fewer."""
RUNS = 200
PART_RUNS = 2000
MOST_SAMPLES = 400


def samples_needed(points: Sequence[GridPoint], margin: float, power: float = POWER) -> int:
    """The most samples a cell, for a grid of tasks, lengths and depths and a margin as a share."""
    grid, noise, scale = Grid(tuple(points)), Noise(PLANNED_FLIPS), POWER / power  # `fewest_samples` looks for POWER
    parts = parts_of(points)
    scopes = list(dict.fromkeys(part.scope for part in parts))
    gate = parse_gate(gate_rules(margin, scopes))
    smallest = [min((p for p in parts if p.scope == scope), key=lambda part: len(part.cells)) for scope in scopes]
    rates = (
        lambda count: scale * compare_rates(grid, count, margin, noise, runs=RUNS).worse,
        lambda count: scale * min((part_power(p, parts, count, PART_MARGIN * margin) for p in smallest), default=1.0),
        lambda count: scale * gate_rates(grid, count, 0.0, noise, gate, runs=RUNS).passed,
    )
    return min(MOST_SAMPLES, max(fewest_samples(rate) or MOST_SAMPLES for rate in rates))


@dataclass(frozen=True, slots=True)
class Part:
    """A family, length or depth third, and its cells by number."""

    scope: str
    cells: frozenset[int]


def parts_of(points: Sequence[GridPoint]) -> list[Part]:
    """Every family, length and depth third, where there are several."""
    edges = [high for _, high in DEPTH_BANDS.values()][:-1]
    cells: dict[str, dict[object, list[int]]] = {"task": {}, "length": {}, "depth": {}}
    for number, (task, length, depth) in enumerate(points):
        cells["task"].setdefault(task, []).append(number)
        cells["length"].setdefault(length, []).append(number)
        if depth is not None:
            cells["depth"].setdefault(int(np.searchsorted(edges, depth, side="right")), []).append(number)
    several = {scope: groups for scope, groups in cells.items() if len(groups) > 1}
    return [Part(scope, frozenset(inside)) for scope, groups in several.items() for inside in groups.values()]


def part_power(part: Part, parts: Sequence[Part], count: int, drop: float, flips: float = PLANNED_FLIPS) -> float:
    """The chance that the last look, at `count` samples a cell, names a part that alone has a drop. The part must be
    worse after the correction, and worse outside of every part of another scope."""
    rng = bulk_rng(0, "part power", count)
    half = min(flips, 1 - drop) / 2
    lost = rng.binomial(count, half + drop, (PART_RUNS, len(part.cells)))
    gained = rng.binomial(count - lost, half / (1 - half - drop))
    tests = 1 + len(parts)
    named = _p_of_loss(lost, gained) * 2 * tests <= ALPHA * (1 - EARLY_SHARE)
    for rival in parts:
        outside = np.array([cell not in rival.cells for cell in sorted(part.cells)])
        if rival.scope != part.scope and outside.any():
            named &= _p_of_loss(lost[:, outside], gained[:, outside]) <= OUTSIDE_ALPHA
    return float(np.mean(named))


def _p_of_loss(lost: IntArray, gained: IntArray) -> FloatArray:
    """One-sided, of every run (a row)."""
    lost, gained = lost.sum(axis=1), gained.sum(axis=1)
    p = mcnemar_midp(lost, gained) / 2
    return np.where(lost > gained, p, 1 - p)
