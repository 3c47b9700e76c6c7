"""What a plan costs: requests and tokens, memory and time on this machine, and money in each reading mode. Budgets,
which end a run and its judges before they cost more.

Lengths are exact, so the prompt tokens of every request are known before it is sent, and with them which price it has
(long prompts may cost more) and how much of it the provider's cache can have: in `shared` and `nested` all but the
first question of a document find their beginning there. The output is the maximum.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.core.contracts import Forecasting, Model, Task
from leadline.core.errors import RunStopped
from leadline.core.records import Record
from leadline.core.spec import Limits, Spec
from leadline.core.types import READINGS, Cell, Document, Probe, Reading
from leadline.features.judges.verdicts import JudgeVerdict
from leadline.run.documents import count_documents, depths_of, first_rows, planned_documents, samples_of
from leadline.run.stopping import Stop
from leadline.stats.allocate import Design, until_effective
from leadline.stats.observations import observations
from leadline.store.files import SYNC_SECONDS
from leadline.store.prices import Tariff, tariff_of
from leadline.store.run_prices import RunPrices, check_budget, format_money
from leadline.text.fitting import Fitter

if TYPE_CHECKING:
    from leadline.run.plan import Plan

CLOSING = 64
"""Tokens of a question with its template, for the forecast of memory, which need not be exact."""
BYTES_PER_TOKEN = 3
"""Of a judge's prompt that its server does not count: fewer than most tokenizers have, so that it is not too cheap."""
TEMPLATE_TOKENS = 256
"""Around a judge's prompt, at most: the budget counts them before the server does."""


# --- requests, tokens, memory and time


@dataclass(frozen=True, slots=True)
class Cost:
    """What a task or a whole run costs; exact, since lengths are exact."""

    requests: int = 0
    prompt_tokens: int = 0
    """Sum over all prompts; what a provider bills."""
    tokens_read: int = 0
    """Tokens to read when the common prefix of a document is read once: in process, or with a prefix cache."""
    output_tokens: int = 0
    """The maximum: every answer as long as allowed."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.tokens_read + other.tokens_read,
            self.output_tokens + other.output_tokens,
        )

    def seconds(self, tokens_per_second: float) -> float:
        """At a reading speed; generated tokens count like read ones, which is right for short answers."""
        return (self.tokens_read + self.output_tokens) / tokens_per_second

    def money(self, price_in: float, price_out: float) -> float:
        """At prices per million tokens, without discounts for cached input."""
        return (self.prompt_tokens * price_in + self.output_tokens * price_out) / 1e6


def allowances(spec: Spec, title: str, task: Task, extra: Mapping[int, int]) -> dict[int, int]:
    """By length: the tokens an answer may have, from drafts, which need no tokenizer, and `extra` for thinking."""
    if task.request == "logprobs":
        return dict.fromkeys(spec.lengths, 0)
    found: dict[int, int] = {}
    for row in first_rows(spec, title, task):
        for question in task.write(row, seed=spec.seed).questions:
            length = question.cell.length
            found[length] = max(found.get(length, 0), question.allowance + extra.get(length, 0))
    return found


def cost_of(spec: Spec, task: Task, allowed: Mapping[int, int], built: Sequence[Document]) -> Cost:
    """`built` are documents of the task: how long their questions are says what a shared document adds per probe."""
    if task.request == "logprobs":
        return _logprob_cost(spec, task, built)
    prompts, closing = prompts_of(task, allowed, built)
    probes = len(depths_of(spec, task)) * samples_of(spec, task)
    total = sum(prompts.values()) * probes
    return Cost(
        requests=probes * len(prompts),
        prompt_tokens=total,
        tokens_read=_tokens_read(spec, task, total, list(prompts.values()), probes, closing),
        output_tokens=sum(allowed.values()) * probes,
    )


def prompts_of(task: Task, allowed: Mapping[int, int], built: Sequence[Document]) -> tuple[dict[int, int], int]:
    """By length the tokens of a prompt, and how many of them at its end are a question's own."""
    asked = [p for d in built for p in d.probes]
    closing = max((p.prompt_tokens - p.cut for p in asked), default=0)
    prompts = {length: length - allowance for length, allowance in allowed.items()}
    if task.no_context:  # the question alone, whatever the length
        prompts = dict.fromkeys(prompts, max((p.prompt_tokens for p in asked), default=0))
    return prompts, closing


