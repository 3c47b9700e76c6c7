"""How a simulated model reads: it finds the evidence in the text by the question's own words.

It is given the document's text and what follows it, as any model is, and nothing else. Each skill looks whether the
question is of its kind and says what it read and where; the first that reads anything wins. A new family of tasks is
one more function in `SKILLS`.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

# --- How a simulated model answers questions about people, firms and towns: from document to document, hop by hop.
#
# It knows the few ways in which the invented documents put things, as any reader of English does, and nothing of what
# they say. `the firm that NAME works for` is looked up first and put in its place, until one relation is left.

_QUESTION_WORD = r"[A-Z][^\W\d_]+"
_TWO = rf"{_QUESTION_WORD} {_QUESTION_WORD}"
_NAME = rf"{_QUESTION_WORD}(?: {_QUESTION_WORD})?"
_START = "Document:"
_ASKED = re.compile(r"Question: ([^\n]+)")


@dataclass(frozen=True, slots=True)
class _Relation:
    """How it is told, how it is spoken of, and how it is asked for."""

    told: re.Pattern[str]
    spoken: re.Pattern[str]
    asked: re.Pattern[str]


def _relation(told: str, spoken: str, asked: str) -> _Relation:
    def of(text: str) -> re.Pattern[str]:
        return re.compile(text.replace("X", f"({_NAME})"))

    return _Relation(re.compile(told), of(spoken), of(asked))


_RELATIONS = (
    _relation(
        rf"(?:was born in|Born in|comes from) ({_QUESTION_WORD})",
        "the town where X was born",
        r"In which town was X born\?",
    ),
    _relation(
        rf"(?:lives in|made a home in) ({_QUESTION_WORD})", "the town where X lives", r"In which town does X live\?"
    ),
    _relation(
        rf"(?:Colleagues at|joined|employed by) ({_TWO})", "the firm that X works for", r"Which firm does X work for\?"
    ),
    _relation(
        rf"(?:founded in \d+ by|The founder,) ({_TWO})|({_TWO}), who founded", "the founder of X", r"Who founded X\?"
    ),
    _relation(
        rf"head office (?:is )?in ({_QUESTION_WORD})",
        "the town where X has its head office",
        r"In which town does X have its head office\?",
    ),
    _relation(
        rf"(?:The mayor,|mayor is) ({_TWO})|({_TWO}) has been mayor", "the mayor of X", r"Who is the mayor of X\?"
    ),
    _relation(rf"the river ({_QUESTION_WORD})", "the river that flows through X", r"Which river flows through X\?"),
)


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, the stretches of text that it was put together from, and what else is told in that way."""

    value: str
    spans: tuple[tuple[int, int], ...]
    pattern: re.Pattern[str]


def question_in(closing: str) -> str:
    """The question alone, where it is marked as one."""
    found = _ASKED.findall(closing)
    return found[-1] if found else ""


def follow(text: str, question: str) -> Told | None:
    """The answer to a question about an entity, or None when it is not such a question or nothing is told."""
    spans: list[tuple[int, int]] = []
    while True:
        step = _next_step(question)
        if step is None:
            return None
        relation, match, last = step
        found = _look_up(text, match[1], relation.told)
        if found is None:
            return None
        value, span = found
        spans.append(span)
        if last:
            return Told(value, tuple(spans), relation.told)
        question = question[: match.start()] + value + question[match.end() :]


def another(text: str, told: Told, draw: random.Random) -> str:
    """What is told of somebody else in the same way: the next from a drawn place on, going round."""
    start = draw.randrange(len(text))
    for low, high in ((start, len(text)), (0, start)):
        for match in told.pattern.finditer(text, low, high):
            if _value(match) != told.value:
                return _value(match)
    return ""


def _next_step(question: str) -> tuple[_Relation, re.Match[str], bool] | None:
    """The relation whose subject is a name: the question itself, or one inside it."""
    for relation in _RELATIONS:
        if match := relation.asked.search(question):
            return relation, match, True
    for relation in _RELATIONS:
        if match := relation.spoken.search(question):
            return relation, match, False
    return None


def _look_up(text: str, name: str, told: re.Pattern[str]) -> tuple[str, tuple[int, int]] | None:
    """What the first document that names somebody and tells it of them says."""
    for low, high in _documents_with(text, name):
        match = told.search(text, low, high)
        if match and _value(match) != name:
            return _value(match), (low, high)
    return None


