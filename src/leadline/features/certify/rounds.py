"""Asking both sides the same prompts, in rounds that end when the answers decide.

A side is a model, or a finished run, which is used as it is. The prompts of a round are the same for both sides: the
next samples of every cell. What was recorded stays in the two run folders, so the same command continues.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from leadline.console.serving import blaming
from leadline.core import registry
from leadline.core.answers import Failure
from leadline.core.contracts import MarginModel
from leadline.core.errors import NotMeasured, UsageError
from leadline.core.spec import Spec, make_spec
from leadline.core.types import Cell
from leadline.features.certify.decide import (
    TIE_NATS,
    Decision,
    QuotedFigure,
    SelfFlips,
    Ties,
    decide,
    looks,
    only_look,
    speed_figures,
)
from leadline.features.certify.drift import (
    CacheDrift,
    Drift,
    cache_drift,
    compare_drift,
    measure_drift,
    read_drift,
    times_of,
)
from leadline.results.comparability import IN_THE_TEXT, comparability, pair_runs
from leadline.results.repeats import choose_repeats, repeats_of
from leadline.results.run import Run, load_run
from leadline.results.totals import refuse_unmeasured
from leadline.run.documents import cells_of, planned_documents
from leadline.run.engine import execute
from leadline.run.events import Listener, ignore
from leadline.run.plan import Plan, check_disk_space, prepare
from leadline.run.repeats import repeat
from leadline.run.serving import StartedServer
from leadline.stats.compare import Pairs
from leadline.stats.observations import observations
from leadline.store.manifest import MANIFEST, Manifest, read_manifest
from leadline.store.runs import open_run, read_records

Listening = Callable[[], AbstractContextManager[Listener]]


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a certification: a spec to measure, or a run that is there."""

    role: str
    folder: Path
    spec: Spec | None
    """None for a finished run."""
    server: StartedServer | None = None

    @property
    def name(self) -> str:
        return self.spec.model if self.spec else str(self.folder)


def is_run(text: str) -> bool:
    return (Path(text) / MANIFEST).is_file()


def side_of(role: str, text: str, values: dict[str, object], out: Path, server: StartedServer | None) -> Side:
    """From the argument of the command line; `values` are those of the spec without the model."""
    if is_run(text):
        if server is not None:
            raise UsageError(
                f"{text} is a finished run: it needs no server", where=f"--serve-{role}", fix="leave the option out"
            )
        return Side(role, Path(text), None)
    return Side(role, out / role, make_spec({**values, "model": text}, where=role), server)


@dataclass(frozen=True, slots=True)
class Certification:
    """Everything that was found."""

    base: Run
    candidate: Run
    pairs: Pairs
    decision: Decision
    samples: int
    """Samples a cell at the deciding look."""
    max_samples: int
    self_flips: tuple[SelfFlips, ...]
    warnings: tuple[str, ...]
    drift: Drift
    caches: tuple[CacheDrift, ...]
    """The drift of each side between cached and fresh readings, if the side supports it."""
    ties: Ties
    speeds: tuple[QuotedFigure, ...]
    determinism: tuple[tuple[str, str], ...]
    """(side, whether its deterministic mode is on)."""


