"""Anchors: where in a document the stretches stand that are repeated after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.errors import LengthError

if TYPE_CHECKING:
    from leadline.core.types import Ids, Indices


@dataclass(frozen=True, slots=True)
class Anchor:
    """The stretch starts at token `at` of the document, which is `depth` of the way to the last place it can have."""

    at: int
    depth_asked: float
    depth: float
    ambiguous: bool
    """Whether the stretch stands in the document more than once, and no place near by is better."""


def place_anchors(ids: Ids, depths: Sequence[float], *, query: int, answer: int) -> list[Anchor]:
    """One anchor for each depth (ascending): floor(depth * U), where U = tokens - query - answer.

    A query that stands in the document more than once does not say which answer is meant, so the anchor moves on token
    by token, up to the next one; the last of several moves back, so that all stay within the depths asked for.
    """
    room = len(ids) - query - answer
    if room < 1:
        raise LengthError(
            f"a document of {len(ids)} tokens has no room for {query} tokens to repeat and {answer} to score",
            where="anchors",
            fix="use longer documents, or smaller query and answer",
            floor=query + answer + 1,
        )
    wanted = [int(room * depth) for depth in depths]
    anchors = []
    for number, (depth, start) in enumerate(zip(depths, wanted, strict=True)):
        last = number == len(wanted) - 1
        if last and number:
            places = range(start, wanted[number - 1], -1)
        else:
            places = range(start, room + 1 if last else max(wanted[number + 1], start + 1))
        at = next((p for p in places if _occurrences(ids, p, query) == 1), None)
        found = start if at is None else at
        anchors.append(Anchor(found, depth, found / room, ambiguous=at is None))
    return anchors


def _occurrences(ids: Ids, at: int, query: int) -> int:
    wanted = ids[at : at + query]
    starts: Indices = np.flatnonzero(ids[: len(ids) - query + 1] == wanted[0])
    for offset in range(1, query):
        if len(starts) == 1:
            return 1
        starts = starts[ids[starts + offset] == wanted[offset]]
    return len(starts)
