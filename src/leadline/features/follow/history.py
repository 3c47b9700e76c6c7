"""The checkpoints that were measured, by step, each with its gates: against the one before it and a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from leadline.core import registry
from leadline.core.errors import LeadlineError, UsageError
from leadline.core.format import format_tokens
from leadline.core.spec import Spec
from leadline.features.follow.checkpoints import CheckpointFolder
from leadline.report.comparison import format_check
from leadline.results.comparability import comparability, pair_runs
from leadline.results.run import Run
from leadline.results.totals import refuse_unmeasured
from leadline.results.verdict import verdict
from leadline.stats.gate import Clause, GateResult, GateVerdict, check_gate, matching


@dataclass(frozen=True, slots=True)
class GateOutcome:
    """One gate of a checkpoint; `verdict` is None where the two runs cannot be compared, and `details` say why."""

    against: str
    verdict: GateVerdict | None
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.verdict or 'not compared'} against {self.against}"


@dataclass(frozen=True, slots=True)
class StepResult:
    checkpoint: CheckpointFolder
    run: Run
    gates: tuple[GateOutcome, ...] = ()

    def values(self) -> dict[str, Any]:
        overall, effective = self.run.table.whole, verdict(self.run).effective
        return {
            "step": self.checkpoint.step,
            "checkpoint": self.checkpoint.name,
            "run": str(self.run.folder),
            "mean": overall.mean,
            "interval": [overall.interval.low, overall.interval.high] if overall.interval else None,
            "effective": None if effective is None else str(effective),
            "decided": effective is not None and effective.decided,
            "prompt_tokens": self.run.totals.prompt_tokens,
            "gates": [
                {"against": gate.against, "verdict": gate.verdict, "details": list(gate.details)} for gate in self.gates
            ],
        }


@dataclass(slots=True)
class History:
    """Results by step. Each checkpoint is gated against the one before it by step, in whatever order they were
    measured, and against the baseline. A gate between two runs is computed once."""

    clauses: Sequence[Clause] = ()
    baseline: Run | None = None
    _gates: dict[tuple[Run, Run], GateOutcome] = field(default_factory=dict)

    def results(self, measured: Sequence[tuple[CheckpointFolder, Run]]) -> list[StepResult]:
        results: list[StepResult] = []
        for checkpoint, run in sorted(measured, key=lambda pair: (pair[0].step, pair[0].name)):
            gates: list[GateOutcome] = []
            if self.clauses and results:
                gates.append(self._gate(results[-1].run, run, results[-1].checkpoint.name))
            if self.clauses and self.baseline is not None:
                gates.append(self._gate(self.baseline, run, "the baseline"))
            results.append(StepResult(checkpoint, run, tuple(gates)))
        return results

    def _gate(self, base: Run, candidate: Run, against: str) -> GateOutcome:
        if (base, candidate) not in self._gates:
            self._gates[base, candidate] = _gate(base, candidate, self.clauses, against)
        return self._gates[base, candidate]


def _gate(base: Run, candidate: Run, clauses: Sequence[Clause], against: str) -> GateOutcome:
    try:
        for run in (base, candidate):
            refuse_unmeasured(run.folder, run.totals)
        pairs, obstacles = pair_runs(base, candidate)
        refused = [str(obstacle) for obstacle in obstacles if obstacle.severity == "refuse"]
        if refused:
            return GateOutcome(against, None, tuple(refused))
        result: GateResult = check_gate(pairs, clauses)
    except LeadlineError as error:
        return GateOutcome(against, None, (error.what,))
    return GateOutcome(against, result.verdict, tuple(map(format_check, result.checks)))


def check_gates(spec: Spec, clauses: Sequence[Clause], baseline: Run | None) -> list[str]:
    """Raises where no checkpoint of this spec could be gated, before one is measured. Returns what a comparison with
    the baseline leaves out."""
    if not clauses:
        return []
    asking = [task.title for task in spec.tasks if registry.task(task).is_aggregated]
    if not asking:
        raise UsageError(
            f"no task of the spec can be gated: {', '.join(task.title for task in spec.tasks)} gives no answers to "
            "questions about a document",
            where="--gate",
            fix="add a task that asks questions, such as niah, to --spec, or leave out --gate",
        )
    left_out = [] if baseline is None else _check_baseline(spec, asking, baseline)
    shared = [title for title in asking if baseline is None or title in baseline.table.tasks]
    lengths = [n for n in spec.lengths if baseline is None or n in baseline.table.lengths]
    for clause in clauses:
        if clause.subject == "task":
            matching([f"task:{title}" for title in shared], clause)
        elif clause.subject == "length" and spec.lengths:
            matching([f"length:{format_tokens(length)}" for length in lengths], clause)
    return left_out


def _check_baseline(spec: Spec, asking: Sequence[str], baseline: Run) -> list[str]:
    refuse_unmeasured(baseline.folder, baseline.totals)
    where, fix = (
        f"--base {baseline.folder}",
        "measure a baseline by the same spec with `leadline run`, and give its folder",
    )
    for name, planned, measured in (
        ("tasks", asking, baseline.table.tasks),
        ("lengths", [format_tokens(n) for n in spec.lengths], [format_tokens(n) for n in baseline.table.lengths]),
    ):
        if planned and not set(planned) & set(measured):
            what = f"the baseline has none of the {name} of the spec: it has {', '.join(measured)}"
            raise UsageError(f"{what}, and the spec has {', '.join(planned)}", where=where, fix=fix)
    obstacles = comparability(baseline.manifest.compared(), {"spec": spec.identity()})
    if refused := [str(obstacle) for obstacle in obstacles if obstacle.severity == "refuse"]:
        raise UsageError(f"no checkpoint can be compared with the baseline: {refused[0]}", where=where, fix=fix)
    return [
        f"the baseline has no {title}: it is not in the gates against the baseline"
        for title in asking
        if title not in baseline.table.tasks
    ]


def exit_code(results: Sequence[StepResult], failed: int) -> int:
    """1 if a checkpoint could not be measured or any gate failed, 2 if one is undecided, else 0."""
    verdicts = [gate.verdict for result in results for gate in result.gates]
    if failed or "fail" in verdicts:
        return 1
    return 2 if "undecided" in verdicts or None in verdicts else 0
