"""A smoothed map in which neighbouring cells inform one another. Shown beside the raw cells, never instead
of them, and never outside of what the samples of a cell prove by themselves.

A Gaussian process on the logit of the score, with binomial counts, by Laplace's approximation (Rasmussen and
Williams 2006, algorithms 3.1 and 5.1). Cells are alike when their log2 lengths and depths are near, and also when
their facts have a similar distance from the end of the prompt, or from its start: without that second kernel a model
that reads only a last window of tokens, a diagonal edge on the map, would be smoothed away. Scales are chosen by
the evidence, one at a time. Set OMP_NUM_THREADS=1: the matrices are small, and threads make them slower.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import expit, logit, xlog1py, xlogy

from leadline.core.errors import UsageError
from leadline.stats.intervals import CONFIDENCE, normal_quantile, wilson
from leadline.stats.observations import FloatArray, IntArray, Observations
from leadline.stats.surfaces import Surface, surface_of

OCTAVES = (0.7, 2.0, 6.0, 20.0)
DEPTHS = (0.1, 0.3, 1.0, 4.0)
AMPLITUDES = (0.3, 1.0, 2.5, 5.0)
SHARES = (0.0, 0.5, 0.95)
DISTANCE_OCTAVES = (1.0, 4.0)
LEVEL_VARIANCE = 4.0
"""The prior deviation of the common level of all cells, in logits: wide enough to have no effect."""


PROVEN_ERROR = 0.01
"""The chance, over all cells, that a cell's own samples overrule its neighbours wrongly."""


@dataclass(frozen=True, slots=True)
class Scales:
    """The scales chosen by the evidence. The shares are the parts of the likeness that depend on the distance to the
    end or start."""

    octaves: float = 2.0
    depth: float = 0.3
    amplitude: float = 1.0
    end_share: float = 0.0
    start_share: float = 0.0
    distance_octaves: float = 1.0


@dataclass(frozen=True, slots=True)
class SmoothSurface:
    """Smoothed scores with intervals, and the raw counts they were made from."""

    lengths: IntArray
    depths: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    deviation: FloatArray
    """Of the smoothed score, approximately."""
    raw: Surface
    scales: Scales
    confidence: float


@dataclass(frozen=True, slots=True)
class _Posterior:
    mode: FloatArray
    variance: FloatArray
    evidence: float


def smooth(data: Observations) -> SmoothSurface:
    """The smoothed map of all samples that have a depth and a score."""
    return smooth_surface(surface_of(data))


def smooth_surface(surface: Surface) -> SmoothSurface:
    total, n = surface.total.ravel(), surface.n.ravel()
    if n.sum() == 0:
        raise UsageError("no cell has a sample", where="smoothing")
    # Half a success and half a failure keep the level finite when all answers are alike.
    level = float(logit((total.sum() + 0.5) / (n.sum() + 1)))
    posterior, scales = _search(_Distances.of(surface), total, n, level)
    spread = np.sqrt(posterior.variance)
    z = normal_quantile(CONFIDENCE)
    mean = _expected_share(posterior.mode, spread)
    low, high = expit(posterior.mode - z * spread), expit(posterior.mode + z * spread)
    proven = [wilson(float(s), float(k), 1 - PROVEN_ERROR / len(n)) for s, k in zip(total, n, strict=True)]
    floor, ceiling = np.array([p.low for p in proven]), np.array([p.high for p in proven])
    mean = np.clip(mean, floor, ceiling)
    shape = surface.n.shape
    return SmoothSurface(
        lengths=surface.lengths,
        depths=surface.depths,
        mean=mean.reshape(shape),
        low=np.minimum(np.maximum(low, floor), mean).reshape(shape),
        high=np.maximum(np.minimum(high, ceiling), mean).reshape(shape),
        deviation=(mean * (1 - mean) * spread).reshape(shape),
        raw=surface,
        scales=scales,
        confidence=CONFIDENCE,
    )


