"""Providers' own compaction: OpenAI's endpoint, whose result only it can read, and Anthropic's context editing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import leadline
from leadline.core.answers import Failure
from leadline.core.errors import UsageError
from leadline.core.spec import make_spec
from leadline.features.compaction.report import Recall, compaction_results
from support.agent_readers import recall_fact
from support.hosted_fakes import KEY, AnthropicFake, HostedFake, ResponsesFake


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def reads(prompt: str) -> str:
    return recall_fact(prompt) or "not known"


def name_of(fake: HostedFake, url: str) -> str:
    if isinstance(fake, AnthropicFake):
        return f"anthropic:{fake.model}?base_url={url}"
    return f"openai:{fake.model}?base_url={url}&api=responses"


def measured(folder: Path, fake: HostedFake, other: HostedFake | None = None, **options: Any) -> leadline.Run:
    """A run of `none` and of the compaction of the fake, or of another one."""
    lengths = options.pop("lengths", [4000])
    with fake.served() as url, (other or fake).served() as other_url:
        compactor = {"compactor": "compact:provider", "compactor_model": name_of(other or fake, other_url), **options}
        if other is None:
            compactor["compactor_model"] = options.get("compactor_model", name_of(fake, url))
        tasks = [{"name": "compaction", "label": f"compaction[{n}]", **o} for n, o in enumerate(({}, compactor))]
        spec = {"model": name_of(fake, url), "tasks": tasks, "lengths": lengths, "depths": 1, "samples": 3}
        return leadline.measure(make_spec(spec), folder / "run", checks=False)


def recalls(run: leadline.Run) -> dict[str, Recall]:
    return {recall.compactor: recall for recall in compaction_results(list(run.records)).recalls}


def test_openais_compacted_session_is_sent_back_to_it_unread(tmp_path: Path) -> None:
    fake = ResponsesFake(answer=reads)
    run = measured(tmp_path, fake)
    found = recalls(run)
    assert found["none"].recall.mean == found["compact:provider"].recall.mean == 1.0
    assert 0 < found["compact:provider"].retained < found["none"].retained
    for record in run.records:
        labels = record.question.labels
        if labels["compactor"] == "compact:provider":
            assert int(labels["compactor_read"]) > int(labels["compactor_written"]) == int(labels["retained"])
            assert record.receipt.ok, record.receipt
    with_items = [body for body in fake.asked if body["input"][0].get("type") == "compaction"]
    assert len(with_items) == 3
    assert all(len(json.dumps(body["input"][1:])) < 1000 for body in with_items), "the session is not sent again"
    roles = {item["role"] for body in fake.compacted for item in body["input"]}
    assert roles == {"user", "assistant"}


def test_a_provider_that_keeps_nothing_has_no_recall(tmp_path: Path) -> None:
    fake = ResponsesFake(answer=reads)
    fake.summary = lambda session: "It was long."
    assert recalls(measured(tmp_path, fake))["compact:provider"].recall.mean == 0.0


def test_what_one_provider_kept_is_not_asked_of_another(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"only gpt-5\.6 at .* can read"):
        measured(tmp_path, AnthropicFake(answer=reads), ResponsesFake())


@pytest.mark.slow
def test_anthropics_summary_is_text(tmp_path: Path) -> None:
    fake = AnthropicFake(answer=reads)
    run = measured(tmp_path, fake, lengths=[60_000])
    found = recalls(run)["compact:provider"]
    assert found.recall.mean == 1.0
    assert 50_000 < found.read < 62_000
    assert found.written > 0
    assert fake.compacted[0]["messages"][-1]["role"] == "user"


def test_a_session_that_the_provider_leaves_alone_is_a_failure_of_its_own(tmp_path: Path) -> None:
    run = measured(tmp_path, AnthropicFake(answer=reads))
    [reason] = {r.outcome.message for r in run.records if isinstance(r.outcome, Failure)}
    assert "sessions below 50,000 tokens are left alone" in reason
    assert {r.outcome.why for r in run.records if isinstance(r.outcome, Failure)} == {"compaction"}
    assert run.totals.asked == 6


BAD: list[tuple[int, dict[str, Any], str]] = [
    (200, {"object": "response.compaction", "output": [], "usage": {}}, "no compacted session in the reply"),
    (200, {"output": [{"type": "message", "content": []}]}, "no compacted session in the reply"),
    (200, {"output": 7}, "no compacted session in the reply"),
    (400, {"error": {"message": "no such session"}}, "no such session"),
    (500, {"error": {"message": "overloaded"}}, "overloaded"),
    (200, {"output": ["x"], "usage": 3}, "cannot be read"),
    (200, {"output": [{"type": "compaction", "encrypted_content": "eA=="}],
           "usage": {"input_tokens": 9, "output_tokens": 90_000}}, "returned more than it got"),
]  # fmt: skip


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("status", "page", "problem"), BAD)
def test_bad_replies_fail_their_sessions_and_nothing_else(
    status: int, page: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    fake = ResponsesFake(answer=reads)
    original = fake._compacted

    def planted(body: dict[str, Any]) -> Any:
        fake.plant(status, page)
        return original(body)

    fake._compacted = planted  # type: ignore[method-assign]
    run = measured(tmp_path, fake)
    failed = [r.outcome for r in run.records if isinstance(r.outcome, Failure)]
    assert [(outcome.why, problem in outcome.message) for outcome in failed] == [("compaction", True)] * 3
    assert recalls(run)["none"].recall.mean == 1.0


def test_a_model_without_a_compaction_of_its_own_says_so(tmp_path: Path) -> None:
    run = measured(tmp_path, ResponsesFake(answer=reads), compactor_model="sim:perfect")
    [reason] = {r.outcome.message for r in run.records if isinstance(r.outcome, Failure)}
    assert "has no compaction of its own; OpenAI's is openai:NAME?api=responses" in reason


def test_what_only_the_provider_can_read_is_compacted_in_one_round(tmp_path: Path) -> None:
    run = measured(tmp_path, ResponsesFake(answer=reads), rounds=2)
    [reason] = {r.outcome.message for r in run.records if isinstance(r.outcome, Failure)}
    assert "in 1 round" in reason
