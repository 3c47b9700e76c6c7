"""Does the interval of effective length hold the truth? Falls, decays, means over tasks and flat curves.

No curve here is one that the statistic fits, and every answer goes through a record as `leadline run` writes it, with
the clusters of its reading mode. Documents differ: each has its own chance, from a beta distribution.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import msgspec
import numpy as np
from findings import band, chart_of, save
from scipy.special import betaincinv
from scipy.stats import norm

from leadline.core.records import Record, Score
from leadline.core.types import Cell, Reading
from leadline.stats.effective import RULER_THRESHOLD, EffectiveLength, effective_length
from leadline.stats.observations import FloatArray, observations
from support.planted_runs import planted_record

SEED = 20240602
RUNS = 120
LINE = RULER_THRESHOLD
LENGTHS = tuple(4096 * 2**i for i in range(8))
OCTAVES = np.arange(8.0)
DESIGNS: tuple[tuple[Reading, int, int, float], ...] = (
    ("fresh", 3, 5, 0.08), ("fresh", 10, 5, 0.08), ("fresh", 25, 3, 0.08), ("shared", 5, 5, 0.3), ("nested", 8, 5, 0.3),
)  # fmt: skip
"""Reading mode, samples, depths, and how much answers over one haystack or document are correlated."""
KINDS = (
    "cliff to 0", "cliff to .5", "cliff to .7", "cliff to .8", "steep decay", "shallow decay", "straight in tokens",
    "3 of 13 tasks fall", "flat, just above", "flat, just below",
)  # fmt: skip
TEMPLATE = planted_record(Cell("niah", 4096, 0.5, 0), 1.0)


def curve(kind: str, rng: np.random.Generator) -> tuple[FloatArray, float]:
    """Scores by task and length, and where their mean falls below the threshold, in octaves above the shortest
    length."""
    truth, top = float(rng.uniform(-0.5, 7.5)), float(rng.uniform(0.92, 1.0))
    scores = np.full((1, 8), top)
    if kind.startswith("cliff"):
        scores[:, truth < OCTAVES] = float(kind.split()[-1])
    elif kind.endswith("decay"):
        slope = rng.uniform(3, 12) if kind.startswith("steep") else rng.uniform(0.3, 1.5)
        scores[:] = top * norm.cdf(norm.ppf(LINE / top) - slope * (OCTAVES - truth) / 1.7)
    elif kind.startswith("straight"):
        end = 4096 * 2 ** rng.uniform(1, 9)
        scores[:] = np.clip(top * (1 - np.array(LENGTHS) / end), 0, 1)
        truth = float(np.log2(max(end * (1 - LINE / top), 1.0) / 4096))
    elif kind.startswith("3 of 13"):
        scores = np.full((13, 8), float(rng.uniform(0.93, 1.0)))
        scores[:3, truth < OCTAVES] = rng.uniform(0, 0.2)
    else:
        above = kind.endswith("above")
        scores[:] = LINE + (0.004 if above else -0.004)
        truth = np.inf if above else -np.inf
    return scores, truth


def records(scores: FloatArray, design: tuple[Reading, int, int, float], rng: np.random.Generator) -> Iterator[Record]:
    reading, samples, depths, correlation = design
    tasks = len(scores)
    depths = depths if tasks == 1 else 1
    spread = (1 - correlation) / correlation
    quantiles: dict[str, float] = {}
    for task in range(tasks):
        for row, length in enumerate(LENGTHS):
            chance = float(np.clip(scores[task, row], 1e-6, 1 - 1e-6))
            for sample in range(samples):
                cluster = f"{task}-{sample}" if reading == "nested" else f"{task}-{length}-{sample}"
                quantile = quantiles.setdefault(cluster, float(rng.random()))
                mine = float(betaincinv(chance * spread, (1 - chance) * spread, quantile))
                for column in range(depths):
                    cell = Cell(f"task{task}", length, column / max(depths - 1, 1), sample)
                    yield msgspec.structs.replace(
                        TEMPLATE,
                        cell=cell,
                        reading=reading,
                        cluster=cluster,
                        document=cell.key if reading == "fresh" else cluster,
                        scores={"match.all": Score(float(rng.random() < mine))},
                    )


def holds(made: EffectiveLength, truth: float) -> bool:
    low, high = np.log2(made.low / 4096), np.log2(made.high / 4096)
    return bool((made.low_open or low <= truth) and (made.high_open or truth <= high))


def measure(kind: str, design: tuple[Reading, int, int, float], rng: np.random.Generator) -> dict[str, Any]:
    hits, widths, rises = [], [], 0
    for _ in range(RUNS):
        scores, truth = curve(kind, rng)
        made = effective_length(observations(records(scores, design, rng)))
        hits.append(holds(made, truth))
        low = LENGTHS[0] / 2 if made.low_open else made.low
        widths.append(float(np.log2((2 * LENGTHS[-1] if made.high_open else made.high) / low)))
        rises += not made.falls
    return {
        "kind": kind,
        "design": f"{design[0]}, {design[1]} samples",
        "coverage": round(float(np.mean(hits)), 4),
        "interval_octaves": round(float(np.mean(widths)), 2),
        "said_to_rise": round(rises / RUNS, 4),
    }


def main() -> None:
    rng = np.random.default_rng(SEED)
    rows = [measure(kind, design, rng) for kind in KINDS for design in DESIGNS]
    found = {
        "overall": round(float(np.mean([r["coverage"] for r in rows])), 4),
        "least": min(rows, key=lambda r: float(r["coverage"])),
        "by_kind": {k: round(float(np.mean([r["coverage"] for r in rows if r["kind"] == k])), 4) for k in KINDS},
        "said_to_rise": round(float(np.mean([r["said_to_rise"] for r in rows])), 4),
        "runs_each": RUNS,
        "seed": SEED,
        "rows": rows,
    }
    save("effective_coverage", found, _chart(rows))


def _chart(rows: list[dict[str, Any]]) -> alt.LayerChart:
    scale = alt.Scale(domain=[0.5, 1])
    marks = chart_of(rows).mark_point(filled=True, size=70, opacity=1)
    marks = marks.encode(
        x=alt.X("coverage:Q", scale=scale, title="share of nominal 95 % intervals that hold the planted truth"),
        y=alt.Y("kind:N", sort=list(KINDS), title=None),
        yOffset=alt.YOffset("design:N", sort=[f"{r}, {s} samples" for r, s, _, _ in DESIGNS]),
    )
    heading = alt.TitleParams(
        "Effective length: does the interval hold the truth?",
        subtitle="one point a design, from the top: fresh 3, 10 and 25, shared 5, nested 8 samples",
    )
    chart: alt.LayerChart = band(0.92, 1.0, scale) + marks
    return chart.properties(width=420, height=420, title=heading)


if __name__ == "__main__":
    main()
