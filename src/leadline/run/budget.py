"""The budget of a run: it stops before it costs more, and can be continued with a higher one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leadline.core.errors import RunStopped
from leadline.core.records import Record
from leadline.core.types import Probe
from leadline.run.plan import Plan
from leadline.store.prices import Tariff, check_budget, format_money, most_expensive


class Budget:
    """Ends a run before it costs more: what is in flight counts as the most it can cost. Used with the queue's lock."""

    def __init__(self, limit: float, tariff: Tariff, spent: float = 0.0) -> None:
        self.limit = limit
        self.spent = spent
        self._tariff = tariff
        self._reserved = 0.0

    @property
    def in_flight(self) -> bool:
        return self._reserved > 1e-9

    def fits(self, probes: Sequence[Probe]) -> bool:
        return self.spent + self._reserved + self._most(probes) <= self.limit

    def reserve(self, probes: Sequence[Probe]) -> None:
        self._reserved += self._most(probes)

    def pay(self, probes: Sequence[Probe], records: Sequence[Record]) -> None:
        """These probes were answered, or failed."""
        self._reserved = max(0.0, self._reserved - self._most(probes))
        self.spent += sum(map(self._tariff.cost_of, records))

    def reached(self, where: str) -> RunStopped:
        currency = self._tariff.currency
        spent, limit = format_money(self.spent, currency), format_money(self.limit, currency)
        return RunStopped(
            f"the budget of {limit} is reached: {spent} are spent, and the next question could exceed it",
            where=where,
            fix="run the same command with a higher --budget: it continues with what is missing",
        )

    def _most(self, probes: Sequence[Probe]) -> float:
        return most_expensive(self._tariff, [(p.prompt_tokens, p.allowance) for p in probes])


def budget_of(plan: Plan, records: Iterable[Record]) -> Budget | None:
    """The budget of the spec, less what the records of the folder have cost."""
    limit = check_budget(plan.spec.limits.budget, plan.tariff)
    if limit is None or plan.tariff is None:
        return None
    return Budget(limit, plan.tariff, sum(map(plan.tariff.cost_of, records)))
