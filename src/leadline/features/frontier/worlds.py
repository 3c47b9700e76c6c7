"""Keeping track of a world in prose: where people and things are, who has what, what was before.

The idea is that of BABILong (arXiv 2406.10149), which scatters the stories of bAbI (arXiv 1502.05698) in long texts.
The stories are our own: people, things and sentences are drawn for every document, and positions of the supporting
facts are an axis and on the record. docs/worlds.md says what differs.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from pydantic import Field

from leadline.core.contracts import Source
from leadline.core.drafts import Draft, DraftQuestion, Fact
from leadline.core.errors import UsageError
from leadline.core.seeds import Split, of_split, rng
from leadline.core.types import Cell, Reading
from leadline.features.frontier.story import ASKED, NUMBERS, PLACES, THINGS, Asked, Story, StoryAnswer, make_story
from leadline.tasks.placement import spread_depths
from leadline.tasks.qa_fiction import pool
from leadline.tasks.wording import PromptPart, RetrievalTask, noise_part, question_part, worded_source
from leadline.text.sources import Unit, stretch_of

SCORERS = ("babilong", "babilong.strict")
STALE = "stale fact"
EARLY, LATE = 5, 13
"""Events of a story before the band around a depth, and in it."""
PEOPLE_OF_STORY, THINGS_OF_STORY = 4, 4

INSTRUCTION = (
    "The text below mentions, among other matters, what some people do: they move from place to place, and they take, "
    "give away and put down things. What is said later overrides what was said before. Keep track of it; a question "
    "follows.\n\n"
)
QUESTIONS: dict[Asked, str] = {
    "person": "\n\nQuestion: In which place is {person} at the end? Answer with the place.",
    "thing": "\n\nQuestion: In which place is the {thing} at the end? Answer with the place.",
    "before": "\n\nQuestion: In which place was the {thing} before it came to the {place}? Answer with the place.",
    "list": "\n\nQuestion: What does {person} carry at the end? Name all of it, separated by commas.",
    "giver": "\n\nQuestion: Who gave the {thing} to {person}? Answer with the name.",
    "count": "\n\nQuestion: How many things does {person} carry at the end? Answer with a word: zero, one, two ...",
    "yes_no": "\n\nQuestion: Is {person} in the {place} at the end? Answer yes or no.",
}
OPERATION: dict[Asked, str] = {
    "person": "one fact", "thing": "two facts", "before": "three facts", "list": "list", "giver": "giver",
    "count": "count", "yes_no": "yes or no",
}  # fmt: skip
PREFIX = "Answer:"


class Worlds(RetrievalTask):
    """Say where people and things are, and who has what, at the end of a story told among other text.

    Depth is the middle of a band of width `spread` that holds the last part of a story; what it overrides comes before.
    With placement=anywhere a story is spread over the whole text, in order.
    """

    version: ClassVar[str] = "3"
    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")
    category: ClassVar[str] = "tracking"

    ask: tuple[Asked, ...] = Field(
        ASKED, min_length=1, description="what is asked, in turn: person (one fact), thing (two) ..."
    )
    haystack: str = Field("prose", description="prose, noise, code, a path, or a mixture prose:0.5,code:0.5")
    unit: Unit = Field("sentence", description="what a path or mixture is cut into: sentence or paragraph")
    repeat: bool = Field(False, description="use the haystack more than once when it is too short")
    spread: float = Field(0.2, ge=0, le=1, description="width of the band that holds the last part of a story")
    per_document: int = Field(
        7, ge=1, le=256, description="samples that one text answers, at each depth, in shared and nested reading"
    )
    answer_tokens: int = Field(48, ge=1, description="tokens for the answer")

    def parts(self) -> Mapping[str, PromptPart]:
        return {
            "instruction": PromptPart((INSTRUCTION,), opens=True),
            **{name: question_part(text) for name, text in QUESTIONS.items()},
            "prefix": PromptPart((PREFIX,)),
            **noise_part(self.haystack),
            **self.absent_parts(),
        }

    @property
    def samples_per_document(self) -> int:
        return self.per_document

    def sources(self) -> Sequence[Source]:
        return (self._source(),)

    def _source(self) -> Source:
        return worded_source(self, self.haystack, unit=self.unit, repeat=self.repeat)

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        cluster, first = self.cluster(cells), min(c.sample for c in cells)
        cast = _Cast(self.split, rng(seed, "cast", *cluster.coordinates), cells[0].task)
        together: dict[tuple[int, float | None, int], list[Cell]] = defaultdict(list)
        for cell in cells:
            together[cell.length, cell.depth, (cell.sample - first) // len(self.ask)].append(cell)
        told = {key: self._tell(some, cast, seed, first, key[2]) for key, some in together.items()}
        stories = {cell: told[key] for key, some in together.items() for cell in some}
        questions = [self._ask(cell, stories[cell], cast, seed) for cell in cells]
        return self.new_draft(
            cells,
            filler=stretch_of(self._source(), cluster, seed, tokens=max(c.length for c in cells)),
            facts=(fact for one in told.values() for fact in one.facts),
            questions=tuple(questions),
            shared_end=True,
        )

    def _tell(self, cells: Sequence[Cell], cast: _Cast, seed: int, first: int, number: int) -> _ToldStory:
        """One story, about which these cells ask."""
        cell, asked = cells[0], {self.ask[c.sample % len(self.ask)] for c in cells}
        draw = rng(seed, "story", *cell.coordinates[:3], first, number)
        people, things = cast.people(PEOPLE_OF_STORY), cast.things(THINGS_OF_STORY)
        story = make_story(people, things, EARLY, LATE, draw, asked)
        if cell.depth is None:
            depths = sorted(draw.random() for _ in story.events)
        else:
            late = spread_depths(cell.depth, self.spread, LATE, draw)
            depths = [*sorted(draw.random() * late[0] for _ in range(EARLY)), *late]
        facts = tuple(
            Fact(f"{cell.key}#{n}", event.sentence, depth, cell.length)
            for n, (event, depth) in enumerate(zip(story.events, depths, strict=True))
        )
        return _ToldStory(story, facts)

    def _ask(self, cell: Cell, told: _ToldStory, cast: _Cast, seed: int) -> DraftQuestion:
        asked = self.ask[cell.sample % len(self.ask)]
        answer = told.story.answer(asked, rng(seed, "question", *cell.coordinates))
        assert answer is not None  # make_story sees to it
        others = _choices(asked, answer, told.story)
        named, is_absent = answer.named, self.is_absent(cell, seed)
        if is_absent:  # somebody or something that the text never mentions
            unknown = {"person": cast.people(1)[0], "thing": cast.things(1)[0]}
            named = {k: unknown.get(k, v) for k, v in named.items()}
        return DraftQuestion(
            cell=cell,
            text=self.fill(asked, **named),
            answer_prefix=self.fill("prefix"),
            targets=answer.targets,
            allowance=self.answer_tokens,
            scorers=SCORERS,
            facts=tuple(told.facts[n].id for n in sorted(set(answer.needed))),
            distractors=others,
            labels={"operation": OPERATION[asked]},
            choices=tuple(dict.fromkeys((*answer.targets, *others))),
            family="worlds",
            mistakes={STALE: answer.stale} if answer.stale else {},
            absent=is_absent or None,
        )


@dataclass(frozen=True, slots=True)
class _ToldStory:
    story: Story
    facts: tuple[Fact, ...]


def _choices(asked: Asked, answer: StoryAnswer, story: Story) -> tuple[str, ...]:
    """The other answers that a question could have."""
    named = {"list": story.things, "giver": story.people, "count": NUMBERS, "yes_no": ("yes", "no")}
    return tuple(name for name in named.get(asked, PLACES) if name not in answer.targets)


class _Cast:
    """People and things for the stories of one document, each used once."""

    def __init__(self, split: Split, draw: random.Random, task: str) -> None:
        names, things = list(of_split(pool("first", split), split)), list(of_split(THINGS, split))
        draw.shuffle(names)
        draw.shuffle(things)
        self._names, self._things, self._task = iter(names), iter(things), task

    def people(self, count: int) -> list[str]:
        return self._next(self._names, count)

    def things(self, count: int) -> list[str]:
        return self._next(self._things, count)

    def _next(self, names: Iterator[str], count: int) -> list[str]:
        found = list(islice(names, count))
        if len(found) < count:
            raise UsageError(
                "one text does not have enough people and things for these stories",
                where=self._task,
                fix="ask fewer samples of a document (per_document), at fewer depths or lengths",
            )
        return found
