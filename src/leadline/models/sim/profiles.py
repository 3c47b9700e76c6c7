"""How often a simulated model reads right: pure functions of length and depth, after published profiles.

perfect             always
cliff               up to `window` tokens, and not beyond: rotary positions never seen in training
lost-in-the-middle  a dip over the depths between both ends, which opens over the four doublings up to `window`
                    (Liu et al., arXiv 2307.03172)
decay               half way down at `window`, smoothly: position interpolation (arXiv 2306.15595)
floor               the same, but down to a floor that is kept: as YaRN-extended models do (arXiv 2309.00071)
recency             only facts within `window` tokens of the end: sliding-window attention

These functions are the known truth that a measurement of a simulated model must recover.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pydantic import Field, field_validator

from leadline.core.contracts import Options
from leadline.core.errors import UnknownName
from leadline.core.spec import parse_length

_DEPTH_STEPS = 64


class Profile(Options):
    """Parameters of a profile."""

    window: int = Field(8192, ge=1, description="tokens at which the profile turns")
    high: float = Field(1.0, ge=0, le=1, description="chance to read right at best")
    low: float | None = Field(None, ge=0, le=1, description="chance to read right at worst; 0, or 0.6 for floor")
    strength: float = Field(0.8, ge=0, le=1, description="depth of the dip in the middle, as a share")
    slope: float = Field(2.0, gt=0, description="steepness of a decay per doubling; 1 is gentle, 8 almost a cliff")
    noise: float = Field(0.0, ge=0, le=1, description="share of right answers lost at any length and depth")

    @field_validator("window", mode="before")
    @classmethod
    def _window(cls, value: Any) -> Any:
        return parse_length(value) if isinstance(value, str) else value


Shape = Callable[[int, float, Profile], float]
"""From length, depth and profile to a share between low (0) and high (1)."""


def _perfect(length: int, depth: float, profile: Profile) -> float:
    return 1.0


def _cliff(length: int, depth: float, profile: Profile) -> float:
    return 1.0 if length <= profile.window else 0.0


def _lost_in_the_middle(length: int, depth: float, profile: Profile) -> float:
    opened = min(max(math.log2(16 * length / profile.window) / 4, 0.0), 1.0)
    return 1.0 - profile.strength * opened * 4 * depth * (1 - depth)


def _decay(length: int, depth: float, profile: Profile) -> float:
    return float(1 / (1 + (length / profile.window) ** profile.slope))


def _recency(length: int, depth: float, profile: Profile) -> float:
    return 1.0 if (1 - depth) * length <= profile.window else 0.0


SHAPES: dict[str, Shape] = {
    "perfect": _perfect,
    "cliff": _cliff,
    "lost-in-the-middle": _lost_in_the_middle,
    "decay": _decay,
    "floor": _decay,
    "recency": _recency,
    "flaky": _perfect,
}
NEVER_RIGHT = ("refuses", "empty", "wanders", "cuts-off")
JUDGE = "judge"
ARCHETYPES = (*SHAPES, *NEVER_RIGHT, JUDGE)
_LOW = {"floor": 0.6}


def success_probability(archetype: str, length: int, depth: float | None, options: Profile) -> float:
    """The chance that a piece of evidence at `depth` of a prompt of `length` tokens is read right.

    `length` includes the allowance for the answer. Without a depth: the mean over all depths.
    """
    if archetype in (*NEVER_RIGHT, JUDGE):
        return 0.0
    if archetype not in SHAPES:
        raise UnknownName("simulated model", archetype, ARCHETYPES, where=f"model sim:{archetype}")
    if depth is None:
        middles = ((i + 0.5) / _DEPTH_STEPS for i in range(_DEPTH_STEPS))
        return sum(success_probability(archetype, length, d, options) for d in middles) / _DEPTH_STEPS
    low = options.low if options.low is not None else _LOW.get(archetype, 0.0)
    share = SHAPES[archetype](length, min(max(depth, 0.0), 1.0), options)
    return (low + (options.high - low) * share) * (1 - options.noise)
