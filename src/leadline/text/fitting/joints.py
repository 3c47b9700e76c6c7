"""Tokens in context: the tokens of a text that other text precedes or follows, and the places where two texts can be
joined.

A joint is sound when two texts side by side have exactly the tokens that they have apart.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import numpy as np

from leadline.core.contracts import Tokenizer
from leadline.core.seeds import rng

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Ids, Indices

T = TypeVar("T", bound=Hashable)
ANCHORS = ("\n", "a", ".")
FOLLOWER = "A"
IN_WORD_TRIALS = 64
"""Random words that a tokenizer must split before a joint inside words is trusted."""
PROOF_CHARACTERS = 200
"""Characters to the left of a joint that a proof takes into account."""
CACHED_TEXTS = 2048
MANY_PIECES = 1000
"""Of more pieces some are tried behind each anchor, before all of them are encoded behind the best."""


@runtime_checkable
class KnownVocabulary(Protocol):
    """A tokenizer whose vocabulary is known, not only its tokens of a text."""

    def has_token_with(self, characters: str) -> bool:
        """Whether any token contains these ASCII characters side by side."""
        ...


class ContextTokenizer:
    """Tokenises parts of a prompt, and caches the results.

    A tokenizer may mark the beginning of a text, and may attach white space to the word after it. So a part is
    tokenised behind an anchor and, if it ends in white space, before a follower; the tokens of both are then removed.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._anchor_ids: dict[str, list[int]] = {}
        self._encoded: dict[tuple[str, bool, bool], Ids] = {}
        self._ends: dict[tuple[str, bool], Sequence[int] | None] = {}
        self._character_splits: dict[tuple[str, str], bool] = {}
        self._class_splits: dict[tuple[str, str], bool] = {}

    def encode(self, text: str, *, first: bool = False, followed: bool = False) -> Ids:
        """The ids of a text that is first or later in a prompt, last or followed by more text. Cached: instructions,
        and facts in repeated attempts at a layout, are encoded many times."""
        followed = followed and text[-1:].isspace()  # only trailing white space depends on what follows
        key = (text, first, followed)
        ids = self._encoded.get(key)
        if ids is None:
            if len(self._encoded) >= CACHED_TEXTS:
                self._encoded.clear()
            ids = self._encoded[key] = self._encode(text, first, followed)
        return ids

    def encode_ahead(self, texts: Sequence[str]) -> None:
        """Encodes texts that stand inside a prompt, in one call, for `encode` to find."""
        new = [text for text in dict.fromkeys(texts) if text and (text, False, text[-1].isspace()) not in self._encoded]
        if len(self._encoded) + len(new) < CACHED_TEXTS:
            for text, ids in zip(new, self.encode_pieces(new), strict=True):
                self._encoded[text, False, text[-1].isspace()] = ids

    def encode_pieces(self, pieces: Sequence[str]) -> list[Ids]:
        """The ids of texts that other text precedes and follows, in one call of the tokenizer where possible."""
        ids_of: dict[int, Ids] = {}
        anchors: Sequence[str] = ANCHORS
        if len(pieces) > MANY_PIECES:
            few = dict(enumerate(pieces[:: len(pieces) // 32]))
            anchors = sorted(ANCHORS, key=lambda anchor: -len(self._behind(anchor, few)))
        for anchor in anchors:
            ids_of |= self._behind(anchor, {i: piece for i, piece in enumerate(pieces) if i not in ids_of})
        return [ids_of[i] if i in ids_of else self.encode_between(piece) for i, piece in enumerate(pieces)]

    def _behind(self, anchor: str, pieces: Mapping[int, str]) -> dict[int, Ids]:
        """The ids of pieces behind an anchor, without those whose beginning it is joined with: a line break may be
        joined with indentation."""
        if not pieces:
            return {}
        lead, follower = self._anchor(anchor), self._follower()
        spaced = [piece[-1:].isspace() for piece in pieces.values()]
        texts = [
            anchor + piece + (FOLLOWER if space else "") for piece, space in zip(pieces.values(), spaced, strict=True)
        ]
        ids_by_piece = {}
        for i, space, ids in zip(pieces, spaced, self.tokenizer.encode_batch(texts), strict=True):
            end = len(ids) - (len(follower) if space else 0)
            if ids[: len(lead)].tolist() == lead and (not space or ids[end:].tolist() == follower):
                ids_by_piece[i] = ids[len(lead) : end]
        return ids_by_piece

    def encode_between(self, text: str) -> Ids:
        """The ids of a text that other text precedes and follows; not cached."""
        return self._encode(text, first=False, followed=text[-1:].isspace())

    def ends(self, text: str, *, first: bool = False) -> Sequence[int] | None:
        """The character at which each token of `text` ends; None when the tokenizer does not say."""
        key = (text, first)
        if key not in self._ends:
            if len(self._ends) >= CACHED_TEXTS:
                self._ends.clear()
            self._ends[key] = self.tokenizer.ends(text) if first else self._ends_inside(text)
        return self._ends[key]

    def anchored_ends(self, text: str) -> tuple[Sequence[int], int, int] | None:
        """Where tokens end when an anchor precedes `text`, and the anchor's tokens and characters; not cached."""
        for anchor in ANCHORS:
            lead = self._anchor(anchor)
            ends = self.tokenizer.ends(anchor + text)
            if ends is None:
                return None
            if len(ends) > len(lead) and ends[len(lead) - 1] == len(anchor):
                return ends, len(lead), len(anchor)
        ends = self.tokenizer.ends(text)
        return None if ends is None else (ends, 0, 0)

    def splits_characters(self, left: str, right: str) -> bool:
        """Whether the tokenizer always splits between two such edges of texts.

        All tokenizers split beside white space, but inside it at most before the last space, which belongs to the next
        word. Inside a word only those split that pre-tokenise words into parts. Both are tested on random words. A word
        is never split where a token holds both characters: a vocabulary learned from code may have `def"`, which random
        words hardly ever contain.
        """
        if left.isspace() or right[:1].isspace():
            return not (left.isspace() and right[:1].isspace()) or (
                not right.isspace() and self._splits_words(left, right)
            )
        splits = self._character_splits.get((left, right))
        if splits is None:
            splits = not self._are_in_a_token(left + right) and self._splits_words(left, right)
            self._character_splits[left, right] = splits
        return splits

    def _are_in_a_token(self, characters: str) -> bool:
        return isinstance(self.tokenizer, KnownVocabulary) and self.tokenizer.has_token_with(characters)

    def _splits_words(self, left: str, right: str) -> bool:
        """Whether random words are split between characters of these classes."""
        key = (_character_class(left), right[:-1] + _character_class(right[-1]))
        if key not in self._class_splits:
            draw = rng("joints", *key)
            self._class_splits[key] = all(self._splits_word(left, right, draw) for _ in range(IN_WORD_TRIALS))
        return self._class_splits[key]

    def is_sound(self, left: str, left_ids: Ids, right: str, right_ids: Ids) -> bool:
        """Whether the tokens of two texts side by side are those of the left one and those of the right one."""
        if len(left) > PROOF_CHARACTERS:
            left = left[-PROOF_CHARACTERS:]
            left_ids = self.encode_between(left)
        return np.array_equal(self.encode_between(left + right), np.concatenate([left_ids, right_ids]))

    def _anchor(self, text: str) -> list[int]:
        """The tokens of an anchor; a list, because so few are compared faster than an array."""
        ids = self._anchor_ids.get(text)
        if ids is None:
            ids = self._anchor_ids[text] = self.tokenizer.encode(text).tolist()
        return ids

    def _follower(self) -> list[int]:
        return self._anchor(ANCHORS[0] + FOLLOWER)[len(self._anchor(ANCHORS[0])) :]

    def _encode(self, text: str, first: bool, followed: bool) -> Ids:
        """Line breaks at the end of a text often become one token, and several when a word follows them."""
        encode = self.tokenizer.encode if first else self._after_anchor
        if followed:
            follower = self._follower()
            ids = encode(text + FOLLOWER)
            if ids[-len(follower) :].tolist() == follower:
                return ids[: -len(follower)]
        return encode(text)

    def _after_anchor(self, text: str) -> Ids:
        if not text:
            return np.empty(0, np.int32)
        for anchor in ANCHORS:
            lead = self._anchor(anchor)
            ids = self.tokenizer.encode(anchor + text)
            if len(ids) > len(lead) and ids[: len(lead)].tolist() == lead:
                return ids[len(lead) :]
        return self.tokenizer.encode(text)

    def _ends_inside(self, text: str) -> list[int] | None:
        anchored = self.anchored_ends(text)
        if anchored is None:
            return None
        ends, tokens, characters = anchored
        return [end - characters for end in ends[tokens:]]

    def _splits_word(self, left: str, right: str, draw: random.Random) -> bool:
        def like(edge: str) -> str:
            if not edge[-1].isalnum():
                return edge
            return edge[:-1] + draw.choice("0123456789" if edge[-1].isdigit() else "abcdefghinorst")

        before = " " + "".join(draw.choices("abcdeforst0123456789", k=draw.randrange(1, 9))) + like(left)
        if left.isspace():
            before = before[: -len(left)] + draw.choice(("", ".", "):", '",')) + left
        after = like(right) + "".join(draw.choices("abcdeforst0123456789", k=draw.randrange(1, 9)))
        return self.is_sound(before, self._after_anchor(before), after, self._after_anchor(after))


def ends_word(text: str, end: int) -> bool:
    """Whether a word ends at a character of a text, or nothing precedes it."""
    if end == 0:
        return True
    return not text[end - 1].isspace() and (end == len(text) or text[end].isspace())


def first_edge(text: str) -> str:
    """The white space that a text begins with, or its first character; both where it begins with one space."""
    if not text[:1].isspace():
        return text[:1]
    spaces = len(text) - len(text.lstrip())
    return text[: max(spaces, 1) + (text[:spaces] == " ")]


def last_edge(text: str) -> str:
    """The white space that a text ends with, or its last character: `\\n\\n` may be one token before a digit, and two
    before a letter."""
    if not text[-1:].isspace():
        return text[-1:]
    return text[len(text.rstrip()) :]


def _character_class(character: str) -> str:
    return "letter" if character.isalpha() else "digit" if character.isdigit() else character


UNKNOWN, UNSOUND, SOUND = range(3)
MOST_PAIRS = 1 << 24
"""Pairs of which a whole table is kept; of more pairs those that came up."""


class JointTable:
    """For pieces in any order: whether joints are sound, one verdict for each pair of touching tokens and edges.

    What a tokenizer splits on is next to the joint, so the end of the left piece and the beginning of the right piece
    decide.
    """

    def __init__(self, first_edges: Indices, last_edges: Indices, ids: Ids, starts: Indices) -> None:
        """The table of pieces whose tokens are ids[starts[i] : starts[i + 1]]; their edges as numbers."""
        last_ids, first_ids = ids[np.maximum(starts[1:] - 1, 0)], ids[np.minimum(starts[:-1], len(ids) - 1)]
        lasts, self._last = number_distinct_pairs(last_ids, last_edges)
        firsts, self._first = number_distinct_pairs(first_ids, first_edges)
        self._last *= firsts
        size = lasts * firsts
        self._table = np.zeros(size if size <= MOST_PAIRS else 0, np.int8)
        self._pairs, self._verdicts = np.zeros(0, np.int64), np.zeros(0, np.int8)
        """Where there is no whole table: pairs with a verdict, ascending."""

    @property
    def is_whole(self) -> bool:
        """Whether there is a verdict at hand for every pair, known or not."""
        return bool(len(self._table))

    def pairs(self, left: Indices, right: Indices) -> Indices:
        """The number of the pair at each joint."""
        return self._last[left] + self._first[right]

    def look_up(self, pairs: Indices) -> npt.NDArray[np.int8]:
        """The verdict on each pair."""
        if self.is_whole:
            return self._table[pairs]
        if not len(self._pairs):
            return np.zeros(len(pairs), np.int8)
        places = np.minimum(self._pairs.searchsorted(pairs), len(self._pairs) - 1)
        verdicts: npt.NDArray[np.int8] = self._verdicts[places] * (self._pairs[places] == pairs)
        return verdicts

    def learn(self, pairs: Indices, sound: npt.NDArray[np.bool_]) -> None:
        """Adds verdicts on distinct pairs that had none."""
        verdicts = np.where(sound, SOUND, UNSOUND).astype(np.int8)
        if self.is_whole:
            self._table[pairs] = verdicts
            return
        all_pairs = np.concatenate([self._pairs, pairs])
        order = all_pairs.argsort()
        self._pairs, self._verdicts = all_pairs[order], np.concatenate([self._verdicts, verdicts])[order]


def number_distinct(values: Iterable[T]) -> tuple[list[T], Indices]:
    """The distinct values in the order they come first, and the number of each value among them."""
    known: dict[T, int] = {}
    numbers = [known.setdefault(value, len(known)) for value in values]
    return list(known), np.array(numbers, np.int64)


def number_distinct_pairs(first: Indices | Ids, second: Indices) -> tuple[int, Indices]:
    """How many distinct pairs there are, and the number of each among them in the order they come first."""
    pairs = first.astype(np.int64) * (int(second.max(initial=0)) + 1) + second
    distinct, come_first, numbers = np.unique(pairs, return_index=True, return_inverse=True)
    ranks = np.empty(len(distinct), np.int64)
    ranks[come_first.argsort()] = np.arange(len(distinct))
    return len(distinct), ranks[numbers]
