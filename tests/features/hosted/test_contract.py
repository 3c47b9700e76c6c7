"""The same cases for every provider: what is asked, what comes back, what is refused, and what is said about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import leadline
from leadline.core import registry
from leadline.core.answers import Completion, Failure
from leadline.core.contracts import Model
from leadline.core.errors import LeadlineError, ServerError, UsageError
from leadline.core.records import Receipt, Score
from leadline.core.spec import make_spec
from leadline.core.types import Question
from leadline.models.messages.model import MessagesModel
from leadline.models.openai.http import HttpReply
from leadline.scorers.failure import classify
from support.hosted_fakes import KEY, AnthropicFake, ChatFake, GeminiFake, HostedFake, Refused, ResponsesFake

KEYS = ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENAI_API_KEY")


@dataclass(frozen=True)
class Provider:
    """One provider: how its model is named, and its replies in the cases that all have."""

    name: str
    fake: Callable[..., HostedFake]
    key: str
    official: str
    options: str = ""
    withheld: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Replies to a question, by what became of it."""
    limited: dict[str, Any] = field(default_factory=dict)

    def model(self, fake: HostedFake, url: str, options: str = "") -> str:
        return f"{self.name}:{fake.model}?" + "&".join(filter(None, (f"base_url={url}", self.options, options)))


def _claude(text: str, reason: str) -> dict[str, Any]:
    usage = {"input_tokens": 50, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 3}
    return {"type": "message", "content": [{"type": "text", "text": text}] if text else [], "stop_reason": reason,
            "usage": usage}  # fmt: skip


def _gemini(text: str, reason: str) -> dict[str, Any]:
    content = {"role": "model", "parts": [{"text": text}]} if text else {"role": "model"}
    usage = {"promptTokenCount": 50, "thoughtsTokenCount": 4, "totalTokenCount": 54}
    return {"candidates": [{"content": content, "finishReason": reason}], "usageMetadata": usage}


def _responses(text: str, status: str, reason: str = "", kind: str = "output_text") -> dict[str, Any]:
    part = {"type": kind, "text" if kind == "output_text" else "refusal": text}
    message = {"type": "message", "role": "assistant", "content": [part] if text else []}
    return {"status": status, "incomplete_details": {"reason": reason} if reason else None, "output": [message],
            "usage": {"input_tokens": 50, "output_tokens": 3}}  # fmt: skip


def _chat(text: str, reason: str) -> dict[str, Any]:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": reason}
    return {"choices": [choice], "usage": {"prompt_tokens": 50, "completion_tokens": 3}}


PROVIDERS = [
    Provider(
        "anthropic", AnthropicFake, "ANTHROPIC_API_KEY", "anthropic:claude-opus-4-5",
        withheld={
            "cut_off": _claude("The", "max_tokens"), "window": _claude("The", "model_context_window_exceeded"),
            "refusal": _claude("", "refusal"),
        },
        limited={"type": "error", "error": {"type": "rate_limit_error", "message": "too many input tokens a minute"}},
    ),
    Provider(
        "gemini", GeminiFake, "GEMINI_API_KEY", "gemini:gemini-3-pro",
        withheld={
            "cut_off": _gemini("The", "MAX_TOKENS"), "recitation": _gemini("", "RECITATION"),
            "filtered": _gemini("", "SAFETY"),
        },
        limited={"error": {"code": 429, "message": "Resource exhausted", "status": "RESOURCE_EXHAUSTED"}},
    ),
    Provider(
        "openai", ResponsesFake, "OPENAI_API_KEY", "openai:gpt-5.6?api=responses", "api=responses",
        withheld={
            "cut_off": _responses("The", "incomplete", "max_output_tokens"),
            "filtered": _responses("", "incomplete", "content_filter"),
            "refusal": _responses("I can't help with that.", "completed", kind="refusal"),
        },
        limited={"error": {"message": "Rate limit reached", "type": "tokens", "code": "rate_limit_exceeded"}},
    ),
    Provider(
        "openai", ChatFake, "OPENAI_API_KEY", "", "tokenizer=bytes",
        withheld={
            "cut_off": _chat("The", "length"), "filtered": _chat("", "content_filter"),
        },
        limited={"error": {"message": "Rate limit reached", "type": "tokens", "code": "rate_limit_exceeded"}},
    ),
]  # fmt: skip


