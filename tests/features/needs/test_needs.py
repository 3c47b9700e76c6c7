"""What a question needs: on every record of every generated task, and in the report beside length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from leadline.core.records import Needs, Record
from leadline.features.needs.report import needs_axes, needs_section
from leadline.results.run import Run, load_run
from leadline.run.recording import needs_of
from support.planted_runs import perfect, planted_records, write_run
from support.small_runs import simulated_run

Ask = Callable[..., Run]
TASKS = ["niah_multiquery", "vt", "mrcr", "agent_log", "cwe", "aggregate", "worlds", "qa_fiction_2"]


def with_needs(folder: Path, needs: Callable[[Record], Needs], right: Callable[[Record], bool]) -> Run:
    records = []
    for record in planted_records(perfect, lengths=[1024, 4096], depths=[0.0, 0.5, 1.0], samples=8):
        score = msgspec.structs.replace(record.scores["match.all"], value=float(right(record)))
        records.append(msgspec.structs.replace(record, needs=needs(record), scores={"match.all": score}))
    return load_run(write_run(folder, records, samples=8))


def span_by_depth(record: Record) -> Needs:
    """A span that does not depend on the length: 16 tokens, 128, or 1,024 by depth."""
    span = {0.0: 16, 0.5: 128, 1.0: 1024}[record.cell.depth or 0.0]
    return Needs(1 if span == 16 else 3, span, 16)


def test_every_task_records_what_its_questions_need(tmp_path: Path) -> None:
    run = simulated_run(tmp_path, TASKS, lengths=[2048], depths=[0.5], samples=1)
    needs = {record.cell.task: (record, record.needs) for record in run.records}
    assert set(needs) == set(TASKS)
    for task, (record, found) in needs.items():
        assert found is not None, task
        assert 1 <= found.tokens <= found.span <= record.body_tokens, task
    assert needs["cwe"][1] == Needs(1, needs["cwe"][0].body_tokens, needs["cwe"][0].body_tokens)
    assert [needs[t][1].pieces for t in ("niah_multiquery", "vt")] == [4, 5]  # type: ignore[union-attr]
    assert needs["agent_log"][1].pieces == 3  # type: ignore[union-attr]  # its failed commands: the order decides


def test_the_evidence_of_several_facts_is_counted_once_where_they_overlap() -> None:
    class Fact:
        def __init__(self, name: str, start: int, end: int) -> None:
            self.id, self.start, self.end = name, start, end

    class Question:
        facts, order_facts, whole_document, absent = ("a", "b"), ("c",), False, None

    class Probe:
        question, body_tokens = Question(), 100

    class Document:
        facts = (Fact("a", 10, 20), Fact("b", 15, 25), Fact("c", 60, 70), Fact("other", 80, 90))

    assert needs_of(Document(), Probe()) == Needs(3, 60, 25)  # type: ignore[arg-type]


def test_a_question_without_its_document_needs_nothing(tmp_path: Path) -> None:
    run = simulated_run(tmp_path, ["niah"], lengths=[1024], depths=[0.5], samples=1, options={"no_context": True})
    assert [record.needs for record in run.records] == [None]


def test_what_is_absent_needs_the_whole_document(tmp_path: Path) -> None:
    run = simulated_run(tmp_path, ["niah"], lengths=[1024], depths=[0.5], samples=1, options={"absent": 1})
    [record] = run.records
    assert record.needs == Needs(1, record.body_tokens, record.body_tokens)


def test_a_model_that_fails_by_span_is_told_from_one_that_fails_by_length(tmp_path: Path) -> None:
    by_span = with_needs(tmp_path / "span", span_by_depth, lambda r: r.cell.depth != 1.0)
    by_length = with_needs(tmp_path / "length", span_by_depth, lambda r: r.cell.length == 1024)
    for run, strongest, other in ((by_span, "span", "length"), (by_length, "length", "span")):
        found = {axis.name: axis.concordance for axis in needs_axes(run.needs)}
        best, chance = found[strongest], found[other]
        assert best is not None
        assert chance is not None
        assert best.value > 0.7
        assert chance.value == pytest.approx(0.5)
        assert chance.interval.holds(0.5)
        assert best.minus(chance).low > 0
    section = needs_section([by_span], ["x"])
    assert section is not None
    assert "follow the span of the evidence more than the total length" in str(section.parts[0])


def test_the_report_has_a_figure_with_every_quantity(tmp_path: Path) -> None:
    run = with_needs(tmp_path / "run", span_by_depth, lambda r: r.cell.depth != 1.0)
    section = needs_section([run], ["x"])
    assert section is not None
    [figure] = section.figures
    drawn = figure.draw(False)
    assert sorted(drawn.data) == ["panel0", "panel1", "panel2"]  # the tokens of evidence are always the same
    assert "first to last evidence, 1k+: 0%, 16 answers" in drawn.alternative
    both = needs_section([run, run], ["one", "two"])
    assert both is not None
    assert [row[0] for part in both.parts if hasattr(part, "rows") for row in part.rows] == ["one", "two"]


def test_a_run_of_single_needles_says_nothing_about_spans(tmp_path: Path) -> None:
    run = with_needs(tmp_path / "run", lambda record: Needs(1, 20, 20), lambda record: True)
    assert needs_section([run], ["x"]) is None
