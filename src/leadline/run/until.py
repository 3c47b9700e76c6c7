"""Runs with a stopping rule: samples are asked in rounds, where they can still change the answer.

After each round the rule looks at the answers to its questions and chooses the next ones. The intervals of the rules
(leadline.stats.sequential) are valid at every look. Nothing is kept between rounds but the records: every run repeats
the looks from the first one on, each on the samples that had been asked by then and no others, so that an interrupted
run ends on the samples of an uninterrupted one, whatever it had recorded when it was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from leadline.core.errors import UsageError
from leadline.core.lengths import AUTO
from leadline.core.records import Record
from leadline.core.spec import Spec
from leadline.core.types import Cell
from leadline.results.comparability import comparability
from leadline.results.run import load_run
from leadline.results.sentences import format_saving, format_step
from leadline.results.totals import refuse_unmeasured, totals_of
from leadline.run.documents import depths_of
from leadline.run.events import Listener, RuleChecked, without_started
from leadline.run.money import BudgetReached
from leadline.run.plan import Plan
from leadline.run.time_limit import TimeReached
from leadline.stats.allocate import (
    Design,
    SamplingStep,
    Until,
    parse_until,
    until_cells,
    until_effective,
    until_verdict,
)
from leadline.stats.gate import parse_gate
from leadline.stats.observations import Observations, observations
from leadline.store.manifest import read_manifest
from leadline.store.runs import RunWriter, open_run, read_records

Look = Callable[[Observations], SamplingStep]


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The final result of the stopping rule."""

    step: SamplingStep
    sentence: str
    saving: str
    used_up: Literal["", "time", "budget"] = ""
    """The limit that ended the run before the rule did."""


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """The rule of a spec; `base` and `gate` are for the rule `verdict`."""

    until: Until
    base: Path | None
    gate: str

    @classmethod
    def of(cls, spec: Spec, base: Path | None, gate: str) -> StoppingRule:
        """Raises if the spec cannot be measured with its rule, before the model is opened."""
        until = parse_until(spec.until)
        if spec.allowance == AUTO:
            raise UsageError(
                "the allowance cannot be found while a rule decides how many samples there are",
                where="--allowance",
                fix="give a number, such as --allowance 4096, or leave out --until",
            )
        if until.rule == "verdict" and (base is None or not gate):
            raise UsageError(
                "the rule `verdict` needs another run and a gate",
                where="--until",
                fix='add --base RUN --gate "overall >= -1"',
            )
        return cls(until, base, gate)

    def look_for(self, plan: Plan, lengths: Sequence[int] | None = None) -> Look:
        """The step of the rule after each round, at the lengths that time and budget allow, if they are given. Raises
        if it cannot be applied to the plan, before anything is sent."""
        design = _design(plan)
        if lengths is not None:
            design = replace(design, points=tuple(point for point in design.points if point[1] in lengths))
        if self.until.rule == "verdict" and self.base is not None:
            _refuse_other_questions(self.base, plan)
        return _look_of(self.until, design, self.base, self.gate)

    def ask(self, look: Look, plan: Plan, folder: Path, execute: Callable[..., None], listen: Listener) -> RuleResult:
        """Asks in rounds until the rule is satisfied or every cell has the samples of the spec."""
        with open_run(folder, plan.manifest) as writer:
            step, used_up = _ask_in_rounds(look, plan, writer, execute, listen)
            if self.until.rule == "verdict":
                refuse_unmeasured(folder, totals_of(read_records(folder)))
            writer.sync()
        sentence = f"the {used_up} is used up, {format_step(step)}" if used_up else format_step(step)
        return RuleResult(step, sentence, format_saving(step, plan.spec.samples), used_up)


def _refuse_other_questions(base: Path, plan: Plan) -> None:
    """Refuses before anything is asked if the base run had other prompts."""
    obstacles = comparability(read_manifest(base).compared(), plan.manifest.compared())
    refused = [str(o) for o in obstacles if o.severity == "refuse"]
    if refused:
        raise UsageError(
            "the base run had other questions: " + "; ".join(refused),
            where=f"--base {base}",
            fix="run with the spec of the base run; only the model may differ",
        )


