"""The steps after the questions, by the door `leadline.after_run`: judges that grade the answers, trackers that log
them.

An entry point names an instance of a subclass of `AfterRun`. Its steps are taken in the order of their names, so that
`judges` come before `trackers`. A step that fails does not take back the run: its error is raised when the others are
through.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from leadline.core import registry
from leadline.core.errors import Interrupted, LeadlineError, UsageError
from leadline.core.money import Payment
from leadline.core.spec import Spec
from leadline.run.estimate import Cost
from leadline.run.events import Listener, ignore
from leadline.run.interrupt import Stop
from leadline.run.plan import Plan


class AfterRun:
    """A step after the questions. Only `wants` and `run` have to be written."""

    def wants(self, spec: Spec) -> bool:
        """Whether the spec asks for this step."""
        raise NotImplementedError

    def run(self, folder: Path, spec: Spec, listen: Listener, stop: Stop) -> None:
        """Takes the step for the run in this folder; raises a LeadlineError if it could not."""
        raise NotImplementedError

    def check(self, spec: Spec, listen: Listener, *, has_prices: bool = False) -> None:
        """Raises before the run for problems that would end the step after it. With `has_prices` the file of prices is
        not needed."""

    def cost(self, plan: Plan) -> Mapping[str, Cost]:
        """By model, the most that its requests in this step cost."""
        return {}

    def payments(self, folder: Path) -> Iterable[Payment]:
        """The requests to other models so far for the run in this folder."""
        return ()


def steps_of(spec: Spec) -> list[AfterRun]:
    """The steps that the spec asks for. Raises where it asks for one that is not installed."""
    steps: dict[str, AfterRun] = registry.every("after_run")
    for name, is_asked_for in {"judges": bool(spec.judges.models), "trackers": bool(spec.log.to)}.items():
        if is_asked_for and name not in steps:
            raise UsageError(f"{name} are not installed", where="spec", fix="install the package leadline again")
    return [step for step in steps.values() if step.wants(spec)]


def check_steps(spec: Spec, listen: Listener = ignore, *, has_prices: bool = False) -> list[AfterRun]:
    """The steps of the spec, each checked before anything is asked."""
    steps = steps_of(spec)
    for step in steps:
        step.check(spec, listen, has_prices=has_prices)
    return steps


def take_steps(
    steps: Sequence[AfterRun], folder: Path, spec: Spec, listen: Listener, stop: Stop | None = None
) -> tuple[LeadlineError, ...]:
    """Takes each step; returns the errors of those that failed. Ctrl-C ends them all."""
    errors: list[LeadlineError] = []
    for step in steps:
        try:
            step.run(folder, spec, listen, stop or Stop())
        except Interrupted:
            raise
        except LeadlineError as error:
            errors.append(error)
    return tuple(errors)