@pytest.fixture(params=PROVIDERS, ids=lambda provider: provider.fake.__name__)
def provider(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Provider:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(request.param.key, KEY)
    given: Provider = request.param
    return given


def opened(provider: Provider, fake: HostedFake, url: str, options: str = "") -> Model:
    return open_named(provider.model(fake, url, options))


def open_named(text: str) -> Model:
    name = registry.ModelName.parse(text)
    return registry.provider(name).open(name.name)


def skip_without_counts(provider: Provider) -> None:
    if provider.fake is ChatFake:
        pytest.skip("chat completions count no prompts: conversations and tools need the model's own template")


def run(provider: Provider, fake: HostedFake, folder: Path, options: str = "", **spec: Any) -> leadline.Run:
    values = {"tasks": ["niah"], "lengths": "2k", "depths": 2, "samples": 2, **spec}
    with fake.served() as url:
        values["limits"] = {"attempts": 1, "workers": 4, **spec.get("limits", {})}
        model = provider.model(fake, url, options)
        return leadline.measure(make_spec({"model": model, **values}), folder / "run", checks=False)


def test_a_run_is_answered_with_receipts(provider: Provider, tmp_path: Path) -> None:
    fake = provider.fake()
    records = list(run(provider, fake, tmp_path).records)
    assert [r.failure_class for r in records] == ["correct"] * 4
    for record in records:
        assert isinstance(record.outcome, Completion)
        assert record.outcome.prompt_tokens == record.receipt.theirs
        assert record.outcome.completion_tokens
        assert record.outcome.finish == "stop"
        assert record.outcome.model.startswith(fake.model)
    assert KEY not in (tmp_path / "run/records.jsonl").read_text()


def test_a_missing_key_names_its_variable(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    if not provider.official:
        pytest.skip("a chat server of one's own may need no key")
    monkeypatch.delenv(provider.key)
    with pytest.raises(UsageError, match=provider.key) as raised:
        open_named(provider.official)
    assert provider.key in raised.value.fix


def test_a_refused_key_names_its_variable(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(provider.key, "another-key-of-nobody-77")
    fake = provider.fake()
    with fake.served() as url, pytest.raises(ServerError) as raised:
        opened(provider, fake, url)
    assert provider.key in f"{raised.value.what} {raised.value.fix}"


def test_a_model_without_access_is_an_error_that_names_those_there_are(provider: Provider) -> None:
    fake = provider.fake()
    with fake.served() as url, pytest.raises(ServerError, match="another-model") as raised:
        open_named(provider.model(provider.fake(model="another-model"), url))
    assert fake.model in raised.value.fix


def test_thinking_that_no_model_has_is_refused_before_anything_is_sent(provider: Provider) -> None:
    fake = provider.fake()
    with fake.served() as url, pytest.raises(LeadlineError, match="thinking"):
        opened(provider, fake, url, "thinking=sideways")
    assert not fake.counted


def test_a_prompt_beyond_the_window_is_a_failure_of_its_sample(provider: Provider, tmp_path: Path) -> None:
    fake = provider.fake()
    with fake.served() as url:
        fake.window = 900
        model = provider.model(fake, url, "window=64k")
        spec = {"model": model, "tasks": ["niah"], "lengths": "2k", "depths": 1, "samples": 1}
        (record,) = leadline.measure(make_spec(spec), tmp_path / "run", checks=False).records
    assert isinstance(record.outcome, Failure)
    assert record.outcome.why == "context_length"
    assert not record.outcome.transient


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("cut_off", "cut_off"),
        ("window", "cut_off"),
        ("refusal", "refused"),
        ("recitation", "recitation"),
        ("filtered", "filtered"),
    ],
)
def test_an_answer_that_is_withheld_or_cut_off_is_classed(
    provider: Provider, case: str, expected: str, tmp_path: Path
) -> None:
    if case not in provider.withheld:
        pytest.skip("this API has no such end of an answer")
    fake = provider.fake()
    fake.plant(200, provider.withheld[case])
    (record,) = run(provider, fake, tmp_path, depths=1, samples=1).records
    if isinstance(record.outcome, Failure):
        assert record.outcome.why == expected
        assert not record.scores
    else:
        assert isinstance(record.outcome, Completion)
        assert record.outcome.finish != "stop"
        graded = class_of(record.outcome)
        assert graded == expected


def class_of(outcome: Completion) -> str:
    """The class of a wrong answer with this end, as receipts of planted replies are none of the prompt's."""
    return classify(Question("?", targets=("7",)), outcome, {"match.all": Score(0.0)}, Receipt(50, 50), "")[0]


def test_a_rate_limit_is_waited_for_as_long_as_the_provider_says(provider: Provider, tmp_path: Path) -> None:
    fake = provider.fake()
    fake.plant(429, provider.limited, {"retry-after": "0"})
    (record,) = run(provider, fake, tmp_path, depths=1, samples=1, limits={"attempts": 2}).records
    assert isinstance(record.outcome, Completion)
    assert record.attempts == 2


def test_a_server_error_is_asked_again_and_then_a_failure(provider: Provider, tmp_path: Path) -> None:
    fake = provider.fake()
    fake.plant(529, {"error": {"type": "overloaded_error", "message": "Overloaded"}})
    (record,) = run(provider, fake, tmp_path, depths=1, samples=1).records
    assert isinstance(record.outcome, Failure)
    assert (record.outcome.why, record.outcome.transient) == ("server", True)


@pytest.mark.parametrize("body", [b"", b"<html>down</html>", b"[]", b'{"candidates":3,"content":3,"output":3}', b"{}"])
def test_a_reply_of_another_shape_fails_one_sample(provider: Provider, body: bytes, tmp_path: Path) -> None:
    fake = provider.fake()
    fake.planted.append(lambda: HttpReply(200, body))
    records = list(run(provider, fake, tmp_path, depths=1, samples=2, limits={"workers": 1}).records)
    assert sorted(isinstance(record.outcome, Failure) for record in records) == [False, True]


def test_conversations_are_sent_as_turns(provider: Provider, tmp_path: Path) -> None:
    skip_without_counts(provider)
    fake = provider.fake()
    run(provider, fake, tmp_path, tasks=["mrcr"], lengths="4k", depths=1, samples=1)
    body = fake.asked[0]
    turns = body.get("messages") or body.get("contents") or body["input"]
    roles = [turn["role"] for turn in turns]
    assert len(roles) > 4
    assert roles[0] == "user"
    assert roles[-1] == "user"
    assert {"assistant", "model"} & set(roles)
    assert "\u2063" not in json.dumps(body, ensure_ascii=False)


def test_tools_are_declared_and_their_calls_are_answers(provider: Provider, tmp_path: Path) -> None:
    skip_without_counts(provider)
    fake = provider.fake()
    run(provider, fake, tmp_path, tasks=["tool_calls"], lengths="4k", depths=1, samples=1)
    assert fake.asked[0]["tools"]


def test_a_system_text_and_further_fields_are_sent_and_counted(provider: Provider) -> None:
    if provider.name == "openai":
        pytest.skip("OpenAI's instructions are a field: extra={...}")
    fake = provider.fake()
    with fake.served() as url:
        model = opened(provider, fake, url, "system=Be brief.")
        assert isinstance(model, MessagesModel)
        assert "Be brief." in json.dumps(fake.counted[-1])


def test_an_api_without_counts_is_measured_by_estimates_and_says_so(provider: Provider, tmp_path: Path) -> None:
    skip_without_counts(provider)
    fake = provider.fake(counts=False)
    result = run(provider, fake, tmp_path, depths=1, samples=1)
    assert not fake.counted
    assert any("estimates" in note for note in result.manifest.model["notes"])


@pytest.mark.parametrize("fake", [AnthropicFake(model="smollm2"), ResponsesFake(model="smollm2")])
def test_a_server_that_lists_its_models_and_has_no_page_for_each_is_opened(
    fake: HostedFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As vLLM's, which speaks both APIs."""
    for name in KEYS:
        monkeypatch.setenv(name, KEY)
    answered = fake.page

    def as_vllm(method: str, path: str, body: dict[str, Any]) -> dict[str, Any] | HttpReply:
        if method == "GET" and path.endswith("/models"):
            return {"object": "list", "data": [{"id": "smollm2", "object": "model", "max_model_len": 8192}]}
        return HttpReply(404, b'{"detail":"Not Found"}') if method == "GET" else answered(method, path, body)

    fake.page = as_vllm  # type: ignore[method-assign]
    provider = "anthropic:smollm2?" if isinstance(fake, AnthropicFake) else "openai:smollm2?api=responses&"
    with fake.served() as url:
        model = open_named(f"{provider}base_url={url}")
        assert model.card.window == 8192
        model.close()


def test_a_key_without_permission_for_the_model_is_told_to_ask_for_it(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = provider.fake()

    def denied(method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        raise Refused(403, "permission_error", "Your key does not have permission to use the specified resource.")

    monkeypatch.setattr(fake, "page", denied)
    with fake.served() as url, pytest.raises(ServerError) as raised:
        opened(provider, fake, url)
    assert provider.key in f"{raised.value.what} {raised.value.fix}"
    assert raised.value.fix
