"""`leadline follow`: measure every checkpoint of a training run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from leadline.console.options import TRACKER_HELP, RunOptions, spec_of
from leadline.console.output import echo, print_json, say, warn
from leadline.console.progress import ManyModelsListener
from leadline.core import registry
from leadline.core.errors import LeadlineError, NotMeasured, SourceError, UsageError
from leadline.core.format import format_count
from leadline.core.spec import Logging, Spec
from leadline.features.follow.checkpoints import CheckpointFolder, checkpoints_in
from leadline.features.follow.history import History, StepResult, check_gates, exit_code
from leadline.features.follow.loop import Follower, MeasuredCheckpoint, NothingDue, follow_checkpoints
from leadline.features.follow.page import write_history_page
from leadline.results.run import Run, load_run
from leadline.results.verdict import verdict
from leadline.run.events import ModelRun
from leadline.run.many_models import is_complete, measure_all
from leadline.run.time_limit import parse_time
from leadline.stats.gate import parse_gate

STEP_RUNS = "steps"


def follow(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The training run's output: checkpoint-1000 ...")],
    spec: Annotated[
        str, typer.Option(metavar="SUITE|TASK|SPEC.toml", help="What to measure of every checkpoint.")
    ] = "standard",
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder of the runs and the page.")] = Path(
        "followed"
    ),
    model: Annotated[
        str, typer.Option(metavar="OPTIONS", help="Options of the model for every checkpoint, such as dtype=bf16.")
    ] = "",
    lengths: Annotated[str | None, typer.Option(metavar="LENGTHS", help="Lengths, such as 4k,8k,16k.")] = None,
    samples: Annotated[int | None, typer.Option(metavar="N", help="Samples for each length and depth.")] = None,
    base: Annotated[Path | None, typer.Option(metavar="RUN", help="A run that every checkpoint is gated with.")] = None,
    gate: Annotated[
        str,
        typer.Option(metavar="RULES", help='Smallest accepted changes in points: "overall >= -2; length:* >= -5".'),
    ] = "",
    once: Annotated[bool, typer.Option("--once", help="Measure what is there, then end: for CI.")] = False,
    patience: Annotated[
        str, typer.Option(metavar="TIME", help="End when no new checkpoint has come for so long.")
    ] = "24h",
    poll: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="Seconds between two looks.")] = 60.0,
    settle: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.0, help="A checkpoint is complete when no file changed for so long."),
    ] = 30.0,
    ray: Annotated[int | None, typer.Option(metavar="N", min=1, help="GPUs of a Ray cluster to spread over.")] = None,
    log_to: Annotated[
        list[str] | None, typer.Option(metavar="TRACKER:DESTINATION", help=f"Log every checkpoint: {TRACKER_HELP}")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print all checkpoints as JSON at the end.")] = False,
) -> int:
    """Measure every checkpoint that appears in a folder, gate it, and keep one page over steps.

    A checkpoint is measured when it has its configuration, all weights that its index names, and no file that still
    changes. When several wait, the newest is first. Start the same command again after a crash: what was measured is
    kept. Exit code: 0 all gates passed, 1 one failed or a checkpoint could not be measured, 2 undecided.

    \b
      leadline follow output/ --spec release.toml --gate "overall >= -2" --log-to tensorboard:logs
      leadline follow output/ --spec ruler-quick --lengths 4k,32k --once
    """
    if base is not None and not gate:
        raise UsageError("a baseline needs a gate", where="--base", fix='add --gate "overall >= -2"')
    clauses = parse_gate(gate) if gate else ()
    seconds = parse_time(patience)
    if not folder.is_dir():
        raise SourceError(
            "there is no such folder of checkpoints", where=str(folder), fix="give the output_dir of the training run"
        )
    flags = RunOptions(what=spec, model="sim:perfect", lengths=lengths, samples=samples, ray=ray)
    plan, baseline = spec_of(flags), load_run(base) if base is not None else None
    for note in check_gates(plan, clauses, baseline):
        warn(note)
    _check_names(model, log_to or ())
    training = _Training(folder, out, plan, model, tuple(log_to or ()), History(clauses, baseline))
    follower = Follower(folder, training.measure, settle)
    last_wait = ""
    for event in follow_checkpoints(follower, once=once, patience=seconds or 0.0, poll=poll):
        if isinstance(event, NothingDue):
            if event.why != last_wait:
                say(event.why, label="waiting")
            last_wait = event.why
        else:
            last_wait = ""
            training.took(event)
    return training.finish(follower, as_json=json)


def _check_names(options: str, trackers: Iterable[str]) -> None:
    """Raises for options and trackers that do not exist: the first checkpoint may be hours away."""
    registry.provider(registry.ModelName.parse(f"hf:checkpoint?{options}" if options else "hf:checkpoint"))
    for location in trackers:
        registry.tracker(location)


def model_string(checkpoint: CheckpointFolder, options: str) -> str:
    return f"hf:{checkpoint.folder.resolve()}" + (f"?{options}" if options else "")


@dataclasses.dataclass
class _Training:
    """The checkpoints measured so far, and the way to measure the next."""

    folder: Path
    out: Path
    plan: Spec
    options: str
    log_to: tuple[str, ...]
    history: History
    runs: dict[CheckpointFolder, Run] = dataclasses.field(default_factory=dict)
    errors: dict[CheckpointFolder, LeadlineError] = dataclasses.field(default_factory=dict)
    before: dict[CheckpointFolder, bool] = dataclasses.field(default_factory=dict)
    """Whether a checkpoint was complete before this command."""

    def measure(self, checkpoint: CheckpointFolder) -> Run:
        spec = self.plan.model_copy(update={"model": model_string(checkpoint, self.options)})
        if self.log_to:
            log = Logging(to=self.log_to, step=str(checkpoint.step), run_name=self.folder.resolve().name)
            spec = spec.model_copy(update={"log": log})
        model_run = ModelRun(checkpoint.name, spec, self.out / STEP_RUNS / checkpoint.name)
        self.before[checkpoint] = is_complete(model_run)
        with ManyModelsListener(1) as listener:
            (result,) = measure_all([model_run], listen=listener.hear)
        if result.error is not None:
            raise result.error
        for error in result.step_errors:
            warn(f"{checkpoint.name}: {error.what}")
        if result.run is None or not result.run.totals.done:
            raise NotMeasured("no answer came", where=checkpoint.name, fix="see the records of its run")
        return result.run

    def took(self, event: MeasuredCheckpoint) -> None:
        """Shows one checkpoint and draws the page again."""
        checkpoint = event.checkpoint
        if event.run is None:
            assert event.error is not None
            self.errors[checkpoint] = event.error
            warn(f"{checkpoint.name} was not measured: {event.error.what}")
        else:
            self.errors.pop(checkpoint, None)
            self.runs[checkpoint] = event.run
            result = next(r for r in self.results() if r.checkpoint == checkpoint)
            known = "measured before" if self.before[checkpoint] else "measured"
            echo(f"step {checkpoint.step:,}  {known}: {verdict(event.run).claim}")
            for gate in result.gates:
                why = f": {'; '.join(gate.details)}" if gate.verdict is None else ""
                echo(f"  {gate}{why}")
        self.write_page([])

    def results(self) -> list[StepResult]:
        return self.history.results(list(self.runs.items()))

    def write_page(self, waiting: list[str]) -> Path:
        failed = [f"{checkpoint.name}: {error.what}" for checkpoint, error in self.errors.items()]
        return write_history_page(self.results(), self.folder.resolve().name, [*failed, *waiting], self.out)

    def finish(self, follower: Follower, *, as_json: bool) -> int:
        """Writes the page with the checkpoints that are left, and returns the exit code."""
        half_written = [c for c in follower.unfinished if c not in self.errors]
        page = self.write_page([f"{c.name}: no {c.missing() or 'quiet moment'} yet" for c in half_written])
        results = self.results()
        if not results and not self.errors:
            seen = format_count(len(checkpoints_in(self.folder)), "folder")
            raise SourceError(
                f"no complete checkpoint is there ({seen} with a step in the name)",
                where=str(self.folder),
                fix="give a folder with checkpoint-STEP folders that have config.json and model.safetensors",
            )
        if as_json:
            print_json({"page": str(page), "checkpoints": [result.values() for result in results],
                        "errors": {c.name: str(error) for c, error in self.errors.items()}})  # fmt: skip
        else:
            echo(f"page      {page}")
        return exit_code(results, len(self.errors))
