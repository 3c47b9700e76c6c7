"""The answer allowance is enough for a perfect reader, in the sweeps that the documentation shows and beyond."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from leadline.cli.main import run_command as run_command
from leadline.core import registry
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell
from leadline.store.runs import read_records
from leadline.tasks.ruler import RULER

DOCS = Path(__file__).parents[2] / "docs/ruler.md"
SWEEP = re.compile(r"^leadline run ((?:niah|vt|cwe|fwe|qa_fiction_1) --model M --set [^#\n]+)", re.M)
SHOWN = [command.strip() for command in SWEEP.findall(DOCS.read_text())]
LONG = [
    "vt --model M --set hops=8,32",
    "vt --model M --set letters=12",
    "niah --model M --set values=8 --set value_kind=uuids,words",
    "niah --model M --set queries=16",
    "niah_multivalue --model M --set values=8 --set value_kind=uuids",
    "cwe --model M --set num_cw=30 --set placement=anywhere",
    "fwe --model M --set top=20",
]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("command", [*SHOWN, *LONG])
def test_a_perfect_reader_is_right_in_every_sweep(command: str, tmp_path: Path) -> None:
    words = shlex.split(command.replace("--model M", "--model sim:perfect?tokenizer=bytes"))  # the longest answers
    asked = ["--lengths", "32k", "--depths", "1", "--samples", "1", "--no-figure", "--json"]
    assert run_command(["run", *words, *asked, "--out", str(tmp_path / "run")]) == 0
    records = list(read_records(tmp_path / "run"))
    assert records
    assert [r.scores["ruler.strict"].value for r in records] == [1.0] * len(records)


def test_the_documentation_shows_sweeps() -> None:
    assert len(SHOWN) > 10


@pytest.mark.parametrize(
    ("name", "options", "tokens"),
    [
        ("niah", {}, 64), ("niah", {"values": 4}, 128), ("niah_multivalue", {}, 128), ("niah_single_3", {}, 128),
        ("vt", {}, 30), ("vt", {"hops": 2}, 30), ("cwe", {}, 120), ("fwe", {}, 50), ("vt", {"hops": 8}, 71),
        ("fwe", {"top": 20}, 168), ("niah", {"queries": 16}, 152),
    ],
)  # fmt: skip
def test_rulers_number_stays_where_it_suffices(name: str, options: dict[str, int], tokens: int) -> None:
    """RULER's constants: 128 for niah, 30 for vt, 120 for cwe, 50 for fwe (scripts/data/synthetic/constants.py)."""
    task = registry.task(TaskSpec(name=name, options=options))
    [question] = task.write([Cell(name, 16_000, 0.5, 0)], seed=0).questions
    assert question.allowance == tokens


def test_the_protocols_allowance_stays_and_is_warned_of_where_it_is_too_short(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Five names of five letters in a sentence are 38 bytes, more than RULER's 30 tokens in a tokenizer of bytes."""
    asked = ["plan", "vt", "--model", "sim:perfect?tokenizer=bytes", "--lengths", "8k", "--depths", "1"]
    assert run_command([*asked, "--set", "fixed_allowance=true"]) == 0
    said = capsys.readouterr()
    assert "vt: a right answer has 39 tokens in this tokenizer and the allowance is 30" in said.out + said.err
    assert run_command(asked) == 0
    said = capsys.readouterr()
    assert "cut off" not in said.out + said.err


def test_the_protocol_suite_keeps_rulers_allowances() -> None:
    assert all(task["fixed_allowance"] for task in RULER.values["tasks"])
