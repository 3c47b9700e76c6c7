"""The money that a plan costs in each reading mode, and budgets, which end a run before it costs more.

The prompt tokens of a request decide its price (long prompts may cost more) and the part that the provider's cache can
have: in `shared` and `nested` all but the first question of a document find their beginning there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from leadline.core.contracts import CountsPrompts, HasPrefixCache, PrefixCache, Task
from leadline.core.errors import RunStopped
from leadline.core.money import Tariff, check_budget, format_money
from leadline.core.records import Record
from leadline.core.spec import Limits
from leadline.core.types import READINGS, Probe, Reading
from leadline.run.documents import count_documents, depths_of, samples_of
from leadline.run.plan import Plan
from leadline.run.time_limit import ROUND_SHARE
from leadline.stats.allocate import Design, until_effective
from leadline.stats.observations import observations
from leadline.store.prices import RunPrices
from leadline.store.runs import AGAIN


@dataclass(frozen=True, slots=True)
class Bill:
    """The requests of one length that cost the same."""

    requests: int
    prompt: int
    output: int
    cached: int = 0
    written: int = 0
    hours: float = 0.0
    """The time for which written tokens are kept, if storage is paid by the hour."""

    def money(self, tariff: Tariff) -> float:
        per_request = tariff.cost(self.prompt, self.output, cached=self.cached, written=self.written)
        return self.requests * (per_request + tariff.storage(self.written, self.hours))


def money(plan: Plan, tariff: Tariff, reading: Reading) -> float | None:
    """The cost of all requests of the plan in this reading mode; None where a task does not allow the mode."""
    if any(reading not in task.readings for task in plan.tasks.values()):
        return None
    return sum(
        bill.money(tariff) for title, task in plan.tasks.items() for bill in _task_bills(plan, title, task, reading)
    )


def side_by_side(plan: Plan, tariff: Tariff) -> dict[str, float | None]:
    """The money of each reading mode, and the least money of a run that stops when its effective length is certain."""
    costs: dict[str, float | None] = {reading: money(plan, tariff, reading) for reading in READINGS}
    costs["until, at least"] = _first_look(plan, tariff)
    return costs


def _task_bills(plan: Plan, title: str, task: Task, reading: Reading) -> Iterator[Bill]:
    samples, depths = samples_of(plan.spec, task), len(depths_of(plan.spec, task))
    if task.request == "logprobs":
        cost = plan.costs[title]
        if cost.requests:
            yield Bill(cost.requests, cost.prompt_tokens // cost.requests, 0)
        return
    cache = _cache_of(plan)
    prompts, closing = plan.prompts[title]
    longest, documents = max(prompts), count_documents(plan.spec.model_copy(update={"reading": reading}), task)
    for length, prompt in prompts.items():
        output, kept = plan.allowed[title][length], prompt - closing
        is_written = reading == "shared" or (reading == "nested" and (length == longest or cache.hours > 0))
        first = documents if is_written else 0
        following = samples * depths - first
        if reading == "fresh" or (first and not following):  # what is written to the cache is never asked again
            yield Bill(samples * depths, prompt, output)
            continue
        if first and cache.primes and kept >= cache.min_tokens:  # a request of its own, and then all questions find it
            yield Bill(first, kept, 0, written=kept, hours=cache.hours)
            first, following = 0, first + following
        if first:
            yield Bill(first, prompt, output, written=kept)
        if following:
            yield Bill(following, prompt, output, cached=kept)


def _cache_of(plan: Plan) -> PrefixCache:
    """A hosted model's statements about its cache. A server of one's own has no prices."""
    if isinstance(plan.model, CountsPrompts) and isinstance(plan.model, HasPrefixCache):
        return plan.model.prefix_cache
    return PrefixCache()


def _first_look(plan: Plan, tariff: Tariff) -> float | None:
    """The samples that the rule `effective` asks for before it can stop at all, in the reading mode of the plan."""
    reading = plan.spec.reading
    if len(plan.spec.lengths) < 2 or not plan.points:
        return None
    design = Design(points=plan.points, at_once=plan.at_once, reading=reading)
    total, seen = 0.0, set()
    for cell in sorted(until_effective(observations(()), design, confidence=0.95).next, key=lambda c: -c.length):
        prompts, closing = plan.prompts[cell.task]
        prompt, output = prompts[cell.length], plan.allowed[cell.task][cell.length]
        if reading == "fresh":
            total += tariff.cost(prompt, output)
            continue
        sample = cell.sample // plan.tasks[cell.task].samples_per_document
        document, kept = (cell.task, sample, cell.length if reading == "shared" else None), prompt - closing
        cached, written = (kept, 0) if document in seen else (0, kept)
        seen.add(document)
        total += tariff.cost(prompt, output, cached=cached, written=written)
    return total


# --- budgets


def affordable_lengths(plan: Plan, limit: float, tariff: Tariff) -> list[int]:
    """The lengths at which one sample of every cell fits into a part of the budget; the two shortest always."""
    lengths = plan.spec.lengths
    return [n for i, n in enumerate(lengths) if i < 2 or _round_money(plan, n, tariff) <= ROUND_SHARE * limit]


def _round_money(plan: Plan, length: int, tariff: Tariff) -> float:
    """The most that one sample of every cell of a length costs."""
    total = 0.0
    for title, task in plan.tasks.items():
        prompts, closing = plan.prompts[title]
        prompt, output = prompts[length], plan.allowed[title].get(length, 0)
        following = len(depths_of(plan.spec, task)) - 1
        cached = 0 if plan.spec.reading == "fresh" else prompt - closing
        total += tariff.cost(prompt, output) + following * tariff.cost(prompt, output, cached=cached)
    return total


class BudgetReached(RunStopped):
    """The budget is used up; what was answered counts."""


class Budget:
    """Ends a run before it costs more. Requests in flight count at their highest possible cost. Used with a lock
    held."""

    def __init__(self, limit: float, tariff: Tariff, spent: float = 0.0) -> None:
        """`spent` is what the run has cost so far, its judges included; `tariff` is that of the model asked now."""
        self.limit = limit
        self.spent = spent
        self._tariff = tariff
        self._reserved = 0.0

    @property
    def in_flight(self) -> bool:
        return self._reserved > 1e-9

    def most(self, requests: Iterable[tuple[int, int]]) -> float:
        """The most that requests of (prompt, output) tokens can cost: nothing from a cache, or all written to one, by a
        request of its own where writing is charged."""
        cost, written = self._tariff.cost, self._tariff.rates.write is not None
        return sum(
            max(
                cost(prompt, out),
                cost(prompt, out, written=prompt) + (cost(prompt, cached=prompt) if written else 0.0),
            )
            for prompt, out in requests
        )

    def most_of(self, probes: Sequence[Probe]) -> float:
        return self.most((probe.prompt_tokens, probe.question.allowance) for probe in probes)

    def fits(self, most: float) -> bool:
        return self.spent + self._reserved + most <= self.limit

    def reserve(self, most: float) -> None:
        self._reserved += most

    def pay(self, most: float, cost: float) -> None:
        """Replaces the reserved `most` by the actual `cost`."""
        self._reserved = max(0.0, self._reserved - most)
        self.spent += cost

    def answered(self, probes: Sequence[Probe], records: Sequence[Record]) -> None:
        """These probes were answered, or failed."""
        self.pay(self.most_of(probes), sum(map(self._tariff.cost_of, records)))

    def reached(self, where: str) -> BudgetReached:
        currency = self._tariff.currency
        spent, limit = format_money(self.spent, currency), format_money(self.limit, currency)
        return BudgetReached(
            f"the budget of {limit} is reached: {spent} are spent, and the next question could exceed it",
            where=where,
            fix="run the same command with a higher --budget: it continues with what is missing",
        )


def budget_of(limits: Limits, folder: Path, tested: str, tariff: Tariff | None) -> Budget | None:
    """The budget for a model with these prices, the tested one or a judge, less what the run in the folder has cost:
    its records, also those that were replaced or asked again, and the verdicts of judges."""
    limit = check_budget(limits.budget, tariff)
    if limit is None or tariff is None:
        return None
    prices = RunPrices(folder.parent if folder.name == AGAIN else folder)
    spent = prices.model_money(prices.of(tested)) + sum(prices.judge_money().values())
    return Budget(limit, tariff, spent)
