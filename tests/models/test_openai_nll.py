"""Log-probabilities through a server: the same numbers as in process on the same weights, or why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from leadline.core.answers import Failure  # noqa: E402
from leadline.core.types import Continuation, TokenNLL  # noqa: E402
from leadline.models.hf import HF  # noqa: E402
from leadline.models.openai.discovery import ServerInfo  # noqa: E402
from leadline.models.openai.http import HttpReply, RequestFailed  # noqa: E402
from leadline.models.openai.scoring import Endpoint, server_ways  # noqa: E402
from support.tiny_models import model_folder, random_ids, tiny  # noqa: E402

Choice = Callable[[list[int], list[float]], dict[str, Any]]
DOCUMENT = random_ids(0, 120)
ASKED = [Continuation(120, random_ids(1, 12), 6), Continuation(0, random_ids(1, 12), 6), Continuation(60, DOCUMENT[:4])]
SPANS = [(1, 120), (40, 60)]


def by_id(ids: list[int], chances: list[float]) -> dict[str, Any]:
    """As vLLM writes prompt_logprobs."""
    listed = [None, *({str(i): {"logprob": p, "rank": 1}} for i, p in zip(ids[1:], chances, strict=True))]
    return {"prompt_logprobs": listed}


def echoed(ids: list[int], chances: list[float]) -> dict[str, Any]:
    """As OpenAI's completions do with echo: the prompt first, then the one token written."""
    return {"logprobs": {"token_logprobs": [None, *chances, -0.5]}}


class Server:
    """The tiny model behind a client that is never on a network."""

    base_url = "http://server/v1"

    def __init__(self, choice: Choice, status: int = 200) -> None:
        self.choice = choice
        self.status = status
        self.model = tiny("llama")
        self.bodies: list[dict[str, Any]] = []

    def post(self, url: str, body: bytes) -> HttpReply:
        assert url == "http://server/v1/completions"
        asked = json.loads(body)
        self.bodies.append(asked)
        if self.status != 200:
            return HttpReply(self.status, b'{"error": {"message": "prompt_logprobs are switched off"}}')
        ids = asked["prompt"]
        with torch.inference_mode():
            logits = self.model(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
        chances = [float(logits[place, token]) for place, token in enumerate(ids[1:])]
        choice = {"index": 0, "text": " x", "finish_reason": "length", **self.choice(ids, chances)}
        return HttpReply(200, json.dumps({"choices": [choice]}).encode())


def asked_of(server: Any) -> TokenNLL | Failure:
    return server_ways(Endpoint(server, "tiny"), ServerInfo("plain", "tiny"), lambda: 1).nll(DOCUMENT, ASKED, SPANS)


@pytest.mark.parametrize("form", [by_id, echoed])
def test_a_server_gives_the_numbers_of_the_same_weights_in_process(tmp_path: Path, form: Choice) -> None:
    here = HF(chunk=64).open(str(model_folder(tmp_path / "model", chat=False))).nll(DOCUMENT, ASKED, SPANS)
    server = Server(form)
    there = asked_of(server)
    assert isinstance(here, TokenNLL)
    assert isinstance(there, TokenNLL)
    for ours, theirs in zip((*here.continuations, *here.spans), (*there.continuations, *there.spans), strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-4)
    trial, spans, *continuations = server.bodies
    assert len(trial["prompt"]) < 16
    assert spans["prompt"] == DOCUMENT.tolist()
    assert [body["prompt"] for body in continuations] == [[*DOCUMENT[: c.cut].tolist(), *c.ids.tolist()] for c in ASKED]


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (lambda ids, chances: {}, "no log-probabilities of the prompt"),
        (lambda ids, chances: {"logprobs": {"token_logprobs": [-0.5]}}, "1 log-probabilities for a prompt of 12"),
        (lambda ids, chances: {"logprobs": {"token_logprobs": [None] * len(ids)}}, "lacks log-probabilities"),
        (lambda ids, chances: by_id([i + 1 for i in ids], chances), "it read another text"),
    ],
)
def test_a_server_that_cannot_says_why_not(form: Choice, words: str) -> None:
    found = asked_of(Server(form))
    assert isinstance(found, Failure)
    assert found.why == "unsupported"
    assert words in found.message


def test_refusals_and_connection_errors_are_failures_of_the_sample() -> None:
    refused = asked_of(Server(by_id, status=400))
    assert isinstance(refused, Failure)
    assert "switched off" in refused.message

    class Dead:
        base_url = "http://server/v1"

        def post(self, url: str, body: bytes) -> HttpReply:
            raise RequestFailed("connection", "no server")

    dead = asked_of(Dead())
    assert isinstance(dead, Failure)
    assert dead.transient
