"""From options to a Spec: a file, a suite and flags give the same one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from leadline.cli.main import run_command
from leadline.console.options import RunOptions, spec_of
from leadline.console.output import DEFAULT_THRESHOLD, print_table
from leadline.core import registry
from leadline.core.errors import UnknownName, UsageError
from leadline.core.spec import Spec, Suite
from leadline.models.sim.model import JUDGE, NEVER_RIGHT, SHAPES
from leadline.stats.effective import RULER_THRESHOLD
from leadline.stats.ruler_summary import THRESHOLD
from support.fake_server import FakeServer, Kind

MINE = '''
"""A task of one's own."""
from leadline.tasks.niah import Needle

class Mine(Needle):
    """Needles, but mine."""
    shade: str = "blue"
'''


def spec(what: str | None = "niah", model: str | None = "sim:perfect", **flags: Any) -> Spec:
    return spec_of(RunOptions(what=what, model=model, **flags))


def test_a_file_and_flags_give_the_same_spec(tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(
        """
        model = "sim:perfect"
        lengths = ["4k", 8192]
        depths = "0,0.5,1"
        samples = 2
        reading = "shared"
        seed = 3
        [[tasks]]
        name = "niah"
        keys = 4
        haystack = "noise"
        [limits]
        workers = 2
        """
    )
    from_file = spec(str(path), model=None)
    from_flags = spec(
        lengths="4k,8k", depths="3", samples=2, reading="shared", seed=3, workers=2,
        set_=["keys=4", "haystack=noise"],
    )  # fmt: skip
    assert from_file == from_flags
    assert from_file.digest == from_flags.digest


def test_flags_override_a_file(tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_text('model = "sim:perfect"\ntasks = ["niah"]\nlengths = "4k"\nsamples = 9\n[limits]\nattempts = 2\n')
    made = spec(str(path), model="sim:cliff", samples=1, workers=3)
    assert (made.model, made.samples, made.lengths) == ("sim:cliff", 1, (4096,))
    assert (made.limits.workers, made.limits.attempts) == (3, 2)


def test_flags_override_a_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        def load(self) -> Suite:
            return Suite(name="tiny", summary="two lengths", values={"tasks": ["niah"], "lengths": "1k,2k"})

    points = {"tiny": Point()}
    real = registry._points
    monkeypatch.setattr(registry, "_points", lambda kind: points if kind == "suites" else real(kind))
    assert spec("tiny").lengths == (1024, 2048)
    assert spec("tiny", lengths="4k").lengths == (4096,)


def test_limits_are_not_part_of_the_identity() -> None:
    assert spec(workers=1, attempts=1, timeout=5.0).digest == spec().digest
    assert spec(samples=4).digest != spec().digest


def test_a_list_of_values_sweeps_and_each_gets_a_label() -> None:
    made = spec(set_=["keys=2,4", "values=1,3", "haystack=noise"])
    assert [t.title for t in made.tasks] == [
        "niah[keys=2,values=1]", "niah[keys=2,values=3]", "niah[keys=4,values=1]", "niah[keys=4,values=3]",
    ]  # fmt: skip
    assert made.tasks[1].options == {"keys": 2, "values": 3, "haystack": "noise"}


@pytest.mark.parametrize(
    ("setting", "options"),
    [
        ("haystack=prose:0.5,code:0.5", [{"haystack": "prose:0.5,code:0.5"}]),
        ('haystack="a, b",noise', [{"haystack": "a, b"}, {"haystack": "noise"}]),
        ("repeat=true", [{"repeat": True}]),
        ("spread=0.1,0.2", [{"spread": 0.1}, {"spread": 0.2}]),
        ("spread=[0.1, 0.2]", [{"spread": 0.1}, {"spread": 0.2}]),
        ('haystack=["noise", "prose"]', [{"haystack": "noise"}, {"haystack": "prose"}]),
    ],
)
def test_values_sweep_and_mixtures_and_quotes_keep_their_commas(setting: str, options: list[dict[str, Any]]) -> None:
    assert [t.options for t in spec(set_=[setting]).tasks] == options


ESSAY_TASKS = {"niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multivalue", "niah_multiquery"}


@pytest.mark.parametrize("suite", ["ruler", "ruler-quick", "ruler-1m", "ruler-original"])
def test_essays_reach_the_tasks_that_use_essays_and_no_other(suite: str) -> None:
    plain, with_essays = spec(suite).tasks, spec(suite, set_=["essays=essays.txt"]).tasks
    for before, after in zip(plain, with_essays, strict=True):
        own = {"haystack": "essays.txt"} if before.name in ESSAY_TASKS else {}
        assert after.options == {**before.options, **own}


@pytest.mark.parametrize("suite", ["ruler", "ruler-quick", "ruler-1m", "ruler-original"])
def test_an_option_that_would_make_a_preset_another_task_is_refused(suite: str) -> None:
    with pytest.raises(UsageError) as caught:
        spec(suite, set_=["haystack=essays.txt"])
    for name in ("niah_single_1", "niah_multikey_2", "niah_multikey_3", "vt"):
        assert name in caught.value.what
    assert "niah_single_2" not in caught.value.what
    assert "--set essays=essays.txt" in (caught.value.fix or "")
    with pytest.raises(UsageError, match="keys=8 would make niah_single_1, "):
        spec(suite, set_=["keys=8"])


def test_the_option_of_a_preset_is_changed_by_the_name_of_its_task() -> None:
    tasks = {task.name: task.options for task in spec("ruler", set_=["niah_multikey_2.haystack=noise"]).tasks}
    assert tasks["niah_multikey_2"]["haystack"] == "noise"
    assert "haystack" not in tasks["niah_single_1"]
    assert spec("niah_multikey_2", set_=["haystack=noise"]).tasks[0].options == {"haystack": "noise"}


def test_a_setting_of_a_suite_is_refused_where_no_task_uses_it() -> None:
    with pytest.raises(UsageError, match="none of the tasks uses essays"):
        spec("ruler", task=["cwe", "fwe"], set_=["essays=essays.txt"])
    with pytest.raises(UnknownName):
        spec("niah", set_=["essays=essays.txt"])


def test_lists_are_lists_and_text_keeps_its_commas() -> None:
    own = ["needle=On a sunny day, the cat sat on it.", "question=Who sat, and where?"]
    for answers in ("answers=cat,the cat", 'answers=["cat", "the cat"]'):
        (task,) = spec("niah_own", set_=[*own, answers]).tasks
        assert task.options["answers"] == ["cat", "the cat"]
        assert task.options["needle"] == "On a sunny day, the cat sat on it."


def test_several_tasks_may_be_given_also_from_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    made = spec(task=[f"{path}:Mine"], set_=['shade=["red", "green"]'])
    assert [t.title for t in made.tasks] == ["niah", "Mine[shade=red]", "Mine[shade=green]"]
    assert [t.title for t in spec(f"{path}:Mine").tasks] == ["Mine"]
    assert [t.title for t in spec(None, task=["niah"]).tasks] == ["niah"]
    assert [t.title for t in spec("niah,vt").tasks] == ["niah", "vt"]
    assert [t.title for t in spec(None, task=["niah,vt", f"{path}:Mine"]).tasks] == ["niah", "vt", "Mine"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"what": "nia"}, "did you mean 'niah'"),
        ({"set_": ["kyes=2"]}, "did you mean 'keys'?"),
        ({"set_": ["keys"]}, "write --set keys=4"),
        ({"set_": ["=4"]}, "write --set keys=4"),
        ({"what": "niah_own", "set_": ["answers=[x]"]}, "quote it for the shell"),
        ({"set_": ["answers=18"]}, "name niah_own in place of this task"),
        ({"set_": ["keys=[]"]}, "write --set keys=VALUE"),
        ({"model": None}, "add --model"),
        ({"lengths": "4q"}, "write 4096, 4k"),
        ({"depths": "0,1.5"}, "write 0.5 for the middle"),
        ({"samples": 0}, None),
        ({"reading": "twice"}, None),
        ({"set_": ["keys=many"]}, None),
        ({"task": ["niah"]}, None),
        ({"what": "no-such-file.toml"}, None),
    ],
)
def test_wrong_values_are_usage_errors_with_a_fix(flags: dict[str, Any], said: str | None) -> None:
    with pytest.raises(UsageError) as refused:
        spec(**flags)
    assert refused.value.exit_code == 64
    if said is not None:
        assert said in refused.value.fix


def test_an_unknown_key_in_a_file_suggests_the_closest_key(tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_text('model = "sim:perfect"\ntasks = ["niah"]\nlenghts = "4k"\n')
    with pytest.raises(UnknownName) as refused:
        spec(str(path))
    assert (refused.value.what, refused.value.fix) == ("unknown key 'lenghts'", "did you mean 'lengths'?")
    assert str(path) in refused.value.where


# --- what helps


@pytest.mark.parametrize(
    ("kind", "flag"), [("vllm", " (--max-model-len 4096)"), ("llamacpp", " (--ctx-size 4096)"), ("plain", "")]
)
def test_a_refused_length_is_answered_by_shorter_lengths_or_the_flag_of_the_server(
    kind: Kind, flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server states no window, or a wrong one, and refuses what is longer than it can read."""
    with FakeServer(kind=kind, window=2048) as server:
        model = f"openai:fake?base_url={server.base_url}&tokenizer=bytes&window=8k"
        grid = [
            "--lengths",
            "1k,2k,4k",
            "--depths",
            "1",
            "--samples",
            "1",
            "--no-figure",
            "--out",
            str(tmp_path / "run"),
        ]
        assert run_command(["run", "niah", "--model", model, *grid]) == 1
    said = capsys.readouterr().err.replace("\n", " ")
    fix = said.partition("fix:")[2].strip()
    assert fix.startswith(f"ask --lengths 1k,2k, or start the server with a longer context{flag}; then run the same")


def test_an_interval_of_one_document_is_not_printed_as_infinite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "mean_nll", "--model", "sim:perfect", "--lengths", "512,1k", "--samples", "1", "--no-figure"]
    for name in ("one", "two"):
        assert run_command([*words, "--out", str(tmp_path / name)]) == 0
    assert run_command(["report", str(tmp_path / "one"), str(tmp_path / "two"), "-o", str(tmp_path / "p.html")]) == 0
    said = capsys.readouterr().out
    assert "not known" in said
    assert "inf" not in said.replace("infinit", "").replace("inform", "")


def test_a_second_task_as_an_argument_is_answered_with_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", "niah", "kv", "--model", "sim:perfect"]) == 64
    assert "--task kv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"samples": 0}, "must be at least 1"), ({"lenghts": "1k"}, "'lengths'"), ({"reading": "freshh"}, "'fresh'")],
)
def test_a_wrong_spec_in_python_is_an_error_in_plain_words(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Spec(**({"model": "sim:perfect", "tasks": "niah", "lengths": "1k"} | wrong))
    assert said in f"{caught.value.what} {caught.value.fix}"


def test_the_catalogue_names_every_simulated_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["models", "show", "sim"]) == 0
    shown = capsys.readouterr().out
    assert all(f"sim:{name} " in shown for name in (*SHAPES, *NEVER_RIGHT, JUDGE))


def test_tables_are_wrapped_in_a_terminal_and_one_line_a_row_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("keys", "words that are long enough to need a second line in a narrow terminal"), ("no", "short")]
    print_table(rows, ("option", "help"))
    assert len(capsys.readouterr().out.splitlines()) == 3
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "50")
    print_table(rows, ("option", "help"))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 50
    assert " ".join(" ".join(lines[1:3]).split()) == " ".join(rows[0])
    assert lines[2].startswith(" " * len("option  ")), "under its column"
    assert lines[3] == "no      short"


def test_every_command_has_rulers_threshold() -> None:
    assert pytest.approx(100 * RULER_THRESHOLD) == DEFAULT_THRESHOLD == THRESHOLD


def test_a_sweep_over_an_option_that_a_suite_sweeps_takes_its_place() -> None:
    """Not three tasks for each of the suite's three, with two compactors in their names."""
    titles = [task.title for task in spec("agents-quick", set_=["compactor=compact:tail,none"]).tasks]
    assert titles[-2:] == ["compaction[compactor=compact:tail]", "compaction[compactor=none]"]
    assert sum("compaction" in title for title in titles) == 2
    one = spec("agents-quick", set_=["compactor=compact:tail"]).tasks[-1]
    assert (one.title, one.options) == ("compaction[compactor=compact:tail]", {"compactor": "compact:tail"})
