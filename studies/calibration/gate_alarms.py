"""How often does a gate cry wolf over two equal models, and how often does it see a wolf?

Equal models share a score surface. In half of the pairs three answers in ten are drawn anew, as between checkpoints of
one model; in the others all are, as between strangers. The bounds are zero, the hardest case for a gate: the truth lies
exactly on every bound.
"""

from __future__ import annotations

from collections.abc import Callable

import altair as alt
import numpy as np
from findings import BLUE, GREY, chart_of, save

from leadline.stats.compare import compare, pair
from leadline.stats.gate import check_gate, parse_gate
from leadline.stats.observations import FloatArray
from support.planted import ARCHETYPES, DEPTHS, archetype, candidate_of, planted

SEED = 20240604
PAIRS = 2000
LOSSES = 150
LOOKS = (2, 4, 8, 16)
COLUMNS = np.array([0, 2, 4, 6, 8, 10])
ON_THE_BOUND = parse_gate("overall >= 0; length:* >= 0; depth:* >= 0")
USUAL = parse_gate("overall >= -1; length:* >= -5; effective >= -10%")


def equal_models(rng: np.random.Generator) -> dict[str, float]:
    """Shares of 2,000 pairs of equal models that each way of judging calls different."""
    alarms = {
        "compare, any part, Holm": 0,
        "gate, one look": 0,
        "gate, four looks, anytime": 0,
        "gate, four looks, ordinary intervals": 0,
    }
    for run in range(PAIRS):
        surface = archetype(ARCHETYPES[run % len(ARCHETYPES)], rng)[:, COLUMNS]
        base = planted(surface, LOOKS[-1], rng, depths=DEPTHS[COLUMNS])
        candidate = candidate_of(base, surface, rng, redrawn=(0.3, 1.0)[run // len(ARCHETYPES) % 2])
        looks = [pair(base.take(base.sample < k), candidate) for k in LOOKS]
        made = compare(looks[1])
        alarms["compare, any part, Holm"] += any(d.verdict != "not significant" for d in made.differences)
        ordinary = [check_gate(pairs, ON_THE_BOUND).verdict == "fail" for pairs in looks]
        alarms["gate, one look"] += ordinary[1]
        alarms["gate, four looks, ordinary intervals"] += any(ordinary)
        alarms["gate, four looks, anytime"] += any(
            check_gate(pairs, ON_THE_BOUND, anytime=True).verdict == "fail" for pairs in looks
        )
    return {name: round(count / PAIRS, 4) for name, count in alarms.items()}


def lost(change: Callable[[FloatArray], FloatArray], rng: np.random.Generator) -> dict[str, float]:
    """Verdicts of the usual gate on a candidate that really lost something, at ten samples a cell."""
    verdicts = {"fail": 0, "undecided": 0, "pass": 0}
    for _ in range(LOSSES):
        surface = np.full((8, len(COLUMNS)), 0.95)
        base = planted(surface, 10, rng, depths=DEPTHS[COLUMNS])
        fresh = candidate_of(base, change(surface), rng, redrawn=1.0)
        kept = candidate_of(base, surface, rng, redrawn=0.1)
        # Where nothing was lost the answers stay the base's, but for a few.
        same = (change(surface) == surface)[
            np.unique(base.length, return_inverse=True)[1], np.unique(base.depth, return_inverse=True)[1]
        ]
        fresh.value[same] = kept.value[same]
        verdicts[check_gate(pair(base, fresh), USUAL).verdict] += 1
    return {name: round(count / LOSSES, 3) for name, count in verdicts.items()}


def longest_falls(surface: FloatArray) -> FloatArray:
    worse = surface.copy()
    worse[-1] -= 0.3
    return worse


def middle_falls(surface: FloatArray) -> FloatArray:
    worse = surface.copy()
    worse[:, 2:4] -= 0.25
    return worse


def main() -> None:
    rng = np.random.default_rng(SEED)
    alarms = equal_models(rng)
    losses = {
        "everything falls by 10 points": lost(lambda s: s - 0.1, rng),
        "the longest length falls by 30": lost(longest_falls, rng),
        "the middle depths fall by 25": lost(middle_falls, rng),
        "nothing is lost": lost(lambda s: s, rng),
    }
    found = {"false_alarms": alarms, "verdicts_on_losses": losses, "pairs": PAIRS, "losses_each": LOSSES, "seed": SEED}
    save("gate_alarms", found, _chart(alarms))


def _chart(alarms: dict[str, float]) -> alt.LayerChart:
    bars = [{"how": how, "share": share, "ours": "ordinary" not in how} for how, share in alarms.items()]
    base = chart_of(bars).encode(y=alt.Y("how:N", sort=None, title=None, axis=alt.Axis(labelLimit=300)))
    colour = alt.condition(alt.datum.ours, alt.value(BLUE), alt.value(GREY))
    marks = base.mark_bar(height=16).encode(
        x=alt.X("share:Q", axis=alt.Axis(format="%"), title="equal models called different"), color=colour
    )
    words = base.mark_text(align="left", dx=4).encode(x="share:Q", text=alt.Text("share:Q", format=".1%"))
    limit = chart_of([{}]).mark_rule(strokeDash=[4, 3]).encode(x=alt.datum(0.05))
    chart: alt.LayerChart = marks + words + limit
    return chart.properties(width=420, height=120, title=f"False alarms over {PAIRS:,} pairs of equal models")


if __name__ == "__main__":
    main()
