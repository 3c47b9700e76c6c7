"""Reads the text of an answer: its words and the values it gives.

Strict scoring and failure classes share these functions, so that they agree.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Literal

from leadline.core.types import Question
from leadline.scorers.normalise import clean, compiled, folded, visible

ValueForm = Literal["numbers", "uuids", "names", "pairs", "words"]

# Hyphen, apostrophe and underscore join two words into one word, as a point or a comma joins digits into one number.
# Han and kana are written without spaces, so each sign is a word.
_LONE_SIGN = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_PART = rf"[^\W_{_LONE_SIGN}]+"
# The minus of a number and the point before its digits belong to it: -7654321 and .7654321 are other numbers.
_SIGN = r"(?:(?<![\w)\]\-])-\.?|(?<![\w.)\]])\.)(?=\d+(?:[.,]\d+)*(?![\w-]))"
_WORD = rf"[{_LONE_SIGN}]|(?:{_SIGN})?{_PART}(?:[-'_]{_PART}|(?<=\d)\.(?=\d){_PART}|(?<=\d),\d{{3}}(?![\d.]))*"
_POINT_ZERO = re.compile(r"(?<=\d)\.0+$|(?<=\w)'s$")
"""`7654321.0` is the number 7654321, and `Arden's` the word Arden."""
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}")
_UUID_LIKE = re.compile(r"(?=[0-9a-f-]*[0-9])[0-9a-f]+(?:-[0-9a-f]+)*")
_PAIR = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)+")
_NUMBER = re.compile(r"-?\d*(?:\.?\d+)")
_BULLET = re.compile(r"(?m)^([ \t]*)-(?=\d)")
_LIST_MARKER = re.compile(r"(?m)^[ \t]*\(?\d{1,3}[.)](?=\s)|(?<=\s)\(?\d{1,3}[.)](?=\s)")
_ITEM_BREAK = re.compile(r"[\n,;|\u3001\uff0c\uff1b\u3002\uff01\uff1f]|[.!?](?=\s|$)")
_PROSE_WORDS = 2
_LABEL = re.compile(r"(?<![^\n,;|:.])[^\n,;|:.]*:(?=\s|$)")
"""A label begins after one of these signs; searched from every place, a long answer without them would take minutes."""


def words(text: str) -> list[str]:
    """The words of a text that is already clean (or merely visible, where letter case matters)."""
    return [_POINT_ZERO.sub("", word) if word[-1] in "0s" else word for word in compiled(_WORD).findall(text)]


def form_of(question: Question) -> ValueForm:
    """The form of the question's targets: from its `value_kind`, else from the targets themselves.

    Names are in capitals, as variables are; pairs are words joined by a hyphen, such as misty-harbor.
    """
    if question.value_kind in ("numbers", "uuids"):
        return question.value_kind
    targets = [t.strip() for t in question.targets]
    if not targets:
        return "words"
    if all(_NUMBER.fullmatch(clean(t)) for t in targets):
        return "numbers"
    if all(_UUID.fullmatch(clean(t)) for t in targets):
        return "uuids"
    if all(len(t) > 1 and t.isascii() and t.isalnum() and t.isupper() for t in targets):
        return "names"
    if all(_PAIR.fullmatch(clean(t)) for t in targets):
        return "pairs"
    return "words"


class Words:
    """The words of one answer, searchable for phrases. Each phrase length is indexed once."""

    def __init__(self, text: str) -> None:
        self._text = _without_bullets(folded(text))
        self.list = words(self._text)
        self._phrases: dict[int, dict[tuple[str, ...], list[int]]] = {}

    def count(self, phrase: str) -> int:
        """Occurrences of a phrase in the answer as whole words."""
        return len(self._places(words(clean(phrase))))

    def occurring(self, phrases: Iterable[str]) -> list[str]:
        """The phrases that occur in the answer, each once."""
        seen: dict[str, str] = {}
        for phrase in phrases:
            if self.count(phrase):
                seen.setdefault(clean(phrase), phrase)
        return list(seen.values())

    def in_another_form(self, phrases: Iterable[str]) -> list[str]:
        """The phrases that the answer has with other separators: `7 654 321`, `misty harbor`."""
        return [phrase for phrase in phrases if self._is_spread(phrase)]

    def _is_spread(self, phrase: str) -> bool:
        signs = re.sub(r"[\W_]+", "", clean(phrase))
        spread = r"[ \u00a0\u202f.,'_-]?".join(map(re.escape, signs))
        return len(signs) > 3 and bool(re.search(rf"(?<![\w-]){spread}(?![\w-]|[.,]\d)", self._text))

    def _places(self, phrase: Sequence[str]) -> Sequence[int]:
        """Where a phrase begins, as numbers of words."""
        size = len(phrase)
        if not size:
            return ()
        if size not in self._phrases:
            places: dict[tuple[str, ...], list[int]] = {}
            for at, sequence in enumerate(zip(*(self.list[i:] for i in range(size)), strict=False)):
                places.setdefault(sequence, []).append(at)
            self._phrases[size] = places
        return self._phrases[size].get(tuple(phrase), ())


ANSWERS_KEPT = 8
"""Every scorer of a question reads its answer, and so does the failure class: what was read last is kept."""


@lru_cache(ANSWERS_KEPT)
def words_of(answer: str) -> Words:
    return Words(answer)


@lru_cache(ANSWERS_KEPT)
def _words_without_markers(answer: str) -> tuple[str, ...]:
    return tuple(words(clean(_without_markers(answer))))


def values_of_form(form: ValueForm, targets: Sequence[str], answer: str) -> list[str]:
    """The values in an answer that have the full form of the targets, right or wrong."""
    if form == "words":
        return _items(targets, answer)
    if form == "names":
        sizes = {len(t) for t in targets}
        return [w for w in words(_without_markers(answer)) if len(w) in sizes and w.isupper() and w.isalnum()]
    answer_words = _words_without_markers(answer)
    if form in ("uuids", "pairs"):
        return [w for w in answer_words if (_UUID if form == "uuids" else _PAIR).fullmatch(w)]
    sizes = {len(t.strip()) for t in targets}
    # A short number may have any length; a long one with digits missing or added does not have the form.
    return [w for w in answer_words if _NUMBER.fullmatch(w) and (len(w) in sizes or min(sizes, default=0) < 4)]


def other_values(question: Question, answer: str) -> list[str]:
    """The values in an answer, each once, that are of the targets' kind and are no target: values of the same form or
    nearly so, or short items of its list, and planted ones wherever they stand. What the question itself says is an
    echo and no value."""
    targets = [f" {' '.join(words(clean(t)))} " for t in question.targets]
    echo = set(words(clean(f"{question.text} {question.answer_prefix}"))) - {t.strip() for t in targets}
    offered = [*_nearly_of_form(question, answer, echo), *map(clean, words_of(answer).occurring(question.distractors))]
    return [
        value
        for value in dict.fromkeys(offered)
        if not all(part in echo for part in value.split())
        and not any(target in f" {value} " or f" {value} " in target for target in targets)
    ]


def _nearly_of_form(question: Question, answer: str, echo: Collection[str]) -> list[str]:
    form, targets = form_of(question), question.targets
    if form == "words":
        return _items(targets, answer, echo)
    if form in ("names", "pairs"):
        return [w.casefold() for w in values_of_form(form, targets, answer)]
    answer_words = _words_without_markers(answer)
    if form == "uuids":
        return [w for w in answer_words if len(w) >= 8 and _UUID_LIKE.fullmatch(w)]
    enough = max(1, min((len(t.strip()) for t in targets), default=1) - 2)
    return [w for w in answer_words if _NUMBER.fullmatch(w) and len(w) >= enough]


def listed_items(answer: str) -> list[list[str]]:
    """The answer as a list: the words of each item. A label such as `Answer:` is no item."""
    text = _LABEL.sub("\n", _without_markers(answer))
    parts = (words(clean(part)) for part in _ITEM_BREAK.split(text))
    return [part for part in parts if part]


def _items(targets: Sequence[str], answer: str, echo: Collection[str] = ()) -> list[str]:
    """The items of the answer's list that have no more words than the longest target; longer ones are prose.

    Where a list of single words is asked for, a stretch without separators that has a target is a list too, if it has
    over `_PROSE_WORDS` more words than there are targets."""
    longest = max((len(words(clean(t))) for t in targets), default=1)
    right = set(map(clean, targets))
    numbers_count = any(any(c.isdigit() for c in t) for t in targets)
    offered: list[str] = []
    for item in listed_items(answer):
        content = [w for w in item if numbers_count or not _NUMBER.fullmatch(w)]
        if content and len(content) <= longest:
            offered.append(" ".join(content))
        elif longest == 1 < len(targets) and not right.isdisjoint(content):
            unsaid = [w for w in content if w not in echo]
            offered.extend(unsaid if len(unsaid) > len(targets) + _PROSE_WORDS else ())
    return offered


def _without_markers(answer: str) -> str:
    return _LIST_MARKER.sub("\n", _without_bullets(visible(answer)))


def _without_bullets(text: str) -> str:
    """A dash before the number is a bullet where several lines begin with one; a single one is a minus."""
    return _BULLET.sub(r"\1  ", text) if len(_BULLET.findall(text)) > 1 else text


_LOOP_WORDS = 2000


def repeats_itself(answer: str) -> bool:
    """Whether fewer than three in ten of the three-word phrases are distinct: a loop."""
    answer_words = words(clean(answer[: _LOOP_WORDS * 12]))[:_LOOP_WORDS]
    phrases = list(zip(answer_words, answer_words[1:], answer_words[2:], strict=False))
    return len(phrases) >= 20 and len(set(phrases)) < 0.3 * len(phrases)
