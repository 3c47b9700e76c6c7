"""Prices of tokens, from a dated file that users write, edit or replace: our TOML, or LiteLLM's table (JSON).

    date = 2026-11-01                      # of the prices; with `source`, shown wherever money is
    source = "the provider's price page"
    currency = "usd"

    [models.some-model]                    # prices of a million tokens
    input = 3.0
    output = 15.0
    cached = 0.3                           # read from the provider's cache; the input price if not given
    write = 3.75                           # written to the cache; the input price if not given
    above = [{tokens = 200000, input = 6.0, output = 22.5, cached = 0.6}]
    tiers.batch = {factor = 0.5}           # of all prices, or prices of its own

A prompt of more than `above.tokens` tokens costs the other price as a whole, its answer too. LiteLLM's table
(model_prices_and_context_window.json) has dollars for one token under names such as input_cost_per_token,
cache_read_input_token_cost, input_cost_per_token_above_200k_tokens and output_cost_per_token_batches.

`prices.toml` beside this module has no prices, only what is documented of providers' discounts, dated with its source:
it completes prices given as flags. A run folder keeps the prices that it was made with (`prices.json`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from leadline.core import registry
from leadline.core.errors import SourceError, UnknownName, UsageError
from leadline.core.files import expand_path, parse_json, parse_toml, read_inside, read_text
from leadline.core.money import MILLION, STANDARD, Payment, Rates, Tariff
from leadline.store.files import replace_file
from leadline.store.runs import AGAIN, every_record

FIX = "see docs/price-files.md for the format"
BATCH = "batch"
"""The tier of batches."""
SAVED = "prices.json"
"""In a run folder: the prices that the run was made with."""


class Discounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is documented of a provider: prices as multiples of its input price."""

    hosts: tuple[str, ...]
    date: str
    source: str
    cached: float | None = None
    write: float | None = None
    batch: float | None = None
    least: int = 0


# --- finding the price of a model


def tariff_of(path: Path, model: str, tier: str = "") -> Tariff:
    """The price of a model (`openai:NAME?...` or NAME) in a file of prices."""
    path = expand_path(path)
    book = read_prices(path)
    key = _key_of(book, model.partition("?")[0], path)
    tiers = book[key]
    wanted = tier or STANDARD
    if wanted not in tiers:
        raise UnknownName("tier", wanted, tiers, where=f"{path}: {key}")
    return tiers[wanted]


def batch_tariff(path: Path, model: str) -> Tariff:
    """The price of a model in batches: of the tier `batch`, else by the documented discount of its provider."""
    path = expand_path(path)
    book = read_prices(path)
    tiers = book[_key_of(book, model.partition("?")[0], path)]
    if BATCH in tiers:
        return tiers[BATCH]
    standard, known = tiers[STANDARD], discounts_of(model)
    if known is None or known.batch is None:
        raise UsageError(
            f"no price of {model.partition('?')[0]} in batches is known",
            where=str(path),
            fix="add tiers.batch = {factor = 0.5} to the model, with the factor of its provider",
        )
    above = tuple((tokens, rates.scaled(known.batch)) for tokens, rates in standard.above)
    return msgspec.structs.replace(standard, rates=standard.rates.scaled(known.batch), above=above, tier=BATCH)


def tariff_from_flags(
    model: str,
    price_in: float,
    price_out: float,
    *,
    cached: float | None = None,
    write: float | None = None,
    tier: str = "",
) -> Tariff:
    """Prices given as flags, with the documented discounts of the model's provider where they are not given."""
    known = discounts_of(model)
    if known is not None:
        cached = known.cached * price_in if cached is None and known.cached is not None else cached
        write = known.write * price_in if write is None and known.write is not None else write
    rates = Rates(price_in, price_out, cached, write)
    if tier not in ("", STANDARD):
        if tier != BATCH or known is None or known.batch is None:
            known_tiers = [STANDARD, BATCH] if known is not None and known.batch is not None else [STANDARD]
            raise UnknownName("tier", tier, known_tiers, where="--tier")
        rates = rates.scaled(known.batch)
    source = f"discounts: {known.source}, {known.date}" if known is not None else ""
    return Tariff(
        model, rates, currency="", date="flags", source=source, tier=tier or STANDARD, least=known.least if known else 0
    )


