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

from leadline.models.sim.questions import another, follow, question_in

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
