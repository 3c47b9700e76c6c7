"""Counted pieces: every distinct piece of a haystack is tokenised once per tokenizer, and kept in the cache folder.

A document is assembled from pieces whose tokens are known. That is exact only where the tokenizer splits at the joint
anyway, so joints are proven: neighbours in a real text by tokenising that text whole, other neighbours once for each
pair of touching tokens and white space.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.drafts import PieceBank
from leadline.core.errors import SourceError
from leadline.core.files import cache_folder, read_cache, write_cache
from leadline.core.seeds import digest
from leadline.text.fitting.joints import (
    PROOF_CHARACTERS,
    SOUND,
    UNKNOWN,
    ContextTokenizer,
    JointTable,
    ends_word,
    first_edge,
    last_edge,
    number_distinct,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Ids, Indices

ENOUGH = 4096
"""Proven joints that suffice for a bank whose joints are all alike."""
LONG_PIECE = 400
"""Tokens of a piece from which the ends of all its tokens are not looked up. Longer ones, such as lists without full
stops, are left out where the text has enough others: no fact could be placed inside them."""
SHORT_GROUP = 16
"""Pieces of a group that is tokenised ahead: longer ones do not come again."""
MOST_GROUPS = 100_000
"""Groups of pieces whose tokens are kept."""
FORMAT = 5
"""Version of the cache files."""
WORTH_CACHING = 200
"""Banks of more pieces are written to the cache folder."""


@dataclass
class CountedBank:
    """The pieces of a bank with their tokens, end to end in one array."""

    bank: PieceBank
    context: ContextTokenizer
    ids: Ids
    starts: Indices
    """Piece i is ids[starts[i] : starts[i + 1]]."""
    clean: npt.NDArray[np.bool_]
    """Whether the joint of pieces i and i + 1 of a contiguous bank is sound."""
    distrust_joints: bool = False
    """Set when a whole document was found to have other tokens than its parts: from then on joints outside the bank's
    own text are not trusted, and both sides are tokenised together."""
    documents: int = 0
    """Documents that were fitted with this bank."""
    _proven: int = 0
    """Joints in other orders than the bank's that were found sound."""
    _failed: int = 0
    _pairs: dict[tuple[int, int, str, str], bool] = field(default_factory=dict)
    _with_groups: tuple[Ids, Indices, npt.NDArray[np.object_]] = field(init=False)
    """Tokens, starts and texts of all pieces, and of groups of them after that."""
    _groups: dict[tuple[int, ...], int] = field(default_factory=dict)
    """Pieces that were tokenised together, and where they are in `_with_groups`."""
    _piece_ends: dict[int, tuple[Sequence[int], int, int] | None] = field(default_factory=dict)
    """By piece, as `ContextTokenizer.anchored_ends` gives them."""

    def __post_init__(self) -> None:
        if not len(self.ids):
            raise self.no_tokens()
        self.counts: Indices = np.diff(self.starts)
        self.mean_tokens = float(self.counts.mean())
        self.arranged_tokens = self.mean_tokens
        """Of a piece in the last document: in generated text some pieces are drawn more often than others."""
        ends_sentence = self.bank.ends_sentence
        self.ends_sentence = None if ends_sentence is None else np.asarray(ends_sentence, np.bool_)
        self._forget_groups()

    def no_tokens(self) -> SourceError:
        return SourceError(
            f"the tokenizer gives no tokens for the haystack {self.bank.name!r}",
            where=self.context.tokenizer.fingerprint,
            fix="give the model's own tokenizer; this one may be damaged",
        )

    def id_parts(self, order: Indices) -> list[bytes]:
        """The tokens of pieces in an order, in parts to join."""
        if self.bank.contiguous and len(order) and _is_consecutive(order):
            first, end = int(order[0]), int(order[-1]) + 1
            return [self.ids[self.starts[first] : self.starts[end]].tobytes()]
        parts: list[bytes] = self._id_array[order].tolist()
        return parts

    def texts(self, order: Indices) -> list[str]:
        """The texts of pieces in an order."""
        if self.bank.contiguous and len(order) and _is_consecutive(order):
            return list(self.bank.pieces[int(order[0]) : int(order[-1]) + 1])
        texts: list[str] = self._text_array[order].tolist()
        return texts

    def piece(self, index: int) -> Ids:
        return self.ids[self.starts[index] : self.starts[index + 1]]

    def piece_end(self, index: int, tokens: int) -> int:
        """The number of characters in the first `tokens` tokens of a piece; 0 when it is unknown, or if the next token
        is a part of the same character."""
        anchored = self._anchored_ends(index)
        if anchored is None:
            return 0
        ends, before, characters = anchored
        last = before + tokens - 1
        if last >= len(ends) or (last + 1 < len(ends) and ends[last + 1] == ends[last]):
            return 0
        return ends[last] - characters

    def token_end(self, index: int, tokens: int) -> int | None:
        """The character at which a token of a piece ends; None when it is unknown, or if the piece has another number
        of tokens in its place."""
        anchored = self._anchored_ends(index)
        if anchored is None:
            return None
        ends, before, characters = anchored
        return ends[before + tokens - 1] - characters if len(ends) - before == self.counts[index] else None

    def may_end_word(self, index: int, tokens: int) -> bool:
        """Whether a word ends with a token of a piece; True where `token_end` does not know."""
        anchored = self._anchored_ends(index)
        if anchored is None:
            return True
        ends, before, characters = anchored
        return len(ends) - before != self.counts[index] or ends_word(
            self.bank.pieces[index], ends[before + tokens - 1] - characters
        )

    def _anchored_ends(self, index: int) -> tuple[Sequence[int], int, int] | None:
        if index not in self._piece_ends:
            self._piece_ends[index] = self.context.anchored_ends(self.bank.pieces[index])
        return self._piece_ends[index]

    @cached_property
    def has_long_pieces(self) -> bool:
        return bool((self.counts > LONG_PIECE).any())

    def gather_groups(self, order: Indices, bounds: Indices) -> tuple[Ids, str]:
        """The tokens and the text of groups of pieces: those from bounds[n] to bounds[n + 1] are tokenised together."""
        firsts, sizes = order[bounds[:-1]], np.diff(bounds)
        several = np.flatnonzero(sizes > 1).tolist()
        groups = [tuple(order[bounds[n] : bounds[n + 1]].tolist()) for n in several]
        self._keep_groups(groups)
        firsts[several] = [self._groups[group] for group in groups]
        ids, starts, texts = self._with_groups
        counts = starts[firsts + 1] - starts[firsts]
        shifts = starts[firsts] - (np.cumsum(counts) - counts)
        return ids[np.repeat(shifts, counts) + np.arange(int(counts.sum()))], "".join(texts[firsts].tolist())

    def learn_groups(self, order: Indices, sound: npt.NDArray[np.bool_]) -> None:
        """Tokenises the new groups of a whole order in one call; but for those that a fact will divide, they are those
        of its stretches."""
        if self.distrust_joints or sound.all() or not sound.any():
            return
        ends = np.concatenate((sound.nonzero()[0] + 1, [len(order)]))
        begins = np.concatenate(([0], ends[:-1]))
        several = (ends - begins > 1) & (ends - begins <= SHORT_GROUP)
        self._keep_groups([tuple(order[begins[n] : ends[n]].tolist()) for n in several.nonzero()[0].tolist()])

    def _keep_groups(self, groups: Sequence[tuple[int, ...]]) -> None:
        if len(self._groups) > MOST_GROUPS:
            self._groups.clear()
            self._forget_groups()
        new = [group for group in dict.fromkeys(groups) if group not in self._groups]
        if new:
            self._add_groups(new)

    def _add_groups(self, groups: Sequence[tuple[int, ...]]) -> None:
        """Keeps new groups as further pieces: the end of a line and the next indentation come again and again."""
        ids, starts, texts = self._with_groups
        written = ["".join([self.bank.pieces[i] for i in group]) for group in groups]
        encoded = self.context.encode_pieces(written)
        self._groups.update((group, len(texts) + n) for n, group in enumerate(groups))
        ends = starts[-1] + np.cumsum([len(each) for each in encoded])
        self._with_groups = (
            np.concatenate([ids, *encoded]),
            np.concatenate([starts, ends]),
            np.concatenate([texts, np.array(written, dtype=np.object_)]),
        )

    def _forget_groups(self) -> None:
        self._with_groups = (self.ids, self.starts, self._text_array)

    @cached_property
    def lengths(self) -> Indices:
        """Characters of each piece."""
        return np.fromiter(map(len, self.bank.pieces), np.int64, len(self.bank.pieces))

    @cached_property
    def begins_with_space(self) -> npt.NDArray[np.bool_]:
        return np.array([piece[:1].isspace() for piece in self.bank.pieces], np.bool_)

    @cached_property
    def separator(self) -> str:
        """White space between two texts of which neither brings its own: the line breaks that all pieces end with, or
        a space."""
        ends = {piece[len(piece.rstrip()) :] for piece in self.bank.pieces}
        shortest = min(ends, key=len, default="")
        return self.bank.ending or (shortest if all(end.endswith(shortest) for end in ends) else "") or " "

    def splits(self, left: str, left_ids: Ids, right: str, right_ids: Ids) -> bool:
        """Whether the joint of two texts is sound. Proven once for each pair of touching tokens and edges."""
        if self.distrust_joints or not len(left_ids) or not len(right_ids):
            return False
        edges = last_edge(left), first_edge(right)
        pair = (int(left_ids[-1]), int(right_ids[0]), *edges)
        known = self._pairs.get(pair)
        if known is None:
            known = self._pairs[pair] = self.context.splits_characters(*edges) and self.context.is_sound(
                left, left_ids, right, right_ids
            )
        return known

    def joints(self, order: Indices) -> npt.NDArray[np.bool_]:
        """Whether the joint is sound, for each neighbouring pair of pieces in an order."""
        if self.bank.contiguous and _is_consecutive(order):
            return self.clean[order[0] : order[-1]]
        left, right = order[:-1], order[1:]
        sound = np.zeros(len(left), np.bool_)
        if not self.bank.contiguous:
            return sound if self.distrust_joints or not len(left) else self._other_joints(left, right)
        follows = right - left == 1
        sound[follows] = self.clean[left[follows]]
        others = np.flatnonzero(~follows)
        if len(others) and not self.distrust_joints:
            sound[others] = self._other_joints(left[others], right[others])
        return sound

    def _other_joints(self, left: Indices, right: Indices) -> npt.NDArray[np.bool_]:
        """Joints of pieces that are not neighbours in the bank; all new pairs are judged at once."""
        table = self._joint_table
        if not table.is_whole and self._trusts_others:
            return self._characters_split(left, right)
        pairs = table.pairs(left, right)
        verdicts = table.look_up(pairs)
        unknown = (verdicts == UNKNOWN).nonzero()[0]
        if len(unknown):
            new = unknown[np.unique(pairs[unknown], return_index=True)[1]]
            table.learn(pairs[new], self._judge(left[new], right[new]))
            verdicts = table.look_up(pairs)
        sound: npt.NDArray[np.bool_] = verdicts == SOUND
        return sound

    @property
    def _trusts_others(self) -> bool:
        """Whether enough joints of a bank in which all are alike are proven to trust the others, where the tokenizer
        splits between their characters."""
        return self.bank.uniform_joints and self._proven >= ENOUGH and not self._failed

    def _judge(self, left: Indices, right: Indices) -> npt.NDArray[np.bool_]:
        """Which of some new joints are sound."""
        sound = self._characters_split(left, right)
        candidates = sound.nonzero()[0]
        if self.bank.uniform_joints and not self._failed:
            some = candidates[: max(ENOUGH - self._proven, 0)]
            sound[some] = self._prove(left[some], right[some])
            candidates = candidates[len(some) :]
        if not self._trusts_others:
            sound[candidates] = self._prove(left[candidates], right[candidates])
        return sound

    def _characters_split(self, left: Indices, right: Indices) -> npt.NDArray[np.bool_]:
        """Whether the tokenizer can split at all between the two edges of each joint."""
        (firsts, first), (lasts, last) = self._edges
        pairs = last[left] * len(firsts) + first[right]
        splits = np.zeros(len(lasts) * len(firsts), np.bool_)
        for pair in np.flatnonzero(np.bincount(pairs)).tolist():
            before, after = divmod(pair, len(firsts))
            splits[pair] = self.context.splits_characters(lasts[before], firsts[after])
        at_joints: npt.NDArray[np.bool_] = splits[pairs]
        return at_joints

    def _prove(self, left: Indices, right: Indices) -> npt.NDArray[np.bool_]:
        """Which of some joints are sound, by tokenising both sides together."""
        sides = list(zip(self.texts(left), self.texts(right), strict=True))
        whole = self.context.encode_pieces([start[-PROOF_CHARACTERS:] + end for start, end in sides])
        sound = np.zeros(len(left), np.bool_)
        for i, (ids, (start, _)) in enumerate(zip(whole, sides, strict=True)):
            left_ids, right_ids = self.piece(int(left[i])), self.piece(int(right[i]))
            if len(start) > PROOF_CHARACTERS:
                left_ids = self.context.encode_between(start[-PROOF_CHARACTERS:])
            if len(left_ids) and len(right_ids) and len(ids) == len(left_ids) + len(right_ids):
                sound[i] = bool(np.array_equal(ids, np.concatenate([left_ids, right_ids])))
        self._proven += int(sound.sum())
        self._failed += int((~sound).sum())
        return sound

    @cached_property
    def _text_array(self) -> npt.NDArray[np.object_]:
        return np.array(self.bank.pieces, dtype=np.object_)

    @cached_property
    def _id_array(self) -> npt.NDArray[np.object_]:
        """The tokens of each piece, as bytes: those of thousands of pieces are joined faster than arrays are."""
        parts, everything = np.empty(len(self.counts), np.object_), self.ids.tobytes()
        places = (self.starts * self.ids.itemsize).tolist()
        parts[:] = [everything[start:end] for start, end in itertools.pairwise(places)]
        return parts

    @cached_property
    def _joint_table(self) -> JointTable:
        (_, first), (_, last) = self._edges
        return JointTable(first, last, self.ids, self.starts)

    @cached_property
    def _edges(self) -> tuple[tuple[list[str], Indices], tuple[list[str], Indices]]:
        """The distinct first edges and the index of that of each piece; the same for last edges."""
        pieces = self.bank.pieces
        return number_distinct([first_edge(piece) for piece in pieces]), number_distinct(
            [last_edge(piece) for piece in pieces]
        )


