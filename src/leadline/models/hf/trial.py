"""Which way a model is read, decided by a trial when it is opened, never by a list of names.

A few random tokens are read in every way, fastest first, and the logits compared with those of the model's own pass:

1. the reader's own attention, with windows found from the model's masks, and with states where the model has any;
2. the model's own cache (own_cache.py);
3. the plain path, one `generate` per prompt, with the reason on every record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from leadline.models.hf.decode import generate
from leadline.models.hf.own_cache import OwnCacheReader
from leadline.models.hf.reader import Reader, rows_of
from leadline.models.hf.states import StateKeeper, keeper_of
from leadline.models.hf.windows import Windows, find_windows, small_windows

if TYPE_CHECKING:
    from leadline.core.types import Ids

TRIAL_TOKENS, TRIAL_WINDOW = 66, 11
"""Of the test that compares shared reading with the model's own pass: its length, and that of windows during it."""
_LENGTH_DEPENDENT = {
    "dynamic": "dynamic-NTK position encoding depends on the total length",
    "longrope": "long/short-factor position encoding depends on the total length",
}


@dataclass(frozen=True, slots=True)
class SharedReadingSupport:
    """Shared reading is exact for texts of up to `max_tokens`; longer ones take the plain path, because of `reason`."""

    max_tokens: float
    reason: str = ""
    nested_problem: str = ""
    way: str = ""  # where it is not the reader's own attention

    def refusal(self, tokens: int) -> str:
        """Why a text of this length needs the plain path; empty where it does not."""
        return self.reason if tokens > self.max_tokens else ""


def choose_reader(model: Any, reader: Reader) -> tuple[Reader, SharedReadingSupport]:
    """The fastest way of reading that gives the model's own logits on a few random tokens: the reader's attention (with
    states, where the model has any), then the model's own cache; otherwise the plain path, and why."""
    reader.keeper = _keeper(model)
    support = shared_reading_support(model, reader)
    if support.max_tokens:
        check_recording(reader)
    if support.max_tokens == math.inf or support.nested_problem:
        return reader, support
    if reader.keeper is None and not support.max_tokens and not getattr(model, "_supports_attention_backend", False):
        support = replace(support, reason="transformers cannot replace its attention")
    reader.use_own_attention()
    for stepwise in (False, True):
        own = OwnCacheReader(model, chunk=reader.chunk, stepwise=stepwise)
        if own.cache_name and not _disagreement(model, own, tokens=TRIAL_TOKENS):
            way = "the model's own cache" + (", one reading for each cut" if stepwise else "")
            return own, SharedReadingSupport(math.inf, way=f"read into {way}: {support.reason}")
    return reader, support


def _keeper(model: Any) -> StateKeeper | None:
    try:
        return keeper_of(model)
    except Exception:  # code of any kind; the trial of the plain reader comes next
        return None


def shared_reading_support(model: Any, reader: Reader) -> SharedReadingSupport:
    """From the configuration and the model's own masks, then confirmed by a test on a few random tokens."""
    support = _support_by_config(model)
    if support.max_tokens == 0:
        return support
    problem = _find_windows(model, reader)
    windows = reader.windows
    if not problem:
        # With small windows a short text is longer than they are.
        with small_windows(model, windows, TRIAL_WINDOW):
            problem = _find_windows(model, reader)
            untested = [w.size for w in reader.windows.values() if w.size > TRIAL_WINDOW]
            problem = problem or _disagreement(model, reader, tokens=int(min(TRIAL_TOKENS, support.max_tokens)))
        reader.windows = windows
    if problem:
        return SharedReadingSupport(0, problem, support.nested_problem)
    return _limited(support, untested or _unseen_window(model, windows))


def _find_windows(model: Any, reader: Reader) -> str:
    """Why the masks of the model cannot be understood; empty where they can."""
    try:
        reader.windows = find_windows(model, reader.use_attention)
    except REFUSALS as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        return f"its attention masks are not understood: {first_line(error)}"
    return ""


def _unseen_window(model: Any, windows: Windows) -> list[int]:
    """The window of the configuration, if there is one and no mask of the model shows it."""
    config = model.config.get_text_config()
    size, types = getattr(config, "sliding_window", None), getattr(config, "layer_types", None)
    return [size] if size and not windows and (not types or "sliding_attention" in types) else []


def _limited(support: SharedReadingSupport, sizes: Sequence[int]) -> SharedReadingSupport:
    """Up to the smallest of the windows that the test was not longer than."""
    if not sizes or min(sizes) > support.max_tokens:
        return support
    return SharedReadingSupport(min(sizes), f"sliding window of {min(sizes)} tokens", support.nested_problem)


def _support_by_config(model: Any) -> SharedReadingSupport:
    config = model.config.get_text_config()
    if getattr(config, "num_kv_shared_layers", None):
        return SharedReadingSupport(0, "its layers share keys and values")
    rope = getattr(config, "rope_parameters", None) or {}
    for part in [v for v in rope.values() if isinstance(v, dict)] or [rope]:
        if changing := _LENGTH_DEPENDENT.get(str(part.get("rope_type"))):
            original = part.get("original_max_position_embeddings") or config.max_position_embeddings
            # Up to the original length such an encoding does not change.
            return SharedReadingSupport(original, changing, nested_problem=changing)
    return SharedReadingSupport(math.inf)


