"""How lengths, shares, counts, durations and dates are written, and how untrusted text is sanitised for display."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

NO_NUMBER = "–"


def format_length(tokens: int) -> str:
    """An exact length: 4k for 4096, 128k for 131072, 1m for 1048576; other numbers in full."""
    for size, unit in ((1024 * 1024, "m"), (1024, "k")):
        if tokens >= size and tokens * 4 % size == 0:
            return f"{tokens / size:g}{unit}"
    return f"{tokens:,}" if tokens >= 10_000 else str(tokens)


def format_tokens(tokens: float) -> str:
    """An estimated length, rounded: 43k for 44,100, 4.3k for 4,400. k is 1024 tokens, M is 1024 k."""
    if tokens >= 1024 * 1000:
        return f"{tokens / 1024**2:.3g}M"
    if tokens >= 9.95 * 1024:
        return f"{tokens / 1024:.0f}k"
    return f"{float(f'{tokens / 1024:.1f}'):g}k" if tokens >= 1024 else f"{tokens:.0f}"


def format_depth(depth: float | None) -> str:
    """`12.5%`. Only a depth of 1 is shown as 100%."""
    if depth is None:
        return "all"
    rounded = f"{100 * depth:.3g}%"
    return f"{min(99.99, 100 * depth):.4g}%" if rounded == "100%" and depth < 1 else rounded


def format_percent(value: float | None) -> str:
    """A share in whole percent. Only exactly 1 is shown as 100 and only exactly 0 as 0."""
    if value is None:
        return NO_NUMBER
    rounded = round(100 * value)
    if rounded >= 100 and value < 1:
        return f"{min(99.9, 100 * value):.1f}"
    if rounded <= 0 and value > 0:
        return f"{max(0.1, 100 * value):.1f}"
    return str(rounded)


class Range(Protocol):
    @property
    def low(self) -> float: ...

    @property
    def high(self) -> float: ...


def format_percent_range(interval: Range | None) -> str:
    return NO_NUMBER if interval is None else f"{format_percent(interval.low)}–{format_percent(interval.high)}"


def format_span(low: float, high: float, form: str = ".4g") -> str:
    """`-1.2 to 3.4`; an end that one document cannot give is left out, and `not known` replaces both."""
    known = [math.isfinite(low), math.isfinite(high)]
    if all(known):
        return f"{low:{form}} to {high:{form}}"
    return f"{low:{form}} or more" if known[0] else f"up to {high:{form}}" if known[1] else "not known"


def format_count(count: int, noun: str) -> str:
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def format_list(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([*([", ".join(parts[:-1])] if len(parts) > 1 else []), parts[-1]]) if parts else ""


def format_duration(seconds: float) -> str:
    """4.2 s, 45 s, 3 min 20 s, 2 h 05 min, 3.1 days."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{seconds / 86400:.1f} days"


def format_number(count: float) -> str:
    """1,234 in full; above 10,000 12.3 thousand, 4.5 million, 1.2 billion, 1.2 trillion."""
    if count < 1e4:
        return f"{count:,.0f}"
    rounded = float(f"{count:.3g}")  # 999,999 is 1 million
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if rounded >= size:
            return f"{rounded / size:.3g} {word}"
    return f"{rounded / 1e3:.3g} thousand"


def format_flops(per_second: float) -> str:
    return f"{per_second / 1e12:.0f} TFLOP/s" if per_second > 1e13 else f"{per_second / 1e9:.0f} GFLOP/s"


def format_time(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d %H:%M UTC")


def sanitise(text: str, limit: int | None = 400) -> str:
    """Untrusted text as one line that a terminal and a page show without side effects.

    Control, format (bidirectional overrides among them), private-use and invalid characters become visible escapes.
    Text longer than `limit` characters is cut.
    """
    shown = "".join(map(_escaped, text if limit is None else text[: limit + 1]))
    return shown if limit is None or len(text) <= limit else shown[:limit] + "…"


def sanitise_lines(text: str) -> str:
    """Untrusted text of any length, with its line breaks and tabs."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in "\n\t" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    category = unicodedata.category(character)
    if category[0] not in "CZ":
        return character
    if category == "Zs":
        return " "
    code = ord(character)
    named = {0x0A: "\\n", 0x09: "\\t", 0x0D: "\\r"}
    return named.get(code) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def distinct_names(labels: Sequence[str], folders: Sequence[str]) -> list[str]:
    """One distinct name for each run: its label, with its folder where several runs have the same label."""
    names = [sanitise(label, 80) for label in labels]
    return [
        f"{name} ({sanitise(folder, 60)})" if names.count(name) > 1 else name
        for name, folder in zip(names, folders, strict=True)
    ]


_SPECIAL = re.compile(r"([\\`*_\[\]#|<>~&])")


def escape_markdown(text: str) -> str:
    """Escapes what Markdown and HTML would interpret."""
    return _SPECIAL.sub(r"\\\1", text.replace("\n", " ")).replace("\\<", "&lt;").replace("\\>", "&gt;")


def shorten(text: str, limit: int) -> str:
    """The beginning and the end of a long text, with the number of omitted characters between them."""
    if len(text) <= limit:
        return text
    head = limit * 3 // 4
    tail = limit - head
    return f"{text[:head]} […{len(text) - head - tail:,} characters…] {text[len(text) - tail :]}"


def format_given(value: object) -> str:
    """A value that a user gave, for an error message."""
    shown = repr(value) if not isinstance(value, int) or value.bit_length() < 100 else "a huge number"
    return shown if len(shown) <= 60 else f"{shown[:60]}..."
