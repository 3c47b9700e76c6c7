"""A haystack made of needles: lines of one form, each with its own key and value.

Lines are put together from a bank of parts, so that each part is tokenised only once.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.drafts import PieceBank, SegmentSize
from leadline.core.seeds import Split, bulk_rng, digest, of_split, rng
from leadline.core.types import ValueKind
from leadline.tasks.placement import fill_lines
from leadline.tasks.words import ADJECTIVES, NOUNS

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Indices

POOL = 16_384
"""Distinct numbers to draw from, and distinct values of each UUID group."""
SPARE = 512
"""The last lines of a segment are selected from SPARE candidates to reach the exact token count."""


@dataclass(frozen=True, slots=True)
class NeedleLines:
    """Endless lines in one wording, `... {key} ... {value} ...`. No line uses a key or value of the planted needles
    (`taken`)."""

    key_kind: ValueKind
    value_kind: ValueKind
    wording: str
    seed: int
    taken: frozenset[str]
    split: Split = "test"
    prefix_stable: bool = True
    limit: int | None = None

    @property
    def bank(self) -> PieceBank:
        return self._parts.bank

    def arrange(self, count: int) -> Indices:
        per_line = self._parts.per_line
        return self._lines(count // per_line + 1).reshape(-1)[:count]

    def least(self, counts: Indices) -> int:
        return 0

    def compose(self, segment_sizes: Sequence[SegmentSize], counts: Indices) -> list[Indices] | None:
        """Whole lines only. The last lines of a segment are selected so that the token counts add up."""
        parts = self._parts
        typical = sum(float(counts[low:high].mean()) for low, high in parts.ranges)
        lines = self._lines(
            int(1.1 * sum(room for room, _ in segment_sizes) / typical) + 2 * SPARE * len(segment_sizes)
        )
        sizes = counts[lines].sum(axis=1)
        used, segments = 0, []
        for room, _ in segment_sizes:
            filled = fill_lines(sizes[used:], room, None, spare=SPARE)
            if filled is None:
                return None
            whole, chosen, _ = filled
            end = used + whole
            segments.append(np.concatenate([lines[used:end], lines[end:][chosen]]).reshape(-1))
            used = end + SPARE
        return segments

    @property
    def _parts(self) -> _Parts:
        return _parts(self.key_kind, self.value_kind, self.wording, self.split)

    def _lines(self, count: int) -> Indices:
        """`count` lines, one row of pieces each. A longer list starts with the shorter one."""
        # Drawn with a margin, because lines that clash are dropped.
        rows = self._parts.draw(bulk_rng(self.seed, "needle lines"), 1 << max(count + count // 16 + 16, 1).bit_length())
        return rows[~self._clash(self._parts, rows)][:count]

    def _clash(self, parts: _Parts, rows: Indices) -> npt.NDArray[np.bool_]:
        """Rows whose key or value is planted, or whose key occurred before."""
        clash = np.zeros(len(rows), np.bool_)
        for columns in (parts.key_columns, parts.value_columns):
            for text in self.taken:
                made_of = parts.find(text, columns)
                if made_of is not None:
                    clash |= np.all(rows[:, columns] == made_of, axis=1)
        keys = np.zeros(len(rows), np.int64)
        for column in rows[:, parts.key_columns].T:
            keys = (keys << 20) ^ (keys >> 44) ^ column  # a UUID's five parts do not fit 64 bits: mixed, not packed
        repeated = np.ones(len(rows), np.bool_)
        repeated[np.unique(keys, return_index=True)[1]] = False
        return clash | repeated


@dataclass(frozen=True, slots=True)
class _Parts:
    """The bank of a wording's parts: for each position in a line, the range of pieces allowed there."""

    bank: PieceBank
    places: Mapping[str, int]
    """Index of each part of a key or value in the bank."""
    leads: tuple[str, str]
    """Text right before a key and before a value; it belongs to the first piece."""
    ranges: tuple[tuple[int, int], ...]
    key_columns: slice
    value_columns: slice

    def find(self, text: str, columns: slice) -> list[int] | None:
        """The pieces that a key or value is made of, or None when the bank cannot make it."""
        first, *others = text.split("-")
        lead = self.leads[columns == self.value_columns]
        indices = [self.places.get(part) for part in (f"{lead}{first}", *(f"-{other}" for other in others))]
        ranges = self.ranges[columns]
        if len(indices) != len(ranges):
            return None
        if any(i is None or not low <= i < high for i, (low, high) in zip(indices, ranges, strict=True)):
            return None
        return [i for i in indices if i is not None]

    @property
    def per_line(self) -> int:
        return len(self.ranges)

    def draw(self, draw: np.random.Generator, lines: int) -> Indices:
        """Whole lines, one row each. A random stream per column makes a longer list start with the shorter one."""
        streams = draw.spawn(len(self.ranges))
        columns = [s.integers(low, high, lines) for s, (low, high) in zip(streams, self.ranges, strict=True)]
        return np.stack(columns, axis=1)


