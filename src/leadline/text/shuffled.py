"""A haystack whose sentences are the same in another order: how much does coherence matter?

Chroma's report on context rot (2025) finds that models retrieve better from shuffled text than from coherent text. A
sentence changes places only with one of the same kind (beginning, middle or end of a paragraph), so that the paragraphs
keep their shape and nothing but the order differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.drafts import Filler, PieceBank
from leadline.core.seeds import bulk_rng
from leadline.text.sources import Stretch

if TYPE_CHECKING:
    from leadline.core.types import Indices


@dataclass(frozen=True)
class Shuffled:
    """The sentences of another filler, as many as a document takes, in an order drawn from the seed."""

    text: Filler
    seed: int
    prefix_stable: bool = False

    @property
    def bank(self) -> PieceBank:
        return self.text.bank

    @property
    def limit(self) -> int | None:
        return self.text.limit

    def placed(self, ends: Indices, depths: Sequence[float], added: Sequence[float] = ()) -> Shuffled:
        """With the stretch of the text that this document has."""
        text = self.text
        return replace(self, text=text.placed(ends, depths, added)) if isinstance(text, Stretch) else self

    def arrange(self, count: int) -> Indices:
        order = self.text.arrange(count)
        closes = self._closes[order]
        if not closes.any():
            return order
        ends = np.flatnonzero(closes) + 1
        starts = np.concatenate(([0], ends[:-1]))
        kinds = self._shapes[order[starts]] * len(self._names) + self._shapes[order[ends - 1]]
        moved = np.arange(len(starts))
        draw = bulk_rng(self.seed, "shuffled")
        for kind in np.unique(kinds).tolist():
            these = np.flatnonzero(kinds == kind)
            moved[these] = these[draw.permutation(len(these))]
        lengths = (ends - starts)[moved]
        begins = np.repeat(starts[moved] - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
        return np.concatenate([order[begins + np.arange(int(lengths.sum()))], order[ends[-1] :]])

    @cached_property
    def _closes(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        closes, pieces = self.bank.closes, self.bank.pieces
        return np.ones(len(pieces), np.bool_) if closes is None else np.array(closes, np.bool_)

    @cached_property
    def _names(self) -> dict[tuple[str, str], int]:
        """The kinds of pieces: the white space that they begin and end with."""
        spaces = ((p[: len(p) - len(p.lstrip())], p[len(p.rstrip()) :]) for p in self.bank.pieces)
        return {name: number for number, name in enumerate(dict.fromkeys(spaces))}

    @cached_property
    def _shapes(self) -> Indices:
        spaces = ((p[: len(p) - len(p.lstrip())], p[len(p.rstrip()) :]) for p in self.bank.pieces)
        return np.array([self._names[space] for space in spaces], np.int64)
