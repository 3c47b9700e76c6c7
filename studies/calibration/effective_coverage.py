"""Does the interval of effective length hold the true crossing? Planted cliffs, decays and U shapes."""

from __future__ import annotations

import altair as alt
import numpy as np
from findings import band, chart_of, save, two_colours
from scipy.special import expit, logit

import leadline.stats.effective as effective
from leadline.core.types import Reading
from leadline.stats.observations import FloatArray, Observations
from support.planted import DEPTHS, planted

SEED = 20240602
RUNS = 250
LINE = effective.RULER_THRESHOLD
OCTAVE = np.arange(8.0)[:, None]
DIPS = (1 - (2 * DEPTHS - 1) ** 2, np.sin(np.pi * DEPTHS), np.clip(1.6 * (1 - np.abs(2 * DEPTHS - 1)), 0, 1))
DESIGNS: tuple[tuple[Reading, int], ...] = (("fresh", 3), ("fresh", 5), ("fresh", 10), ("shared", 5), ("nested", 5))
KINDS = ("slow decay", "steep decay", "cliff", "U shape")


def surface(kind: str, rng: np.random.Generator) -> tuple[FloatArray, float]:
    """A score surface and the place, in octaves above the shortest length, where its mean crosses the line."""
    truth = float(rng.uniform(0.7, 6.3))
    if kind == "cliff":
        return np.where(truth >= OCTAVE, rng.uniform(0.93, 0.99), rng.uniform(0.0, 0.2)) * np.ones((1, 11)), truth
    if kind in ("slow decay", "steep decay"):
        low, high = (0.5, 2.0) if kind == "slow decay" else (2.0, 6.0)
        slope, top = np.exp(rng.uniform(np.log(low), np.log(high))), rng.uniform(0.95, 0.99)
        return top * expit(-slope * (OCTAVE - truth) + logit(LINE / top)) * np.ones((1, 11)), truth
    top, rate, start, dip = (
        rng.uniform(0.95, 0.99),
        rng.uniform(0.08, 0.25),
        rng.uniform(0.5, 4.0),
        DIPS[rng.integers(3)],
    )
    fine = np.linspace(0, 7, 7001)
    means = np.clip(top - rate * np.clip(fine - start, 0, None)[:, None] * dip[None, :], 0.02, 1).mean(axis=1)
    below = np.flatnonzero(means < LINE)
    crossing = float(fine[below[0]]) if len(below) else np.inf
    return np.clip(top - rate * np.clip(OCTAVE - start, 0, None) * dip[None, :], 0.02, 1), crossing


def holds(made: effective.EffectiveLength, truth: float) -> bool:
    low, high = np.log2(made.low / 4096), np.log2(made.high / 4096)
    return bool((made.low_open or low <= truth) and (made.high_open or truth <= high))


def measure(kind: str, reading: Reading, samples: int, rng: np.random.Generator) -> dict[str, str | float]:
    hits, without, widths, errors = [], [], [], []
    for run in range(RUNS):
        shape, truth = surface(kind, rng)
        data = planted(shape, samples, rng, reading=reading, correlation=0.0 if reading == "fresh" else 0.2)
        made = effective.effective_length(data, draws=1000, seed=run)
        hits.append(holds(made, truth))
        widths.append(float(np.log2(made.high / made.low)))
        errors.append(abs(float(np.log2(made.length / 4096)) - min(truth, 7.0)))
        if (reading, samples) == ("fresh", 5):
            without.append(holds(_without_the_gap(data, run), truth))
    row: dict[str, str | float] = {
        "kind": kind,
        "design": f"{reading}, {samples} samples",
        "coverage": round(float(np.mean(hits)), 4),
        "interval_octaves": round(float(np.mean(widths)), 2),
        "error_octaves": round(float(np.mean(errors)), 2),
    }
    return row | ({"interpolation_alone": round(float(np.mean(without)), 4)} if without else {})


def main() -> None:
    rng = np.random.default_rng(SEED)
    rows = [measure(kind, reading, samples, rng) for kind in KINDS for reading, samples in DESIGNS]

    def mean(picked: list[dict[str, str | float]]) -> float:
        return round(float(np.mean([float(r["coverage"]) for r in picked])), 4)

    found = {
        "overall": mean(rows),
        "by_kind": {kind: mean([r for r in rows if r["kind"] == kind]) for kind in KINDS},
        "runs_each": RUNS,
        "seed": SEED,
        "rows": rows,
    }
    save("effective_coverage", found, _chart(rows))


def _without_the_gap(data: Observations, seed: int) -> effective.EffectiveLength:
    """The same interval if interpolation between two lengths were taken as exact."""
    kept = effective.STEEP
    try:
        effective.STEEP = 1e9
        return effective.effective_length(data, draws=1000, seed=seed)
    finally:
        effective.STEEP = kept


def _chart(rows: list[dict[str, str | float]]) -> alt.LayerChart:
    exact = "interpolation taken as exact"
    points = []
    for row in rows:
        place = {"kind": row["kind"], "design": row["design"]}
        points.append({**place, "coverage": row["coverage"], "who": "Leadline"})
        if "interpolation_alone" in row:
            points.append({**place, "coverage": row["interpolation_alone"], "who": exact})
    title = "share of nominal 95 % intervals that hold the planted crossing"
    scale = alt.Scale(domain=[0, 1])
    marks = chart_of(points).mark_point(filled=True, size=70, opacity=1)
    marks = marks.encode(
        x=alt.X("coverage:Q", scale=scale, title=title),
        y=alt.Y("kind:N", sort=list(KINDS), title=None),
        yOffset=alt.YOffset("design:N", sort=[f"{r}, {s} samples" for r, s in DESIGNS]),
        color=two_colours("Leadline", exact),
    )
    heading = alt.TitleParams(
        "Effective length: does the interval hold the truth?",
        subtitle="one point a design, from the top: fresh 3, 5 and 10, shared 5, nested 5 samples",
    )
    chart: alt.LayerChart = band(0.92, 0.98, scale) + marks
    return chart.properties(width=420, height=260, title=heading)


if __name__ == "__main__":
    main()
