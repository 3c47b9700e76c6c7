"""Do 95 % intervals hold the truth 95 times in a hundred? Cells and grids, with and without shared documents."""

from __future__ import annotations

from dataclasses import replace

import altair as alt
import numpy as np
from findings import band, chart_of, save, two_colours

from leadline.core.types import Reading
from leadline.stats.intervals import mean_interval, wilson
from leadline.stats.marginals import marginals
from support.planted import ARCHETYPES, DEPTHS, LENGTHS, archetype, planted

SEED = 20240601
CELLS = 1250
GRIDS = 35
LOST = 250
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


def lost_whole(rng: np.random.Generator) -> list[Row]:
    """A share of nested documents is lost whole, and of the others nearly all is right: over all runs, and where such
    a document was among those seen. A run without one cannot know, and the report says so."""
    rows: list[Row] = []
    for documents, share in (
        (5, 0.2),
        (8, 0.1),
        (12, 0.12),
        (20, 0.05),
        (20, 0.2),
        (40, 0.05),
        (60, 0.04),
        (100, 0.02),
    ):
        for right in (1.0, 0.97, 0.9):
            truth, held, seen, held_seen = (1 - share) * right, 0, 0, 0
            for _ in range(LOST):
                data = planted(
                    np.full((3, 4), right), documents, rng, reading="nested", lengths=LENGTHS[:3], depths=DEPTHS[::3]
                )
                names = np.unique(data.cluster)
                lost = np.isin(data.cluster, names[rng.random(len(names)) < share])
                data = replace(data, value=np.where(lost, 0.0, data.value))
                holds = marginals(data, ())[0].estimate.interval.holds(truth)
                held, seen, held_seen = held + holds, seen + bool(lost.any()), held_seen + (holds and bool(lost.any()))
            row = _row(
                "lost whole", f"{documents} documents, {100 * share:g} % lost, else {100 * right:g} %", held, LOST
            )
            rows.append(
                row | {"coverage_where_seen": round(held_seen / max(seen, 1), 4), "seen": round(seen / LOST, 4)}
            )
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
    lost = lost_whole(rng)
    found = {
        "overall": whole,
        "lost_whole": {
            "lowest": min(float(r["coverage"]) for r in lost),
            "lowest_where_seen": min(float(r["coverage_where_seen"]) for r in lost),
            "designs_below_92": sum(float(r["coverage"]) < 0.92 for r in lost),
            "by_design": lost,
        },
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
