"""The trial at opening: rounding is no reason to refuse a reader, a small fault is, in float32 and in bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from leadline.models.hf import attention, trial  # noqa: E402
from leadline.models.hf.attention import LayerCall  # noqa: E402
from leadline.models.hf.layer_trace import LayerTrace, largest_errors  # noqa: E402
from leadline.models.hf.own_cache import OwnCacheReader  # noqa: E402
from leadline.models.hf.reader import Reader  # noqa: E402
from leadline.models.hf.replacements import find_scans  # noqa: E402
from leadline.models.hf.sdpa import Scoring  # noqa: E402
from leadline.models.hf.states import StateKeeper, map_tensors  # noqa: E402
from leadline.models.hf.trial import choose_reader, shared_reading_support  # noqa: E402
from leadline.models.hf.windows import find_windows  # noqa: E402
from support.architectures import ARCHITECTURES, architecture, in_bfloat16, with_many_experts  # noqa: E402
from support.tiny_models import OWN_CACHE, random_ids  # noqa: E402


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_is_read_once_in_bfloat16_too(name: str) -> None:
    model = in_bfloat16(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    reader, support = choose_reader(model, Reader(model, chunk=64))
    assert not support.refusal(512)
    assert isinstance(reader, OwnCacheReader) == (name in OWN_CACHE)
    after = model.state_dict()  # computing in float32 for a while has changed nothing
    assert all(after[key].dtype == value.dtype and torch.equal(after[key], value) for key, value in before.items())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt_oss", "glm4_moe", "mixtral", "qwen3_moe"])
def test_routers_that_choose_other_experts_are_not_mistaken_for_a_fault(name: str) -> None:
    model = with_many_experts(name)
    reader = Reader(model, chunk=64)
    assert not shared_reading_support(model, reader).reason
    rows = trial._TrialRows.of(model, 66)
    reader.windows = find_windows(model, reader.use_attention)
    if name != "qwen3_moe":  # the whole model's logits differ by more than any limit could allow
        assert "differs" in trial._compare_logits(model, reader, rows)


def _patch_windows(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    def wrong(model: Any, use_attention: Any) -> Any:
        found = find_windows(model, use_attention)
        return {layer: replace(local, size=local.size + more) for layer, local in found.items()}

    monkeypatch.setattr(trial, "find_windows", wrong)


def _window_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    _patch_windows(monkeypatch, 1)


def _window_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    _patch_windows(monkeypatch, -1)


def _without_sinks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "LayerCall", lambda layer, how, sinks: LayerCall(layer, how, None))


def _without_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "Scoring", lambda scale, cap: Scoring(scale))


def _without_temperature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_with_true_temperature", lambda module, query, positions: query)


def _a_key_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    own = attention._segments
    monkeypatch.setattr(attention, "_segments", lambda cuts: [(a, b - (b > a + 1), n) for a, b, n in own(cuts)])


def _positions_too_far(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Reader._hidden

    def wrong(reader: Reader, **inputs: Any) -> Any:
        if "position_ids" in inputs and inputs["position_ids"].shape[0] > 1:  # rows
            inputs["position_ids"] = inputs["position_ids"] + 1
        return own(reader, **inputs)

    monkeypatch.setattr(Reader, "_hidden", wrong)


def _without_states(monkeypatch: pytest.MonkeyPatch) -> None:
    own = StateKeeper.for_rows
    monkeypatch.setattr(StateKeeper, "for_rows", lambda keeper, cuts: own(keeper, [0] * len(cuts)))


def _states_of_another_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("read", "read_through"):
        own = getattr(StateKeeper, name)

        def wrong(keeper: StateKeeper, *given: Any, own: Any = own, **options: Any) -> None:
            own(keeper, *given, **options)
            for cut in keeper.at:
                keeper.at[cut] = keeper.at[min(cut, 1)]

        monkeypatch.setattr(StateKeeper, name, wrong)


def _states_of_the_end_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    own = StateKeeper.read_through

    def wrong(keeper: StateKeeper, tokens: int, taken: Any, *, ends_inside: bool) -> None:
        own(keeper, tokens, taken, ends_inside=ends_inside)
        for place in taken.places:
            keeper.at[tokens + place] = map_tensors(torch.clone, keeper.current)

    monkeypatch.setattr(StateKeeper, "read_through", wrong)


FAULTS: list[tuple[str, Callable[[pytest.MonkeyPatch], None]]] = [
    ("gemma3", _window_too_long), ("gpt_oss", _window_too_long), ("llama4", _window_too_long),
    ("gemma3", _window_too_short), ("mistral", _window_too_short), ("gpt_oss", _without_sinks),
    ("gemma2", _without_cap), ("llama4", _without_temperature), ("llama", _a_key_too_few), ("gpt_oss", _a_key_too_few),
    ("qwen3_moe", _positions_too_far), ("gpt2", _positions_too_far), ("mamba2", _without_states),
    ("lfm2", _without_states), ("granite_hybrid", _states_of_another_cut), ("qwen3_next", _states_of_another_cut),
    ("granite_hybrid", _states_of_the_end_of_a_pass), ("qwen3_next", _states_of_the_end_of_a_pass),
]  # fmt: skip


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("name", "fault"), FAULTS, ids=[f"{n}{f.__name__}" for n, f in FAULTS])
def test_a_planted_fault_is_refused(
    name: str, fault: Callable[[pytest.MonkeyPatch], None], half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = in_bfloat16(name) if half else architecture(name)
    reader = Reader(model, chunk=64)
    reader.keeper, reader.replacements = trial._keeper(model), find_scans(model)
    fault(monkeypatch)
    assert "differs" in shared_reading_support(model, reader).reason


@pytest.mark.slow
@pytest.mark.parametrize("fault", [_window_too_long, _without_sinks, _a_key_too_few])
def test_a_fault_is_refused_where_routers_change_their_minds_as_well(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = with_many_experts("gpt_oss")
    fault(monkeypatch)
    assert "differs" in shared_reading_support(model, Reader(model, chunk=64)).reason


def test_a_small_fault_of_one_layer_in_bfloat16_is_seen_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of an attention output is as much as bfloat16 rounds away."""
    model = in_bfloat16("llama")
    reader = Reader(model, chunk=64)
    rows = trial._TrialRows.of(model, 66)
    trace = LayerTrace(reader)
    trace.record(lambda: reader.read_plain(rows.ids))
    read = Reader.read

    def off(reader: Reader, ids: Any, **more: Any) -> None:
        read(reader, ids, **more)
        assert reader.kv_cache is not None
        with torch.inference_mode():
            for layer in reader.kv_cache._layers.values():
                layer.planes[1].mul_(1.01)  # type: ignore[union-attr]

    monkeypatch.setattr(Reader, "read", off)
    assert not trial._compare_replayed(reader, rows, trace, torch.bfloat16)
    assert "differs" in trial._compare_replayed(reader, rows, trace, torch.float32)


def test_offloaded_weights_and_models_without_layers_are_compared_as_they_are() -> None:
    model = in_bfloat16("llama")
    trace = LayerTrace(Reader(model, chunk=64))
    assert trace.can_widen
    model.model.layers[1].mlp.to("meta")
    assert not trace.can_widen
    model = in_bfloat16("llama")
    layers, model.model.layers = model.model.layers, None
    del model.model._modules["layers"]
    trace = LayerTrace(Reader(model, chunk=64))
    trace.record(lambda: None)
    assert not trace.mixers
    assert len(layers) == 2


def test_nan_is_a_difference() -> None:
    numbers = torch.from_numpy(random_ids(0, 12).astype(np.float32)).view(1, 4, 3)
    assert largest_errors({"a": numbers}, {"a": numbers}) == (0.0, 0.0)
    wrong = numbers.clone()
    wrong[0, 0, 0] = float("nan")
    assert trial._difference({"a": wrong}, {"a": numbers}, torch.float32)
    wrong[:] = float("nan")
    assert trial._difference({"a": wrong}, {"a": numbers}, torch.bfloat16)