@dataclass(frozen=True, slots=True)
class _Distances:
    """The distances of any two cells: in length, in depth, and as seen from the end and from the start."""

    octaves: FloatArray
    depth: FloatArray
    end: FloatArray
    start: FloatArray

    @classmethod
    def of(cls, surface: Surface) -> _Distances:
        octave, depth = np.meshgrid(surface.octaves, surface.depths, indexing="ij")
        columns = (octave, depth, np.log2(1 + surface.to_end), np.log2(1 + surface.to_start))
        return cls(*(np.abs(c.ravel()[:, None] - c.ravel()[None, :]) for c in columns))


def _search(apart: _Distances, total: FloatArray, n: FloatArray, level: float) -> tuple[_Posterior, Scales]:
    """The scales with the most evidence, changing one at a time until none helps. A step in both shares is taken from
    zero only: a map has one kind of diagonal."""
    choices: dict[str, tuple[float, ...]] = {
        "amplitude": AMPLITUDES, "octaves": OCTAVES, "depth": DEPTHS,
        "end_share": SHARES, "start_share": SHARES, "distance_octaves": DISTANCE_OCTAVES,
    }  # fmt: skip
    best = Scales()
    tried = {best: _laplace(_kernel(apart, best), total, n, level)}
    for _ in range(3):
        before = best
        for name, values in choices.items():
            for value in values:
                scales = replace(best, **{name: value})
                if scales.end_share + scales.start_share > 0.95:
                    continue
                if scales not in tried:
                    tried[scales] = _laplace(_kernel(apart, scales), total, n, level)
                if tried[scales].evidence > tried[best].evidence:
                    best = scales
        if best == before:
            break
    return tried[best], best


def _kernel(apart: _Distances, scales: Scales) -> FloatArray:
    """Rough along length, where cliffs are; smooth along depth; rough along distance, where windows end."""
    across = apart.depth * (np.sqrt(3) / scales.depth)
    grid = np.exp(-apart.octaves / scales.octaves - across) * (1 + across)
    mixed = (1 - scales.end_share - scales.start_share) * grid
    if scales.end_share:
        mixed = mixed + scales.end_share * np.exp(-apart.end / scales.distance_octaves)
    if scales.start_share:
        mixed = mixed + scales.start_share * np.exp(-apart.start / scales.distance_octaves)
    return np.asarray(scales.amplitude**2 * mixed + LEVEL_VARIANCE)


def _laplace(kernel: FloatArray, total: FloatArray, n: FloatArray, level: float) -> _Posterior:
    """The mode of the posterior by Newton's steps, its variance, and the log evidence."""
    latent = np.zeros(len(n))
    previous = -np.inf
    for _ in range(50):
        share = expit(latent + level)
        weight = np.maximum(n * share * (1 - share), 1e-10)
        root = np.sqrt(weight)
        factor = cho_factor(np.eye(len(n)) + root[:, None] * kernel * root[None, :], lower=True)
        pull = weight * latent + total - n * share
        coefficient = pull - root * cho_solve(factor, root * (kernel @ pull))
        latent = kernel @ coefficient
        share = expit(latent + level)
        fit = float(np.sum(xlogy(total, share) + xlog1py(n - total, -share)) - coefficient @ latent / 2)
        if abs(fit - previous) < 1e-6:
            break
        previous = fit
    lower = np.tril(factor[0])
    evidence = fit - float(np.sum(np.log(np.diag(lower))))
    reduced = solve_triangular(lower, root[:, None] * kernel, lower=True)
    variance = np.maximum(np.diag(kernel) - np.sum(reduced**2, axis=0), 1e-12)
    return _Posterior(latent + level, variance, evidence)


def _expected_share(mode: FloatArray, spread: FloatArray) -> FloatArray:
    """The mean of a logit-normal share, by seven-point Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(7)
    return np.asarray(expit(mode[:, None] + spread[:, None] * nodes) @ weights / weights.sum())
