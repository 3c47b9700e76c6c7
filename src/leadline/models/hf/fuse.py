"""Replaces parts of a model with fused Triton kernels, each tested against the model's own code first.

Replaced are RMS norms and gated feed-forward blocks of the model, and the function of its module that applies rotary
embeddings. Nothing is replaced on a CPU, without Triton, or where a test differs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor


def fuse(model: Any) -> list[str]:
    """Replace what can be replaced; returns the class names of the replaced modules."""
    kernels = _kernels(model)
    if kernels is None:
        return []
    replaced = set()
    for module in list(model.modules()):
        if any(replace(module, kernels) for replace in (_fuse_norm, _fuse_mlp, _fuse_rotation)):
            replaced.add(type(module).__name__)
    return sorted(replaced)


def _kernels(model: Any) -> ModuleType | None:
    devices = {p.device for p in model.parameters()}
    if {d.type for d in devices} != {"cuda"} or len(devices) > 1:
        return None
    try:
        from leadline.models.hf import kernels as fused_kernels
    except Exception:  # no Triton, or an incompatible version
        return None
    return fused_kernels


def _fuse_norm(module: Any, kernels: ModuleType) -> bool:
    eps = getattr(module, "variance_epsilon", None)
    weight = getattr(module, "weight", None)
    if (
        not type(module).__name__.endswith("RMSNorm")
        or eps is None
        or not isinstance(weight, Tensor)
        or weight.dim() != 1
    ):
        return False

    def forward(x: Tensor) -> Tensor:
        normed: Tensor = kernels.rms_norm(x, module.weight, eps)
        return normed

    return _replace(module, forward, torch.randn(1, 3, len(weight), device=weight.device).to(weight.dtype))


def _fuse_mlp(module: Any, kernels: ModuleType) -> bool:
    if not all(hasattr(module, part) for part in ("gate_proj", "up_proj", "down_proj", "act_fn")):
        return False
    if type(module.act_fn).__name__ not in ("SiLU", "SiLUActivation"):
        return False
    weight = getattr(module.gate_proj, "weight", None)
    if not isinstance(weight, Tensor) or weight.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        return False

    def forward(x: Tensor) -> Tensor:
        out: Tensor = module.down_proj(kernels.silu_times(module.gate_proj(x), module.up_proj(x)))
        return out

    return _replace(module, forward, torch.randn(1, 3, weight.shape[1], device=weight.device).to(weight.dtype))


def _fuse_rotation(module: Any, kernels: ModuleType) -> bool:
    file = sys.modules[type(module).__module__]
    own = getattr(file, "apply_rotary_pos_emb", None)
    if own is None or not type(module).__name__.endswith("Attention"):
        return False
    if hasattr(own, "leadline_own"):
        return True
    weight = next(module.parameters())
    draw = torch.randn(4, 2, 5, 64, device=weight.device).to(weight.dtype)
    query, key, cos, sin = draw[:, None].unbind(0)
    cos, sin = cos[:, 0], sin[:, 0]

    def rotated(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, *more: Any, **named: Any) -> Any:
        plain = not more and not named and query.is_cuda and cos.dim() == 3 and cos.dtype == query.dtype
        if plain and cos.shape[-1] == query.shape[-1]:
            return kernels.rotate(query, cos, sin), kernels.rotate(key, cos, sin)
        return own(query, key, cos, sin, *more, **named)

    if not _agree(lambda: torch.cat(rotated(query, key, cos, sin)), lambda: torch.cat(own(query, key, cos, sin))):
        return False
    rotated.leadline_own = own  # type: ignore[attr-defined]
    file.apply_rotary_pos_emb = rotated  # type: ignore[attr-defined]
    return True


def _replace(module: Any, forward: Callable[[Tensor], Tensor], example: Tensor) -> bool:
    if not _agree(lambda: forward(example), lambda: module.forward(example)):
        return False
    module.forward = forward
    return True


def _agree(new: Callable[[], Tensor], own: Callable[[], Tensor]) -> bool:
    """Equal up to the rounding of the dtype."""
    with torch.inference_mode():
        want = own()
        try:
            got = new()
        except Exception:  # a kernel that does not compile here is not used
            return False
    step = torch.finfo(want.dtype).eps
    return got.shape == want.shape and bool(((got - want).abs() <= 4 * step * want.abs().clamp_min(1)).all())
