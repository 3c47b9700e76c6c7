"""Several runs: one scale, honest differences, and no mixing of what cannot be mixed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import altair as alt
import msgspec
import pytest

from leadline.cli.main import run_command
from leadline.core.format import escape_markdown
from leadline.report import export as gallery
from leadline.report.charts.grid import difference_map
from leadline.report.charts.heatmap import heatmap
from leadline.report.charts.render import write_figure
from leadline.report.comparison import differences_from_first, leaderboards, titles
from leadline.report.export import markdown
from leadline.report.page import page
from leadline.results.run import Run, load_run
from leadline.results.sentences import format_comparison
from leadline.results.verdict import verdict
from support.planted_runs import planted_records, write_run

LENGTHS = (4096, 16384, 65536)


def steady(length: int, depth: float) -> float:
    return 0.97


def fallen(length: int, depth: float) -> float:
    return 0.95 if length < 65536 else 0.3


def made(folder: Path, name: str, surface: object, **settings: object) -> Run:
    records = planted_records(surface, lengths=LENGTHS, depths=[0.0, 0.5, 1.0], samples=40, **settings)  # type: ignore[arg-type]
    return load_run(write_run(folder / name, list(records), samples=40))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("runs")
    return [made(folder, "base", steady, model="sim:old"), made(folder, "candidate", fallen, model="sim:new")]


def test_the_furthest_reader_leads(two: list[Run]) -> None:
    (board,) = leaderboards(two[::-1], [verdict(run) for run in two[::-1]], titles(two[::-1]))
    assert [row[0].text for row in board.cells] == ["sim:old", "sim:new"]
    assert board.cells[0][1].text == "at least 64k"
    assert all(cell.below for row in board.cells for cell in row[2:])


def test_a_planted_loss_is_found_where_it_was_planted(two: list[Run]) -> None:
    (item,) = differences_from_first(two, titles(two))
    assert item.sentence.startswith("Worse: ")
    assert "worse at 64k" in item.sentence
    assert "at 4k" not in item.sentence
    assert "at 16k" not in item.sentence
    assert item.comparison is not None
    figure = difference_map(item.comparison, item.names)
    alt.Chart.from_dict(figure.spec(), validate=True)
    marked = {row["length"]: row["label"] for row in figure.data["lengths"]}
    assert marked["64k"].endswith("worse")
    assert marked["4k"].endswith("not significant")


def test_cells_are_described_and_not_tested(two: list[Run]) -> None:
    (item,) = differences_from_first(two, titles(two))
    assert item.comparison is not None
    figure = difference_map(item.comparison, item.names)
    assert all(row["label"].endswith("not tested") for row in figure.data["cells"])


def test_a_run_against_itself_shows_no_difference(two: list[Run]) -> None:
    (item,) = differences_from_first([two[0], two[0]], ["a", "b"])
    assert item.sentence.startswith("No difference seen: +0.0")


def test_the_page_and_the_command_find_the_same_over_few_haystacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four samples are four haystacks, whatever the number of prompts: too few for a test over them."""
    runs = []
    for name, surface in (("base", steady), ("candidate", lambda length, depth: 0.2)):
        planted = planted_records(surface, lengths=(4096,), depths=[n / 10 for n in range(11)], samples=4)
        records = [msgspec.structs.replace(r, cluster=f"haystack {r.cell.sample}") for r in planted]
        runs.append(load_run(write_run(tmp_path / name, records, samples=4)))
    (item,) = differences_from_first(runs, ["base", "candidate"])
    assert item.comparison is not None
    assert len(set(runs[0].table.samples.cluster)) == 4
    assert item.sentence.startswith("Not settled: ")
    assert "44 paired prompts (4 documents: too few to rely on)" in item.sentence
    run_command(["compare", str(tmp_path / "base"), str(tmp_path / "candidate"), "--json"])
    said = json.loads(capsys.readouterr().out)["differences"][0]
    assert said["p"] == pytest.approx(item.comparison.overall.p)
    assert said["verdict"] == item.comparison.overall.verdict == "not significant"


def test_an_interval_without_zero_is_not_called_no_difference(two: list[Run]) -> None:
    found = differences_from_first(two, titles(two))[0].comparison
    assert found is not None
    parts = [replace(d, verdict="not significant", adjusted=0.06) for d in found.differences]
    assert found.overall.estimate.interval.high < 0
    words = format_comparison(replace(found, differences=tuple(parts)))
    assert words.startswith("Not settled: ")
    assert "p 0.06 after correction" in words


def test_parts_that_differ_are_never_called_no_difference(two: list[Run]) -> None:
    found = differences_from_first(two, titles(two))[0].comparison
    assert found is not None
    overall = replace(found.overall, verdict="not significant")
    said = format_comparison(replace(found, differences=(overall, *found.differences[1:])))
    assert said.startswith("Mixed: ")
    assert "; worse at" in said


