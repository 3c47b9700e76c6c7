"""Run folders: nothing recorded is lost, nothing foreign is touched, one writer at a time."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from leadline.core.answers import Completion, Measurement, Outcome
from leadline.core.errors import LockedError, OtherRunError, StoreError, UnreadableRecord
from leadline.core.secrets import redact, remember
from leadline.core.types import Cell
from leadline.store.files import replace_file
from leadline.store.lock import LOCK
from leadline.store.manifest import command_line, read_manifest, session
from leadline.store.runs import OLD_FORMAT, PROMPTS, RECORDS, UnreadableLine, count_done, encode, open_run, read_records
from support.plain_records import manifest, record
from support.planted_runs import perfect, planted_records


def test_records_are_on_disk_when_append_returns(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", manifest()) as writer:
        writer.append(record(0))
        assert [r.cell.sample for r in read_records(tmp_path / "run")] == [0]


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    with open_run(tmp_path, manifest()) as writer:
        assert writer.done == frozenset()
        writer.append(record(0))
        writer.append(record(1, failed=True))
    with open_run(tmp_path, manifest()) as writer:
        assert writer.done == {record(0).cell.key}
        assert writer.failed == {record(1).cell.key}
    assert len(read_manifest(tmp_path).sessions) == 2


def test_the_newest_record_of_a_cell_wins_and_a_failure_is_not_done(tmp_path: Path) -> None:
    with open_run(tmp_path, manifest()) as writer:
        writer.append(record(0, failed=True))
        writer.append(record(1))
        writer.append(record(0, text="later"))
    found = {r.cell.sample: r.outcome for r in read_records(tmp_path)}
    assert found == {0: Completion("later"), 1: Completion("42")}
    assert count_done(tmp_path) == (2, 0)


@pytest.mark.parametrize("cut", [1, 7, 100])
def test_a_torn_last_line_is_cut_off_and_the_rest_kept(tmp_path: Path, cut: int) -> None:
    with open_run(tmp_path, manifest()) as writer:
        writer.append(record(0))
        writer.append(record(1))
    path = tmp_path / RECORDS
    whole = path.read_bytes()
    second = whole.index(b"\n") + 1
    path.write_bytes(whole[: len(whole) - 1 - cut])
    assert [r.cell.sample for r in read_records(tmp_path)] == [0]  # a reader passes over it ...
    with open_run(tmp_path, manifest()) as writer:  # ... and the writer repairs it
        assert writer.torn_bytes == len(whole) - 1 - cut - second
        assert writer.done == {record(0).cell.key}
        writer.append(record(1))
    assert path.read_bytes() == whole


def test_a_whole_record_that_lost_only_its_line_break_is_kept(tmp_path: Path) -> None:
    with open_run(tmp_path, manifest()) as writer:
        writer.append(record(0))
    path = tmp_path / RECORDS
    path.write_bytes(path.read_bytes()[:-1])
    with open_run(tmp_path, manifest()) as writer:
        assert writer.torn_bytes == 0
        assert len(writer.done) == 1
        writer.append(record(1))
    assert [r.cell.sample for r in read_records(tmp_path)] == [0, 1]


def test_a_tail_of_zero_bytes_after_a_power_cut_is_a_torn_line(tmp_path: Path) -> None:
    with open_run(tmp_path, manifest()) as writer:
        writer.append(record(0))
    with (tmp_path / RECORDS).open("ab") as file:
        file.write(b"\0" * 300)
    with open_run(tmp_path, manifest()) as writer:
        assert writer.torn_bytes == 300
        assert len(writer.done) == 1


@pytest.mark.parametrize("bad", ["{nonsense}", "[[[", '"text"', "BOOLEAN", "LATIN"])
def test_a_line_that_cannot_be_read_is_named_set_aside_and_asked_again(tmp_path: Path, bad: str) -> None:
    with open_run(tmp_path, manifest()) as writer:
        for sample in range(3):
            writer.append(record(sample))
    path = tmp_path / RECORDS
    lines = path.read_bytes().splitlines(keepends=True)
    line = {
        "BOOLEAN": lines[1].replace(b'"attempts":1', b'"attempts":true'),
        "LATIN": lines[1].replace(b'"42"', b'"\xe9"'),
    }.get(bad, bad.encode() + b"\n")
    path.write_bytes(lines[0] + line + lines[2])
    unreadable: list[UnreadableLine] = []
    assert [r.cell.sample for r in read_records(tmp_path, unreadable)] == [0, 2]
    assert [one.number for one in unreadable] == [2]
    assert count_done(tmp_path) == (2, 0)
    with open_run(tmp_path, manifest()) as writer:
        assert writer.done == {record(0).cell.key, record(2).cell.key}
        assert (writer.torn_bytes, [one.number for one in writer.unreadable]) == (0, [2])
        writer.append(record(1))
    assert sorted(r.cell.sample for r in read_records(tmp_path)) == [0, 1, 2]


def test_a_damaged_newer_line_does_not_hide_the_record_that_the_run_goes_on_with(tmp_path: Path) -> None:
    with open_run(tmp_path, manifest()) as writer:
        writer.append(record(0))
        writer.append(record(1))
    path = tmp_path / RECORDS
    newer = path.read_bytes().splitlines(keepends=True)[0].replace(b'"attempts":1', b'"attempts":true')
    path.write_bytes(path.read_bytes() + newer)
    with open_run(tmp_path, manifest()) as writer:
        assert writer.done == {record(0).cell.key, record(1).cell.key}
    unreadable: list[UnreadableLine] = []
    assert [r.cell.sample for r in read_records(tmp_path, unreadable)] == [0, 1]
    assert [one.number for one in unreadable] == [3]


def test_the_cell_of_a_line_is_found_however_it_is_written(tmp_path: Path) -> None:
    """Lines of `encode` are read no further than the cell to find the newest; others in full."""
    first, second, third = planted_records(perfect, lengths=(1024,), depths=(0.5,), samples=3)
    fields = msgspec.json.decode(encode(first))
    backwards = msgspec.json.encode(dict(reversed(fields.items()))) + b"\n"
    nested = msgspec.json.encode({"x": {"y": 1}, "reading": "fresh"} | fields) + b"\n"
    tail = encode(third)[:-40] + b"\n"
    lines = [encode(first), encode(second), encode(third), backwards, nested, tail]
    (tmp_path / "records.jsonl").write_bytes(b"".join(lines))
    unreadable: list[UnreadableLine] = []
    read = list(read_records(tmp_path, unreadable))
    assert read == [second, third, first]
    assert [line.number for line in unreadable] == [6]


def test_a_damaged_line_is_named_also_where_a_newer_record_replaces_it(tmp_path: Path) -> None:
    with open_run(tmp_path, manifest()) as writer:
        for sample in (0, 1, 0, 1):
            writer.append(record(sample))
    path = tmp_path / RECORDS
    first, *others = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first.replace(b'"attempts":1', b'"attempts":true') + b"".join(others))
    unreadable: list[UnreadableLine] = []
    assert [r.cell.sample for r in read_records(tmp_path, unreadable)] == [0, 1]
    assert [one.number for one in unreadable] == [1]


def test_records_that_are_replaced_while_they_are_read_are_read_as_they_were(tmp_path: Path) -> None:
    with open_run(tmp_path, manifest()) as writer:
        for sample in range(3):
            writer.append(record(sample))
    path = tmp_path / RECORDS
    path.write_bytes(path.read_bytes() + b"{nonsense}\n")

    class Rescoring(list[UnreadableLine]):
        """Replaces the file when its last line has been looked at."""

        def append(self, line: UnreadableLine) -> None:
            replace_file(path, b"".join(encode(record(sample, text="another answer")) for sample in range(3)))

    assert [r.outcome for r in read_records(tmp_path, Rescoring())] == [Completion("42")] * 3


@pytest.mark.parametrize(
    "outcome",
    [
        Completion("42", prompt_tokens=True),
        Completion("42", prompt_tokens="960"),  # type: ignore[arg-type]
        Completion(None),  # type: ignore[arg-type]
        Measurement({"nll": math.nan}),
    ],
)
def test_what_could_not_be_read_back_is_not_written(tmp_path: Path, outcome: Outcome) -> None:
    with open_run(tmp_path, manifest()) as writer:
        with pytest.raises(UnreadableRecord):
            writer.append(msgspec.structs.replace(record(0), outcome=outcome))
        writer.append(record(1))
    assert [r.cell.sample for r in read_records(tmp_path)] == [1]


def _delete(path: Path) -> None:
    path.unlink()


def _shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _replace(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)


def _delete_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def _write_to(path: Path) -> None:
    """A second run, for which someone has removed the lock."""
    (path.parent / LOCK).unlink()
    with open_run(path.parent, manifest()) as second:
        second.append(record(1))


@pytest.mark.parametrize("damage", [_delete, _shorten, _replace, _delete_folder, _write_to])
def test_records_that_someone_damages_while_they_are_written_are_noticed_at_once(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    for notice in ("append", "sync", "end"):
        writer = open_run(tmp_path / notice, manifest())
        writer.append(record(0))
        damage(tmp_path / notice / RECORDS)
        act: dict[str, Callable[[], None]] = {"append": partial(writer.append, record(1)), "sync": writer.sync}
        with pytest.raises(StoreError, match=RECORDS):
            act.get(notice, partial(writer.close, ended=True))()
        if notice != "end":
            writer.close()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"spec": {"model": "sim:perfect", "samples": 2, "tasks": [{"name": "niah", "options": {}}]}}, "spec.samples"),
        ({"fingerprints": {"model.tokenizer": "t2", "task.niah.version": "1"}}, "model.tokenizer is 't1' there"),
        ({"fingerprints": {"model.tokenizer": "t1"}}, "task.niah.version is '1' there and absent here"),
        (
            {"spec": {"model": "sim:perfect", "samples": 3, "tasks": [{"name": "niah", "options": {"keys": 4}}]}},
            "tasks[0].options.keys is absent there and 4 here",
        ),
    ],
)
def test_a_folder_of_another_run_is_refused_and_the_difference_named(
    tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    open_run(tmp_path, manifest()).close()
    with pytest.raises(OtherRunError) as refused:
        open_run(tmp_path, manifest(**changes))
    assert named in refused.value.what
    assert refused.value.exit_code == 73


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(OtherRunError, match="holds no run"):
        open_run(tmp_path, manifest())
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_a_damaged_manifest_and_one_from_the_future_are_errors(tmp_path: Path) -> None:
    open_run(tmp_path, manifest()).close()
    path = tmp_path / "manifest.json"
    later = json.loads(path.read_text()) | {"version": 99}
    path.write_text(json.dumps(later))
    with pytest.raises(StoreError, match="newer Leadline"):
        read_manifest(tmp_path)
    path.write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        open_run(tmp_path, manifest())


HOLD = """
import sys
from pathlib import Path
from leadline.store.lock import Lock
lock = Lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_kept_out_and_told_who_is_in(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockedError, match=f"process {holder.pid} on ") as refused:
            open_run(tmp_path, manifest())
        assert refused.value.exit_code == 75
        holder.kill()  # kill -9: the system itself drops the lock
        holder.wait()
    open_run(tmp_path, manifest()).close()


