"""One way to measure: does what a spec says, for the command line, Python, lists of models and Ray.

Check the spec, open the model, check the model, ask (everything, or in rounds while a stopping rule decides, or with an
allowance that is found), then the steps after the run, such as judges and trackers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from leadline.core import registry
from leadline.core.contracts import Model
from leadline.core.errors import LeadlineError
from leadline.core.format import format_duration, format_length, format_list
from leadline.core.lengths import AUTO
from leadline.core.money import check_budget, format_money
from leadline.core.spec import Spec
from leadline.results.run import Run, load_run
from leadline.run.after_run import check_steps, take_steps
from leadline.run.allowance import find_allowance
from leadline.run.batches import execute_in_batches
from leadline.run.continuing import find_run_folder
from leadline.run.documents import cells_of, documents_fit, first_rows
from leadline.run.engine import execute
from leadline.run.events import Listener, Note, ignore, reporting_waits
from leadline.run.interrupt import Stop
from leadline.run.money import affordable_lengths
from leadline.run.plan import OpenModel, Plan, check_disk_space, prepare
from leadline.run.repeats import ask_again
from leadline.run.time_limit import TimeLimit, parse_time
from leadline.store.manifest import MANIFEST
from leadline.store.runs import RunWriter, count_done, open_run

if TYPE_CHECKING:
    from leadline.run.until import RuleResult, StoppingRule

CheckModel = Callable[[Model], Sequence[str]]
"""Checks an open model before a run, and returns notes for the user."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A run with all its answers, what its stopping rule found, and the errors of the steps after it."""

    run: Run
    rule: RuleResult | None = None
    errors: tuple[LeadlineError, ...] = ()


def check_model(model: Model) -> Sequence[str]:
    """The findings of all checks of the door `leadline.model_checks`. A server gets about ten small requests."""
    checks: dict[str, CheckModel] = registry.every("model_checks")
    return [finding for check in checks.values() for finding in check(model)]


def measure_spec(
    spec: Spec,
    out: Path | str | None = None,
    *,
    listen: Listener = ignore,
    keep_prompts: bool = False,
    check: CheckModel | None = None,
    base: Path | str | None = None,
    gate: str = "",
    name: str = "",
    suite: str = "",
    open_model: OpenModel | None = None,
    stop: Stop | None = None,
) -> Measured:
    """Asks everything the spec wants that the folder does not have yet, and takes the steps after the run.

    Failed samples are in the run's totals and records and are asked again by the next call. A run that stops early
    raises RunStopped, a wrong spec raises an error of its own; what was recorded is kept.

    Without `out` the run continues one in `runs/` that asked for less of the same, or gets a folder there, which has
    the name of the `suite` or of its tasks.

    `base` and `gate` are for the stopping rule `verdict`. `name` is the model's name in a list of models. `open_model`
    replaces the opening of the model by its name, and `stop` ends the run from another thread.
    """
    seconds = parse_time(spec.limits.time)
    time = None if seconds is None else TimeLimit(seconds)
    steps = check_steps(spec, listen)
    rule = _stopping_rule(spec, base, gate) if spec.until else None
    with prepare(spec, open_model, listen=listen) as plan:
        plan = dataclasses.replace(plan, manifest=msgspec.structs.replace(plan.manifest, name=name))
        folder, plan = _placed(plan, suite, listen) if out is None else (Path(out), plan)
        check_disk_space(folder, plan.planned)
        plan = _with_findings(plan, folder, check, listen)
        lengths = _lengths_in_time(plan, time, listen)
        ask = _ask_all if rule is None else partial(rule.ask, rule.look_for(plan, lengths))
        asking = execute_in_batches if spec.limits.batch else execute
        stopped_because = ask(plan, folder, partial(asking, keep_prompts=keep_prompts, stop=stop, time=time), listen)
        ask_again(plan, folder, partial(asking, stop=stop, time=time), listen)
    errors = take_steps(steps, folder, spec, listen, stop)
    return Measured(load_run(folder), stopped_because, errors)