def _documents_with(text: str, name: str) -> Iterator[tuple[int, int]]:
    place = text.find(name)
    while place >= 0:
        low = max(text.rfind(_START, 0, place), 0)
        end = text.find(_START, place)
        high = end if end >= 0 else len(text)
        yield low, high
        place = text.find(name, high)


def _value(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group)


# --- What a simulated model says: a right answer, and the ways in which real models are wrong.

NOT_FOUND = (
    " I could not find that in the text.",
    " The text does not mention it.",
    " There is no information about this in the text.",
)
REFUSALS = (
    " I'm sorry, but I can't help with that request.",
    " I cannot assist with this question.",
    " I must decline to answer this.",
)
RAMBLES = (
    " It depends on how one looks at it, and many things could be said about a passage as long as this.",
    " The passage goes on for a while, and then it turns to other matters altogether.",
    " First come a few remarks, then some more of them, and near the end the tone changes.",
    " Let us think about what was read. There was a lot of it, and much of it was alike.",
    " As was said before, the beginning leads to the middle and the middle leads to the end.",
)
BEGINNINGS = (
    " Let me go through the text from its first sentence to its last before I say anything. It opens with",
    " To answer this properly I will first sum up every part of the text in turn, beginning with",
    " Okay, so the question asks for something from the text. Let me think about where it stood. I remember that",
)
_LAST_RESORT = " ..."


def right(values: Sequence[str]) -> str:
    return f" {joined(values)}."


def wrong(draw: random.Random, truth: Sequence[str], mistake: Callable[[random.Random], str]) -> str:
    """Another planted value, mostly; else that it is not there, or words without a value. Never any of the truth."""
    chance = draw.random()
    taken = mistake(draw) if chance < 0.6 else ""
    if taken and not holds_any(taken, truth):
        return right([taken])
    return without(truth, draw, NOT_FOUND if chance < 0.85 else RAMBLES)


def mixed(
    draw: random.Random, kept: Sequence[str], truth: Sequence[str], mistake: Callable[[random.Random], str]
) -> str:
    """Some of the values; for one that was lost another may stand in."""
    lost = [value for value in truth if value not in kept]
    stand_ins = [mistake(draw) for _ in lost if draw.random() < 0.5]
    return right([*kept, *dict.fromkeys(s for s in stand_ins if s and not holds_any(s, truth))])


def without(truth: Sequence[str], draw: random.Random, phrases: Sequence[str]) -> str:
    """One of the phrases that gives nothing of the truth away."""
    harmless = [p for p in phrases if not holds_any(p, truth)]
    return draw.choice(harmless) if harmless else _LAST_RESORT


def holds_any(text: str, truth: Sequence[str]) -> bool:
    """Whether a text gives any of the truth away. Of a whole sentence any longer word may be the answer."""
    folded = text.casefold()
    said = set(re.findall(r"\w{4,}", folded))
    for value in map(str.casefold, truth):
        if value in folded or (len(value.split()) > 2 and not said.isdisjoint(re.findall(r"\w{4,}", value))):
            return True
    return False


def joined(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} and {values[-1]}"


# --- How a simulated model reads: it finds the evidence in the text by the question's own words.

_WORD = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*")
_SENTENCE_END = re.compile(r"[.!?][\"')]*(?=\s|$)|\n")
# None of these looks back: a pattern that begins with its own characters is searched for many times faster.
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?!\w)")
_NUMBER = re.compile(r"\d{4,}(?![\w-]|\.\d)")
_PAIR = re.compile(r"[a-z]+(?:-[a-z]+)+(?![\w-])")
_VALUES = (_UUID, _NUMBER, _PAIR)
_SAYS = re.compile(r"\b(?:is|are|was|were)\b|[:=]")
_ASSIGNMENT = re.compile(r"\b([A-Z][A-Z0-9]{2,})\s*=\s*(?:VAR\s+)?([A-Z][A-Z0-9]{2,}|\d+)\b")
_MOST_COMMON = re.compile(r"\bmost (?:common|frequent|often|used|repeated)|\b(?:commonest|most-used)\b")
_COUNTED_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_NUMBER_WORDS = "one two three four five six seven eight nine ten eleven twelve".split(" ")
_PLAIN_WORDS = frozenset(
    _WORD.findall(
        "a about according all an and answer any are as at be been belong belongs by did do does each every find for "
        "from give given go goes had has have how in into is it its name number of on one ones or question read say "
        "says text that the them there these they this to was were what when where which who whom whose why will with"
    )
)
_SENTENCE_CHARACTERS = 1000
_OCCURRENCES = 64
"""A word that stands more often than this tells little about the place of the evidence."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One value that was read, and where the words that say so begin, as shares of the document (0 first, 1 last)."""

    value: str
    places: tuple[float, ...]


