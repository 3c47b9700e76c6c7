"""Models without greedy decoding: some questions are asked a second time, and the report says how answers differ."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import leadline
from leadline.core.spec import make_spec
from leadline.report.terminal import footnotes
from leadline.results.repeats import choose_repeats, wanted_repeats
from leadline.results.run import load_run
from leadline.results.summary import summary
from leadline.run.events import Event, ignore
from leadline.run.measure import measure
from leadline.run.plan import prepare
from leadline.run.repeats import repeats_cost
from leadline.store.runs import AGAIN, read_records
from support.commands import Say
from support.hosted_fakes import KEY, AnthropicFake, HostedFake, ResponsesFake, read_or_guess

SPEC = {"tasks": ["niah"], "lengths": "1k,2k", "depths": 5, "samples": 6, "seed": 3}
GREEDY, KNOWN, LEARNED = "claude-opus-4-5", "claude-opus-4-8", "claude-of-no-number"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def every_fourth_wrong() -> Callable[[str], str]:
    number = itertools.count(1)
    return lambda prompt: "12" if next(number) % 4 == 0 else read_or_guess(prompt)


def spec_of(fake: HostedFake, url: str, limits: dict[str, Any] | None = None, **values: Any) -> leadline.Spec:
    name = f"openai:{fake.model}?api=responses&" if isinstance(fake, ResponsesFake) else f"anthropic:{fake.model}?"
    return make_spec({"model": f"{name}base_url={url}", "limits": limits or {}, **SPEC, **values})


class Refusing(AnthropicFake):
    """A model whose name does not say that it takes no temperature."""

    model = LEARNED

    def _version(self) -> tuple[int, int]:
        return 4, 8


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("fake", [AnthropicFake(model=KNOWN), Refusing()], ids=["known", "learned"])
def test_questions_are_asked_again_where_there_is_no_greedy_decoding(fake: HostedFake, tmp_path: Path) -> None:
    fake.answer = every_fourth_wrong()
    events: list[Event] = []
    with fake.served() as url:
        run = measure(spec_of(fake, url), tmp_path / "run", listen=events.append)
    again = {record.cell.key: record for record in read_records(tmp_path / "run" / AGAIN)}
    first = {record.cell.key: record for record in run.records}
    assert len(first) == 60
    assert len(again) == 20  # the fewest; a tenth would be 6
    assert {record.cell.length for record in again.values()} == {1024, 2048}
    assert all(record.prompt_digest == first[key].prompt_digest for key, record in again.items())
    repeats = run.repeats
    assert repeats is not None
    flipped = sum(again[key].score != first[key].score for key in again)
    assert (repeats.questions, repeats.flipped, repeats.other_prompt) == (20, flipped, 0)
    assert flipped > 0
    assert repeats.rate.interval.low < flipped / 20 < repeats.rate.interval.high
    assert any(f"Asked again: {flipped} of 20 questions scored otherwise" in line for line in footnotes(run))
    assert json.loads(json.dumps(summary(run)))["repeats"]["flipped"] == flipped


def test_a_greedy_model_is_asked_once(tmp_path: Path) -> None:
    fake = AnthropicFake(model=GREEDY)
    with fake.served() as url:
        run = measure(spec_of(fake, url), tmp_path / "run")
    assert run.repeats is None
    assert not (tmp_path / "run" / AGAIN).exists()


@pytest.mark.slow
@pytest.mark.parametrize(("model", "share", "expected"), [(GREEDY, 0.5, 30), (KNOWN, 0.0, 0), (KNOWN, 0.1, 6)])
def test_the_share_may_be_given(model: str, share: float, expected: int, tmp_path: Path) -> None:
    fake = AnthropicFake(model=model)
    with fake.served() as url:
        run = measure(spec_of(fake, url, {"repeats": share}), tmp_path / "run")
    assert (run.repeats.questions if run.repeats else 0) == expected


def test_a_thinking_model_of_the_responses_api_that_refuses_a_temperature_is_asked_again(tmp_path: Path) -> None:
    fake = ResponsesFake(model="o5", takes_temperature=False)
    with fake.served() as url:
        run = measure(spec_of(fake, url, samples=2), tmp_path / "run")
    assert run.repeats is not None
    assert run.repeats.flipped == 0


@pytest.mark.slow
def test_asking_again_continues_where_it_was_stopped_and_asks_nothing_a_third_time(tmp_path: Path) -> None:
    fake = AnthropicFake(model=KNOWN)
    with fake.served() as url:
        spec = spec_of(fake, url, {"workers": 1})
        measure(spec, tmp_path / "run")
        asked = len(fake.asked)
        again = tmp_path / "run" / AGAIN / "records.jsonl"
        again.write_bytes(b"".join(again.read_bytes().splitlines(keepends=True)[:7]))
        run = measure(spec, tmp_path / "run")
        assert len(fake.asked) - asked == 13
        measure(spec, tmp_path / "run")
        assert len(fake.asked) - asked == 13
    assert run.repeats is not None
    assert (run.repeats.questions, run.repeats.other_prompt) == (20, 0)


@pytest.mark.slow
def test_a_resumed_run_asks_the_prompts_that_it_asked_before(tmp_path: Path) -> None:
    """In another process a document is laid out as it was, without counting it again."""
    fake = AnthropicFake(model=KNOWN)
    with fake.served() as url:
        spec = spec_of(fake, url, {"repeats": 0.0}, reading="shared", samples=2)
        first = {r.cell.key: r.prompt_digest for r in measure(spec, tmp_path / "run").records}
        records = tmp_path / "run" / "records.jsonl"
        records.write_bytes(b"".join(records.read_bytes().splitlines(keepends=True)[:3]))
        counted = len(fake.counted)
        second = {r.cell.key: r.prompt_digest for r in measure(spec, tmp_path / "run").records}
        assert second == first
        plans = len(fake.counted) - counted
        with prepare(spec):
            pass
        assert len(fake.counted) - counted == 2 * plans  # those of the plan and no more


@pytest.mark.slow
def test_second_answers_are_paid_for_and_in_the_plan(tmp_path: Path, say: Say) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('date = "2026-11-01"\nmodels."claude-opus-4-8" = {input = 1.0, output = 2.0}\n')
    fake = AnthropicFake(model=KNOWN)
    with fake.served() as url:
        spec = spec_of(fake, url, {"prices": str(prices)})
        with prepare(spec, planning=True) as plan:
            cost = repeats_cost(plan)
        shown = say("plan", str(_toml(tmp_path, spec)), "--prices", str(prices)).out
        run = measure(spec, tmp_path / "run")
    assert cost.requests == 20
    assert "again   about 20 questions asked twice" in shown
    assert run.tariff is not None
    once = sum(map(run.tariff.cost_of, run.records))
    assert run.money == pytest.approx(4 / 3 * once, rel=0.05)


@pytest.mark.slow
def test_a_budget_counts_second_answers_and_ends_them(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('date = "2026-11-01"\nmodels."claude-opus-4-8" = {input = 1000.0, output = 0.0}\n')
    fake = AnthropicFake(model=KNOWN)
    with fake.served() as url:
        once = measure(spec_of(fake, url, {"prices": str(prices), "repeats": 0.0}), tmp_path / "once").money
        limits = {"prices": str(prices), "budget": f"{1.1 * once:.2f}usd", "workers": 1}
        run = measure(spec_of(fake, url, limits), tmp_path / "run")
    assert run.repeats is not None
    assert 0 < run.repeats.questions < 20
    assert run.money <= 1.1 * once


def test_questions_of_a_document_are_asked_again_together(tmp_path: Path) -> None:
    fake = AnthropicFake(model=GREEDY)
    with fake.served() as url:
        records = list(measure(spec_of(fake, url, reading="shared"), tmp_path / "run", listen=ignore).records)
    chosen = choose_repeats(records)
    by_key = {record.cell.key: record.document for record in records}
    assert len(chosen) == wanted_repeats(len(records)) == 20
    assert len({by_key[key] for key in chosen}) == 4
    assert {record.cell.length for record in records if record.cell.key in chosen} == {1024, 2048}


@pytest.mark.slow
def test_what_is_graded_again_is_graded_again_in_both_answers(tmp_path: Path, say: Say) -> None:
    fake = AnthropicFake(model=KNOWN)
    with fake.served() as url:
        measure(spec_of(fake, url), tmp_path / "run")
    assert say("rescore", str(tmp_path / "run"), "--scorer", "ruler.strict").code == 0
    scorers = {tuple(record.scores) for record in read_records(tmp_path / "run" / AGAIN)}
    assert scorers == {tuple(record.scores) for record in load_run(tmp_path / "run").records}


def _toml(folder: Path, spec: leadline.Spec) -> Path:
    path = folder / "spec.toml"
    path.write_text(f'model = "{spec.model}"\ntasks = ["niah"]\nlengths = "1k,2k"\ndepths = 5\nsamples = 6\nseed = 3\n')
    return path