def _lengths_in_time(plan: Plan, time: TimeLimit | None, listen: Listener) -> list[int]:
    """The lengths of the plan that its time and its budget allow, if it has such limits. Notes which lengths are left
    out."""
    kept = list(plan.spec.lengths)
    if time is not None:
        kept = _measure_pace(plan, time, listen)
    limit = check_budget(plan.spec.limits.budget, plan.tariff)
    if limit is None or plan.tariff is None or not plan.spec.until:
        return kept
    paid = affordable_lengths(plan, limit, plan.tariff)
    beyond = format_list([format_length(length) for length in plan.spec.lengths if length not in paid])
    verdict = f"cannot tell anything about {beyond}" if beyond else "is enough for a look at every length"
    listen(Note(f"a budget of {format_money(limit, plan.tariff.currency)} {verdict}"))
    return [length for length in kept if length in paid]


def _measure_pace(plan: Plan, time: TimeLimit, listen: Listener) -> list[int]:
    """Asks a question at the two shortest lengths, without a record, and returns the lengths that the time allows."""
    title, task = next(iter(plan.tasks.items()))
    lengths = plan.spec.lengths
    for row in first_rows(plan.spec, title, task)[:2]:
        document = task.document(row, seed=plan.spec.seed, fitter=plan.fitter)
        probe = max(document.probes, key=lambda probe: probe.prompt_tokens)
        for answer in plan.model.answer(document, [probe]):
            time.answered(probe.prompt_tokens, answer.seconds)
    cells = len(plan.points) // len(lengths)
    kept = time.affordable(lengths, cells, plan.at_once)
    each = format_duration(time.expected(kept[-1]))
    pace = f"{format_duration(time.seconds)} at {each} for an answer at {format_length(kept[-1])}"
    beyond = format_list([format_length(length) for length in lengths if length not in kept])
    verdict = f"cannot tell anything about {beyond}" if beyond else "is enough for a look at every length"
    listen(Note(f"{pace} {verdict}"))
    return kept


def _placed(plan: Plan, suite: str, listen: Listener) -> tuple[Path, Plan]:
    """The folder of a plan, and the plan; that of the run there where this has more than was asked for."""
    run_folder = find_run_folder(plan, suite)
    if run_folder.note:
        listen(Note(run_folder.note))
    if run_folder.spec is None:
        return run_folder.path, plan
    return run_folder.path, prepare(run_folder.spec, lambda spec: plan.model, listen=listen)


def measure(
    spec: Spec,
    out: Path | str | None = None,
    *,
    listen: Listener = ignore,
    keep_prompts: bool = False,
    check: CheckModel | None = None,
) -> Run:
    """The run of `measure_spec`. Raises the first error of a step after the run."""
    measured = measure_spec(spec, out, listen=listen, keep_prompts=keep_prompts, check=check)
    for error in measured.errors:
        raise error
    return measured.run


Execute = Callable[..., None]
"""`execute` with everything that is the same for all rounds."""


def _ask_all(plan: Plan, folder: Path, execute: Execute, listen: Listener) -> None:
    """Asks every cell that has no answer. Where the allowance is found, those that were cut off are asked again."""
    with open_run(folder, plan.manifest) as writer:
        if plan.spec.allowance == AUTO:
            _find_allowance(plan, writer, execute, listen)
        else:
            execute(plan, writer, listen=listen)


def _find_allowance(plan: Plan, writer: RunWriter, execute: Execute, listen: Listener) -> None:
    find_allowance(
        list(cells_of(plan.spec, plan.tasks)),
        plan.fitter,
        writer.folder,
        lambda cells, listen: execute(plan, writer, only=cells, listen=listen),
        partial(documents_fit, plan.spec, plan.tasks, plan.fitter),
        listen,
    )


def _stopping_rule(spec: Spec, base: Path | str | None, gate: str) -> StoppingRule:
    from leadline.run.until import StoppingRule  # imports scipy, which other runs do not need

    return StoppingRule.of(spec, None if base is None else Path(base), gate)


def _with_findings(plan: Plan, folder: Path, check: CheckModel | None, listen: Listener) -> Plan:
    """The plan with the findings of a check of its model. A run that has all its answers needs no check."""
    if check is None or ((folder / MANIFEST).exists() and count_done(folder)[0] >= plan.planned):
        return plan
    with reporting_waits(listen):
        return plan.with_notes(check(plan.model))


def plan(spec: Spec) -> Plan:
    """The costs of a run, and notes on it. The model is opened to count in its tokens, and closed."""
    with prepare(spec, planning=True) as prepared:
        return prepared
