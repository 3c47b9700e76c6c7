"""The table: nothing leaves the count, and no mean is made up."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from leadline.core.records import Record, Score
from leadline.core.types import Cell
from leadline.report.terminal import footnotes
from leadline.results.run import format_model, load_run
from leadline.results.summary import summary
from leadline.results.table import GridPoint, planned_points, scorer_gaps, tabulate
from leadline.results.verdict import verdict
from leadline.stats.intervals import wilson
from support.planted_runs import cliff, failed_record, planted_record, planted_records, write_run

PLAN = planned_points(["niah"], [1024, 2048], [0.0, 1.0], 3, depthless=[])


def test_every_planned_sample_is_done_failed_or_missing() -> None:
    right = [planted_record(Cell("niah", 1024, 0.0, i), 1.0) for i in range(2)]
    table = tabulate([*right, failed_record(Cell("niah", 1024, 0.0, 2))], PLAN)
    tally = table.cells[GridPoint("niah", 1024, 0.0)]
    assert (tally.planned, tally.done, tally.failed, tally.missing) == (3, 2, 1, 0)
    whole = table.whole
    assert (whole.planned, whole.done, whole.failed, whole.missing) == (12, 2, 1, 9)


def test_a_failed_sample_is_in_no_mean_and_its_weight_is_said() -> None:
    records = [planted_record(Cell("niah", 1024, 0.0, i), 1.0) for i in range(2)]
    table = tabulate([*records, failed_record(Cell("niah", 1024, 0.0, 2))], PLAN)
    tally = table.cells[GridPoint("niah", 1024, 0.0)]
    assert tally.mean == 1.0
    assert tally.if_failed_wrong == pytest.approx(2 / 3)
    assert tally.classes == {"correct": 2, "error": 1}


def test_a_cell_that_was_never_asked_has_no_mean_rather_than_zero() -> None:
    table = tabulate([planted_record(Cell("niah", 1024, 0.0, 0), 0.0)], PLAN)
    assert table.cells[GridPoint("niah", 1024, 0.0)].mean == 0.0
    empty = table.cells[GridPoint("niah", 2048, 1.0)]
    assert (empty.mean, empty.interval, empty.planned) == (None, None, 3)


def test_a_fact_more_than_half_a_row_away_is_counted_where_it_is() -> None:
    plan = planned_points(["niah"], [1024], [0.0, 0.5, 1.0], 2, depthless=[])
    records = [planted_record(Cell("niah", 1024, depth, i), 1.0) for depth in (0.0, 0.5, 1.0) for i in range(2)]
    [fact] = records[2].facts
    near, far = msgspec.structs.replace(fact, depth=0.7), msgspec.structs.replace(fact, depth=0.8)
    records[2] = msgspec.structs.replace(records[2], facts=(near,))
    assert tabulate(records, plan).regridded == 0
    wrong = planted_record(Cell("niah", 1024, 0.5, 0), 0.0)
    records[2] = msgspec.structs.replace(wrong, facts=(far,))
    table = tabulate(records, plan)
    deepest, middle = table.cells[GridPoint("niah", 1024, 1.0)], table.cells[GridPoint("niah", 1024, 0.5)]
    assert table.regridded == 1
    assert (deepest.planned, deepest.done) == (3, 3)
    assert deepest.mean == pytest.approx(2 / 3)
    assert (middle.planned, middle.done, middle.missing, middle.mean) == (1, 1, 0, 1.0)
    assert table.whole.planned == table.whole.done == 6


def test_a_run_without_a_record_is_a_table_all_the_same() -> None:
    table = tabulate([], PLAN)
    assert table.whole.planned == 12
    assert table.whole.mean is None
    assert all(t.mean is None for t in table.cells.values())


def test_a_cell_of_yes_and_no_has_wilsons_interval() -> None:
    records = [planted_record(Cell("niah", 1024, 0.0, i), float(i < 2)) for i in range(3)]
    tally = tabulate(records, PLAN).cells[GridPoint("niah", 1024, 0.0)]
    expected = wilson(2, 3)
    assert tally.interval is not None
    assert (tally.interval.low, tally.interval.high) == pytest.approx((expected.low, expected.high))


def test_samples_that_share_documents_have_a_wider_pooled_interval() -> None:
    def width(reading: str) -> float:
        records = planted_records(lambda n, d: 0.5, lengths=[1024], samples=6, reading=reading)  # type: ignore[arg-type]
        # One draw for a whole document: its depths are all right or all wrong.
        linked = [
            msgspec.structs.replace(r, scores={"m": msgspec.structs.replace(s, value=float(r.cell.sample % 2))})
            for r in records
            for s in r.scores.values()
        ]
        depths = sorted({r.cell.depth or 0.0 for r in linked})
        table = tabulate(linked, planned_points(["niah"], [1024], depths, 6, depthless=[]))
        interval = table.by_length[1024].interval
        assert interval is not None
        return interval.high - interval.low

    assert width("shared") > 2 * width("fresh")


def test_a_task_without_depths_has_one_cell_a_length() -> None:
    records = planted_records(cliff, tasks=["vt"], depths=[None], lengths=[1024, 65536], samples=4)
    table = tabulate(records, planned_points(["vt"], [1024, 65536], [0.0, 1.0], 4, depthless=["vt"]))
    assert list(table.cells) == [GridPoint("vt", 1024, None), GridPoint("vt", 65536, None)]
    assert not table.has_depths("vt")


def test_records_beyond_the_plan_are_counted_too() -> None:
    records = [planted_record(Cell("niah", 4096, 0.5, i), 1.0) for i in range(5)]
    table = tabulate(records, PLAN)
    assert table.cells[GridPoint("niah", 4096, 0.5)].planned == 5
    assert table.whole.planned == 17


def test_a_planted_surface_comes_back(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", list(planted_records(cliff, samples=3))))
    means = {length: tally.mean or 0.0 for length, tally in run.table.by_length.items()}
    assert all(means[n] > 0.9 for n in means if n <= 32768)
    assert all(means[n] < 0.1 for n in means if n > 32768)


def test_the_summary_for_programs_holds_every_cell(tmp_path: Path) -> None:
    records = list(planted_records(cliff, lengths=[1024], depths=[0.0, 1.0]))
    found = summary(load_run(write_run(tmp_path / "run", [*records[:-1], failed_record(records[-1].cell)])))
    assert [(c["task"], c["length"], c["depth"]) for c in found["cells"]] == [("niah", 1024, 0.0), ("niah", 1024, 1.0)]
    assert (found["planned"], found["done"], found["failed"]) == (6, 5, 1)
    assert found["cells"][0]["low"] < found["cells"][0]["mean"] <= found["cells"][0]["high"]
    msgspec.json.encode(found)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("sim:cliff?window=8000", "sim:cliff?window=8000"),
        ("openai:Qwen3-8B?base_url=http://127.0.0.1:8000/v1", "openai:Qwen3-8B"),
        ("hf:models/x?rope=yarn:4&tokenizer=bytes", "hf:models/x?rope=yarn:4"),
    ],
)
def test_a_title_names_what_a_model_is_and_not_where(name: str, shown: str) -> None:
    assert format_model(name) == shown


def _scored(cell: Cell, headline: float, published: float, strict: float | None = None) -> Record:
    strictly = Score(headline if strict is None else strict)
    scores = {"match.all": Score(headline), "ruler.v1": Score(published), "ruler.strict": strictly}
    return msgspec.structs.replace(planted_record(cell, 1.0), scores=scores)


def test_the_report_says_where_the_published_score_lies_above_the_headlines_interval(tmp_path: Path) -> None:
    cells = [Cell("niah", length, depth, i) for length in (1024, 2048) for depth in (0.0, 1.0) for i in range(6)]
    records = [_scored(c, 0.0 if c.length == 2048 and c.sample < 4 else 1.0, 1.0) for c in cells]
    run = load_run(write_run(tmp_path / "run", records, samples=6))
    [gap] = scorer_gaps(run.table)
    assert (gap.length, gap.scorer, gap.mean) == (2048, "ruler.v1", 1.0)
    assert gap.headline.mean == pytest.approx(1 / 3)
    said = (
        "niah: ruler.v1, which counts substrings, lies above the interval of the headline score: "
        "100% against 33% at 2k."
    )
    assert said in verdict(run).findings
    assert said in footnotes(run)
    assert [row["ruler.v1"] for row in summary(run)["lengths"]] == [1.0, 1.0]


def test_the_report_says_where_the_strict_score_lies_below_the_headlines_interval(tmp_path: Path) -> None:
    cells = [Cell("niah", length, depth, i) for length in (1024, 2048) for depth in (0.0, 1.0) for i in range(6)]
    records = [_scored(c, 1.0, 1.0, float(c.length == 1024 or c.sample < 2)) for c in cells]
    run = load_run(write_run(tmp_path / "run", records, samples=6))
    said = (
        "niah: ruler.strict, which takes no answer with other values, lies below the interval of the headline score: "
        "33% against 100% at 2k."
    )
    assert said in verdict(run).findings
    assert said in footnotes(run)
    assert [row["ruler.strict"] for row in summary(run)["lengths"]] == pytest.approx([1.0, 1 / 3])


def test_a_published_score_inside_of_a_lopsided_interval_is_not_called_above_it() -> None:
    """1 of 10 right is 2% to 40%: 35% lies inside, though further from the mean than half of the width."""
    cells = [Cell("niah", 1024, 0.0, i) for i in range(10)]
    records = [_scored(c, float(c.sample == 0), 1.0 if c.sample == 0 else 0.25 / 0.9) for c in cells]
    table = tabulate(records, PLAN)
    assert table.by_task_and_length["niah", 1024].mean == pytest.approx(0.1)
    assert scorer_gaps(table) == []


def test_a_small_difference_and_a_run_without_the_published_score_are_not_remarked_on(tmp_path: Path) -> None:
    cells = [Cell("niah", 1024, 0.0, i) for i in range(12)]
    close = [_scored(c, 0.0 if c.sample == 0 else 1.0, 1.0) for c in cells]
    assert scorer_gaps(tabulate(close, PLAN)) == []
    alone = [msgspec.structs.replace(r, scores={"mine": Score(0.0)}) for r in close]
    assert tabulate([*close, *alone], PLAN).published is None
