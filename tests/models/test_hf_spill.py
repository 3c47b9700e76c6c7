"""Keys and values in host memory, in windows and in float8: where they live changes no number, except in float8."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from leadline.core.types import Continuation  # noqa: E402
from leadline.models.hf.decode import plain_nll  # noqa: E402
from leadline.models.hf.engine import Engine, EngineRequest  # noqa: E402
from leadline.models.hf.host_memory import HostLayer, HostMemory  # noqa: E402
from leadline.models.hf.kv_cache import KVCache, WindowLayer, decode_fp8, encode_fp8  # noqa: E402
from leadline.models.hf.reader import Reader, rows_of  # noqa: E402
from leadline.models.hf.trial import choose_reader  # noqa: E402
from leadline.models.hf.windows import LocalAttention  # noqa: E402
from support.architectures import architecture  # noqa: E402
from support.tiny_models import STOP, random_ids, tiny  # noqa: E402

DOCUMENT = random_ids(0, 300)
CUTS = [0, 50, 60, 200, 299, 300]
CLOSINGS = [random_ids(i, n) for i, n in enumerate([5, 7, 3, 12, 4, 9])]
ROWS = rows_of(DOCUMENT, CUTS, CLOSINGS)


def nothing_resident(cache: KVCache, device: Any, used: int) -> int:
    return 0


def one_layer_resident(cache: KVCache, device: Any, used: int) -> int:
    return 50_000 - used  # 300 tokens of a layer have 38,400 bytes in most of these models


def hidden_states(reader: Reader, document: Any = DOCUMENT, *, windows: bool = True) -> Any:
    """Without `windows` layers with local attention keep every token, as others do."""
    cuts = [row.base for row in ROWS]
    reader.read(document[: max(cuts)], cuts=cuts if windows else None)
    batch = reader.open_rows(ROWS, room=1)
    own = [hidden for _, hidden in batch.read_own()]
    return torch.cat([*own, batch.advance(torch.full((len(ROWS), 1), 9))], 1)


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.quick_cases(1)
@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3_next"])
def test_closing_an_engine_frees_the_kv_cache_at_once(name: str) -> None:
    engine = Engine(architecture(name), [])
    engine.answer(DOCUMENT, [EngineRequest(cut, end, 2) for cut, end in zip(CUTS[1:], CLOSINGS[1:], strict=True)])
    held = engine.reader.kv_cache
    assert held is not None
    alive = weakref.ref(held)
    del held
    engine.close()
    assert alive() is None


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("room", [nothing_resident, one_layer_resident])
@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt_oss", "deepseek_v3"])
def test_spilled_and_windowed_stores_are_equal_to_the_resident_one_bit_by_bit(name: str, room: Any) -> None:
    reader, _ = choose_reader(architecture(name), Reader(architecture(name), chunk=64))
    want = hidden_states(reader, windows=False)
    assert reader.kv_cache is not None
    assert not reader.kv_cache.spilled_layers
    reader.forget()
    reader.new_kv_cache = lambda: KVCache(room, block=32)
    assert torch.equal(hidden_states(reader), want)
    assert reader.kv_cache is not None
    spilled = len(reader.kv_cache.spilled_layers)
    assert spilled >= (room is nothing_resident)
    assert reader.kv_cache.steady == (spilled == 0)
    assert (name, room) != ("llama", one_layer_resident) or spilled == 1
    other = DOCUMENT.copy()
    other[210:] = random_ids(7, 90)
    before = reader.tokens_read
    again = hidden_states(reader, other)  # goes on from the common beginning
    assert reader.tokens_read - before <= 100
    reader.forget()
    reader.new_kv_cache = KVCache
    assert torch.allclose(again, hidden_states(reader, other, windows=False), atol=1e-5)


def test_layers_with_windows_keep_only_what_is_still_seen() -> None:
    reader, _ = choose_reader(architecture("gemma3"), Reader(architecture("gemma3"), chunk=64))
    document = random_ids(1, 3000)
    cuts = [1000, 3000]
    sizes = []
    for wanted in (None, cuts):
        reader.forget()
        reader.read(document, cuts=wanted)
        sizes.append(reader.kv_cache.bytes if reader.kv_cache else 0)
    assert sizes[1] < 0.55 * sizes[0]  # one of its two layers has a window of 23


def test_a_layer_with_a_window_says_what_it_has_dropped() -> None:
    layer = WindowLayer(LocalAttention(4), [6])
    numbers = torch.arange(20.0).view(1, 1, 20, 1)
    for start in range(0, 20, 5):
        layer.write(start, (numbers[:, :, start : start + 5],))
    assert layer.read(3, 6)[0].flatten().tolist() == [3, 4, 5]
    assert layer.read(17, 20)[0].flatten().tolist() == [17, 18, 19]
    assert layer.resumes_from(10) == 6
    with pytest.raises(LookupError):
        layer.read(9, 12)


def test_rows_may_come_before_anything_was_read() -> None:
    model = tiny("llama")
    engine = Engine(model, [STOP], chunk=64)
    found = engine.nll(DOCUMENT, [Continuation(0, DOCUMENT[:20], 3)], [])
    want = plain_nll(engine.reader, DOCUMENT, [Continuation(0, DOCUMENT[:20], 3)], [])
    assert found is not None
    assert abs(found.continuations[0] - want.continuations[0]).max() < 1e-4


def test_a_longer_document_takes_its_beginning_along() -> None:
    model = tiny("llama")
    answers = []
    for resident in (None, 0, 60_000):
        engine = Engine(model, [STOP], chunk=64, resident=resident)
        engine.answer(DOCUMENT[:100], [EngineRequest(100, CLOSINGS[0], 4), EngineRequest(40, CLOSINGS[1], 4)])
        before = engine.reader.tokens_read
        found = engine.answer(DOCUMENT, [EngineRequest(300, CLOSINGS[0], 4), EngineRequest(40, CLOSINGS[1], 4)])
        assert engine.reader.tokens_read - before == 200
        answers.append([one.answer for one in found])
        assert bool(found[0].notes) == (resident is not None)
    assert answers[0] == answers[1] == answers[2]


def test_float8_halves_the_store_keeps_numbers_near_and_is_on_every_record() -> None:
    numbers = torch.randn(1, 2, 40, 16, generator=torch.Generator().manual_seed(0)) * 30
    planes = encode_fp8(numbers)
    assert planes[0].element_size() == 1
    assert ((decode_fp8(planes) - numbers).abs() <= numbers.abs().amax(-1, keepdim=True) / 16).all()
    assert torch.equal(decode_fp8(encode_fp8(torch.zeros(1, 1, 2, 4))), torch.zeros(1, 1, 2, 4))
    assert not decode_fp8(encode_fp8(torch.full((1, 1, 1, 4), 3e38))).isnan().any()
    model = tiny("llama", head_dim=32)
    sizes = []
    for fp8 in (False, True):
        engine = Engine(model, [STOP], chunk=64, fp8=fp8)
        found = engine.answer(DOCUMENT, [EngineRequest(300, CLOSINGS[0], 4), EngineRequest(80, CLOSINGS[1], 4)])
        assert any("float8_e4m3" in note for note in found[0].notes) == fp8
        assert engine.reader.kv_cache is not None
        sizes.append(engine.reader.kv_cache.bytes)
    assert sizes[1] < 0.32 * sizes[0]  # of float32: a byte and a share of the scale


def test_the_spilled_store_in_float8_equals_the_resident_one_in_float8() -> None:
    reader = Reader(tiny("llama"), chunk=64)
    found = []
    for room in (None, nothing_resident):
        reader.forget()
        reader.new_kv_cache = partial(KVCache, room, fp8=True, block=32)
        found.append(hidden_states(reader))
    assert torch.equal(*found)


def test_memory_that_cannot_be_pinned_is_used_as_it_is_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    own = torch.empty

    def refused(*size: Any, pin_memory: bool = False, **more: Any) -> Any:
        if pin_memory:
            raise RuntimeError("CUDA error: out of memory\nmore")
        return own(*size, **more)

    monkeypatch.setattr("leadline.models.hf.host_memory.torch.empty", refused)
    memory = HostMemory()
    memory.pin = True
    layer = HostLayer((torch.ones(1, 2, 5, 4),), memory, 4)
    layer.write(0, (torch.ones(1, 2, 5, 4),))
    assert memory.problem == "host memory is not pinned: CUDA error: out of memory"
    target = torch.zeros(1, 2, 3, 4)
    layer.copy_to((target,), 2, 5)
    assert target.sum() == 24


def test_host_memory_that_is_not_there_fails_the_longest_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline.models.hf.host_memory.free_host_memory", lambda: (4 << 30) + 20_000)
    engine = Engine(tiny("llama"), [STOP], chunk=512, resident=0)
    asks = [EngineRequest(cut, CLOSINGS[0], 4) for cut in (300, 60, 50)]
    found = engine.answer(DOCUMENT, asks)
    assert [one.answer is None for one in found] == [True, False, False]
