"""Conversations on servers: chat servers get the messages and read the very prompt that was counted; completion
endpoints get the text."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadline.core import registry
from leadline.core.answers import Completion
from leadline.core.errors import UsageError
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell
from leadline.text.fitting import Fitter
from support.fake_kinds import TEMPLATE
from support.fake_server import FakeServer, Kind
from support.openai_documents import open_model

CELLS = [Cell("mrcr", 9000, depth, 0) for depth in (0.2, 0.8)]
TASK = registry.task(TaskSpec(name="mrcr", options={"lines": 3}))


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("kind", ["vllm", "llamacpp", "sglang"])
def test_a_server_reads_the_conversation_that_was_counted(kind: Kind, api: str, tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text(TEMPLATE.replace("{{ bos_token }}", ""))
    with FakeServer(answer=lambda prompt: "42", kind=kind, window=50_000, keep_bodies=True) as server:
        given = {"template": tmp_path / "chat.jinja"} if kind == "sglang" and api == "chat" else {}
        model = open_model(server.base_url, api=api, **given)
        document = TASK.document(CELLS, seed=1, fitter=Fitter(model.tokenizer, model.frame))
        answers = model.answer(document, document.probes)
        bodies = [request.body for request in server.completions[-2:]]
    for answer, probe, body in zip(answers, document.probes, bodies, strict=True):
        assert isinstance(answer.outcome, Completion)
        assert answer.outcome.prompt_tokens == probe.prompt_tokens == probe.cell.length - probe.question.allowance
        assert body is not None
        if api == "chat":
            turns = document.turns(probe)
            assert [(m["role"], m["content"]) for m in body["messages"]] == turns
            assert len(turns) > 20
        else:
            assert body["prompt"].startswith("User: Write ")
            assert body["prompt"].endswith("\n\nAssistant:")


def test_a_server_with_an_unknown_template_is_not_sent_a_conversation() -> None:
    with FakeServer(kind="plain", window=50_000) as server:
        model = open_model(server.base_url)
        fitter = Fitter(model.tokenizer, model.frame)
    with pytest.raises(UsageError, match="the chat template is not known"):
        TASK.document(CELLS, seed=1, fitter=fitter)
