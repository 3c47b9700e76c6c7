"""Sample sizes: how many prompts a comparison needs to see a given drop.

Two runs of the same prompts differ only where one is right and the other wrong. The share of such prompts, the
discordance, is the noise; measure it by running one model twice (an A/A run), or take it from an earlier comparison.
Formula for paired yes/no answers: Connett, Smith and McHugh 1987.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from leadline.core.errors import UsageError
from leadline.stats.marginals import group_means
from leadline.stats.observations import Failures, Observations

Sides = Literal["one", "two"]
DEFAULT_DISCORDANCE = 0.10
"""What to plan with when no earlier run says better: one answer in ten flips."""


@dataclass(frozen=True, slots=True)
class SampleSize:
    """Prompts needed in each run to see `drop` with chance `power` when `discordance` of the answers flip."""

    prompts: int
    drop: float
    power: float
    discordance: float


def paired_sample_size(
    drop: float,
    discordance: float = DEFAULT_DISCORDANCE,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    sides: Sides = "one",
    design_effect: float = 1.0,
) -> SampleSize:
    """For yes/no answers to the same prompts. `design_effect` is 1 when every prompt has its own document."""
    _check_drop(drop)
    if discordance < drop:
        # A drop of 5 points needs at least 5 % of prompts to change.
        discordance = drop
    z_alpha, z_power = _quantiles(alpha, power, sides)
    root = z_alpha * math.sqrt(discordance) + z_power * math.sqrt(discordance - drop**2)
    prompts = math.ceil(design_effect * (root / drop) ** 2)
    return SampleSize(prompts, drop, power, discordance)


@dataclass(frozen=True, slots=True)
class SeenVariance:
    """What one earlier run says about the noise of a comparison still to be made."""

    discordance: float
    deviation: float
    design_effect: float


def seen_variance(data: Observations, *, failures: Failures = "excluded") -> SeenVariance:
    """From one run: as if the other model's answers were drawn anew in every cell.

    Checkpoints of one model agree more than that, so plans made from this err towards too many samples.
    """
    counted = data.counted(failures)
    if len(counted) == 0:
        raise UsageError("no sample has a score", where="power")
    whole = group_means(counted, np.zeros(len(counted), dtype=np.int64), 1)
    scatter = _scatter_in_cells(counted)
    shared = float(whole.variances[0] / whole.row_variances[0]) if scatter > 0 else 1.0
    return SeenVariance(
        discordance=min(1.0, 2 * scatter), deviation=math.sqrt(2 * scatter), design_effect=max(1.0, shared)
    )


def _scatter_in_cells(data: Observations) -> float:
    """The variance of a score about its cell's mean; cells weigh alike, however many samples each has."""
    cell = data.code(("task", "length", "depth"))
    n = np.bincount(cell)
    means = np.bincount(cell, weights=data.value) / np.maximum(n, 1)
    squares = np.bincount(cell, weights=(data.value - means[cell]) ** 2)
    several = n > 1
    return float(np.mean(squares[several] / (n[several] - 1))) if several.any() else 0.25


def detectable_drop(
    prompts: int,
    discordance: float = DEFAULT_DISCORDANCE,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    sides: Sides = "one",
    design_effect: float = 1.0,
) -> float | None:
    """The smallest drop that this many prompts would see, or None when none can be seen."""
    low, high = 1e-4, 1.0
    needed = paired_sample_size(
        high, discordance, power=power, alpha=alpha, sides=sides, design_effect=design_effect
    ).prompts
    if needed > prompts:
        return None
    for _ in range(60):
        middle = (low + high) / 2
        needed = paired_sample_size(
            middle, discordance, power=power, alpha=alpha, sides=sides, design_effect=design_effect
        ).prompts
        low, high = (low, middle) if needed <= prompts else (middle, high)
    return high


def _quantiles(alpha: float, power: float, sides: Sides) -> tuple[float, float]:
    normal = NormalDist()
    return normal.inv_cdf(1 - alpha / (2 if sides == "two" else 1)), normal.inv_cdf(power)


def _check_drop(drop: float) -> None:
    if not 0 < drop <= 1:
        raise UsageError(
            f"a drop of {drop} is not between 0 and 1", where="power", fix="write 0.05 for five points out of a hundred"
        )
