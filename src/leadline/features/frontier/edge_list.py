"""A list of directed edges with an exact number of tokens, one edge a line.

    lanter -> mobesu

A node has `degree` edges that lead away from it on average, from none to twice as many, in shuffled order, and one node
in twelve is one to which many edges lead: neither how often a node occurs nor on which side shows what is asked for.
The edges that questions are about are planted between these lines, and their nodes are in no other line, so an answer
depends on planted edges alone. A longer list begins with the shorter one.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from leadline.core.drafts import PieceBank, SegmentSize
from leadline.core.seeds import Split, bulk_rng, digest_text, split_of
from leadline.tasks.placement import PAD, SPARE, fill_lines, without_pads
from leadline.tasks.words import list_words

if TYPE_CHECKING:
    from leadline.core.types import Indices

NodeNames = Literal["words", "hex"]
SIZES = (1 << 12, 1 << 14, 1 << 17, 1 << 20, 1 << 23)
"""Lengths in tokens for which there is a bank. An edge has at least three tokens in every tokenizer."""
KEPT_NODES = 4096
"""Nodes at the beginning of each bank that are used for planted edges only."""
HEX_DIGITS = 10
HUB_EVERY, HUB_SHARE = 12, 0.8
"""One node in HUB_EVERY is a hub; to it leads the first edge of this share of its neighbours in the order of nodes."""


def edge(source: str, target: str) -> str:
    return f"{source} -> {target}"


@dataclass(frozen=True, slots=True)
class _EdgeBank:
    bank: PieceBank
    names: tuple[str, ...]
    """Piece i is the name of node i and an arrow; piece len(names) + i the name after an arrow; the pad is last."""


@cache
def _bank(size: int, kind: NodeNames, split: Split) -> _EdgeBank:
    names = node_names(KEPT_NODES + size // 6 + 2 * SPARE, kind, split)
    pieces = [*(f"{n} ->" for n in names), *(f" {n}\n" for n in names), PAD]
    closes = (*(False for _ in names), *(True for _ in names), True)
    digest = digest_text("\n".join(pieces))
    return _EdgeBank(
        PieceBank(f"edges of {kind}", digest, pieces, contiguous=False, ends_sentence=closes, ending="\n"), names
    )


@cache
def node_names(count: int, kind: NodeNames, split: Split) -> tuple[str, ...]:
    """Coined words of six letters, or ten hexadecimal digits as in the published set."""
    if kind == "words":
        return list_words(count, "coined", split)[:count]
    names: list[str] = []
    number = 0
    while len(names) < count:
        name = hashlib.blake2b(f"node {number}".encode(), digest_size=HEX_DIGITS // 2).hexdigest()
        if split_of(name) == split:
            names.append(name)
        number += 1
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class EdgeList:
    """The list of one document, without the edges that are planted in it."""

    longest: int
    """The longest length in tokens."""
    degree: int
    kind: NodeNames
    seed: int
    split: Split

    @property
    def bank(self) -> PieceBank:
        return self._bank.bank

    @property
    def _bank(self) -> _EdgeBank:
        return _bank(next((s for s in SIZES if s >= self.longest), self.longest), self.kind, self.split)

    def kept_names(self) -> list[str]:
        """Names for planted edges, in the order of this document."""
        names = self._bank.names
        return [names[i] for i in bulk_rng(self.seed, "kept nodes").permutation(KEPT_NODES).tolist()]

    def least(self, counts: Indices) -> int:
        return 0

    def compose(self, segment_sizes: Sequence[SegmentSize], counts: Indices) -> list[Indices] | None:
        names = len(self._bank.names)
        pad = int(counts[-1])
        typical = float(counts[:names].mean() + counts[names : 2 * names].mean())
        wanted = int(1.1 * sum(room for room, _ in segment_sizes) / typical) + 2 * SPARE * len(segment_sizes)
        lines = self._edges(wanted)
        sizes = counts[lines].sum(axis=1)
        used, segments = 0, []
        for number, (room, again) in enumerate(segment_sizes):
            found = fill_lines(sizes[used:], room, pad)
            if found is None:
                return None
            whole, chosen, pads = found
            order = bulk_rng(self.seed, "edges", number, again).permutation(whole)
            rows = np.concatenate([lines[used : used + whole][order], lines[used + whole :][chosen]])
            segments.append(np.concatenate([rows.reshape(-1), np.full(pads, len(self.bank.pieces) - 1)]))
            used += whole + SPARE
        return segments

    def _edges(self, count: int) -> Indices:
        """Edges as rows of two pieces, in the order of their first nodes. They lead to hubs, or to nodes drawn from
        all those that have come up to then, and a few more."""
        names = len(self._bank.names)
        nodes = bulk_rng(self.seed, "nodes").permutation(names - KEPT_NODES) + KEPT_NODES
        size = 1 << max(count, 2).bit_length()
        degrees = (bulk_rng(self.seed, "degrees").random(2 * size) * (2 * self.degree + 1)).astype(np.int64)
        source = np.repeat(np.arange(len(degrees)), degrees)[:count]
        share = bulk_rng(self.seed, "targets").random(size)[:count]
        target = (share * (source + self.degree + SPARE)).astype(np.int64)
        first = np.diff(source, prepend=-1) > 0
        to_hub = first & (bulk_rng(self.seed, "hubs").random(size)[:count] < HUB_SHARE)
        target = np.where(to_hub, source // HUB_EVERY * HUB_EVERY, target)
        target += target == source  # no edge leads back to its own node
        return np.stack([nodes[source % len(nodes)], nodes[target % len(nodes)] + names], axis=1)


@dataclass(slots=True)
class WalkedGraph:
    """The edges at some nodes, from the text that is sent. It is read once for all questions at the same cut."""

    nodes: set[str] = field(default_factory=set)
    _text: str = ""
    _out: dict[str, list[str]] = field(default_factory=dict)
    _in: dict[str, list[str]] = field(default_factory=dict)

    def read(self, text: str) -> None:
        if text == self._text:
            return
        words = without_pads(text).split()
        if words[1::3].count("->") * 3 != len(words):
            raise ValueError("a list of edges has a line that is no edge")
        known = self.nodes
        outward, inward = defaultdict(list), defaultdict(list)
        for source, target in zip(words[::3], words[2::3], strict=True):
            if source in known or target in known:
                outward[source].append(target)
                inward[target].append(source)
        self._text, self._out, self._in = text, dict(outward), dict(inward)

    def levels(self, start: str, depth: int) -> list[tuple[str, ...]]:
        """The nodes at distance 0, 1 ... `depth` along the edges."""
        seen = {start}
        levels: list[tuple[str, ...]] = [(start,)]
        for _ in range(depth):
            reached = dict.fromkeys(t for node in levels[-1] for t in self._out.get(node, ()) if t not in seen)
            seen.update(reached)
            levels.append(tuple(reached))
        return levels

    def parents(self, node: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(p for p in self._in.get(node, ()) if p != node))

    def children(self, node: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._out.get(node, ())))
