"""Mistakes of new users: what they typed, and the fix that the error has to name."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from support.commands import Say

SIM = ("--model", "sim:perfect")


class Mistake(NamedTuple):
    words: tuple[str, ...]
    what: str
    """In the first line."""
    fix: str
    """In the last line."""
    file: str = ""
    """The text of spec.toml, where there is one."""


MISTAKES = {
    # names
    "a task that is misspelt": Mistake(("run", "nia", *SIM), "unknown suite or task 'nia'", "'niah'"),
    "a command that is misspelt": Mistake(("rnu",), "unknown command 'rnu'", "'run'"),
    "a suite as a command": Mistake(("longbench",), "not a command", "leadline run longbench --model MODEL"),
    "a task as a command": Mistake(("niah",), "not a command", "leadline run niah --model MODEL"),
    "a provider that is misspelt": Mistake(("run", "niah", "--model", "opnai:m"), "opnai", "did you mean 'openai'?"),
    "a model's bare name": Mistake(("run", "niah", "--model", "gpt-5"), "'gpt-5' is not a model", "PROVIDER:NAME"),
    "a simulated model that is misspelt": Mistake(("run", "niah", "--model", "sim:perfct"), "perfct", "'perfect'"),
    "an option of a model that is misspelt": Mistake(
        ("run", "niah", "--model", "sim:cliff?windw=4k"), "windw", "'window'"
    ),
    "an option of a task that is misspelt": Mistake(("run", "niah", *SIM, "--set", "kyes=3"), "kyes", "'keys'"),
    # flags
    "a model without its option": Mistake(
        ("run", "niah", "sim:perfect"), "given with --model", "write --model sim:perfect"
    ),
    "no model": Mistake(("run", "niah"), "no model given", "add --model"),
    "two tasks without a comma": Mistake(("run", "niah", "vt", *SIM), "not expected: vt", "--task niah --task vt"),
    "--suite": Mistake(("run", "--suite", "ruler", *SIM), "no such option: --suite", "leadline run SUITE"),
    "--tasks of another tool": Mistake(("run", "--tasks", "niah", *SIM), "--tasks", "--task"),
    "--limit of another tool": Mistake(("run", "niah", *SIM, "--limit", "3"), "--limit", "--samples"),
    "--base-url of another tool": Mistake(("run", "niah", "--base-url", "http://x"), "--base-url", "base_url=URL"),
    "a length with another unit": Mistake(("run", "niah", *SIM, "--lengths", "4q"), "'4q' is not a length", "4096, 4k"),
    "a depth in percent": Mistake(("run", "niah", *SIM, "--depths", "0,50,100"), "outside the document", "0.5"),
    "samples in words": Mistake(("run", "niah", *SIM, "--samples", "three"), "--samples", "--help"),
    "a reading that does not exist": Mistake(("run", "niah", *SIM, "--reading", "share"), "share", "'shared'"),
    "a time without a unit that is known": Mistake(("run", "niah", *SIM, "--time", "soon"), "is not a time", "10min"),
    "a length that is too short": Mistake(("run", "niah", *SIM, "--lengths", "90"), "cannot hold", "shortest length"),
    "thinking of a model without it": Mistake(
        ("run", "niah", *SIM, "--thinking", "on"), "no setting for thinking", "leave it out"
    ),
    "a budget without prices": Mistake(("run", "niah", *SIM, "--budget", "2usd"), "needs prices", "--prices FILE"),
    # servers
    "a server that is not there": Mistake(
        ("run", "--model", "http://127.0.0.1:9"), "no OpenAI-compatible server", "check the port"
    ),
    # files
    "task instead of tasks": Mistake(
        ("run", "spec.toml"), "unknown key 'task'", "'tasks'", 'model="sim:perfect"\ntask="niah"'
    ),
    "lengths without quotes": Mistake(
        ("run", "spec.toml", *SIM), "not TOML", 'lengths = "1k,2k"', 'tasks="niah"\nlengths=[1k, 2k]'
    ),
    "a spec that is not there": Mistake(("run", "spec.toml", *SIM), "No such file", "check the path"),
    "an --out that holds no files": Mistake(
        ("run", "niah", *SIM, "--lengths", "1k", "--out", "/proc/x"), "no files can be kept", "--out"
    ),
    "a report of a folder without a run": Mistake(("report", "."), "holds no run", "leadline run"),
    # what else was seen
    "two models": Mistake(("run", "niah", *SIM, "--model", "sim:cliff"), "--model", "--models"),
    "a length of zero": Mistake(("run", "niah", *SIM, "--lengths", "0"), "length 0 needs another", 'write "0,4k,32k"'),
    "an empty list of lengths": Mistake(("run", "niah", *SIM, "--lengths", ","), "length", "4096, 4k"),
    "a range of lengths": Mistake(("run", "niah", *SIM, "--lengths", "1k-8k"), "'1k-8k' is not a length", "4096, 4k"),
    "no depths": Mistake(("run", "niah", *SIM, "--depths", "0"), "depths", "1"),
    "a negative number of samples": Mistake(
        ("run", "niah", *SIM, "--samples", "-1"), "samples: must be at least 1", "samples"
    ),
    "a value of an option in words": Mistake(
        ("run", "niah", *SIM, "--set", "keys=many"), "keys: expected a whole number", "keys planted"
    ),
    "--set without a value": Mistake(("run", "niah", *SIM, "--set", "keys"), "keys", "keys=4"),
    "a haystack that does not exist": Mistake(
        ("run", "niah", *SIM, "--set", "haystack=pros"), "no haystack 'pros'", "prose"
    ),
    "a scorer that is misspelt": Mistake(("run", "niah", *SIM, "--set", "scorers=mach"), "mach", "'match.any'"),
    "a rule that is misspelt": Mistake(("run", "niah", *SIM, "--until", "efective"), "efective", "write effective"),
    "a budget without a currency": Mistake(("run", "niah", *SIM, "--budget", "two"), "two", "20usd"),
    "prices that are not there": Mistake(("run", "niah", *SIM, "--prices", "p.toml"), "No such file", "price-files.md"),
    "--model_args of another tool": Mistake(("run", "niah", "--model_args", "pretrained=x"), "--model_args", "hf:"),
    "--max-connections of another tool": Mistake(
        ("run", "niah", *SIM, "--max-connections", "4"), "--max-connections", "--workers"
    ),
    "--batch-size of another tool": Mistake(("run", "niah", *SIM, "--batch-size", "4"), "--batch-size", "--workers"),
    "--temperature as an option": Mistake(
        ("run", "niah", *SIM, "--temperature", "0.7"), "--temperature", "openai:NAME?temperature=T"
    ),
    "--api-key as an option": Mistake(("run", "niah", *SIM, "--api-key", "x"), "--api-key", "OPENAI_API_KEY"),
    "--output of another tool": Mistake(("run", "niah", *SIM, "--output", "x"), "--output", "--out"),
    "eval of another tool": Mistake(("eval", "niah"), "unknown command 'eval'", "run"),
    "show of a task": Mistake(("list", "tasks", "show", "nia"), "nia", "'niah'"),
    "a GGUF file as a model": Mistake(("run", "--model", "m.gguf"), "not a model", "http://127.0.0.1:8000"),
    "a folder that is no checkpoint": Mistake(("run", "--model", "."), "no config.json", "transformers checkpoint"),
    "a port without http": Mistake(("run", "--model", "127.0.0.1:8000"), "127.0.0.1", "http://127.0.0.1:8000"),
    "localhost without http": Mistake(("run", "--model", "localhost:8000"), "localhost", "http://localhost:8000"),
    "a report of a run that is not there": Mistake(("report", "runs/nothing"), "runs/nothing", "leadline run"),
    "compare with one run": Mistake(("compare", "runs/a"), "CANDIDATE", "--help"),
    "a key in the name of a model": Mistake(
        ("run", "niah", "--model", "openai:m?api_key=sk-abcdefghijklmnopqrstuvwx"), "secret", "OPENAI_API_KEY"
    ),
    "a spec of JSON": Mistake(("run", "spec.toml", *SIM), "not TOML", 'tasks = "niah"', '{"tasks": "niah"}'),
    "an unknown table in a spec": Mistake(
        ("run", "spec.toml", *SIM), "unknown key 'limit'", "'limits'", 'tasks="niah"\n[limit]\nworkers=2'
    ),
    # a second look
    "lengths without commas": Mistake(
        ("run", "niah", *SIM, "--lengths", "4k 8k"), "'4k 8k' is not a length", 'commas between them: "4k,8k"'
    ),
    "lengths as several words": Mistake(
        ("run", "niah", *SIM, "--lengths", "4k", "8k"), "not expected: 8k", "--lengths 4k,8k,16k"
    ),
    "a task in capitals": Mistake(("run", "NIAH", *SIM), "unknown suite or task 'NIAH'", "did you mean 'niah'?"),
    "the whole address of an endpoint": Mistake(
        ("run", "--model", "http://127.0.0.1:9/v1/chat/completions"), "no OpenAI-compatible server", "check the port"
    ),
    "--context of another tool": Mistake(("run", "niah", *SIM, "--context", "4k"), "--context", "--lengths"),
    "--max-tokens of another tool": Mistake(
        ("run", "niah", *SIM, "--max-tokens", "9"), "--max-tokens", "answer_tokens"
    ),
    "--dry-run": Mistake(("run", "niah", *SIM, "--dry-run"), "--dry-run", "leadline plan"),
    "--resume": Mistake(("run", "niah", *SIM, "--resume"), "--resume", "the same command without it"),
    "--overwrite": Mistake(("run", "niah", *SIM, "--overwrite"), "--overwrite", "--out with another folder"),
    "--verbose": Mistake(("run", "niah", *SIM, "--verbose"), "--verbose", "--debug"),
    "--gpu": Mistake(("run", "niah", *SIM, "--gpu", "1"), "--gpu", "hf:NAME?device=cuda:0"),
    "help as a command": Mistake(("help",), "unknown command 'help'", "leadline --help"),
    "resume as a command": Mistake(("resume", "runs/a"), "unknown command 'resume'", "run command again"),
    "show as a command": Mistake(("show", "runs/a"), "unknown command 'show'", "leadline report RUN"),
    "a list in the singular": Mistake(("list", "suite"), "no command 'suite'", "did you mean leadline list suites?"),
    "a task's name where it is shown": Mistake(
        ("list", "tasks", "niah"), "no command 'niah'", "leadline list tasks show niah"
    ),
    "one depth in percent": Mistake(("run", "niah", *SIM, "--depths", "5%"), "'5%' is not a depth grid", "0,0.5,1"),
}


def test_there_are_77_of_them() -> None:
    assert len(MISTAKES) == 77


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_of_a_new_user_is_answered_with_what_where_and_the_right_fix(
    mistake: Mistake, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEADLINE_MODEL", raising=False)
    if mistake.file:
        (tmp_path / "spec.toml").write_text(mistake.file)
    done = say(*mistake.words)
    assert done.code not in (0, 70)
    lines = [line for line in done.err.splitlines() if line.startswith(("error: ", "where: ", "fix: "))]
    assert mistake.what in lines[0]
    assert mistake.fix in lines[-1]
    assert lines[-1].startswith("fix: ")
    assert not (tmp_path / "runs").exists()


def test_the_model_of_the_environment_counts_where_none_is_given(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADLINE_MODEL", "sim:cliff?window=2k")
    planned = say("plan", "niah", "--lengths", "1k")
    assert planned.code == 0, planned.err
    assert "sim:cliff?window=2k" in planned.out


@pytest.mark.parametrize("kind", ["tasks", "models", "sources", "suites"])
def test_what_there_is_stands_under_list(say: Say, kind: str) -> None:
    assert say("list", kind).out == say(kind).out
    shown = say("--help").out
    assert "  list " in shown
    assert f"  {kind} " not in shown


@pytest.mark.parametrize("command", ["run", "plan"])
def test_the_help_of_a_run_has_every_option_under_a_heading(say: Say, command: str) -> None:
    shown = say(command, "--help").out
    headings = ["Arguments:", "What:", "Model:", "Server:", "Stopping:", "Cost:", "Lists of models:", "Output:"]
    assert [line for line in shown.splitlines() if line in headings] == headings
    rest = shown.partition("\nOptions:\n")[2].partition("\nRarely")[0]
    assert [line.split()[0] for line in rest.splitlines() if line.startswith("  -")] == ["-h,"]


@pytest.mark.parametrize("command", ["run", "plan"])
def test_the_help_of_a_run_is_short_and_names_rare_options(say: Say, command: str) -> None:
    shown = say(command, "--help").out
    assert len(shown.splitlines()) <= 100
    assert "--rate-limit-wait" in shown.partition("Rarely needed")[2]
    assert "Seconds that a server's rate limit" not in shown
