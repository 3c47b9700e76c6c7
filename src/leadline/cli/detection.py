"""`leadline plan --detect`: the chance that a grid detects a drop of a given size, and the samples that would detect
it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from leadline.console.output import echo
from leadline.core.errors import UsageError
from leadline.results.run import load_run
from leadline.run.plan import Plan
from leadline.stats.gate import parse_gate
from leadline.stats.power import (
    CAUSES,
    MOST_SAMPLES,
    POWER,
    Cause,
    CompareRates,
    GateRates,
    Grid,
    Noise,
    Sharing,
    compare_rates,
    fewest_samples,
    gate_rates,
    seen_noise,
    smallest_drop,
)

SHARED_HAYSTACKS: dict[str, Sharing] = {"fresh": "nothing", "shared": "length", "nested": "task"}
SEARCH_RUNS, STATED_RUNS = 500, 2000
"""Simulated comparisons: while looking for a number of samples, and behind a rate that is printed."""


def detection(plan: Plan, drop: float, noise_from: Path | None, gate: str) -> dict[str, Any]:
    """The rates at which this plan and larger ones detect a drop, and their false alarms between equal models."""
    noise = Noise()
    if noise_from is not None:
        noise = seen_noise(load_run(noise_from).table.requested)
    samples = max(plan.spec.samples, 2)
    common = frozenset(title for title, task in plan.tasks.items() if task.common_haystack)
    grid = Grid(plan.points, SHARED_HAYSTACKS[plan.spec.reading], common)

    def worse(count: int, size: float = drop, runs: int = SEARCH_RUNS, cause: Cause = "graded") -> CompareRates:
        return compare_rates(grid, count, size, replace(noise, cause=cause), runs=runs)

    def stated(count: int) -> list[float]:
        """The rates for both causes of correlated prompts, the lower first; one number where nothing is shared."""
        return sorted(worse(count, runs=STATED_RUNS, cause=cause).worse for cause in _causes(grid))

    needed = fewest_samples(lambda count: worse(count).worse)
    ours, theirs = stated(samples), None if needed is None else stated(needed)
    values: dict[str, Any] = {
        "drop": drop,
        "samples_a_cell": needed,
        "prompts": None if needed is None else needed * len(grid.points),
        "power": theirs and theirs[0],
        "power_range": theirs,
        "false_alarms": worse(needed or samples, 0.0, STATED_RUNS).any_difference,
        "tests": worse(samples).tests,
        "this_run": {
            "samples_a_cell": samples,
            "power": ours[0],
            "power_range": ours,
            "sees": smallest_drop(lambda size: worse(samples, size).worse),
        },
        "noise": noise.discordance,
        "discordance": sum(noise.chances(drop)),
        "correlation": noise.correlation if grid.shares else None,
        "from": str(noise_from) if noise_from else "no earlier run: assumed",
    }
    return values | ({"gate": _gate_detection(grid, samples, drop, noise, gate)} if gate else {})


def _gate_detection(grid: Grid, samples: int, drop: float, noise: Noise, gate: str) -> dict[str, Any]:
    clauses = parse_gate(gate)
    if all(clause.subject == "effective" for clause in clauses):
        raise UsageError("a gate on effective length alone cannot be planned", where="--gate", fix="add overall >= -2")

    def rates(count: int, size: float, runs: int = SEARCH_RUNS, cause: Cause = "graded") -> GateRates:
        return gate_rates(grid, count, size, replace(noise, cause=cause), clauses, runs=runs)

    equal, dropped = ([rates(samples, size, STATED_RUNS, cause) for cause in _causes(grid)] for size in (0.0, drop))
    return {
        "gate": gate,
        "equal_passed": sorted(r.passed for r in equal),
        "equal_failed": sorted(r.failed for r in equal),
        "drop_failed": sorted(r.failed for r in dropped),
        "drop_passed": sorted(r.passed for r in dropped),
        "samples_to_pass": fewest_samples(lambda count: rates(count, 0.0).passed),
        "samples_to_fail": fewest_samples(lambda count: rates(count, drop).failed),
        "left_out": list(equal[0].left_out),
    }


def _causes(grid: Grid) -> tuple[Cause, ...]:
    return CAUSES if grid.shares else CAUSES[:1]


def parse_points(text: str) -> float:
    """`5pt`, `5 points`, `5` or `0.05`: five points out of a hundred."""
    match = re.fullmatch(r"\s*(\d*\.?\d+)\s*(pts?|points?)?\s*", text)
    value = float(match[1]) if match else 0.0
    points = value / 100 if match and (match[2] or value >= 1) else value
    if not 0 < points <= 1:
        raise UsageError(f"{text!r} is not a drop in points", where="--detect", fix="write 5pt for five of a hundred")
    return points


def show_detection(values: dict[str, Any]) -> None:
    this, drop = values["this_run"], f"{100 * values['drop']:g} points"
    noise = f"{100 * values['noise']:.2g}% of the answers of equal models flip, and the drop comes on top"
    if values["correlation"] is not None:
        noise += f", differences over one haystack correlate by {values['correlation']:.2f}"
    if values["samples_a_cell"] is None:
        echo(f"detect  up to {MOST_SAMPLES:,} samples per cell do not detect a drop of {drop} reliably ({noise})")
    else:
        many = f"{values['samples_a_cell']:,} samples per cell ({values['prompts']:,} prompts in each run)"
        echo(
            f"detect  with {many} compare calls a drop of {drop} everywhere worse overall in "
            f"{_of_100(*values['power_range'])} comparisons ({noise})"
        )
    able = "no drop of up to 50 points" if this["sees"] is None else f"a drop of {100 * this['sees']:.1f} points"
    echo(
        f"        with the {this['samples_a_cell']:,} of this plan in {_of_100(*this['power_range'])}; it detects "
        f"{able} in {_of_100(POWER)}. Equal models are called different somewhere in {_of_100(values['false_alarms'])} "
        f"({values['tests']} tests, corrected)"
    )
    if values["correlation"] is not None:
        echo(
            "        the lower rate is for haystacks that all differ a little, the higher for some that are lost whole"
        )
    if "gate" in values:
        _show_gate(values["gate"], this["samples_a_cell"], drop)


def _show_gate(values: dict[str, Any], samples: int, drop: str) -> None:
    echo(
        f"gate    with the {samples:,} samples per cell of this plan equal models pass in "
        f"{_of_100(*values['equal_passed'])} and fail in {_of_100(*values['equal_failed'])}; a drop of {drop} fails in "
        f"{_of_100(*values['drop_failed'])} and passes in {_of_100(*values['drop_passed'])}; the rest is undecided"
    )
    wanted = (("pass equal models", "samples_to_pass"), (f"fail a drop of {drop}", "samples_to_fail"))
    for what, name in wanted:
        count = values[name]
        if count is None:
            echo(f"        up to {MOST_SAMPLES:,} samples per cell do not {what} in {_of_100(POWER)}")
        else:
            echo(f"        to {what} in {_of_100(POWER)} it takes {count:,} samples per cell")
    if values["left_out"]:
        echo(f"        not planned: {'; '.join(values['left_out'])}")


def _of_100(*shares: float) -> str:
    return " to ".join(dict.fromkeys(f"{100 * share:.0f}" for share in shares)) + " of 100"
