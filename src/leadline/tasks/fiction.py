"""Questions over invented people, firms and towns: nothing to download, and nothing a model can know by heart.

The shape is that of RULER's QA tasks (arXiv 2404.06654): a pile of documents, one of which holds the answer, or one for
each hop of the question. All other documents are of the same kind, about others. Any number of samples can be drawn,
and piles for a million tokens.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from pydantic import Field

from leadline.core.seeds import rng, seed_of
from leadline.core.types import Cell, Cluster, Draft, Fact, Question, Reading, document_name
from leadline.tasks.drafts import places
from leadline.tasks.fiction_world import DOCUMENT, KINDS, RELATIONS, Kind, Relation, World, namesake, world
from leadline.tasks.question_files import Pile
from leadline.tasks.questions import ask, parts_of
from leadline.tasks.wording import Part, Worded

CHARACTERS_PER_TOKEN = 6.2
"""More than any tokenizer makes of these texts, counted by whole words too, so that a world is always large enough."""
CHARACTERS_PER_DOCUMENT = 240
SMALLEST_WORLD = 512


class Fiction(Worded):
    """Answer questions about invented people, firms and towns over a pile of documents.

    Depth is where the document that answers starts. A question of several hops needs as many documents; they stand in
    any order, evenly over a band of width `spread` around the depth.
    """

    version: ClassVar[str] = "1"
    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")
    category: ClassVar[str] = "question answering"

    hops: int = Field(1, ge=1, le=6, description="documents that must be put together to answer")
    namesakes: int = Field(1, ge=0, le=20, description="documents about others of the same family name, anywhere")
    spread: float = Field(0.2, ge=0, le=1, description="band that the documents of several hops stand in")
    answer_tokens: int = Field(32, ge=1, description="tokens for the answer")

    def parts(self) -> Mapping[str, Part]:
        return parts_of(DOCUMENT)

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        around = world(self.split, world_size(max(c.length for c in cells)), self.texts("document")[0])
        taken: set[str] = set()
        stories = [self._story(cell, around, seed, taken) for cell in cells]
        answers = tuple(story.answer for story in stories)
        cluster = Cluster.of(cells)
        return Draft(
            id=document_name(cells),
            cluster=cluster.name,
            head=self.say("instruction"),
            filler=Pile(
                around.bank,
                np.arange(len(around.documents)),
                np.arange(0),
                seed_of(seed, "fiction", *cluster.coordinates),
                prefix_stable=True,
            ),
            facts=tuple(fact for story in stories for fact in (*story.gold, *story.namesakes)),
            questions=tuple(story.ask(self, answers) for story in stories),
        )

    def _story(self, cell: Cell, around: World, seed: int, taken: set[str]) -> _Story:
        draw = rng(seed, "fiction", *cell.coordinates)
        path = draw_path(self.hops, draw)
        names = [around.invent(path[0].of, draw, taken), *(around.invent(r.to, draw, taken) for r in path)]
        documents = [
            around.tell(relation.of, name, draw, {relation.name: value})
            for relation, name, value in zip(path, names, names[1:], strict=False)
        ]
        draw.shuffle(documents)
        depths = places(cell, self.spread, len(documents), draw)
        gold = tuple(
            Fact(f"{cell.key}#{number}", text, place, cell.length)
            for number, (text, place) in enumerate(zip(documents, depths, strict=True))
        )
        others, values = self._namesakes(path[0], names[0], cell, around, draw, taken)
        return _Story(cell, tuple(path), names[0], names[-1], gold, others, values)

    def _namesakes(
        self, relation: Relation, subject: str, cell: Cell, around: World, draw: random.Random, taken: set[str]
    ) -> tuple[tuple[Fact, ...], tuple[str, ...]]:
        """Documents that a reader of half a name would take for the right one, and what they say."""
        facts: list[Fact] = []
        values: list[str] = []
        while len(facts) < self.namesakes:
            name = namesake(relation.of, subject, self.split, draw)
            if name in taken or name in around.names:
                continue
            taken.add(name)
            values.append(draw.choice(around.entities[relation.to]))
            text = around.tell(relation.of, name, draw, {relation.name: values[-1]})
            facts.append(Fact(f"{cell.key}#namesake{len(facts)}", text, draw.random(), cell.length))
        return tuple(facts), tuple(values)


@dataclass(frozen=True, slots=True)
class _Story:
    """What is told for one cell, and what is asked about it."""

    cell: Cell
    path: tuple[Relation, ...]
    subject: str
    answer: str
    gold: tuple[Fact, ...]
    namesakes: tuple[Fact, ...]
    namesake_values: tuple[str, ...]

    def ask(self, task: Fiction, answers: tuple[str, ...]) -> Question:
        spoken = self.subject
        for relation in self.path[:-1]:
            spoken = relation.phrase.format(x=spoken)
        text = self.path[-1].question.format(x=spoken)
        others = (*self.namesake_values, *answers)
        asked = ask(task, self.cell, text, (self.answer,), self.gold, allowance=task.answer_tokens, others=others)
        labels = {**asked.labels, "relation": ".".join((self.path[0].of, *(r.name for r in self.path)))}
        return replace(asked, labels=labels)


def draw_path(hops: int, draw: random.Random) -> list[Relation]:
    """Relations that lead on from one another. Only the last may end at a river, which nothing is told about."""
    kind: Kind = draw.choice(KINDS)
    path: list[Relation] = []
    while len(path) < hops:
        last = len(path) == hops - 1
        path.append(draw.choice([r for r in RELATIONS if r.of == kind and (last or r.to in KINDS)]))
        kind = path[-1].to
    return path


def world_size(length: int) -> int:
    """Documents that fill a prompt of so many tokens in any tokenizer, in steps, so that lengths share worlds."""
    needed = int(length * CHARACTERS_PER_TOKEN / CHARACTERS_PER_DOCUMENT) + 1
    size = SMALLEST_WORLD
    while size < needed:
        size *= 2
    return size * 3 // 4 if SMALLEST_WORLD < needed <= size * 3 // 4 else size


FICTION_1 = Fiction(hops=1)
FICTION_2 = Fiction(hops=2)
