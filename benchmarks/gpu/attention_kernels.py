"""Which attention kernel reads a long context fastest on this GPU, and does its log-sum-exp come out right?

Prints, for the shapes of an 8B model (32 heads, 8 key heads, 128 wide, bf16): milliseconds, TFLOP/s, the first call's
extra time (plans, compilation) and the error against float32 arithmetic. Then the same for the layers of Gemma 3 4B and
gpt-oss 20B: full attention, and sliding windows: by the kernel that leaves out the keys before them, and as blocks with
a band mask.

    PYTHONPATH=src python benchmarks/gpu/attention_kernels.py [windows]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from leadline.models.hf import partial_attention, sdpa

HEADS, KEY_HEADS, WIDTH = 32, 8, 128
SCALE = WIDTH**-0.5
Kernel = Callable[[Tensor, Tensor, Tensor, bool], tuple[Tensor, Tensor]]


def cudnn(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    got = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, False, scale=SCALE)
    return got[0], got[1]


def flash(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    got = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=SCALE)
    return got[0], got[1]


KERNELS: dict[str, Kernel] = {"cudnn": cudnn, "flash": flash}


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def milliseconds(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """(first call, median of later ones), in milliseconds."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    torch.cuda.synchronize()
    first = (time.perf_counter() - begin) * 1e3
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return first, sorted(times)[len(times) // 2]


def check(kernel: Kernel, heads: int) -> str:
    q, k, v = random(1, heads, 96, WIDTH), random(1, KEY_HEADS, 640, WIDTH), random(1, KEY_HEADS, 640, WIDTH)
    out, lse = kernel(q, k, v, False)
    grouped = heads // KEY_HEADS
    wide_k, wide_v = (t.float().repeat_interleave(grouped, 1) for t in (k, v))
    scores = q.float() @ wide_k.mT * SCALE
    truth, truth_lse = scores.softmax(-1) @ wide_v, scores.logsumexp(-1)
    error = (out.float() - truth).norm() / truth.norm()
    return f"out {error:.1e}, lse {(lse.reshape(truth_lse.shape) - truth_lse).abs().max():.1e} {tuple(lse.shape)}"


def windows() -> None:
    """One chunk of 8,192 queries: over 64k earlier keys, and in a sliding window."""
    for name, heads, key_heads, width, size in (("Gemma 3 4B", 8, 4, 256, 1024), ("gpt-oss 20B", 64, 8, 64, 128)):
        q, k, v = (random(1, n, 8192, width) for n in (heads, key_heads, key_heads))
        far = [random(1, key_heads, 65536, width) for _ in range(2)]
        chosen = sdpa.kernels_for("cuda", torch.bfloat16, width, width)
        masked = sdpa.masked_kernel_for("cuda", torch.bfloat16, width, width)
        print(f"{name}: {[c.__name__ for c in chosen]}, masked {masked and masked.__name__}")
        for kernel in (sdpa._cudnn, sdpa._flash):
            for keys, causal in ((far, False), ([k, v], True)):
                first, second = keys
                flops = 4 * heads * 8192 * keys[0].shape[2] * width / (2 if causal else 1)
                timed(
                    f"{kernel.__name__} over {keys[0].shape[2]}",
                    partial(kernel, q, first, second, width**-0.5, causal),
                    flops,
                )
        pieces = [far[0][:, :, : size - 1], k], [far[1][:, :, : size - 1], v]
        given, flops = (q, *pieces, sdpa.Scoring(width**-0.5), size), 4 * heads * 8192 * size * width
        timed(f"window of {size}", partial(partial_attention.attend_band, *given), flops)
        for masking in (sdpa._efficient, sdpa._cudnn):
            setattr(partial_attention, "masked_kernel_for", lambda *_, k=masking: k)  # noqa: B010
            in_blocks = partial(partial_attention._attend_band_in_blocks, *given, None)
            timed(f"window of {size}, {masking.__name__}", in_blocks, flops)


def timed(name: str, work: Callable[[], object], flops: float) -> None:
    try:
        first, ms = milliseconds(work, 5)
        print(f"{name:36} {ms:9.3f} ms {flops / ms / 1e9:6.0f} TFLOP/s, first {first:8.1f} ms", flush=True)
    except RuntimeError as error:
        print(f"{name:36} {str(error).splitlines()[0][:120]}", flush=True)


def main() -> None:
    if sys.argv[1:] == ["windows"]:
        windows()
        return
    a = random(8192, 8192)
    _, ms = milliseconds(lambda: a @ a, 10)
    print(f"matmul 8192: {2 * 8192**3 / ms / 1e9:.0f} TFLOP/s")
    for name, kernel in KERNELS.items():
        for heads in (KEY_HEADS, HEADS):
            try:
                print(f"{name:6} {heads} heads: {check(kernel, heads)}")
            except RuntimeError as error:
                print(f"{name:6} {heads} heads: {str(error)[:200]}")
    rows = []
    chunk = 8192
    for past in (8192, 65536, 65536 + 1000, 122880):
        rows += [("past, folded", KEY_HEADS, HEADS // KEY_HEADS * chunk, past, False)]
        rows += [("past, grouped", HEADS, chunk, past, False)]
    rows += [("own chunk", HEADS, chunk, chunk, True), ("all at once", HEADS, 131072, 131072, True)]
    rows += [("lower right", HEADS, chunk, 65536 + chunk, True)]
    rows += [("88 closings", KEY_HEADS, 4 * 88 * 40, 131072, False)]
    rows += [("88 answers", KEY_HEADS, 4 * 88, 131072, False), ("11 answers", KEY_HEADS, 4 * 11, 131072, False)]
    rows += [("11 answers, short", KEY_HEADS, 4 * 11, 2048, False), ("1 answer", KEY_HEADS, 4, 131072, False)]
    for name, heads, queries, keys, causal in rows:
        q, k, v = random(1, heads, queries, WIDTH), random(1, KEY_HEADS, keys, WIDTH), random(1, KEY_HEADS, keys, WIDTH)
        flops = 4 * heads * queries * keys * WIDTH
        if causal:
            flops = flops // 2 if queries == keys else flops - 2 * heads * queries**2 * WIDTH
        for which, kernel in KERNELS.items():
            timed(f"{name:18} {which:6} {queries:7} x {keys:6}", partial(kernel, q, k, v, causal), flops)


if __name__ == "__main__":
    main()
