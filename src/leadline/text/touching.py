"""What is known of the joints between pieces of a bank: one verdict for each pair of touching tokens.

What a tokenizer splits on stands next to the joint, so the last token of one piece and the first of the next decide;
and before that the two characters, since many tokenizers never split between, say, a letter and a dash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Ids, Indices

_UNKNOWN, _SOUND, _UNSOUND = 0, 1, 2
TABLE_ENTRIES = 1 << 25
"""Up to so many pairs a plain table is kept; beyond, a sorted list of those that were met."""


@dataclass(slots=True)
class Touching:
    """Pieces by the number of their last and of their first token, and the verdicts on pairs of such numbers."""

    last: Indices
    first: Indices
    pairs: int
    _table: npt.NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))
    _met: Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    """Numbers of pairs in ascending order; `_table` then has their verdicts."""
    proven: int = 0
    failed: int = 0

    @classmethod
    def of(cls, ids: Ids, starts: Indices) -> Touching:
        lasts, last = np.unique(ids[np.maximum(starts[1:] - 1, 0)], return_inverse=True)
        firsts, first = np.unique(ids[np.minimum(starts[:-1], len(ids) - 1)], return_inverse=True)
        made = cls(last.astype(np.int64) * len(firsts), first.astype(np.int64), len(lasts) * len(firsts))
        if made._is_dense:
            made._table = np.zeros(made.pairs, np.int8)
        return made

    @property
    def _is_dense(self) -> bool:
        return self.pairs <= TABLE_ENTRIES

    def numbers(self, left: Indices, right: Indices) -> Indices:
        """For each two pieces side by side the number of their pair of tokens."""
        return self.last[left] + self.first[right]

    def unknown(self, numbers: Indices) -> Indices:
        """One place of each pair without a verdict."""
        places = np.flatnonzero(self._verdicts(numbers) == _UNKNOWN)
        return places[np.unique(numbers[places], return_index=True)[1]] if len(places) else places

    def sound(self, numbers: Indices) -> npt.NDArray[np.bool_]:
        verdicts: npt.NDArray[np.bool_] = self._verdicts(numbers) == _SOUND
        return verdicts

    def learn(self, numbers: Indices, sound: npt.NDArray[np.bool_]) -> None:
        """Verdicts on pairs that had none, each given once."""
        self.proven += int(sound.sum())
        self.failed += int((~sound).sum())
        verdicts = np.where(sound, _SOUND, _UNSOUND).astype(np.int8)
        if self._is_dense:
            self._table[numbers] = verdicts
            return
        met = np.concatenate([self._met, numbers])
        order = np.argsort(met)
        self._met, self._table = met[order], np.concatenate([self._table, verdicts])[order]

    def _verdicts(self, numbers: Indices) -> npt.NDArray[np.int8]:
        if self._is_dense:
            return self._table[numbers]
        if not len(self._met):
            return np.zeros(len(numbers), np.int8)
        places = np.minimum(np.searchsorted(self._met, numbers), len(self._met) - 1)
        return np.where(self._met[places] == numbers, self._table[places], _UNKNOWN).astype(np.int8)


@dataclass(slots=True)
class Edges:
    """Pieces by their first and last characters, and between which of these a tokenizer may split at all."""

    first: Indices
    last: Indices
    firsts: list[str]
    lasts: list[str]
    _verdicts: npt.NDArray[np.int8]

    @classmethod
    def of(cls, pieces: Sequence[str]) -> Edges:
        first, firsts = _numbered([piece[:1] for piece in pieces])
        last, lasts = _numbered([piece[-1:] for piece in pieces])
        return cls(first, last, firsts, lasts, np.zeros((len(lasts), len(firsts)), np.int8))

    def may_split(self, left: Indices, right: Indices, splits: Callable[[str, str], bool]) -> npt.NDArray[np.bool_]:
        """For each two pieces side by side; `splits` is asked once for each pair of characters."""
        rows, columns = self.last[left], self.first[right]
        while (self._verdicts[rows, columns] == _UNKNOWN).any():
            place = int((self._verdicts[rows, columns] == _UNKNOWN).argmax())
            row, column = int(rows[place]), int(columns[place])
            self._verdicts[row, column] = _SOUND if splits(self.lasts[row], self.firsts[column]) else _UNSOUND
        possible: npt.NDArray[np.bool_] = self._verdicts[rows, columns] == _SOUND
        return possible


def _numbered(characters: Sequence[str]) -> tuple[Indices, list[str]]:
    known: dict[str, int] = {}
    numbers = np.array([known.setdefault(c, len(known)) for c in characters], np.int64)
    return numbers, list(known)
