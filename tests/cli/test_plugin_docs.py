"""The plugin tutorial: its file works, for each of the four kinds of plugin and with the commands shown."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from support.commands import Say
from support.leadline_process import write_haystack

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
    path.write_text("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)))
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