def discounts_of(model: str) -> Discounts | None:
    """By the host of the model's server."""
    query = parse_qs(model.partition("?")[2])
    provider = _documented().get(model.partition(":")[0])
    default = provider.hosts[0] if provider is not None else ""
    try:
        host = urlsplit(query["base_url"][0]).hostname or "" if "base_url" in query else default
    except ValueError:  # no address: opening the model says so
        return None
    return next((discounts for discounts in _documented().values() if host in discounts.hosts), None)


@cache
def _documented() -> dict[str, Discounts]:
    path = Path(__file__).with_name("prices.toml")
    table = parse_toml(read_text(path), str(path))["providers"]
    return {name: msgspec.convert(values, Discounts) for name, values in table.items()}


def _key_of(book: Mapping[str, object], model: str, path: Path) -> str:
    """The entry of a model: by its whole name, with or without our provider, else by the last part of one
    (`house/name`)."""
    by_name = {key.lower(): key for key in book}
    name = model.partition(":")[2] or model
    if key := by_name.get(model.lower()) or by_name.get(name.lower()):
        return key
    last = name.lower().rpartition("/")[2]
    ending = [key for key in book if key.lower().rpartition("/")[2] == last]
    if len(ending) == 1 or (ending and all(book[key] == book[ending[0]] for key in ending)):
        return ending[0]
    if ending:
        raise UsageError(
            f"several prices are of a model {last!r}: {', '.join(sorted(ending)[:5])}",
            where=str(path),
            fix="name the model as one of them, or give a file with one price",
        )
    raise UnknownName("model", name, book, where=str(path))


# --- reading files


def read_prices(path: Path) -> dict[str, dict[str, Tariff]]:
    """By model and tier. Raises a SourceError that names the file and the entry."""
    text = read_text(path, fix=FIX)
    where = str(path)
    parsed = parse_json(text, where, fix=FIX) if path.suffix == ".json" else parse_toml(text, where, fix=FIX)
    if not isinstance(parsed, dict) or not parsed:
        raise SourceError("not a table of prices", where=where, fix=FIX)
    if "models" not in parsed and path.suffix == ".json":
        return _litellm(parsed, path)
    unknown = sorted(parsed.keys() - {"date", "source", "currency", "models"})
    if unknown:
        raise UnknownName("key", unknown[0], ["date", "source", "currency", "models"], where=where)
    models = parsed.get("models")
    if not isinstance(models, dict) or not models:
        raise SourceError("the file has no models", where=where, fix=FIX)
    about = {name: str(parsed.get(name, "")) for name in ("date", "source")}
    about["currency"] = str(parsed.get("currency", "usd")).lower()
    if not about["date"]:
        raise SourceError("the prices have no date", where=where, fix="add date = 2026-11-01")
    return {str(name): _own_entry(str(name), entry, about, where) for name, entry in models.items()}


def _own_entry(name: str, entry: Any, about: Mapping[str, str], where: str) -> dict[str, Tariff]:
    where = f"{where}: models.{name}"
    if not isinstance(entry, dict):
        raise SourceError("expected a table of prices", where=where, fix=FIX)
    entry = dict(entry)
    steps, tiers, least = entry.pop("above", []), entry.pop("tiers", {}), entry.pop("least", 0)
    if not isinstance(steps, list) or not isinstance(tiers, dict) or type(least) is not int:
        raise SourceError("above is a list, tiers is a table, least is a number of tokens", where=where, fix=FIX)
    rates, above = _rates(entry, where), tuple(sorted((_step(step, where) for step in steps), key=lambda s: s[0]))
    standard = Tariff(name, rates, above, least=least, **about)
    tariffs = {STANDARD: standard}
    for tier, values in tiers.items():
        if isinstance(values, dict) and set(values) == {"factor"} and _is_price(values["factor"]):
            factor = float(values["factor"])
            other = [(tokens, step_rates.scaled(factor)) for tokens, step_rates in above]
            tariffs[tier] = msgspec.structs.replace(standard, rates=rates.scaled(factor), above=tuple(other), tier=tier)
        else:
            tariffs[tier] = msgspec.structs.replace(
                standard, rates=_rates(values, f"{where}.tiers.{tier}"), above=(), tier=tier
            )
    return tariffs


