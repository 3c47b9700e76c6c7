"""The money of judges: their prices, and the budget that they share with the tested model."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from leadline.core.money import Payment, Tariff, check_budget
from leadline.core.spec import Limits
from leadline.features.judges.verdicts import RULE, JudgeVerdict, every_verdict
from leadline.run.interrupt import Stop
from leadline.run.money import Budget
from leadline.store.files import SYNC_SECONDS
from leadline.store.prices import tariff_of

BYTES_PER_TOKEN = 3
"""Bytes per token of a prompt that the judge's server does not count: fewer than most tokenizers have, so that the
estimate is not too low."""
TEMPLATE_TOKENS = 256
"""Around a judge's prompt, at most: the budget counts them before the server does."""


def payments(folder: Path) -> Iterator[Payment]:
    """What all verdicts of judges in a run folder cost in tokens, also those that newer ones replaced."""
    return (payment_of(verdict) for verdict in every_verdict(folder) if verdict.judge != RULE)


def payment_of(verdict: JudgeVerdict) -> Payment:
    """The server's counts, or ours where it gives none."""
    return Payment(
        model=verdict.judge,
        prompt_tokens=verdict.prompt_tokens + verdict.estimated_prompt,
        output_tokens=verdict.completion_tokens + verdict.estimated_completion,
        cached_tokens=verdict.cached_tokens,
        requests=max(1, verdict.replies),
        is_estimated=bool(verdict.estimated_prompt),
    )


def estimated_tokens(prompt: str) -> int:
    """Of a judge's prompt, where the server does not count it."""
    return -(-len(prompt.encode()) // BYTES_PER_TOKEN)


class JudgePayments:
    """The money of one judge. A verdict is only asked for if the run's budget covers its highest possible cost."""

    def __init__(self, tariff: Tariff | None, budget: Budget | None, where: str) -> None:
        self._tariff, self._budget, self._where = tariff, budget, where
        self._turn = threading.Condition()

    def reserve(self, prompt: str, output: int, stop: Stop) -> float:
        """Reserves the highest cost of a reply of at most `output` tokens to this prompt, when the budget covers it. A
        token has at least one byte. Stops the judge if nothing is in flight that may turn out cheaper."""
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
            self._budget.pay(most, self._cost(after) - self._cost(before))
            self._turn.notify_all()

    def _cost(self, verdict: JudgeVerdict) -> float:
        return self._tariff.cost_of_payment(payment_of(verdict)) if self._tariff is not None else 0.0


def judge_tariffs(limits: Limits, judges: Sequence[str]) -> dict[str, Tariff]:
    """The prices of judges, by their names; empty without a file of prices. A budget must be in their currency."""
    if not limits.prices:
        return {}
    tariffs = {name: tariff_of(Path(limits.prices), name, limits.tier) for name in judges}
    for tariff in tariffs.values():
        check_budget(limits.budget, tariff)
    return tariffs
