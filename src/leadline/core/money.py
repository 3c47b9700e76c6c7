"""Money: what requests cost at given prices, budgets, and amounts in words. The one place that computes with prices.

`store.prices` reads prices; `run.money` asks here what a plan costs and when a budget is reached.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from leadline.core.answers import Completion
from leadline.core.errors import UsageError
from leadline.core.records import Record

STANDARD = "standard"
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Payment:
    """One or more requests of the same size to another model than the tested one, such as a judge, and their tokens."""

    model: str
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    requests: int = 1
    """The tokens are those of all of them together."""
    is_estimated: bool = False
    """Whether the server gave no counts, so that the tokens are by ours."""


class Rates(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Prices of a million tokens."""

    input: float
    output: float
    cached: float | None = None
    write: float | None = None
    storage: float | None = None
    """Of a million tokens that are kept in the cache for an hour."""

    def scaled(self, factor: float) -> Rates:
        def times(price: float | None) -> float | None:
            return None if price is None else factor * price

        return Rates(factor * self.input, factor * self.output, times(self.cached), times(self.write), self.storage)

    def cost(self, prompt: int, output: int, cached: int, written: int) -> float:
        plain = max(0, prompt - cached - written)
        parts = (
            plain * self.input,
            cached * (self.input if self.cached is None else self.cached),
            written * (self.input if self.write is None else self.write),
            output * self.output,
        )
        return sum(parts) / MILLION


class Tariff(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one model costs in one tier."""

    model: str
    rates: Rates
    above: tuple[tuple[int, Rates], ...] = ()
    """Other prices for prompts with more tokens, in ascending order."""
    currency: str = "usd"
    date: str = ""
    source: str = ""
    tier: str = STANDARD
    least: int = 0
    """Shorter beginnings are not cached by the provider."""

    def cost(self, prompt: int, output: int = 0, *, cached: int = 0, written: int = 0) -> float:
        """The cost of one request that was not sent yet. Tokens below the provider's minimum are never cached."""
        if cached + written < self.least:
            cached = written = 0
        return self._rates_of(prompt).cost(prompt, output, cached, written)

    def storage(self, tokens: int, hours: float) -> float:
        """Of tokens in the provider's cache."""
        return tokens * hours * (self.rates.storage or 0.0) / MILLION

    def _rates_of(self, prompt: int) -> Rates:
        return next((rates for tokens, rates in reversed(self.above) if prompt > tokens), self.rates)

    def cost_of(self, record: Record) -> float:
        """The cost of a recorded request, by the server's counts, or by ours where it gives none. A failure costs
        nothing."""
        outcome = record.outcome
        if not isinstance(outcome, Completion):
            return 0.0
        prompt = record.prompt_tokens if record.receipt.read is None else record.receipt.read
        output = record.question.allowance if outcome.completion_tokens is None else outcome.completion_tokens
        cached = min(prompt, outcome.cached_tokens or 0)
        written = min(prompt - cached, outcome.cache_write_tokens or 0)
        primed = outcome.primed_tokens or 0
        rates = self._rates_of(prompt)
        return rates.cost(prompt, output, cached, written) + rates.cost(primed, 0, 0, primed)

    def cost_of_payment(self, payment: Payment) -> float:
        """The cost of requests to another model than the tested one."""
        prompt, output = payment.prompt_tokens // payment.requests, payment.output_tokens // payment.requests
        cached = min(prompt, payment.cached_tokens // payment.requests)
        return payment.requests * self._rates_of(prompt).cost(prompt, output, cached, 0)

    @property
    def origin(self) -> str:
        """Where the prices are from: `prices of 2026-11-01, batch tier (source)`."""
        parts = [f"prices of {self.date}" if self.date else "prices without a date"]
        parts += [f"{self.tier} tier"] if self.tier != STANDARD else []
        return ", ".join(parts) + (f" ({self.source})" if self.source else "")


# --- budgets and words


def parse_budget(text: str) -> tuple[float, str]:
    """`20usd`, `20 USD`, `$20` or `20`: a number and a currency, which is empty if not given."""
    match = re.fullmatch(r"\s*(\$|€)?\s*(\d+(?:\.\d+)?)\s*([A-Za-z]{3})?\s*", text)
    if match is None or (match[1] and match[3]) or float(match[2]) <= 0:
        raise UsageError(f"{text!r} is not a budget", where="--budget", fix="write 20usd")
    sign = {"$": "usd", "€": "eur"}.get(match[1] or "", "")
    return float(match[2]), sign or (match[3] or "").lower()


def check_budget(text: str, tariff: Tariff | None) -> float | None:
    """The amount of a budget, which needs prices in its currency; None if there is no budget."""
    if not text:
        return None
    limit, currency = parse_budget(text)
    if tariff is None:
        raise UsageError(
            "a budget needs prices",
            where="--budget",
            fix="add --prices FILE: date = 2026-11-01 and, under [models.NAME], input and output of a million tokens",
        )
    if currency and tariff.currency and currency != tariff.currency:
        raise UsageError(
            f"the budget is in {currency} and the prices are in {tariff.currency}",
            where="--budget",
            fix=f"write --budget {limit:g}{tariff.currency}",
        )
    return limit


def format_money(amount: float, currency: str) -> str:
    """`12.34 usd`; small amounts with two digits, never rounded down to nothing."""
    shown = f"{amount:,.2f}" if amount >= 0.01 or not amount else f"{amount:.2g}"
    return f"{shown} {currency}".rstrip()
