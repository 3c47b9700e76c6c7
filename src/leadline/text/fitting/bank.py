"""Counted pieces: every distinct piece of a haystack is tokenised once per tokenizer, and kept.

A document is then put together from pieces whose tokens are known. That is exact only where the tokenizer splits
at the joint anyway, so joints are proven: neighbours in a real text by tokenising that text whole, chance
neighbours once for each pair of touching tokens.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.cache import cache_folder, write_cache
from leadline.core.contracts import Tokenizer
from leadline.core.digest import digest
from leadline.core.types import PieceBank
from leadline.text.fitting.joints import (
    ANCHORS,
    FOLLOWER,
    PROOF_CHARACTERS,
    Edges,
    JointTable,
    adds_up,
    anchored_ends,
    encode_after,
    encode_between,
    encode_first,
    ends_after,
    follower_ids,
    lead_ids,
    splits_inside,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Ids, Indices

ENOUGH = 4096  # proven joints that speak for all where all are of a kind
FORMAT = 3  # of the cache files
REMEMBERED = 2048  # short texts whose tokens are kept


@dataclass(slots=True)
class CountedBank:
    """The pieces of a bank with their tokens, laid end to end in one array."""

    bank: PieceBank
    tokenizer: Tokenizer
    ids: Ids
    starts: Indices
    """Piece i is ids[starts[i] : starts[i + 1]]."""
    clean: npt.NDArray[np.bool_]
    """Whether pieces i and i + 1 of a contiguous bank may stand side by side."""
    careful: bool = False
    """Set when a whole document was found to be tokenised otherwise: joints outside the bank's own text are no
    longer trusted, and both sides are tokenised together."""
    documents: int = 0
    """Documents laid out with this bank so far."""
    _texts: npt.NDArray[np.object_] | None = None
    _touching: JointTable | None = None
    _edges: Edges = field(default_factory=lambda: Edges.of(()))
    _pairs: dict[tuple[int, int], bool] = field(default_factory=dict)
    _encoded: dict[tuple[str, bool, bool], Ids] = field(default_factory=dict)
    _piece_ends: dict[int, tuple[Sequence[int], int, int] | None] = field(default_factory=dict)
    """Where tokens end, by piece, as far as they were looked up; as `anchored_ends` gives them."""
    _begins_with_space: npt.NDArray[np.bool_] | None = None
    _ends: dict[tuple[str, bool], Sequence[int] | None] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    counts: Indices = field(init=False)
    typical: float = field(init=False)
    """Tokens of a piece, on average."""
    closes: npt.NDArray[np.bool_] | None = field(init=False)

    def __post_init__(self) -> None:
        self.counts = np.diff(self.starts)
        self.typical = float(self.counts.mean()) if len(self.counts) else 0.0
        closes = self.bank.closes
        self.closes = None if closes is None else np.asarray(closes, np.bool_)

    @property
    def tokens(self) -> int:
        return int(self.starts[-1])

    def gather(self, order: Indices) -> tuple[Ids, str]:
        """The tokens and the text of pieces in an order."""
        if len(order) == 0:
            return np.empty(0, np.int32), ""
        if _in_a_row(order):
            first, end = int(order[0]), int(order[-1]) + 1
            return self.ids[self.starts[first] : self.starts[end]], "".join(self.bank.pieces[first:end])
        counts = self.counts[order]
        shifts = self.starts[order] - np.concatenate(([0], np.cumsum(counts)[:-1]))
        gathered: Ids = self.ids[np.repeat(shifts, counts) + np.arange(int(counts.sum()))]
        return gathered, "".join(self.texts(order))

    def texts(self, order: Indices) -> list[str]:
        if self._texts is None:
            self._texts = np.array(self.bank.pieces, dtype=np.object_)
        found: list[str] = self._texts[order].tolist()
        return found

    def encode_many(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of texts that stand among others."""
        return _encode_pieces(self.tokenizer, texts)

    def encode(self, text: str, *, first: bool = False, followed: bool = False) -> Ids:
        """The ids of a text that stands first or later in a prompt, last or followed by more. Remembered, since
        instructions, and facts from one attempt at a layout to the next, come again and again."""
        followed = followed and text[-1:].isspace()  # only white space looks at what follows it
        key = (text, first, followed)
        found = self._encoded.get(key)
        if found is None:
            if len(self._encoded) >= REMEMBERED:
                self._encoded.clear()
            if first:
                found = encode_first(self.tokenizer, text, followed=followed)
            else:
                found = (encode_between if followed else encode_after)(self.tokenizer, text)
            self._encoded[key] = found
        return found

    def ends(self, text: str, *, first: bool = False) -> Sequence[int] | None:
        """For each token of `text`, the character at which it ends, where that can be told."""
        key = (text, first)
        known = self._ends.get(key, ())
        if known == ():  # none asked for this text yet; documents are laid out by many threads at once
            known = self.tokenizer.ends(text) if first else ends_after(self.tokenizer, text)
            if len(self._ends) >= REMEMBERED:
                self._ends.clear()
            self._ends[key] = known
        return known

    def piece_end(self, index: int, tokens: int) -> int:
        """The characters that the first tokens of a piece are; 0 where that cannot be told."""
        if index not in self._piece_ends:
            self._piece_ends[index] = anchored_ends(self.tokenizer, self.bank.pieces[index])
        found = self._piece_ends[index]
        if found is None:
            return 0
        ends, before, characters = found
        last = before + tokens - 1
        if last >= len(ends) or (last + 1 < len(ends) and ends[last + 1] == ends[last]):
            return 0  # the next token is a part of the same character
        return ends[last] - characters

    @property
    def begins_with_space(self) -> npt.NDArray[np.bool_]:
        if self._begins_with_space is None:
            self._begins_with_space = np.array([piece[:1].isspace() for piece in self.bank.pieces], np.bool_)
        return self._begins_with_space

    def piece(self, index: int) -> Ids:
        return self.ids[self.starts[index] : self.starts[index + 1]]

    def splits(self, left: str, left_ids: Ids, right: str, right_ids: Ids) -> bool:
        """Whether two texts side by side have just the tokens they have apart. Proven once for each pair of touching
        tokens: what a tokenizer splits on stands next to the joint."""
        if self.careful or not len(left_ids) or not len(right_ids):
            return False
        pair = (int(left_ids[-1]), int(right_ids[0]))
        known = self._pairs.get(pair)
        if known is None:
            known = self._pairs[pair] = splits_inside(self.tokenizer, left[-1:], right[:1]) and adds_up(
                self.tokenizer, left, left_ids, right, right_ids
            )
        return known

    def joints(self, order: Indices) -> npt.NDArray[np.bool_]:
        """For each neighbouring pair in an order, whether the tokenizer splits between them."""
        if self.bank.contiguous and _in_a_row(order):
            return self.clean[order[0] : order[-1]]
        left, right = order[:-1], order[1:]
        sound = np.zeros(len(left), np.bool_)
        follows = (right - left == 1) & self.bank.contiguous
        sound[follows] = self.clean[left[follows]]
        others = np.flatnonzero(~follows)
        if len(others) and not self.careful:
            sound[others] = self._chance_joints(left[others], right[others])
        return sound

    def _chance_joints(self, left: Indices, right: Indices) -> npt.NDArray[np.bool_]:
        """Proven once for each pair of touching tokens, all new pairs at once."""
        with self._lock:
            if self._touching is None:
                self._touching = JointTable.of(self.ids, self.starts)
                self._edges = Edges.of(self.bank.pieces)
            numbers = self._touching.numbers(left, right)
            if self.bank.alike and self._speak_for_all(self._touching, numbers, left, right):
                return np.ones(len(left), np.bool_)
            sound = self._edges.may_split(left, right, partial(splits_inside, self.tokenizer))
            left, right, numbers = left[sound], right[sound], numbers[sound]
            self._learn(self._touching, numbers, left, right, most=len(left))
            sound[sound] = self._touching.sound(numbers)
            return sound

    def _speak_for_all(self, touching: JointTable, numbers: Indices, left: Indices, right: Indices) -> bool:
        """Whether enough joints of a bank whose joints are all of a kind are proven, and none failed."""
        if touching.failed:
            return False
        self._learn(touching, numbers, left, right, most=max(ENOUGH - touching.proven, 0))
        return touching.proven >= ENOUGH and not touching.failed

    def _learn(self, touching: JointTable, numbers: Indices, left: Indices, right: Indices, most: int) -> None:
        new = touching.unknown(numbers)[:most] if most else ()
        if len(new):
            touching.learn(numbers[new], self._proven(left[new], right[new]))

    def _proven(self, left: Indices, right: Indices) -> npt.NDArray[np.bool_]:
        sound = np.zeros(len(left), np.bool_)
        sides = list(zip(self.texts(left), self.texts(right), strict=True))
        whole = self.encode_many([start[-PROOF_CHARACTERS:] + end for start, end in sides])
        for i, (ids, (start, end)) in enumerate(zip(whole, sides, strict=True)):
            mine, yours = self.piece(int(left[i])), self.piece(int(right[i]))
            if len(start) > PROOF_CHARACTERS:
                mine = encode_between(self.tokenizer, start[-PROOF_CHARACTERS:])
            if len(mine) and len(yours) and len(ids) == len(mine) + len(yours):
                sound[i] = splits_inside(self.tokenizer, start[-1:], end[:1]) and bool(
                    np.array_equal(ids, np.concatenate([mine, yours]))
                )
        return sound


