"""Documents that several questions share are in the provider's cache before they are asked, which receipts prove."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import leadline
from leadline.core.answers import Completion
from leadline.core.money import Rates, Tariff
from leadline.core.records import Record
from leadline.core.spec import make_spec
from leadline.run.money import money
from leadline.run.plan import prepare
from support.hosted_fakes import KEY, AnthropicFake, GeminiFake, HostedFake, ResponsesFake

MODELS = {AnthropicFake: "anthropic:{}?", GeminiFake: "gemini:{}?", ResponsesFake: "openai:{}?api=responses&"}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, KEY)


def asked(fake: HostedFake, folder: Path, options: str = "", **spec: Any) -> list[Record]:
    values = {"tasks": ["niah"], "lengths": "8k", "depths": 11, "samples": 1, "reading": "shared", **spec}
    with fake.served() as url:
        model = MODELS[type(fake)].format(fake.model) + f"base_url={url}{options}"
        run = leadline.measure(make_spec({"model": model, "limits": {"workers": 4}, **values}), folder, checks=False)
    return list(run.records)


def hit_share(records: list[Record]) -> float:
    cacheable = sum(record.receipt.cacheable for record in records)
    cached = sum(
        record.outcome.cached_tokens or 0
        for record in records
        if isinstance(record.outcome, Completion) and record.receipt.cacheable
    )
    assert cacheable
    return cached / cacheable


KINDS = pytest.mark.parametrize(
    ("kind", "options"), [(AnthropicFake, ""), (GeminiFake, ""), (ResponsesFake, "&cache_key=yes")]
)


@KINDS
def test_a_shared_document_is_read_from_the_cache(kind: type[HostedFake], options: str, tmp_path: Path) -> None:
    records = asked(kind(), tmp_path / "run", options)
    assert [r.failure_class for r in records] == ["correct"] * 11
    assert hit_share(records) >= 0.9
    assert all(record.receipt.ok for record in records)


@pytest.mark.quick_cases(1)
@KINDS
def test_nested_cuts_are_read_from_the_cache(kind: type[HostedFake], options: str, tmp_path: Path) -> None:
    lengths = "5k,6k,7k,8k" if kind is ResponsesFake else "5k,6k,7k,8k,9k,10k"  # without priming, four marks at once
    records = asked(kind(), tmp_path / "run", options, reading="nested", lengths=lengths, depths=3)
    assert hit_share(records) >= 0.9


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("reading", ["shared", "nested"])
def test_the_plan_prices_what_the_run_costs(kind: type[HostedFake], options: str, reading: Any, tmp_path: Path) -> None:
    fake, tariff = kind(), Tariff("x", Rates(1.0, 0.0, cached=0.1, write=1.25, storage=0.5))
    with fake.served() as url:
        model = MODELS[kind].format(fake.model) + f"base_url={url}{options}"
        values = {"model": model, "tasks": ["niah"], "lengths": "6k,8k", "depths": 3, "samples": 1, "reading": reading}
        spec = make_spec(values)
        with prepare(spec, planning=True) as plan:
            planned, stored = money(plan, without_storage(tariff), reading), money(plan, tariff, reading)
        run = leadline.measure(spec, tmp_path / "run", checks=False)
    assert planned is not None
    assert stored is not None
    assert sum(map(tariff.cost_of, run.records)) == pytest.approx(planned, rel=0.03)
    assert (stored > planned) == (kind is GeminiFake)


def without_storage(tariff: Tariff) -> Tariff:
    """The same prices without storage, which no record knows."""
    return msgspec.structs.replace(tariff, rates=msgspec.structs.replace(tariff.rates, storage=None))


def test_an_older_model_that_refuses_marks_is_sent_none(tmp_path: Path) -> None:
    fake = ResponsesFake(takes_marks=False)
    records = asked(fake, tmp_path / "run", "&cache_key=yes", depths=2)
    assert all(isinstance(record.outcome, Completion) for record in records)
    assert any("no marks" in note for record in records for note in record.sent.notes)


def test_a_document_is_written_once_before_its_questions_and_that_is_paid(tmp_path: Path) -> None:
    fake = AnthropicFake()
    records = asked(fake, tmp_path / "run", lengths="8k", depths=3)
    assert [body["max_tokens"] == 0 for body in fake.asked] == [True, False, False, False]
    primed = [r.outcome.primed_tokens or 0 for r in records if isinstance(r.outcome, Completion)]
    assert sorted(primed)[:2] == [0, 0]
    assert max(primed) == max(fake.held.values())
    tariff = Tariff("x", Rates(1.0, 0.0, cached=0.0, write=10.0))
    assert sum(map(tariff.cost_of, records)) == pytest.approx(
        (10 * max(primed) + sum(r.prompt_tokens - max(primed) for r in records)) / 1e6
    )


def test_marks_are_never_more_than_four_and_nested_documents_are_written_in_growing_parts(tmp_path: Path) -> None:
    fake = AnthropicFake()  # refuses a fifth mark
    asked(fake, tmp_path / "run", reading="nested", lengths="5k,6k,7k,8k,9k,10k", depths=2)
    primes = [body for body in fake.asked if not body["max_tokens"]]
    assert [sum("cache_control" in b for b in body["messages"][0]["content"]) for body in primes] == [2, 4]


def test_short_documents_and_single_questions_are_not_marked(tmp_path: Path) -> None:
    fake = AnthropicFake(least=4096)
    asked(fake, tmp_path / "short", lengths="2k", depths=3)
    asked(fake, tmp_path / "fresh", reading="fresh", depths=2)
    assert not any("cache_control" in block for body in fake.asked for block in body["messages"][0]["content"])
    assert all(body["max_tokens"] for body in fake.asked)


def test_a_model_that_cannot_be_primed_keeps_what_the_first_question_marks(tmp_path: Path) -> None:
    class WithoutPriming(AnthropicFake):
        def _check_messages(self, body: dict[str, Any]) -> None:
            super()._check_messages(body)
            if body.get("max_tokens") == 0:
                raise self.refused("max_tokens: must be at least 1")

    MODELS[WithoutPriming] = MODELS[AnthropicFake]
    fake = WithoutPriming()
    records = asked(fake, tmp_path / "run", depths=5)
    assert hit_share(records) >= 0.9
    assert any("first questions" in note for record in records for note in record.sent.notes)


def test_objects_of_the_cache_are_deleted_after_the_last_question(tmp_path: Path) -> None:
    fake = GeminiFake()
    asked(fake, tmp_path / "run", lengths="6k,8k", depths=3)
    assert not fake.objects
    assert len(fake.deleted) == 2
    assert all("cachedContent" in body for body in fake.asked)


def test_an_object_that_the_provider_lost_costs_no_sample(tmp_path: Path) -> None:
    class Forgetful(GeminiFake):
        def _keep(self, body: dict[str, Any]) -> dict[str, Any]:
            page = super()._keep(body)
            if not self.deleted:
                self.deleted.append(self.objects.popitem()[0])
            return page

    MODELS[Forgetful] = MODELS[GeminiFake]
    records = asked(Forgetful(), tmp_path / "run", depths=3)
    assert all(isinstance(record.outcome, Completion) for record in records)


def test_a_model_whose_cache_takes_no_marks_is_asked_without_them(tmp_path: Path) -> None:
    fake = AnthropicFake()
    records = asked(fake, tmp_path / "run", "&cache=no", depths=3)
    assert not any("cache_control" in block for body in fake.asked for block in body["messages"][0]["content"])
    assert all(isinstance(record.outcome, Completion) for record in records)
