"""Which way a model is read, decided by a trial when it is opened, never by a list of names.

A few random tokens are read in every way, fastest first, and compared with the model's own pass: in float32 by their
logits, in 16 bits layer by layer (layer_trace.py), where rounding cannot add up:

1. the reader's own attention, with windows found from the model's masks, and with states where the model has any;
2. the model's own cache (own_cache.py);
3. the plain path, one `generate` per prompt, with the reason on every record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from leadline.models.hf.decode import generate
from leadline.models.hf.layer_trace import HALF, LayerTrace, Outputs, largest_errors
from leadline.models.hf.own_cache import OwnCacheReader
from leadline.models.hf.reader import Reader, rows_of
from leadline.models.hf.replacements import find_scans
from leadline.models.hf.scan_size import fit_scans
from leadline.models.hf.states import StateKeeper, keeper_of, scan_modules
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
        """The reason why a text of this length needs the plain path; empty if it does not."""
        return self.reason if tokens > self.max_tokens else ""


def choose_reader(
    model: Any, reader: Reader, *, scan_bytes: int | None = None, installed: bool = False
) -> tuple[Reader, SharedReadingSupport]:
    """The fastest way of reading that gives the model's own logits on a few random tokens: the reader's attention (with
    states, where the model has any), then the model's own cache; otherwise the plain path, and why. `scan_bytes` limits
    what recurrent layers hold during a pass, by smaller passes; `installed` leaves them to kernel packages."""
    reader.keeper = _keeper(model)
    if reader.keeper is not None:
        reader.scans, reader.replacements = scan_modules(model), find_scans(model, installed=installed)
        if scan_bytes is not None:
            with suppress(Exception):  # a model that cannot be read this way, as the trial will show
                fit_scans(reader, scan_bytes)
    support = shared_reading_support(model, reader)
    if not support.max_tokens and reader.keeper is not None:
        reader.keeper.takes_inner = False
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
        own.references = reader.references
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
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # its code may be of any kind
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


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


@dataclass(frozen=True, slots=True)
class _TrialRows:
    """Rows of a short text, each from its cut to its end."""

    ids: Ids
    cuts: Sequence[int]
    ends: Sequence[int]

    @classmethod
    def of(cls, model: Any, tokens: int) -> _TrialRows:
        cut, inner = tokens * 2 // 3, tokens * 4 // 9  # read in two passes, the second with a cut within it
        return cls(_random_ids(model, tokens), [cut, inner, 1, 0], [tokens, cut, cut, tokens // 4])

    def of_own(self, states: Tensor) -> Tensor:
        """All tokens of the rows, one row after another, from those of the whole text."""
        return torch.cat([states[cut:end] for cut, end in zip(self.cuts, self.ends, strict=True)])

    def read(self, reader: Reader, take: Callable[[], Outputs]) -> tuple[Tensor, Outputs]:
        """The same from rows in batches: their hidden states, and what `take` gives of each batch. The very last token
        of a row is a decoding step."""
        closings = [self.ids[cut : end - 1] for cut, end in zip(self.cuts, self.ends, strict=True)]
        rows = rows_of(self.ids, self.cuts, closings, slack=0)
        reader.read(self.ids[: max(self.cuts)], reuse=False, cuts=self.cuts)
        take()
        by_part: dict[str, dict[int, Tensor]] = {}
        for group in reader.groups(rows):
            batch = reader.open_rows(group, room=1)
            own = [hidden for _, hidden in batch.read_own()]
            step = torch.tensor([[int(self.ids[self.ends[row.index] - 1])] for row in group], device=reader.device)
            whole = torch.cat([*own, batch.advance(step)], 1)
            for name, states in {_HIDDEN: whole, **take()}.items():
                for row, of_row in zip(group, states, strict=True):  # right-aligned
                    by_part.setdefault(name, {})[row.index] = of_row[-len(row.own) - 1 :]
        joined = {name: torch.cat([of[i] for i in range(len(self.cuts))]) for name, of in by_part.items()}
        return joined.pop(_HIDDEN), joined


_HIDDEN = "hidden states"


def _disagreement(model: Any, reader: Reader, *, tokens: int) -> str:
    """The difference between shared reading of a few random tokens and the model's own pass; empty if there is none."""
    rows = _TrialRows.of(model, tokens)
    compare = _compare_layers if model.dtype in HALF else _compare_logits
    chunk = reader.chunk
    try:
        return compare(model, reader, rows)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # its code may be of any kind
        return f"shared reading does not work with it: {first_line(error)}"
    finally:
        reader.chunk = chunk
        reader.forget()
        reader.use_own_attention()


