"""The likeliest next tokens: in process as torch computes them, through a server as it lists them, and margins."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from leadline.core.answers import Completion, Failure  # noqa: E402
from leadline.core.contracts import MarginModel, NextTokenModel, TimedModel  # noqa: E402
from leadline.core.registry import ModelName, provider  # noqa: E402
from leadline.models.hf import HF  # noqa: E402
from leadline.models.openai.candidates import first_token, margin_of  # noqa: E402
from leadline.models.openai.http import HttpReply, HttpRequest, served_by  # noqa: E402
from leadline.models.openai.replies import parse_reply  # noqa: E402
from support.tiny_models import model_folder, random_ids, tiny  # noqa: E402

CHAT = {"logprobs": {"content": [
    {"id": 5, "token": "A", "logprob": -0.1, "top_logprobs": [
        {"id": 5, "token": "A", "logprob": -0.1}, {"id": 6, "token": "B", "logprob": -2.5}]},
]}}  # fmt: skip
COMPLETION = {"logprobs": {"tokens": ["A"], "token_logprobs": [-0.1], "top_logprobs": [{"A": -0.1, "B": -2.5}]}}
NO_IDS = {"logprobs": {"content": [{"token": "A", "logprob": -0.1, "top_logprobs": [
    {"token": "A", "logprob": -0.1}, {"token": "B", "logprob": -2.5}, {"token": "C", "logprob": -9999.0}]}]},
}  # fmt: skip


@pytest.mark.parametrize("choice", [CHAT, COMPLETION, NO_IDS], ids=["llama.cpp", "completions", "OpenAI"])
def test_candidates_and_margin_are_read_in_every_format(choice: dict[str, Any]) -> None:
    assert first_token(choice) == {"A": pytest.approx(-0.1), "B": pytest.approx(-2.5)}
    assert margin_of(choice) == pytest.approx(2.4)


@pytest.mark.parametrize("choice", [
    {}, {"logprobs": None}, {"logprobs": {"content": []}}, {"logprobs": {"content": [7]}},
    {"logprobs": {"top_logprobs": [None]}}, {"logprobs": "no"},
])  # fmt: skip
def test_a_reply_without_candidates_has_no_margin(choice: dict[str, Any]) -> None:
    assert first_token(choice) == {}
    assert margin_of(choice) is None


def test_the_margin_is_on_the_completion() -> None:
    message = {"choices": [{"message": {"content": "A"}, "finish_reason": "stop", **CHAT}]}
    outcome = parse_reply(HttpReply(200, json.dumps(message).encode()), chat=True)
    assert isinstance(outcome, Completion)
    assert outcome.margin == pytest.approx(2.4)


def test_in_process_they_are_those_of_one_forward_pass(tmp_path: Path) -> None:
    made = tiny("llama")
    model = HF(dtype="float32", device="cpu").open(str(model_folder(tmp_path / "m", "llama")))
    assert isinstance(model, NextTokenModel)
    ids, cuts = random_ids(0, 90), [1, 40, 41, 90]
    after = model.next_tokens(ids, cuts, 5)
    assert not isinstance(after, Failure)
    with torch.inference_mode():
        whole = torch.log_softmax(made(torch.from_numpy(ids.astype(np.int64))[None]).logits[0].float(), -1)
    for cut, found in zip(cuts, after, strict=True):
        expected = whole[cut - 1].topk(5).values.tolist()
        total = sum(math.exp(p) for p in found.top.values())
        assert total == pytest.approx(sum(map(math.exp, expected)), abs=1e-5)
        if cut < len(ids):
            assert found.actual == pytest.approx(float(whole[cut - 1, int(ids[cut])]), abs=1e-4)
        else:
            assert found.actual is None
    again = model.next_tokens(ids, cuts, 5, fresh=True)
    assert not isinstance(again, Failure)
    for one, two in zip(after, again, strict=True):
        assert one.top.keys() == two.top.keys()
        assert list(one.top.values()) == pytest.approx(list(two.top.values()), abs=1e-4)
    assert isinstance(model, MarginModel)
    assert isinstance(model, TimedModel)


def test_a_server_is_asked_once_for_each_cut_and_afresh_only_with_its_own_field() -> None:
    asked: list[dict[str, Any]] = []

    def answer(request: HttpRequest) -> HttpReply:
        def page(value: object, status: int = 200) -> HttpReply:
            return HttpReply(status, json.dumps(value).encode())

        if request.url.endswith("/models"):
            return page({"data": [{"id": "m", "max_model_len": 4096}]})
        if request.url.endswith("/version"):
            return page({"version": "0.32.0"})
        body = json.loads(request.body or b"{}")
        if request.url.endswith("/tokenize"):
            return page({"tokens": list(body["prompt"].encode()), "count": len(body["prompt"].encode())})
        if "completions" in request.url and isinstance(body.get("prompt"), list):
            asked.append(body)
            tops = {"A": -0.1, "B": -2.5}
            return page({"choices": [{"text": "A", "finish_reason": "length", "logprobs": {
                "tokens": ["A"], "token_logprobs": [-0.1], "top_logprobs": [tops]}}],
                "usage": {"prompt_tokens": len(body["prompt"]), "completion_tokens": body["max_tokens"]}})  # fmt: skip
        if "completions" in request.url:
            tokens = len(str(body.get("prompt", "")).encode())
            return page({"choices": [{"text": "A", "finish_reason": "length"}],
                         "usage": {"prompt_tokens": tokens, "completion_tokens": 1}})  # fmt: skip
        return page({"error": "no such page"}, 404)

    with served_by(answer) as url:
        name = ModelName.parse(f"openai:m?base_url={url}&tokenizer=bytes&api=completions&allow_tokenizer_mismatch=true")
        model = provider(name).open(name.name)
        assert isinstance(model, NextTokenModel)
        ids = np.frombuffer(b"a text of some bytes", np.uint8).astype(np.int32)
        after = model.next_tokens(ids, [3, 7], 20)
        assert [len(body["prompt"]) for body in asked] == [3, 7]
        assert not isinstance(after, Failure)
        assert after[0].top == {"A": -0.1, "B": -2.5}
        assert "cache_salt" not in asked[0]
        afresh = model.next_tokens(ids, [3], 20, fresh=True)
        assert isinstance(afresh, Failure) or asked[-1]["cache_salt"]
        assert isinstance(model, TimedModel)
        timed = model.time_answer(ids, 8)
        assert not isinstance(timed, Failure)
        assert [body["max_tokens"] for body in asked[-3:]] == [1, 1, 8]