def certify_sides(
    base: Side,
    candidate: Side,
    *,
    margin: float,
    listening: Listening = lambda: nullcontext(ignore),
    say: Callable[[str], None] = lambda text: None,
    one_at_a_time: bool = False,
    repeat: bool = True,
    logprobs: bool = True,
    anyway: bool = False,
) -> Certification:
    """Measures what is missing and decides. With `one_at_a_time` the base is measured whole before the candidate.
    With `anyway` the sides may be sent different texts. `listening` opens a display of progress for each round of a
    side. `repeat` asks some prompts twice, `logprobs` compares log-probabilities and times of some."""
    after = partial(_after_answers, base_folder=base.folder, listening=listening, say=say, repeat=repeat,
                    logprobs=logprobs)  # fmt: skip
    with ExitStack() as stack:
        if one_at_a_time:
            with _opened(base) as plan:
                again = _ask_one(base, plan, listening, after)
            sides = [(candidate, stack.enter_context(_opened(candidate)))]
        else:
            again = []
            sides = [(side, stack.enter_context(_opened(side))) for side in (base, candidate)]
        if not anyway:
            _refuse_other_prompts(base, candidate, [plan for _, plan in sides if plan is not None])
        measured = [(side, plan) for side, plan in sides if plan is not None]
        samples = max((plan.spec.samples for _, plan in measured), default=0) or _samples_of(candidate.folder)
        for look in looks(samples) if measured else (only_look(samples),):
            upto = look.samples
            for side, plan in measured:
                _ask(side, plan, upto, listening)
            runs = load_run(base.folder), load_run(candidate.folder)
            pairs, obstacles = pair_runs(*runs)
            for side, run in zip((base, candidate), runs, strict=True):
                refuse_unmeasured(side.folder, run.totals)
                _refuse_silent(side)
            decision = decide(_first_samples(pairs, upto), margin, look)
            say(f"{upto} samples a cell: {decision.outcome}")
            if decision.is_settled:
                break
        for side, plan in measured:
            again += after(side, plan, upto)
    drifts = [read_drift(side.folder) for side in (base, candidate)]
    caches = [cache_drift(side.role, drift) for side, drift in zip((base, candidate), drifts, strict=True)]
    return Certification(
        *runs,
        _first_samples(pairs, upto),
        decision,
        upto,
        samples,
        tuple(again),
        tuple(map(str, obstacles)),
        compare_drift(*drifts),
        tuple(cache for cache in caches if cache is not None),
        count_ties(base.folder, candidate.folder, upto),
        tuple(speed_figures(times_of(drifts[0]), times_of(drifts[1]))),
        tuple((side.role, deterministic_mode(side)) for side in (base, candidate)),
    )


After = Callable[[Side, Plan, int], list[SelfFlips]]


def _ask_one(side: Side, plan: Plan | None, listening: Listening, after: After) -> list[SelfFlips]:
    if plan is None:
        return []
    _ask(side, plan, plan.spec.samples, listening)
    return after(side, plan, plan.spec.samples)


def _after_answers(
    side: Side,
    plan: Plan,
    upto: int,
    *,
    base_folder: Path,
    listening: Listening,
    say: Callable[[str], None],
    repeat: bool,
    logprobs: bool,
) -> list[SelfFlips]:
    """The flips of a side against itself, and its log-probabilities."""
    again = _ask_again(side, plan, upto, listening) if repeat else []
    if logprobs:
        with blaming(side.server):
            measure_drift(side.folder, plan, _cells(plan), base_folder, say)
    return again


def deterministic_mode(side: Side) -> str:
    """Whether the engine's batch-invariant mode is on: `on`, or what is known."""
    if side.spec is None:
        return "a finished run: not known"
    if side.server is None:
        is_server = registry.ModelName.parse(side.spec.model).provider == "openai"
        return "not started here: not known" if is_server else "in this process: one prompt at a time"
    words = side.server.command
    on = "--enable-deterministic-inference" in words or "VLLM_BATCH_INVARIANT=1" in words
    on |= "vllm" in words and os.environ.get("VLLM_BATCH_INVARIANT") == "1"
    return "on" if on else "not switched on"


def count_ties(base: Path, candidate: Path, upto: int) -> Ties:
    """Prompts that score differently on the two sides, and those among them whose first token was nearly tied on a
    side."""
    sides = [{r.cell.key: r for r in read_records(folder) if not r.failed} for folder in (base, candidate)]
    flips = [
        (old, sides[1][key]) for key, old in sides[0].items()
        if old.cell.sample < upto and key in sides[1] and sides[1][key].score != old.score
    ]  # fmt: skip
    margins = [
        min(known)
        for pair in flips
        if (known := [m for r in pair if (m := getattr(r.outcome, "margin", None)) is not None])
    ]
    return Ties(len(flips), len(margins), sum(margin < TIE_NATS for margin in margins))


@contextmanager
def _opened(side: Side) -> Iterator[Plan | None]:
    """The side's plan with its server running; None for a finished run."""
    if side.spec is None:
        yield None
        return
    with ExitStack() as stack:
        if side.server is not None:
            stack.enter_context(side.server)
        plan = stack.enter_context(prepare(side.spec))
        if isinstance(plan.model, MarginModel):
            plan.model.keep_margins()
        yield plan