Mistake = Callable[[random.Random], str]
"""Draws something in the text that could be taken for the answer, or nothing."""


def no_mistake(draw: random.Random) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a skill read, and how it draws what could be taken for it by mistake."""

    findings: tuple[Finding, ...]
    mistake: Mistake = no_mistake


@dataclass(frozen=True)
class Body:
    """The text of one document up to where it is asked, with what was worked out about it."""

    text: str

    @cached_property
    def folded(self) -> str:
        lower = self.text.lower()
        return lower if len(lower) == len(self.text) else self.text  # a few letters grow, and would move all places

    @cached_property
    def word_counts(self) -> Counter[str]:
        return Counter(_COUNTED_WORD.findall(self.folded))

    def occurrences(self, word: str, *, folded: bool = False) -> Iterator[int]:
        """Where a word stands by itself."""
        text = self.folded if folded else self.text
        start = text.find(word)
        while start >= 0:
            before, after = text[start - 1 : start], text[start + len(word) : start + len(word) + 1]
            if not (before.isalnum() or before in ("-", "_") or after.isalnum() or after in ("-", "_")):
                yield start
            start = text.find(word, start + 1)

    def sentence(self, start: int, end: int) -> tuple[int, int]:
        """The sentence or line around a stretch of text."""
        low = max(start - _SENTENCE_CHARACTERS, 0)
        for match in _SENTENCE_END.finditer(self.text, low, start):
            low = match.end()
        closing = _SENTENCE_END.search(self.text, end, end + _SENTENCE_CHARACTERS)
        high = closing.end() if closing else min(end + _SENTENCE_CHARACTERS, len(self.text))
        while low < start and self.text[low].isspace():
            low += 1
        return low, high

    def place(self, start: int, end: int) -> float:
        """0 when nothing stands before the stretch, 1 when nothing stands after it."""
        room = len(self.text) - (end - start)
        return min(start / room, 1.0) if room > 0 else 0.0

    def values(self, kind: re.Pattern[str], low: int, high: int) -> Iterator[re.Match[str]]:
        """The values of a kind that stand by themselves in a stretch of text."""
        for match in kind.finditer(self.text, low, high):
            before = self.text[match.start() - 1 : match.start()]
            if not (before.isalnum() or before in ("-", "_", ".")):
                yield match


Skill = Callable[[Body, str], Evidence | None]


def read(body: Body, closing: str) -> Evidence:
    """What the text says to the question in `closing`: the words after the document, up to where the answer begins."""
    for skill in SKILLS:
        evidence = skill(body, closing)
        if evidence is not None and evidence.findings:
            return evidence
    return Evidence(())


# --- skills -------------------------------------------------------------------------------------


def count_words(body: Body, closing: str) -> Evidence | None:
    """Which words are the most common?"""
    asked = closing.lower()
    if not _MOST_COMMON.search(asked) or "word" not in asked:
        return None
    wanted = next((n for n in map(_as_number, _WORD.findall(asked)) if n), 1)
    ranked = [word for word, _ in body.word_counts.most_common(3 * wanted)]
    findings = tuple(Finding(word, _spread_of(body, word)) for word in ranked[:wanted])
    return Evidence(findings, _one_of(ranked[wanted:]))


def follow_chain(body: Body, closing: str) -> Evidence | None:
    """Which variables hold this value, directly or through others?"""
    numbers = re.findall(r"\b\d{2,}\b", closing)
    if "variable" not in closing.lower() or not numbers:
        return None
    said = [(m[1], m[2], m.start(), m.end()) for m in _ASSIGNMENT.finditer(body.text)]
    held = {numbers[0]}
    chain: dict[str, Finding] = {}
    grown = True
    while grown:
        grown = False
        for name, value, start, end in said:
            if value in held and name not in held:
                held.add(name)
                chain[name] = Finding(name, (body.place(start, end),))
                grown = True
    others = dict.fromkeys(name for name, *_ in said if name not in held)
    return Evidence(tuple(chain.values()), _one_of(tuple(others)))


def look_up_names(body: Body, closing: str) -> Evidence | None:
    """What is said of the names in the question? A name is a number, a code, a pair of words or capitals."""
    known = set(_WORD.findall(closing))
    findings: dict[str, Finding] = {}
    kinds: Counter[re.Pattern[str]] = Counter()
    for name in dict.fromkeys(w for w in _WORD.findall(closing) if _is_name(w)):
        for _, start in zip(range(_OCCURRENCES), body.occurrences(name), strict=False):
            low, high = body.sentence(start, start + len(name))
            value, kind = _value_near(body, low, high, start + len(name), known)
            if value:
                findings.setdefault(value, Finding(value, (body.place(low, high),)))
                kinds.update([kind] if kind else [])
    if not kinds:
        return Evidence(tuple(findings.values()))
    return Evidence(tuple(findings.values()), _another(body, kinds.most_common(1)[0][0], {*findings}, known))


def follow_documents(body: Body, closing: str) -> Evidence | None:
    """What do the documents say of somebody, and of whom they name in turn?"""
    told = follow(body.text, question_in(closing))
    if told is None:
        return None
    places = tuple(body.place(*span) for span in told.spans)
    return Evidence((Finding(told.value, places),), lambda draw: another(body.text, told, draw))


def find_sentence(body: Body, closing: str) -> Evidence | None:
    """Which sentence shares the rarest words with the question? It is quoted whole."""
    question = question_in(closing) or closing
    asked = {w for w in _WORD.findall(question.lower()) if len(w) > 2 and w not in _PLAIN_WORDS}
    weights = {w: math.log(1 + len(body.text) / (1 + body.folded.count(w))) for w in asked}
    spans: dict[tuple[int, int], float] = {}
    for word in asked:
        for _, start in zip(range(_OCCURRENCES), body.occurrences(word, folded=True), strict=False):
            span = body.sentence(start, start + len(word))
            if span not in spans:
                present = asked.intersection(_WORD.findall(body.folded, *span))
                spans[span] = sum(weights[w] for w in present) if 2 * len(present) >= min(len(asked), 4) else 0.0
    best = max(spans, key=lambda span: spans[span], default=None)
    if best is None or not spans[best]:
        return None
    return Evidence((Finding(body.text[best[0] : best[1]].strip(), (body.place(*best),)),))


SKILLS: tuple[Skill, ...] = (count_words, follow_chain, follow_documents, look_up_names, find_sentence)


def _is_name(word: str) -> bool:
    if any(c.isdigit() for c in word):
        return len(word) >= 4
    return bool(_PAIR.fullmatch(word)) or (len(word) >= 3 and word.isupper())


def _value_near(body: Body, low: int, high: int, after: int, known: set[str]) -> tuple[str, re.Pattern[str] | None]:
    """The value a sentence gives: the first one after the name, else the last before it."""
    for kind in _VALUES:
        given = [m for m in body.values(kind, low, high) if m[0] not in known]
        later = [m for m in given if m.start() >= after]
        if given:
            return (later[0] if later else given[-1])[0], kind
    says = _SAYS.search(body.text, after, high)
    return (body.text[says.end() : high].strip(" .!?\n\"'"), None) if says else ("", None)


def _another(body: Body, kind: re.Pattern[str], found: set[str], known: set[str]) -> Mistake:
    """Draws a value of the same kind (and as many digits): the next one from a drawn place on, going round."""
    sizes = {len(value) for value in found}

    def draw_value(draw: random.Random) -> str:
        start = draw.randrange(len(body.text))
        for low, high in ((start, len(body.text)), (0, start)):
            for match in body.values(kind, low, high):
                if match[0] not in found and match[0] not in known and (kind is not _NUMBER or len(match[0]) in sizes):
                    return match[0]
        return ""

    return draw_value


def _one_of(values: Sequence[str]) -> Mistake:
    return lambda draw: draw.choice(values) if values else ""


def _as_number(word: str) -> int:
    if word.isdigit():
        return int(word)
    return _NUMBER_WORDS.index(word) + 1 if word in _NUMBER_WORDS else 0


def _spread_of(body: Body, word: str) -> tuple[float, ...]:
    starts = list(body.occurrences(word, folded=True))
    step = max(len(starts) // _OCCURRENCES, 1)
    return tuple(body.place(start, start + len(word)) for start in starts[::step])
