"""Walks on a graph that is given as a list of edges: nodes at an exact distance, and parents of a node.

The idea and the form are those of GraphWalks (OpenAI 2025, the data set openai/graphwalks). The graphs are our own: one
list answers many questions, the decisive edges are where the grid wants them, and truth is worked out from the text
that is sent, at every cut. docs/graphwalks.md says what differs.
"""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from leadline.core.drafts import Draft, DraftQuestion, Fact, PieceBank, SegmentSize
from leadline.core.errors import UsageError
from leadline.core.seeds import Split, bulk_rng, digest_text, rng, seed_of, split_of
from leadline.core.types import Cell, Mistakes, Reading
from leadline.scorers.answer_sets import FINAL_ANSWER, GRAPHWALKS_SCORERS
from leadline.tasks.placement import PAD, SPARE, fill_lines, spread_depths, without_pads
from leadline.tasks.wording import PromptPart, WordedTask, answer_allowance
from leadline.tasks.words import list_words

if TYPE_CHECKING:
    from leadline.core.types import Indices


# --- A list of directed edges with an exact number of tokens, one edge a line ---
#
# lanter -> mobesu
#
# On average `degree` edges lead away from a node, from none to twice as many, in shuffled order, and many edges lead to
# one node in twelve. So neither the number of a node's edges nor their direction shows what is asked for. The edges
# that questions are about are planted between these lines, and their nodes are in no other line, so an answer depends
# on planted edges alone. A longer list begins with the shorter one.


