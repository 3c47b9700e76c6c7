"""What a plan costs in money, in each reading mode.

Lengths are exact, so the prompt tokens of every request are known before it is sent, and with them which price it has
(long prompts may cost more) and how much of it the provider's cache can have: in `shared` and `nested` all but the
first question of a document find their beginning there. The output is the maximum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from leadline.core.contracts import Task
from leadline.core.types import READINGS, Cell, Reading
from leadline.run.documents import depths_of, samples_of
from leadline.run.plan import Plan
from leadline.stats.allocate import Design, until_effective
from leadline.stats.observations import observations
from leadline.store.prices import Tariff


@dataclass(frozen=True, slots=True)
class Bill:
    """The requests of one length that cost the same."""

    requests: int
    prompt: int
    output: int
    cached: int = 0
    written: int = 0

    def money(self, tariff: Tariff) -> float:
        one = tariff.cost(self.prompt, self.output, cached=self.cached, written=self.written)
        return self.requests * one


def bills(plan: Plan, reading: Reading) -> list[Bill]:
    """Every request of the plan if it were made in this reading mode."""
    return [bill for title, task in plan.tasks.items() for bill in _task_bills(plan, title, task, reading)]


def money(plan: Plan, tariff: Tariff, reading: Reading) -> float | None:
    """None where a task of the plan cannot be read so."""
    if any(reading not in task.readings for task in plan.tasks.values()):
        return None
    return sum(bill.money(tariff) for bill in bills(plan, reading))


def side_by_side(plan: Plan, tariff: Tariff) -> dict[str, float | None]:
    """The money of each reading mode, and the least of a run that stops when its effective length is certain."""
    found: dict[str, float | None] = {reading: money(plan, tariff, reading) for reading in READINGS}
    found["until, at least"] = _first_look(plan, tariff)
    return found


def _task_bills(plan: Plan, title: str, task: Task, reading: Reading) -> Iterator[Bill]:
    samples, depths = samples_of(plan.spec, task), len(depths_of(plan.spec, task))
    if task.request == "logprobs":
        cost = plan.costs[title]
        if cost.requests:
            yield Bill(cost.requests, cost.prompt_tokens // cost.requests, 0)
        return
    prompts, closing = plan.prompts[title]
    longest = max(prompts)
    for length, prompt in prompts.items():
        output = plan.allowed[title][length]
        first = samples if reading == "shared" or (reading == "nested" and length == longest) else 0
        following = samples * depths - first
        if reading == "fresh" or (first and not following):  # nobody asks again what is written
            yield Bill(samples * depths, prompt, output)
            continue
        if first:
            yield Bill(first, prompt, output, written=prompt - closing)
        if following:
            yield Bill(following, prompt, output, cached=prompt - closing)


def _first_look(plan: Plan, tariff: Tariff) -> float | None:
    """The samples that the rule `effective` asks for before it can stop at all, in the reading mode of the plan."""
    spec = plan.spec
    places = tuple(
        (title, length, depth)
        for title, task in plan.tasks.items()
        if task.request == "answer"
        for length in spec.lengths
        for depth in depths_of(spec, task)
    )
    if len(spec.lengths) < 2 or not places:
        return None
    design = Design(places=places, at_once=plan.at_once, nested=spec.reading == "nested")
    asked = until_effective(observations(()), design, confidence=0.95).next
    return sum(_one(plan, tariff, cell, first) for cell, first in _with_first(asked))


def _with_first(cells: Iterable[Cell]) -> Iterator[tuple[Cell, bool]]:
    """Whether each is the first of its document in shared reading."""
    seen = set()
    for cell in cells:
        document = (cell.task, cell.length, cell.sample)
        yield cell, document not in seen
        seen.add(document)


def _one(plan: Plan, tariff: Tariff, cell: Cell, first: bool) -> float:
    prompts, closing = plan.prompts[cell.task]
    prompt, output = prompts[cell.length], plan.allowed[cell.task][cell.length]
    if plan.spec.reading == "fresh":
        return tariff.cost(prompt, output)
    kept = prompt - closing
    return tariff.cost(prompt, output, cached=0 if first else kept, written=kept if first else 0)
