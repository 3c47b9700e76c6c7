"""What models do not allow: known by their names, or learned from a refusal, and said either way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import leadline
from leadline.core import registry
from leadline.core.answers import Completion, Failure
from leadline.core.contracts import Model
from leadline.core.errors import RunStopped, ServerError, UsageError
from leadline.core.records import Record
from leadline.core.spec import make_spec
from leadline.features.hosted.anthropic import AnthropicAdapter, version_of
from leadline.features.hosted.gemini import GeminiAdapter
from leadline.models.messages.adapter import Adapter, Settings
from leadline.models.messages.prompt import Block, Message, Prompt
from leadline.models.openai.http import HttpReply
from leadline.models.openai.responses import ResponsesAdapter
from support.hosted_fakes import KEY, AnthropicFake, GeminiFake, HostedFake, ResponsesFake

NAMES = {AnthropicFake: "anthropic:{}?", GeminiFake: "gemini:{}?", ResponsesFake: "openai:{}?api=responses&"}
PROMPT = Prompt((Message("user", (Block("How are you?"),)),), 2000)


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, KEY)


def asked(fake: HostedFake, folder: Path, options: str = "", **spec: Any) -> tuple[list[Record], list[str]]:
    values = {"tasks": ["niah"], "lengths": "2k", "depths": 1, "samples": 2, **spec}
    with fake.served() as url:
        model = NAMES[type(fake)].format(fake.model) + f"base_url={url}{options}"
        run = leadline.measure(make_spec({"model": model, **values}), folder / "run", checks=False)
    return list(run.records), run.manifest.model["notes"]


def opened(fake: HostedFake, options: str) -> Model:
    with fake.served() as url:
        name = registry.ModelName.parse(NAMES[type(fake)].format(fake.model) + f"base_url={url}{options}")
        return registry.provider(name).open(name.name)


@pytest.mark.parametrize(
    ("model", "version"),
    [
        ("claude-opus-4-7", (4, 7)), ("claude-sonnet-4-5-20250929", (4, 5)), ("claude-haiku-4.5", (4, 5)),
        ("claude-sonnet-5", (5, 0)), ("claude-sonnet-4-20250514", (4, 0)), ("another", None),
    ],
)  # fmt: skip
def test_the_version_is_read_from_the_name(model: str, version: tuple[int, int] | None) -> None:
    assert version_of(model) == version


def test_a_temperature_that_the_name_rules_out_is_not_sent_and_said(tmp_path: Path) -> None:
    fake = AnthropicFake(model="claude-opus-4-8")
    records, notes = asked(fake, tmp_path)
    assert all(isinstance(record.outcome, Completion) for record in records)
    assert not any("temperature" in body for body in fake.asked)
    assert any("no greedy decoding" in note for note in notes)
    assert all(any("no greedy decoding" in note for note in record.sent.notes) for record in records)


def test_a_temperature_that_a_model_refuses_is_sent_once(tmp_path: Path) -> None:
    fake = ResponsesFake(takes_temperature=False)
    records, _ = asked(fake, tmp_path, limits={"workers": 1})
    assert all(isinstance(record.outcome, Completion) for record in records)
    assert not any("temperature" in body for body in fake.asked)  # those that were not refused
    assert all(any("no temperature" in note for note in record.sent.notes) for record in records)


def test_a_prefilled_answer_is_sent_to_models_that_take_it_and_appended_for_others(tmp_path: Path) -> None:
    older, newer = AnthropicFake(model="claude-opus-4-5"), AnthropicFake(model="claude-opus-4-6")
    (first, *_), _ = asked(older, tmp_path / "older", "&prefill=yes")
    (second, *_), notes = asked(newer, tmp_path / "newer", "&prefill=yes")
    assert [body["messages"][-1]["role"] for body in older.asked + newer.asked] == ["assistant"] * 2 + ["user"] * 2
    assert (first.sent.prefix, second.sent.prefix) == ("prefill", "appended")
    assert any("prefilled" in note for note in notes)


def test_a_prefill_refused_without_a_known_version_is_learned() -> None:
    adapter = AnthropicAdapter(Settings("somebodys-claude", prefill=True))
    refusal = Failure("refused_request", "This model does not support assistant message prefill.", status=400)
    path, body = adapter.request_body(Prompt(PROMPT.messages, 10, prefix="The answer is"))
    assert (path, body["messages"][-1]["role"]) == ("/messages", "assistant")
    assert adapter.adapts_to(refusal)
    _, body = adapter.request_body(Prompt(PROMPT.messages, 10, prefix=" The answer is"))
    assert body["messages"][-1]["content"][-1]["text"] == "How are you? The answer is"
    assert not adapter.adapts_to(refusal)


@pytest.mark.parametrize(
    ("model", "setting", "thinking", "effort"),
    [
        ("claude-opus-4-8", "high", {"type": "adaptive"}, "high"),
        ("claude-opus-4-8", "max", {"type": "adaptive"}, "max"),
        ("claude-opus-4-8", "off", {"type": "disabled"}, None),
        ("claude-opus-4-5", "2048", {"type": "enabled", "budget_tokens": 2048}, None),
        ("claude-opus-4-5", "low", None, "low"),
    ],
)
def test_thinking_is_sent_in_the_form_of_the_version(
    model: str, setting: str, thinking: Any, effort: str | None
) -> None:
    _, body = AnthropicAdapter(Settings(model, thinking=setting)).request_body(PROMPT)
    assert body.get("thinking") == thinking
    assert (body.get("output_config") or {}).get("effort") == effort
    assert ("temperature" in body) == (setting in ("off", "low") and model == "claude-opus-4-5")


def test_a_budget_refused_is_sent_as_adaptive_and_said() -> None:
    adapter = AnthropicAdapter(Settings("somebodys-claude", thinking="2048"))
    said = '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive"'
    assert adapter.adapts_to(Failure("refused_request", said, status=400))
    assert adapter.request_body(PROMPT)[1]["thinking"] == {"type": "adaptive"}
    assert any("budget" in note for note in adapter.settings.notes)


@pytest.mark.parametrize(
    ("kind", "model", "setting"),
    [
        (AnthropicFake, "claude-opus-4-8", "4096"), (AnthropicFake, "claude-opus-4-5", "100"),
        (GeminiFake, "gemini-3-pro", "4096"), (GeminiFake, "gemini-2.5-pro", "high"),
        (ResponsesFake, "gpt-5.6", "4096"),
    ],
)  # fmt: skip
def test_thinking_that_the_model_has_no_field_for_is_an_error_with_a_fix(
    kind: type[HostedFake], model: str, setting: str
) -> None:
    with pytest.raises(UsageError) as raised:
        opened(kind(model=model), f"&thinking={setting}")
    assert raised.value.fix


@pytest.mark.parametrize(
    ("model", "setting", "config"),
    [
        ("gemini-3-pro", "low", {"thinkingLevel": "low"}),
        ("gemini-2.5-flash", "off", {"thinkingBudget": 0}),
        ("gemini-2.5-flash", "4096", {"thinkingBudget": 4096}),
        ("gemini-2.5-flash", "on", {"thinkingBudget": -1}),
    ],
)
def test_gemini_thinks_by_level_or_by_budget(model: str, setting: str, config: dict[str, Any]) -> None:
    _, body = GeminiAdapter(Settings(model, thinking=setting)).request_body(PROMPT)
    assert body["generationConfig"]["thinkingConfig"] == config


ADAPTERS = [
    lambda settings: AnthropicAdapter(settings),
    lambda settings: GeminiAdapter(settings),
    lambda settings: ResponsesAdapter(settings, "OPENAI_API_KEY", official=True, cache_key=True),
]


@pytest.mark.parametrize("adapter_for", ADAPTERS, ids=["anthropic", "gemini", "responses"])
@pytest.mark.parametrize(
    ("said", "setting"),
    [
        ("Unsupported value: 'Temperature' does not support 0", "temperature"),
        ("unknown field responseMimeType", "schemas"), ("output_config.format: not supported", "schemas"),
        ("text.format is not supported with this model", "schemas"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("status", [400, 422])
def test_what_a_refusal_names_is_no_longer_sent_and_said_once(
    adapter_for: Callable[[Settings], Adapter], said: str, setting: str, status: int
) -> None:
    adapter = adapter_for(Settings("somebodys", temperature=0.0))
    refusal = Failure("refused_request", said, status=status)
    assert not adapter.adapts_to(msgspec.structs.replace(refusal, status=404))
    assert adapter.adapts_to(refusal)
    assert getattr(adapter.settings, setting) in (None, False)
    assert len(adapter.settings.notes) == 1
    assert not adapter.adapts_to(refusal)


def test_the_last_marks_of_a_prompt_are_kept() -> None:
    first = Message("user", (Block("a", shared=True), Block("b"), Block("c", shared=True)))
    prompt = Prompt((first, Message("assistant", (Block("d"),)), Message("user", (Block("e", shared=True),))), 10)
    marked = [
        [block.text for m in prompt.with_marks(n).messages for block in m.blocks if block.shared] for n in range(4)
    ]
    assert marked == [[], ["e"], ["c", "e"], ["a", "c", "e"]]
    assert [m.text for m in prompt.with_marks(0).messages] == ["abc", "d", "e"]


def test_google_says_in_its_details_how_long_to_wait_and_when_waiting_is_no_use() -> None:
    adapter = GeminiAdapter(Settings("gemini-3-pro"))

    def limited(*details: dict[str, Any]) -> Failure:
        error = {"code": 429, "message": "You exceeded your quota", "status": "RESOURCE_EXHAUSTED"}
        outcome = adapter.read_reply(429, {"error": {**error, "details": list(details)}})
        assert isinstance(outcome, Failure)
        return outcome

    minute = limited({"violations": [{"quotaId": "InputTokensPerMinute"}]}, {"retryDelay": "37.5s"})
    assert (minute.why, minute.transient, minute.retry_after) == ("rate_limited", True, 37.5)
    assert not limited({"violations": [{"quotaId": "RequestsPerDayPerProject"}]}).transient


def test_thinking_that_is_counted_and_not_shown_is_on_the_record(tmp_path: Path) -> None:
    records, _ = asked(ResponsesFake(), tmp_path)
    assert [record.outcome.thinking_tokens for record in records if isinstance(record.outcome, Completion)] == [4, 4]


def test_a_request_too_large_for_the_api_is_one_of_length() -> None:
    adapter = AnthropicAdapter(Settings("claude-opus-4-8"))
    page = {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}
    outcome = adapter.read_reply(413, page)
    assert isinstance(outcome, Failure)
    assert outcome.why == "context_length"


GEMINI_FREE_TIER = (
    "You exceeded your current quota, please check your plan and billing details. For more information on this error, "
    "head to: https://ai.google.dev/gemini-api/docs/rate-limits.\n* Quota exceeded for metric: "
    "generativelanguage.googleapis.com/generate_content_free_tier_input_token_count, limit: {}, model: gemini-3-pro\n"
    "Please retry in 32.5s."
)
NO_CREDIT: dict[str, tuple[type[HostedFake], int, dict[str, Any]]] = {
    "anthropic": (AnthropicFake, 400, {"type": "error", "error": {
        "type": "invalid_request_error",
        "message": "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to "
        "upgrade or purchase credits."}}),
    "anthropic, by its type": (AnthropicFake, 402, {"type": "error", "error": {
        "type": "billing_error", "message": "There is an issue with your billing."}}),
    "openai": (ResponsesFake, 429, {"error": {
        "message": "You exceeded your current quota, please check your plan and billing details.",
        "type": "insufficient_quota", "param": None, "code": "insufficient_quota"}}),
    "gemini": (GeminiFake, 429, {"error": {
        "code": 429, "status": "RESOURCE_EXHAUSTED", "message": GEMINI_FREE_TIER.format(0),
        "details": [{"violations": [{"quotaId": "GenerateContentInputTokensPerModelPerMinute-FreeTier"}]},
                    {"retryDelay": "32s"}]}}),
}  # fmt: skip


@pytest.mark.parametrize("case", NO_CREDIT)
def test_an_account_without_credit_ends_the_run_at_once_and_nothing_recorded_is_lost(tmp_path: Path, case: str) -> None:
    kind, status, page = NO_CREDIT[case]
    fake = kind()
    answered: list[str] = []

    def answer_once(prompt: str) -> str:
        if not answered:
            fake.plant(status, page)  # the next request finds the credit used up
        answered.append(prompt)
        return "seven"

    fake.answer = answer_once
    with fake.served() as url:
        values = {"tasks": ["niah"], "lengths": "2k", "depths": 1, "samples": 4, "limits": {"workers": 1}}
        spec = make_spec({"model": NAMES[kind].format(fake.model) + f"base_url={url}", **values})
        with pytest.raises(RunStopped) as raised:
            leadline.measure(spec, tmp_path / "run", checks=False)
        assert len(fake.asked) == 2, "the refused question is not asked again, and no other is asked"
        run = leadline.measure(spec, tmp_path / "run", checks=False)
    assert "the account has no credit" in raised.value.what
    assert page["error"]["message"][:40] in raised.value.what
    assert "(the key is read from $" in raised.value.what
    assert raised.value.fix.startswith("add credit to the account of this key")
    assert raised.value.exit_code == 75
    assert len(answered) == 4, "what was answered is not asked again"
    assert run.totals.done == 4


def test_a_quota_of_the_day_that_is_used_up_ends_the_run_with_when_to_go_on(tmp_path: Path) -> None:
    fake = GeminiFake()
    details = [{"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}]}]
    error = {"code": 429, "message": "You exceeded your quota", "status": "RESOURCE_EXHAUSTED", "details": details}
    for _ in range(3):
        fake.plant(429, {"error": error})
    with fake.served() as url:
        limits = {"workers": 1, "breaker": 3}
        values = {"tasks": ["niah"], "lengths": "2k", "depths": 1, "samples": 4, "limits": limits}
        spec = make_spec({"model": NAMES[GeminiFake].format(fake.model) + f"base_url={url}", **values})
        with pytest.raises(RunStopped, match="rate_limited: You exceeded your quota") as raised:
            leadline.measure(spec, tmp_path / "run", checks=False)
    assert raised.value.fix.startswith("wait until the provider's limit allows more questions (a daily one")
    assert "run the same command again" in raised.value.fix


def test_a_free_tier_that_is_used_up_for_a_minute_is_waited_for() -> None:
    for limit in ("250000", "0.5"):
        error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": GEMINI_FREE_TIER.format(limit)}
        outcome = GeminiAdapter(Settings("gemini-3-pro")).read_reply(429, {"error": error})
        assert isinstance(outcome, Failure)
        assert (outcome.why, outcome.transient) == ("rate_limited", True)


def test_an_account_without_credit_is_said_before_the_first_question() -> None:
    """Where prompts are counted by the provider, which refuses that too."""
    fake = AnthropicFake()
    _, status, page = NO_CREDIT["anthropic"]
    reply = HttpReply(status, msgspec.json.encode(page), "application/json")
    answer = fake.page
    fake.page = lambda method, path, body: reply if "count_tokens" in path else answer(method, path, body)  # type: ignore[method-assign]
    with pytest.raises(ServerError) as raised:
        opened(fake, "")
    assert raised.value.what.startswith("the account has no credit: Your credit balance is too low")
    assert raised.value.fix.startswith("add credit to the account of this key")
