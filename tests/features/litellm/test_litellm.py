"""`litellm:` models: calls, receipts in place of exact lengths, and the library's errors as failures of ours."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from leadline.core.answers import Completion, Failure
from leadline.core.errors import MissingExtra, UsageError
from leadline.core.spec import Spec, make_spec
from leadline.features.litellm.model import failure_of
from leadline.features.litellm.provider import LiteLLM
from leadline.results.verdict import verdict
from leadline.run.measure import measure_spec
from support import litellm_library as library
from support.commands import Say
from support.fake_server import FakeServer
from support.litellm_library import FakeLiteLLM


@pytest.fixture
def litellm(monkeypatch: pytest.MonkeyPatch) -> FakeLiteLLM:
    fake = FakeLiteLLM()
    monkeypatch.setitem(sys.modules, "litellm", fake)
    monkeypatch.setattr(library, "MISSING", {"bedrock": ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]})
    return fake


def spec_of(model: str, **values: Any) -> Spec:
    grid = {"tasks": ["passkey"], "lengths": "1k,2k", "depths": 3, "samples": 1}
    return make_spec({"model": model, **grid, **values})


def test_a_run_is_counted_by_receipts_and_claims_no_exact_length(litellm: FakeLiteLLM, tmp_path: Path) -> None:
    run = measure_spec(spec_of("litellm:mistral/large"), tmp_path / "run").run
    assert (run.totals.done, run.totals.failed) == (6, 0)
    assert (run.receipts.equal, run.receipts.different, run.receipts.estimated) == (0, 0, 6)
    for record in run.records:
        assert record.receipt.ok is None
        assert record.receipt.theirs
        assert "counted by receipts" in record.sent.notes
        assert isinstance(record.outcome, Completion)
        assert (record.outcome.cached_tokens, record.outcome.model) == (4, "large-2026")
    said = verdict(run).not_measured
    assert any(line.startswith("Lengths are estimates: by its receipts the model read") for line in said)


def test_a_model_that_reads_half_the_tokens_of_an_estimate_is_not_taken_to_truncate(
    litellm: FakeLiteLLM, tmp_path: Path
) -> None:
    run = measure_spec(spec_of("litellm:mistral/large?tokenizer=bytes"), tmp_path / "run").run
    assert (run.totals.done, run.totals.truncated) == (6, 0)
    assert run.receipts.tokens_per_estimated is not None
    assert run.receipts.tokens_per_estimated < 0.5


def test_calls_drop_no_parameter_and_are_not_repeated_by_the_library(litellm: FakeLiteLLM, tmp_path: Path) -> None:
    model = 'litellm:mistral/large?thinking=low&timeout=9&extra={"top_p":1}&base_url=http://127.0.0.1:9/v1'
    measure_spec(spec_of(model), tmp_path / "run")
    for call in litellm.calls:
        assert (call["drop_params"], call["num_retries"], call["max_retries"]) == (False, 0, 0)
        assert (call["temperature"], call["reasoning_effort"], call["top_p"]) == (0.0, "low", 1)
        assert (call["timeout"], call["api_base"]) == (9, "http://127.0.0.1:9/v1")
    assert litellm.suppress_debug_info


def test_a_model_without_temperature_is_asked_without_and_that_is_noted(litellm: FakeLiteLLM, tmp_path: Path) -> None:
    def refuse(call: dict[str, Any]) -> None:
        if "temperature" in call:
            raise library.UnsupportedParamsError("large doesn't support temperature=0.0", 400)

    litellm.before = refuse
    run = measure_spec(spec_of("litellm:mistral/large"), tmp_path / "run").run
    assert run.totals.done == 6
    assert {"temperature" in record.sent.decoding for record in run.records} == {False}


@pytest.mark.parametrize(
    ("error", "why", "transient", "status", "retry_after"),
    [
        (library.RateLimitError("slow down", 429, {"retry-after": "7"}), "rate_limited", True, 429, 7.0),
        (library.RateLimitError("RateLimitError: OpenAIException - You exceeded your current quota, please check your "
                                "plan", 429), "no_credit", False, 429, None),
        (library.RateLimitError("VertexAIException - You exceeded your current quota; retry in 20 s", 429),
         "rate_limited", True, 429, None),
        (library.ContextWindowExceededError("too long", 400), "context_length", False, 400, None),
        (library.BadRequestError("maximum context length is 8 tokens", 400), "context_length", False, 400, None),
        (library.ContentPolicyViolationError("blocked", 400), "filtered", True, 400, None),
        (library.UnsupportedParamsError("no reasoning_effort", 400), "refused_request", False, 400, None),
        (library.AuthenticationError("bad key", 401), "refused_request", False, 401, None),
        (library.InternalServerError("Missing credentials. Please pass an `api_key`", 500), "refused_request", False,
         401, None),
        (library.InternalServerError("boom", 500), "server", True, 500, None),
        (library.Timeout("no answer", 408), "timeout", True, 408, None),
        (library.APIConnectionError("refused", 500), "connection", True, 500, None),
        (ValueError("a fault of the library"), "refused_request", False, None, None),
    ],
)  # fmt: skip
def test_errors_of_the_library_are_failures_of_ours(
    error: Exception, why: str, transient: bool, status: int | None, retry_after: float | None
) -> None:
    failure = failure_of(error)
    assert (failure.why, failure.transient, failure.status, failure.retry_after) == (
        why, transient, status, retry_after,
    )  # fmt: skip


def test_a_failure_that_passes_is_asked_again_by_the_run(
    litellm: FakeLiteLLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline.core.backoff.FIRST_WAIT_SECONDS", 0.001)
    calls: list[int] = []

    def once(call: dict[str, Any]) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise library.InternalServerError("boom", 500)

    litellm.before = once
    run = measure_spec(spec_of("litellm:mistral/large", limits={"workers": 1}), tmp_path / "run").run
    assert run.totals.done == 6
    assert sorted(record.attempts for record in run.records) == [1, 1, 1, 1, 1, 2]


def test_the_window_is_that_of_the_librarys_table_or_of_the_name(litellm: FakeLiteLLM) -> None:
    assert LiteLLM().open("mistral/large").card.window == 131_072
    assert LiteLLM().open("mistral/other").card.window is None
    assert LiteLLM(window="8k").open("mistral/other").card.window == 8192


def test_a_missing_package_prints_the_pip_line(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(MissingExtra) as error:
        LiteLLM().open("mistral/large")
    assert 'pip install "leadline[litellm]"' in error.value.fix
    ended = say("plan", "passkey", "--model", "litellm:mistral/large", "--lengths", "1k")
    assert ended.code == 69
    assert 'pip install "leadline[litellm]"' in ended.err


def test_a_missing_key_is_named(litellm: FakeLiteLLM) -> None:
    with pytest.raises(UsageError) as error:
        LiteLLM().open("bedrock/large")
    assert error.value.what == "there is no key: $AWS_ACCESS_KEY_ID and $AWS_SECRET_ACCESS_KEY not set"
    assert error.value.fix == "export AWS_ACCESS_KEY_ID=... export AWS_SECRET_ACCESS_KEY=..."


def test_an_unknown_provider_is_refused_with_an_example(litellm: FakeLiteLLM) -> None:
    with pytest.raises(UsageError, match="litellm knows no provider of 'large'") as error:
        LiteLLM().open("large")
    assert "litellm:mistral/mistral-large-latest" in error.value.fix


@pytest.mark.parametrize("extra", ['{"drop_params": true}', '{"api_key": "sk-abcdef0123456789abcdef"}'])
def test_options_that_hide_or_write_down_something_are_refused(extra: str) -> None:
    with pytest.raises(UsageError):
        LiteLLM(extra=extra)


@pytest.mark.real
@pytest.mark.skipif(importlib.util.find_spec("litellm") is None, reason="litellm is not installed")
def test_the_real_library_measures_a_server(tmp_path: Path) -> None:
    with FakeServer(sockets=True) as server:
        model = f"litellm:hosted_vllm/fake?tokenizer=bytes&base_url={server.base_url}"
        run = measure_spec(spec_of(model), tmp_path / "run").run
        assert (run.totals.done, run.totals.failed, run.receipts.estimated) == (6, 0, 6)
        server.window = 64
        refused = measure_spec(spec_of(model, seed=1), tmp_path / "refused").run
    kinds = {record.outcome.why for record in refused.records if isinstance(record.outcome, Failure)}
    assert kinds == {"context_length"}
