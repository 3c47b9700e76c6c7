"""NLL from one reading equals the NLL of separate passes, and computes no more logits than needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from leadline.core.types import Continuation  # noqa: E402
from leadline.models.hf import decode as hf_decode  # noqa: E402
from leadline.models.hf.engine import Engine  # noqa: E402
from support.tiny_models import STOP, WORDS, random_ids, tiny  # noqa: E402

DOCUMENT = random_ids(0, 260)
SCORED = [
    Continuation(260, random_ids(1, 12), 6),
    Continuation(260, random_ids(2, 5), 0),
    Continuation(100, random_ids(3, 30), 10),
    Continuation(1, random_ids(4, 12), 6),
    Continuation(0, random_ids(5, 12), 6),
    Continuation(97, random_ids(6, 2), 0),
]
SPANS = [(1, 260), (40, 41), (200, 230)]


def nats_by_hand(model: Any, ids: Any, tokens: range) -> list[float]:
    """From all the logits of one pass, the way a book defines it."""
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor(ids.astype(np.int64))[None]).logits[0].double()
    return [float(-logits[t - 1].log_softmax(-1)[int(ids[t])]) for t in tokens]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("family", ["llama", "gpt_neox", "granite", "gemma3", "mamba"])
def test_nll_equals_that_of_separate_full_passes(family: str) -> None:
    model = tiny(family)
    nats = Engine(model, [STOP], chunk=64).nll(DOCUMENT, SCORED, SPANS)
    assert nats is not None
    for scored, found in zip(SCORED, nats.continuations, strict=True):
        text = np.concatenate([DOCUMENT[: scored.cut], scored.ids])
        want = nats_by_hand(model, text, range(scored.cut + scored.start, len(text)))
        np.testing.assert_allclose(found, want, atol=1e-4)
    for (start, stop), found in zip(SPANS, nats.spans, strict=True):
        np.testing.assert_allclose(found, nats_by_hand(model, DOCUMENT, range(start, stop)), atol=1e-4)


def test_a_model_of_known_probabilities_has_exactly_their_nll() -> None:
    model = tiny("llama")
    head = model.get_output_embeddings()
    with torch.no_grad():  # all hidden states give the same logits: none but a bias of log-probabilities
        head.weight.zero_()
        head.bias = torch.nn.Parameter(torch.full((WORDS,), float(np.log(0.5 / (WORDS - 1)))))
        head.bias[20] = np.log(0.5)
    text = np.array([9, 20, 30, 20], np.int32)
    nats = Engine(model, [], chunk=64).nll(text, [Continuation(2, np.array([20, 31], np.int32))], [(1, 4)])
    assert nats is not None
    rare = -np.log(0.5 / (WORDS - 1))
    np.testing.assert_allclose(nats.spans[0], [np.log(2), rare, np.log(2)], atol=1e-6)
    np.testing.assert_allclose(nats.continuations[0], [np.log(2), rare], atol=1e-6)


def test_the_document_is_read_once_for_any_number_of_continuations() -> None:
    engine = Engine(tiny("llama"), [], chunk=64)
    engine.nll(DOCUMENT, SCORED * 5, SPANS)
    assert engine.reader.tokens_read == len(DOCUMENT) - 1 + 44  # the trial at the beginning reads 44


def test_only_wanted_positions_ever_get_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(tiny("llama"), [], chunk=64)
    rows: list[int] = []
    own = engine.reader.logits

    def counted(hidden: Any) -> Any:
        rows.append(len(hidden))
        return own(hidden)

    monkeypatch.setattr(engine.reader, "logits", counted)
    monkeypatch.setattr(hf_decode, "LOGITS_BYTES", 12 * WORDS * 8)
    engine.nll(DOCUMENT, [Continuation(200, random_ids(1, 40), 30)], [(100, 120)])
    assert sum(rows) == 10 + 20
    assert max(rows) <= 8


def test_a_second_question_on_the_same_document_reads_only_what_it_must() -> None:
    engine = Engine(tiny("llama"), [], chunk=64)
    first = engine.nll(DOCUMENT, SCORED, [])
    before = engine.reader.tokens_read
    again = engine.nll(DOCUMENT, SCORED, [(250, 260)])
    assert first is not None
    assert again is not None
    assert engine.reader.tokens_read - before == 260 - 1 - 249
    for a, b in zip(first.continuations, again.continuations, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
