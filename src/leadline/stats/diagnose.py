"""What is wrong with a length x depth map, in one sentence a finding, each with its statistic.

Six shapes are fitted to the counts and weighed by BIC: of two that explain the map alike, the simpler one wins.
Shapes that mean the same are named the same (a decay within one step of the grid is a cliff), and their weights are
added. The U over depth also gets a test of its own, by shuffling depths within each length. When no name carries
80 % of the weight the map is called mixed, and the two leading names are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from leadline.core.errors import UsageError
from leadline.core.format import format_tokens
from leadline.core.seeds import bulk_rng
from leadline.stats.effective import RULER_THRESHOLD
from leadline.stats.intervals import wilson
from leadline.stats.marginals import group_means
from leadline.stats.observations import Observations
from leadline.stats.surfaces import PARAMETERS, SHAPES, Fit, Shape, Surface, depth_bands, fit, placed, surface_of

Kind = Literal[
    "healthy", "cliff", "smooth decay", "lost in the middle", "recency only", "primacy only", "noise", "mixed"
]
SURE = 0.8
"""The share of the BIC weight from which one name is given."""
SLIGHT = 0.15
"""A shape whose best and worst cells differ by less is no pattern worth a name."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing seen on a map."""

    kind: Kind
    sentence: str
    statistic: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`kind` is the first finding's. `weights` are the BIC weights of the shapes, which add up to one."""

    kind: Kind
    findings: tuple[Finding, ...]
    weights: Mapping[Shape, float]
    samples: int


@dataclass(frozen=True, slots=True)
class Contrast:
    """How much higher the ends of the documents score than their middle, and the p of that by chance."""

    difference: float
    p: float


def diagnose(
    data: Observations, *, healthy: float = RULER_THRESHOLD, permutations: int = 2000, seed: int = 0
) -> Diagnosis:
    """Names the shape of a map. `healthy` is the score that every part of it must reach to be called so."""
    surface = surface_of(data)
    if surface.n.sum() == 0:
        raise UsageError("no sample has a score", where="diagnosis")
    fits = {shape: fit(surface, shape) for shape in SHAPES if _possible(shape, surface)}
    design_effect = _design_effect(data)
    weights = _weights(fits, float(surface.n.sum()), design_effect)
    contrast = depth_contrast(surface, permutations=permutations, seed=seed)
    by_kind: dict[Kind, list[Shape]] = {}
    for shape in sorted(fits, key=lambda shape: -weights[shape]):
        by_kind.setdefault(_kind(fits[shape], surface, contrast, healthy), []).append(shape)
    share = {kind: sum(weights[shape] for shape in shapes) for kind, shapes in by_kind.items()}
    ranked = sorted(share, key=lambda kind: -share[kind])
    findings = [_finding(kind, fits, by_kind[kind], share[kind], surface, contrast) for kind in ranked[:2]]
    findings = [_modest(f, surface, design_effect, healthy) if f.kind == "healthy" else f for f in findings]
    if share[ranked[0]] >= SURE:
        findings = findings[:1]
    else:
        findings.insert(0, _mixed(ranked, share))
    if contrast is not None and contrast.p < 0.01 and contrast.difference > 0.1 and not _about_depth(findings):
        findings.append(_u_finding(contrast))
    return Diagnosis(findings[0].kind, tuple(findings), weights, int(surface.n.sum()))


def depth_contrast(surface: Surface, *, permutations: int = 2000, seed: int = 0) -> Contrast | None:
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
    rng = bulk_rng(seed, "depth contrast")
    shuffled = rng.permuted(np.broadcast_to(scores, (permutations, *scores.shape)), axis=2)
    drawn = np.mean(shuffled @ weight, axis=1)
    return Contrast(seen, float((1 + np.sum(drawn >= seen - 1e-12)) / (permutations + 1)))


def _possible(shape: Shape, surface: Surface) -> bool:
    lengths, depths = surface.n.shape
    if shape in ("step", "decay"):
        return bool(lengths >= 2)
    if shape in ("last", "first"):
        return bool(depths >= 2)
    return shape == "constant" or bool(depths >= 3)


def _design_effect(data: Observations) -> float:
    """How much more the scores of lengths vary because samples share documents; 1 when none do."""
    counted = placed(data)
    lengths, code = np.unique(counted.length, return_inverse=True)
    groups = group_means(counted, code.astype(np.int64), len(lengths))
    rows = float(groups.row_variances.sum())
    return max(1.0, float(groups.variances.sum()) / rows) if rows > 0 else 1.0


def _weights(fits: Mapping[Shape, Fit], samples: float, design_effect: float) -> dict[Shape, float]:
    """Schwarz 1978; the place of an edge is paid for by how many places were tried. Samples that share documents
    count for less."""
    effective = max(samples / design_effect, 2.0)
    bic = {
        shape: PARAMETERS[shape] * np.log(effective)
        + 2 * np.log(found.places)
        - 2 * found.log_likelihood / design_effect
        for shape, found in fits.items()
    }
    best = min(bic.values())
    raw = {shape: float(np.exp(-(value - best) / 2)) for shape, value in bic.items()}
    whole = sum(raw.values())
    return {shape: value / whole for shape, value in raw.items()}


