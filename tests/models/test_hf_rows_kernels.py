"""The kernels for rows after cuts of a document give what plain arithmetic gives, alone and in whole models."""

from __future__ import annotations

import itertools
import os
import random
from functools import partial
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from leadline.models.hf import attention, rows_table  # noqa: E402
from leadline.models.hf.decode import generate  # noqa: E402
from leadline.models.hf.engine import Engine  # noqa: E402
from leadline.models.hf.kv_cache import KVCache  # noqa: E402
from leadline.models.hf.reader import Reader, rows_of  # noqa: E402
from leadline.models.hf.sdpa import Scoring  # noqa: E402
from leadline.models.hf.windows import LocalAttention  # noqa: E402
from support.architectures import architecture  # noqa: E402
from support.tiny_models import STOP, random_ids  # noqa: E402

WIDTHS = (16, 64, 80, 128, 256)
GROUPS = (1, 2, 3, 12)
COLUMNS = (1, 2, 17)
DOCUMENT = random_ids(0, 300)
CUTS = [0, 60, 60, 200, 300]
CLOSINGS = [random_ids(i, n) for i, n in enumerate([5, 7, 3, 26, 4])]
LOCAL = (None, LocalAttention(24), LocalAttention(200), LocalAttention(128, chunked=True))


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def kernels() -> ModuleType:
    """The module of kernels, on a GPU or in Triton's interpreter, which then multiplies as it should."""
    interpreted = bool(os.environ.get("TRITON_INTERPRET"))
    if (DEVICE == "cpu" and not interpreted) or find_spec("triton") is None:
        pytest.skip("needs Triton, and a GPU or TRITON_INTERPRET=1 from the beginning")
    from leadline.models.hf import rows_kernels

    if interpreted:
        from support import interpreted_kernels  # noqa: F401
    return rows_kernels


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("seed", range(4))
def test_the_kernels_are_plain_arithmetic(kernels: Any, dtype: str, seed: int) -> None:
    kind = getattr(torch, dtype)
    for width, group, columns, local in random.Random(seed).sample(
        list(itertools.product(WIDTHS, GROUPS, COLUMNS, LOCAL)), 4
    ):
        found = list(rows_table.errors(kernels, DEVICE, kind, width, group, columns, local))
        assert max(found) <= torch.finfo(kind).eps, (width, group, columns, local, found)