def _ask(side: Side, plan: Plan, upto: int, listening: Listening) -> None:
    """Asks the first `upto` samples of every cell that have no answer yet."""
    wanted = {cell.key for cell in _cells(plan) if cell.sample < upto}
    check_disk_space(side.folder, plan.planned)
    with open_run(side.folder, plan.manifest) as writer:
        missing = frozenset(wanted - writer.done)
        if missing:
            with blaming(side.server), listening() as listen:
                execute(plan, writer, listen=listen, only=missing)


def _ask_again(side: Side, plan: Plan, upto: int, listening: Listening) -> list[SelfFlips]:
    """Asks some prompts a second time, to count the side's flips against itself."""
    wanted = {cell.key for cell in _cells(plan) if cell.sample < upto}
    chosen = choose_repeats(record for record in read_records(side.folder) if record.cell.key in wanted)
    with blaming(side.server), listening() as listen:
        repeat(plan, side.folder, chosen, execute, listen)
    repeats = repeats_of(side.folder, wanted)
    return [SelfFlips(side.role, repeats)] if repeats is not None else []


def _cells(plan: Plan) -> list[Cell]:
    return [cell for cell in cells_of(plan.spec, plan.tasks) if plan.tasks[cell.task].is_aggregated]


def _first_samples(pairs: Pairs, upto: int) -> Pairs:
    """Without samples beyond the look, which an earlier command may have asked on one side."""
    rows = pairs.base.sample < upto
    return replace(pairs, base=pairs.base.take(rows), candidate=pairs.candidate.take(rows))


def _samples_of(folder: Path) -> int:
    data = observations(read_records(folder))
    return int(data.sample.max(initial=0)) + 1


def _refuse_silent(side: Side) -> None:
    """A side without a single answer has lost nothing: it was not measured."""
    failure = None
    for record in read_records(side.folder):
        if not record.failed:
            return
        failure = failure or record.outcome
    said = f": {failure.why}: {failure.message}" if isinstance(failure, Failure) else ""
    raise NotMeasured(
        f"the {side.role} answered none of its prompts{said}"[:600],
        where=side.name,
        fix="repair its server or settings and run the same command again: what failed is asked again",
    )


def _refuse_other_prompts(base: Side, candidate: Side, plans: Sequence[Plan]) -> None:
    """Before the first request, raises for sides that cannot be sent the same prompts. Engines name tokenizers and
    templates in different ways, so the texts of the shortest prompts decide about those."""
    known = {plan.spec.model: plan for plan in plans}
    sides: list[tuple[Manifest, dict[str, str]]] = []
    for side in (base, candidate):
        plan = known.get(side.spec.model) if side.spec is not None else None
        if plan is not None:
            sides.append((plan.manifest, _texts_of_shortest(plan)))
        else:
            digests = {record.cell.key: record.prompt_digest for record in read_records(side.folder)}
            sides.append((read_manifest(side.folder), digests))
    (old, old_texts), (new, new_texts) = sides
    obstacles = comparability(old.compared(), new.compared())
    refused = [str(obstacle) for obstacle in obstacles if obstacle.severity == "refuse"]
    others = [key for key, text in old_texts.items() if text and new_texts.get(key, text) not in ("", text)]
    if others:
        reasons = [str(obstacle) for obstacle in obstacles if obstacle.what in IN_THE_TEXT]
        refused += reasons or [f"the text of {others[0]} differs: the chat templates do"]
    if refused:
        raise UsageError(
            "the sides cannot be sent the same prompts: " + "; ".join(refused),
            where="leadline certify",
            fix="give both the same tokenizer and template (tokenizer=FOLDER, template=FILE), tasks and lengths; or "
            "--anyway: the same questions in other texts",
        )


def _texts_of_shortest(plan: Plan) -> dict[str, str]:
    """Digests of the prompts of each task's first shortest document, by cell."""
    digests: dict[str, str] = {}
    shortest = min((cell.length for cell in _cells(plan) if cell.length), default=0)
    seen: set[str] = set()
    for planned in planned_documents(plan.spec, plan.tasks):
        cell = planned.cells[0]
        if cell.length == shortest and cell.task not in seen:
            seen.add(cell.task)
            document = planned.document_or_failures(plan.spec.seed, plan.fitter)
            digests |= {
                probe.cell.key: document.prompt_digest(probe) for probe in document.probes if not probe.not_asked
            }
    return digests
