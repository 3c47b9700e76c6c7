"""The plugin tutorial: its files work, for each of the four kinds of plugin with the commands shown, and for a command
and a section of reports that come in through entry points."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import Say
from support.leadline_process import write_haystack

PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()
COMMANDS = [line.partition(" #")[0].strip() for line in re.findall(r"^leadline run .*$", PAGE, re.MULTILINE)]
MORE = [
    "leadline run ./mine.py:Invoices --model sim:perfect --lengths 2k --reading shared",
    "leadline run ./mine.py:FourKeys --model sim:perfect --lengths 2k",
    "leadline run niah --model ./mine.py:Constant --lengths 2k",
]


@pytest.fixture
def plugin_file(tmp_path: Path) -> Path:
    """All Python blocks of the page in one file, with a haystack for the task that reads files."""
    (tmp_path / "texts").mkdir()
    write_haystack(tmp_path / "texts")
    path = tmp_path / "mine.py"
    path.write_text("\n".join(PYTHON.findall(PAGE)))
    return path


def test_the_page_shows_all_four_kinds() -> None:
    assert len(COMMANDS) == 4


@pytest.mark.parametrize("command", [*COMMANDS, *MORE])
def test_the_commands_run(command: str, say: Say, plugin_file: Path) -> None:
    small = ("--samples", "1", "--depths", "2", "--no-figure", "--json")
    result = say(*shlex.split(command)[1:], *small)
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found


@pytest.mark.slow
def test_a_package_adds_a_command_and_a_section_of_reports(tmp_path: Path) -> None:
    """Installed as pip does it: a module, and a folder that names its entry points."""
    [code] = [block for block in PYTHON.findall(PAGE) if block.startswith("# slowest.py")]
    assert len(code.splitlines()) <= 40
    [points] = [block for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL) if "slowest" in block]
    (tmp_path / "slowest.py").write_text(code)
    about = tmp_path / "slowest-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: slowest\nVersion: 1.0\n")
    groups = re.sub(r'\[project.entry-points."(.*)"\]', r"[\1]", points).replace('"', "")
    (about / "entry_points.txt").write_text(groups)

    commands = [
        "run niah --model sim:perfect?window=8k --lengths 1k --depths 2 --samples 3 --out run --no-figure",
        "slowest run --count 2",
        "report run --json",
        "report run",
        "--help",
    ]
    program = [sys.executable, "-c", EACH_COMMAND, *commands]
    ended = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)})
    assert ended.returncode == 0, ended.stderr
    measured, listed, as_json, _, listed_help = json.loads(ended.stdout)
    assert "Slowest answers" in measured
    assert listed.count("niah/1024/") == 2
    assert len(json.loads(as_json)["slowest"]) == 5
    page = (tmp_path / "run" / "report.html").read_text()
    assert '<a href="#slowest-0">Slowest answers</a>' in page
    assert '<section id="slowest-0">' in page
    assert "List the slowest answers of a run." in listed_help


EACH_COMMAND = """
import contextlib, io, json, sys
from leadline.cli.main import run_command

outputs = []
for command in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run_command(command.split()) == 0, command
    outputs.append(out.getvalue())
print(json.dumps(outputs))
"""
"""Runs several commands in one process, where the package is installed; prints what each of them printed."""
