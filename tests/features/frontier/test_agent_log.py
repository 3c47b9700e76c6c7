"""The session of an agent: which command failed first, or last?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leadline.core.errors import UsageError
from leadline.core.registry import task as find_task
from leadline.core.spec import TaskSpec, make_spec
from leadline.core.types import Cell, Document
from leadline.features.frontier.agent_log import WRONG_ORDER, AgentLog
from leadline.run.measure import measure
from leadline.stats.intervals import mean_interval
from leadline.store.runs import read_records
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import ByteTokenizer, WhitespaceTokenizer
from support.fitting import fit

RUN = re.compile(
    r"\[(\S+)\] \$ (\S+) -> exit (\d+)|job (\S+): `(\S+)` ended with status (\d+)"
    r'|\{"job": "(\S+)", "command": "(\S+)", "exit_status": (\d+)\}'
)


def failed_in(text: str, job: str) -> list[str]:
    """The failed commands of a job in the order of the text, by the rules of the lines alone."""
    found = ([part for part in match.groups() if part is not None] for match in RUN.finditer(text))
    return [command for name, command, status in found if name == job and status != "0"]


def document(task: AgentLog, *cells: Cell) -> Document:
    return fit(task.write(cells, seed=3), WhitespaceTokenizer(), completion_frame())


@pytest.mark.parametrize("ask", ["first", "last"])
def test_the_answer_is_the_first_or_last_failure_of_the_job(ask: str) -> None:
    task = AgentLog.model_validate({"ask": ask})
    for sample in range(6):
        for depth in (0.0, 0.3, 0.9, 1.0):
            made = document(task, Cell("agent_log", 1400, depth, sample))
            [probe] = made.probes
            [job] = re.findall(r"job (\S+)\?", probe.question.text)
            failed = failed_in(made.text[: probe.cut_characters], job)
            assert probe.question.targets == (failed[0 if ask == "first" else -1],)
            assert set(failed) == {*probe.question.targets, *probe.question.mistakes[WRONG_ORDER]}


def test_one_session_answers_all_depths_and_lengths() -> None:
    cells = [Cell("agent_log", length, depth, 1) for length in (3000, 6000) for depth in (0.1, 0.5, 0.9)]
    made = document(AgentLog(), *cells)
    for probe in made.probes:
        [job] = re.findall(r"job (\S+)\?", probe.question.text)
        assert (failed_in(made.text[: probe.cut_characters], job)[0],) == probe.question.targets


@pytest.mark.slow
def test_a_planted_share_of_wrong_orders_is_recovered(tmp_path: Path) -> None:
    spec = make_spec(
        {
            "model": "sim:perfect?mistake=0.4",
            "tasks": ["agent_log"],
            "lengths": "900",
            "depths": "0.2,0.5,0.7",
            "samples": 40,
        }
    )
    measure(spec, tmp_path / "run")
    records = list(read_records(tmp_path / "run"))
    named = {"another failed command of the job", "a command that did not fail"}
    shown = [float(r.failure_class == "distractor" and r.detail in named) for r in records]
    found = mean_interval(shown, [r.cluster for r in records]).interval
    assert found.low <= 0.4 <= found.high
    assert {r.detail for r in records} - {""} == named


@pytest.mark.parametrize("depth", [0.5, 1.0])
def test_many_jobs_crowd_at_the_end_of_a_session_and_it_is_still_exact(depth: float) -> None:
    tokens, draft = ByteTokenizer(), AgentLog(jobs=64).draft([Cell("agent_log", 32_768, depth, 0)], seed=0)
    document = fit(draft, tokens, completion_frame())
    [probe] = document.probes
    assert len(tokens.encode(document.prompt_text(probe))) == 32_768 - probe.question.allowance


def test_a_job_has_commands_that_end_well() -> None:
    with pytest.raises(UsageError, match="must end well"):
        find_task(TaskSpec(name="agent_log", options={"failures": 6}))
