"""A real server with a real model: llama.cpp with SmolLM2-135M-Instruct, started here on loopback."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline.core.answers import Answer, Completion, Failure
from leadline.core.registry import ModelName, provider
from leadline.core.spec import make_spec
from leadline.core.types import Cell, Document, Probe
from leadline.features.published.report import published_scores
from leadline.models.openai.provider import OpenAIModel
from leadline.models.openai.tokenizer import ServerTokenizer
from leadline.run.measure import measure
from leadline.store.runs import read_records
from leadline.tasks.niah import Needle
from support.fitting import fit
from support.llama_server import MODEL, LlamaServer, half_weights

pytestmark = pytest.mark.real

WINDOW = 1536
LONGBENCH_DATA = Path(__file__).parents[3] / "shared" / "data" / "golden" / "longbench_data.tar.xz"
TASK = Needle(keys=1, haystack="noise")


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with LlamaServer(half_weights(), window=WINDOW) as server:
        yield server.base_url


def opened(base_url: str, options: str = "") -> OpenAIModel:
    name = ModelName.parse(f"openai:{MODEL}?base_url={base_url}{options}")
    model = provider(name).open(name.name)
    assert isinstance(model, OpenAIModel)
    return model


def asked(model: OpenAIModel, length: int, depth: float, sample: int) -> tuple[Document, Probe, Answer]:
    document = fit(TASK.draft([Cell("niah", length, depth, sample)], seed=1), model.tokenizer, model.frame)
    (probe,) = document.probes
    (answer,) = model.answer(document, [probe])
    return document, probe, answer


def test_opening_finds_kind_window_tokenizer_and_template(base_url: str) -> None:
    model = opened(base_url)
    assert model.server.kind == "llamacpp"
    assert model.card.window == WINDOW
    assert isinstance(model.tokenizer, ServerTokenizer)
    assert model.frame.before.endswith("<|im_start|>user\n")
    assert model.frame.after == "<|im_end|>\n<|im_start|>assistant\n"
    assert "SmolLM" in model.frame.system
    assert (model.frame.prefill, model.frame.extra_tokens) == (True, 0)
    assert model.card.notes == ()


def test_the_servers_tokenizer_says_where_its_tokens_end(base_url: str) -> None:
    tokenizer = opened(base_url).tokenizer
    text = "The naïve lighthouse keeper: 4711321 🙂 — in Zürich"
    ids, ends = tokenizer.encode(text), tokenizer.ends(text)
    assert ends is not None
    assert len(ends) == len(ids)
    assert ends[-1] == len(text)
    assert text[: ends[0]] == "The"


@pytest.mark.parametrize("options", ["", "&prefill=no", "&api=completions"])
def test_receipts_match_our_own_count_to_the_token(base_url: str, options: str) -> None:
    model = opened(base_url, f"{options}&max_tokens=1")
    for sample, length in enumerate((192, 201, 230)):
        _, probe, answer = asked(model, length, 0.5, sample)
        assert isinstance(answer.outcome, Completion)
        assert answer.outcome.prompt_tokens == probe.prompt_tokens == length - probe.question.allowance


def test_a_needle_at_512_tokens_is_found_with_a_begun_answer(base_url: str) -> None:
    model = opened(base_url)
    document, probe, answer = asked(model, 512, 0.5, 0)
    assert isinstance(answer.outcome, Completion)
    assert answer.sent.prefix == "prefill"
    assert document.prompt_text(probe).endswith(probe.question.answer_prefix)
    assert not answer.outcome.text.startswith(probe.question.answer_prefix)
    assert probe.question.targets[0] in answer.outcome.text
    assert answer.outcome.prompt_tokens == probe.prompt_tokens == 512 - probe.question.allowance


def test_a_prompt_beyond_the_window_is_refused_as_context_length(base_url: str) -> None:
    _, _, answer = asked(opened(base_url), 4096, 0.5, 0)
    assert isinstance(answer.outcome, Failure)
    assert (answer.outcome.why, answer.outcome.transient) == ("context_length", False)
    assert str(WINDOW) in answer.outcome.message


@pytest.mark.skipif(not LONGBENCH_DATA.is_file(), reason="needs LongBench's files")
def test_real_prompts_of_longbench_are_all_asked_and_what_was_cut_is_counted(base_url: str, tmp_path: Path) -> None:
    """Their Chinese texts are longer than the window: every prompt is cut in the middle, in the model's own tokens."""
    pytest.importorskip("jieba")
    with tarfile.open(LONGBENCH_DATA) as archive:
        archive.extractall(tmp_path, filter="data")
    names = ("multifieldqa_zh", "passage_retrieval_zh")
    tasks = [{"name": "longbench_dataset", "label": n, "dataset": n, "data": str(tmp_path)} for n in names]
    model = f"openai:{MODEL}?base_url={base_url}"
    run = measure(make_spec({"model": model, "tasks": tasks, "lengths": 512, "samples": 1}), tmp_path / "run")
    assert (run.totals.planned, run.totals.done, run.totals.failed) == (2, 2, 0)
    records = list(read_records(tmp_path / "run"))
    assert {r.question.dataset for r in records} == set(names)
    for record in records:
        assert record.receipt.ok  # the server counts as many tokens as were meant to be sent
        assert record.prompt_tokens <= 512 - record.question.allowance
        assert int(record.question.labels["tokens_cut"]) > 0
    assert [(one.task, one.cut, one.not_sent) for one in published_scores(run) if one.group == "all"] == [
        (name, 1, 0) for name in names
    ]
