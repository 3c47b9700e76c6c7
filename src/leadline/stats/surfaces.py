"""Shapes that a length x depth map can have, each fitted to the counts by maximum likelihood.

    constant    one score everywhere
    step        one score up to a length, another beyond it
    decay       a falling logistic curve over log2 length, under a ceiling
    floor       the same, down to a floor that is kept
    bump        a logistic curve over log2 length, lower in the middle depths, more so at long lengths
    last        one score within a number of tokens of the end, another further away
    first       one score within a number of tokens of the start, another further in
    ramp        a logistic curve over relative depth, the same at every length
    tilt        the same, and over log2 length
    holes       one score everywhere but in one to three cells

A fractional score counts as that part of a success. `fit` returns the log-likelihood, the parameters, and what the
shape would predict for every cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import scipy  # loads its parts when they are first used

from leadline.stats.observations import BoolArray, FloatArray, IntArray, Observations

ShapeFamily = Literal["constant", "step", "decay", "floor", "bump", "last", "first", "ramp", "tilt", "holes"]
SHAPES: tuple[ShapeFamily, ...] = (
    "constant",
    "step",
    "decay",
    "floor",
    "bump",
    "last",
    "first",
    "ramp",
    "tilt",
    "holes",
)
PARAMETERS: Mapping[ShapeFamily, int] = {
    "constant": 1,
    "step": 2,
    "decay": 3,
    "floor": 4,
    "bump": 4,
    "last": 2,
    "first": 2,
    "ramp": 2,
    "tilt": 3,
    "holes": 1,
}
"""Free numbers of each shape, without the place of an edge, which is one of `Fit.places`, and without holes."""
MOST_HOLES = 3
FLOORS = (0.15, 0.3, 0.45, 0.6, 0.75)
"""Floors of a decay, as shares of its ceiling."""
_EDGE = 1e-3  # no cell is fitted closer to 0 or 1 than this


@dataclass(frozen=True, slots=True)
class Surface:
    """Counts of every cell: lengths x depths. `n` may be 0 where nothing was answered."""

    lengths: IntArray
    depths: FloatArray
    n: FloatArray
    total: FloatArray
    """Sum of the scores."""

    @property
    def octaves(self) -> FloatArray:
        return np.asarray(np.log2(self.lengths), dtype=np.float64)

    @property
    def to_end(self) -> FloatArray:
        return np.asarray(self.lengths[:, None] * (1 - self.depths[None, :]), dtype=np.float64)

    @property
    def to_start(self) -> FloatArray:
        return np.asarray(self.lengths[:, None] * self.depths[None, :], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted shape. `details` holds its parameters by name."""

    shape: ShapeFamily
    log_likelihood: float
    predicted: FloatArray
    details: Mapping[str, float] = field(default_factory=dict)
    places: float = 1
    """The number of edges among which its own was the best."""
    profile: FloatArray | None = None
    """For a step: the log-likelihood of a fall after each length but the last."""


def surface_of(data: Observations) -> Surface:
    """The counts of all tasks together. Samples without a score are left out, and those without a depth where others
    have one; where none has, the surface is one column wide."""
    counted = with_depth(data)
    lengths, row = np.unique(counted.length, return_inverse=True)
    depths, column = np.unique(counted.depth, return_inverse=True)
    cell, size = row * len(depths) + column, len(lengths) * len(depths)
    shape = (len(lengths), len(depths))
    n = np.bincount(cell, minlength=size).astype(np.float64).reshape(shape)
    total = np.bincount(cell, weights=counted.value, minlength=size).astype(np.float64).reshape(shape)
    return Surface(lengths, depths, n, total)


def with_depth(data: Observations) -> Observations:
    """The scored samples that have a depth, or all of them at depth 0.5 when no sample has any."""
    counted = data.counted()
    nowhere = np.isnan(counted.depth)
    if nowhere.all():
        return replace(counted, depth=np.full(len(counted), 0.5))
    return counted.take(~nowhere)


def fit(surface: Surface, shape: ShapeFamily) -> Fit:
    if shape == "constant":
        mean = _share(surface.total.sum(), surface.n.sum())
        return _made(surface, shape, np.full(surface.n.shape, mean), {"score": float(mean)})
    if shape == "step":
        return _step(surface)
    if shape in ("decay", "floor"):
        return _decay(surface, shape)
    if shape == "bump":
        return _bump(surface)
    if shape in ("ramp", "tilt"):
        return _ramp(surface, shape)
    if shape == "holes":
        return _holes(surface)
    return _window(surface, shape, surface.to_end if shape == "last" else surface.to_start)


