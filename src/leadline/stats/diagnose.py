"""The shape of a length x depth map, and the numbers that describe it.

Ten shapes are fitted to the counts and weighed by BIC: of two that explain the map equally well, the simpler one
wins. Shapes that mean the same get one label (a decay within one step of the grid is a cliff), and their weights are
added. BIC only compares shapes with one another, so the winner must also fit: if rows, columns or cells are further
from it than chance explains, the map is called irregular, and the lengths and depths that fall behind are named. The U
over depth also has its own test, by shuffling depths within each length. When no label carries 80 % of the weight the
map is called mixed. Where scores rise again at longer lengths no falling shape is named, and where a window in tokens
cannot be told from a slope over relative depth, the slope is. `leadline.results.verdict` turns findings into sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from leadline.core.errors import UsageError
from leadline.core.seeds import bulk_rng
from leadline.stats.effective import RULER_THRESHOLD, isotonic_decreasing
from leadline.stats.intervals import wilson
from leadline.stats.marginals import length_means
from leadline.stats.observations import FloatArray, Observations
from leadline.stats.surfaces import (
    MOST_HOLES,
    PARAMETERS,
    SHAPES,
    Fit,
    ShapeFamily,
    Surface,
    depth_bands,
    fit,
    gradual_likelihood,
    likelihood,
    surface_of,
    with_depth,
)

MapLabel = Literal[
    "healthy",
    "cliff",
    "smooth decay",
    "lost in the middle",
    "recency only",
    "primacy only",
    "rises with depth",
    "falls with depth",
    "noise",
    "mixed",
    "irregular",
]
VERSION = 4
"""Of the statistic. 2: a shape must fit before it is named, and a decay may end on a floor. 3: slopes over relative
depth and lost cells have shapes of their own, and falling shapes need a falling curve. 4: "no pattern" has to fit
better."""
FALLING: frozenset[MapLabel] = frozenset({"cliff", "smooth decay", "recency only", "primacy only"})
"""Shapes whose scores do not rise with length."""
RISE_ERROR = 0.002
"""The chance that a curve that falls is taken for one that rises again."""
WINDOWS: Mapping[MapLabel, MapLabel] = {"recency only": "rises with depth", "primacy only": "falls with depth"}
"""The label for a window in tokens that may as well be a slope over relative depth."""
HEALTHY = RULER_THRESHOLD
"""The score that every part of a map must reach to be called healthy."""
SURE = 0.8
"""The least share of the BIC weight for a single label."""
SLIGHT = 0.15
"""A shape whose best and worst cells differ by less is no pattern worth a name; smaller misfits are not looked at."""
PARTIAL = 0.3
"""A fall that keeps at least this score may be the beginning of a decay to a floor."""
GRADUAL_SHARE = 0.5
"""The weight given to a cliff that may be a gradual fall."""
MISFIT_ERROR = 0.002
"""The chance that a shape that fits is rejected."""
NO_PATTERN_ERROR = 0.01
"""The same for "no pattern": a checkerboard of three samples a cell is not chance."""
MISFIT_DRAWS = 2000


@dataclass(frozen=True, slots=True)
class MapFinding:
    """One thing seen on a map, with the numbers that its sentence is made from."""

    kind: MapLabel
    statistic: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`kind` is the first finding's. `weights` are the BIC weights of the shapes, which add up to one."""

    kind: MapLabel
    findings: tuple[MapFinding, ...]
    weights: Mapping[ShapeFamily, float]
    samples: int
    behind: tuple[tuple[int | None, float | None, float], ...] = ()
    """For an irregular map, the lengths and depths with lower scores than the rest, worst first, each with its
    score."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """The difference between scores at the ends of documents and in their middle, and its p-value."""

    difference: float
    p: float


def diagnose(data: Observations, *, permutations: int = 2000) -> Diagnosis:
    """Names the shape of a map."""
    surface = surface_of(data)
    if surface.n.sum() == 0:
        raise UsageError("no sample has a score", where="diagnosis")
    fits = {shape: fit(surface, shape) for shape in SHAPES if _possible(shape, surface)}
    design_effect = _design_effect(data)
    weights = _weights(fits, float(surface.n.sum()), design_effect)
    contrast = depth_contrast(surface, permutations)
    by_kind: dict[MapLabel, list[ShapeFamily]] = {}
    for shape in sorted(fits, key=lambda shape: -weights[shape]):
        by_kind.setdefault(_kind(fits[shape], surface, contrast), []).append(shape)
    share = {kind: sum(weights[shape] for shape in shapes) for kind, shapes in by_kind.items()}
    for window, slope in WINDOWS.items():
        if window in share and slope in share and _may_be_slope(fits, by_kind[window], by_kind[slope], design_effect):
            share[slope] += share.pop(window)
    ranked = sorted(share, key=lambda kind: -share[kind])
    if ranked[0] == "cliff" and "smooth decay" in share and _may_be_gradual(fits, surface, design_effect):
        ranked = ["cliff", "smooth decay", *(kind for kind in ranked[1:] if kind != "smooth decay")]
        share |= {"cliff": GRADUAL_SHARE, "smooth decay": 1 - GRADUAL_SHARE}
    rises = bool(FALLING & set(ranked[:2])) and _rises_again(surface, design_effect)
    fitting = [
        kind
        for kind in ranked[:2]
        if kind != "irregular"
        and not (rises and kind in FALLING)
        and _fits(fits[by_kind[kind][0]], surface, design_effect, NO_PATTERN_ERROR if kind == "noise" else MISFIT_ERROR)
    ]
    if not fitting or (ranked[0] not in fitting and share[ranked[0]] >= SURE) or (rises and ranked[0] in FALLING):
        seen = {"mean": float(surface.total.sum() / surface.n.sum())}
        behind = _lost_cells(fits, weights, surface) or _behind(surface, design_effect)
        return Diagnosis("irregular", (MapFinding("irregular", seen),), weights, int(surface.n.sum()), behind)
    findings = [
        _finding(kind, fits, by_kind[kind], share[kind], surface, contrast, design_effect) for kind in ranked[:2]
    ]
    findings = [_with_lowest_mean(f, data) if f.kind == "healthy" else f for f in findings]
    if share[ranked[0]] >= SURE:
        findings = findings[:1]
    else:
        findings.insert(0, _mixed(ranked, share))
    if contrast is not None and contrast.p < 0.01 and contrast.difference > 0.1 and not _about_depth(findings):
        findings.append(MapFinding("lost in the middle", {"contrast": contrast.difference, "p": contrast.p}))
    return Diagnosis(findings[0].kind, tuple(findings), weights, int(surface.n.sum()))


def depth_contrast(surface: Surface, permutations: int = 2000) -> Contrast | None:
    """Ends (depth up to 0.1 and from 0.9) less middle (0.3 to 0.7), with depths shuffled within each length.

    None when the grid has no ends or no middle.
    """
    edges, inner = depth_bands(surface.depths)
    rows = surface.n.min(axis=1) > 0
    if not (edges.any() and inner.any() and rows.any()):
        return None
    scores = surface.total[rows] / surface.n[rows]
    weight = edges / edges.sum() - inner / inner.sum()
    seen = float(np.mean(scores @ weight))
    rng = bulk_rng(0, "depth contrast")
    shuffled = rng.permuted(np.broadcast_to(scores, (permutations, *scores.shape)), axis=2)
    drawn = np.mean(shuffled @ weight, axis=1)
    return Contrast(seen, float((1 + np.sum(drawn >= seen - 1e-12)) / (permutations + 1)))


def _possible(shape: ShapeFamily, surface: Surface) -> bool:
    lengths, depths = surface.n.shape
    if shape in ("step", "decay"):
        return bool(lengths >= 2)
    if shape == "floor":
        return bool(lengths >= 4)
    if shape in ("last", "first"):
        return bool(depths >= 2)
    if shape == "holes":
        return bool(surface.n.size > 2 * MOST_HOLES)
    if shape == "tilt":
        return bool(lengths >= 2 and depths >= 3)
    return shape == "constant" or bool(depths >= 3)


def _design_effect(data: Observations) -> float:
    """The factor by which shared documents raise the variance of scores of lengths; 1 without shared documents."""
    return length_means(with_depth(data))[2].design_effect or 1.0


def _weights(fits: Mapping[ShapeFamily, Fit], samples: float, design_effect: float) -> dict[ShapeFamily, float]:
    """Schwarz 1978; the place of an edge is paid for by how many places were tried. Samples that share documents
    count for less."""
    effective = max(samples / design_effect, 2.0)
    bic = {
        shape: PARAMETERS[shape] * np.log(effective) + 2 * np.log(fit.places) - 2 * fit.log_likelihood / design_effect
        for shape, fit in fits.items()
    }
    best = min(bic.values())
    raw = {shape: float(np.exp(-(value - best) / 2)) for shape, value in bic.items()}
    whole = sum(raw.values())
    return {shape: value / whole for shape, value in raw.items()}


def _kind(fit: Fit, surface: Surface, contrast: Contrast | None) -> MapLabel:
    """The label of a fitted shape."""
    mean = float(surface.total.sum() / surface.n.sum())
    if float(fit.predicted.min()) >= HEALTHY:
        return "healthy"
    if fit.shape == "constant" or float(np.ptp(fit.predicted)) < SLIGHT:
        return "healthy" if mean >= HEALTHY else "noise"
    named: dict[ShapeFamily, MapLabel] = {"last": "recency only", "first": "primacy only", "holes": "irregular"}
    if fit.shape in named:
        return named[fit.shape]
    by_length = fit.predicted.mean(axis=1)
    if fit.shape in ("ramp", "tilt"):
        return _slope_kind(fit, float(by_length[-1] - by_length[0]))
    if fit.shape == "bump" and by_length[-1] - by_length[0] >= SLIGHT:
        return "irregular"  # a score that rises with length has no name
    if fit.shape == "bump" and fit.details["dip"] > 0 and contrast is not None and contrast.p < 0.05:
        return "lost in the middle"
    if fit.shape == "bump" and by_length[0] - by_length[-1] < SLIGHT:
        return "irregular"  # ends that score less than the middle
    if fit.shape == "step":
        return "cliff"
    step = float(np.median(np.diff(surface.octaves))) if len(surface.lengths) > 1 else 1.0
    steep = fit.shape in ("decay", "floor") and fit.details["octaves_90_to_10"] < step
    return "cliff" if steep else "smooth decay"


def _slope_kind(fit: Fit, change_with_length: float) -> MapLabel:
    change = fit.details["at_end"] - fit.details["at_start"]
    if change_with_length >= SLIGHT:
        return "irregular"
    if abs(change) < SLIGHT:
        return "smooth decay"
    return "rises with depth" if change > 0 else "falls with depth"


def _may_be_gradual(fits: Mapping[ShapeFamily, Fit], surface: Surface, design_effect: float) -> bool:
    """Whether a fall to part of the score may as well be a gradual one: it cannot be distinguished from a decay
    over two steps of the grid or more. BIC alone would name the simpler of the two."""
    step = fits["step"]
    if step.details.get("after", 0.0) < PARTIAL or len(surface.lengths) < 4:
        return False
    gradual = gradual_likelihood(surface, 2 * float(np.median(np.diff(surface.octaves))))
    return (step.log_likelihood - gradual) / design_effect < 1.92  # a 95 % likelihood interval


def _may_be_slope(
    fits: Mapping[ShapeFamily, Fit], windows: list[ShapeFamily], slopes: list[ShapeFamily], design_effect: float
) -> bool:
    """Whether a window in tokens explains the map hardly better than a slope over relative depth: by less than 20 to 1.
    That scores change with depth is true of both."""
    window, slope = (max(fits[shape].log_likelihood for shape in shapes) for shapes in (windows, slopes))
    return bool((window - slope) / design_effect < np.log(20))


def _rises_again(surface: Surface, design_effect: float) -> bool:
    """Whether scores by length are further from every falling curve than chance explains: a hole is no cliff."""
    n = surface.n.sum(axis=1)
    measured = n > 0
    n, total = n[measured], surface.total.sum(axis=1)[measured]

    def misfit(totals: FloatArray) -> FloatArray:
        """Twice the log-likelihood that the best falling curve lacks, one row a map."""
        scores = totals / n
        falling = np.clip(isotonic_decreasing(scores, n), 1e-9, 1 - 1e-9)
        best = likelihood(totals, np.broadcast_to(n, totals.shape), np.clip(scores, 1e-9, 1 - 1e-9))
        return np.asarray(2 * np.sum(best - likelihood(totals, np.broadcast_to(n, totals.shape), falling), axis=1))

    seen = float(misfit(total[None, :])[0]) / design_effect
    curve = np.clip(isotonic_decreasing((total / n)[None, :], n)[0], 0.005, 0.995)
    drawn = bulk_rng(0, "rises again").binomial(np.round(n).astype(np.int64), curve, size=(MISFIT_DRAWS, len(n)))
    return bool((1 + np.sum(misfit(drawn.astype(np.float64)) >= seen)) / (MISFIT_DRAWS + 1) <= RISE_ERROR)


def _fits(fit: Fit, surface: Surface, design_effect: float, error: float) -> bool:
    """Whether a shape explains rows, columns and cells of the map as well as it would a map of its own making. Misfits
    that are certain but small do not count."""
    n, expected = surface.n, np.clip(fit.predicted, 0.005, 0.995)

    def distances(total: FloatArray) -> FloatArray:
        """Squared standardised residuals, summed over rows, over columns and over cells (last axis)."""
        residual, variance = total - n * expected, n * expected * (1 - expected)
        sums = [
            np.sum(residual.sum(axis=axis) ** 2 / np.maximum(variance.sum(axis=axis), 1e-12), axis=-1)
            for axis in (-1, -2)
        ]
        cells = np.sum(residual**2 / np.maximum(variance, 1e-12) * (n > 0), axis=(-1, -2))
        return np.stack([*sums, cells], axis=-1)

    count = np.maximum(n, 1e-12)
    gap = np.where(n > 0, surface.total / count - expected, 0.0)
    noise = np.where(n > 0, expected * (1 - expected) / count, 0.0)
    by_row = np.abs((n * gap).sum(axis=1) / np.maximum(n.sum(axis=1), 1e-12)).max()
    by_column = np.abs((n * gap).sum(axis=0) / np.maximum(n.sum(axis=0), 1e-12)).max()
    beyond_noise = max(0.0, float(np.mean(gap**2 - design_effect * noise))) ** 0.5
    if max(by_row, by_column, beyond_noise) < SLIGHT:
        return True
    drawn = (
        bulk_rng(0, "misfit")
        .binomial(np.round(n).astype(np.int64), expected, size=(MISFIT_DRAWS, *n.shape))
        .astype(np.float64)
    )
    rarer = np.sum(distances(drawn) >= distances(surface.total) / design_effect, axis=0)
    return bool(3 * (1 + rarer.min()) / (MISFIT_DRAWS + 1) > error)


def _lost_cells(
    fits: Mapping[ShapeFamily, Fit], weights: Mapping[ShapeFamily, float], surface: Surface
) -> tuple[tuple[int | None, float | None, float], ...]:
    """The cells that are lost on a map that is good elsewhere, if that explains it best."""
    if max(weights, key=lambda shape: weights[shape]) != "holes":
        return ()
    predicted = fits["holes"].predicted
    lost = np.argwhere((predicted < predicted.max() - 0.5) & (predicted.max() >= HEALTHY))
    return tuple((int(surface.lengths[i]), float(surface.depths[j]), float(predicted[i, j])) for i, j in lost)


def _behind(surface: Surface, design_effect: float) -> tuple[tuple[int | None, float | None, float], ...]:
    """Up to four lengths or depths whose score is surely lower than that of all others together, the lowest first."""
    behind: list[tuple[int | None, float | None, float]] = []
    whole, everything = surface.total.sum(), surface.n.sum()
    for axis in (1, 0):
        totals, counts = surface.total.sum(axis=axis), surface.n.sum(axis=axis)
        for i in range(len(counts)):
            if counts[i] == 0 or len(counts) < 2:
                continue
            score, others = totals[i] / counts[i], (whole - totals[i]) / max(everything - counts[i], 1e-12)
            high = wilson(totals[i] / design_effect, counts[i] / design_effect, 0.99).high
            if high < others and others - score >= SLIGHT:
                position = (int(surface.lengths[i]), None) if axis == 1 else (None, float(surface.depths[i]))
                behind.append((*position, float(score)))
    return tuple(sorted(behind, key=lambda item: item[2])[:4])


def _finding(
    kind: MapLabel,
    fits: Mapping[ShapeFamily, Fit],
    shapes: list[ShapeFamily],
    weight: float,
    surface: Surface,
    contrast: Contrast | None,
    design_effect: float,
) -> MapFinding:
    """A label with its numbers, from the shape that describes it best."""
    seen = {"weight": round(weight, 4), "mean": float(surface.total.sum() / surface.n.sum())}
    best = fits[shapes[0]]
    if kind == "cliff":
        fall = _cliff(best, surface, design_effect) if best.shape == "step" else _steep(best, surface)
        return MapFinding(kind, seen | fall)
    seen |= best.details
    if kind == "smooth decay":
        by_length = best.predicted.mean(axis=1)
        seen |= {"from": float(by_length[0]), "to": float(by_length[-1])}
        seen |= {"shortest": float(surface.lengths[0]), "longest": float(surface.lengths[-1])}
    if kind == "noise" and best.shape != "constant":
        seen |= {"lowest": float(best.predicted.min()), "highest": float(best.predicted.max())}
    if kind == "lost in the middle":
        assert contrast is not None
        seen |= {"contrast": contrast.difference, "p": contrast.p}
    return MapFinding(kind, seen)


def _with_lowest_mean(finding: MapFinding, data: Observations) -> MapFinding:
    """A healthy map whose samples are too few to show that it is above the threshold says how low its mean may be.
    Where no answer varies, a document counts as one answer."""
    counted = with_depth(data)
    effect = length_means(counted)[2].design_effect or len(counted) / counted.documents
    low = wilson(float(counted.value.sum()) / effect, len(counted) / effect).low
    return finding if low >= HEALTHY else replace(finding, statistic={**finding.statistic, "may_be": low})


def _cliff(fit: Fit, surface: Surface, design_effect: float) -> dict[str, float]:
    assert fit.profile is not None
    # Every fall within 3.84 / 2 of the best log-likelihood: a 95 % profile interval, in whole lengths.
    close = np.flatnonzero(2 * (fit.profile.max() - fit.profile) / design_effect < 3.84)
    low, high = float(surface.lengths[close[0]]), float(surface.lengths[close[-1] + 1])
    before, after = fit.details["before"], fit.details["after"]
    may_be_decay = close[0] == len(surface.lengths) - 2 and after > before / 10
    return {**fit.details, "low": low, "high": high} | ({"may_be_decay": 1.0} if may_be_decay else {})


def _steep(fit: Fit, surface: Surface) -> dict[str, float]:
    """A decay within one step of the grid, reported as a fall between two lengths."""
    by_length = fit.predicted.mean(axis=1)
    at = int(np.argmin(np.diff(by_length)))
    low, high = float(surface.lengths[at]), float(surface.lengths[at + 1])
    return {"before": float(by_length[0]), "after": float(by_length[-1]), "low": low, "high": high}


def _mixed(ranked: list[MapLabel], share: Mapping[MapLabel, float]) -> MapFinding:
    first, second = ranked[:2]
    return MapFinding("mixed", {"first": share[first], "second": share[second]})


def _about_depth(findings: list[MapFinding]) -> bool:
    return any(f.kind in ("lost in the middle", *WINDOWS, *WINDOWS.values()) for f in findings)