def test_reading_modes_are_never_mixed(tmp_path: Path) -> None:
    runs = [
        made(tmp_path, "fresh", steady, model="sim:a", reading="fresh"),
        made(tmp_path, "shared", steady, model="sim:a", reading="shared"),
    ]
    assert [b.columns[0] for b in leaderboards(runs, [verdict(r) for r in runs], titles(runs))] == [
        "fresh reading",
        "shared reading",
    ]
    (item,) = differences_from_first(runs, titles(runs))
    assert item.comparison is None
    assert "Not compared: reading mode differs" in item.sentence
    assert "harder than fresh reading" in " ".join(verdict(runs[1]).not_measured)


def test_runs_of_one_model_are_told_apart_by_their_folders(two: list[Run]) -> None:
    assert titles([two[0], two[0]]) == ["sim:old (base)", "sim:old (base)"]
    assert titles(two) == ["sim:old", "sim:new"]


def test_runs_in_folders_of_one_name_have_names_and_figures_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [made(tmp_path / parent, "same", surface) for parent, surface in (("a", steady), ("b", fallen))]
    assert titles(runs) == ["sim:planted (a/same)", "sim:planted (b/same)"]
    monkeypatch.setattr(gallery, "figures_of", lambda run: [("heatmap", heatmap(run, narrow=True))])
    written = gallery.export_figures(runs, tmp_path / "figures")
    assert len(set(written)) == len(written)
    assert {path.parent.name for path in written} == {"a-same", "b-same", "figures"}


def test_several_runs_share_a_page(two: list[Run]) -> None:
    text = page(two)
    for words in ("2 runs compared", "Leaderboard", "sim:new compared with sim:old", "Side by side", "Worse: "):
        assert words in text
    assert text.count("<svg ") == 2 + 2 + 1 + 2 * 4, (
        "curves (wide and narrow), two small maps, a difference, four figures a run"
    )


def test_markdown_holds_the_table_and_the_pictures(two: list[Run]) -> None:
    text = markdown(two, [run.folder / "heatmap.png" for run in two])
    assert "| fresh reading | effective length | 4k | 16k | 64k | average |" in text
    assert "| sim:old | at least 64k" in text
    assert text.count("](<") == 2
    assert "Means are over answered samples." in text


def test_a_picture_in_markdown_is_that_of_its_run(two: list[Run]) -> None:
    text = markdown(two, [two[1].folder / "heatmap.png", two[1].folder / "figures" / "heatmap.png"])
    assert text.count("](<") == 1
    assert f"depth, sim:new](<{two[1].folder.as_posix()}/heatmap.png>)" in text


def test_a_name_cannot_break_markdown() -> None:
    assert escape_markdown("a|b<script>[x](y)`c`") == "a\\|b&lt;script&gt;\\[x\\](y)\\`c\\`"


def test_every_figure_has_a_file_of_its_own(two: list[Run]) -> None:
    assert [name for name, _ in gallery.figures_of(two[1])] == [
        "heatmap",
        "heatmap-smoothed",
        "effective-length",
        "curves",
        "outcomes",
    ]


def test_a_map_of_differences_names_both_runs_where_nothing_else_does(two: list[Run]) -> None:
    names = titles(two)
    (item,) = differences_from_first(two, names)
    assert item.comparison is not None
    alone = difference_map(item.comparison, item.names, titled=True)
    assert alone.chart["title"]["text"] == names[1]
    assert alone.chart["title"]["subtitle"] == f"minus {names[0]}"
    on_a_page = difference_map(item.comparison, item.names)
    assert "title" not in on_a_page.chart
    assert f"{names[1]} minus {names[0]}" in on_a_page.alternative


def test_figures_for_a_paper_are_as_wide_as_a_column(
    two: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gallery, "figures_of", lambda run: [("heatmap", heatmap(run, narrow=True))])
    written = gallery.export_figures(two, tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in written} == {
        f"{name}.{kind}"
        for name in ("base/heatmap", "candidate/heatmap", "curves", "difference-candidate")
        for kind in ("png", "svg", "pdf")
    }
    assert 'width="252.0"' in (tmp_path / "base" / "heatmap.svg").read_text()
    assert b"MediaBox [0 0 252" in (tmp_path / "base" / "heatmap.pdf").read_bytes()


@pytest.mark.slow
def test_a_dozen_panels_take_both_columns_and_no_more_than_a_page(tmp_path: Path) -> None:
    run = made(tmp_path, "many", steady, tasks=[f"task {i}" for i in range(12)])
    for name, figure in gallery.figures_of(run):
        if name in ("heatmap", "outcomes"):
            text = write_figure(figure, tmp_path / name, ["svg"], column=True)[0].read_text()
            width, height = map(float, re.findall(r'(?:width|height)="([\d.]+)"', text)[:2])
            assert width == 504
            assert height < 9 * 72, "nine inches are what a page holds"
