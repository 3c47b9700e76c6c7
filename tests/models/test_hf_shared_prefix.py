"""Equality is the contract: reading once gives the answers and logits of one prompt per probe."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from leadline.models.hf.decode import generate, generate_plain  # noqa: E402
from leadline.models.hf.partial_attention import attend, fold, merge, power_of_two_spans  # noqa: E402
from leadline.models.hf.reader import Reader, common_prefix, rows_of  # noqa: E402
from leadline.models.hf.sdpa import Scoring, attend_where  # noqa: E402
from support.tiny_models import FAMILIES, STOP, random_ids, tiny  # noqa: E402

DOCUMENT = random_ids(0, 300)
CUTS = [0, 1, 50, 60, 299, 300, 300, 123, 124, 170]
CLOSINGS = [random_ids(i, n) for i, n in enumerate([5, 0, 7, 3, 4, 0, 9, 12, 3, 20])]


def logits_alone(model: Any, ids: Any) -> Any:
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        return model(input_ids=torch.tensor(ids.astype(np.int64))[None]).logits[0, -1]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_probe_answers_as_if_asked_alone(family: str) -> None:
    model = tiny(family)
    reader = Reader(model, chunk=64)
    reader.read(DOCUMENT)
    rows = rows_of(DOCUMENT, CUTS, CLOSINGS)
    answers = generate(reader, rows, [6] * len(CUTS), [STOP], batch=7)
    reader.use_own_attention()
    for i, (cut, closing) in enumerate(zip(CUTS, CLOSINGS, strict=True)):
        assert answers[i] == generate_plain(model, np.concatenate([DOCUMENT[:cut], closing]), 6, [STOP])


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_after_a_shared_prefix_equal_those_of_the_whole_prompt(family: str) -> None:
    model = tiny(family)
    reader = Reader(model, chunk=77)
    reader.read(DOCUMENT)
    batch = reader.open_rows(rows_of(DOCUMENT, CUTS, CLOSINGS))
    last = [hidden[:, -1] for _, hidden in batch.read_own()][-1]
    for row, logits in zip(batch.rows, reader.logits(last), strict=True):
        alone = logits_alone(model, np.concatenate([DOCUMENT[: CUTS[row.index]], CLOSINGS[row.index]]))
        assert (logits - alone).abs().max() < 1e-4


def test_answers_do_not_depend_on_chunks_batches_or_which_cuts_share_a_base() -> None:
    model = tiny("llama")
    found = []
    for chunk, batch, slack in ((300, 10, 32), (17, 3, 0), (64, 1, 200)):
        reader = Reader(model, chunk=chunk)
        reader.read(DOCUMENT)
        found.append(generate(reader, rows_of(DOCUMENT, CUTS, CLOSINGS, slack=slack), [5] * 10, [STOP], batch=batch))
    assert found[0] == found[1] == found[2]


def test_rows_of_different_allowances_stop_where_each_should() -> None:
    model = tiny("qwen2")
    reader = Reader(model, chunk=64)
    reader.read(DOCUMENT)
    rows = rows_of(DOCUMENT, CUTS, CLOSINGS)
    long = generate(reader, rows, [9] * 10, [], batch=10)
    mixed = generate(reader, rows, list(range(1, 11)), [], batch=10)
    assert [len(mixed[i].ids) for i in range(10)] == list(range(1, 11))
    assert all(mixed[i].ids[:9] == long[i].ids[: i + 1] for i in range(10))


def test_an_answer_ends_before_its_stop_token_and_never_begins_with_one() -> None:
    model = tiny("llama")
    reader = Reader(model, chunk=64)
    reader.read(DOCUMENT)
    rows = rows_of(DOCUMENT, CUTS, CLOSINGS)
    free = generate(reader, rows, [6] * 10, [], batch=10)
    stops = sorted({answer.ids[2] for answer in free.values()} | {free[0].ids[0]})
    stopped = generate(reader, rows, [6] * 10, stops, batch=10)
    assert any(answer.stopped for answer in stopped.values())
    assert all(answer.ids and not set(answer.ids) & set(stops) for answer in stopped.values())
    reader.use_own_attention()
    for i, (cut, closing) in enumerate(zip(CUTS, CLOSINGS, strict=True)):
        assert stopped[i] == generate_plain(model, np.concatenate([DOCUMENT[:cut], closing]), 6, stops)


def test_a_document_that_begins_like_the_last_is_read_from_where_they_differ() -> None:
    model = tiny("llama")
    other = DOCUMENT.copy()
    other[200:] = random_ids(9, 100)
    reader = Reader(model, chunk=64)
    reader.read(DOCUMENT)
    reader.read(other)
    assert reader.tokens_read == 400
    after_reuse = generate(reader, rows_of(other, [300, 180], [CLOSINGS[0]] * 2), [5, 5], [], batch=2)
    fresh = Reader(model, chunk=64)
    fresh.read(other)
    assert after_reuse == generate(fresh, rows_of(other, [300, 180], [CLOSINGS[0]] * 2), [5, 5], [], batch=2)


def test_a_longer_document_grows_the_store_and_keeps_what_it_holds() -> None:
    model = tiny("llama")
    reader = Reader(model, chunk=64)
    reader.read(DOCUMENT[:100])
    reader.read(DOCUMENT)
    assert reader.tokens_read == 300
    fresh = Reader(model, chunk=64)
    fresh.read(DOCUMENT)
    rows = rows_of(DOCUMENT, [300], [CLOSINGS[0]])
    assert generate(reader, rows, [5], [], batch=1) == generate(fresh, rows, [5], [], batch=1)


def test_parts_of_attention_merge_to_the_whole() -> None:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 6, 10, 16, generator=generator)
    key, value = (torch.randn(1, 2, 70, 16, generator=generator) for _ in range(2))
    scores = query @ key.repeat_interleave(3, 1).mT * 0.3
    whole = scores.softmax(-1) @ value.repeat_interleave(3, 1)
    parts = [attend(query, key[:, :, a:b], value[:, :, a:b], Scoring(0.3)) for a, b in ((0, 1), (1, 40), (40, 70))]
    assert (merge(parts) - whole).abs().max() < 1e-5


def test_masked_attention_sees_only_what_it_may() -> None:
    query, key, value = (torch.randn(2, 2, n, 8) for n in (3, 5, 5))
    seen = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0]], dtype=torch.bool).expand(2, 1, 3, 5)
    answer, lse = attend_where(query, key, value, Scoring(0.5), seen)
    scores = (query @ key.mT * 0.5).masked_fill(~seen, float("-inf"))
    assert torch.allclose(answer, scores.softmax(-1) @ value, atol=1e-6)
    assert torch.allclose(lse, scores.logsumexp(-1), atol=1e-6)


def test_folding_puts_heads_of_one_key_head_side_by_side() -> None:
    query = torch.arange(2 * 4 * 3 * 1.0).view(2, 4, 3, 1)
    assert torch.equal(fold(query, 2)[0, 1, :, 0], torch.cat([query[0, 2, :, 0], query[0, 3, :, 0]]))


@pytest.mark.parametrize("length", [0, 1, 8191, 8192, 24576, 131016, 1_000_003])
def test_stretches_cover_a_prefix_once_in_few_sizes(length: int) -> None:
    found = power_of_two_spans(length)
    assert [start for start, _, _ in found] == [0, *(stop for _, stop, _ in found[:-1])][: len(found)]
    assert sum(stop - start for start, stop, _ in found) == length
    assert all((stop - start).bit_count() == 1 for start, stop, common in found if common)


@pytest.mark.parametrize(("a", "b", "n"), [([], [1], 0), ([1, 2, 3], [1, 2, 4], 2), ([1, 2], [1, 2, 3], 2)])
def test_common_prefixes_are_counted(a: list[int], b: list[int], n: int) -> None:
    assert common_prefix(np.array(a, np.int32), np.array(b, np.int32)) == n