def test_many_threads_append_whole_lines(tmp_path: Path) -> None:
    with open_run(tmp_path, manifest()) as writer:

        def write(first: int) -> None:
            for sample in range(first, first + 50):
                writer.append(record(sample, text="x" * 5000))

        threads = [threading.Thread(target=write, args=(n * 50,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(r.cell.sample for r in read_records(tmp_path)) == list(range(400))


FILL = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from leadline.core.errors import StoreError
from leadline.store.runs import open_run
from support.plain_records import manifest, record
from support.planted_runs import perfect, planted_records
writer = open_run(Path(sys.argv[1]), manifest())
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
for sample in range(100):
    try:
        writer.append(record(sample, text="x" * 700))
    except StoreError:
        break
    print(sample, flush=True)
try:
    writer.append(record(99))
except StoreError as error:
    print("still full", error.fix, flush=True)
"""


def test_a_disk_that_is_full_loses_nothing_that_was_recorded(tmp_path: Path) -> None:
    """The system's own limit on a file's size stops a write half-way, as a full disk does."""
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(tmp_path), str(Path(__file__).parents[1])],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    *written, last = done.stdout.splitlines()
    assert "still full free some disk space" in last
    assert 5 < len(written) < 100
    assert (tmp_path / RECORDS).read_bytes().endswith(b"}\n")
    assert [r.cell.sample for r in read_records(tmp_path)] == [int(n) for n in written]


def test_prompts_are_kept_as_text_files_named_by_their_cell(tmp_path: Path) -> None:
    with open_run(tmp_path, manifest()) as writer:
        writer.keep_prompt(Cell("a/b[x=1]", 1024, 0.5, 2), "the whole prompt")
    assert (tmp_path / PROMPTS / "a-b-x=1-1024-0.5000-2.txt").read_text() == "the whole prompt"


def test_a_kept_prompt_holds_no_key_in_use(tmp_path: Path) -> None:
    remember("zq-planted-0123456789")
    with open_run(tmp_path, manifest()) as writer:
        writer.keep_prompt(Cell("a", 1024, 0.5, 2), "a haystack with zq-planted-0123456789 in it")
    assert (tmp_path / PROMPTS / "a-1024-0.5000-2.txt").read_text() == "a haystack with *** in it"


def test_a_folder_that_cannot_be_made_is_an_error_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot make the run's folder"):
        open_run(tmp_path / "file" / "run", manifest())


def test_secrets_are_blotted_out_of_command_lines_and_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret-1")
    shown = command_line(
        [
            "/opt/x/bin/leadline",
            "run",
            "--model",
            "openai:m?base_url=http://me:pass@h/v1&api_key=abc",
            "sk-very-secret-1",
        ]
    )
    assert shown.startswith("leadline run --model")
    for secret in ("pass@", "abc", "sk-very-secret-1"):
        assert secret not in shown
    assert redact("wrong key sk-very-secret-1 given") == "wrong key *** given"
    assert redact("tokenizer=bytes&max_tokens=5") == "tokenizer=bytes&max_tokens=5"


def test_the_session_names_versions_and_no_folder_of_this_machine() -> None:
    made = session(["/somewhere/bin/leadline", "run"])
    assert made.command == "leadline run"
    assert {"numpy", "msgspec"} <= set(made.packages)
    assert os.fspath(Path.home()) not in made.command


def test_what_a_killed_process_left_half_written_is_removed_when_the_run_is_opened_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with open_run(folder, manifest()):
        pass
    for name in (".manifest.json.4711", ".records.jsonl.12", ".rescoring.3"):
        (folder / name).write_text("half")
    (folder / ".notes.md").write_text("a file of the user")
    with open_run(folder, manifest()):
        pass
    assert sorted(p.name for p in folder.iterdir() if p.name.startswith(".")) == [".notes.md"]


def test_an_interrupted_replacement_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        replace_file(tmp_path / "manifest.json", b"{}")
    assert list(tmp_path.iterdir()) == []


def test_records_of_format_1_are_named_as_such_and_not_as_damaged(tmp_path: Path) -> None:
    (tmp_path / RECORDS).write_bytes(b'{"version":1,"cell":{"task":"niah","length":1024,"depth":0.5,"sample":0}}\n')
    unreadable: list[UnreadableLine] = []
    assert list(read_records(tmp_path, unreadable)) == []
    assert [line.why for line in unreadable] == [OLD_FORMAT]
