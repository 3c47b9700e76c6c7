"""What can be read from the text of an answer: its words and the values it gives.

Strict scoring and failure classes share these functions, so that they agree.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from leadline.core.types import Question
from leadline.scorers.denials import SCOPE_CHARACTERS, denies
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
_THINKING_END = re.compile(r"</think(?:ing)?>(?=\s*\S)")
_LIST_MARKER = re.compile(r"(?m)^[ \t]*\(?\d{1,3}[.)](?=\s)|(?<=\s)\(?\d{1,3}[.)](?=\s)")
_ITEM_BREAK = re.compile(r"[\n,;|]|[.!?](?=\s|$)|\b(?:and|or)\b")
_LABEL = re.compile(r"(?<![^\n,;|:.])[^\n,;|:.]*:(?=\s|$)")
"""A label begins after one of these signs; searched from every place, a long answer without them would take minutes."""

FUNCTION_WORDS = frozenset(
    (
        "a about after all also am an and answer any are as at based be been before both but by can certainly could "
        "did do does each for from had has have he her here his how i if in into is it its just may me more most my no "
        "not of okay on once one only or our out over per please she should so some sure than that the their them "
        "then there therefore these they this those thus to up was we were what when where which while who will with "
        "would yes you your indeed simply actually exactly clearly respectively namely called named follows following"
    ).split()
)


def words(text: str) -> list[str]:
    """The words of a text that is already clean (or merely visible, where letter case matters)."""
    return [_POINT_ZERO.sub("", word) for word in compiled(_WORD).findall(text)]


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
        self._spans = [match.span() for match in compiled(_WORD).finditer(self._text)]
        self.list = words(self._text)
        self._phrases: dict[int, dict[tuple[str, ...], list[int]]] = {}

    def count(self, phrase: str) -> int:
        """Occurrences of a phrase in the answer as whole words."""
        return len(self._places(words(clean(phrase))))

    def found(self, phrases: Iterable[str]) -> list[str]:
        """The phrases that occur in the answer, each once."""
        seen: dict[str, str] = {}
        for phrase in phrases:
            if self.count(phrase):
                seen.setdefault(clean(phrase), phrase)
        return list(seen.values())

    def affirmed(self, phrases: Iterable[str]) -> list[str]:
        """The phrases that occur in the answer, each once, and are neither denied nor corrected where they are said
        last. What is said in a block of thinking before the answer does not count."""
        phrases = list(phrases)
        beside = frozenset(map(clean, phrases))
        answer_start = max((match.end() for match in _THINKING_END.finditer(self._text)), default=0)
        return [p for p in self.found(phrases) if not self._denied(words(clean(p)), beside, answer_start)]

    def in_another_form(self, phrases: Iterable[str]) -> list[str]:
        """The phrases that the answer gives, not denied, with other separators: `7 654 321`, `misty harbor`."""
        found = []
        for phrase in phrases:
            signs = re.sub(r"[\W_]+", "", clean(phrase))
            spread = r"[ \u00a0\u202f.,'_-]?".join(map(re.escape, signs))
            places = list(re.finditer(rf"(?<![\w-]){spread}(?![\w-]|[.,]\d)", self._text)) if len(signs) > 3 else []
            if places and not self._denied_at(*places[-1].span()):
                found.append(phrase)
        return found

    def _denied(self, phrase: Sequence[str], beside: Collection[str], answer_start: int) -> bool:
        last = self._places(phrase)[-1]
        start, end = self._spans[last][0], self._spans[last + len(phrase) - 1][1]
        return start < answer_start or self._denied_at(start, end, beside)

    def _denied_at(self, start: int, end: int, beside: Collection[str] = ()) -> bool:
        before, after = self._text[max(0, start - SCOPE_CHARACTERS) : start], self._text[end : end + SCOPE_CHARACTERS]
        return denies(before, self._text[start:end], after, beside)

    def _places(self, phrase: Sequence[str]) -> Sequence[int]:
        """Where a phrase begins, as numbers of words."""
        size = len(phrase)
        if not size:
            return ()
        if size not in self._phrases:
            places: dict[tuple[str, ...], list[int]] = {}
            for place, given in enumerate(zip(*(self.list[i:] for i in range(size)), strict=False)):
                places.setdefault(given, []).append(place)
            self._phrases[size] = places
        return self._phrases[size].get(tuple(phrase), ())


def values_of_form(form: ValueForm, targets: Sequence[str], answer: str) -> list[str]:
    """The values in an answer that have the full form of the targets, right or wrong."""
    if form == "words":
        return _items(targets, answer)
    if form == "names":
        sizes = {len(t) for t in targets}
        return [w for w in words(_without_markers(answer)) if len(w) in sizes and w.isupper() and w.isalnum()]
    given = words(clean(_without_markers(answer)))
    if form in ("uuids", "pairs"):
        return [w for w in given if (_UUID if form == "uuids" else _PAIR).fullmatch(w)]
    sizes = {len(t.strip()) for t in targets}
    # A short number may have any length; a long one with digits missing or added does not have the form.
    return [w for w in given if _NUMBER.fullmatch(w) and (len(w) in sizes or min(sizes, default=0) < 4)]


def candidates(form: ValueForm, targets: Sequence[str], answer: str, *, question: str) -> list[str]:
    """The candidates in an answer, each once: values of the form or nearly so, or the items of its list.

    What the question itself says is an echo, not a candidate, unless it is a target.
    """
    if form == "words":
        offered = _items(targets, answer)
    elif form in ("names", "pairs"):
        offered = [w.casefold() for w in values_of_form(form, targets, answer)]
    else:
        given = words(clean(_without_markers(answer)))
        if form == "uuids":
            offered = [w for w in given if len(w) >= 8 and _UUID_LIKE.fullmatch(w)]
        else:
            enough = max(1, min((len(t.strip()) for t in targets), default=1) - 2)
            offered = [w for w in given if _NUMBER.fullmatch(w) and len(w) >= enough]
    echo = set(words(clean(question))) - {clean(t) for t in targets}
    return [w for w in dict.fromkeys(offered) if not all(part in echo for part in w.split())]


def listed_items(answer: str) -> list[list[str]]:
    """The answer as a list: the words of each item. A label such as `Answer:` is no item."""
    text = _LABEL.sub("\n", _without_markers(answer))
    parts = (words(clean(part)) for part in _ITEM_BREAK.split(text))
    return [part for part in parts if part]


def _items(targets: Sequence[str], answer: str) -> list[str]:
    sizes = [len(words(clean(t))) for t in targets]
    longest = max(sizes, default=1)
    numbers_count = any(any(c.isdigit() for c in t) for t in targets)
    offered: list[str] = []
    for item in listed_items(answer):
        content = [w for w in item if numbers_count or not _NUMBER.fullmatch(w)]
        if not content or all(w in FUNCTION_WORDS for w in content):
            continue
        if len(content) > longest and any(w in FUNCTION_WORDS for w in content):
            continue  # prose around the answer, not an item of it
        if len(content) > longest == 1:
            offered.extend(content)  # a bare list with spaces between its items
        else:
            offered.append(" ".join(content))
    return offered


def _without_markers(answer: str) -> str:
    return _LIST_MARKER.sub("\n", _without_bullets(visible(answer)))


def _without_bullets(text: str) -> str:
    """A dash before the number is a bullet where several lines begin with one; a single one is a minus."""
    return _BULLET.sub(r"\1  ", text) if len(_BULLET.findall(text)) > 1 else text


_LOOP_WORDS = 2000


def repeats_itself(answer: str) -> bool:
    """Whether fewer than three in ten of the three-word phrases are distinct: a loop."""
    given = words(clean(answer[: _LOOP_WORDS * 12]))[:_LOOP_WORDS]
    phrases = list(zip(given, given[1:], given[2:], strict=False))
    return len(phrases) >= 20 and len(set(phrases)) < 0.3 * len(phrases)