def _in_a_row(order: Indices) -> bool:
    return int(order[-1] - order[0]) == len(order) - 1 and bool((order[1:] - order[:-1] == 1).all())


_counted: dict[tuple[str, str], CountedBank] = {}
_counting = threading.Lock()


def count_bank(bank: PieceBank, tokenizer: Tokenizer) -> CountedBank:
    """The bank in this tokenizer: from memory, from the cache folder, or counted now."""
    key = (bank.digest, tokenizer.fingerprint)
    with _counting:
        found = _counted.get(key)
        if found is None:
            file = cache_folder() / "banks" / f"{digest([FORMAT, *key], 32)}.npz"
            found = _load(file, bank, tokenizer) or _count(bank, tokenizer)
            if len(bank.pieces) > 200 and not file.is_file():
                _save(file, found)
            _counted[key] = found
        found.tokenizer = tokenizer  # an equal one from an earlier run may be a server that is there no more
    return found


def _count(bank: PieceBank, tokenizer: Tokenizer) -> CountedBank:
    each = _encode_pieces(tokenizer, bank.pieces)
    starts = np.concatenate(([0], np.cumsum([len(ids) for ids in each]))).astype(np.int64)
    ids = np.concatenate(each) if each else np.empty(0, np.int32)
    clean = np.zeros(max(len(each) - 1, 0), np.bool_)
    if bank.contiguous and len(each) > 1:
        [whole] = _encode_pieces(tokenizer, ["".join(bank.pieces)])
        if np.array_equal(whole, ids):
            clean[:] = True
        else:
            pairs = _encode_pieces(tokenizer, [a + b for a, b in zip(bank.pieces, bank.pieces[1:], strict=False)])
            for i, pair in enumerate(pairs):
                clean[i] = np.array_equal(pair, ids[starts[i] : starts[i + 2]])
    return CountedBank(bank, tokenizer, ids, starts, clean)


