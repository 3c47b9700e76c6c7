"""What is no answer about a document stands aside: memory checks and log-probabilities enter no average."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt
import msgspec
import pytest
from rich.console import Console

from leadline.core.answers import Measurement
from leadline.core.records import Record, Score
from leadline.core.types import Question
from leadline.features.logprobs.charts import distance_curves, logprob_curves
from leadline.report.charts.render import PageFigure, render
from leadline.report.export import figures_of
from leadline.report.page import page
from leadline.report.terminal import show_run
from leadline.results.run import Run, load_run, logprob_results
from leadline.results.verdict import verdict
from support.planted_runs import perfect, planted_records, write_run

LENGTHS = (1024, 8192, 65536)
ABOUT: dict[str, dict[str, Any]] = {
    "from memory": {"options": {"no_context": True}},
    "surprise": {"kind": "measure", "category": "log-probabilities", "has_depth": False},
}


def surprise() -> Iterator[Record]:
    """A loss that stays at 2 nats or so whatever the length, and a gain that halves with every octave of distance."""
    for record in planted_records(perfect, tasks=["surprise"], lengths=LENGTHS, depths=[None], samples=6):
        distance = record.cell.length // 4
        numbers = {"mean_nll": 2 + record.cell.sample / 100, "retrieval_gain": 2048 / distance, "distance": distance}
        scores = {name: Score(numbers[name]) for name in ("mean_nll", "retrieval_gain")}
        yield msgspec.structs.replace(
            record, outcome=Measurement(numbers), scores=scores, question=Question("", labels={"unit": "nats a token"})
        )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("aside") / "run"
    asked = planted_records(lambda n, d: 1.0 if n < 65536 else 0.0, lengths=LENGTHS, depths=[0.0, 1.0], samples=6)
    memory = planted_records(lambda n, d: 0.0, tasks=["from memory"], lengths=LENGTHS, depths=[0.0, 1.0], samples=6)
    return load_run(write_run(folder, [*asked, *memory, *surprise()], samples=6, about=ABOUT))


def test_only_answers_about_a_document_enter_the_table(run: Run) -> None:
    assert run.table.tasks == ["niah"]
    assert run.table.whole.mean == pytest.approx(2 / 3)
    assert run.table.whole.planned == 36
    assert run.no_context.whole.mean == 0.0
    assert run.titles == ["niah", "from memory", "surprise"]


def test_effective_length_is_that_of_the_questions_asked(run: Run) -> None:
    found = verdict(run).effective
    assert found is not None
    assert found.length == 8192


def test_what_is_known_by_heart_is_said(run: Run) -> None:
    assert any("Asked without the document it is right in 0%" in line for line in verdict(run).findings)


def test_a_metric_has_means_with_intervals_in_its_own_unit(run: Run) -> None:
    loss, gain = run.logprobs.estimates
    assert loss == ("surprise", "mean_nll", "nats a token")
    assert gain == ("surprise", "retrieval_gain", "nats a token")
    for found in run.logprobs.estimates[loss].values():
        assert found.mean == pytest.approx(2.025)
        assert found.interval.low < 2.025 < found.interval.high


def test_a_second_metric_keeps_its_own_unit_beside_that_of_its_task() -> None:
    record = next(surprise())
    scores = {"needle_gain": Score(0.9), "needle_chance": Score(0.5), "needle_nll": Score(0.7)}
    found = logprob_results(
        [msgspec.structs.replace(record, scores=scores, question=Question("", labels={"unit": "share"}))]
    ).estimates
    units = {metric.name: metric.unit for metric in found}
    assert units == {"needle_gain": "share", "needle_chance": "chance of a token", "needle_nll": "nats a token"}


def test_the_trap_shows_accuracy_and_perplexity_side_by_side(run: Run) -> None:
    figure = logprob_curves(run)
    alt.Chart.from_dict(figure.spec(), validate=True)
    assert "accuracy at 64k: 0 share" in figure.alternative
    assert "mean_nll (lower is better) at 64k: 7.576 perplexity, 95% interval" in figure.alternative
    assert render(figure, "svg").count(b'aria-roledescription="mean"') == 9


def test_perplexities_are_plain_numbers_on_their_axis(tmp_path: Path) -> None:
    records = []
    for at, record in enumerate(surprise()):
        nll = 3.0 + at % 6 / 3
        scores = {"mean_nll": Score(nll)}
        records.append(msgspec.structs.replace(record, outcome=Measurement({"mean_nll": nll}), scores=scores))
    svg = render(logprob_curves(load_run(write_run(tmp_path / "run", records, samples=6, about=ABOUT))), "svg")
    numbers = re.findall(r">([\d.e+-]+)</text>", svg.decode())
    assert "40" in numbers
    assert not any("e" in number for number in numbers)


def test_a_gain_is_shown_by_how_far_back_the_answer_stands(run: Run) -> None:
    figure = distance_curves(run)
    gains = {row["length"]: row["mean"] for row in figure.data["metrics"] if "retrieval_gain" in row["label"]}
    assert gains == {"256": 8.0, "2k": 1.0, "16k": 0.125}


def test_page_terminal_and_figures_show_them(run: Run) -> None:
    assert "Log-probabilities over length" in page([run])
    out = io.StringIO()
    show_run(run, Console(file=out, width=120))
    assert "| mean_nll" in out.getvalue()
    assert "from memory" in out.getvalue()  # below what was read, in no average
    assert "log-probabilities" in dict(figures_of(run))


def test_a_run_of_log_probabilities_alone_has_a_page(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", list(surprise()), samples=6, about=ABOUT))
    text = page([run])
    assert "Was measured by log-probabilities alone" in text
    assert "Accuracy by length and depth" not in text
    assert "–%" not in text
    assert "<h3>Findings</h3>" not in text
    assert {link[1:] for link in re.findall('href="(#[^"]+)"', text)} <= set(re.findall('id="([^"]+)"', text))
    assert [name for name, _ in figures_of(run)] == ["log-probabilities", "log-probabilities-by-distance"]


def test_a_run_of_log_probabilities_alone_says_what_was_measured(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", list(surprise()), samples=6, about=ABOUT))
    found, text = verdict(run), page([run])
    assert found.claim == "Was measured by log-probabilities alone, up to 64k: no accuracy and no effective length."
    assert "Nothing longer than 64k, of 128k claimed." in found.not_measured
    assert "<dd>18 <small>of 18 planned, 0 failed</small></dd>" in text


def test_small_numbers_keep_their_digits_on_the_page(tmp_path: Path) -> None:
    records = []
    for at, record in enumerate(surprise()):
        chance = 0.0036 + at % 6 / 100_000
        outcome, scores = Measurement({"needle_chance": chance}), {"needle_chance": Score(chance)}
        records.append(msgspec.structs.replace(record, outcome=outcome, scores=scores))
    run = load_run(write_run(tmp_path / "run", records, samples=6, about=ABOUT))
    svg = PageFigure(logprob_curves(run), "logprobs").__html__()
    numbers = [float(number) for number in re.findall(r">(0\.\d+)</text>", svg)]
    assert len(set(numbers)) == len(numbers) > 2
    assert "at 64k: 0.003625 chance of a token" in svg
    assert not re.search(r'(?<!aria-label)="[^"]*\d\.\d{3}', svg), "coordinates are short"
