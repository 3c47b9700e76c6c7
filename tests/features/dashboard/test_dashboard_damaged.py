"""A damaged run folder is a row with a reason and a page that says so; the list and the other runs stay up."""

from __future__ import annotations

import html
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leadline.features.dashboard.live import headline_of
from leadline.features.dashboard.pages import Dashboard, RunQuery
from leadline.features.dashboard.run_folders import RunIndex, problem_of
from leadline.report.charts.render import renderer
from leadline.results.run import load_run
from support.planted_runs import cliff, planted_records, write_run
from support.served_runs import dashboard, get

RECORDS = list(planted_records(cliff, lengths=[1024, 65536], depths=[0.0, 1.0]))
READABLE: dict[str, tuple[str, Any]] = {
    "escape-in-model": ("spec.model", "sim:\x1b[31mred\x07\x00\u202e"),
    "escape-in-name": ("name", "\x1b]0;title\x07\x0b"),
    "escape-in-command": ("sessions.0.command", "\x1b[2J\x9b1m"),
    "escape-in-category": ("tasks.niah.category", "\x1b[1m\x08"),
    "huge-window": ("model.window", 10**30),
    "negative-window": ("model.window", -1),
    "huge-plan": ("planned", 2**62),
}
"""Odd, but the numbers are there: these pages are shown."""
DAMAGED: dict[str, tuple[str, Any]] = {
    "many-samples": ("spec.samples", 10**12),
    "no-lengths": ("spec.lengths", []),
    "null-lengths": ("spec.lengths", None),
    "text-lengths": ("spec.lengths", ["long"]),
    "huge-lengths": ("spec.lengths", [10**400]),
    "null-depths": ("spec.depths", None),
    "null-samples": ("spec.samples", None),
    "odd-date": ("created", "yesterday"),
    "far-date": ("created", "99999-99-99T99:99:99"),
    "null-plan": ("planned", None),
    "null-task": ("tasks.niah", None),
}
BROKEN = ("list", "binary", "deep")
"""The manifest, or a record, is not what it should be at all."""


def change(folder: Path, path: str, value: Any) -> None:
    file = folder / "manifest.json"
    manifest = inner = json.loads(file.read_text())
    *outer, last = path.split(".")
    for key in outer:
        inner = inner[int(key)] if key.isdigit() else inner[key]
    inner[last] = value
    file.write_text(json.dumps(manifest))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damaged")
    write_run(folder / "good", RECORDS)
    for name, (path, value) in (READABLE | DAMAGED).items():
        change(write_run(folder / name, RECORDS), path, value)
    for name, text in (("list", b"[]"), ("binary", b"\xff\x00"), ("deep", b"[" * 5000)):
        (folder / name).mkdir()
        (folder / name / "manifest.json").write_bytes(text)
    (write_run(folder / "records", RECORDS) / "records.jsonl").write_text('{"cell": null}\n' * 2)
    return folder


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    with dashboard(runs) as found:
        yield found


def ids(runs: Path) -> dict[str, str]:
    return {entry.name: entry.id for entry in RunIndex([runs]).entries()}


@pytest.mark.parametrize("sort", ["-date", "date", "model", "asked", "-average", "-effective", "progress", "status"])
def test_the_list_shows_every_folder_in_every_order(address: str, runs: Path, sort: str) -> None:
    answer = get(address, f"/?sort={sort}")
    assert answer.status == 200
    assert set(re.findall(r'data-run="(\w+)"', answer.text)) == set(ids(runs).values())
    assert "\x1b" not in answer.text


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", [*READABLE, "good"])
def test_an_odd_manifest_is_shown_without_harm(address: str, runs: Path, name: str) -> None:
    answer = get(address, f"/run/{ids(runs)[name]}")
    assert answer.status == 200
    assert not set("\x1b\x07\x08\x00\u202e") & set(answer.text)


@pytest.mark.parametrize("name", [*DAMAGED, *BROKEN])
def test_a_damaged_run_is_a_page_with_the_reason(address: str, runs: Path, name: str) -> None:
    known = ids(runs)
    one = known[name]
    for path in (f"/run/{one}", f"/samples?run={one}", f"/compare?run={known['good']}&run={one}"):
        answer = get(address, path)
        assert answer.status == 422, path
        assert str(runs / name) in html.unescape(answer.text)
    assert get(address, f"/run/{known['good']}").status == 200


def test_every_damaged_run_has_a_reason_in_its_row(runs: Path) -> None:
    served = Dashboard([runs])
    try:
        for entry in served.index.entries():
            try:
                problem = entry.problem or headline_of(load_run(entry.folder)).problem
            except Exception as error:
                problem = problem_of(error)
            assert bool(problem) == (entry.name in {*DAMAGED, *BROKEN, "records"}), entry
        assert served.list_page(RunQuery()).text
    finally:
        served.close()


def test_a_link_to_a_folder_above_lists_no_run_twice(runs: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "run", RECORDS)
    for number in range(8):
        os.symlink(tmp_path, tmp_path / f"loop-{number}")
    os.symlink(tmp_path / "run", tmp_path / "same")
    assert [entry.name for entry in RunIndex([tmp_path]).entries()] == ["run"]


def test_figures_are_drawn_in_another_process(address: str, runs: Path) -> None:
    get(address, f"/run/{ids(runs)['good']}")
    drawing = renderer()._process
    assert drawing is not None
    assert drawing.pid != os.getpid()
    assert "vl_convert" not in sys.modules


def test_a_figure_that_cannot_be_drawn_leaves_the_rest_of_its_page(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renderer(), "_process", None)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    served = Dashboard([runs])
    try:
        (entry,) = served.find([ids(runs)["good"]]) or []
        text = served.report([entry]).text.decode()
    finally:
        served.close()
    assert "the drawing process cannot be started" in text
    assert "Heatmap of accuracy by length and depth" in text
