"""The short pages: own needles, a gate in CI, a first plugin. Their files are written out and their commands run."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from support.commands import Say

DOCS = Path(__file__).parents[2] / "docs"
SMALL = ("--samples", "2", "--depths", "2", "--no-figure")


def files_of(page: str, folder: Path) -> dict[str, str]:
    """Every block of the page that begins with the name of its file, written to the folder."""
    found = dict(re.findall(r"```\w+\n# (\S+)\n(.*?)```", (DOCS / page).read_text(), re.DOTALL))
    for name, text in found.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return found


def commands_of(page: str) -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("leadline ")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


@pytest.mark.parametrize("command", commands_of("own-needles.md"), ids=" ".join)
def test_an_own_needle_is_found_as_the_page_says(command: list[str], say: Say, tmp_path: Path) -> None:
    files_of("own-needles.md", tmp_path)
    if command[0] == "report":
        assert say("run", "needle.toml", "--model", "sim:perfect", "--out", "runs/needle", *SMALL).code == 0
    result = say(*command, *(SMALL if command[0] == "run" else ()))
    assert result.code == 0, result.err
    assert "answered, 0 failed" in result.out or command[0] == "report"


@pytest.mark.slow
def test_both_recipes_apply_the_gate(say: Say, tmp_path: Path) -> None:
    files = files_of("ci.md", tmp_path) | files_of("ci-gitlab.md", tmp_path)
    recipes = [files[".github/workflows/gate.yml"], files[".gitlab-ci.yml"]]
    for command in commands_of("ci.md"):
        assert say(*command).code == 0
    for recipe in recipes:
        lines = re.findall(r"^ +(?:- run: |- )?(leadline .*)$", recipe, re.MULTILINE)
        mine = [line.partition(" > ")[0] for line in lines]
        assert sorted(line.split()[1] for line in mine) == ["compare", "report", "run"]
        for line in mine:
            result = say(*shlex.split(line)[1:])
            assert result.code == 0, result.err
        assert (tmp_path / "gate.xml").read_text().count("<testcase") == 3
        assert (tmp_path / "report.html").exists()


@pytest.mark.slow
def test_the_gate_of_the_recipes_fails_a_model_that_is_worse(say: Say, tmp_path: Path) -> None:
    pages = [(DOCS / name).read_text() for name in ("ci.md", "ci-gitlab.md")]
    files_of("ci.md", tmp_path)
    [gate] = set(re.findall(r'--gate "(overall[^"]+)"', "".join(pages)))
    for name, model in (("base", "sim:perfect"), ("candidate", "sim:cliff?window=1500")):
        assert say("run", "gate.toml", "--model", model, "--out", f"runs/{name}", "--no-figure").code == 0
    assert say("compare", "runs/base", "runs/candidate", "--gate", gate).code == 1


def test_the_first_plugin_works_from_its_file_and_names_its_class(say: Say, tmp_path: Path) -> None:
    files_of("first-plugin.md", tmp_path)
    [package] = re.findall(r"```toml\n(.*?)```", (DOCS / "first-plugin.md").read_text(), re.DOTALL)
    assert tomllib.loads(package)["project"]["entry-points"]["leadline.tasks"] == {"rooms": "rooms:Rooms"}
    first, *_ = commands_of("first-plugin.md")
    assert say(*first, *SMALL).code == 0
    assert say(*first, *SMALL, "--reading", "shared", "--set", "haystack=legal").code == 0
