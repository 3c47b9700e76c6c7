"""Is the shape of a map named right? Planted surfaces of each archetype, 8 x 11 cells x 5 samples,
and of maps that have none of the shapes on the list."""

from __future__ import annotations

from collections import Counter

import altair as alt
import numpy as np
from findings import BLUE, chart_of, save

from leadline.core.types import Reading
from leadline.stats.diagnose import diagnose
from support.planted import ARCHETYPES, OTHER_MAPS, archetype, planted

SEED = 20240603
SURFACES = 200
OTHER_SAMPLES = (1, 2, 3, 10)
OTHER_SURFACES = 60


def confusion(
    samples: int, surfaces: int, rng: np.random.Generator, reading: Reading = "fresh"
) -> dict[str, dict[str, float]]:
    """Of each planted kind, the share of surfaces given each name."""
    correlation = 0.0 if reading == "fresh" else 0.2
    found: dict[str, dict[str, float]] = {}
    for kind in ARCHETYPES:
        names: Counter[str] = Counter()
        for _ in range(surfaces):
            data = planted(archetype(kind, rng), samples, rng, reading=reading, correlation=correlation)
            names[diagnose(data, permutations=500).kind] += 1
        found[kind] = {name: round(count / surfaces, 4) for name, count in names.most_common()}
    return found


def confidently_wrong(samples: int, surfaces: int, rng: np.random.Generator) -> dict[str, float]:
    """Of maps that have no shape on the list, the share that is given one, and not `irregular` or `mixed`."""
    found = {}
    for name, surface in OTHER_MAPS.items():
        kinds = [diagnose(planted(surface, samples, rng), permutations=200).kind for _ in range(surfaces)]
        found[name] = round(sum(kind not in ("irregular", "mixed") for kind in kinds) / surfaces, 4)
    return found


def right(table: dict[str, dict[str, float]]) -> dict[str, float]:
    return {kind: names.get(kind, 0.0) for kind, names in table.items()}


def main() -> None:
    rng = np.random.default_rng(SEED)
    table = confusion(5, SURFACES, rng)
    means = {samples: _mean(confusion(samples, OTHER_SURFACES, rng)) for samples in OTHER_SAMPLES}
    readings: tuple[Reading, ...] = ("shared", "nested")
    clustered = {reading: right(confusion(5, OTHER_SURFACES, rng, reading)) for reading in readings}
    wrong = confidently_wrong(5, OTHER_SURFACES, rng)
    found = {
        "confidently_wrong_off_the_list": wrong,
        "confidently_wrong_off_the_list_mean": round(float(np.mean(list(wrong.values()))), 4),
        "named_right": right(table),
        "named_right_mean": _mean(table),
        "healthy_called_ill": round(1 - right(table)["healthy"], 4),
        "mean_by_samples": dict(sorted({**means, 5: _mean(table)}.items())),
        "named_right_from_shared_documents": clustered,
        "surfaces_each": SURFACES,
        "seed": SEED,
        "names_given": table,
    }
    save("diagnosis_rates", found, _chart(table))


def _mean(table: dict[str, dict[str, float]]) -> float:
    return round(float(np.mean(list(right(table).values()))), 4)


def _chart(table: dict[str, dict[str, float]]) -> alt.LayerChart:
    names = [*ARCHETYPES, "mixed", "irregular"]
    cells = [
        {"planted": kind, "named": name, "share": row.get(name, 0.0)} for kind, row in table.items() for name in names
    ]
    base = chart_of(cells).encode(
        x=alt.X("named:N", sort=names, title="named", axis=alt.Axis(labelAngle=-35)),
        y=alt.Y("planted:N", sort=list(ARCHETYPES), title="planted"),
    )
    colour = alt.Color("share:Q", scale=alt.Scale(domain=[0, 1], range=["#f6f8fa", BLUE]), legend=None)
    ink = alt.condition(alt.datum.share > 0.5, alt.value("white"), alt.value("#3b4855"))
    words = base.transform_filter(alt.datum.share > 0).mark_text(fontSize=11)
    words = words.encode(text=alt.Text("share:Q", format=".1%"), color=ink)
    title = "What each planted map was called, at five samples a cell"
    chart: alt.LayerChart = base.mark_rect().encode(color=colour) + words
    return chart.properties(width=460, height=280, title=title)


if __name__ == "__main__":
    main()
