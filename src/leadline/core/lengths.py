"""Lengths and depths as people write them: `4k`, `1k,2k,auto`, `11`, `sigmoid:11`, `0,0.5,1`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from leadline.core.errors import UsageError
from leadline.core.format import format_given

AUTO = "auto"
"""Lengths, a reading or an allowance that fit the model."""
MAX_DEPTHS = 10_000
MAX_LENGTH = 1 << 36
"""Larger numbers are typing mistakes; without a limit they would exhaust memory."""

_LENGTH = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kKmM]?)\s*$")


def parse_length(value: str | int | float, *, least: int = 1) -> int:
    """`4k` = 4096, `128k` = 131072, `1m` = 1048576; plain numbers are tokens, `least` or more."""
    match = _LENGTH.match(str(value))
    if isinstance(value, bool) or not match:
        several = isinstance(value, str) and len(value.split()) > 1 and all(map(_LENGTH.match, value.split()))
        fix = f'put commas between them: "{",".join(str(value).split())}"' if several else "write 4096, 4k, 128k or 1m"
        raise UsageError(f"{value!r} is not a length", where="lengths", fix=fix)
    number, unit = match.groups()
    tokens = float(number) * {"": 1, "k": 1024, "m": 1024 * 1024}[unit.lower()]
    if not tokens <= MAX_LENGTH:
        raise UsageError(
            f"length {format_given(value)} is too large", where="lengths", fix="write 4096, 4k, 128k or 1m"
        )
    if tokens != int(tokens) or tokens < least:
        raise UsageError(f"{value!r} is not a whole number of tokens", where="lengths", fix="write 4096 or 4k")
    return int(tokens)


def parse_lengths(value: Any) -> tuple[int, ...]:
    """`"1k,2k"`, `["1k", 2048]` or one number; sorted, without duplicates. `auto` is none: the plan chooses them.
    0 is a question alone, for tasks that have it."""
    if isinstance(value, str) and value.strip() == AUTO:
        return ()
    parts = value.split(",") if isinstance(value, str) else value
    if isinstance(parts, (int, float)):
        parts = [parts]
    if not isinstance(parts, Sequence):
        raise UsageError(f"{value!r} is not a list of lengths", where="lengths", fix='write "1k,2k,4k"')
    if not parts:
        raise UsageError("there are no lengths", where="lengths", fix='write "1k,2k,4k", or "auto"')
    lengths = tuple(sorted({parse_length(p, least=0) for p in parts}))
    if lengths == (0,):
        raise UsageError("length 0 needs another one beside it", where="lengths", fix='write "0,4k,32k"')
    return lengths


def parse_depths(value: Any) -> tuple[float, ...]:
    """`5`: evenly spaced. `sigmoid:11`: denser at both ends. `0.1..0.6:32`: a range. `0,0.5,1`: a list."""
    depths = _depths(value)
    if len({f"{depth:.4f}" for depth in depths}) < len(depths):  # as the keys of samples have them
        raise UsageError("some depths are equal to four decimals", where="depths", fix="ask for fewer depths")
    return depths


def _depths(value: Any) -> tuple[float, ...]:
    if isinstance(value, int) and not isinstance(value, bool):
        return even_depths(value)
    if isinstance(value, str):
        text = value.strip()
        if re.fullmatch(r"\d+", text):
            return even_depths(_depth_count(text))
        kind, _, count = text.partition(":")
        if kind in ("linear", "sigmoid") and count.isdecimal():
            return even_depths(_depth_count(count)) if kind == "linear" else sigmoid_depths(_depth_count(count))
        between = re.fullmatch(r"([\d.]+)\.\.([\d.]+):(\d+)", text)
        value = _between(*between.groups()) if between else text.split(",")
    if isinstance(value, float):
        value = [value]
    try:
        depths = tuple(sorted({round(float(d), 6) for d in value}))
    except (TypeError, ValueError, OverflowError):
        raise UsageError(
            f"{_joined(value)!r} is not a depth grid", where="depths", fix="write 11, sigmoid:11 or 0,0.5,1"
        ) from None
    for depth in depths:
        if not 0 <= depth <= 1:
            raise UsageError(
                f"depth {depth:g} is outside the document",
                where="depths",
                fix="depths run from 0 (start) to 1 (end): write 0.5 for the middle, 11 for a grid",
            )
    return depths


def _joined(value: Any) -> Any:
    """A list as it was typed."""
    return ",".join(map(str, value)) if isinstance(value, list) else value


def even_depths(count: int) -> tuple[float, ...]:
    if not 1 <= count <= MAX_DEPTHS:
        raise UsageError(
            f"a depth grid has 1 to {MAX_DEPTHS:,} depths, not {format_given(count)}", where="depths", fix="write 11"
        )
    return (0.5,) if count == 1 else tuple(round(i / (count - 1), 6) for i in range(count))


def sigmoid_depths(count: int) -> tuple[float, ...]:
    """A logistic with slope 0.1 per percent through the even grid, end points kept: dense at both ends."""
    even = even_depths(count)
    inner = [1 / (1 + math.exp(-10 * (d - 0.5))) for d in even[1:-1]]
    return tuple(round(d, 6) for d in (even[0], *inner, even[-1])) if count > 2 else even


def _depth_count(digits: str) -> int:
    return int(digits[:20])  # enough digits to be refused as too many


def _between(low: str, high: str, count: str) -> list[float]:
    try:
        return [float(low) + (float(high) - float(low)) * d for d in even_depths(_depth_count(count))]
    except ValueError:
        raise UsageError(f"{low}..{high} is not a range of depths", where="depths", fix="write 0.1..0.6:32") from None
