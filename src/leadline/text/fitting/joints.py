"""What is known of the joints between pieces of a bank: one verdict for each pair of touching tokens.

What a tokenizer splits on stands next to the joint, so the last token of one piece and the first of the next decide;
and before that the two characters, since many tokenizers never split between, say, a letter and a dash.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.contracts import Tokenizer
from leadline.core.seeds import rng

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Ids, Indices


# --- Tokens in context: what a text becomes where other text stands before or after it.
#
# A tokenizer may mark the beginning of a text, and may glue white space to what follows. So a piece is tokenised behind
# an anchor and, where it ends in white space, before a word that stands in for whatever comes; both are then taken off.

IN_WORD_TRIALS = 64  # words tried before a joint within words is trusted
PROOF_CHARACTERS = 200  # of the text on the left that a proof looks at
ANCHORS = ("\n", "a", ".")
FOLLOWER = "A"


_leads: dict[tuple[str, str], list[int]] = {}


def lead_ids(tokenizer: Tokenizer, anchor: str) -> list[int]:
    """The tokens of an anchor; a list, since so few are compared quicker than an array."""
    key = (tokenizer.fingerprint, anchor)
    found = _leads.get(key)
    if found is None:
        found = _leads[key] = tokenizer.encode(anchor).tolist()
    return found


def follower_ids(tokenizer: Tokenizer) -> list[int]:
    """The tokens of the word that stands in for whatever follows."""
    return lead_ids(tokenizer, ANCHORS[0] + FOLLOWER)[len(lead_ids(tokenizer, ANCHORS[0])) :]


def encode_after(tokenizer: Tokenizer, text: str) -> Ids:
    """The ids of `text` where other text precedes it: no mark for the beginning of a text."""
    if not text:
        return np.empty(0, np.int32)
    for anchor in ANCHORS:
        lead = lead_ids(tokenizer, anchor)
        ids = tokenizer.encode(anchor + text)
        if len(ids) > len(lead) and ids[: len(lead)].tolist() == lead:
            return ids[len(lead) :]
    return tokenizer.encode(text)


def encode_between(tokenizer: Tokenizer, text: str) -> Ids:
    """The ids of `text` where other text precedes and follows it.

    Line breaks at the end of a text often become one token, and several when a word follows them.
    """
    if text[-1:].isspace():
        follower = follower_ids(tokenizer)
        ids = encode_after(tokenizer, text + FOLLOWER)
        if ids[-len(follower) :].tolist() == follower:
            return ids[: -len(follower)]
    return encode_after(tokenizer, text)


def encode_first(tokenizer: Tokenizer, text: str, *, followed: bool) -> Ids:
    """The ids of `text` at the beginning of a prompt."""
    if followed:
        follower = follower_ids(tokenizer)
        ids = tokenizer.encode(text + FOLLOWER)
        if ids[-len(follower) :].tolist() == follower:
            return ids[: -len(follower)]
    return tokenizer.encode(text)


def ends_after(tokenizer: Tokenizer, text: str) -> list[int] | None:
    """For each token that `encode_after` gives, the character at which it ends; None when it cannot be told."""
    found = anchored_ends(tokenizer, text)
    if found is None:
        return None
    ends, tokens, characters = found
    return [end - characters for end in ends[tokens:]]


def anchored_ends(tokenizer: Tokenizer, text: str) -> tuple[Sequence[int], int, int] | None:
    """Where tokens end when an anchor stands before `text`, and the tokens and characters of the anchor."""
    for anchor in ANCHORS:
        lead = lead_ids(tokenizer, anchor)
        ends = tokenizer.ends(anchor + text)
        if ends is None:
            return None
        if len(ends) > len(lead) and ends[len(lead) - 1] == len(anchor):
            return ends, len(lead), len(anchor)
    ends = tokenizer.ends(text)
    return None if ends is None else (ends, 0, 0)


def adds_up(tokenizer: Tokenizer, left: str, left_ids: Ids, right: str, right_ids: Ids) -> bool:
    if len(left) > PROOF_CHARACTERS:
        left = left[-PROOF_CHARACTERS:]
        left_ids = encode_between(tokenizer, left)
    return np.array_equal(encode_between(tokenizer, left + right), np.concatenate([left_ids, right_ids]))


_inside: dict[tuple[str, str, str], bool] = {}


def splits_inside(tokenizer: Tokenizer, left: str, right: str) -> bool:
    """Whether a tokenizer always splits between two such characters. Beside white space all do, but within it they may
    do otherwise for what comes next; within a word only those do that cut words up before looking at them, so there it
    is tried on words drawn at random."""
    if left.isspace() or right.isspace():
        return not (left.isspace() and right.isspace())
    kinds = (tokenizer.fingerprint, _kind(left), _kind(right))
    if kinds not in _inside:
        draw = rng("joints", *kinds[1:])
        _inside[kinds] = all(_a_word_splits(tokenizer, left, right, draw) for _ in range(IN_WORD_TRIALS))
    return _inside[kinds]


def _kind(character: str) -> str:
    return "letter" if character.isalpha() else "digit" if character.isdigit() else character


def _a_word_splits(tokenizer: Tokenizer, left: str, right: str, draw: random.Random) -> bool:
    def part(edge: str) -> str:
        return edge if not edge.isalnum() else draw.choice("0123456789" if edge.isdigit() else "abcdefghinorst")

    before = " " + "".join(draw.choices("abcdeforst0123456789", k=draw.randrange(1, 9))) + part(left)
    after = part(right) + "".join(draw.choices("abcdeforst0123456789", k=draw.randrange(1, 9)))
    return adds_up(tokenizer, before, encode_after(tokenizer, before), after, encode_after(tokenizer, after))


# --- What is known of the joints between pieces of a bank: one verdict for each pair of touching tokens.

_UNKNOWN, _SOUND, _UNSOUND = 0, 1, 2
TABLE_ENTRIES = 1 << 25
"""Up to so many pairs a plain table is kept; beyond, a sorted list of those that were met."""


@dataclass(slots=True)
class JointTable:
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
    def of(cls, ids: Ids, starts: Indices) -> JointTable:
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
