"""What the kernels for rows after cuts of a document (rows_kernels.py) read, and where they may be used.

A layer's pieces are the rows' own tokens, a piece for every row, and for every cut the window before it. Kernels find
the keys and values of each by a table on the device, which is made once a batch: a recorded step cannot copy from the
host, and keys and values stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leadline.models.hf.windows import LocalAttention

Places = tuple[Tensor, Tensor, Tensor]
"""The columns being filled, the position of each row's first column, and its number of blank columns."""
FIELDS = 10
"""Numbers of a piece: the addresses of its keys and values; bytes between heads and numbers between tokens, of keys and
of values; the first row and how many; the position of the first key and how many."""
_WIDEST = 256
_ALIGNED = 16
"""Bytes. Kernels load that many at once."""
_SCALE = 0.2


@dataclass(frozen=True, slots=True)
class Window:
    """Keys and values [1, key heads, tokens, width] of the document from `start` on, and the rows that see them."""

    rows: slice
    start: int
    key: Tensor
    value: Tensor


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of a layer. `held` are their keys and values, whose addresses are in the table."""

    table: Tensor
    key_heads: int
    longest: int
    """Keys of a window, at most."""
    most_rows: int
    """Rows of a window, at most."""
    held: tuple[Tensor, ...]

    @property
    def windows(self) -> int:
        return len(self.table) - len(self.held[0])


def pieces_of(own_key: Tensor, own_value: Tensor, windows: Sequence[Window] = ()) -> Pieces | None:
    """The rows' own keys and values [rows, key heads, room, width], and the windows of all rows or of none. None where
    kernels cannot read them."""
    held = [own_key, own_value, *(t for window in windows for t in (window.key, window.value))]
    if not all(_is_readable(numbers, own_key.dtype) for numbers in held):
        return None
    rows, size = len(own_key), own_key.element_size()
    table = np.zeros((rows + len(windows), FIELDS), np.int64)
    for side, numbers in enumerate((own_key, own_value)):
        table[:rows, side] = numbers.data_ptr() + np.arange(rows) * numbers.stride(0) * size
        table[:rows, 2 + side] = numbers.stride(1) * size
        table[:rows, 4 + side] = numbers.stride(2)
    table[:rows, 6], table[:rows, 7], table[:rows, 9] = np.arange(rows), 1, own_key.shape[2]
    for entry, window in zip(table[rows:], windows, strict=True):
        for side, numbers in enumerate((window.key, window.value)):
            entry[side], entry[2 + side] = numbers.data_ptr(), numbers.stride(1) * size
            entry[4 + side] = numbers.stride(2)
        count = int(window.rows.stop) - int(window.rows.start)
        entry[6:] = window.rows.start, count, window.start, window.key.shape[2]
    return Pieces(
        torch.from_numpy(table).to(own_key.device, non_blocking=True), own_key.shape[1],
        max((window.key.shape[2] for window in windows), default=0), int(table[:, 7].max()), tuple(held),
    )  # fmt: skip


def _is_readable(numbers: Tensor, dtype: torch.dtype) -> bool:
    size = numbers.element_size()
    aligned = not any(place % _ALIGNED for place in (numbers.data_ptr(), *(n * size for n in numbers.stride()[:3])))
    return aligned and numbers.stride(3) == 1 and numbers.dtype == dtype


# --- where kernels may be used ------------------------------------------------------------------


def rows_kernels(query: Tensor, key: Tensor, value: Tensor) -> Any:
    """The module of kernels for attention of such tensors; None where plain torch is to be used."""
    dtype, width = query.dtype, query.shape[3]
    if not query.is_cuda or dtype not in (torch.bfloat16, torch.float16):
        return None
    if {key.dtype, value.dtype} != {dtype} or {key.shape[3], value.shape[3]} != {width}:
        return None
    return _kernels("cuda", dtype, width)


@cache
def _kernels(device: str, dtype: torch.dtype, width: int) -> Any:
    """The module, if all its kernels agree with plain arithmetic on random numbers."""
    if width % _ALIGNED or width > _WIDEST:
        return None
    try:
        from leadline.models.hf import rows_kernels  # Triton is imported only on a GPU

        agree = all(
            error <= 2 * torch.finfo(dtype).eps
            for group, columns, local in (
                (2, 1, LocalAttention(200)),
                (12, 1, LocalAttention(128, chunked=True)),
                (3, 17, LocalAttention(40)),
                (1, 2, None),
            )
            for error in errors(rows_kernels, device, dtype, width, group, columns, local)
        )
    except Exception:  # no Triton, or a kernel that does not compile here
        return None
    return rows_kernels if agree else None


def errors(
    kernels: Any, device: str, dtype: torch.dtype, width: int, group: int, columns: int, local: LocalAttention | None
) -> Iterator[float]:
    """How far kernels are from plain arithmetic in float64, as shares of the size of what they give: for each of some
    rows after cuts of a short document, and for a total that a part was merged into."""
    cuts, blank, heads, room = [300, 300, 140, 0], [0, 3, 0, 2], 2, columns + 20
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(0))
    key, value = (draw(1, heads, cuts[0], width).to(device, dtype) for _ in range(2))
    given = [draw(len(cuts), heads, room, width).to(device, dtype) for _ in range(2)]
    own_key, own_value = (each.clone() for each in given)
    query = draw(len(cuts), columns, heads * group, width).to(device, dtype).transpose(1, 2)
    sinks = draw(heads * group).to(device)
    now, first_own = torch.arange(3, 3 + columns, device=device), torch.tensor(blank, device=device)
    origin = torch.tensor(cuts, device=device) - first_own
    windows = []
    for rows, cut in ((slice(0, 2), cuts[0]), (slice(2, 3), cuts[2]), (slice(3, 4), 0)):
        start = local.first_seen(cut) if local else 0
        windows.append(Window(rows, start, key[:, :, start:cut], value[:, :, start:cut]))
    pieces = pieces_of(own_key, own_value, windows)
    assert pieces is not None
    for own in (own_key, own_value):
        own[:, :, now] = 0
    kernels.append(own_key, own_value, *(each[:, :, 3 : 3 + columns] for each in given), now)
    parts = kernels.attend_pieces(query, (now, origin, first_own), pieces, _SCALE, local)
    got = kernels.combine(parts, heads * group, sinks, dtype)
    for row, cut in enumerate(cuts):
        keys, values = (
            torch.cat([document[0, :, :cut], each[row]], 1) for document, each in zip((key, value), given, strict=True)
        )
        place = torch.cat([torch.arange(cut, device=device), origin[row] + torch.arange(room, device=device)])
        number = torch.arange(len(place), device=device)
        position = (origin[row] + now)[:, None]
        seen = (place <= position) & (place >= _first_seen(position, local))
        seen &= (number < cut) | (number >= cut + blank[row])
        yield _apart(got[row], _attention(query[row], keys, values, seen, sinks))
    total, part = (
        (draw(heads, 5, 3, width).to(device, kind), draw(heads, 5, 3).to(device)) for kind in (torch.float32, dtype)
    )
    share = torch.sigmoid(part[1].double() - total[1])[..., None]
    want = torch.lerp(total[0].double(), part[0].double(), share), torch.logaddexp(total[1].double(), part[1].double())
    kernels.merge_into(total, part)
    yield from (_apart(*pair) for pair in zip(total, want, strict=True))


def _first_seen(position: Tensor, local: LocalAttention | None) -> Tensor:
    if local is None:
        return torch.zeros_like(position)
    return position // local.size * local.size if local.chunked else position - local.size + 1


def _attention(query: Tensor, key: Tensor, value: Tensor, seen: Tensor, sinks: Tensor) -> Tensor:
    """Of one row [heads, columns, width], as [columns, heads, width]."""
    key, value = (t.double().repeat_interleave(len(query) // len(t), 0) for t in (key, value))
    scores = (_SCALE * (query.double() @ key.mT)).masked_fill(~seen, float("-inf"))
    sink = sinks.double()[:, None, None].expand(-1, scores.shape[1], 1)
    return (torch.cat([scores, sink], -1).softmax(-1)[..., :-1] @ value).transpose(0, 1)


def _apart(got: Tensor, want: Tensor) -> float:
    return float((got.double() - want).norm() / want.norm())
