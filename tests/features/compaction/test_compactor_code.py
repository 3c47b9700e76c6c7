"""Compactors of the user: ended in time with all that they started, named where they fail, part of the identity."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from leadline.core.answers import Failure
from leadline.core.errors import OtherRunError
from leadline.core.spec import Spec, make_spec
from leadline.features.compaction.compactors import CompactionFailed, Compactor
from leadline.results.run import load_run
from leadline.run.events import Event, StepProgress
from leadline.run.measure import measure
from leadline.run.plan import prepare
from leadline.text.tokenizers import WhitespaceTokenizer

STARTS_A_CHILD = """#!{python}
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
pathlib.Path({pids!r}).write_text(f"{{os.getpid()}} {{child.pid}}")
{end}
"""


def program(folder: Path, end: str) -> tuple[str, Path]:
    """A program that starts a child, and the file with the ids of both."""
    script, pids = folder / "compact", folder / "pids"
    script.write_text(STARTS_A_CHILD.format(python=sys.executable, pids=str(pids), end=end))
    script.chmod(0o755)
    return str(script), pids


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def all_ended(pids: Path) -> bool:
    """Whether the processes have ended, or end soon: a signal takes its time."""
    for _ in range(100):
        if not any(is_running(int(pid)) for pid in pids.read_text(encoding="utf-8").split()):
            return True
        time.sleep(0.05)
    return False


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")


@needs_proc
def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    command, pids = program(tmp_path, "time.sleep(300)")
    with pytest.raises(CompactionFailed, match="took more than 1 s"):
        Compactor("none", 10, command=command, timeout=1).compact("a b c", WhitespaceTokenizer())
    assert all_ended(pids)


@needs_proc
def test_a_child_that_is_left_behind_holds_up_nothing_and_is_ended(tmp_path: Path) -> None:
    command, pids = program(tmp_path, "print('kept')")
    assert Compactor("none", 10, command=command, timeout=60).compact("a b", WhitespaceTokenizer()).text == "kept"
    assert all_ended(pids)


def test_a_program_that_reads_nothing_and_one_that_writes_bytes_are_no_riddle(tmp_path: Path) -> None:
    session = "word " * 100_000
    assert Compactor("none", 10, command="echo kept").compact(session, WhitespaceTokenizer()).text == "kept"
    with pytest.raises(CompactionFailed, match="not UTF-8"):
        Compactor("none", 10, command="printf '\\377'").compact(session, WhitespaceTokenizer())


def spec_with(tmp_path: Path, **options: Any) -> Spec:
    task = {"name": "compaction", "haystack": "noise", **options}
    return make_spec({"model": "sim:perfect", "tasks": [task], "lengths": [1000], "depths": 1, "samples": 1})


def write_function(folder: Path, body: str) -> str:
    (folder / "mine.py").write_text(f"def compact(text, tokens):\n    {body}\n")
    return f"{folder / 'mine.py'}:compact"


@pytest.mark.parametrize("body", ["raise KeyError('no disk')", "import sys; sys.exit('no disk')"])
def test_a_function_that_fails_is_named_by_the_plan_and_on_the_record(body: str, tmp_path: Path) -> None:
    name = write_function(tmp_path, body)
    spec = spec_with(tmp_path, compactor=name)
    with prepare(spec, planning=True) as plan:
        [note] = [note for note in plan.notes if "will fail" in note]
    assert note.startswith(f"compaction at 1,000 tokens will fail: {name}: the compactor failed: ")
    assert "no disk" in note
    [record] = load_run(measure(spec, tmp_path / "run").folder).records
    assert isinstance(record.outcome, Failure)
    assert record.outcome.message.startswith(f"{name}: the compactor failed: ")


def test_a_program_that_fails_is_named_by_the_plan_with_its_last_words(tmp_path: Path) -> None:
    script = tmp_path / "mine.sh"
    script.write_text("#!/bin/sh\necho no >&2\necho disk >&2\nexit 3\n")
    script.chmod(0o755)
    with prepare(spec_with(tmp_path, command=str(script)), planning=True) as plan:
        [note] = [note for note in plan.notes if "will fail" in note]
    assert note.endswith(f"{script}: the compactor ended with status 3: no disk")


@pytest.mark.parametrize("kind", ["function", "program", "program of an interpreter", "model"])
def test_another_code_of_a_compactor_is_another_run(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ("mine.sh" if "program" in kind else "mine.py")
    options: dict[str, Any]
    texts = ["#!/bin/sh\nhead -c 500\n", "#!/bin/sh\nhead -c 600\n"]
    if kind == "function":
        texts = [f"def compact(text, tokens):\n    return text[:{n}]\n" for n in (500, 600)]
        options = {"compactor": f"{path}:compact"}
    elif kind == "model":
        texts = [f"def sums_up(prompt):\n    return prompt[:{n}]\n" for n in (500, 600)]
        options = {"compactor": "compact:prompt", "compactor_model": f"{path}:sums_up"}
    else:
        options = {"command": str(path) if kind == "program" else f"/bin/sh {path}"}
    path.write_text(texts[0])
    path.chmod(0o755)
    spec = spec_with(tmp_path, **options)
    first = measure(spec, tmp_path / "run")
    assert measure(spec, tmp_path / "run").folder == first.folder
    path.write_text(texts[1])
    with pytest.raises(OtherRunError, match="mine"):
        measure(spec, tmp_path / "run")


def test_the_file_of_a_function_is_run_once_for_all_sessions(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\n"
        f"with open({str(tmp_path / 'runs')!r}, 'a') as file:\n    file.write('x')\n"
        "def compact(text, tokens):\n    return text[:100]\n"
    )
    compactor = Compactor(f"{tmp_path / 'mine.py'}:compact", 10)
    for session in ("a " * 100, "b " * 100, "c " * 100):
        compactor.compact(session, WhitespaceTokenizer())
    assert (tmp_path / "runs").read_text() == "x"


def test_the_sessions_of_the_plan_are_compacted_once(tmp_path: Path) -> None:
    script = tmp_path / "mine.sh"
    script.write_text(f"#!/bin/sh\necho x >> {tmp_path / 'calls'}\nhead -c 500\n")
    script.chmod(0o755)
    run = load_run(measure(spec_with(tmp_path, command=str(script)), tmp_path / "run").folder)
    assert run.totals.asked == 1
    assert (tmp_path / "calls").read_text().count("x") == 1


@pytest.mark.parametrize("at_once", [False, True])
def test_a_plan_counts_the_sessions_that_it_has_compacted(tmp_path: Path, at_once: bool) -> None:
    script = tmp_path / "compact"
    script.write_text("#!/bin/sh\nhead -c 200\n")
    script.chmod(0o755)
    options = {"compactor": "compact:tail"} if at_once else {"command": str(script)}
    tasks: list[Any] = ["niah_single_1", {"name": "compaction", **options}]
    heard: list[Event] = []
    with prepare(make_spec({"model": "sim:perfect", "tasks": tasks, "lengths": "1k,2k"}), listen=heard.append):
        steps = [(step.text, step.done, step.total) for step in heard if isinstance(step, StepProgress)]
    counted = [(f"compacting session {number} of 2", done, 2) for number, done in ((1, 0), (2, 1), (2, 2))]
    assert steps == ([] if at_once else counted)