def likelihood(total: FloatArray, n: FloatArray, share: FloatArray) -> FloatArray:
    """Log-likelihood of scores `total` out of `n` at a share, element by element."""
    return np.asarray(scipy.special.xlogy(total, share) + scipy.special.xlog1py(n - total, -share))


def _step(surface: Surface) -> Fit:
    total, n = np.cumsum(surface.total.sum(axis=1)), np.cumsum(surface.n.sum(axis=1))
    before, after = _share(total[:-1], n[:-1]), _share(total[-1] - total[:-1], n[-1] - n[:-1])
    profile = likelihood(total[:-1], n[:-1], before) + likelihood(total[-1] - total[:-1], n[-1] - n[:-1], after)
    # A rise is no cliff.
    profile = np.where(before > after, profile, -np.inf)
    if len(profile) == 0 or not np.isfinite(profile).any():
        return _made(surface, "step", np.full(surface.n.shape, _share(total[-1], n[-1])), {})
    at = int(np.argmax(profile))
    predicted = np.where(np.arange(len(surface.lengths)) <= at, before[at], after[at])[:, None]
    details = {"last_good": float(surface.lengths[at]), "before": float(before[at]), "after": float(after[at])}
    return replace(_made(surface, "step", predicted, details), places=len(profile), profile=profile)


def _window(surface: Surface, shape: ShapeFamily, distance: FloatArray) -> Fit:
    """Cells sorted by distance; every place between two distances is a possible edge of the window."""
    order = np.argsort(distance, axis=None, kind="stable")
    far = distance.ravel()[order]
    total, n = np.cumsum(surface.total.ravel()[order]), np.cumsum(surface.n.ravel()[order])
    edges = np.flatnonzero(np.diff(far) > 0)
    # An edge that leaves a cell or two on one side would fit any odd cell in a corner.
    least = max(3.0, 0.05 * len(far))
    edges = edges[(edges + 1 >= least) & (len(far) - edges - 1 >= least)]
    inside, outside = _share(total[edges], n[edges]), _share(total[-1] - total[edges], n[-1] - n[edges])
    score = likelihood(total[edges], n[edges], inside)
    score = score + likelihood(total[-1] - total[edges], n[-1] - n[edges], outside)
    score = np.where(inside > outside, score, -np.inf)
    if len(score) == 0 or not np.isfinite(score).any():
        return _made(surface, shape, np.full(surface.n.shape, _share(total[-1], n[-1])), {})
    at = int(np.argmax(score))
    edge = float(np.sqrt(max(far[edges[at]], 1.0) * far[edges[at] + 1]))
    details = {"window": edge, "inside": float(inside[at]), "outside": float(outside[at])}
    return replace(
        _made(surface, shape, np.where(distance < edge, inside[at], outside[at]), details), places=len(edges)
    )


@lru_cache(maxsize=8)
def _decay_grid(octaves: tuple[float, ...], floors: tuple[float, ...]) -> tuple[FloatArray, FloatArray]:
    """Parameters (ceiling, slope, middle, floor as a share of the ceiling) and the log2-length curves they give."""
    ceilings = (0.999, 0.98, 0.95, 0.9, 0.8, 0.65, 0.5, 0.35)
    slopes = np.exp(np.linspace(np.log(0.15), np.log(8.0), 18))
    middles = np.arange(octaves[0] - 3, octaves[-1] + 3.01, 0.2)
    parameters = np.array([(c, s, m, f) for c in ceilings for s in slopes for m in middles for f in floors])
    falls = parameters[:, 1, None] * (np.array(octaves)[None, :] - parameters[:, 2, None])
    left = parameters[:, 3, None] + (1 - parameters[:, 3, None]) * scipy.special.expit(-falls)
    return parameters, np.clip(parameters[:, 0, None] * left, _EDGE, 1 - _EDGE)


def _decay(surface: Surface, shape: ShapeFamily) -> Fit:
    parameters, curves = _decay_grid(tuple(surface.octaves.tolist()), FLOORS if shape == "floor" else (0.0,))
    total, n = surface.total.sum(axis=1), surface.n.sum(axis=1)
    score = np.log(curves) @ total + np.log1p(-curves) @ (n - total)
    at = int(np.argmax(score))
    ceiling, slope, middle, floor = parameters[at].tolist()
    details = {"ceiling": ceiling, "slope": slope, "middle": 2.0**middle, "octaves_90_to_10": float(np.log(81)) / slope}
    if shape == "floor":
        details["floor"] = ceiling * floor
    return _made(surface, shape, curves[at][:, None], details)


