"""Observations with planted truth: what a model of a known score surface would answer.

For tests and calibration studies, and for anyone who wants to see what a design would find before paying for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from scipy.special import expit, ndtri

from leadline.core.types import Reading
from leadline.stats.observations import FloatArray, IntArray, Observations

Archetype = Literal["healthy", "cliff", "smooth decay", "lost in the middle", "recency only", "primacy only", "noise"]
ARCHETYPES: tuple[Archetype, ...] = (
    "healthy", "cliff", "smooth decay", "lost in the middle", "recency only", "primacy only", "noise",
)  # fmt: skip

LENGTHS: IntArray = 4096 * 2 ** np.arange(8)
DEPTHS: FloatArray = np.arange(11) / 10


_OCTAVE, _DEPTH, _FLAT = np.arange(8)[:, None], DEPTHS[None, :], np.ones((8, 11))
OTHER_MAPS: dict[str, FloatArray] = {
    "rising with length": (0.2 + 0.1 * _OCTAVE) * _FLAT,
    "dead first depth": np.where(_DEPTH < 0.05, 0.05, 0.95) * _FLAT,
    "dead last depth": np.where(_DEPTH > 0.95, 0.05, 0.95) * _FLAT,
    "bad shortest length": np.where(_OCTAVE < 1, 0.1, 0.95) * _FLAT,
    "one bad length": np.where(_OCTAVE == 3, 0.1, 0.97) * _FLAT,
    "checkerboard": np.where((_OCTAVE + np.round(10 * _DEPTH)) % 2 == 0, 0.9, 0.1) * _FLAT,
    "alternating depths": np.where(np.round(10 * _DEPTH) % 2 == 0, 0.9, 0.2) * _FLAT,
    "alternating lengths": np.where(_OCTAVE % 2 == 0, 0.9, 0.3) * _FLAT,
    "best in the middle": (0.9 - 0.7 * (2 * _DEPTH - 1) ** 2) * _FLAT,
    "valley of lengths": np.where((_OCTAVE >= 2) & (_OCTAVE <= 4), 0.2, 0.95) * _FLAT,
    "a corner": np.where((_OCTAVE > 3) & (_DEPTH < 0.45), 0.1, 0.95) * _FLAT,
    "end worse": np.where(_DEPTH > 0.7, 0.3, 0.95) * _FLAT,
}
"""Score surfaces that have none of the shapes that a diagnosis can name."""


def archetype(kind: Archetype, rng: np.random.Generator) -> FloatArray:
    """A score surface of that kind over LENGTHS and DEPTHS, with its numbers drawn at random."""
    octave, depth = np.arange(8.0)[:, None], DEPTHS[None, :]
    flat = np.ones((8, 11))
    if kind == "healthy":
        return rng.uniform(0.93, 0.995) * flat - rng.uniform(0, 0.004) * octave
    if kind == "noise":
        return rng.uniform(0.2, 0.75) * flat
    if kind == "cliff":
        return np.where(octave < rng.integers(2, 7), rng.uniform(0.9, 0.99), rng.uniform(0, 0.15)) * flat
    if kind == "smooth decay":
        slope, middle = rng.uniform(0.6, 1.6), rng.uniform(2.5, 5.5)
        return np.asarray(rng.uniform(0.93, 0.99) * expit(-slope * (octave - middle)) * flat)
    if kind == "lost in the middle":
        # Three dips, none of which is the one that the diagnosis fits on the logit scale.
        dips = (1 - (2 * depth - 1) ** 2, np.sin(np.pi * depth), np.clip(1.6 * (1 - np.abs(2 * depth - 1)), 0, 1))
        start, deep = rng.uniform(-1, 2), rng.uniform(0.4, 0.8)
        growth = np.clip((octave - start) / (6 - start), 0, 1)
        return np.clip(0.97 - deep * growth * dips[rng.integers(3)], 0.02, 0.98)
    window = 4096 * 2 ** rng.uniform(-0.5, 4.5)
    distance = LENGTHS[:, None] * ((1 - depth) if kind == "recency only" else depth)
    return np.where(distance <= window, rng.uniform(0.88, 0.98), rng.uniform(0.02, 0.15))


def planted(
    surface: FloatArray,
    samples: int,
    rng: np.random.Generator,
    *,
    reading: Reading = "fresh",
    correlation: float = 0.0,
    lengths: IntArray = LENGTHS,
    depths: FloatArray = DEPTHS,
    task: str = "planted",
) -> Observations:
    """Yes/no answers from a surface (lengths x depths). `correlation` is that of the hidden scores of one document."""
    row, column, sample = (part.ravel() for part in np.indices((len(lengths), len(depths), samples), dtype=np.int64))
    if reading == "fresh":
        cluster = np.arange(len(row))
    elif reading == "shared":
        cluster = row * samples + sample
    else:
        cluster = sample
    document = np.char.add("document ", cluster.astype(np.str_))
    return Observations(
        task=np.full(len(row), task),
        length=np.asarray(lengths)[row],
        depth=np.asarray(depths)[column],
        sample=sample,
        cluster=document,
        value=_answers(surface[row, column], cluster, correlation, rng),
        failed=np.zeros(len(row), dtype=np.bool_),
    )


def candidate_of(
    base: Observations, surface: FloatArray, rng: np.random.Generator, *, redrawn: float = 0.3
) -> Observations:
    """A second model on the same prompts. A share of its answers is drawn anew from its own surface, the others are
    the base's: with the base's own surface the two models are equal, and their answers differ by chance alone."""
    _, row = np.unique(base.length, return_inverse=True)
    _, column = np.unique(base.depth, return_inverse=True)
    fresh = (rng.random(len(base)) < surface[row, column]).astype(np.float64)
    return replace(base, value=np.where(rng.random(len(base)) < redrawn, fresh, base.value))


def _answers(share: FloatArray, cluster: IntArray, correlation: float, rng: np.random.Generator) -> FloatArray:
    """Right when a normal number falls below the share's quantile; documents share a part of that number."""
    common = rng.standard_normal(int(cluster.max()) + 1)[cluster]
    own = rng.standard_normal(len(share))
    drawn = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own
    with np.errstate(divide="ignore"):
        return np.asarray(drawn < ndtri(share), dtype=np.float64)
