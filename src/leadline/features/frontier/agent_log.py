"""Which command failed first? Commands with their exit status, among the tool calls, logs and diffs of an agent.

Where context is long in practice, it is mostly the transcript of an agent. Each question is about one job: its commands
stand on lines of one form all over the session, some ended well and several failed. Position decides, so that a failed
command alone is no answer. Sessions, commands and wordings are our own.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from leadline.core.contracts import Source
from leadline.core.drafts import Draft, DraftQuestion, Fact
from leadline.core.seeds import Split, rng
from leadline.core.types import Cell, Reading
from leadline.tasks.placement import fact_depths, guard_places
from leadline.tasks.wording import SCORERS, PromptPart, WordedTask
from leadline.tasks.words import NOUNS, VERBS, draw_new_pair, draw_new_value
from leadline.text.sources import open_source, stretch_of

GAP = 0.05
"""Least distance in depth of two failed commands of a job, so that their order is what it was drawn as."""
WRONG_ORDER = "another failed command of the job"
ENDED_WELL = "a command that did not fail"
PARTS = {
    "instruction": PromptPart(
        (
            "Below is part of an agent's session: tool calls, their output, edits and notes. Among them are commands "
            "of several jobs, each with the exit status it ended with; any status but 0 is a failure. A question "
            "about them follows.\n\n",
        ),
        opens=True,
    ),
    "line": PromptPart(
        (
            "[{job}] $ {command} -> exit {status}",
            "job {job}: `{command}` ended with status {status}",
            '{{"job": "{job}", "command": "{command}", "exit_status": {status}}}',
        ),
        needs=("job", "command", "status"),
        planted=True,
    ),
}
WORDINGS = len(PARTS["line"].default)
LINE_TOKENS = 32
QUESTIONS = {
    "first": "\n\nQuestion: Which command failed first in the job {job}?",
    "last": "\n\nQuestion: Which command was the last to fail in the job {job}?",
}
PREFIXES = {"first": "In {job} the first command that failed is", "last": "In {job} the last command that failed is"}


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """One command of a job."""

    command: str
    status: int
    depth: float


@dataclass(frozen=True, slots=True)
class LoggedJob:
    """The runs of one job; the first of them answers the question."""

    name: str
    wording: int
    runs: tuple[LoggedRun, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """The commands that failed, the one asked for first."""
        return tuple(run.command for run in self.runs if run.status)


class AgentLog(WordedTask):
    """Find the command of a job that failed first, or last, in the session of an agent.

    Depth is where the command asked for is. Other failed commands of the job come after it (before it for
    ask=last), the commands that ended well anywhere. Failed commands of another job stand at both ends of the session,
    from one to as many as there is room for, so that no place in it says which command is asked for.
    """

    version: ClassVar[str] = "4"
    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")
    category: ClassVar[str] = "retrieval"

    haystack: str = Field("agent", description="agent, code, chat, prose, a path, or a mixture")
    repeat: bool = Field(False, description="use the haystack more than once when it is too short")
    ask: Literal["first", "last"] = Field("first", description="ask for the first or the last command that failed")
    runs: int = Field(6, ge=2, le=64, description="commands of each job")
    failures: int = Field(3, ge=1, le=32, description="of these, commands that failed")
    jobs: int = Field(2, ge=1, le=64, description="jobs planted for a question; those not asked for are distractors")
    answer_tokens: int = Field(64, ge=1, description="tokens for the answer")

    @model_validator(mode="after")
    def _some_end_well(self) -> AgentLog:
        if self.failures >= self.runs:
            raise ValueError(f"failures={self.failures}: at least one of {self.runs} runs must end well")
        return self

    def parts(self) -> Mapping[str, PromptPart]:
        return {
            **PARTS,
            "question": PromptPart((QUESTIONS[self.ask],), needs=("job",), asks=True),
            "prefix": PromptPart((PREFIXES[self.ask],), may=("job",)),
        }

    def sources(self) -> Sequence[Source]:
        return (self._source(),)

    def _source(self) -> Source:
        return open_source(self.haystack, repeat=self.repeat)

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        taken: set[str] = set()
        drawn = [self._jobs(cell, rng(seed, "agent log", *cell.coordinates), taken) for cell in cells]
        before, after = self._guards(cells, seed, taken)
        guards = [run.command for job, _ in (*before, *after) for run in job.runs]
        everything = [*(run.command for jobs in drawn for job in jobs for run in job.runs), *guards]
        cluster = self.cluster(cells)
        return self.new_draft(
            cells,
            filler=stretch_of(self._source(), cluster, seed, tokens=max(c.length for c in cells)),
            facts=(
                *self._guard_facts(cells[0], "before", before),
                *(f for cell, jobs in zip(cells, drawn, strict=True) for f in self._facts(cell, jobs)),
                *self._guard_facts(cells[0], "after", after),
            ),
            questions=(self._ask(cell, jobs[0], everything) for cell, jobs in zip(cells, drawn, strict=True)),
        )

    def _jobs(self, cell: Cell, draw: random.Random, taken: set[str]) -> list[LoggedJob]:
        """The job asked for, and others beside it, whose failures are anywhere."""
        [depth] = fact_depths(cell, 0.0, 1, draw)
        return [self._job(depth if number == 0 else draw.random(), draw, taken) for number in range(self.jobs)]

    def _job(self, depth: float, draw: random.Random, taken: set[str]) -> LoggedJob:
        name = draw_new_value("words", draw, taken, self.split)
        failed = [LoggedRun(draw_command(draw, taken, self.split), draw.randint(1, 126), depth)]
        # At an end of the session they share its depth, and the order of the facts decides.
        low, high = (min(depth + GAP, 1.0), 1.0) if self.ask == "first" else (0.0, max(depth - GAP, 0.0))
        for _ in range(self.failures - 1):
            command, status, place = draw_command(draw, taken, self.split), draw.randint(1, 126), draw.random()
            failed.append(LoggedRun(command, status, low + place * (high - low)))
        well = [
            LoggedRun(draw_command(draw, taken, self.split), 0, draw.random()) for _ in range(self.runs - self.failures)
        ]
        return LoggedJob(name, draw.randrange(WORDINGS), (*failed, *well))

    def _guards(
        self, cells: Sequence[Cell], seed: int, taken: set[str]
    ) -> tuple[list[tuple[LoggedJob, int]], list[tuple[LoggedJob, int]]]:
        """Failed commands of a job that nobody asks about, before the first and after the last of the others, each with
        the length of the document that it belongs to."""
        draw = rng(seed, "agent log guards", *cells[0].coordinates)

        def failed(places: Sequence[tuple[float, int]]) -> list[tuple[LoggedJob, int]]:
            name, wording = draw_new_value("words", draw, taken, self.split), draw.randrange(WORDINGS)
            runs = [LoggedRun(draw_command(draw, taken, self.split), draw.randint(1, 126), at) for at, _ in places]
            return [(LoggedJob(name, wording, (run,)), length) for run, (_, length) in zip(runs, places, strict=True)]

        before, after = guard_places(cells, seed, LINE_TOKENS)
        return failed(before), failed(after)

    def _guard_facts(self, cell: Cell, end: str, guards: Sequence[tuple[LoggedJob, int]]) -> list[Fact]:
        return [
            self._line(f"{cell.key}#{end}{number}", job, job.runs[0], length)
            for number, (job, length) in enumerate(guards)
        ]

    def _line(self, fact_id: str, job: LoggedJob, run: LoggedRun, length: int) -> Fact:
        wording = self.one_of("line", job.wording, job.name)
        text = wording.format(job=job.name, command=run.command, status=run.status)
        return Fact(fact_id, text, run.depth, length)

    def _facts(self, cell: Cell, jobs: Sequence[LoggedJob]) -> list[Fact]:
        facts = [
            self._line(f"{cell.key}#{number}.{place}", job, run, cell.length)
            for number, job in enumerate(jobs)
            for place, run in enumerate(job.runs)
        ]
        return facts if self.ask == "first" else facts[::-1]  # of several at one depth, the one asked for is the last

    def _ask(self, cell: Cell, job: LoggedJob, everything: Sequence[str]) -> DraftQuestion:
        target, *others = job.failed
        return DraftQuestion(
            cell=cell,
            text=self.fill("question", job=job.name),
            answer_prefix=self.fill("prefix", job=job.name),
            targets=(target,),
            allowance=self.answer_tokens,
            scorers=SCORERS["all"],
            facts=(f"{cell.key}#0.0",),
            order_facts=tuple(f"{cell.key}#0.{n}" for n in range(1, len(job.failed))),
            distractors=tuple(command for command in everything if command != target),
            labels={"wording": "own" if "line" in self.wording else str(job.wording), "failures": str(len(job.failed))},
            family="needle",
            mistakes={
                WRONG_ORDER: tuple(others),
                ENDED_WELL: tuple(run.command for run in job.runs if not run.status),
            },
        )


def draw_command(draw: random.Random, taken: set[str], split: Split) -> str:
    """A command that is not in `taken`, such as rotate-ledger; it is added to `taken`."""
    return draw_new_pair(VERBS, NOUNS, draw, taken, split)
