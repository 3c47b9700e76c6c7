"""The kernels of recurrent layers in Triton's interpreter, on a CPU: a process of its own, because Triton decides
for the whole process whether it interprets. Reads cases as JSON from its input, writes the errors of each.

    TRITON_INTERPRET=1 python -m support.interpreted_kernels
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import numpy as np
import torch
import triton.language as tl
from torch import Tensor
from triton.runtime import interpreter

_patch_own = interpreter._patch_lang_tensor


def _patch(tensor: Any, *scope: Any) -> None:
    """Numbers of a kernel are arrays with one element, which NumPy no longer takes for integers."""
    _patch_own(tensor, *scope)

    def index(self: Any) -> int:
        return int(self.handle.data.item())

    if scope:
        scope[0].set_attr(tensor, "__index__", index)
    else:
        tensor.__index__ = index


def _dot(_: Any, a: Any, b: Any, total: Any, precision: Any, *__: Any) -> Any:
    """The interpreter multiplies bfloat16 by its bits. TF32 rounds the factors to 10 bits of mantissa."""
    factors = [np.ascontiguousarray(_wide(each)) for each in (a, b)]
    if str(precision).endswith("TF32") and "bf16" not in (str(a.dtype.scalar), str(b.dtype.scalar)) and ROUNDED:
        factors = [((each.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32) for each in factors]
    return interpreter.TensorHandle(np.matmul(*factors, dtype=np.float32) + total.data, total.dtype.scalar)


def _wide(numbers: Any) -> Any:
    if numbers.dtype.scalar == tl.bfloat16:
        return (numbers.data.astype(np.uint32) << 16).view(np.float32)
    return numbers.data.astype(np.float32)


interpreter._patch_lang_tensor = _patch
interpreter.InterpreterBuilder.create_dot = _dot
ROUNDED = True


def recurrence(inputs: list[Tensor], *, normed: bool) -> tuple[Tensor, Tensor]:
    """The definition, a token at a time in float64."""
    query, key, value, decay, rate, state = (each.double() for each in inputs)
    query, key = (each.repeat_interleave(value.shape[2] // key.shape[2], 2) for each in (query, key))
    if normed:
        query, key = (each / (each.square().sum(-1, keepdim=True) + 1e-6).sqrt() for each in (query, key))
    answers = []
    for token in range(key.shape[1]):
        state = state * decay[:, token, :, None, None].exp()
        held = (state * key[:, token, ..., None]).sum(-2)
        correction = (value[:, token] - held) * rate[:, token, :, None]
        state = state + key[:, token, ..., None] * correction[..., None, :]
        answers.append((state * query[:, token, ..., None]).sum(-2) * query.shape[-1] ** -0.5)
    return torch.stack(answers, 1), state


def errors(case: dict[str, Any]) -> list[float]:
    """The relative errors of outputs and of the last state; not a number where one is missing or not finite."""
    global ROUNDED
    from leadline.models.hf import delta_kernels

    draw = partial(torch.randn, generator=torch.Generator().manual_seed(case["tokens"]))
    batch, tokens, heads, key_heads = (case[name] for name in ("batch", "tokens", "heads", "key_heads"))
    width, value_width, kind = case["width"], case["value_width"], getattr(torch, case["dtype"])
    sizes = ((key_heads, width), (key_heads, width), (heads, value_width))
    # As in a model: query, key and value are parts of one tensor, in which another axis may be contiguous.
    joined = torch.cat([draw(batch, tokens, count * each) for count, each in sizes], -1).to(kind)
    length = 1.0 if case["normed"] else width**-0.5  # keys that are much longer than 1 make a state grow without end
    joined[..., : 2 * key_heads * width] *= length
    if case["by_channel"]:
        joined = joined.mT.contiguous().mT
    parts = torch.split(joined, [count * each for count, each in sizes], -1)
    query, key, value = (part.view(*part.shape[:2], *size) for part, size in zip(parts, sizes, strict=True))
    if case["alike"]:  # keys that hardly differ: every token corrects all earlier ones
        key = (0.02 * key.float() + length * draw(1, 1, 1, width)).to(kind)
    decay, rate = -case["decay"] * draw(batch, tokens, heads).abs(), draw(batch, tokens, heads).sigmoid().to(kind)
    state = draw(batch, heads, width, value_width) if case["state"] else torch.zeros(batch, heads, width, value_width)
    inputs = [query, key, value, decay, rate, state]
    ROUNDED = kind is not torch.float32
    given = state.clone()
    got = delta_kernels.delta_rule(*inputs, normed=case["normed"])
    assert torch.equal(state, given), "the state before is changed"
    want = recurrence(inputs, normed=case["normed"])
    assert [each.shape for each in got] == [each.shape for each in want]
    return [float((a.double() - b).norm() / b.norm().clamp_min(1e-9)) for a, b in zip(got, want, strict=True)]


def conv_errors(case: dict[str, Any]) -> list[float]:
    """Of the convolution before a scan, against torch's."""
    from leadline.models.hf import recurrent_kernels

    draw = partial(torch.randn, generator=torch.Generator().manual_seed(case["tokens"]))
    batch, tokens, channels, taps, kind = 2, case["tokens"], case["channels"], case["taps"], torch.float32
    x, weight = draw(batch, channels, tokens).to(kind), draw(channels, taps).to(kind)
    if not case["by_channel"]:
        x = x.mT.contiguous().mT
    bias = draw(channels) if case["biased"] else None
    want = torch.nn.functional.conv1d(x, weight[:, None], bias, padding=taps - 1, groups=channels)[..., :tokens]
    if case["active"]:
        want = torch.nn.functional.silu(want)
    got = recurrent_kernels.causal_conv(x, weight, bias, active=case["active"])
    assert got.shape == want.shape
    assert got.stride(1) == 1
    return [float((got - want).norm() / want.norm())]


if __name__ == "__main__":
    torch.set_num_threads(1)
    cases = json.load(sys.stdin)
    json.dump([conv_errors(case) if "taps" in case else errors(case) for case in cases], sys.stdout)