@cache
def _parts(key_kind: ValueKind, value_kind: ValueKind, wording: str, split: Split) -> _Parts:
    match = _WORDING.fullmatch(wording)
    if match is None:
        raise ValueError(f"{wording!r} has no {{key}} before a {{value}}")
    before, key_lead, between, value_lead, after = match.groups()
    key, value = _value_parts(key_kind, key_lead, split), _value_parts(value_kind, value_lead, split)
    lead_pieces = [[before]] if before else []
    pieces: list[str] = []
    ranges = []
    for choices in [*lead_pieces, *key, [between], *value, [after + "\n"]]:
        ranges.append((len(pieces), len(pieces) + len(choices)))
        pieces.extend(choices)
    ends_sentence = tuple(piece.endswith("\n") for piece in pieces)
    name = f"needles of {key_kind} and {value_kind}"
    bank = PieceBank(name, digest(pieces), pieces, contiguous=False, ends_sentence=ends_sentence, ending="\n")
    keys = slice(len(lead_pieces), len(lead_pieces) + len(key))
    places = {piece: index for index, piece in enumerate(pieces)}
    values = slice(keys.stop + 1, keys.stop + 1 + len(value))
    return _Parts(bank, places, (key_lead, value_lead), tuple(ranges), keys, values)


_WORDING = re.compile(r"(.*?)(\s?[^\s{}]*)\{key\}(.*?)(\s?[^\s{}]*)\{value\}(.*)")


def _value_parts(kind: ValueKind, lead: str, split: Split) -> list[list[str]]:
    """The choices for each part of a key or value. The first part includes the text before it; the last part decides
    the split."""
    if kind == "words":
        return [[f"{lead}{a}" for a in ADJECTIVES], [f"-{n}" for n in of_split(NOUNS, split)]]
    draw = rng("needle lines", kind)
    if kind == "numbers":
        numbers = map(str, draw.sample(range(1_000_000, 10_000_000), POOL))
        return [[f"{lead}{n}" for n in of_split(numbers, split)]]
    return [
        [f"{lead}{group}" for group in _groups(draw, 8, "")],
        [f"-{group}" for group in _groups(draw, 4, "")],
        [f"-{group}" for group in _groups(draw, 4, "4")],  # the version
        [f"-{group}" for group in _groups(draw, 4, "89ab")],  # the variant
        [f"-{group}" for group in of_split(_groups(draw, 12, ""), split)],
    ]


def _groups(draw: random.Random, digits: int, first: str) -> list[str]:
    """Distinct hexadecimal groups; a version-4 UUID fixes the first digit of two of them."""
    few = POOL // 16 if digits == 4 else POOL // 4
    groups: dict[str, None] = {}
    while len(groups) < few:
        group = f"{draw.getrandbits(4 * digits):0{digits}x}"
        groups.setdefault(draw.choice(first) + group[1:] if first else group)
    return list(groups)
