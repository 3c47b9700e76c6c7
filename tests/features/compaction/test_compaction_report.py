"""The section on compaction: lengths rise, and a compactor has one place and one colour in all tables and charts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from leadline.core.spec import make_spec
from leadline.features.compaction.report import compaction_results, compaction_section, retained_ticks
from leadline.report.charts.panels import CurvePanel, panel_figure
from leadline.report.charts.theme import SERIES
from leadline.report.text_table import TextTable
from leadline.results.run import Run, load_run
from leadline.run.measure import measure
from leadline.stats.intervals import Estimate, Interval

COMPACTORS = ["none", "compact:tail", "compact:drop-tools"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    tasks = [{"name": "compaction", "label": f"compaction[{name}]", "compactor": name} for name in COMPACTORS]
    spec = make_spec({"model": "sim:perfect", "tasks": tasks, "lengths": [1000, 2000], "depths": 2, "samples": 2})
    return load_run(measure(spec, tmp_path_factory.mktemp("runs") / "run").folder)


def test_lengths_rise_and_compactors_are_in_the_order_of_the_run(run: Run) -> None:
    for records in (list(run.records), list(run.records)[::-1]):
        results = compaction_results(records, run.manifest.tasks)
        expected = [(length, name) for length in (1000, 2000) for name in COMPACTORS]
        assert [(recall.length, recall.compactor) for recall in results.recalls] == expected
        assert list(results.by_age) == list(results.by_kind) == COMPACTORS
    section = compaction_section([run], ["x"])
    assert section is not None
    table = next(part for part in section.parts if isinstance(part, TextTable))
    assert [row[1] for row in table.rows] == ["1000"] * 3 + ["2000"] * 3


def test_a_compactor_has_one_colour_in_both_charts(run: Run) -> None:
    section = compaction_section([run], ["x"])
    assert section is not None
    [figure] = section.figures
    drawn = json.dumps(figure.draw(False).chart)
    scale = json.dumps({"domain": COMPACTORS, "range": list(SERIES[:3])})
    assert drawn.count(scale[1:-1]) >= 2


def test_as_much_retained_of_two_lengths_is_two_points(run: Run) -> None:
    same = [
        replace(recall, retained=300.0) for recall in compaction_results(list(run.records), run.manifest.tasks).recalls
    ]
    assert retained_ticks(same) == [f"300 of {length}" for length in (1000, 2000) for _ in COMPACTORS]
    assert retained_ticks(same[:3]) == ["300"] * 3


def test_a_compactor_measured_at_one_length_has_its_interval_as_a_bar() -> None:
    estimate = Estimate(0.0, Interval(0.0, 0.79, 0.95, ""), 1, 1)
    panel = CurvePanel(
        "recall", "tokens", ["90", "300"], {"a": {"90": estimate}, "b": {"90": estimate, "300": estimate}}
    )
    figure = panel_figure([panel], "", "", narrow=False)
    alone = {(row["series"], row["length"]): row["alone"] for row in figure.data["panel0"]}
    assert alone == {("a", "90"): True, ("b", "90"): False, ("b", "300"): False}
    assert '"filter": "datum.alone"' in json.dumps(figure.chart)
