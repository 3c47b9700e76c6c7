"""The terminal: coloured cells where supported, plain text elsewhere, and untrusted text without effect."""

from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from leadline.core.errors import StoreError
from leadline.report.terminal import footnotes, format_wrong_answers, show_run, show_side_by_side, usual_notes
from leadline.results.run import load_run
from support.planted_runs import cliff, failed_record, lost_in_the_middle, planted_records, write_run


def shown(folder: Path, **settings: object) -> str:
    out = io.StringIO()
    show_run(load_run(folder), Console(file=out, width=100, **settings))  # type: ignore[arg-type]
    return out.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    records = list(planted_records(lost_in_the_middle, lengths=[1024, 131072], depths=[0.0, 0.5, 1.0]))
    records[0] = failed_record(records[0].cell)
    return write_run(tmp_path / "run", [r for r in records if r.cell.depth != 1.0 or r.cell.length == 1024])


def test_a_pipe_gets_plain_words(folder: Path) -> None:
    text = shown(folder)
    assert "\x1b" not in text
    assert "| niah |     1k |       9 |    8 |      1 |  100% |" in " ".join(text.split("\n")).replace("100%", " 100%")
    assert "100*" in text, "a cell with fewer answers than planned is marked"


def test_a_run_without_an_answer_has_no_mean_to_lower(tmp_path: Path) -> None:
    records = [failed_record(r.cell) for r in planted_records(cliff, lengths=[1024], depths=[0.0, 1.0])]
    text = " ".join(shown(write_run(tmp_path / "run", records)).split())
    assert f"{len(records)} samples failed (" in text
    assert "would fall" not in text


def test_long_names_side_by_side_are_folded_and_not_cut(tmp_path: Path) -> None:
    names = [f"sim:decay?window=65536&tokenizer=bytes&seed={number}" for number in (1, 2)]
    runs = []
    for number, name in enumerate(names):
        records = list(planted_records(cliff, lengths=[1024, 4096, 16384], depths=[0.0, 1.0], model=name))
        runs.append(load_run(write_run(tmp_path / str(number), records)))
    out = io.StringIO()
    show_side_by_side(runs, names, Console(file=out, width=80))
    first = "".join(line.split("|")[1].strip() for line in out.getvalue().splitlines() if line.startswith("|"))
    assert all(name in first for name in names)


def test_a_terminal_with_colours_gets_blocks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    text = shown(folder, force_terminal=True, color_system="truecolor", no_color=False)
    assert "48;2;198;245;218" in text, "all right, in the colour of the scale"


def test_no_color_is_respected(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "48;2" not in shown(folder, force_terminal=True, color_system="truecolor")


def test_a_log_of_automatic_tests_gets_plain_words(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"force_terminal": True, "color_system": "truecolor", "no_color": False}
    monkeypatch.setenv("CI", "true")
    assert "48;2" not in shown(folder, **settings)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "48;2" in shown(folder, **settings)


def test_how_failures_are_counted_is_a_footnote(folder: Path) -> None:
    text = " ".join(shown(folder).split())
    assert "Means are over answered samples." in text
    assert "1 sample failed (timeout 1); counted as wrong" in text
    assert "·: no data." in text


def test_what_is_the_same_after_every_run_is_on_the_page(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", list(planted_records(cliff))))
    text = " ".join(shown(run.folder).split())
    usual = usual_notes(run)
    assert len(usual) == 3
    assert usual <= set(footnotes(run)), "the page has all of them"
    assert not [line for line in usual if line in text]


def test_hostile_words_do_nothing_to_a_terminal(tmp_path: Path) -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J[bold]x[/bold]"
    records = [
        msgspec.structs.replace(r, sent=msgspec.structs.replace(r.sent, notes=(hostile,)))
        for r in planted_records(cliff, tasks=[hostile], lengths=[1024], depths=[0.0], model=f"sim:{hostile}")
    ]
    text = shown(write_run(tmp_path / "run", records))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]x[/bold]" in text, "markup of the terminal library is shown, not obeyed"


def test_a_folder_without_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no run"):
        shown(tmp_path)


def test_the_command_writes_the_figures_and_the_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from leadline.cli.report import report

    report([folder])
    out = capsys.readouterr().out
    for name in ("heatmap.png", "heatmap.svg", "heatmap.pdf", "report.html"):
        assert (folder / name).stat().st_size > 1000
        assert str(folder / name) in out


def test_the_command_gives_json_and_draws_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from leadline.cli.report import report

    report([folder], json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["planned"] == 18
    assert not (folder / "report.html").exists()


def test_long_task_names_give_way_to_numbers_on_eighty_columns(tmp_path: Path) -> None:
    name = "niah[keys=4,haystack=prose]"
    write_run(tmp_path / "run", list(planted_records(cliff, tasks=[name], lengths=[1024, 2048])))
    out = io.StringIO()
    show_run(load_run(tmp_path / "run"), Console(file=out, width=80))
    assert "…" not in out.getvalue()
    assert "| length | planned | done | failed | mean | 95% interval |" in out.getvalue()
    assert "| 100% |" in out.getvalue()


def test_a_folder_of_runs_says_which_it_holds(folder: Path) -> None:
    with pytest.raises(StoreError) as told:
        shown(folder.parent)
    assert str(folder) in (told.value.fix or "")


def test_a_line_of_wrong_answers_adds_up(tmp_path: Path) -> None:
    records = []
    for record in planted_records(lambda n, d: 0.0, lengths=[1024], depths=[0.5], samples=36):
        kind = next(k for k in range(8) if record.cell.sample < (k + 1) * (k + 2) // 2)  # 1 of the first, 8 of the last
        records.append(msgspec.structs.replace(record, failure_class="wrong", detail=f"kind {kind}"))
    text = format_wrong_answers(load_run(write_run(tmp_path / "run", records, samples=36)))
    assert text == (
        "wrong: kind 7 8, wrong: kind 6 7, wrong: kind 5 6, wrong: kind 4 5, wrong: kind 3 4, wrong: kind 2 3, other 3"
    )