def _kind(found: Fit, surface: Surface, contrast: Contrast | None, healthy: float) -> Kind:
    """What a fitted shape means."""
    mean = float(surface.total.sum() / surface.n.sum())
    if float(found.predicted.min()) >= healthy:
        return "healthy"
    if found.shape == "constant" or float(np.ptp(found.predicted)) < SLIGHT:
        return "healthy" if mean >= healthy else "noise"
    if found.shape == "last":
        return "recency only"
    if found.shape == "first":
        return "primacy only"
    if found.shape == "bump" and found.details["dip"] > 0 and contrast is not None and contrast.p < 0.05:
        return "lost in the middle"
    if found.shape == "step":
        return "cliff"
    step = float(np.median(np.diff(surface.octaves))) if len(surface.lengths) > 1 else 1.0
    return "cliff" if found.shape == "decay" and found.details["octaves_90_to_10"] < step else "smooth decay"


def _finding(
    kind: Kind,
    fits: Mapping[Shape, Fit],
    shapes: list[Shape],
    weight: float,
    surface: Surface,
    contrast: Contrast | None,
) -> Finding:
    """The sentence of a kind, from the shape that says it best."""
    mean = 100 * float(surface.total.sum() / surface.n.sum())
    seen = {"weight": round(weight, 4), **fits[shapes[0]].details}
    if kind == "healthy":
        return Finding(kind, f"healthy: {mean:.0f} everywhere, no length or depth falls behind", seen)
    if kind == "noise" and shapes[0] != "constant":
        low, high = (100 * float(end) for end in (fits[shapes[0]].predicted.min(), fits[shapes[0]].predicted.max()))
        return Finding(kind, f"no marked pattern: about {mean:.0f} over all, between {low:.0f} and {high:.0f}", seen)
    if kind == "noise":
        how = "right or wrong by chance" if mean >= 5 else "it fails nearly everywhere"
        return Finding(kind, f"no pattern: about {mean:.0f} at every length and depth, {how}", seen)
    if kind == "cliff":
        return _cliff(fits["step"], surface, weight)
    if kind == "smooth decay":
        return _decay(fits["decay"], weight)
    if kind == "lost in the middle":
        assert contrast is not None
        numbers = {**seen, "contrast": contrast.difference, "p": contrast.p}
        ends = f"the ends score {100 * contrast.difference:.0f} more than the middle"
        return Finding(kind, f"lost in the middle: {ends}, p = {contrast.p:.2g} (weight {weight:.2f})", numbers)
    side = "end" if kind == "recency only" else "start"
    inside = f"{100 * seen['inside']:.0f} within {format_tokens(seen['window'])} tokens of the {side}"
    return Finding(kind, f"{kind}: {inside}, {100 * seen['outside']:.0f} beyond (weight {weight:.2f})", seen)


def _modest(found: Finding, surface: Surface, design_effect: float, healthy: float) -> Finding:
    """A healthy map, and what else it may be where its samples are too few to say that it is above the line."""
    samples = float(surface.n.sum())
    low = wilson(float(surface.total.sum()) / design_effect, samples / design_effect).low
    if low >= healthy:
        return found
    return replace(found, sentence=f"{found.sentence}; but {samples:.0f} samples leave room down to {100 * low:.0f}")


def _cliff(found: Fit, surface: Surface, weight: float) -> Finding:
    assert found.profile is not None
    # Every fall within 3.84 / 2 of the best log-likelihood: a 95 % profile interval, in whole lengths.
    close = np.flatnonzero(2 * (found.profile.max() - found.profile) < 3.84)
    low, high = int(surface.lengths[close[0]]), int(surface.lengths[close[-1] + 1])
    before, after = 100 * found.details["before"], 100 * found.details["after"]
    sentence = (
        f"cliff: {before:.0f} before and {after:.0f} after a fall between {format_tokens(low)} and "
        f"{format_tokens(high)} "
        f"(95 %; weight {weight:.2f})"
    )
    if close[0] == len(surface.lengths) - 2 and after > before / 10:
        sentence += "; longer lengths would tell it from a decay that begins there"
    return Finding(
        "cliff", sentence, {"weight": round(weight, 4), **found.details, "low": float(low), "high": float(high)}
    )


def _decay(found: Fit, weight: float) -> Finding:
    sentence = (
        f"smooth decay: the score halves at {format_tokens(found.details['middle'])} and takes "
        f"{found.details['octaves_90_to_10']:.1f} doublings of length to fall from nine tenths to one tenth "
        f"(weight {weight:.2f})"
    )
    return Finding("smooth decay", sentence, {"weight": round(weight, 4), **found.details})


def _mixed(ranked: list[Kind], share: Mapping[Kind, float]) -> Finding:
    first, second = ranked[:2]
    sentence = f"mixed: {first} (weight {share[first]:.2f}) or {second} ({share[second]:.2f}); more samples would tell"
    return Finding("mixed", sentence, {"first": share[first], "second": share[second]})


def _about_depth(findings: list[Finding]) -> bool:
    return any(f.kind in ("lost in the middle", "recency only", "primacy only") for f in findings)


def _u_finding(contrast: Contrast) -> Finding:
    sentence = (
        f"the ends of documents score {100 * contrast.difference:.0f} more than their middle (p = {contrast.p:.2g})"
    )
    return Finding("lost in the middle", sentence, {"contrast": contrast.difference, "p": contrast.p})
