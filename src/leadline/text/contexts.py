"""Tokens in context: what a text becomes where other text stands before or after it.

A tokenizer may mark the beginning of a text, and may glue white space to what follows. So a piece is tokenised behind
an anchor and, where it ends in white space, before a word that stands in for whatever comes; both are then taken off.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.contracts import Tokenizer
from leadline.core.seeds import rng

if TYPE_CHECKING:
    from leadline.core.types import Ids

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