def _is_consecutive(order: Indices) -> bool:
    return int(order[-1] - order[0]) == len(order) - 1 and bool((order[1:] - order[:-1] == 1).all())


def count_bank(bank: PieceBank, context: ContextTokenizer) -> CountedBank:
    """The bank in a tokenizer, from the cache folder or counted now."""
    key = [FORMAT, bank.digest, context.tokenizer.fingerprint]
    file = cache_folder() / "banks" / f"{digest(key, 32)}.npz"
    saved = read_cache(file, lambda data: dict(np.load(io.BytesIO(data))))
    if saved is not None:
        return CountedBank(bank, context, saved["ids"], saved["starts"], saved["clean"])
    counted = _count(bank, context)
    if len(bank.pieces) > WORTH_CACHING:
        data = io.BytesIO()
        np.savez(data, ids=counted.ids, starts=counted.starts, clean=counted.clean)
        write_cache(file, data.getvalue())
    return counted


def _count(bank: PieceBank, context: ContextTokenizer) -> CountedBank:
    """The tokens of all pieces, and which joints of neighbours are sound: all of them if the whole text has the same
    tokens, else by proof."""
    each = context.encode_pieces(bank.pieces)
    starts = np.concatenate(([0], np.cumsum([len(ids) for ids in each]))).astype(np.int64)
    ids = np.concatenate(each) if each else np.empty(0, np.int32)
    clean = np.zeros(max(len(each) - 1, 0), np.bool_)
    if bank.contiguous and len(each) > 1:
        [whole] = context.encode_pieces(["".join(bank.pieces)])
        clean[:] = np.array_equal(whole, ids) or _prove_neighbours(bank.pieces, each, context)
    return CountedBank(bank, context, ids, starts, clean)


def _prove_neighbours(pieces: Sequence[str], each: Sequence[Ids], context: ContextTokenizer) -> list[bool]:
    """Whether the joint of each piece and the next is sound. Proven once for all joints with the same characters, up
    to the nearest that are no white space, and the same tokens on both sides."""
    pairs = list(itertools.pairwise(pieces))
    keys = []
    for i, (left, right) in enumerate(pairs):
        sides = left[len(left.rstrip()) - 1 :], right[: len(right) - len(right.lstrip()) + 1]
        keys.append((*sides, each[i][-1:].tobytes(), each[i + 1][:1].tobytes()))
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    encoded = context.encode_pieces(["".join(pairs[i]) for i in first.values()])
    sound = {
        key: np.array_equal(ids, np.concatenate(each[i : i + 2]))
        for (key, i), ids in zip(first.items(), encoded, strict=True)
    }
    return [sound[key] for key in keys]
