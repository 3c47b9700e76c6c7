"""A run from a program: one call to measure, one to see what it would cost."""

from __future__ import annotations

from pathlib import Path

from leadline.core.spec import Spec
from leadline.run.engine import execute
from leadline.run.events import Listener, ignore
from leadline.run.plan import Plan, check_room, prepare
from leadline.run.stopping import Stop
from leadline.run.summary import Summary
from leadline.store.runs import open_run


def measure(
    spec: Spec, out: Path | str | None = None, *, listen: Listener = ignore, keep_prompts: bool = False
) -> Summary:
    """Asks everything the spec wants that the folder does not have yet, and says what came of it.

    Samples that failed are in the summary and the records; they are asked again by the next call. An early end is
    an exception (RunStopped), and so is everything that is wrong with the spec; what was recorded stays.
    """
    with prepare(spec) as made:
        return carry_out(made, out, listen=listen, keep_prompts=keep_prompts)


def carry_out(
    made: Plan,
    out: Path | str | None = None,
    *,
    listen: Listener = ignore,
    keep_prompts: bool = False,
    stop: Stop | None = None,
) -> Summary:
    """The pass of a plan, in a folder. `stop` ends it from elsewhere."""
    folder = made.folder if out is None else Path(out)
    check_room(folder, made.planned)
    with open_run(folder, made.manifest) as writer:
        return execute(made, writer, listen=listen, keep_prompts=keep_prompts, stop=stop)


def plan(spec: Spec) -> Plan:
    """The costs of a run and what to know about it. The model is opened to count in its tokens, and closed."""
    with prepare(spec) as made:
        return made
