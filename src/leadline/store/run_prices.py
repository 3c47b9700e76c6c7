"""Budgets, money as text, and the prices that a run folder was made with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import msgspec

from leadline.core import registry
from leadline.core.errors import SourceError, UsageError
from leadline.core.files import read_inside
from leadline.core.payments import Payment
from leadline.store.files import replace_file
from leadline.store.prices import Tariff, tariff_of
from leadline.store.runs import every_record

SAVED = "prices.json"
"""In a run folder: the prices that the run was made with."""


def parse_budget(text: str) -> tuple[float, str]:
    """`20usd`, `20 USD`, `$20` or `20`: a number and a currency, which is empty if not given."""
    found = re.fullmatch(r"\s*(\$|€)?\s*(\d+(?:\.\d+)?)\s*([A-Za-z]{3})?\s*", text)
    if found is None or (found[1] and found[3]) or float(found[2]) <= 0:
        raise UsageError(f"{text!r} is not a budget", where="--budget", fix="write 20usd")
    sign = {"$": "usd", "€": "eur"}.get(found[1] or "", "")
    return float(found[2]), sign or (found[3] or "").lower()


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


def save_prices(folder: Path, tariffs: Mapping[str, Tariff]) -> None:
    """By model, the tested one and its judges: a run is paid by the prices of the day it was made. Those of models that
    are not named here stay."""
    saved = {**saved_prices(folder), **tariffs}
    replace_file(folder / SAVED, msgspec.json.format(msgspec.json.encode(saved), indent=2))


def saved_prices(folder: Path) -> dict[str, Tariff]:
    """Those that the run was made with; empty if it was made without."""
    path = folder / SAVED
    try:
        return msgspec.json.decode(read_inside(path), type=dict[str, Tariff])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SourceError(f"the saved prices cannot be read: {error}", where=str(path), fix="delete the file") from None


@dataclass(frozen=True, slots=True)
class RunPrices:
    """The prices of a run's model and of its judges: of the file, if one is given, else those it was made with."""

    folder: Path
    file: Path | None = None
    tier: str = ""

    def of(self, model: str) -> Tariff | None:
        if self.file is not None:
            return tariff_of(self.file, model, self.tier)
        return saved_prices(self.folder).get(model)

    def model_money(self, tariff: Tariff | None) -> float:
        """What all records of the tested model cost at its prices: those that newer ones replaced were paid for too."""
        return sum(map(tariff.cost_of, every_record(self.folder))) if tariff is not None else 0.0

    def judge_money(self) -> dict[str, float]:
        """By judge, what all its verdicts cost; without judges that have no price."""
        paid: dict[str, float] = {}
        tariffs: dict[str, Tariff | None] = {}
        for payment in _payments(self.folder):
            if payment.model not in tariffs:
                tariffs[payment.model] = self.of(payment.model)
            if (tariff := tariffs[payment.model]) is not None:
                paid[payment.model] = paid.get(payment.model, 0.0) + tariff.cost_of_payment(payment)
        return paid

    def judges_estimated(self) -> bool:
        """Whether a judge's server gave no token counts, so that its money is by ours."""
        return any(payment.is_estimated for payment in _payments(self.folder))


def _payments(folder: Path) -> Iterator[Payment]:
    """What the steps after the questions, such as judges, have asked of other models."""
    return chain.from_iterable(step.payments(folder) for step in registry.every("after_run").values())
