"""Prompts of an exact length for models whose tokenizer is not public, by their providers' free counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import leadline
from leadline.core.answers import Completion
from leadline.core.spec import make_spec
from leadline.text.tokenizers import ApproximateTokenizer, open_tokenizer
from support.hosted_fakes import KEY, AnthropicFake, HostedFake

TOKENIZER = Path(__file__).parents[2] / "golden/tokenizers/byte-level.json"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)


def real_tokens() -> Callable[[str], int]:
    tokenizer = open_tokenizer(str(TOKENIZER))
    return lambda text: len(tokenizer.encode(text))


def measured(fake: HostedFake, folder: Path, **spec: Any) -> leadline.Run:
    values: dict[str, Any] = {"lengths": "2k", "depths": 3, "samples": 3, **spec}
    with fake.served() as url:
        model = f"anthropic:{fake.model}?base_url={url}"
        return leadline.measure(make_spec({"model": model, **values}), folder / "run", checks=False)


@pytest.mark.parametrize("task", ["niah", "vt", "kv", "qa_fiction_1"])
def test_counts_alone_make_prompts_exact_in_a_tokenizer_that_is_not_known(task: str, tmp_path: Path) -> None:
    fake = AnthropicFake(count=real_tokens())
    records = list(measured(fake, tmp_path, tasks=[task]).records)
    assert records
    for record in records:
        assert record.prompt_tokens == record.cell.length - record.question.allowance
        assert record.receipt.ok, record.receipt
    assert len(fake.counted) <= 5 * (len(records) + 2) + 6  # two documents of the plan; once, what a dot is


def test_questions_of_a_shared_document_are_exact_too_and_share_its_beginning(tmp_path: Path) -> None:
    fake = AnthropicFake(count=real_tokens())
    records = list(measured(fake, tmp_path, tasks=["niah"], reading="shared", lengths="6k", samples=1).records)
    assert [record.receipt.ok for record in records] == [True] * 3
    assert len({body["messages"][0]["content"][0]["text"] for body in fake.asked}) == 1


def test_nested_cuts_are_exact_too(tmp_path: Path) -> None:
    fake = AnthropicFake(count=real_tokens())
    records = list(
        measured(fake, tmp_path, tasks=["niah"], reading="nested", lengths="1k,2k,4k", samples=1, depths=2).records
    )
    assert [record.receipt.ok for record in records] == [True] * 6


def test_the_receipt_decides_where_counts_are_estimates(tmp_path: Path) -> None:
    fake = AnthropicFake(count=real_tokens(), count_error=-2)
    records = list(measured(fake, tmp_path, tasks=["niah"], samples=1).records)
    assert {record.receipt.ok for record in records} == {False}
    assert {(record.receipt.theirs or 0) - record.receipt.ours for record in records} == {2}


def test_published_texts_are_counted_as_they_are(tmp_path: Path) -> None:
    prompts = tmp_path / "mine.jsonl"
    sample = {"index": 0, "input": "Paris is the capital.\nWhat is the capital?", "outputs": ["Paris"], "length": 40}
    prompts.write_text(json.dumps(sample) + "\n")
    fake = AnthropicFake(count=real_tokens(), answer=lambda text: "Paris")
    tasks = [{"name": "prompts", "label": "qa_1", "options": {"files": {2048: str(prompts)}}}]
    records = list(measured(fake, tmp_path, tasks=tasks, samples=1).records)
    assert all(record.receipt.ok for record in records)
    assert all(isinstance(record.outcome, Completion) for record in records)


def test_what_stays_uncertain_is_on_the_record(tmp_path: Path) -> None:
    wild = iter(range(10_000_000))
    fake = AnthropicFake(count=lambda text: len(text) // 4 + 37 * (next(wild) % 2))  # no two counts agree
    records = list(measured(fake, tmp_path, tasks=["niah"], depths=2, samples=2).records)
    assert any("provider's count" in note for record in records for note in record.sent.notes)


def test_the_layout_tokenizer_keeps_every_character() -> None:
    text = "Über 12,345 naïve\n\n  tabs\tund_so «weiter» 數據 ½ x²"
    ends = ApproximateTokenizer().ends(text)
    assert ends is not None
    assert ends[-1] == len(text)
    assert len(ends) == len(ApproximateTokenizer().encode(text))


@pytest.mark.slow
@pytest.mark.parametrize("task", ["niah", "kv"])
def test_questions_of_a_shared_document_need_no_count_each(task: str, tmp_path: Path) -> None:
    fake = AnthropicFake(count=real_tokens())
    run = measured(fake, tmp_path, tasks=[task], reading="shared", lengths="6k", depths=11, samples=4)
    records = list(run.records)
    assert [record.receipt.ok for record in records] == [True] * 44
    assert len(fake.counted) <= 10 * (4 + 2)  # 4 documents and 2 of the plan; a count each would be 22 and more
