"""The checkpoints that were measured, by step, each with its gates: against the one before it and a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from leadline.core.errors import LeadlineError
from leadline.features.follow.checkpoints import CheckpointFolder
from leadline.report.comparison import format_check
from leadline.results.comparability import pair_runs
from leadline.results.run import Run
from leadline.results.totals import refuse_unmeasured
from leadline.results.verdict import verdict
from leadline.stats.gate import Clause, GateResult, GateVerdict, check_gate


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


def exit_code(results: Sequence[StepResult], failed: int) -> int:
    """1 if a checkpoint could not be measured or any gate failed, 2 if one is undecided, else 0."""
    verdicts = [gate.verdict for result in results for gate in result.gates]
    if failed or "fail" in verdicts:
        return 1
    return 2 if "undecided" in verdicts or None in verdicts else 0
