"""A run from a program: one call to measure, one to see what it would cost."""

from __future__ import annotations

from pathlib import Path

from leadline.core.spec import Spec
from leadline.results.run import Run, load_run
from leadline.run.engine import execute
from leadline.run.events import Listener, ignore
from leadline.run.judge import judge_as_asked
from leadline.run.plan import Plan, check_room, prepare
from leadline.run.stopping import Stop
from leadline.store.runs import open_run


def measure(spec: Spec, out: Path | str | None = None, *, listen: Listener = ignore, keep_prompts: bool = False) -> Run:
    """Asks everything the spec wants that the folder does not have yet, and returns the run.

    Failed samples are in the run's totals and records and are asked again by the next call. A run that stops early
    raises RunStopped, a wrong spec raises an error of its own; what was recorded is kept. Judges of the spec grade the
    answers at the end.
    """
    with prepare(spec, listen=listen) as made:
        folder = carry_out(made, out, listen=listen, keep_prompts=keep_prompts)
    if spec.judges.models:
        judge_as_asked(folder, spec)
    return load_run(folder)


def carry_out(
    made: Plan,
    out: Path | str | None = None,
    *,
    listen: Listener = ignore,
    keep_prompts: bool = False,
    stop: Stop | None = None,
) -> Path:
    """Runs a plan and returns the folder. `stop` ends it from another thread."""
    folder = made.folder if out is None else Path(out)
    check_room(folder, made.planned)
    with open_run(folder, made.manifest) as writer:
        execute(made, writer, listen=listen, keep_prompts=keep_prompts, stop=stop)
    return folder


def plan(spec: Spec) -> Plan:
    """What a run costs and what to know about it. The model is opened to count in its tokens, and closed."""
    with prepare(spec) as made:
        return made
