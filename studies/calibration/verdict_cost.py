"""What does a verdict cost? Sampling until effective length is known, against a fixed number of samples a cell.

RULER: the 43 complete rows of the published table as true scores of 13 tasks. Tasks differ in difficulty by fixed logit
offsets, chosen so that a round (one prompt a task) scatters by 0.075 where the mean is 0.856; several answers of one
prompt are correlated (0.4). Prompts are independent. Needle grid: `leadline run niah --until effective` itself, on
simulated models that are healthy, fall, or lie near the threshold.

A design is wrong when the length it names is not the largest one whose true mean, and that of all shorter ones,
reaches the threshold. Sequential designs may end undecided; to compare errors they are then made to name one all the
same.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import altair as alt
import numpy as np
from findings import BLUE, ORANGE, chart_of, save
from scipy.special import expit

from leadline.core.spec import make_spec
from leadline.run.measure import measure_spec
from leadline.stats.allocate import Design, rounds_after
from leadline.stats.observations import BoolArray, FloatArray, IntArray
from leadline.stats.sequential import LineStatus, is_futile, next_length, scatter_of, statuses

SEED = 20240605
RULER_RUNS, NEEDLE_RUNS = 100, 8
RULER_LINE = 0.856
NEEDLE_LENGTHS = "1k,2k,4k,8k"
NEEDLE_MODELS = {
    "healthy": "sim:perfect",
    "healthy, 2 % wrong": "sim:perfect?noise=0.02",
    "healthy, 5 % wrong": "sim:perfect?noise=0.05",
    "cliff at 3k": "sim:cliff?window=3k",
    "cliff at 6k": "sim:cliff?window=6k",
    "decay": "sim:decay",
    "lost in the middle": "sim:lost-in-the-middle",
}
TABLE = Path(__file__).parent / "ruler_table.csv"
ANSWERS = np.array([1, 1, 1, 1, 1, 1, 4, 4, 5, 10, 3, 1, 1])
OFFSETS = np.array([3.5, 3.0, 2.5, 2.0, 1.2, 0.6, 1.6, 1.8, 0.8, -0.6, 1.0, -1.3, -1.9])


@dataclass(frozen=True)
class Tally:
    """Sums over runs of one design."""

    tokens: float
    samples: float
    wrong: float
    wrong_and_sure: float
    undecided: float

    @classmethod
    def mean(cls, runs: Sequence[Tally]) -> Tally:
        return cls(*np.mean([(r.tokens, r.samples, r.wrong, r.wrong_and_sure, r.undecided) for r in runs], axis=0))


def ruler_rows() -> list[tuple[str, list[float]]]:
    with TABLE.open() as file:
        rows = [row for row in csv.DictReader(file) if row["128k"] not in ("", "-")]
    return [(row["model"], [float(row[k]) / 100 for k in ("4k", "8k", "16k", "32k", "64k", "128k")]) for row in rows]


def ruler_rounds(mean: float, runs: int, cap: int, rng: np.random.Generator) -> FloatArray:
    """Means of rounds of 13 tasks whose true scores average to `mean`."""
    low, high = -15.0, 15.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expit(OFFSETS + middle).mean() < mean else (low, middle)
    total = np.zeros((runs, cap))
    for share, answers in zip(expit(OFFSETS + low), ANSWERS, strict=True):
        if answers == 1:
            total += rng.random((runs, cap)) < share
        else:
            spread = (1 - 0.4) / 0.4
            hidden = rng.beta(max(share * spread, 1e-9), max((1 - share) * spread, 1e-9), size=(runs, cap))
            total += rng.binomial(answers, hidden) / answers
    return np.asarray(total / len(ANSWERS))


def looks(cells: int, cap: int) -> IntArray:
    design, at = Design((), cap=cap), [0]
    while at[-1] < cap:
        at.append(rounds_after(at[-1], cells, design))
    return np.array(at[1:])


def sequential(
    paths: list[FloatArray], lengths: IntArray, cells: int, line: float, truth: int, *, give_up: bool
) -> list[Tally]:
    """One tally a run. `paths` holds, for every length, the means of rounds (runs x cap)."""
    cap = paths[0].shape[1]
    at = looks(cells, cap) - 1
    signs = [statuses(path, cells, line)[:, at] for path in paths]
    stuck = [
        _hopeless(path, cells, line, cap)[:, at] if give_up else np.zeros_like(s, dtype=bool)
        for path, s in zip(paths, signs, strict=True)
    ]
    running = [(np.cumsum(path, axis=1) / np.arange(1, cap + 1))[:, at] for path in paths]
    cost = (lengths * cells).astype(float).tolist()
    tallies = []
    for run in range(len(paths[0])):
        standing: list[LineStatus] = ["open"] * len(lengths)
        capped, guess = [False] * len(lengths), [False] * len(lengths)
        tokens = samples = 0.0
        while (j := next_length(standing, capped, cost)) is not None:
            over = np.flatnonzero((signs[j][run] != 0) | stuck[j][run])
            look = int(over[0]) if len(over) else len(at) - 1
            sign = signs[j][run, look]
            if sign:
                standing[j] = "above" if sign > 0 else "below"
            else:
                capped[j], guess[j] = True, bool(running[j][run, look] >= line)
            tokens += float(at[look] + 1) * cost[j]
            samples += float(at[look] + 1) * cells
        tallies.append(_tally(standing, guess, truth, tokens, samples))
    return tallies


def _tally(standing: list[LineStatus], guess: list[bool], truth: int, tokens: float, samples: float) -> Tally:
    low = max((i for i, s in enumerate(standing) if s == "above"), default=-1)
    high = min((i for i, s in enumerate(standing) if s == "below"), default=len(standing))
    named = low + 1
    while named < high and guess[named]:
        named += 1
    sure_and_wrong = not low + 1 <= truth <= high
    return Tally(tokens, samples, float(named != truth), float(sure_and_wrong), float(high - low > 1))


def _hopeless(path: FloatArray, cells: int, line: float, cap: int) -> BoolArray:
    n = np.arange(1, path.shape[1] + 1)
    totals = np.cumsum(path, axis=1)
    scatter = scatter_of(totals, np.cumsum(path**2, axis=1), n, cells, line)
    return is_futile(totals / n, scatter, n, line, cap, 0.95)


def fixed(paths: list[FloatArray], lengths: IntArray, cells: int, line: float, truth: int, samples: int) -> list[Tally]:
    clears = np.stack([path[:, :samples].mean(axis=1) >= line for path in paths], axis=1)
    named = np.argmin(np.concatenate([clears, np.zeros((len(clears), 1), dtype=bool)], axis=1), axis=1)
    tokens, asked = float(samples * cells * lengths.sum()), float(samples * cells * len(lengths))
    return [Tally(tokens, asked, float(k != truth), 0.0, 0.0) for k in named]


def clearing(scores: Sequence[float], line: float) -> int:
    """How many lengths clear the threshold, from the shortest up, before the first that does not."""
    return next((i for i, score in enumerate(scores) if score < line), len(scores))


def ruler(rng: np.random.Generator) -> tuple[dict[str, Tally], list[dict[str, str | float]]]:
    lengths = 4096 * 2 ** np.arange(6)
    designs: dict[str, list[Tally]] = {}
    rows: list[dict[str, str | float]] = []
    for name, scores in ruler_rows():
        truth = clearing(scores, RULER_LINE)
        paths = [ruler_rounds(score, RULER_RUNS, 500, rng) for score in scores]
        made = {
            "fixed 500": fixed(paths, lengths, 13, RULER_LINE, truth, 500),
            "fixed 50": fixed(paths, lengths, 13, RULER_LINE, truth, 50),
            "until effective": sequential(paths, lengths, 13, RULER_LINE, truth, give_up=True),
            "until effective, to the cap": sequential(paths, lengths, 13, RULER_LINE, truth, give_up=False),
        }
        for design, tallies in made.items():
            designs.setdefault(design, []).extend(tallies)
        mean = {design: Tally.mean(tallies) for design, tallies in made.items()}
        rows.append({
            "model": name, "margin": round(min(abs(s - RULER_LINE) for s in scores), 4),
            "saving": round(mean["fixed 500"].tokens / mean["until effective"].tokens, 1),
            "saving_to_the_cap": round(mean["fixed 500"].tokens / mean["until effective, to the cap"].tokens, 1),
            "undecided": round(mean["until effective"].undecided, 3),
        })  # fmt: skip
    return {design: Tally.mean(tallies) for design, tallies in designs.items()}, rows


def needle() -> list[dict[str, str | float]]:
    """What the command spends, against 100 samples a cell of the same grid."""
    rows: list[dict[str, str | float]] = []
    for kind, model in NEEDLE_MODELS.items():
        for seed in range(NEEDLE_RUNS):
            with tempfile.TemporaryDirectory() as folder:
                spec = make_spec({
                    "model": f"{model}{'&' if '?' in model else '?'}seed={seed}", "seed": seed, "samples": 100,
                    "tasks": [{"name": "niah", "haystack": "noise"}], "lengths": NEEDLE_LENGTHS, "depths": 11,
                    "until": "effective",
                })  # fmt: skip
                ended = measure_spec(spec, Path(folder) / "run").rule
                assert ended is not None
                rows.append({
                    "kind": kind, "model": model, "saving": round(ended.step.saving, 1), "tokens": ended.step.spent,
                    "fixed_tokens": ended.step.fixed_cost, "outcome": ended.step.outcome, "found": ended.sentence,
                })  # fmt: skip
    return rows


def needle_table(rows: list[dict[str, str | float]]) -> dict[str, dict[str, float]]:
    """Ratios of totals, by kind of model and over all."""
    found = {}
    for kind in [*NEEDLE_MODELS, "all"]:
        mine = [row for row in rows if kind in ("all", row["kind"])]
        found[kind] = {
            "fewer_tokens": round(
                sum(float(r["fixed_tokens"]) for r in mine) / sum(float(r["tokens"]) for r in mine), 1
            ),
            "undecided": round(float(np.mean([r["outcome"] != "decided" for r in mine])), 3),
        }
    return found


def table(designs: dict[str, Tally], against: str) -> dict[str, dict[str, float]]:
    return {
        design: {
            "wrong": round(t.wrong, 4),
            "wrong_and_sure": round(t.wrong_and_sure, 4),
            "undecided": round(t.undecided, 4),
            "samples": round(t.samples),
            "million_tokens": round(t.tokens / 1e6, 1),
            "fewer_tokens": round(designs[against].tokens / t.tokens, 2),
        }
        for design, t in designs.items()
    }


def main() -> None:
    rng = np.random.default_rng(SEED)
    ruler_designs, ruler_by_row = ruler(rng)
    needle_rows = needle()
    close = [row for row in ruler_by_row if float(row["margin"]) <= 0.003]
    found = {
        "ruler": table(ruler_designs, "fixed 500"),
        "needle": needle_table(needle_rows),
        "on_the_line": {
            "models": [row["model"] for row in close],
            "undecided": round(float(np.mean([float(row["undecided"]) for row in close])), 3),
            "saving": [row["saving"] for row in close],
            "saving_to_the_cap": [row["saving_to_the_cap"] for row in close],
        },
        "needle_runs": needle_rows,
        "runs_each_row": RULER_RUNS,
        "seed": SEED,
        "ruler_by_row": ruler_by_row,
    }
    save("verdict_cost", found, _chart(ruler_by_row))


def _chart(rows: list[dict[str, str | float]]) -> alt.LayerChart:
    points = [{**row, "points": 100 * float(row["margin"]) + 0.05} for row in rows]
    across, up = alt.Scale(type="log", domain=[0.04, 40]), alt.Scale(type="log", domain=[1, 6000])

    def quiet(title: str, values: list[float]) -> alt.Axis:
        return alt.Axis(title=title, values=values, grid=False, format="~g")

    marks = chart_of(points).mark_point(filled=True, size=70, opacity=0.9)
    marks = marks.encode(
        x=alt.X("points:Q", scale=across, axis=quiet("nearest score to the threshold", [0.1, 0.3, 1, 3, 10, 30])),
        y=alt.Y("saving:Q", scale=up, axis=quiet("times fewer tokens than 500 samples a cell", [1, 8, 30, 100, 1000])),
        color=alt.Color(
            "undecided:Q", scale=alt.Scale(domain=[0, 1], range=[BLUE, ORANGE]), title="ends undecided",
            legend=alt.Legend(format="%"),
        ),
    )  # fmt: skip
    goal = chart_of([{}]).mark_rule(strokeDash=[4, 3]).encode(y=alt.Y(datum=8, scale=up))
    heading = alt.TitleParams(
        "A clear model is cheap, one on the threshold is not",
        subtitle="one point for each of RULER's 43 published rows",
    )
    chart: alt.LayerChart = marks + goal
    return chart.properties(width=460, height=300, title=heading)


if __name__ == "__main__":
    main()
