"""Local attention: windows are found in the model's own masks, tested small, and computed in blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from leadline.models.hf import attention as hf_attention  # noqa: E402
from leadline.models.hf import partial_attention, sdpa  # noqa: E402
from leadline.models.hf.decode import generate, generate_plain  # noqa: E402
from leadline.models.hf.engine import Engine  # noqa: E402
from leadline.models.hf.partial_attention import attend, attend_band  # noqa: E402
from leadline.models.hf.reader import Reader, rows_of  # noqa: E402
from leadline.models.hf.sdpa import Scoring, attend_where  # noqa: E402
from leadline.models.hf.trial import shared_reading_support  # noqa: E402
from leadline.models.hf.windows import LocalAttention, find_windows  # noqa: E402
from support.architectures import architecture  # noqa: E402
from support.tiny_models import STOP, random_ids, tiny  # noqa: E402

DOCUMENT = random_ids(0, 300)


def plain_window(query: Any, key: Any, value: Any, scale: float, size: int) -> tuple[Any, Any]:
    """What a kernel for windows does."""
    queries, keys = query.shape[2], key.shape[2]
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries).triu(keys - queries - size + 1)
    wide_key, wide_value = (t.repeat_interleave(query.shape[1] // key.shape[1], 1) for t in (key, value))
    return attend_where(query, wide_key, wide_value, Scoring(scale), seen)


@pytest.mark.parametrize(
    ("queries", "before", "size"), [(32, 7, 8), (35, 7, 8), (40, 0, 8), (8, 7, 8), (23, 4, 5), (9, 1, 2), (5, 3, 9)]
)
def test_a_kernel_for_windows_gives_the_band_in_blocks(
    queries: int, before: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(queries)
    query = torch.randn(1, 4, queries, 16, generator=generator)
    keys, values = ([torch.randn(1, 2, n, 16, generator=generator) for n in (before, queries) if n] for _ in range(2))
    calls: list[int] = []

    def kernel(*given: Any) -> Any:
        calls.append(given[-1])
        return plain_window(*given)

    for sinks in (None, torch.randn(4, generator=generator)):
        want = attend_band(query, keys, values, Scoring(0.25), size, sinks)
        with monkeypatch.context() as patch:
            patch.setattr(partial_attention, "window_kernel_for", lambda *_: kernel)
            got = attend_band(query, keys, values, Scoring(0.25), size, sinks)
        assert torch.allclose(got, want, atol=1e-5)
    assert calls == [size, size]


@pytest.mark.parametrize(("fault", "right"), [(0, True), (1, False), (-1, False)])
def test_a_kernel_for_windows_is_used_only_where_its_windows_are_right(
    fault: int, right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kernel(query: Any, key: Any, value: Any, scale: float, size: int) -> Any:
        return plain_window(query, key, value, scale, size + fault)

    monkeypatch.setattr(sdpa, "_flash_window", kernel)
    assert sdpa.window_kernel_for("cpu", torch.float32, 16) is None
    assert (sdpa._windows_correctly("cpu", torch.bfloat16, 16)) == right


@pytest.mark.parametrize("queries", [1, 8, 33, 64])
@pytest.mark.parametrize(("before", "size"), [(0, 9), (5, 9), (8, 9), (23, 24), (6, 7), (0, 1), (40, 200)])
@pytest.mark.parametrize("cap", [None, 1.5])
def test_a_band_in_blocks_is_masked_attention(queries: int, before: int, size: int, cap: float | None) -> None:
    generator = torch.Generator().manual_seed(before)
    query, key, value = (torch.randn(1, n, m, 8, generator=generator) for n, m in (
        (6, queries), (2, before + queries), (2, before + queries)))  # fmt: skip
    sinks = torch.randn(6, generator=generator)
    place, column = torch.arange(before, before + queries)[:, None], torch.arange(before + queries)
    seen = (column <= place) & (column > place - size)
    wide_key, wide_value = (t.repeat_interleave(3, 1) for t in (key, value))
    answer, lse = attend_where(query, wide_key, wide_value, Scoring(0.4, cap), seen)
    keys, values = ([t[:, :, :before], t[:, :, before:]] if before else [t] for t in (key, value))
    assert torch.allclose(attend_band(query, keys, values, Scoring(0.4, cap), size).transpose(1, 2), answer, atol=1e-5)
    damped = answer * torch.sigmoid(lse - sinks[:, None]).unsqueeze(-1)
    got = attend_band(query, keys, values, Scoring(0.4, cap), size, sinks)
    assert torch.allclose(got.transpose(1, 2), damped, atol=1e-5)


def test_a_band_without_a_masked_kernel_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    query, keys, values = torch.randn(1, 4, 40, 8), [torch.randn(1, 2, 51, 8)], [torch.randn(1, 2, 51, 8)]
    want = attend_band(query, keys, values, Scoring(0.4), 12)
    monkeypatch.setattr(partial_attention, "masked_kernel_for", lambda *_: None)
    assert torch.allclose(attend_band(query, keys, values, Scoring(0.4), 12), want, atol=1e-5)


def test_a_kernel_that_refuses_a_shape_is_replaced_and_one_whose_device_failed_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    message = "no execution plan"

    def refuse(*_: Any) -> Any:
        raise RuntimeError(message)

    query, key, value = torch.randn(1, 4, 30, 8), torch.randn(1, 2, 30, 8), torch.randn(1, 2, 30, 8)
    calls: list[Callable[[], Any]] = [
        lambda: attend(query, key, value, Scoring(0.4), causal=True, planned=True)[0],
        lambda: attend_band(query, [key], [value], Scoring(0.4), 12),
    ]
    want = [call() for call in calls]
    monkeypatch.setattr(partial_attention, "kernels_for", lambda *_: (refuse, refuse))
    monkeypatch.setattr(partial_attention, "masked_kernel_for", lambda *_: refuse)
    assert all(torch.allclose(call(), before, atol=1e-5) for call, before in zip(calls, want, strict=True))
    message = "CUDA error: an illegal memory access was encountered"
    for call in calls:
        with pytest.raises(RuntimeError, match="illegal memory access"):
            call()


def test_the_temperature_of_llama_4_is_that_of_the_true_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf_attention, "_with_true_temperature", lambda module, query, positions: query)
    reader = Reader(architecture("llama4"), chunk=64)
    assert "differs" in shared_reading_support(reader.model, reader).reason  # without it


@pytest.mark.parametrize(
    ("name", "local"),
    [("gemma3", LocalAttention(23)), ("mistral", LocalAttention(40)), ("llama4", LocalAttention(40, chunked=True))],
)
def test_windows_are_those_of_the_models_own_masks(name: str, local: LocalAttention) -> None:
    engine = Engine(architecture(name), [])
    assert engine.reader.windows == dict.fromkeys([0, 1] if name == "mistral" else [0], local)
    assert getattr(engine.model.config, "attention_chunk_size" if local.chunked else "sliding_window") == local.size


def test_a_window_that_the_masks_do_not_show_limits_shared_reading() -> None:
    model = tiny("llama")
    model.config.sliding_window = 50
    engine = Engine(model, [])
    assert (engine.support.refusal(50), engine.support.refusal(51)) == ("", "sliding window of 50 tokens")


def test_a_model_whose_masks_are_not_causal_takes_the_plain_path() -> None:
    model = tiny("gemma3", use_bidirectional_attention=True)
    assert "masks" in Engine(model, []).support.refusal(1)


@pytest.mark.parametrize("name", ["gemma3", "llama4"])
def test_a_wrong_window_is_noticed_by_the_trial(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(model: Any, use_attention: Any) -> Any:
        found = find_windows(model, use_attention)
        return {layer: replace(local, size=local.size + 1) for layer, local in found.items()}

    reader = Reader(architecture(name), chunk=64)
    assert not shared_reading_support(reader.model, reader).reason
    monkeypatch.setattr("leadline.models.hf.trial.find_windows", wrong)
    assert "differs" in shared_reading_support(reader.model, reader).reason


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", ["gemma2", "gpt_oss", "llama4"])
def test_answers_do_not_depend_on_chunks_batches_slack_or_reuse(name: str) -> None:
    model = architecture(name)
    cuts = [0, 9, 41, 80, 240, 299]
    closings = [random_ids(50 + i, n) for i, n in enumerate([4, 45, 1, 60, 2, 26])]
    other = np.concatenate([DOCUMENT[:217], random_ids(9, 83)])
    first = Engine(model, [STOP]).reader
    prompts = [np.concatenate([DOCUMENT[:cut], closing]) for cut, closing in zip(cuts, closings, strict=True)]
    plain = [generate_plain(model, prompt, 4, [STOP]) for prompt in prompts]
    for chunk, batch, slack in ((300, 8, 32), (17, 3, 0), (64, 1, 200)):
        reader = Reader(model, chunk=chunk)
        reader.windows = first.windows
        reader.read(other)
        reader.read(DOCUMENT)
        rows = rows_of(DOCUMENT, cuts, closings, slack=slack)
        found = generate(reader, rows, [4] * len(cuts), [STOP], batch=batch)
        assert [found[i] for i in range(len(cuts))] == plain
        reader.use_own_attention()
