"""Stories in which two people move, take, give and drop things: what is true at the end, and what makes it true.

Every story has people and things of its own, so that stories in one text do not touch. Places are common to all. Later
sentences override earlier ones; what was true before is known too, as the stale answers of a question.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

Verb = Literal["move", "take", "drop", "give"]
Asked = Literal["person", "thing", "before", "list", "count", "yes_no", "giver"]
ASKED: tuple[Asked, ...] = ("person", "thing", "before", "list", "giver", "count", "yes_no")
"""Questions of every story, in turn: one, two and three supporting facts, a list, who gave, a number, yes or no."""

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

    people: tuple[str, str]
    things: tuple[str, ...]
    events: list[Event] = field(default_factory=list)
    settled: int = 0

    def answer(self, asked: Asked, draw: random.Random) -> StoryAnswer | None:
        """The answer at the end, which needs an event of the late part; None if this story has none of this kind."""
        found = [answer for answer in _ANSWERS[asked](self, draw) if max(answer.needed) >= self.settled]
        return draw.choice(found) if found else None

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
        if own:
            now = NUMBERS[len(story.carried(person))]
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
            if sum(story.events[n].other == last.other for n in gifts) == 1:
                yield StoryAnswer(named, (last.person,), (), (gifts[-1],))


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


def make_story(people: tuple[str, str], things: Sequence[str], early: int, late: int, draw: random.Random) -> Story:
    """A story of `early` and `late` events in which every question has an answer that needs a late one."""
    while True:
        story = Story(people, tuple(things), settled=early)
        for number in range(early + late):
            story.events.append(_next_event(story, number, early, draw))
        if all(story.answer(asked, draw) for asked in ASKED):
            return story


def _next_event(story: Story, number: int, early: int, draw: random.Random) -> Event:
    where = {p: story.events[story.moves(p)[-1]].place if story.moves(p) else "" for p in story.people}
    a, b = draw.sample(story.people, 2)
    wording = draw.randrange(3)
    unplaced = [p for p in story.people if not where[p]]
    if unplaced or number == early:  # everybody is somewhere before anything else; the late part begins with a move
        mover = unplaced[0] if unplaced else a
        return Event("move", mover, place=_other_place(where[mover], draw), wording=wording)
    held = [t for t in story.things if story.holder(t) == a]
    free = [t for t in story.things if not story.changes(t)]
    kind = draw.random()
    if free and kind < 0.3:
        return Event("take", a, thing=draw.choice(free), wording=wording)
    if held and kind < 0.55:
        if where[a] == where[b]:
            return Event("give", a, thing=draw.choice(held), other=b, wording=wording)
        return Event("move", a, place=where[b], wording=wording)
    if held and kind < 0.62:
        return Event("drop", a, thing=draw.choice(held), wording=wording)
    return Event("move", a, place=_other_place(where[a], draw), wording=wording)


def _other_place(now: str, draw: random.Random) -> str:
    return draw.choice([place for place in PLACES if place != now])