def _compare_logits(model: Any, reader: Reader, rows: _TrialRows) -> str:
    """Of the whole model."""
    want = rows.of_own(_own_logits(model, reader, rows.ids))
    reader.chunk = min(reader.chunk, rows.cuts[0] // 2 + 1)
    hidden, _ = rows.read(reader, dict)
    return _difference({"logits": reader.logits(hidden)}, {"logits": want}, model.dtype)


def _compare_layers(model: Any, reader: Reader, rows: _TrialRows) -> str:
    """Part by part, each with the inputs of the model's own pass: as the model computes, then in float32."""
    trace = LayerTrace(reader)
    hidden: list[Tensor] = []
    trace.record(lambda: hidden.append(reader.read_plain(rows.ids)))
    if not trace.mixers:
        return _compare_logits(model, reader, rows)
    got, want = reader.logits(hidden[0]), _own_logits(model, reader, rows.ids)
    problem = _difference({"logits": got}, {"logits": want}, model.dtype)
    problem = problem or _compare_replayed(reader, rows, trace, model.dtype)
    if problem or not trace.can_widen:
        return problem
    try:
        return _compare_replayed(reader, rows, trace, torch.float32)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # its code may be of any kind
        return ""  # code that needs 16 bits: the comparison in them is all there is


def _compare_replayed(reader: Reader, rows: _TrialRows, trace: LayerTrace, dtype: torch.dtype) -> str:
    reader.forget()
    chunk, reader.chunk = reader.chunk, min(reader.chunk, rows.cuts[0] // 2 + 1)
    try:
        with trace.replay(widen=dtype == torch.float32) as take:
            reader.read_plain(rows.ids)
            want = {name: rows.of_own(states[0]) for name, states in take().items()}
            _, got = rows.read(reader, take)
    finally:
        reader.chunk = chunk
        reader.forget()
    return _difference(got, want, dtype, replayed=True)


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


def _difference(got: Outputs, want: Outputs, dtype: torch.dtype, *, replayed: bool = False) -> str:
    """The difference of outputs; empty if rounding explains it.

    In 16 bits a router may choose other experts for a few tokens: half of the tokens must agree. In float32 the worst
    must; replayed parts have rounded inputs, which a norm of a few small numbers may enlarge, and states that some
    models round.
    """
    typical, worst = largest_errors(got, want)
    limits = (0.05, math.inf) if dtype in HALF else (2e-3, 5e-3) if replayed else (1e-3, 1e-3)
    if typical <= limits[0] and worst <= limits[1]:  # NaN is a difference
        return ""
    return f"shared reading differs from its own pass (relative error {typical:.1e}, at most {worst:.1e})"


# --- what only GPUs have ------------------------------------------------------------------------


def fuse_if_equal(model: Any, reader: Reader) -> list[str]:
    """Use fused kernels, unless parts of the layers then give other outputs; returns the class names that were
    replaced."""
    from leadline.models.hf.fused_kernels import fuse, unfuse  # Triton is imported only on a GPU

    ids, trace = _random_ids(model, TRIAL_TOKENS), LayerTrace(reader)
    replaced: list[str] = []
    try:
        trace.record(lambda: reader.read_plain(ids))
        with trace.replay() as take:
            reader.read_plain(ids)
            want = take()
            replaced = fuse(model)
            reader.read_plain(ids)
            equal = bool(want) and not _difference(take(), want, model.dtype)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # its code may be of any kind
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
    except torch.OutOfMemoryError:
        raise
    except Exception:  # its code may be of any kind
        reader.records = False
    finally:
        reader.forget()
        reader.use_own_attention()
