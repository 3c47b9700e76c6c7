"""Budgets: a run and its judges stop before they cost more, and go on with a higher one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from leadline.core.errors import RunStopped
from leadline.core.records import Record
from leadline.core.spec import Limits
from leadline.core.types import Probe
from leadline.run.plan import Plan
from leadline.store.prices import Tariff, tariff_of
from leadline.store.run_prices import RunPrices, check_budget, format_money, most_expensive, saved_prices
from leadline.store.runs import every_record


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
        """The most that requests of (prompt, output) tokens can cost."""
        return most_expensive(self._tariff, list(requests))

    def fits(self, most: float) -> bool:
        return self.spent + self._reserved + most <= self.limit

    def reserve(self, most: float) -> None:
        self._reserved += most

    def pay(self, most: float, cost: float) -> None:
        """What was reserved as `most` did cost `cost`."""
        self._reserved = max(0.0, self._reserved - most)
        self.spent += cost

    def reached(self, where: str) -> RunStopped:
        currency = self._tariff.currency
        spent, limit = format_money(self.spent, currency), format_money(self.limit, currency)
        return RunStopped(
            f"the budget of {limit} is reached: {spent} are spent, and the next question could exceed it",
            where=where,
            fix="run the same command with a higher --budget: it continues with what is missing",
        )


class RunBudget(Budget):
    """The budget of a run's questions."""

    def most_of(self, probes: Sequence[Probe]) -> float:
        return self.most((probe.prompt_tokens, probe.allowance) for probe in probes)

    def answered(self, probes: Sequence[Probe], records: Sequence[Record]) -> None:
        """These probes were answered, or failed."""
        self.pay(self.most_of(probes), sum(map(self._tariff.cost_of, records)))


def budget_of(plan: Plan, folder: Path) -> RunBudget | None:
    """The budget of the spec, less what the records and verdicts of the folder have cost."""
    limit = check_budget(plan.spec.limits.budget, plan.tariff)
    if limit is None or plan.tariff is None:
        return None
    return RunBudget(limit, plan.tariff, _spent(folder, plan.tariff))


def judge_tariffs(limits: Limits, judges: Sequence[str]) -> dict[str, Tariff]:
    """The prices of judges, by their names; empty without a file of prices. A budget must be in their currency."""
    if not limits.prices:
        return {}
    found = {name: tariff_of(Path(limits.prices).expanduser(), name, limits.tier) for name in judges}
    for tariff in found.values():
        check_budget(limits.budget, tariff)
    return found


def judge_budget(limits: Limits, folder: Path, tested: str, tariff: Tariff | None) -> Budget | None:
    """What is left of the budget for a judge with these prices; `tested` is the model of the run."""
    limit = check_budget(limits.budget, tariff)
    if limit is None or tariff is None:
        return None
    return Budget(limit, tariff, _spent(folder, saved_prices(folder).get(tested)))


def _spent(folder: Path, tariff: Tariff | None) -> float:
    """By the records, also those that were replaced, and by the verdicts of judges."""
    records = 0.0 if tariff is None else sum(map(tariff.cost_of, every_record(folder)))
    return records + sum(RunPrices(folder).judge_money().values())
