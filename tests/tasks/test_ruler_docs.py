"""The page on RULER says what the code does: suites, tasks, knobs, commands, templates, failure classes."""

from __future__ import annotations

import math
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from leadline.console.options import RunOptions, spec_of
from leadline.core import registry
from leadline.core.spec import TaskSpec, make_spec
from leadline.features.correlate.correlation import CUT, FEWEST
from leadline.run.documents import count_cells
from leadline.scorers import failure
from leadline.stats.effective import RULER_THRESHOLD
from leadline.stats.ruler_summary import SHARE, THRESHOLD
from leadline.tasks.ruler import TASKS
from leadline.tasks.templates import with_templates
from leadline.tasks.wording import WordedTask
from support.question_data import squad

PAGE = (Path(__file__).parents[2] / "docs" / "ruler.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line.partition(" #")[0].strip() for block in BLOCKS for line in block.splitlines()]


def names(cell: str) -> list[str]:
    return re.findall(r"`([\w-]+)`", cell)


def rows_of(*known: str) -> dict[str, list[str]]:
    """The rows of the page whose first cell is one of these names, or some of them."""
    alone = [row for row in ROWS if re.fullmatch(r"`[\w-]+`(, `[\w-]+`)*", row[0])]
    return {name: row for row in alone for name in names(row[0]) if name in known}


def test_the_suites_ask_what_the_page_says() -> None:
    suites = ("ruler", "ruler-quick", "ruler-1m")
    for name, (_, lengths, samples, reading, questions) in rows_of(*suites).items():
        spec = make_spec({**registry.find("suites", name).values, "model": "sim:perfect"})
        first, _, last = lengths.partition(" to ")
        assert (spec.lengths[0], spec.lengths[-1]) == make_spec(
            {**spec.identity(), "lengths": f"{first},{last}"}
        ).lengths
        assert (spec.samples, spec.reading) == (int(samples), reading)
        assert count_cells(spec, {t.title: registry.task(t) for t in spec.tasks}) == int(questions.replace(",", ""))
    assert rows_of(*suites).keys() == {*suites}


def test_every_task_stands_with_its_answer_tokens_and_knobs_it_has() -> None:
    wanted = {*TASKS, "qa_1", "qa_2"}
    found = rows_of(*wanted)
    assert found.keys() == wanted
    needles = names(found["niah_single_1"][4])
    for name, row in found.items():
        task = registry.task(TaskSpec(name=name))
        values = task.model_dump()
        assert values["answer_tokens"] == int(row[3]), name
        for knob in needles if row[4] == "the same" else names(row[4]):
            assert knob in values, (name, knob)


def test_ruler_s_parameters_are_those_on_the_page() -> None:
    made = {name: registry.task(TaskSpec(name=name)).model_dump() for name in TASKS}
    assert (made["niah_multikey_1"]["keys"], made["niah_multivalue"]["values"]) == (4, 4)
    assert made["niah_multiquery"]["queries"] == 4
    assert (made["vt"]["hops"], made["cwe"]["num_cw"], made["fwe"]["top"]) == (4, 10, 3)
    assert (made["qa_fiction_1"]["hops"], made["qa_fiction_2"]["hops"]) == (1, 2)
    assert (THRESHOLD, SHARE) == (100 * RULER_THRESHOLD, 0.85)
    assert "85.6" in PAGE
    assert "85 % of the model's own" in PAGE


@pytest.mark.parametrize("command", [c for c in COMMANDS if re.match(r"leadline (run|plan) ", c)])
def test_the_commands_on_the_page_make_specs(command: str, tmp_path: Path) -> None:
    words = shlex.split(command)[2:]
    if "--templates" in words:
        (tmp_path / "mine.toml").write_text('[vt]\nprefix = "They are"\n')
    given: dict[str, list[str]] = {}
    no_context = "--no-context" in words
    flags = [w for w in words[1:] if w != "--no-context"]
    for key, value in zip(flags[::2], flags[1::2], strict=True):
        given.setdefault(key.removeprefix("--"), []).append(value)
    assert given.keys() <= {"model", "set", "lengths", "depths", "samples", "templates"}
    settings = [s.replace("dev-v2.0.json", str(squad(tmp_path / "squad.json"))) for s in given.get("set", [])]
    spec = spec_of(
        RunOptions(
            what=words[0],
            model="sim:perfect",
            set_=settings,
            no_context=no_context,
            lengths=given.get("lengths", [None])[0],
            depths=given.get("depths", [None])[0],
            templates=tmp_path / "mine.toml" if "templates" in given else None,
        )
    )
    expected = math.prod(s.partition("=")[2].count(",") + 1 for s in given.get("set", []))
    assert len(spec.tasks) == (13 if words[0].startswith("ruler") else expected * (1 + no_context))


def test_the_commands_that_show_and_correlate_are_there() -> None:
    assert sum(c.startswith("leadline correlate --tasks") for c in COMMANDS) == 2
    assert any(c.startswith("leadline tasks show vt --template") for c in COMMANDS)
    assert len([c for c in COMMANDS if " --set " in c]) >= 13
    assert f"leaves at {CUT:g}" in PAGE
    assert FEWEST == 4
    assert "four models or more" in PAGE


def test_the_templates_shown_are_templates_for_every_task_of_the_suites(tmp_path: Path) -> None:
    [text] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "mine.toml"
    path.write_text(text)
    asked = [TaskSpec(name=name) for name in TASKS if name not in ("cwe", "fwe")]
    assert all(task.options["wording"] for task in with_templates(asked, path))
    assert len(tomllib.loads(text)) == 3


OTHER_PAGES = (
    "agent_log",
    "aggregate",
    "compaction",
    "copy_words",
    "embed",
    "graphwalks",
    "ladder",
    "mrcr",
    "tool_calls",
    "worlds",
)
"""Tasks with pages of their own: their parts are what `tasks show NAME --template` prints."""


def test_every_part_of_every_task_is_explained_with_its_placeholders() -> None:
    parts = rows_of(
        "instruction", "question", "prefix", "needle", "line", "first", "next", "document", "demonstration", "noise"
    )
    for name in registry.names("tasks"):
        task = registry.task(TaskSpec(name=name))
        published = type(task).__module__.endswith(("infinitebench", "longbench", "longbench_piles", "dataset_tasks"))
        if not isinstance(task, WordedTask) or published:  # docs/longbench.md is about these
            continue
        if name in OTHER_PAGES:
            continue
        for part, about in task.parts().items():
            said = set(names(parts[part][2]))
            if part == "prefix":
                said |= set(names(parts["question"][2]))
            assert said >= set(about.placeholders), (name, part)


def test_what_is_seen_in_wrong_answers_is_named_as_the_records_name_it() -> None:
    details = [value for key, value in vars(failure).items() if key.isupper() and isinstance(value, str)]
    listed = re.findall(r"`([^`]+)`", " ".join(row[0] for row in ROWS if row[0].startswith("`") and " " in row[0]))
    told = [words for words in listed if " " in words]
    assert {"copied the demonstration", "another chain", "duplicates while missing others", "stop words"} <= set(told)
    assert set(told) <= {*details, *failure.INCOMPLETE.values()}