def gradual_likelihood(surface: Surface, least_octaves: float) -> float:
    """The log-likelihood of the best decay, to a floor or to nothing, that takes `least_octaves` or more from nine
    tenths to one tenth of its fall."""
    parameters, curves = _decay_grid(tuple(surface.octaves.tolist()), (0.0, *FLOORS))
    total, n = surface.total.sum(axis=1), surface.n.sum(axis=1)
    slow = np.log(81) / parameters[:, 1] >= least_octaves
    return float(np.max(np.log(curves[slow]) @ total + np.log1p(-curves[slow]) @ (n - total)))


def _bump(surface: Surface) -> Fit:
    octave = surface.octaves[:, None] - surface.octaves[0]
    middle = 1 - 4 * (surface.depths[None, :] - 0.5) ** 2
    predicted = _logistic(surface, [octave + 0 * middle, middle + 0 * octave, middle * octave])
    edges, inner = depth_bands(surface.depths)
    dip = float(np.mean(predicted[:, edges]) - np.mean(predicted[:, inner])) if edges.any() and inner.any() else 0.0
    return _made(surface, "bump", predicted, {"dip": dip})


def _ramp(surface: Surface, shape: ShapeFamily) -> Fit:
    octave, depth = surface.octaves[:, None] - surface.octaves[0], surface.depths[None, :] - 0.5
    columns = [depth + 0 * octave] if shape == "ramp" else [depth + 0 * octave, octave + 0 * depth]
    predicted = _logistic(surface, columns)
    first, last = float(predicted[:, 0].mean()), float(predicted[:, -1].mean())
    # Either way, and with or without length: otherwise chance would tilt every third map of one score.
    return replace(_made(surface, shape, predicted, {"at_start": first, "at_end": last}), places=6)


def _holes(surface: Surface) -> Fit:
    """The cells that lack most against all others, each with its own score: as many as BIC finds worth their price."""
    total, n = surface.total.ravel(), surface.n.ravel()
    samples, best, best_cost = float(n.sum()), None, np.inf
    holes: list[int] = []
    for _ in range(min(MOST_HOLES, len(n) - 1)):
        rest = np.setdiff1d(np.arange(len(n)), holes)
        level = _share(total[rest].sum(), n[rest].sum())
        lacking = likelihood(total, n, _share(total, n)) - likelihood(total, n, np.full(len(n), level))
        lower = np.where((total < n * level) & np.isin(np.arange(len(n)), rest), lacking, -np.inf)
        holes.append(int(np.argmax(lower)))
        rest = np.setdiff1d(rest, holes)
        predicted = np.where(
            np.isin(np.arange(len(n)), holes), _share(total, n), _share(total[rest].sum(), n[rest].sum())
        )
        # A hole costs its place among all cells and a score: both are in `places`, as the number of holes varies.
        places = (len(n) * samples**0.5) ** len(holes)
        fit = replace(_made(surface, "holes", predicted.reshape(surface.n.shape), {}), places=places)
        cost = 2 * np.log(places) - 2 * fit.log_likelihood
        if cost < best_cost:
            best, best_cost = fit, cost
    assert best is not None
    return best


def _logistic(surface: Surface, columns: list[FloatArray]) -> FloatArray:
    """Logistic regression by Newton's steps; a small ridge holds the weights where all scores are perfect."""
    design = np.stack([np.ones(surface.n.size), *(column.ravel() for column in columns)], axis=1)
    total, n = surface.total.ravel(), surface.n.ravel()
    ridge = np.diag([0.01, *([0.05] * len(columns))])
    weights = np.zeros(design.shape[1])
    for _ in range(25):
        share = scipy.special.expit(design @ weights)
        slope = design.T @ (total - n * share) - ridge @ weights
        curvature = design.T @ (design * (n * share * (1 - share))[:, None]) + ridge
        step = np.linalg.solve(curvature, slope)
        weights = weights + step * min(1.0, 4.0 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-6:
            break
    return np.asarray(np.clip(scipy.special.expit(design @ weights), _EDGE, 1 - _EDGE).reshape(surface.n.shape))


def depth_bands(depths: FloatArray) -> tuple[BoolArray, BoolArray]:
    """The depths that are edges, and those of the middle."""
    return (depths <= 0.1001) | (depths >= 0.8999), (depths >= 0.2999) & (depths <= 0.7001)


def _share(total: FloatArray, n: FloatArray) -> FloatArray:
    return np.clip(np.divide(total, np.maximum(n, 1e-12)), _EDGE, 1 - _EDGE)


def _made(surface: Surface, shape: ShapeFamily, predicted: FloatArray, details: Mapping[str, float]) -> Fit:
    score = float(likelihood(surface.total, surface.n, predicted).sum())
    return Fit(shape, score, np.broadcast_to(predicted, surface.n.shape), details)
