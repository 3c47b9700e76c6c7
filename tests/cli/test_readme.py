"""Every command of the README runs as printed, with a small server, a simulated model and two runs in place of its
placeholders; what it installs and makes exists."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline.cli import demo
from support.commands import Say
from support.fake_server import FakeServer

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = "".join(re.findall(r"```sh\n(.*?)```", README, re.DOTALL))
MODEL = "sim:perfect?window=8k&tokenizer=bytes"
SMALL = ("--lengths", "8k", "--depths", "2", "--samples", "1")
"""Replaces the lengths of a command, so that it ends in seconds."""


QUICK = ("leadline report RUN", "leadline view", "leadline watch RUN", "leadline list tasks")


def commands() -> list[str]:
    lines = [line for line in BLOCKS.splitlines() if line.startswith("leadline ")]
    return lines + re.findall(r"^\| `(leadline [^`]+)` \|", README, re.MULTILINE)


@pytest.fixture
def address() -> Iterator[str]:
    with FakeServer(kind="llamacpp", window=32768, sockets=True) as server:
        yield server.base_url.removesuffix("/v1")


def test_the_first_block_is_the_demo_and_the_tests() -> None:
    first = re.search(r"```sh\n(.*?)```", README, re.DOTALL)
    assert first is not None
    assert re.findall(r"^make (\w+)", first[1], re.MULTILINE) == ["demo", "test"]


def test_every_extra_that_is_installed_and_every_target_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = [name for names in re.findall(r'pip install -e "\.\[([\w,]+)\]"', README) for name in names.split(",")]
    assert "view" in named
    assert set(named) <= set(extras)
    assert set(re.findall(r"^make (\w+)", BLOCKS, re.MULTILINE)) <= set(targets)


def test_there_are_commands_to_test() -> None:
    assert {shlex.split(command)[1] for command in commands()} >= {
        "run",
        "plan",
        "report",
        "view",
        "compare",
        "certify",
    }


@pytest.mark.quick_cases(command=QUICK)
@pytest.mark.parametrize("command", commands())
def test_every_command_runs_as_printed(command: str, say: Say, address: str) -> None:
    words = shlex.split(command.replace("http://127.0.0.1:8000", address), comments=True)[1:]
    words = [MODEL if word == "path/to/checkpoint" else word for word in words]
    for name in {"RUN", "BASE", "CANDIDATE"} & set(words):
        assert say("run", "niah", "--model", MODEL, *SMALL, "--no-figure", "--out", name).code == 0
    if words[0] == "view":  # serves until it is stopped
        words.append("--help")
    if words[0] in ("run", "plan"):
        words += SMALL
    result = say(*words)
    undecided = words[0] in ("compare", "certify")  # as few samples as these decide nothing
    findings = words[0] == "doctor"
    assert result.code in ((0, 2) if undecided else (0, 1) if findings else (0,)), result.err


def test_the_demo_of_the_readme_has_the_numbers_of_the_demo() -> None:
    questions = len(demo.SPEC["lengths"].split(",")) * demo.SPEC["depths"] * demo.SPEC["samples"]
    assert f"`make demo` asks {questions} such questions" in README