def _step(values: Any, where: str) -> tuple[int, Rates]:
    if not isinstance(values, dict) or type(values.get("tokens")) is not int:
        raise SourceError("an entry of `above` needs tokens = NUMBER", where=f"{where}.above", fix=FIX)
    return values["tokens"], _rates({k: v for k, v in values.items() if k != "tokens"}, f"{where}.above")


def _rates(values: Any, where: str) -> Rates:
    if not isinstance(values, dict):
        raise SourceError("expected a table of prices", where=where, fix=FIX)
    known = [field.name for field in msgspec.structs.fields(Rates)]
    if unknown := sorted(values.keys() - set(known)):
        raise UnknownName("key", str(unknown[0]), [*known, "above", "tiers", "least"], where=where)
    for name in ("input", "output"):
        if name not in values:
            raise SourceError(f"{name!r} is missing", where=where, fix=f"add {name} = PRICE of a million tokens")
    for name, price in values.items():
        if not _is_price(price):
            raise SourceError(f"{name}: {price!r} is not a price", where=where, fix="write a number of 0 or more")
    return Rates(**{name: float(price) for name, price in values.items()})


def _is_price(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1e12


# --- LiteLLM's table

_LITELLM = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached": "cache_read_input_token_cost",
    "write": "cache_creation_input_token_cost",
}
_TIERS = {"batch": "_batches", "priority": "_priority", "flex": "_flex"}
_ABOVE = re.compile(r"input_cost_per_token_above_(\d+)k_tokens")


def _litellm(table: Mapping[str, Any], path: Path) -> dict[str, dict[str, Tariff]]:
    """Entries without prices of tokens (images, speech) are left out. The date is that of the file."""
    day = datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y-%m-%d")
    tariffs = {}
    for name, entry in table.items():
        if isinstance(entry, dict) and (rates := _litellm_rates(entry)) is not None:
            marks = sorted(int(match[1]) * 1000 for key in entry if (match := _ABOVE.fullmatch(key)))
            steps = [(tokens, _litellm_rates(entry, f"_above_{tokens // 1000}k_tokens", rates)) for tokens in marks]
            above = tuple((tokens, step_rates) for tokens, step_rates in steps if step_rates is not None)
            standard = Tariff(name, rates, above, date=day, source=f"LiteLLM's table, {path.name}")
            others = {tier: _litellm_rates(entry, suffix, rates) for tier, suffix in _TIERS.items()}
            tariffs[name] = {STANDARD: standard} | {
                tier: msgspec.structs.replace(standard, rates=tier_rates, above=(), tier=tier)
                for tier, tier_rates in others.items()
                if tier_rates is not None
            }
    if not tariffs:
        raise SourceError("no entry has prices of tokens (input_cost_per_token)", where=str(path), fix=FIX)
    return tariffs


def _litellm_rates(entry: Mapping[str, Any], suffix: str = "", base: Rates | None = None) -> Rates | None:
    """Prices of a tier; None where the entry has no input price in it. What the tier leaves open is as in `base`."""
    values: dict[str, Any] = {name: entry.get(f"{key}{suffix}") for name, key in _LITELLM.items()}
    prices = {name: value * MILLION for name, value in values.items() if _is_price(value)}
    if "input" not in prices or (base is None and "output" not in prices):
        return None
    whole = {**(msgspec.structs.asdict(base) if base is not None else {}), **prices}
    return Rates(**whole)


# --- prices of a run folder


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
        """What all records of the tested model cost at its prices: those that newer ones replaced, and those of
        questions that were asked again, were paid for too."""
        if tariff is None:
            return 0.0
        return sum(map(tariff.cost_of, chain(every_record(self.folder), every_record(self.folder / AGAIN))))

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
