"""Questions asked a second time, into the folder `again` of a run: by itself where a model has no greedy decoding.

That is known beforehand, or learned from its refusal of a temperature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from leadline.core.contracts import KnowsDecoding, Model
from leadline.core.format import format_count
from leadline.core.spec import Spec
from leadline.results.repeats import choose_repeats, wanted_repeats
from leadline.run.estimate import Cost
from leadline.run.events import Answered, Event, Listener, Note, Started, StepProgress
from leadline.run.money import BudgetReached
from leadline.run.plan import Plan
from leadline.run.time_limit import TimeReached
from leadline.store.runs import AGAIN, open_run, read_records

TEXT = "asked again"


def repeats_wanted(spec: Spec, model: Model) -> bool:
    """Whether questions are asked again: the spec says so, or the model is known to decode by chance."""
    if spec.limits.repeats is not None:
        return spec.limits.repeats > 0
    return isinstance(model, KnowsDecoding) and not model.is_greedy


def repeats_cost(plan: Plan) -> Cost:
    """The approximate cost of asking again, as far as known before the run: nothing if the plan asks nothing again."""
    costs = [cost for title, cost in plan.costs.items() if plan.tasks[title].request == "answer"]
    whole = sum(costs, Cost())
    if not whole.requests or not repeats_wanted(plan.spec, plan.model):
        return Cost()
    return whole.scaled(wanted_repeats(whole.requests, plan.spec.limits.repeats) / whole.requests)


def ask_again(plan: Plan, folder: Path, execute: Callable[..., None], listen: Listener) -> None:
    """Asks the questions that have no second answer yet. Time or budget may end it early."""
    if not repeats_wanted(plan.spec, plan.model):
        return
    chosen = choose_repeats(read_records(folder), plan.spec.limits.repeats)
    try:
        repeat(plan, folder, chosen, execute, listen)
    except (TimeReached, BudgetReached) as reached:
        listen(Note(f"not every question could be asked again: {reached.what}"))


def repeat(plan: Plan, folder: Path, keys: Iterable[str], execute: Callable[..., None], listen: Listener) -> None:
    """Asks these cells of a run a second time, as far as they have no second answer."""
    wanted = frozenset(keys)
    if not wanted:
        return
    with open_run(folder / AGAIN, plan.manifest) as writer:
        missing = wanted - writer.done
        if missing:
            listen(Note(f"{format_count(len(missing), 'question')} asked again, to see how answers differ"))
            execute(plan, writer, listen=_counting(listen, len(missing)), only=missing)


def _counting(listen: Listener, total: int) -> Listener:
    """Second answers are a step after the questions, not answers of the run."""
    answered: set[str] = set()

    def heard(event: Event) -> None:
        if isinstance(event, Answered):
            answered.add(event.record.cell.key)
            listen(StepProgress(TEXT, len(answered), total))
        elif not isinstance(event, Started):
            listen(event)

    return heard