def _logprob_cost(spec: Spec, task: Task, built: Sequence[Document]) -> Cost:
    """One request per document, with tokens in proportion to those of one that was built."""
    tried = max(built, key=lambda d: len(d.ids))
    share = sum(p.tokens for p in tried.passages) / max(p.cell.length for p in tried.probes)
    once = spec.reading == "nested"
    fresh = 1 if task.reads_once or spec.reading != "fresh" else len(depths_of(spec, task))
    lengths = [max(spec.lengths)] if once else list(spec.lengths)
    tokens = round(share * sum(lengths)) * spec.samples * fresh
    return Cost(len(lengths) * spec.samples * fresh, tokens, tokens, 0)


def _tokens_read(spec: Spec, task: Task, total: int, prompts: list[int], probes: int, closing: int) -> int:
    if spec.reading == "fresh":
        return total
    read_once, rows = sum(prompts) if spec.reading == "shared" else max(prompts), count_documents(spec, task)
    documents = rows * (len(prompts) if spec.reading == "shared" else 1)
    return read_once * rows + (probes * len(prompts) - documents) * closing


def forecast(
    spec: Spec, tasks: dict[str, Task], model: Model, allowed: dict[str, dict[int, int]], fitter: Fitter
) -> tuple[str, ...]:
    """Memory and time on this machine, for a model in process; raises when a document cannot fit."""
    if not isinstance(model, Forecasting):
        return ()

    def probe(cell: Cell) -> tuple[int, int, int]:
        new = allowed[cell.task][cell.length]
        return cell.length - new, CLOSING, new

    planned = [one.cells for one in planned_documents(spec, tasks)]
    unchanged = {title: _unchanged_before(spec, title, task, fitter) for title, task in tasks.items()}
    kept = [0] * len(planned)
    for i, (before, cells) in enumerate(pairwise(planned), 1):
        a, b = before[0], cells[0]
        if len(cells) == 1 and (a.task, a.length, a.sample) == (b.task, b.length, b.sample):
            kept[i] = int(unchanged[b.task] * (b.depth or 0.0) * probe(b)[0])
    return model.forecast([[probe(c) for c in cells] for cells in planned], kept)


def _unchanged_before(spec: Spec, title: str, task: Task, fitter: Fitter) -> float:
    """The share of the text before a fact that a document has in common with that of the next depth, in `fresh`:
    nearly all where facts are planted in one haystack. From two of the shortest documents."""
    depths = depths_of(spec, task)
    if spec.reading != "fresh" or task.reads_once or len(depths) < 2 or not depths[-2]:
        return 0.0
    cells = [Cell(title, min(spec.lengths), depth, 0) for depth in depths[-2:]]
    a, b = (task.document((cell,), seed=spec.seed, fitter=fitter).ids for cell in cells)
    size = min(len(a), len(b))
    common = int((a[:size] != b[:size]).argmax()) if (a[:size] != b[:size]).any() else size
    return min(1.0, common / (depths[-2] * len(a)))


# --- money


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


def money(plan: Plan, tariff: Tariff, reading: Reading) -> float | None:
    """Of all requests of the plan if it were made in this reading mode; None where a task cannot be read so."""
    if any(reading not in task.readings for task in plan.tasks.values()):
        return None
    return sum(
        bill.money(tariff) for title, task in plan.tasks.items() for bill in _task_bills(plan, title, task, reading)
    )


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
    longest, documents = max(prompts), count_documents(plan.spec.model_copy(update={"reading": reading}), task)
    for length, prompt in prompts.items():
        output = plan.allowed[title][length]
        first = documents if reading == "shared" or (reading == "nested" and length == longest) else 0
        following = samples * depths - first
        if reading == "fresh" or (first and not following):  # what is written to the cache is never asked again
            yield Bill(samples * depths, prompt, output)
            continue
        if first:
            yield Bill(first, prompt, output, written=prompt - closing)
        if following:
            yield Bill(following, prompt, output, cached=prompt - closing)