REFUSALS = (Exception,)
"""What a model raises that cannot be read with another attention: its code may be of any kind."""


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _disagreement(model: Any, reader: Reader, *, tokens: int) -> str:
    """How shared reading of a few random tokens differs from the model's own pass; empty where it does not."""
    ids = _random_ids(model, tokens)
    cut, last = tokens * 2 // 3, tokens // 4
    cuts, ends = [cut, 1, 0], [tokens, cut, last]  # rows of the last tokens before each end
    logits = _own_logits(model, reader, ids)
    want = torch.stack([logits[end - last : end] for end in ends])
    chunk, reader.chunk = reader.chunk, min(reader.chunk, cut // 2 + 1)
    try:
        got = torch.stack(_rows_logits(reader, ids, cuts, ends, last))
    except REFUSALS as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        return f"shared reading does not work with it: {first_line(error)}"
    finally:
        reader.chunk = chunk
        reader.forget()
        reader.use_own_attention()
    problem = _difference(got, want)
    return f"shared reading differs from its own pass ({problem})" if problem else ""


def _random_ids(model: Any, tokens: int) -> Ids:
    vocabulary = model.get_input_embeddings().weight.shape[0]
    return np.random.default_rng(0).integers(0, vocabulary, tokens).astype(np.int32)


def _own_logits(model: Any, reader: Reader, ids: Ids) -> Tensor:
    """Of all tokens, in one pass of the model as transformers runs it."""
    reader.use_own_attention()
    with torch.inference_mode():
        tensor = torch.from_numpy(ids.astype(np.int64))[None].to(reader.device)
        logits: Tensor = model(input_ids=tensor, use_cache=False).logits[0]
    return logits


def _difference(got: Tensor, want: Tensor) -> str:
    """How far logits are from those wanted; empty where no farther than rounding takes them."""
    errors = (got.float() - want.float()).norm(dim=-1) / want.float().norm(dim=-1)
    # Rounded to 16 bits, a router of experts may choose another one here and there; a wrong mask is wrong everywhere.
    exact = want.dtype in (torch.float32, torch.float64)
    apart = float(errors.max() if exact else errors.median())
    # Written so that NaN is a difference.
    return "" if apart <= (1e-3 if exact else 0.1) else f"relative error {apart:.1e}"


def _rows_logits(reader: Reader, ids: Ids, cuts: Sequence[int], ends: Sequence[int], last: int) -> list[Tensor]:
    """Logits of the `last` tokens before each end, from rows after the cuts. The very last is a decoding step."""
    rows = rows_of(ids, cuts, [ids[cut : end - 1] for cut, end in zip(cuts, ends, strict=True)], slack=0)
    reader.read(ids[: max(cuts)], reuse=False, cuts=cuts)
    found: dict[int, Tensor] = {}
    for group in reader.groups(rows):
        batch = reader.open_rows(group, room=1)
        hidden = [h for _, h in batch.read_own()]
        step = torch.tensor([[int(ids[ends[row.index] - 1])] for row in group], device=reader.device)
        for row, states in zip(group, torch.cat([*hidden, batch.advance(step)], 1), strict=True):
            found[row.index] = reader.logits(states[-last:])
    return [found[index] for index in range(len(cuts))]


# --- what only GPUs have ------------------------------------------------------------------------


def fuse_if_equal(model: Any, reader: Reader) -> list[str]:
    """Use fused kernels, unless the whole model then gives other logits; returns the class names that were replaced."""
    from leadline.models.hf.kernels import fuse, unfuse  # Triton is imported only on a GPU

    ids = _random_ids(model, TRIAL_TOKENS)
    want = _own_logits(model, reader, ids)
    replaced = fuse(model)
    try:
        equal = not _difference(_own_logits(model, reader, ids), want)
    except REFUSALS as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        equal = False
    if not equal:
        unfuse(model)
    return replaced if equal else []


def check_recording(reader: Reader) -> None:
    """Record no steps of decoding if a recorded step gives other tokens than one that is not."""
    if not reader.records:
        return
    ids, cut = _random_ids(reader.model, TRIAL_TOKENS), TRIAL_TOKENS // 2
    rows = rows_of(ids, [cut, 1], [ids[cut : cut + 6], ids[1:5]], slack=0)
    reader.read(ids[:cut], cuts=[cut, 1])
    try:
        # The first time steps are made one by one, the second time they are recorded.
        first, again = (generate(reader, rows, [8, 8], [], batch=2) for _ in range(2))
        records, reader.records = reader.records, False
        plain = generate(reader, rows, [8, 8], [], batch=2)
        reader.records = records and first == again == plain
    except REFUSALS as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        reader.records = False
    finally:
        reader.forget()
        reader.use_own_attention()
