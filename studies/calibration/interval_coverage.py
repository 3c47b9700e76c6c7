"""Do 95 % intervals hold the truth 95 times in a hundred? Cells and grids, with and without shared documents."""

from __future__ import annotations

import altair as alt
import numpy as np
from findings import band, chart_of, save, two_colours

from leadline.core.types import Reading
from leadline.stats.intervals import mean_interval, wilson
from leadline.stats.marginals import marginals
from support.planted import ARCHETYPES, archetype, planted

SEED = 20240601
CELLS = 1250
GRIDS = 35
DESIGNS: tuple[tuple[Reading, int], ...] = (
    ("fresh", 3), ("fresh", 10), ("shared", 5), ("shared", 10), ("nested", 5), ("nested", 10),
)  # fmt: skip
Row = dict[str, str | float | int]


def binary_cells(rng: np.random.Generator) -> list[Row]:
    """Independent yes/no answers: Wilson, against the textbook's normal interval."""
    rows: list[Row] = []
    for n in (3, 5, 10, 25):
        held = naive = 0
        for _ in range(CELLS):
            truth = rng.uniform(0.02, 0.98)
            values = (rng.random(n) < truth).astype(float)
            held += mean_interval(values.tolist(), [str(i) for i in range(n)]).interval.holds(truth)
            mean = values.mean()
            naive += abs(mean - truth) <= 1.96 * np.sqrt(mean * (1 - mean) / n)
        rows.append(_row("cells, yes/no", f"{n} samples", held, CELLS, naive, "normal interval"))
    return rows


def fractional_cells(rng: np.random.Generator) -> list[Row]:
    """Four facts a prompt, correlated: the prompt is the unit, against counting every fact."""
    rows: list[Row] = []
    for n in (5, 10, 25):
        held = naive = 0
        for _ in range(CELLS):
            truth = rng.uniform(0.3, 0.97)
            values = rng.binomial(4, _shares(truth, 0.4, n, rng)) / 4
            held += mean_interval(values.tolist(), [str(i) for i in range(n)]).interval.holds(truth)
            naive += wilson(values.sum() * 4, 4 * n).holds(truth)
        rows.append(_row("cells, recall of four facts", f"{n} prompts", held, CELLS, naive, "every fact counted"))
    return rows


def shared_cells(rng: np.random.Generator) -> list[Row]:
    """Several probes a document: by document, against taking probes as independent."""
    rows: list[Row] = []
    for documents, probes in ((5, 11), (10, 11), (30, 11)):
        held = naive = 0
        for _ in range(CELLS):
            truth = rng.uniform(0.3, 0.97)
            values = (rng.random((documents, probes)) < _shares(truth, 0.2, documents, rng)[:, None]).astype(float)
            names = [str(d) for d in range(documents) for _ in range(probes)]
            held += mean_interval(values.ravel().tolist(), names).interval.holds(truth)
            naive += wilson(values.sum(), values.size).holds(truth)
        rows.append(_row("cells, shared documents", f"{documents} documents", held, CELLS, naive, "documents ignored"))
    return rows


def grids(rng: np.random.Generator) -> list[Row]:
    """Means over parts of 8 x 11 maps of every archetype, by length, by depth and over everything."""
    rows: list[Row] = []
    for reading, samples in DESIGNS:
        held: dict[str, list[bool]] = {"by length": [], "by depth": [], "overall": []}
        naive: list[bool] = []
        for kind in ARCHETYPES * GRIDS:
            surface = archetype(kind, rng)
            data = planted(surface, samples, rng, reading=reading, correlation=0.0 if reading == "fresh" else 0.2)
            lengths, depths, everything = (
                [m.estimate.interval for m in marginals(data, by)] for by in (("length",), ("depth",), ())
            )
            held["by length"] += [i.holds(t) for i, t in zip(lengths, surface.mean(axis=1), strict=True)]
            held["by depth"] += [i.holds(t) for i, t in zip(depths, surface.mean(axis=0), strict=True)]
            held["overall"].append(everything[0].holds(surface.mean()))
            totals = data.value.reshape(8, -1).sum(axis=1)
            naive += [wilson(s, 11 * samples).holds(t) for s, t in zip(totals, surface.mean(axis=1), strict=True)]
        for name, hits in held.items():
            row = _row(f"grids, {reading}", f"{samples} samples, {name}", sum(hits), len(hits))
            if name == "by length":
                row |= {"naive": round(float(np.mean(naive)), 4), "naive_is": "documents ignored"}
            rows.append(row)
    return rows


def _shares(truth: float, correlation: float, count: int, rng: np.random.Generator) -> np.ndarray:
    spread = (1 - correlation) / correlation
    return rng.beta(truth * spread, (1 - truth) * spread, size=count)


def _row(group: str, name: str, held: int, runs: int, naive: int | None = None, naive_is: str = "") -> Row:
    row: Row = {"group": group, "name": name, "coverage": round(held / runs, 4), "intervals": runs}
    return row if naive is None else row | {"naive": round(naive / runs, 4), "naive_is": naive_is}


def main() -> None:
    rng = np.random.default_rng(SEED)
    rows = [*binary_cells(rng), *fractional_cells(rng), *shared_cells(rng), *grids(rng)]
    shared = [r for r in rows if "shared" in str(r["group"]) or "nested" in str(r["group"])]
    whole: dict[str, float] = {}
    for name, picked in (("independent samples", [r for r in rows if r not in shared]), ("shared documents", shared)):
        n = sum(float(r["intervals"]) for r in picked)
        whole[name] = round(sum(float(r["coverage"]) * float(r["intervals"]) for r in picked) / n, 4)
        whole[f"{name}, intervals"] = int(n)
    coverage = [float(r["coverage"]) for r in rows]
    found = {
        "overall": whole,
        "designs": len(rows),
        "designs_from_93_to_97": sum(0.93 <= c <= 0.97 for c in coverage),
        "lowest": min(coverage),
        "highest": max(coverage),
        "seed": SEED,
        "by_design": rows,
    }
    save("interval_coverage", found, _chart(rows))


def _chart(rows: list[Row]) -> alt.LayerChart:
    naive = "naive (at the edge: 0.6 or less)"
    points = []
    for row in rows:
        label = f"{row['group']}: {row['name']}"
        points.append({"label": label, "coverage": row["coverage"], "who": "Leadline"})
        if "naive" in row:
            points.append({"label": label, "coverage": max(0.6, float(row["naive"])), "who": naive})
    title = "share of nominal 95 % intervals that hold the truth"
    scale = alt.Scale(domain=[0.6, 1.0], zero=False)
    marks = chart_of(points).mark_point(filled=True, size=60, opacity=1)
    marks = marks.encode(
        x=alt.X("coverage:Q", scale=scale, title=title),
        y=alt.Y("label:N", sort=None, title=None, axis=alt.Axis(labelLimit=320)),
        color=two_colours("Leadline", naive),
    )
    chart: alt.LayerChart = band(0.93, 0.97, scale) + marks
    return chart.properties(width=420, height=15 * len(rows), title="Intervals that hold what they promise")


if __name__ == "__main__":
    main()
