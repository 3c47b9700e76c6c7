"""Pipes, devices, links out of the folder and endless lines in run folders: rows with a reason, and no page waits."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline.core.errors import LeadlineError
from leadline.features.dashboard.run_folders import RunIndex
from leadline.results.growing_run import RunMonitor
from leadline.results.run import load_run
from leadline.store import runs as store
from leadline.store.lock import is_held
from leadline.store.manifest import read_manifest
from support.planted_runs import cliff, planted_records, write_run
from support.served_runs import dashboard, get

RECORDS = list(planted_records(cliff, lengths=[1024, 65536], depths=[0.0, 1.0]))
NAMES = ("manifest.json", "records.jsonl", "lock", "labels.csv", "verdicts.jsonl", "prices.json", "allowances.json")


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_out(path: Path) -> None:
    outside = path.parents[1] / f"secret-{path.name}.txt"
    outside.write_text("a secret of another folder\n")
    path.symlink_to(outside)


KINDS = {"pipe": make_pipe, "zero": link_to_zero, "outside": link_out}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    good = write_run(folder / "good", RECORDS)
    for kind, put in KINDS.items():
        for name in NAMES:
            run = folder / f"{kind}-{name}"
            shutil.copytree(good, run)
            (run / name).unlink(missing_ok=True)
            put(run / name)
    return folder


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    with dashboard(runs) as found:
        yield found


@pytest.mark.slow
def test_odd_files_are_rows_with_a_reason_and_every_page_answers(address: str, runs: Path) -> None:
    entries = {entry.name: entry for entry in RunIndex([runs]).entries()}
    assert set(entries) == {"good", *(f"{kind}-{name}" for kind in KINDS for name in NAMES)}
    assert get(address, "/").status == 200
    for name, entry in entries.items():
        page = get(address, f"/run/{entry.id}")
        assert page.status in (200, 422, 500), name
        assert "a secret of another folder" not in page.text
        if name.endswith("manifest.json"):
            assert "cannot read the manifest" in entry.problem
        if name.endswith("records.jsonl"):
            assert "cannot read the records" in page.text
    assert get(address, f"/run/{entries['good'].id}").status == 200


@pytest.mark.parametrize("kind", KINDS)
def test_odd_files_are_errors_of_every_reader(runs: Path, kind: str) -> None:
    with pytest.raises(LeadlineError, match="cannot read the manifest"):
        read_manifest(runs / f"{kind}-manifest.json")
    for read in (load_run, RunMonitor):
        with pytest.raises(LeadlineError, match="cannot read the records"):
            read(runs / f"{kind}-records.jsonl")
    if kind != "outside":
        assert is_held(runs / f"{kind}-lock") is None


def test_a_link_inside_the_folder_is_followed(runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "linked"
    shutil.copytree(runs / "good", run)
    (run / "records.jsonl").rename(run / "all.jsonl")
    (run / "records.jsonl").symlink_to("all.jsonl")
    assert load_run(run).totals.asked == len(RECORDS)


def test_an_endless_line_is_refused_before_it_fills_the_memory(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "endless"
    shutil.copytree(runs / "good", run)
    monkeypatch.setattr(store, "MAX_LINE_BYTES", 1 << 20)
    with (run / "records.jsonl").open("r+b") as file:
        file.truncate(1 << 40)  # sparse: it takes no space
    with pytest.raises(LeadlineError, match="longer than 1 MB"):
        load_run(run)