def _encode_pieces(tokenizer: Tokenizer, pieces: Sequence[str]) -> list[Ids]:
    """`encode_between` for many pieces, in one call of the tokenizer where the first anchor serves."""
    anchor = ANCHORS[0]
    lead, follower = lead_ids(tokenizer, anchor), follower_ids(tokenizer)
    spaced = [piece[-1:].isspace() for piece in pieces]
    each = tokenizer.encode_batch(
        [anchor + piece + (FOLLOWER if space else "") for piece, space in zip(pieces, spaced, strict=True)]
    )
    found = []
    begun = len(lead)
    for ids, piece, space in zip(each, pieces, spaced, strict=True):
        end = len(ids) - (len(follower) if space else 0)
        if ids[:begun].tolist() == lead and (not space or ids[end:].tolist() == follower):
            found.append(ids[begun:end])
        else:
            found.append(encode_between(tokenizer, piece))
    return found


def _load(file: Path, bank: PieceBank, tokenizer: Tokenizer) -> CountedBank | None:
    try:
        with np.load(file) as saved:
            return CountedBank(bank, tokenizer, saved["ids"], saved["starts"], saved["clean"])
    except (OSError, ValueError, KeyError, EOFError):
        return None  # absent or broken: it is only a cache


def _save(file: Path, counted: CountedBank) -> None:
    data = io.BytesIO()
    np.savez(data, ids=counted.ids, starts=counted.starts, clean=counted.clean)
    write_cache(file, data.getvalue())