def use(kernels: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Kernels are used on the CPU, in float32. Returns the windows among the pieces of every layer that is read."""
    if not os.environ.get("TRITON_INTERPRET"):
        pytest.skip("needs Triton's interpreter")
    windows: list[int] = []

    def attend_pieces(query: Any, places: Any, pieces: Any, *more: Any) -> Any:
        windows.append(pieces.windows)
        return kernels.attend_pieces(query, places, pieces, *more)

    module = SimpleNamespace(**vars(kernels) | {"attend_pieces": attend_pieces})
    monkeypatch.setattr(attention, "rows_kernels", lambda *_: module)
    monkeypatch.setattr("support.interpreted_kernels.ROUNDED", False)
    return windows


def hidden_states(reader: Reader) -> list[Any]:
    """Of every row's own tokens, of a further one, and of one more after the rows with odd numbers are dropped."""
    rows = rows_of(DOCUMENT, CUTS, CLOSINGS)
    reader.read(DOCUMENT, cuts=[row.base for row in rows])
    batch = reader.open_rows(rows, room=2)
    own = torch.cat([hidden for _, hidden in batch.read_own()], 1)
    found = [hidden[batch.width - len(row.own) :] for hidden, row in zip(own, rows, strict=True)]
    found.append(batch.advance(torch.full((len(rows), 1), 9)))
    batch.keep(range(0, len(rows), 2))
    return [*found, batch.advance(torch.full((len(batch.rows), 1), 8))]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("name", "tabled", "kept"),
    [
        ("gemma3", True, "resident"), ("gpt_oss", True, "resident"), ("llama4", True, "resident"),
        ("mistral", True, "resident"), ("llama", False, "resident"), ("falcon_h1", False, "resident"),
        ("gemma3", False, "fp8"), ("gemma3", False, "host"), ("llama4", False, "host"),
    ],
)  # fmt: skip
def test_rows_of_a_model_are_read_alike(
    name: str, tabled: bool, kept: str, kernels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Engine(architecture(name), [STOP]).reader
    room = (lambda *_: 0) if kept == "host" else None
    reader.new_kv_cache = partial(KVCache, room, fp8=kept == "fp8")
    reader.kv_cache = None
    want = hidden_states(reader)
    used = use(kernels, monkeypatch)
    reader.kv_cache = None
    for got, expected in zip(hidden_states(reader), want, strict=True):
        assert torch.allclose(got, expected, atol=1e-4)
    assert used
    assert any(used) is tabled


def test_answers_are_the_same(kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Engine(architecture("gemma3"), [STOP]).reader
    reader.read(DOCUMENT)
    answers = partial(generate, reader, rows_of(DOCUMENT, CUTS, CLOSINGS), [4] * len(CUTS), [STOP], batch=4)
    want = answers()
    used = use(kernels, monkeypatch)
    assert answers() == want
    assert used


@pytest.mark.parametrize("local", LOCAL)
def test_a_step_is_that_of_plain_torch_recorded_too(
    local: LocalAttention | None, kernels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a pass of several columns, a step, and a further one that is recorded on a GPU."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    draw = partial(torch.randn, generator=generator, device=DEVICE, dtype=torch.bfloat16)
    cache, cuts, blank = KVCache(), [900, 900, 500, 500, 300, 0], [0, 2, 0, 1, 0, 0]
    cache.prepare(900, 0, cuts)
    cache.write(0, draw(1, 2, 900, 64), draw(1, 2, 900, 64), local)
    cache.length = 900
    passes = [[draw(6, heads, columns, 64) for heads in (8, 2, 2)] for columns in (5, 1, 1)]
    columns = [torch.arange(start, stop, device=DEVICE) for start, stop in ((0, 5), (5, 6), (6, 7))]
    found: list[list[Any]] = []
    for module in (None, kernels):
        monkeypatch.setattr(attention, "rows_kernels", lambda *_, module=module: module)
        rows = attention.RowsPass(cache, {0: local} if local else {}, cuts, blank, 40)
        attend = partial(attended, rows)
        found.append([attend(now, *given) for now, given in zip(columns[:2], passes[:2], strict=True)])
        if DEVICE == "cuda" and module is not None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                found[-1].append(attend(columns[2], *passes[2]))
            graph.replay()
        else:
            found[-1].append(attend(columns[2], *passes[2]))
    for want, got in zip(*found, strict=True):
        seen = slice(max(blank) if want.shape[1] > 1 else 0, None)  # padding sees what it likes
        assert (got - want)[:, seen].float().norm() <= 1e-2 * want[:, seen].float().norm()


def attended(rows: attention.RowsPass, columns: Any, query: Any, key: Any, value: Any) -> Any:
    rows.begin(columns)
    with torch.inference_mode():
        return rows.attend(attention.LayerCall(0, Scoring(0.2)), query, key, value)


@pytest.mark.parametrize("width", [64, 128, 256])
def test_kernels_are_used_where_they_are_right(width: int, kernels: Any) -> None:
    assert rows_table._kernels.__wrapped__(DEVICE, torch.bfloat16, width) is kernels


@pytest.mark.parametrize("factor", [1.1, float("nan")])
@pytest.mark.parametrize("wrong", ["append", "attend_pieces", "combine", "merge_into"])
def test_kernels_are_used_only_where_they_are_right(
    wrong: str, factor: float, kernels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = rows_table._kernels.__wrapped__
    assert right(DEVICE, torch.bfloat16, 16) is kernels
    assert right(DEVICE, torch.bfloat16, 24) is None
    own = getattr(kernels, wrong)

    def shifted(first: Any, *more: Any) -> Any:
        result = own(first, *more)
        (first if result is None else result)[0].mul_(factor)
        return result

    monkeypatch.setattr(kernels, wrong, shifted)
    assert right(DEVICE, torch.bfloat16, 16) is None


def test_plain_torch_is_used_on_a_cpu() -> None:
    tensor = torch.zeros(1, 1, 1, 64, dtype=torch.bfloat16)
    assert rows_table.rows_kernels(tensor, tensor, tensor) is None


def test_what_kernels_cannot_read_is_noticed() -> None:
    own = torch.zeros(3, 2, 5, 16, dtype=torch.bfloat16)
    assert rows_table.pieces_of(own, own) is not None
    assert rows_table.pieces_of(own, own[..., :8]) is not None
    for other in (own.float(), own.mT.contiguous().mT, own[..., 1:9], torch.zeros(3, 2, 5, 12, dtype=torch.bfloat16)):
        assert rows_table.pieces_of(own, other) is None
