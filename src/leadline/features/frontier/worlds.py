"""Keeping track of a world in prose: where people and things are, who has what, what was before.

The idea is that of BABILong (arXiv 2406.10149), which scatters the stories of bAbI (arXiv 1502.05698) in long texts.
The stories are our own: people, things and sentences are drawn for every document, and positions of the supporting
facts are an axis and on the record. docs/worlds.md says what differs.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import comb
from typing import ClassVar, Literal

from pydantic import Field

from leadline.core.contracts import Source
from leadline.core.drafts import Draft, DraftQuestion, Fact
from leadline.core.errors import UsageError
from leadline.core.seeds import Split, of_split, rng
from leadline.core.types import Cell, Reading
from leadline.tasks.placement import spread_depths
from leadline.tasks.qa_fiction import pool
from leadline.tasks.wording import PromptPart, RetrievalTask, noise_part, question_part, worded_source
from leadline.text.sources import Unit, stretch_of

# --- Stories in which people move, take, give and drop things: what is true at the end, and what makes it true ---
#
# Every story has people and things of its own, so that stories in one text do not touch. Places are common to all.
# Later sentences override earlier ones; what was true before is known too, as the stale answers of a question.
#
# What is asked about is drawn so that nothing is won by a guess: the place, name or thing that a story mentions first,
# last or most often is the right answer no more often than any other, and each number and yes and no are equally
# likely.


Verb = Literal["move", "take", "drop", "give"]
QuestionKind = Literal["person", "thing", "before", "list", "count", "yes_no", "giver"]
QUESTION_KINDS: tuple[QuestionKind, ...] = ("person", "thing", "before", "list", "giver", "count", "yes_no")
"""Questions of every story, in turn: one, two and three supporting facts, a list, who gave, a number, yes or no."""

RAREST_FIRST: tuple[QuestionKind, ...] = ("giver", "person", "count", "list", "before", "thing", "yes_no")

PLACES = (
    "attic barn cellar chapel courtyard garage greenhouse kitchen laundry library mill orchard pantry stable study "
    "workshop"
).split()
_SORTS = "amber brass copper crystal iron ivory leather marble painted silver tin velvet wooden woollen".split()
_THINGS = (
    "bowl brush bucket candle clock comb compass drum fan flute globe goblet hammer key kettle knife ladle lamp "
    "lantern lens mask mirror needle pipe purse ring rope saddle scarf spoon sword torch vase violin whistle"
).split()
THINGS = tuple(f"{sort} {thing}" for sort in _SORTS for thing in _THINGS)
NUMBERS = ("zero", "one", "two", "three", "four")
PLACES_OF_STORY = 7
COUNTED = 3
"""A person asked about carries fewer things than this, each number equally often."""
RECENCIES = 5
"""Fewer other places than this are mentioned after the right one, each number equally often."""

WORDINGS: dict[Verb, tuple[str, ...]] = {
    "move": ("{person} went to the {place}.", "{person} walked over to the {place}.", "{person} moved to the {place}."),
    "take": (
        "{person} picked up the {thing}.",
        "{person} took the {thing}.",
        "{person} got hold of the {thing}.",
    ),
    "drop": ("{person} put down the {thing}.", "{person} left the {thing} behind.", "{person} dropped the {thing}."),
    "give": (
        "{person} gave the {thing} to {other}.",
        "{person} handed the {thing} to {other}.",
        "{person} passed the {thing} on to {other}.",
    ),
}


@dataclass(frozen=True, slots=True)
class Event:
    verb: Verb
    person: str
    place: str = ""
    thing: str = ""
    other: str = ""
    wording: int = 0

    @property
    def sentence(self) -> str:
        named = {"person": self.person, "place": self.place, "thing": self.thing, "other": self.other}
        return WORDINGS[self.verb][self.wording].format(**named)


@dataclass(frozen=True, slots=True)
class StoryAnswer:
    """What a question names, its right answers, what was right before, and the events that it needs."""

    named: dict[str, str]
    targets: tuple[str, ...]
    stale: tuple[str, ...]
    needed: tuple[int, ...]


@dataclass(slots=True)
class Story:
    """Events in order. `settled` is the number of the first event that any right answer needs."""

    people: tuple[str, ...]
    things: tuple[str, ...]
    events: list[Event] = field(default_factory=list)
    settled: int = 0
    number: int = 0
    """The number of things that the person asked about carries."""
    giver_is_guessed: tuple[bool, ...] = (False, False)
    """Whether the giver asked for is mentioned last, and most often, of those that the question does not name."""
    recency: int = 0
    """The number of other places mentioned after the right one."""

    def answer(self, kind: QuestionKind, draw: random.Random) -> StoryAnswer | None:
        """The answer at the end, which needs a late event; None if this story has no answer of this kind."""
        answers = [answer for answer in _ANSWERS[kind](self, draw) if max(answer.needed) >= self.settled]
        if kind in ("person", "count", "yes_no", "giver"):  # balanced where the story is made, or the question
            return draw.choice(answers) if answers else None
        hidden, easy = list[StoryAnswer](), dict[tuple[str, ...], StoryAnswer]()
        for answer in answers:
            if set(answer.targets) in self._guesses(kind, answer):
                easy[answer.targets] = answer
            else:
                hidden.append(answer)
        if not hidden:
            return None
        for answer in easy.values():  # each guess is right as often as one that is drawn from all
            seen = {name for name in self.mentions(kind) if name not in answer.named.values()}
            if draw.random() * comb(len(seen), len(answer.targets)) < 1:
                return answer
        return draw.choice(hidden)

    def is_guessed(self, answer: StoryAnswer) -> tuple[bool, ...]:
        _, *guesses = self._guesses("giver", answer)
        return tuple(set(answer.targets) == guess for guess in guesses)

    def mentions(self, kind: QuestionKind) -> list[str]:
        """Everything that is mentioned and could be an answer, in order."""
        if kind == "list":
            return [event.thing for event in self.events if event.thing]
        if kind == "giver":
            return [name for event in self.events for name in (event.person, event.other) if name]
        return [event.place for event in self.events if event.place]

    def _guesses(self, kind: QuestionKind, answer: StoryAnswer) -> list[set[str]]:
        """The names mentioned first, last and most often, without those in the question."""
        seen = [name for name in self.mentions(kind) if name not in answer.named.values()]
        size = len(answer.targets)
        first, last = list(dict.fromkeys(seen)), list(dict.fromkeys(reversed(seen)))
        often = [name for name, _ in Counter(seen).most_common(size)]
        return [set(first[:size]), set(last[:size]), set(often)]

    # --- states ---

    def moves(self, person: str) -> list[int]:
        return [n for n, e in enumerate(self.events) if e.verb == "move" and e.person == person]

    def place_at(self, person: str, event: int) -> int:
        """The last move of a person before an event."""
        return max((n for n in self.moves(person) if n < event), default=-1)

    def changes(self, thing: str) -> list[int]:
        return [n for n, e in enumerate(self.events) if e.thing == thing]

    def holder(self, thing: str) -> str:
        changes = self.changes(thing)
        last = self.events[changes[-1]] if changes else None
        return "" if last is None or last.verb == "drop" else last.other or last.person

    def path(self, thing: str) -> list[tuple[str, int]]:
        """The places of a thing in order, each with the move that brought it there; equal neighbours are one."""
        path: list[tuple[str, int]] = []
        holder = ""
        for n, event in enumerate(self.events):
            if event.thing == thing:
                holder = "" if event.verb == "drop" else event.other or event.person
                if event.verb == "take":
                    came = self.place_at(event.person, n)
                    path.append((self.events[came].place, came))
            elif event.verb == "move" and event.person == holder:
                path.append((event.place, n))
        return [step for n, step in enumerate(path) if n == 0 or path[n - 1][0] != step[0]]

    def carried(self, person: str) -> tuple[str, ...]:
        return tuple(thing for thing in self.things if self.holder(thing) == person)


# --- answers --------------------------------------------------------------------------------------


def _where_person(story: Story, draw: random.Random) -> Iterator[StoryAnswer]:
    for person in story.people:
        moves = story.moves(person)
        if len(moves) > 1:
            now = story.events[moves[-1]].place
            before = _others((story.events[n].place for n in moves), now)
            if before and list(dict.fromkeys(reversed(story.mentions("person")))).index(now) == story.recency:
                yield StoryAnswer({"person": person}, (now,), before, (moves[-1],))


def _where_thing(story: Story, draw: random.Random) -> Iterator[StoryAnswer]:
    for thing in story.things:
        path = story.path(thing)
        if len(path) > 1:
            needed = (story.changes(thing)[-1], path[-1][1])
            yield StoryAnswer({"thing": thing}, (path[-1][0],), _others((p for p, _ in path), path[-1][0]), needed)


def _where_before(story: Story, draw: random.Random) -> Iterator[StoryAnswer]:
    for thing in story.things:
        path = story.path(thing)
        if len(path) > 1 and path[-1][0] not in [place for place, _ in path[:-1]]:
            before = path[-2][0]
            needed = (story.changes(thing)[-1], path[-2][1], path[-1][1])
            stale = _others((p for p, _ in path[:-2]), before)
            yield StoryAnswer({"thing": thing, "place": path[-1][0]}, (before,), stale, needed)


def _what(story: Story, draw: random.Random) -> Iterator[StoryAnswer]:
    for person in story.people:
        carried = story.carried(person)
        if carried:
            had = dict.fromkeys(e.thing for e in story.events if person in (e.person, e.other) and e.thing)
            needed = tuple(story.changes(thing)[-1] for thing in carried)
            yield StoryAnswer({"person": person}, carried, tuple(t for t in had if t not in carried), needed)


def _how_many(story: Story, draw: random.Random) -> Iterator[StoryAnswer]:
    for person in story.people:
        own = [n for n, e in enumerate(story.events) if e.thing and person in (e.person, e.other)]
        if own and len(story.carried(person)) == story.number:
            now = NUMBERS[story.number]
            before = {NUMBERS[min(count, 4)] for count in _counts(story, person)}
            yield StoryAnswer({"person": person}, (now,), _others(sorted(before), now), tuple(own))


def _is_there(story: Story, draw: random.Random) -> Iterator[StoryAnswer]:
    for person in story.people:
        moves = story.moves(person)
        if len(moves) > 1:
            now = story.events[moves[-1]].place
            before = _others((story.events[n].place for n in moves), now)
            place = now if draw.random() < 0.5 or not before else draw.choice(before)
            said = ("yes", "no") if place == now else ("no", "yes")
            yield StoryAnswer({"person": person, "place": place}, said[:1], said[1:], (moves[-1],))


def _who_gave(story: Story, draw: random.Random) -> Iterator[StoryAnswer]:
    for thing in story.things:
        gifts = [n for n in story.changes(thing) if story.events[n].verb == "give"]
        if gifts:
            last = story.events[gifts[-1]]
            named = {"thing": thing, "person": last.other}
            once = sum(story.events[n].other == last.other for n in gifts) == 1
            answer = StoryAnswer(named, (last.person,), (), (gifts[-1],))
            if once and story.is_guessed(answer) == story.giver_is_guessed:
                yield answer


def _others(values: Iterator[str] | Sequence[str], now: str) -> tuple[str, ...]:
    return tuple(value for value in dict.fromkeys(values) if value != now)


def _counts(story: Story, person: str) -> Iterator[int]:
    held = 0
    for event in story.events:
        if event.thing:
            held += (person == (event.other or event.person)) - (person == event.person and event.verb != "take")
            yield held


_ANSWERS = {
    "person": _where_person,
    "thing": _where_thing,
    "before": _where_before,
    "list": _what,
    "count": _how_many,
    "yes_no": _is_there,
    "giver": _who_gave,
}


# --- making stories -------------------------------------------------------------------------------


def make_story(
    people: Sequence[str],
    things: Sequence[str],
    early: int,
    late: int,
    draw: random.Random,
    kinds: Collection[QuestionKind] = QUESTION_KINDS,
) -> Story:
    """A story of `early` and `late` events in which every question asked has an answer that needs a late one."""
    number, guessed = draw.randrange(COUNTED), tuple(draw.random() * (len(people) - 1) < 1 for _ in range(2))
    recency, places = draw.randrange(RECENCIES), draw.sample(PLACES, PLACES_OF_STORY)
    while True:
        events = _Events(people, things, places, early, draw).some(early + late)
        story = Story(tuple(people), tuple(things), events, early, number, guessed, recency)
        if all(story.answer(kind, draw) for kind in RAREST_FIRST if kind in kinds):
            story.events = [replace(event, wording=draw.randrange(len(WORDINGS[event.verb]))) for event in events]
            return story


class _Events:
    """Draws events one after another; knows where everybody is and who has what. Most stories are not used, so this
    has to be quick."""

    def __init__(
        self, people: Sequence[str], things: Sequence[str], places: Sequence[str], early: int, draw: random.Random
    ) -> None:
        self._people, self._places, self._early, self._random = people, places, early, draw.random
        self._where: dict[str, str] = {}
        self._held: dict[str, list[str]] = {person: [] for person in people}
        self._free = list(things)

    def some(self, count: int) -> list[Event]:
        return [self._next(number) for number in range(count)]

    def _next(self, number: int) -> Event:
        people, where = self._people, self._where
        if number < len(people):  # everybody is somewhere before anything else
            return self._move(people[number])
        index = int(self._random() * len(people))
        a, b = people[index], people[index - 1 - int(self._random() * (len(people) - 1))]
        kind, held = self._random(), self._held[a]
        if number == self._early:  # the late part begins with a move
            return self._move(a)
        if held and where[a] == where[b] and kind < 0.8:
            thing = self._any(held)
            self._held[b].append(thing)
            return Event("give", a, thing=thing, other=b)
        if self._free and kind < 0.3:
            thing = self._any(self._free)
            held.append(thing)
            return Event("take", a, thing=thing)
        if held and kind < 0.55:
            return self._move(a, where[b])
        if held and kind < 0.62:
            return Event("drop", a, thing=self._any(held))
        return self._move(a)

    def _move(self, person: str, place: str = "") -> Event:
        before = self._where.get(person)
        while not place or place == before:
            place = self._places[int(self._random() * len(self._places))]
        self._where[person] = place
        return Event("move", person, place=place)

    def _any(self, things: list[str]) -> str:
        return things.pop(int(self._random() * len(things)))


# --- the task ---


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
QUESTIONS: dict[QuestionKind, str] = {
    "person": "\n\nQuestion: In which place is {person} at the end? Answer with the place.",
    "thing": "\n\nQuestion: In which place is the {thing} at the end? Answer with the place.",
    "before": "\n\nQuestion: In which place was the {thing} before it came to the {place}? Answer with the place.",
    "list": "\n\nQuestion: What does {person} carry at the end? Name all of it, separated by commas.",
    "giver": "\n\nQuestion: Who gave the {thing} to {person}? Answer with the name.",
    "count": "\n\nQuestion: How many things does {person} carry at the end? Answer with a word: zero, one, two ...",
    "yes_no": "\n\nQuestion: Is {person} in the {place} at the end? Answer yes or no.",
}
OPERATION: dict[QuestionKind, str] = {
    "person": "one fact", "thing": "two facts", "before": "three facts", "list": "list", "giver": "giver",
    "count": "count", "yes_no": "yes or no",
}  # fmt: skip
PREFIX = "Answer:"
_LABELS = ("yes", "no", *NUMBERS, *PLACES)


class Worlds(RetrievalTask):
    """Say where people and things are, and who has what, at the end of a story inside other text.

    Depth is the middle of a band of width `spread` that holds the last part of a story; what it overrides comes before.
    With placement=anywhere a story is spread over the whole text, in order.
    """

    version: ClassVar[str] = "4"
    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")
    category: ClassVar[str] = "tracking"

    ask: tuple[QuestionKind, ...] = Field(
        QUESTION_KINDS, min_length=1, description="what is asked, in turn: person (one fact), thing (two) ..."
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
        planted = {key: self._tell(story_cells, cast, seed, first, key[2]) for key, story_cells in together.items()}
        stories = {cell: planted[key] for key, story_cells in together.items() for cell in story_cells}
        questions = [self._ask(cell, stories[cell], cast, seed) for cell in cells]
        return self.new_draft(
            cells,
            filler=stretch_of(self._source(), cluster, seed, tokens=max(c.length for c in cells)),
            facts=(fact for story in planted.values() for fact in story.facts),
            questions=tuple(questions),
            shared_end=True,
        )

    def _tell(self, cells: Sequence[Cell], cast: _Cast, seed: int, first: int, number: int) -> _PlantedStory:
        """One story, about which these cells ask."""
        cell, kinds = cells[0], {self.ask[c.sample % len(self.ask)] for c in cells}
        draw = rng(seed, "story", *cell.coordinates[:3], first, number)
        people, things = cast.people(PEOPLE_OF_STORY), cast.things(THINGS_OF_STORY)
        story = make_story(people, things, EARLY, LATE, draw, kinds)
        if cell.depth is None:
            depths = sorted(draw.random() for _ in story.events)
        else:
            late = spread_depths(cell.depth, self.spread, LATE, draw)
            depths = [*sorted(draw.random() * late[0] for _ in range(EARLY)), *late]
        facts = tuple(
            Fact(f"{cell.key}#{n}", event.sentence, depth, cell.length)
            for n, (event, depth) in enumerate(zip(story.events, depths, strict=True))
        )
        return _PlantedStory(story, facts)

    def _ask(self, cell: Cell, planted: _PlantedStory, cast: _Cast, seed: int) -> DraftQuestion:
        kind = self.ask[cell.sample % len(self.ask)]
        answer = planted.story.answer(kind, rng(seed, "question", *cell.coordinates))
        assert answer is not None  # make_story sees to it
        others = _choices(kind, answer, planted.story)
        named, is_absent = answer.named, self.is_absent(cell, seed)
        if is_absent:  # somebody or something that the text never mentions
            unknown = {"person": cast.people(1)[0], "thing": cast.things(1)[0]}
            named = {k: unknown.get(k, v) for k, v in named.items()}
        return DraftQuestion(
            cell=cell,
            text=self.fill(kind, **named),
            answer_prefix=self.fill("prefix"),
            targets=answer.targets,
            allowance=self.answer_tokens,
            scorers=SCORERS,
            facts=tuple(planted.facts[n].id for n in sorted(set(answer.needed))),
            distractors=others,
            labels={"operation": OPERATION[kind]},
            choices=tuple(dict.fromkeys((*answer.targets, *others))),
            family="worlds",
            mistakes={STALE: answer.stale} if answer.stale else {},
            absent=is_absent or None,
        )


@dataclass(frozen=True, slots=True)
class _PlantedStory:
    story: Story
    facts: tuple[Fact, ...]


def _choices(kind: QuestionKind, answer: StoryAnswer, story: Story) -> tuple[str, ...]:
    """The other answers that a question could have."""
    named = {"list": story.things, "giver": story.people, "count": NUMBERS, "yes_no": ("yes", "no")}
    return tuple(name for name in named.get(kind, PLACES) if name not in answer.targets)


class _Cast:
    """People and things for the stories of one document, each used once. No name contains another answer: the published
    rule takes "no" in "Is Hinonne in the barn" for a label that the question names."""

    def __init__(self, split: Split, draw: random.Random, task: str) -> None:
        names = [name for name in of_split(pool("first", split), split) if not any(w in name.lower() for w in _LABELS)]
        things = list(of_split(THINGS, split))
        draw.shuffle(names)
        draw.shuffle(things)
        self._names, self._things, self._task = iter(names), iter(things), task

    def people(self, count: int) -> list[str]:
        return self._next(self._names, count)

    def things(self, count: int) -> list[str]:
        return self._next(self._things, count)

    def _next(self, names: Iterator[str], count: int) -> list[str]:
        drawn = list(islice(names, count))
        if len(drawn) < count:
            raise UsageError(
                "one text does not have enough people and things for these stories",
                where=self._task,
                fix="ask fewer samples of a document (per_document), at fewer depths or lengths",
            )
        return drawn
