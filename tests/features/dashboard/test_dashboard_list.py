"""The list of runs: found by their manifests, filtered and sorted, and read only when they are shown."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from leadline.core.errors import UsageError
from leadline.features.dashboard import run_folders
from leadline.features.dashboard.live import Headline, Headlines, headline_of
from leadline.features.dashboard.pages import PAGE_SIZE, Dashboard, RunQuery, list_runs, status_of
from leadline.features.dashboard.run_folders import IndexEntry, RunIndex
from leadline.results.run import load_run
from leadline.results.verdict import verdict
from leadline.store.runs import RECORDS
from support.growing_runs import begun_run, writing
from support.planted_runs import cliff, failed_record, lost_in_the_middle, planted_records, write_run


@pytest.fixture(autouse=True)
def scanned_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folders, "SCAN_SECONDS", 0.0)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name, surface, model in (("a", cliff, "sim:one"), ("b", lost_in_the_middle, "sim:two?window=8k")):
        write_run(tmp_path / name, list(planted_records(surface, depths=[0.0, 0.5], model=model)))
    return tmp_path


def names(entries: list[IndexEntry]) -> list[str]:
    return sorted(e.name for e in entries)


# --- finding ------------------------------------------------------------------------------------


def test_runs_are_found_in_folders_of_folders_and_by_themselves(runs: Path) -> None:
    deep = runs / "sweep" / "monday"
    deep.mkdir(parents=True)
    shutil.copytree(runs / "a", deep / "c")
    assert names(RunIndex([runs]).entries()) == ["a", "b", "c"]
    assert names(RunIndex([runs / "a"]).entries()) == ["a"]
    assert names(RunIndex([runs, runs / "a", deep]).entries()) == ["a", "b", "c"], "each run once"


def test_no_record_is_read_for_the_list(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (runs / "a", runs / "b"):
        (folder / RECORDS).unlink()
    (entry,) = (e for e in RunIndex([runs]).entries() if e.name == "b")
    assert (entry.model, entry.asked, entry.lengths) == ("sim:two?window=8k", "niah", "1k to 128k")
    assert (entry.planned, entry.status, entry.reading, entry.date) == (48, "finished", "fresh", "2025-11-15 12:00")


def test_new_runs_appear_and_removed_ones_go(runs: Path) -> None:
    index = RunIndex([runs])
    assert len(index.entries()) == 2
    shutil.copytree(runs / "a", runs / "c")
    assert len(index.entries()) == 3
    shutil.rmtree(runs / "c")
    assert len(index.entries()) == 2


def test_a_run_that_is_being_written_says_so(runs: Path) -> None:
    index = RunIndex([runs])
    with writing(runs / "a"):
        assert {e.name: e.status for e in index.entries()} == {"a": "running", "b": "finished"}
    assert {e.status for e in index.entries()} == {"finished"}


def test_a_damaged_manifest_is_listed_and_harms_no_other(runs: Path) -> None:
    (runs / "a" / "manifest.json").write_text('{"half')
    found = {e.name: e.problem for e in RunIndex([runs]).entries()}
    assert found["a"].startswith("the manifest is damaged")
    assert not found["b"]


def test_what_was_asked_for_is_the_suite_that_was_typed(runs: Path) -> None:
    text = (runs / "a" / "manifest.json").read_text()
    (runs / "a" / "manifest.json").write_text(text.replace("leadline run niah", "leadline run suites/nightly.toml"))
    (entry,) = RunIndex([runs / "a"]).entries()
    assert entry.asked == "nightly.toml: niah"


def test_a_folder_that_is_not_there_is_an_error_with_a_fix(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder") as caught:
        RunIndex([tmp_path / "nothing"])
    assert "leadline run" in caught.value.fix


# --- filtering and sorting -----------------------------------------------------------------------------------

FIRST = IndexEntry(
    "1", Path("x/alpha"), (0, 0), "hf:small", "niah", ("niah",), "fresh", planned=10, created="2025-01-01"
)
SECOND = replace(FIRST, id="2", folder=Path("x/beta"), model="openai:large", created="2025-03-01", status="running")
THIRD = replace(FIRST, id="3", folder=Path("x/gamma"), model="hf:middle", created="2025-02-01", reading="nested")
ALL = [FIRST, SECOND, THIRD]
KNOWN = {"1": Headline(done=10, mean=0.5, length=4096.0), "3": Headline(done=4, mean=0.9, length=1024.0)}


def ids(query: dict[str, str]) -> list[str]:
    return [e.id for e in list_runs(ALL, RunQuery.of(query), lambda e: KNOWN.get(e.id)).shown]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({}, ["2", "3", "1"]),
        ({"sort": "date"}, ["1", "3", "2"]),
        ({"sort": "model"}, ["3", "1", "2"]),
        ({"sort": "-effective"}, ["1", "3", "2"]),
        ({"sort": "effective"}, ["3", "1", "2"]),
        ({"sort": "-average"}, ["3", "1", "2"]),
        ({"sort": "progress"}, ["3", "1", "2"]),
        ({"sort": "nonsense"}, ["1", "3", "2"]),
        ({"q": "HF small"}, ["1"]),
        ({"q": "beta"}, ["2"]),
        ({"q": "nested"}, ["3"]),
        ({"status": "running"}, ["2"]),
        ({"status": "finished"}, ["1"]),
        ({"status": "stopped"}, ["3"]),
        ({"page": "-3"}, ["2", "3", "1"]),
        ({"page": "99999999999999"}, ["2", "3", "1"]),
    ],
)
def test_runs_are_filtered_and_sorted(query: dict[str, str], wanted: list[str]) -> None:
    assert ids(query) == wanted


def test_a_stopped_run_with_nothing_left_to_ask_is_finished() -> None:
    assert status_of(FIRST, KNOWN["1"]) == "finished"
    assert status_of(THIRD, KNOWN["3"]) == "stopped"
    assert status_of(replace(FIRST, rule="effective"), KNOWN["1"]) == "stopped"


def test_a_list_has_pages() -> None:
    many = [replace(FIRST, id=str(n), created=f"2025-01-01T{n:05d}") for n in range(2 * PAGE_SIZE + 3)]
    last = list_runs(many, RunQuery.of({"page": "3"}), lambda e: None)
    assert (len(last.shown), last.first, last.pages, last.matching) == (3, 2 * PAGE_SIZE, 3, 2 * PAGE_SIZE + 3)
    assert list_runs(many, RunQuery.of({"page": "77"}), lambda e: None).page == 3


def test_an_address_holds_the_query() -> None:
    query = RunQuery("a & b", "stopped", "model", ascending=True, page=4)
    assert query.address() == "/?q=a+%26+b&status=stopped&page=4&sort=model"
    assert RunQuery.of({}).sorted_by("model") == "/?sort=model"
    assert RunQuery.of({"sort": "model"}).sorted_by("model") == "/?sort=-model"


# --- headlines ----------------------------------------------------------------------------------


def test_a_headline_is_what_the_report_says(runs: Path) -> None:
    found, run = headline_of(load_run(runs / "b")), load_run(runs / "b")
    effective = verdict(run).effective
    assert effective is not None
    assert (found.effective, found.ends) == (effective.point, effective.ends)
    assert found.mean == run.table.whole.mean
    assert (found.done, found.failed) == (48, 0)


def test_a_run_without_an_answer_has_no_headline(tmp_path: Path) -> None:
    records = list(planted_records(cliff, lengths=[1024], depths=[0.5]))
    assert headline_of(load_run(begun_run(tmp_path / "run", records))) == Headline()
    failed = write_run(tmp_path / "other", [failed_record(r.cell) for r in records])
    assert headline_of(load_run(failed)) == Headline(failed=3)


def wait_for(headlines: Headlines, entries: list[IndexEntry]) -> None:
    until = time.monotonic() + 120
    while headlines.want(entries) and time.monotonic() < until:
        time.sleep(0.02)


def test_headlines_are_read_once_and_again_when_the_run_has_grown(tmp_path: Path) -> None:
    records = list(planted_records(cliff, lengths=[1024, 65536], depths=[0.5]))
    begun_run(tmp_path / "run", records, first=2)
    with pytest.raises(KeyboardInterrupt), writing(tmp_path / "run"):
        raise KeyboardInterrupt
    index, headlines = RunIndex([tmp_path]), Headlines()
    try:
        assert headlines.of(index.entries()[0]) is None
        wait_for(headlines, index.entries())
        first = headlines.of(index.entries()[0])
        assert first is not None
        assert first.done == 2
        assert headlines.want(index.entries()) == 0
        with writing(tmp_path / "run") as writer:
            writer.append(records[2])
            assert headlines.want(index.entries()) == 1
            wait_for(headlines, index.entries())
        second = headlines.of(index.entries()[0])
        assert second is not None
        assert second.done == 3
    finally:
        headlines.close()


def test_headlines_are_kept_over_a_restart_and_only_for_the_run_they_are_of(runs: Path, tmp_path: Path) -> None:
    file, index = tmp_path / "cache" / "headlines.json", RunIndex([runs / "a"])
    first = Headlines(file)
    wait_for(first, index.entries())
    first.close()
    second = Headlines(file)
    assert second.want(index.entries()) == 0
    assert second.of(index.entries()[0]) == headline_of(load_run(runs / "a"))
    shutil.rmtree(runs / "a")
    write_run(runs / "a", list(planted_records(cliff, lengths=[1024], depths=[0.5])))
    text = (runs / "a" / "manifest.json").read_text()
    (runs / "a" / "manifest.json").write_text(text.replace("2025-11-15T12:00:00", "2025-12-15T12:00:00"))
    assert second.of(index.entries()[0]) is None, "another run in the same place"
    file.write_text("damaged")
    assert Headlines(file).want([]) == 0


def test_records_that_cannot_be_read_are_said_so_in_their_row(runs: Path) -> None:
    (runs / "a" / RECORDS).write_text("nonsense\nnonsense\n")
    headlines = Headlines()
    try:
        entries = [e for e in RunIndex([runs]).entries() if e.name == "a"]
        wait_for(headlines, entries)
        found = headlines.of(entries[0])
        assert found is not None
        assert "line 1 of records.jsonl cannot be read" in found.problem
    finally:
        headlines.close()


# --- the page -----------------------------------------------------------------------------------


def test_the_first_page_waits_for_no_headline(runs: Path) -> None:
    dashboard = Dashboard([runs])
    try:
        first = dashboard.list_page(RunQuery()).text.decode()
        assert first.count("sim:one") >= 1
        assert first.count('class="waiting"') >= 4, "what is not known yet"
        wait_for(dashboard.headlines, dashboard.index.entries())
        later = dashboard.list_page(RunQuery()).text.decode()
        assert 'class="waiting"' not in later
        assert "48 of 48" in later
    finally:
        dashboard.close()


def test_sorting_by_headlines_reads_all_runs_and_says_so(runs: Path) -> None:
    dashboard = Dashboard([runs])
    try:
        assert "reading 2 runs to sort them" in dashboard.list_page(RunQuery(order="effective")).text.decode()
        wait_for(dashboard.headlines, dashboard.index.entries())
        text = dashboard.list_page(RunQuery(order="effective")).text.decode()
        assert "reading" not in text.partition('id="count"')[2].partition("</p>")[0]
        assert text.index("sim:one") < text.index("sim:two")
    finally:
        dashboard.close()


def test_the_version_of_the_list_changes_with_its_content(runs: Path) -> None:
    dashboard = Dashboard([runs])
    seen = [dashboard.version(), dashboard.version()]
    assert seen[0] == seen[1]
    record = next(iter(planted_records(cliff)))
    with writing(runs / "a") as writer:
        seen.append(dashboard.version())
        writer.append(record)
        seen.append(dashboard.version())
    seen.append(dashboard.version())
    shutil.rmtree(runs / "b")
    seen.append(dashboard.version())
    assert len(set(seen)) == 5
    dashboard.close()