def _first_look(plan: Plan, tariff: Tariff) -> float | None:
    """The samples that the rule `effective` asks for before it can stop at all, in the reading mode of the plan."""
    reading = plan.spec.reading
    if len(plan.spec.lengths) < 2 or not plan.places:
        return None
    design = Design(places=plan.places, at_once=plan.at_once, nested=reading == "nested")
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


class Budget:
    """Ends a run before it costs more: what is in flight counts as the most it can cost. Used with a lock held."""

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
        """The most that requests of (prompt, output) tokens can cost: nothing from a cache, all written to one."""
        cost = self._tariff.cost
        return sum(max(cost(prompt, out), cost(prompt, out, written=prompt)) for prompt, out in requests)

    def most_of(self, probes: Sequence[Probe]) -> float:
        return self.most((probe.prompt_tokens, probe.allowance) for probe in probes)

    def fits(self, most: float) -> bool:
        return self.spent + self._reserved + most <= self.limit

    def reserve(self, most: float) -> None:
        self._reserved += most

    def pay(self, most: float, cost: float) -> None:
        """What was reserved as `most` did cost `cost`."""
        self._reserved = max(0.0, self._reserved - most)
        self.spent += cost

    def answered(self, probes: Sequence[Probe], records: Sequence[Record]) -> None:
        """These probes were answered, or failed."""
        self.pay(self.most_of(probes), sum(map(self._tariff.cost_of, records)))

    def reached(self, where: str) -> RunStopped:
        currency = self._tariff.currency
        spent, limit = format_money(self.spent, currency), format_money(self.limit, currency)
        return RunStopped(
            f"the budget of {limit} is reached: {spent} are spent, and the next question could exceed it",
            where=where,
            fix="run the same command with a higher --budget: it continues with what is missing",
        )


def estimated_tokens(prompt: str) -> int:
    """Of a judge's prompt, where the server does not count it."""
    return -(-len(prompt.encode()) // BYTES_PER_TOKEN)


class JudgePayments:
    """The money of one judge: a verdict is only asked for if the budget of the run has the most it can cost."""

    def __init__(self, tariff: Tariff | None, budget: Budget | None, where: str) -> None:
        self._tariff, self._budget, self._where = tariff, budget, where
        self._turn = threading.Condition()

    def reserve(self, prompt: str, output: int, stop: Stop) -> float:
        """What was reserved for a reply of at most `output` tokens to this prompt, when the budget has it. A token has
        at least one byte. Stops the judge if nothing is in flight that may turn out cheaper."""
        budget = self._budget
        if budget is None:
            return 0.0
        most = budget.most([(len(prompt.encode()) + TEMPLATE_TOKENS, output)])
        with self._turn:
            while not stop.is_set and not budget.fits(most):
                if not budget.in_flight:
                    stop.because(budget.reached(self._where))
                    return 0.0
                self._turn.wait(SYNC_SECONDS)
            budget.reserve(most)
        return most

    def pay(self, most: float, before: JudgeVerdict, after: JudgeVerdict) -> None:
        """A verdict got one more reply."""
        if self._budget is None or self._tariff is None:
            return
        with self._turn:
            self._budget.pay(most, self._tariff.cost_of_verdict(after) - self._tariff.cost_of_verdict(before))
            self._turn.notify_all()


def judge_tariffs(limits: Limits, judges: Sequence[str]) -> dict[str, Tariff]:
    """The prices of judges, by their names; empty without a file of prices. A budget must be in their currency."""
    if not limits.prices:
        return {}
    found = {name: tariff_of(Path(limits.prices), name, limits.tier) for name in judges}
    for tariff in found.values():
        check_budget(limits.budget, tariff)
    return found


def budget_of(limits: Limits, folder: Path, tested: str, tariff: Tariff | None) -> Budget | None:
    """The budget for a model with these prices, the tested one or a judge, less what the run in the folder has cost:
    its records, also those that were replaced, and the verdicts of judges."""
    limit = check_budget(limits.budget, tariff)
    if limit is None or tariff is None:
        return None
    prices = RunPrices(folder)
    spent = prices.model_money(prices.of(tested)) + sum(prices.judge_money().values())
    return Budget(limit, tariff, spent)
