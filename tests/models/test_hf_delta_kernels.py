"""The kernels of the gated delta rule are the recurrence, and are used only where they are right and faster; likewise
the convolution before it."""

from __future__ import annotations

import inspect
import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers.models.qwen3_next import modeling_qwen3_next  # noqa: E402

from leadline.models.hf import replacements, scans  # noqa: E402
from support.tiny_models import tiny  # noqa: E402

TOKENS = (1, 15, 16, 17, 63, 64, 65, 130, 200)
CHOICES: dict[str, tuple[Any, ...]] = {
    "tokens": TOKENS, "batch": (1, 2), "heads": (2, 4), "key_heads": (1, 2), "width": (16, 32, 64, 128),
    "value_width": (16, 32, 64, 128), "dtype": ("bfloat16", "float16", "float32"), "decay": (0.0, 0.1, 8.0),
    "normed": (True, False), "state": (True, False), "by_channel": (False, True), "alike": (False, True),
}  # fmt: skip


def interpreted(cases: list[dict[str, Any]]) -> list[list[float]]:
    """The errors of the kernels for each case."""
    if find_spec("triton") is None:
        pytest.skip("needs Triton")
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "support.interpreted_kernels"]
    done = subprocess.run(
        command, input=json.dumps(cases), capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    errors: list[list[float]] = json.loads(done.stdout)
    return errors


def check(cases: list[dict[str, Any]]) -> None:
    """Against the recurrence in float64; TF32 rounds to 1 of 2,048, outputs of bfloat16 to 1 of 256. Where keys are
    alike, what is stored is a small difference of large numbers."""
    for case, (answer, state) in zip(cases, interpreted(cases), strict=True):
        rounding = {"bfloat16": 4e-3, "float16": 1e-3, "float32": 1e-5}[case["dtype"]]
        products = 1e-5 if case["dtype"] == "float32" else 5e-3 if case["alike"] else 1.5e-3
        assert answer <= rounding + products, case
        assert state <= products, case


def test_the_kernels_are_the_recurrence_with_any_number_of_tokens() -> None:
    base = {name: values[0] for name, values in CHOICES.items()}
    others: list[dict[str, Any]] = [
        {"dtype": "float32", "heads": 4, "state": True},
        {"width": 64, "value_width": 32, "normed": False},
    ]
    check([base | {"tokens": tokens} | others[i % 2] for i, tokens in enumerate(TOKENS)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_kernels_are_the_recurrence_at_all_shapes(seed: int) -> None:
    product = [dict(zip(CHOICES, values, strict=True)) for values in itertools.product(*CHOICES.values())]
    check(random.Random(seed).sample(product, 60))


def test_the_convolution_is_that_of_torch() -> None:
    names = ("tokens", "channels", "taps", "by_channel", "biased", "active")
    shapes = [(1, 8, 4), (3, 72, 4), (64, 64, 4), (65, 130, 3), (140, 16, 2)]
    flags = list(itertools.product((False, True), repeat=3))
    cases = [dict(zip(names, (*shapes[i % 5], *flags[i % 8]), strict=True)) for i in range(10)]
    assert max(error for errors in interpreted(cases) for error in errors) < 1e-6


# --- whether they are used ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "milliseconds", "better"),
    [(0.0, 1.0, True), (0.0, 3.0, False), (0.1, 1.0, False), (float("nan"), 1.0, False)],
)
def test_kernels_must_be_right_and_faster(error: float, milliseconds: float, better: bool) -> None:
    def plain() -> tuple[Any, Any]:
        return torch.ones(3, dtype=torch.bfloat16), torch.ones(2, 2)

    def kernel() -> tuple[Any, Any]:
        answer, state = plain()
        return answer, state + error

    def clock(work: Callable[[], Any]) -> float:
        return 2.0 if work is plain else milliseconds

    assert scans._is_better(kernel, plain, clock) is better


def test_the_example_of_the_trial_is_read_by_plain_torch() -> None:
    given = scans._delta_inputs(torch.device("cpu"), tokens=70, width=16)
    answer, state = scans._delta_products(*given, normed=True, chunk=64)
    assert (answer.shape, answer.dtype, state.shape) == ((1, 70, 32, 16), torch.bfloat16, (1, 32, 16, 16))
    assert torch.isfinite(answer).all()


@pytest.mark.parametrize(
    ("dtype", "width", "used"), [("bfloat16", 16, True), ("float32", 16, False), ("bfloat16", 8, False)]
)
def test_kernels_read_16_bits_of_widths_that_they_take(
    dtype: str, width: int, used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def delta_rule(query: Any, *inputs: Any, normed: bool) -> Any:
        calls.append(query.shape[1])
        return scans._delta_products(query, *inputs, normed=normed, chunk=64)

    kernels = SimpleNamespace(
        delta_rule=delta_rule, fits=lambda width, _: width >= 16, numbers_per_token=lambda *_: 1000
    )
    given = replacements._delta_example(torch.device("cpu"), 150)
    for name in ("query", "key", "value"):
        given[name] = given[name][..., :width].to(getattr(torch, dtype))
    given["initial_state"] = given["initial_state"][..., :width, :width]
    want = scans.gated_delta_rule(**given)
    monkeypatch.setattr(scans, "delta_kernels", lambda device: kernels)
    monkeypatch.setattr(scans, "HELD_BYTES", 4 * 8 * 1000 * 64)
    for got, expected in zip(scans.gated_delta_rule(**given), want, strict=True):
        assert torch.allclose(got, expected, rtol=1e-2, atol=1e-3)
    assert calls == ([64, 64, 22] if used else []), "segments stay within what a scan may hold"


@pytest.mark.parametrize("activation", [None, "silu", "gelu"])
def test_the_convolution_is_replaced_where_there_is_a_kernel(activation: str | None) -> None:
    given = replacements._conv_example(torch.device("cpu")) | {"activation": activation}
    want = inspect.unwrap(modeling_qwen3_next.causal_conv1d_fn)(**given)
    assert torch.equal(scans.causal_conv(**given), want)


def test_where_kernels_are_a_model_has_three_functions_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("qwen3_next")
    names = ["torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"]
    assert [each.name for each in replacements.find_scans(model)] == names
    monkeypatch.setattr(replacements, "recurrence_kernels", lambda tensor: object())
    assert [each.name for each in replacements.find_scans(model)] == ["causal_conv1d_fn", *names]