class RoundChooser:
    """The rounds of a rule: it chooses the next questions from the answers to its earlier ones and no others."""

    def __init__(self, look: Look, plan: Plan) -> None:
        self._look = look
        self._plan = plan
        self._asked: dict[str, None] = {}
        self._wanted: list[str] = []
        """The cells of the last round."""
        self.step: SamplingStep

    def next(self, recorded: Mapping[str, Record]) -> frozenset[str] | None:
        """The keys of cells to ask now; None when the rule is done, or no sample of the last round got an answer."""
        if self._wanted and all(key not in recorded or recorded[key].failed for key in self._wanted):
            self.step = replace(self.step, outcome="undecided", next=(), unanswered=True)
            return None
        seen = (recorded[key] for key in self._asked if key in recorded)
        self.step = self._look(observations(_counted(self._plan, seen)))
        if self.step.done:
            return None
        cells = (*self.step.next, *_companion_cells(self._plan, self.step.next))
        self._wanted = [cell.key for cell in cells]
        missing = frozenset(
            k for k in self._wanted if k not in self._asked and (k not in recorded or recorded[k].failed)
        )
        self._asked.update(dict.fromkeys(self._wanted))
        return missing


def _ask_in_rounds(
    look: Look, plan: Plan, writer: RunWriter, execute: Callable[..., None], listen: Listener
) -> tuple[SamplingStep, Literal["", "time", "budget"]]:
    """Looks and asks until the rule is done, until no sample of a round gets an answer, or until time or budget is used
    up: the last step, and which of the two."""
    rounds, recorded = RoundChooser(look, plan), _by_key(writer.folder)
    first = True
    while (missing := rounds.next(recorded)) is not None:
        if missing:
            listen(RuleChecked(format_step(rounds.step), len(missing)))
            heard = listen if first else without_started(listen)
            try:
                execute(plan, writer, listen=heard, only=missing)
            except (TimeReached, BudgetReached) as reached:
                used_up: Literal["time", "budget"] = "time" if isinstance(reached, TimeReached) else "budget"
                return replace(rounds.step, outcome="undecided", next=()), used_up
            first = False
            recorded = _by_key(writer.folder)
    return rounds.step, ""


def _counted(plan: Plan, records: Iterable[Record]) -> Iterator[Record]:
    return (record for record in records if plan.tasks[record.cell.task].is_aggregated)


def _companion_cells(plan: Plan, cells: Sequence[Cell]) -> Iterator[Cell]:
    """The same lengths, depths and samples of the tasks that no rule looks at."""
    for title, task in plan.tasks.items():
        if not task.is_aggregated:
            depths = depths_of(plan.spec, task)
            points = ((c.length, d, c.sample) for c in cells for d in ((c.depth,) if c.depth in depths else depths))
            yield from (Cell(title, *point) for point in dict.fromkeys(points))


def _by_key(folder: Path) -> dict[str, Record]:
    return {record.cell.key: record for record in read_records(folder)}


def _design(plan: Plan) -> Design:
    if not plan.points:
        raise UsageError(
            "no task has answers to documents that a rule could look at",
            where="--until",
            fix="leave out --until, or add a task such as niah",
        )
    return Design(
        points=plan.points,
        cap=plan.spec.samples,
        fixed=plan.spec.samples,
        at_once=plan.at_once,
        reading=plan.spec.reading,
    )


def _look_of(until: Until, design: Design, base: Path | None, gate: str) -> Look:
    if until.rule == "effective":
        return lambda data: until_effective(data, design, confidence=until.number)
    if until.rule == "cell":
        return lambda data: until_cells(data, design, until.number)
    assert base is not None  # checked in StoppingRule.of
    old, clauses = load_run(base), parse_gate(gate)
    refuse_unmeasured(base, old.totals)
    return lambda data: until_verdict(data, old.table.requested, design, clauses, confidence=until.number)