NodeNames = Literal["words", "hex"]
SIZES = (1 << 12, 1 << 14, 1 << 17, 1 << 20, 1 << 23)
"""Lengths in tokens for which there is a bank. An edge has at least three tokens in every tokenizer."""
KEPT_NODES = 4096
"""Nodes at the beginning of each bank that are used for planted edges only."""
HEX_DIGITS = 10
HUB_EVERY, HUB_SHARE = 12, 0.8
"""One node in HUB_EVERY is a hub. This share of the nodes beside it has its first edge to the hub."""


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
    ends_sentence = (*(False for _ in names), *(True for _ in names), True)
    digest = digest_text("\n".join(pieces))
    return _EdgeBank(
        PieceBank(f"edges of {kind}", digest, pieces, contiguous=False, ends_sentence=ends_sentence, ending="\n"), names
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
        for number, (tokens, retry) in enumerate(segment_sizes):
            filling = fill_lines(sizes[used:], tokens, pad)
            if filling is None:
                return None
            whole, chosen, pads = filling
            order = bulk_rng(self.seed, "edges", number, retry).permutation(whole)
            rows = np.concatenate([lines[used : used + whole][order], lines[used + whole :][chosen]])
            segments.append(np.concatenate([rows.reshape(-1), np.full(pads, len(self.bank.pieces) - 1)]))
            used += whole + SPARE
        return segments

    def _edges(self, count: int) -> Indices:
        """Edges as rows of two pieces, in the order of their first nodes. They lead to hubs, or to nodes drawn from
        those so far and a few more."""
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


# --- the task ---


WalkOperation = Literal["bfs", "parents"]
WRONG_DEPTH, WRONG_DIRECTION = "wrong depth of the walk", "wrong direction of the edges"

INSTRUCTION = (
    "Below is a directed graph as a list of its edges. Each line is one edge, and it can be followed from left to "
    "right only. Keep the edges in mind; a question about them follows.\n\n"
)
FORM = (
    " Reply with one line of this form and nothing after it:\nFinal Answer: [node, node, node]\nIf there is no such "
    "node, the line is:\nFinal Answer: []"
)
QUESTIONS = {
    "bfs": (
        "\n\nQuestion: Which nodes can be reached from {node} in {hops} steps and in no fewer? Neither nodes that are "
        "nearer nor {node} itself belong to the answer."
    ),
    "bfs_published": "\n\nOperation: Do a breadth-first search (BFS) from {node} to depth {hops}.",
    "parents": "\n\nQuestion: Which nodes have an edge that leads to {node}? {node} itself does not belong to them.",
    "parents_published": "\n\nOperation: Find the parents of {node}.",
}
ONE_STEP = (
    "\n\nQuestion: Which nodes can be reached from {node} in one step? {node} itself does not belong to the answer."
)
REASONING_TOKENS = 160
"""Tokens of an answer besides the names of its nodes."""


class GraphWalks(WordedTask):
    """Walk along the edges of a graph, and name all nodes that are reached.

    Depth is the middle of a band of width `spread` that holds the edges which the answer depends on; with
    placement=anywhere they are all over the list, as in the published set.
    """

    version: ClassVar[str] = "2"
    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")
    category: ClassVar[str] = "graphs"

    operations: tuple[WalkOperation, ...] = Field(
        ("bfs", "parents"), min_length=1, description="what is asked, in turn: bfs, parents"
    )
    hops: tuple[Annotated[int, Field(ge=1, le=8)], ...] = Field(
        (1, 2, 3), min_length=1, description="steps of a walk, in turn; each is a curve of its own"
    )
    degree: int = Field(2, ge=1, le=8, description="edges that lead away from a node, on average")
    answer_size: int = Field(8, ge=1, le=64, description="most nodes that an answer has")
    empty: float = Field(0.1, ge=0, le=1, description="share of questions to which no node is the answer")
    form: Literal["clear", "published"] = Field(
        "clear", description="clear says what a depth means; published leaves it open, as the first published set did"
    )
    names: NodeNames = Field("words", description="nodes are coined words, or hex: ten digits as in the published set")
    spread: float = Field(0.2, ge=0, le=1, description="width of the band that holds the decisive edges")
    per_document: int = Field(
        4, ge=1, le=256, description="samples that one list answers, at each depth, in shared and nested reading"
    )
    answer_tokens: int = Field(0, ge=0, description="tokens for the answer; 0 chooses by the size of the answer")

    def parts(self) -> Mapping[str, PromptPart]:
        end = "_published" if self.form == "published" else ""
        return {
            "instruction": PromptPart((INSTRUCTION,), opens=True),
            "bfs": PromptPart((QUESTIONS[f"bfs{end}"],), needs=("node", "hops"), asks=True),
            "one_step": PromptPart(
                (QUESTIONS["bfs_published"] if end else ONE_STEP,), needs=("node",), may=("hops",), asks=True
            ),
            "parents": PromptPart((QUESTIONS[f"parents{end}"],), needs=("node",), asks=True),
            "form": PromptPart((FORM,)),
        }

    @property
    def samples_per_document(self) -> int:
        return self.per_document

    @property
    def asked(self) -> tuple[tuple[WalkOperation, int], ...]:
        """The operations with their steps, in turn."""
        walks: list[tuple[WalkOperation, int]] = []
        for operation in self.operations:
            walks += [(operation, n) for n in self.hops] if operation == "bfs" else [(operation, 1)]
        return tuple(walks)

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        cluster = self.cluster(cells)
        edges = EdgeList(
            longest=max(c.length for c in cells),
            degree=self.degree,
            kind=self.names,
            seed=seed_of(seed, "edges", *cluster.coordinates),
            split=self.split,
        )
        graph, names, first = WalkedGraph(), iter(edges.kept_names()), min(c.sample for c in cells)
        by_key: dict[tuple[int, float | None, int], _Surroundings] = {}
        questions = []
        for cell in cells:
            key = (cell.length, cell.depth, (cell.sample - first) // len(self.asked))
            if key not in by_key:
                draw = rng(seed, "walk", *cell.coordinates[:3], first, key[2])
                by_key[key] = _Surroundings(self, cell, names, draw)
                graph.nodes |= by_key[key].nodes
            questions.append(self._ask(cell, by_key[key], graph))
        return self.new_draft(
            cells,
            filler=edges,
            facts=(fact for surroundings in by_key.values() for fact in surroundings.facts),
            questions=tuple(questions),
            shared_end=True,
        )

    def _ask(self, cell: Cell, surroundings: _Surroundings, graph: WalkedGraph) -> DraftQuestion:
        operation, hops = self.asked[cell.sample % len(self.asked)]
        is_empty = rng("empty", *cell.coordinates).random() < self.empty
        node, decisive = surroundings.find(operation, hops, is_empty=is_empty)
        part = "one_step" if operation == "bfs" and hops == 1 else operation
        name_characters = 2 + (HEX_DIGITS if self.names == "hex" else 6)
        allowance = answer_allowance(REASONING_TOKENS, self.answer_size * name_characters + REASONING_TOKENS)
        return DraftQuestion(
            cell=cell,
            text=self.fill(part, node=node, hops=hops) + self.fill("form"),
            answer_prefix="",
            count_targets=partial(_targets, graph, operation, node, hops),
            allowance=self.answer_tokens or allowance,
            scorers=GRAPHWALKS_SCORERS,
            facts=decisive,
            labels={
                "operation": f"bfs {hops}" if operation == "bfs" else operation,
                "hops": str(hops),
                **({"empty": "true"} if is_empty else {}),
            },
            family="walks",
            answer_form=FINAL_ANSWER,
            count_mistakes=partial(_mistakes, graph, operation, node, hops),
        )


def _targets(graph: WalkedGraph, operation: WalkOperation, node: str, hops: int, text: str) -> tuple[str, ...]:
    graph.read(text)
    return graph.levels(node, hops)[hops] if operation == "bfs" else graph.parents(node)


def _mistakes(graph: WalkedGraph, operation: WalkOperation, node: str, hops: int, text: str) -> Mistakes:
    graph.read(text)
    if operation == "parents":
        return {WRONG_DIRECTION: graph.children(node)}
    levels = graph.levels(node, hops + 1)
    others = tuple(n for at, level in enumerate(levels) if at != hops for n in level)
    return {WRONG_DEPTH: others, WRONG_DIRECTION: graph.parents(node)}


class _Surroundings:
    """A part of the graph that all operations are asked about: a walk in levels, a node with parents, a dead end.

    Level n has up to `degree` times as many nodes as the level before it, and no more than `answer_size`. Some edges
    lead back or to a node that was reached before: they must not count.
    """

    def __init__(self, task: GraphWalks, cell: Cell, names: Iterator[str], draw: random.Random) -> None:
        self._task, self._cell, self._names, self._draw = task, cell, names, draw
        self._edges: dict[tuple[str, str], None] = {}
        longest = max((n for o, n in task.asked if o == "bfs"), default=1)
        self._levels = self._grow(longest)
        self._sought = self._add_parents()
        self._chain = [self._name() for _ in range(longest + 1)] if task.empty else []
        for pair in zip(self._chain, self._chain[1:], strict=False):
            self._edges[pair] = None
        self.nodes = {node for pair in self._edges for node in pair}
        self.facts = self._placed()

    def find(self, operation: WalkOperation, hops: int, *, is_empty: bool) -> tuple[str, tuple[str, ...]]:
        """The node to ask about, and the ids of the edges that the answer depends on."""
        if is_empty:
            node = self._chain[0] if operation == "parents" else self._chain[len(self._chain) - hops]
            beside = [(a, b) for a, b in self._edges if node in (a, b) or (a in self._chain and operation == "bfs")]
            return node, self._ids(beside)
        if operation == "parents":
            return self._sought, self._ids([(a, b) for a, b in self._edges if b == self._sought])
        walked = {node for level in self._levels[:hops] for node in level}
        return self._levels[0][0], self._ids([(a, b) for a, b in self._edges if a in walked])

    def _grow(self, longest: int) -> list[list[str]]:
        task, draw = self._task, self._draw
        levels = [[self._name()]]
        for step in range(longest + 1):
            above = levels[-1]
            size = min(task.degree * len(above), task.answer_size if step < longest else 2)
            size = max(size - draw.randrange(2), 1) if size > 2 else size
            below = [self._name() for _ in range(size)]
            for number, node in enumerate(below):
                self._edges[above[number % len(above)], node] = None
            # One edge to a node that another edge reaches too, and one back.
            self._edges[draw.choice(above), draw.choice(below)] = None
            if step:
                back = draw.choice(levels[step - 1])
                self._edges[draw.choice(above), back] = None
            levels.append(below)
        return levels

    def _add_parents(self) -> str:
        """Further edges to a node of the second level, from nodes that are not nearer than it: no distance changes, and
        nothing about those nodes shows what they are. Where there are too few, from nodes that no walk reaches."""
        level = min(2, len(self._levels) - 1)
        node = self._draw.choice(self._levels[level])
        further = [n for nodes in self._levels[level:] for n in nodes if n != node and (n, node) not in self._edges]
        self._draw.shuffle(further)
        for _ in range(max(min(self._task.degree + 1, self._task.answer_size - 2), 1)):
            self._edges[further.pop() if further else self._name(), node] = None
        return node

    def _placed(self) -> tuple[Fact, ...]:
        cell, edges = self._cell, list(self._edges)
        self._draw.shuffle(edges)
        depths = spread_depths(cell.depth, self._task.spread, len(edges), self._draw)
        return tuple(
            Fact(self._id(pair), edge(*pair), depth, cell.length) for pair, depth in zip(edges, depths, strict=True)
        )

    def _name(self) -> str:
        name = next(self._names, None)
        if name is None:
            raise UsageError(
                "one list of edges has too few nodes for this number of questions",
                where=self._cell.task,
                fix="ask fewer samples of a document (per_document), at fewer depths, or for smaller answers",
            )
        return name

    def _id(self, pair: tuple[str, str]) -> str:
        return f"{self._cell.key}#{pair[0]}.{pair[1]}"

    def _ids(self, edges: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        return tuple(map(self._id, edges))
