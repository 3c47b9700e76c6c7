"""Fused kernels are used where they are the same, and nowhere else."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch.nn.functional import silu  # noqa: E402

from leadline.models.hf import (  # noqa: E402
    decode,
    fused_kernels,
    partial_attention,
)
from leadline.models.hf.engine import Engine  # noqa: E402
from leadline.models.hf.reader import Reader  # noqa: E402
from leadline.models.hf.trial import check_recording, fuse_if_equal  # noqa: E402
from support.architectures import architecture  # noqa: E402
from support.tiny_models import tiny  # noqa: E402


def test_nothing_is_replaced_on_a_cpu() -> None:
    assert Engine(tiny("llama"), []).fused == []


@pytest.mark.parametrize(
    ("family", "error", "replaced"),
    [
        ("llama", 0.0, ["LlamaRMSNorm"]),
        ("gemma3", 0.0, ["Gemma3RMSNorm"]),
        ("llama", 0.01, []),
    ],
)
def test_a_kernel_is_used_only_when_it_agrees_with_the_models_own(
    family: str, error: float, replaced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what Triton would do in plain torch; `error` is how wrong it is."""

    def rms_norm(x: Any, weight: Any, eps: float, *, offset: float = 0.0, rounded: bool = True) -> Any:
        return (offset + weight) * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) + error

    monkeypatch.setattr(fused_kernels, "triton", object())
    monkeypatch.setattr(fused_kernels, "rms_norm", rms_norm)
    monkeypatch.setattr(fused_kernels, "_fuse_rotation", lambda module: False)
    model, own = tiny(family), tiny(family)
    assert fused_kernels.fuse(model) == replaced
    ids = torch.arange(8, 40)[None]
    with torch.inference_mode():
        assert (model(input_ids=ids).logits - own(input_ids=ids).logits).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("family", "name", "gate_first", "error"),
    [
        ("qwen3_next", "Qwen3NextRMSNormGated", False, 0.0),
        ("granite_hybrid", "GraniteMoeHybridRMSNormGated", True, 0.0),
        ("qwen3_next", "", False, 0.01),
    ],
)
def test_a_gated_norm_is_fused_in_the_form_of_the_model(
    family: str, name: str, gate_first: bool, error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    forms: set[bool] = set()

    def gated_rms_norm(x: Any, gate: Any, weight: Any, eps: float, *, gate_first: bool) -> Any:
        forms.add(gate_first)
        value = x * silu(gate) if gate_first else x
        value = weight * value * torch.rsqrt(value.pow(2).mean(-1, keepdim=True) + eps)
        return (value if gate_first else value * silu(gate)) + error

    monkeypatch.setattr(fused_kernels, "triton", object())
    monkeypatch.setattr(fused_kernels, "gated_rms_norm", gated_rms_norm)
    for other in ("_fuse_norm", "_fuse_rotation", "_fuse_experts"):
        monkeypatch.setattr(fused_kernels, other, lambda module: False)
    model, own = tiny(family), tiny(family)
    assert fused_kernels.fuse(model) == ([name] if name else [])
    forms.clear()
    ids = torch.arange(8, 40)[None]
    with torch.inference_mode():
        assert (model(input_ids=ids).logits - own(input_ids=ids).logits).abs().max() < 1e-4
        assert forms == ({gate_first} if name else set())
        fused_kernels.unfuse(model)
        assert torch.equal(model(input_ids=ids).logits, own(input_ids=ids).logits)


def test_fused_kernels_are_undone_when_the_whole_model_then_gives_other_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = tiny("llama"), [0]

    def right_at_first(x: Any, weight: Any, eps: float, **_: Any) -> Any:
        calls[0] += 1
        return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) + 0.1 * (calls[0] > 7)

    monkeypatch.setattr(fused_kernels, "triton", object())
    monkeypatch.setattr(fused_kernels, "rms_norm", right_at_first)
    monkeypatch.setattr(fused_kernels, "_fuse_rotation", lambda module: False)
    ids = torch.arange(8, 40)[None]
    with torch.inference_mode():
        want = model(input_ids=ids).logits
        assert fuse_if_equal(model, Reader(model, chunk=64)) == []
        assert torch.equal(model(input_ids=ids).logits, want)


