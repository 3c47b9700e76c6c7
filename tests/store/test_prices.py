"""Prices: tiers, caches, long prompts, both file formats, and what is wrong with a file."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from leadline.core.errors import LeadlineError, SourceError, UnknownName, UsageError
from leadline.core.money import Rates, Tariff, parse_budget
from leadline.core.records import Receipt
from leadline.core.types import Cell
from leadline.features.judges.payments import payment_of
from leadline.features.judges.verdicts import JudgeVerdict
from leadline.store.prices import discounts_of, read_prices, tariff_from_flags, tariff_of
from support.plain_records import record

TOML = """
date = 2026-11-01
source = "a price page"

[models.big]
input = 3.0
output = 15.0
cached = 0.3
write = 3.75
above = [{tokens = 200000, input = 6.0, output = 22.5, cached = 0.6, write = 7.5}]
tiers.batch = {factor = 0.5}
tiers.priority = {input = 5, output = 25}

[models."house/small"]
input = 0.1
output = 0.4
least = 1024
"""
LITELLM = {
    "sample_spec": {"input_cost_per_token": "a number"},
    "gemini/gemini-x": {
        "input_cost_per_token": 1.25e-06,
        "output_cost_per_token": 1e-05,
        "cache_read_input_token_cost": 1.25e-07,
        "input_cost_per_token_above_200k_tokens": 2.5e-06,
        "output_cost_per_token_above_200k_tokens": 1.5e-05,
        "input_cost_per_token_batches": 6.25e-07,
        "output_cost_per_token_batches": 5e-06,
    },
    "gemini-x": {"input_cost_per_token": 1.25e-06, "output_cost_per_token": 1e-05},
    "a/twice": {"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06},
    "b/twice": {"input_cost_per_token": 2e-06, "output_cost_per_token": 2e-06},
    "painter": {"output_cost_per_image": 0.04},
}


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "prices.toml"
    path.write_text(TOML)
    return path


# prompt, output, cached, written: money, by hand from the table above
CASES = [
    ((100_000, 1000, 0, 0), 0.3 + 0.015),
    ((100_000, 1000, 90_000, 0), 0.03 + 0.027 + 0.015),
    ((100_000, 1000, 0, 90_000), 0.03 + 0.3375 + 0.015),
    ((200_000, 0, 0, 0), 0.6),
    ((200_001, 0, 0, 0), 1.200006),
    ((300_000, 1000, 200_000, 0), 0.6 + 0.12 + 0.0225),
]


@pytest.mark.parametrize(("request_", "expected"), CASES)
def test_cached_written_and_long_prompts_have_their_own_prices(
    toml: Path, request_: tuple[int, int, int, int], expected: float
) -> None:
    prompt, output, cached, written = request_
    tariff = tariff_of(toml, "openai:big?base_url=http://x/v1")
    assert tariff.cost(prompt, output, cached=cached, written=written) == pytest.approx(expected)
    batch = tariff_of(toml, "big", "batch")
    assert batch.cost(prompt, output, cached=cached, written=written) == pytest.approx(expected / 2)
    assert batch.origin == "prices of 2026-11-01, batch tier (a price page)"


def test_without_a_price_of_hits_they_cost_the_input_price_and_below_the_minimum_nothing_is_cached(toml: Path) -> None:
    small = tariff_of(toml, "openai:small")
    assert small.cost(1000, cached=900) == pytest.approx(1e-4)
    dear = tariff_from_flags("openai:x?base_url=https://api.anthropic.com/v1", 3.0, 15.0)
    assert dear.cost(2000, cached=1023) == pytest.approx(0.006)
    assert dear.cost(2000, cached=1024) == pytest.approx((976 * 3 + 1024 * 0.3) / 1e6)
    assert dear.cost(2000, written=2000) == pytest.approx(0.0075)


def test_what_a_server_says_it_cached_costs_the_price_of_hits_whatever_the_usual_minimum_is() -> None:
    tariff = Tariff("x", Rates(1e6, 0.0, cached=0.0), least=1024)
    verdict = JudgeVerdict(
        key="k", cell=Cell("t", 1024, 0.0, 0), judge="x", rubric="r", rubric_digest="d", answer="a",
        replies=2, prompt_tokens=2400, cached_tokens=1100,
    )  # fmt: skip
    assert tariff.cost_of_payment(payment_of(verdict)) == pytest.approx(1300)  # the second of two replies hit
    one = record(0)
    outcome = msgspec.structs.replace(one.outcome, cached_tokens=800)
    one = msgspec.structs.replace(one, outcome=outcome, receipt=Receipt(ours=1000, theirs=1000))
    assert tariff.cost_of(one) == pytest.approx(200)


def test_litellms_table_is_read_with_its_tiers(tmp_path: Path) -> None:
    path = tmp_path / "model_prices.json"
    path.write_text(json.dumps(LITELLM))
    found = read_prices(path)
    assert "painter" not in found
    assert "sample_spec" not in found
    tariff = tariff_of(path, "gemini/gemini-x")
    assert tariff.cost(100_000, 100, cached=50_000) == pytest.approx(0.0625 + 0.00625 + 0.001)
    assert tariff.cost(200_001, 100, cached=50_000) == pytest.approx((150_001 * 2.5 + 50_000 * 0.125 + 1500) / 1e6)
    assert tariff_of(path, "gemini/gemini-x", "batch").cost(1000, 100) == pytest.approx(0.000625 + 0.0005)
    assert tariff_of(path, "openai:gemini-x").model == "gemini-x"
    with pytest.raises(UsageError, match="several prices are of a model 'twice'"):
        tariff_of(path, "openai:twice")


def test_an_entry_may_be_named_with_the_provider(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    entries = '[models."sim:x"]\ninput = 1.0\noutput = 2.0\n[models.x]\ninput = 3.0\noutput = 4.0\n'
    path.write_text(f"date = 2026-11-01\n{entries}")
    assert tariff_of(path, "sim:x?window=8k").rates.input == 1.0
    assert tariff_of(path, "openai:x").rates.input == 3.0


def test_what_sharing_saves_on_a_bill_is_as_documented() -> None:
    """Eleven questions over a document: 11 -> 2.25 prices of it with Anthropic's discounts, 2.0 with OpenAI's."""
    for host, expected in (("api.anthropic.com", 2.25), ("api.openai.com", 2.0)):
        tariff = tariff_from_flags(f"openai:x?base_url=https://{host}/v1", 1.0, 0.0)
        shared = tariff.cost(10**6, written=10**6) + 10 * tariff.cost(10**6, cached=10**6)
        assert shared == pytest.approx(expected)
    assert discounts_of("openai:x?base_url=http://127.0.0.1:8000/v1") is None
    assert discounts_of("openai:x") is not None


WRONG = {
    "": "not a table of prices",
    "x = ": "not TOML",
    "[models.a]\ninput = 1\noutput = 1": "the prices have no date",
    "date = 2026-01-01": "the file has no models",
    "date = 2026-01-01\n[models.a]\ninput = 1": "'output' is missing",
    "date = 2026-01-01\n[models.a]\ninput = -1\noutput = 1": "is not a price",
    "date = 2026-01-01\n[models.a]\ninput = true\noutput = 1": "is not a price",
    "date = 2026-01-01\n[models.a]\ninput = 1\noutput = 1\ncahced = 1": "unknown key 'cahced'",
    "date = 2026-01-01\n[models.a]\ninput = 1\noutput = 1\nabove = [{input = 1, output = 1}]": "needs tokens",
    "date = 2026-01-01\n[models.a]\ninput = 1\noutput = 1\ntiers.batch = 0.5": "expected a table",
    "dtae = 2026-01-01\n[models.a]\ninput = 1\noutput = 1": "unknown key 'dtae'",
    "date = 2026-01-01\nmodels = 3": "the file has no models",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_file_that_is_wrong_says_what_and_where_and_how_to_correct_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(LeadlineError, match=WRONG[text]) as found:
        tariff_of(path, "openai:a")
    assert "prices.toml" in found.value.where
    assert found.value.fix


def test_unknown_models_tiers_and_files_are_named(toml: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="unknown tier 'bacth'") as tier:
        tariff_of(toml, "big", "bacth")
    assert "batch" in tier.value.fix
    with pytest.raises(UnknownName, match="unknown model 'bigg'"):
        tariff_of(toml, "openai:bigg")
    with pytest.raises(SourceError, match="cannot read the file"):
        tariff_of(tmp_path / "none.toml", "big")
    (tmp_path / "x.json").write_text('{"a": {"mode": "chat"}}')
    with pytest.raises(SourceError, match="no entry has prices of tokens"):
        tariff_of(tmp_path / "x.json", "a")
    with pytest.raises(UnknownName, match="unknown tier"):
        tariff_from_flags("sim:perfect", 1.0, 1.0, tier="batch")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("20usd", (20.0, "usd")), ("$ 5.50", (5.5, "usd")), ("3 EUR", (3.0, "eur")), ("7", (7.0, ""))],
)
def test_budgets(text: str, expected: tuple[float, str]) -> None:
    assert parse_budget(text) == expected


@pytest.mark.parametrize("text", ["", "usd", "0", "-3", "20 dollars", "$3eur", "nan"])
def test_what_is_no_budget(text: str) -> None:
    with pytest.raises(UsageError, match="is not a budget"):
        parse_budget(text)
