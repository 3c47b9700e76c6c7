"""Following a run that another process writes: each byte once, whole lines only, the same numbers as a report."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from leadline.core.answers import Failure
from leadline.core.records import Record
from leadline.report.terminal import run_screen
from leadline.results.growing_run import CHUNK, RecordFollower, RunMonitor
from leadline.results.progress import Eta, status_of
from leadline.results.run import load_run
from leadline.store import runs as codec
from leadline.store.lock import LOCK
from leadline.store.manifest import read_manifest
from leadline.store.runs import RECORDS
from support.growing_runs import begun_run, of_now, writing
from support.planted_runs import cliff, failed_record, lost_in_the_middle, planted_records, write_run


@pytest.fixture
def records() -> list[Record]:
    return list(planted_records(lost_in_the_middle, lengths=[1024, 65536], depths=[0.0, 0.5, 1.0]))


# --- the file -----------------------------------------------------------------------------------


def test_only_what_is_new_is_read(tmp_path: Path, records: list[Record]) -> None:
    folder = begun_run(tmp_path / "run", records, first=4)
    follower = RecordFollower(folder)
    assert [r.cell for r in follower.read()] == [r.cell for r in records[:4]]
    assert not follower.grown()
    assert list(follower.read()) == []
    with writing(folder) as writer:
        writer.append(records[4])
        assert follower.grown()
        before = follower.offset
        assert [r.cell for r in follower.read()] == [records[4].cell]
        assert follower.offset - before == len(codec.encode(records[4]))


def test_half_a_line_waits_for_its_other_half(tmp_path: Path, records: list[Record]) -> None:
    folder = begun_run(tmp_path / "run", records, first=1)
    follower = RecordFollower(folder)
    list(follower.read())
    line = codec.encode(records[1])
    with (folder / RECORDS).open("ab") as file:
        file.write(line[:50])
        file.flush()
        assert list(follower.read()) == []
        file.write(line[50:])
    assert [r.cell for r in follower.read()] == [records[1].cell]


def test_a_line_longer_than_a_chunk_is_read_whole(tmp_path: Path, records: list[Record]) -> None:
    question = msgspec.structs.replace(records[0].question, text="x" * (2 * CHUNK))
    huge = msgspec.structs.replace(records[0], question=question)
    folder = write_run(tmp_path / "run", [huge, *records[1:]])
    assert [len(r.question.text) > CHUNK for r in RecordFollower(folder).read()] == [True] + [False] * (
        len(records) - 1
    )


def test_a_torn_tail_that_was_cut_off_is_no_new_file(tmp_path: Path, records: list[Record]) -> None:
    folder = begun_run(tmp_path / "run", records, first=3)
    with (folder / RECORDS).open("ab") as file:
        file.write(b'{"torn')
    monitor = RunMonitor(folder)
    with writing(folder) as writer:
        writer.append(records[3])
    monitor.refresh()
    assert monitor.progress().done == 4


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path, records: list[Record]) -> None:
    folder = begun_run(tmp_path / "run", records, first=9)
    monitor = RunMonitor(folder)
    assert monitor.asked == 9
    (folder / "other").write_bytes(codec.encode(records[0]))
    os.replace(folder / "other", folder / RECORDS)
    monitor.refresh()
    assert monitor.asked == 1
    (folder / RECORDS).write_bytes(b"")
    monitor.refresh()
    assert monitor.asked == 0


def test_a_line_that_is_no_record_is_named_and_the_rest_is_read(tmp_path: Path, records: list[Record]) -> None:
    folder = begun_run(tmp_path / "run", records, first=1)
    with (folder / RECORDS).open("ab") as file:
        file.write(b"nonsense\n")
        file.write(codec.encode(records[1]))
    monitor = RunMonitor(folder)
    assert monitor.asked == 2
    assert [line.number for line in monitor.run().unreadable] == [2]


# --- where it stands ----------------------------------------------------------------------------


def test_what_is_followed_says_what_a_report_says(tmp_path: Path, records: list[Record]) -> None:
    folder = begun_run(tmp_path / "run", records, first=5)
    monitor = RunMonitor(folder)
    with writing(folder) as writer:
        writer.append(failed_record(records[5].cell))
        for record in records[5:]:
            writer.append(record)
    monitor.refresh()
    followed, read = monitor.run(), load_run(folder)
    assert followed.table.cells == read.table.cells
    assert followed.table.whole == read.table.whole
    assert followed.totals == read.totals


def test_a_run_is_running_then_finished_or_stopped(tmp_path: Path, records: list[Record]) -> None:
    folder = begun_run(tmp_path / "run", records, first=5)
    monitor, seen = RunMonitor(folder), []

    def look() -> None:
        monitor.refresh()
        seen.append(monitor.status)

    def interrupted() -> None:
        with writing(folder) as writer:
            look()
            writer.append(records[5])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    look()
    with writing(folder) as writer:
        for record in records[6:]:
            writer.append(record)
        look()
    look()
    assert seen == ["running", "stopped", "running", "finished"]


def test_a_run_of_another_machine_is_judged_by_its_file(tmp_path: Path, records: list[Record]) -> None:
    folder = begun_run(tmp_path / "run", records, first=5)
    with pytest.raises(KeyboardInterrupt), writing(folder):
        raise KeyboardInterrupt
    manifest, written = read_manifest(folder), (folder / RECORDS).stat().st_mtime
    assert status_of(folder, manifest, written + 5) == "stopped"
    (folder / LOCK).write_text("process 7 on some-other-machine\n")
    assert status_of(folder, manifest, written + 5) == "running"
    assert status_of(folder, manifest, written + 500) == "stopped"


def test_failures_are_told_as_they_happen_and_do_nothing_to_a_terminal(tmp_path: Path, records: list[Record]) -> None:
    folder = begun_run(tmp_path / "run", records)
    monitor = RunMonitor(folder)
    failed = failed_record(records[0].cell)
    outcome = Failure("timeout", "\x1b[2Jowned")
    with writing(folder) as writer:
        writer.append(msgspec.structs.replace(failed, outcome=outcome))
        monitor.refresh()
        (told,) = monitor.failures
        assert str(told) == "niah, length 1k, depth 0%, sample 0: timeout: \\x1b[2Jowned"
        assert monitor.progress().failed == 1


def test_a_sample_that_failed_and_was_answered_later_has_not_failed(tmp_path: Path, records: list[Record]) -> None:
    folder = write_run(tmp_path / "run", [failed_record(records[0].cell), *records[1:]])
    monitor = RunMonitor(folder)
    assert (monitor.progress().done, monitor.progress().failed) == (len(records) - 1, 1)
    with writing(folder) as writer:
        writer.append(records[0])
    monitor.refresh()
    assert (monitor.progress().done, monitor.progress().failed) == (len(records), 0)


# --- how long it takes --------------------------------------------------------------------------


@pytest.mark.parametrize(("fixed", "each"), [(0.5, 0.0), (0.0, 1e-4), (0.3, 2e-5)])
def test_time_left_is_right_whatever_an_answer_waits_for(fixed: float, each: float) -> None:
    """A thousand answers, longest first, four at once: the first half says how long the second takes."""
    lengths = [n for n in (32768, 16384, 8192, 4096, 1024) for _ in range(200)]
    eta, elapsed = Eta(), 0.0
    for length in lengths[:500]:
        eta.add([length], [fixed + each * length])
        elapsed += (fixed + each * length) / 4
    truth = sum(fixed + each * n for n in lengths[500:]) / 4
    assert eta.seconds_left(500, sum(lengths[500:]), elapsed) == pytest.approx(truth, rel=0.01)


def test_nothing_is_said_before_the_first_answer() -> None:
    assert Eta().seconds_left(10, 1000, 5.0) is None


def test_time_left_counts_what_this_session_has_to_ask(tmp_path: Path, records: list[Record]) -> None:
    """Half was answered last year; of the rest, asked now at ten a second, some are left."""
    folder = begun_run(tmp_path / "run", records, first=9)
    monitor = RunMonitor(folder)
    with writing(folder) as writer:
        for record in records[9:13]:
            writer.append(of_now(record, 0.1))
        monitor.refresh()
        progress = monitor.progress(time.time() + 0.2)
    assert progress.asked == 13
    assert progress.tokens_per_second is not None
    assert progress.tokens_per_second > 1000
    assert progress.seconds_left is not None
    assert 0 < progress.seconds_left < 5


def test_a_run_that_stops_by_itself_has_no_planned_number(tmp_path: Path, records: list[Record]) -> None:
    folder = write_run(tmp_path / "run", records)
    manifest = read_manifest(folder)
    ruled = msgspec.structs.replace(manifest, spec=manifest.spec | {"until": "effective"}, planned=8800)
    (folder / "manifest.json").write_bytes(codec.encode_pretty(ruled))
    progress = RunMonitor(folder).progress()
    assert (progress.planned, progress.seconds_left) == (None, None)
    assert progress.describe() == "18 samples"


def test_tables_are_made_only_as_often_as_the_machine_can_spare(tmp_path: Path, records: list[Record]) -> None:
    folder = begun_run(tmp_path / "run", records, first=2)
    clock = iter([0.0, 0.0, 1.0, 1.5, 4.9, 5.1, 5.1, 6.1])
    monitor = RunMonitor(folder, lambda: next(clock))
    first = monitor.run(fresh=False)  # from 0 to 1: one second of computing, so none before four have gone by
    with writing(folder) as writer:
        writer.append(records[2])
        monitor.refresh()
        assert monitor.run(fresh=False) is first
        assert monitor.run(fresh=False) is first
        assert monitor.run(fresh=False).table.whole.done == 3


# --- the screen ---------------------------------------------------------------------------------


def drawn(folder: Path, height: int, **settings: object) -> str:
    console = Console(file=io.StringIO(), width=100, height=height, **settings)  # type: ignore[arg-type]
    monitor = RunMonitor(folder)
    console.print(run_screen(monitor.run(), monitor.progress(), monitor.failures, console, "leave"))
    out = console.file
    assert isinstance(out, io.StringIO)
    return out.getvalue()


def test_the_screen_shows_progress_map_and_failures(
    tmp_path: Path, records: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    folder = write_run(tmp_path / "run", [failed_record(records[0].cell), *records[1:]])
    text = drawn(folder, 40)
    for words in ("sim:planted", "18 of 18 samples, 1 failed", "niah: accuracy in percent", "latest failures", "leave"):
        assert words in text
    blocks = drawn(folder, 40, force_terminal=True, color_system="truecolor", no_color=False)
    assert "48;2;" in blocks, "blocks of colour where the terminal has them"


@pytest.mark.parametrize("height", [16, 24, 40])
def test_the_screen_is_never_taller_than_the_terminal(tmp_path: Path, height: int) -> None:
    tasks = [f"task {n}" for n in range(13)]
    few = list(planted_records(cliff, tasks=tasks, lengths=[1024, 65536], depths=[0.0, 1.0], samples=1))
    folder = write_run(tmp_path / "run", [failed_record(r.cell) if not n else r for n, r in enumerate(few)], samples=1)
    assert len(drawn(folder, height).splitlines()) <= height