@pytest.mark.parametrize("works", [True, False])
def test_steps_are_recorded_only_if_replays_give_the_same_tokens(works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Graph:
        def __init__(self, batch: Any, chosen: Any) -> None:
            self.batch, self.chosen = batch, chosen

        def replay(self) -> None:
            if works:
                self.chosen.copy_(decode._step(self.batch, self.chosen))

    def record(batch: Any, chosen: Any) -> Any:
        chosen = chosen.clone()
        return Graph(batch, chosen), chosen

    monkeypatch.setattr(decode, "_record_step", record)
    reader = Reader(tiny("llama"), chunk=64)
    reader.records = True
    check_recording(reader)
    assert reader.records is works


def test_kernels_round_where_transformers_rounds() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not os.environ.get("TRITON_INTERPRET"):
        pytest.skip("needs Triton, and a GPU or TRITON_INTERPRET=1 from the beginning")
    pytest.importorskip("triton")

    def draw(*shape: int) -> Any:
        return torch.randn(*shape, device=device)

    x, weight = draw(2, 5, 48), draw(48)

    def rms(x: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)

    want = weight * rms(x)
    assert torch.allclose(fused_kernels.rms_norm(x, weight, 1e-5), want, atol=1e-5)
    assert torch.allclose(fused_kernels.rms_norm(x, weight - 1, 1e-5, offset=1.0, rounded=False), want, atol=1e-5)
    of_heads = draw(2, 5, 3, 48).transpose(1, 2)
    got = fused_kernels.rms_norm(of_heads, weight, 1e-5)
    assert torch.allclose(got, weight * rms(of_heads), atol=1e-5)
    assert got.stride() == of_heads.stride(), "no copy in another order"
    gate = draw(2, 5, 48)
    for gate_first, gated in ((False, want * silu(gate)), (True, weight * rms(x * silu(gate)))):
        got = fused_kernels.gated_rms_norm(x, gate, weight, 1e-5, gate_first=gate_first)
        assert torch.allclose(got, gated, atol=1e-5)
    q, cos, sin = draw(2, 7, 6, 16).transpose(1, 2), draw(2, 7, 16), draw(2, 7, 16)
    turned = torch.cat([-q[..., 8:], q[..., :8]], -1)
    assert torch.allclose(fused_kernels.rotate(q, cos, sin), q * cos[:, None] + turned * sin[:, None], atol=1e-5)
    parts = [(draw(1, 3, 21, 24), draw(1, 3, 21) * 5) for _ in range(4)]
    for count in (2, 3, 4):
        want = partial_attention.merge(parts[:count]).transpose(1, 2)
        assert torch.allclose(fused_kernels.merge_parts(parts[:count]), want, atol=1e-5)
    assert fused_kernels.merge_parts([*parts, (parts[0][0].mT.contiguous().mT, parts[0][1])]) is None


@pytest.mark.parametrize(("family", "replaced"), [("llama", True), ("gpt_oss", True), ("gpt_neox", False)])
def test_a_rotation_is_that_of_the_kernel_with_angles_for_every_number_or_for_half_of_them(
    family: str, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def rotate(x: Any, cos: Any, sin: Any) -> Any:
        calls.append(cos.shape[-1])
        low, high = x.chunk(2, -1)
        return x * cos[:, None] + torch.cat([-high, low], -1) * sin[:, None]

    monkeypatch.setattr(fused_kernels, "rotate", rotate)
    model = architecture(family) if family == "gpt_oss" else tiny(family)
    module = next(each for each in model.modules() if type(each).__name__.endswith("Attention"))
    file = sys.modules[type(module).__module__]
    own = file.apply_rotary_pos_emb
    width = 16 if family == "llama" else 8  # gpt_neox rotates only a part of a head
    query, key = torch.randn(1, 4, 5, 16), torch.randn(1, 2, 5, 16)
    cos, sin = torch.randn(2, 1, 5, width)
    try:
        assert fused_kernels._fuse_rotation(module)
        calls.clear()
        for got, want in zip(file.apply_rotary_pos_emb(query, key, cos, sin), own(query, key, cos, sin), strict=True):
            assert torch.allclose(got, want, atol=1e-6)
        assert calls == ([16, 16] if replaced else [])
    finally:
        fused_kernels.unfuse(model)
    assert file.apply_rotary_pos_emb is own


def test_a_merging_kernel_is_used_only_where_it_merges_every_number_of_parts_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = [(torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5)) for _ in range(4)]
    right = partial_attention.merge(parts[:2]).transpose(1, 2)
    assert partial_attention._merges_equally(right, parts[:2])
    assert not partial_attention._merges_equally(right + 0.01, parts[:2])
    assert not partial_attention._merges_equally(None, parts[:2])
    monkeypatch.setattr(partial_attention, "_merging_kernel", lambda *_: lambda some: None)  # too many parts for it
    assert torch.equal(partial_attention.merged_by_token(parts), partial_attention.merge(parts).transpose(1, 2))
