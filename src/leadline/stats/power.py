"""How many samples would see a drop: planning a comparison before paying for it.

Two runs of the same prompts differ only where one is right and the other wrong. Their share, the discordance, is
what noise there is; measure it by running one model twice (an A/A run), or take it from an earlier comparison.
Formula for paired yes/no answers: Connett, Smith and McHugh 1987.
"""

from __future__ import annotations

import math
import re
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
    """Prompts needed in each run, and what that was worked out from."""

    prompts: int
    drop: float
    power: float
    alpha: float
    sides: Sides
    assumption: str

    def __str__(self) -> str:
        return (
            f"{self.prompts:,} prompts in each run would see a drop of {100 * self.drop:g} points "
            f"in {100 * self.power:g} of 100 comparisons ({self.assumption})"
        )


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
    assumption = f"same prompts, {100 * discordance:g} % of answers flip"
    return SampleSize(prompts, drop, power, alpha, sides, assumption)


def paired_sample_size_for_scores(
    drop: float,
    deviation: float,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    sides: Sides = "one",
    design_effect: float = 1.0,
) -> SampleSize:
    """For fractional scores: `deviation` is the standard deviation of the difference of a prompt's two scores."""
    _check_drop(drop)
    z_alpha, z_power = _quantiles(alpha, power, sides)
    prompts = math.ceil(design_effect * ((z_alpha + z_power) * deviation / drop) ** 2)
    assumption = f"same prompts, differences scatter by {100 * deviation:.3g} points"
    return SampleSize(prompts, drop, power, alpha, sides, assumption)


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


def unpaired_sample_size(
    drop: float, score: float, *, power: float = 0.8, alpha: float = 0.05, sides: Sides = "one"
) -> SampleSize:
    """For runs over different prompts, from a share right of `score`. There to show what pairing saves."""
    _check_drop(drop)
    if not 0 <= score - drop <= score <= 1:
        raise UsageError(f"a score of {score} cannot drop by {drop}", where="power")
    z_alpha, z_power = _quantiles(alpha, power, sides)
    lower = score - drop
    pooled = (score + lower) / 2
    root = z_alpha * math.sqrt(2 * pooled * (1 - pooled)) + z_power * math.sqrt(
        score * (1 - score) + lower * (1 - lower)
    )
    prompts = math.ceil((root / drop) ** 2)
    return SampleSize(prompts, drop, power, alpha, sides, f"different prompts, from a score of {100 * score:g}")


def detectable_drop(
    prompts: int,
    discordance: float = DEFAULT_DISCORDANCE,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    sides: Sides = "one",
    design_effect: float = 1.0,
) -> float | None:
    """The smallest drop that so many prompts would see, or None when none can be seen."""
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


def parse_drop(text: str) -> float:
    """`5pt`, `5 points`, `5%` or `0.05`, as a share."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(pts?|points?|%)?\s*", text)
    if not found:
        raise UsageError(f"{text!r} is not a drop", where="--detect", fix="write 5pt for five points of a hundred")
    drop = float(found[1]) / 100 if found[2] else float(found[1])
    _check_drop(drop)
    return drop


def _quantiles(alpha: float, power: float, sides: Sides) -> tuple[float, float]:
    normal = NormalDist()
    return normal.inv_cdf(1 - alpha / (2 if sides == "two" else 1)), normal.inv_cdf(power)


def _check_drop(drop: float) -> None:
    if not 0 < drop <= 1:
        raise UsageError(
            f"a drop of {drop} is not between 0 and 1", where="power", fix="write 0.05 for five points out of a hundred"
        )
