"""Recurrent, convolutional and linear layers, and caches of a model of its own: read once, with the plain answers."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from leadline.models.hf.decode import generate_plain  # noqa: E402
from leadline.models.hf.engine import Engine, EngineRequest  # noqa: E402
from leadline.models.hf.own_cache import OwnCacheReader  # noqa: E402
from leadline.models.hf.states import keeper_of, map_tensors  # noqa: E402
from support.tiny_models import OWN_CACHE, STOP, random_ids, tiny  # noqa: E402

DOCUMENT = random_ids(0, 130)
CUTS = [0, 1, 50, 60, 130, 130, 103]
CLOSINGS = [random_ids(i, n) for i, n in enumerate([5, 0, 7, 3, 4, 0, 12])]
REQUESTS = [EngineRequest(cut, closing, 5) for cut, closing in zip(CUTS, CLOSINGS, strict=True)]


@pytest.mark.parametrize("family", ["mamba2", "bloom"])
def test_a_document_is_read_once_for_all_cuts(family: str) -> None:
    engine = Engine(tiny(family), [STOP], chunk=32)
    before = engine.reader.tokens_read
    assert not any(one.plain_reason for one in engine.answer(DOCUMENT, REQUESTS))
    assert engine.reader.tokens_read - before <= len(DOCUMENT)


@pytest.mark.parametrize("family", OWN_CACHE)
def test_a_record_says_that_a_models_own_cache_was_used_and_why(family: str) -> None:
    engine = Engine(tiny(family), [STOP], chunk=32)
    assert isinstance(engine.reader, OwnCacheReader)
    (one,) = engine.answer(DOCUMENT, REQUESTS[2:3])
    assert one.notes[0].startswith("read into the model's own cache")
    assert ("one reading for each cut" in one.notes[0]) == (family == "mamba")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("family", ["mamba2", "lfm2", "bloom", "gptj"])
def test_a_document_with_the_same_beginning_is_read_from_a_kept_cut(family: str) -> None:
    engine = Engine(tiny(family), [STOP], chunk=32)
    other = DOCUMENT.copy()
    other[110:] = random_ids(9, 20)
    engine.answer(DOCUMENT, REQUESTS)
    before = engine.reader.tokens_read
    found = engine.answer(other, REQUESTS)
    assert engine.reader.tokens_read - before <= 130 - 103
    fresh = Engine(engine.model, [STOP], chunk=32)
    assert [one.answer for one in found] == [one.answer for one in fresh.answer(other, REQUESTS)]


def test_a_cut_that_was_not_kept_is_read_again() -> None:
    engine = Engine(tiny("mamba2"), [STOP], chunk=32)
    engine.answer(DOCUMENT, REQUESTS)
    again = [EngineRequest(40, CLOSINGS[0], 5), REQUESTS[4]]
    fresh = Engine(engine.model, [STOP], chunk=32)
    assert engine.answer(DOCUMENT, again) == fresh.answer(DOCUMENT, again)


INNER = ["qwen3_next", "falcon_h1", "mamba2", "lfm2"]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("padding", [1, 40])
@pytest.mark.parametrize("family", INNER)
def test_states_at_cuts_within_a_pass_are_those_of_a_pass_that_ends_there(
    family: str, padding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cuts before, at and after the tokens that a convolution remembers, and one where scans have a whole chunk."""
    reader = Engine(tiny(family), [STOP], chunk=48).reader
    cuts = [1, 3, 4, 16, 47, 48, 49, 51, 90, 130]
    assert reader.keeper is not None
    assert reader.keeper.takes_inner
    keeper, own, passes = reader.keeper, reader._read_chunk, []

    def read_chunk(cache: Any, tokens: Any, *more: Any, **options: Any) -> Any:
        passes.append(tokens.shape[1])
        return own(cache, tokens, *more, **options)

    monkeypatch.setattr(reader, "_read_chunk", read_chunk)
    monkeypatch.setattr(reader, "_padded", lambda size: -(-size // padding) * padding if keeper.takes_inner else size)
    kept = []
    for keeper.takes_inner in (True, False):
        reader.forget()
        reader.read(DOCUMENT, cuts=cuts)
        kept.append(keeper.at)
    assert passes == [48, 48, 34, 1, 2, 1, 12, 31, 1, 1, 2, 39, 40]
    assert kept[0].keys() == kept[1].keys() == {0, *cuts}

    def compare(one: Any, other: Any) -> Any:
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
        assert one.untyped_storage().nbytes() == one.nbytes, "a view keeps the states of all chunks"
        return one

    for cut in cuts:
        map_tensors(compare, kept[0][cut], kept[1][cut])
        assert kept[0][cut].leadline_length == cut


def test_a_model_with_other_states_is_read_from_cut_to_cut() -> None:
    engine = Engine(tiny("minimax"), [STOP], chunk=32)
    assert engine.reader.keeper is not None
    assert not engine.reader.keeper.takes_inner
    assert not any(one.plain_reason for one in engine.answer(DOCUMENT, REQUESTS))
    assert {0, 50, 103} <= engine.reader.keeper.at.keys()  # 60 and 130 go on from near ones


def test_only_models_with_states_have_a_keeper() -> None:
    assert keeper_of(tiny("llama")) is None
    assert keeper_of(tiny("lfm2")) is not None


def test_structures_are_copied_and_nothing_of_the_original_is_changed() -> None:
    original = {"a": [torch.ones(1, 2), None], "b": (torch.zeros(1, 3), 5)}
    doubled = map_tensors(lambda t: t.repeat(2, 1), original)
    assert doubled["a"][0].shape == (2, 2)
    assert doubled["b"][1] == 5
    assert original["a"][0].shape == (1, 2)
    joined = map_tensors(lambda x, y: torch.cat([x, torch.zeros_like(x) if y is None else y]), original, None)
    assert joined["a"][0].tolist() == [[1, 1], [0, 0]]


@pytest.mark.parametrize("rope", ["dynamic", "longrope"])
def test_positions_that_depend_on_the_length_are_read_once_per_length(rope: str) -> None:
    factors = {"short_factor": [1.0, 1.1, 1.3, 1.5], "long_factor": [2.0, 2.5, 3.0, 4.0]}
    more = factors | {"original_max_position_embeddings": 64} if rope == "longrope" else {}
    model = tiny("dynamic", rope_parameters={"rope_type": rope, "factor": 2.0, "rope_theta": 10000.0, **more})
    engine = Engine(model, [STOP], chunk=32)
    assert engine.support.nested_problem
    for total in (120, 133):
        cuts = [total - n for n in (9, 12, 5)]
        asks = [EngineRequest(cut, random_ids(cut, total - cut), 6) for cut in cuts]
        before = engine.reader.tokens_read
        found = engine.answer(DOCUMENT, asks)
        assert 0 < engine.reader.tokens_read - before <= total
        assert all(f"prompts of {total} tokens" in one.notes[0] and not one.plain_reason for one in found)
        engine.reader.use_own_attention()
        for ask, one in zip(asks, found, strict=True):
            prompt = np.concatenate([DOCUMENT[: ask.cut], ask.closing])
            assert one.answer == generate_plain(model, prompt, 6, [STOP])


def test_one_reading_per_length_is_given_up_when_its_first_answer_is_not_the_plain_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny("dynamic")
    engine = Engine(model, [STOP], chunk=32)
    monkeypatch.setattr("leadline.models.hf.engine.positions_as_of", lambda model, length: nullcontext())
    asks = [EngineRequest(120 - n, random_ids(n, n), 6) for n in (9, 12, 5)]
    found = engine.answer(DOCUMENT, asks)
    assert all(one.plain_reason for one in found)
    for ask, one in zip(asks, found, strict=True):
        assert one.answer == generate_plain(model, np.concatenate([DOCUMENT[: ask.cut], ask.closing]), 6, [STOP])
