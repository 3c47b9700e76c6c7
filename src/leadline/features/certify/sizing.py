"""How many samples a cell a certification needs at most: so many that each of its verdicts is reached often enough.

- A loss of the margin everywhere is called lost.
- A loss of one and a half margins in one part alone (the smallest family, length or depth third) is found there.
- Equal sides are called kept.

Each at the power asked for, with answers that flip both ways as between servers that are equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from leadline.core.seeds import bulk_rng
from leadline.features.certify.decide import ALPHA, EARLY_SHARE, PART_MARGIN, gate_rules
from leadline.stats.compare import mcnemar_midp
from leadline.stats.gate import parse_gate
from leadline.stats.observations import DEPTH_BANDS
from leadline.stats.power import POWER, Grid, Noise, compare_rates, fewest_samples, gate_rates

PLANNED_FLIPS = 0.05
"""The share of answers that flip between equal servers, for a plan: vLLM and llama.cpp flip fewer."""
RUNS = 200
PART_RUNS = 2000
MOST_SAMPLES = 400
Place = tuple[str, int, float | None]


def samples_needed(places: Sequence[Place], margin: float, power: float = POWER) -> int:
    """The most samples a cell, for a grid of tasks, lengths and depths and a margin as a share."""
    grid, noise, scale = Grid(tuple(places)), Noise(PLANNED_FLIPS), POWER / power  # `fewest_samples` looks for POWER
    parts = part_sizes(places)
    gate = parse_gate(gate_rules(margin, parts))
    tests = 1 + sum(len(sizes) for sizes in parts.values())
    smallest = min((size for sizes in parts.values() for size in sizes), default=len(places))
    rates = (
        lambda count: scale * compare_rates(grid, count, margin, noise, runs=RUNS).worse,
        lambda count: scale * part_power(smallest * count, tests, PART_MARGIN * margin),
        lambda count: scale * gate_rates(grid, count, 0.0, noise, gate, runs=RUNS).passed,
    )
    return min(MOST_SAMPLES, max(fewest_samples(rate) or MOST_SAMPLES for rate in rates))


def part_sizes(places: Sequence[Place]) -> dict[str, list[int]]:
    """Cells of every family, length and depth third, for those of which there are several."""
    edges = [high for _, high in DEPTH_BANDS.values()][:-1]
    bands = [int(np.searchsorted(edges, depth, side="right")) for *_, depth in places if depth is not None]
    sizes = {
        "task": list(Counter(task for task, *_ in places).values()),
        "length": list(Counter(length for _, length, _ in places).values()),
        "depth": list(Counter(bands).values()),
    }
    return {scope: cells for scope, cells in sizes.items() if len(cells) > 1}


def part_power(prompts: int, tests: int, drop: float, flips: float = PLANNED_FLIPS) -> float:
    """How often the last look finds a drop of a part with so many prompts, among so many tests."""
    rng = bulk_rng(0, "part power", prompts)
    half = min(flips, 1 - drop) / 2
    lost = rng.binomial(prompts, half + drop, PART_RUNS)
    gained = rng.binomial(prompts - lost, half / (1 - half - drop))
    surest = mcnemar_midp(lost, gained) * tests <= ALPHA * (1 - EARLY_SHARE)
    return float(np.mean(surest & (lost > gained)))
