"""What can be read from the text of an answer: its words, the values it gives, "not found" and refusals.

Strict scoring and failure classes share these functions, so that they agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from leadline.core.types import Probe
from leadline.scorers.normalise import bare, clean, folded, visible

Form = Literal["numbers", "uuids", "names", "pairs", "words"]

# Hyphen, apostrophe and underscore join two words into one word, as a point or a comma joins digits into one number.
# Han and kana are written without spaces, so each sign is a word.
_LONE_SIGN = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_PART = rf"[^\W_{_LONE_SIGN}]+"
_WORD = re.compile(rf"[{_LONE_SIGN}]|{_PART}(?:[-'_]{_PART}|(?<=\d)\.(?=\d){_PART}|(?<=\d),\d{{3}}(?![\d.]))*")
_POINT_ZERO = re.compile(r"(?<=\d)\.0+$|(?<=\w)'s$")
"""`7654321.0` is the number 7654321, and `Arden's` the word Arden."""
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}")
_UUID_LIKE = re.compile(r"(?=[0-9a-f-]*[0-9])[0-9a-f]+(?:-[0-9a-f]+)*")
_PAIR = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_LIST_MARKER = re.compile(r"(?m)^[ \t]*\(?\d{1,3}[.)](?=\s)|(?<=\s)\(?\d{1,3}[.)](?=\s)")
_ITEM_BREAK = re.compile(r"[\n,;|]|[.!?](?=\s|$)|\b(?:and|or)\b")
_LABEL = re.compile(r"[^\n,;|:.]*:(?=\s|$)")

FUNCTION_WORDS = frozenset(
    _WORD.findall(
        "a about after all also am an and answer any are as at based be been before both but by can certainly could "
        "did do does each for from had has have he her here his how i if in into is it its just may me more most my no "
        "not of okay on once one only or our out over per please she should so some sure than that the their them "
        "then there therefore these they this those thus to up was we were what when where which while who will with "
        "would yes you your indeed simply actually exactly clearly respectively namely called named follows following"
    )
)


def words(text: str) -> list[str]:
    """The words of a text that is already clean (or merely visible, where letter case matters)."""
    return [_POINT_ZERO.sub("", word) for word in _WORD.findall(text)]


def form_of(probe: Probe) -> Form:
    """The form of the probe's targets: from its `value_kind`, else from the targets themselves.

    Names are in capitals, as variables are; pairs are words joined by a hyphen, such as misty-harbor.
    """
    if probe.value_kind in ("numbers", "uuids"):
        return probe.value_kind
    targets = [t.strip() for t in probe.targets]
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
        self._text = folded(text)
        self._spans = [match.span() for match in _WORD.finditer(self._text)]
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
        """The phrases that occur in the answer, each once, and are not denied where they are said last."""
        return [phrase for phrase in self.found(phrases) if not self._denied(words(clean(phrase)))]

    def _denied(self, phrase: Sequence[str]) -> bool:
        last = self._places(phrase)[-1]
        start, end = self._spans[last][0], self._spans[last + len(phrase) - 1][1]
        before, after = self._text[max(0, start - _SCOPE_CHARACTERS) : start], self._text[end : end + _SCOPE_CHARACTERS]
        return _denies(before, after)

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


def values_of_form(form: Form, targets: Sequence[str], answer: str) -> list[str]:
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


def candidates(form: Form, targets: Sequence[str], answer: str, *, question: str) -> list[str]:
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
    return _LIST_MARKER.sub("\n", visible(answer))


# --- "not found", refusals and loops ---
#
# English phrases, searched only at the beginning of an answer: that is where models say such things, and text echoed
# from the document further on must not be mistaken for them.

_BEGINNING_CHARACTERS = 600
_LOOP_WORDS = 2000

_NOT = r"(?:\w+n't|cannot|(?:can|could|do|does|did|was|were|am|is|are|has|have) not|unable to|not able to|failed to)"
_FEW = r"(?:[\w'-]+ ){0,3}?"
_NOT_FOUND = re.compile(
    "|".join(
        (
            rf"\b{_NOT} {_FEW}(?:find|found|locate|see|seen|spot|identify|determine|recall|remember|know|be found)\b",
            r"\b(?<!i )(?:does not|doesn't|do not|don't|did not|didn't) (?:[\w'-]+ ){0,2}?"
            r"(?:mention|contain|include|specify|state|provide|say|give|appear|list|reveal|tell|exist|have)\b",
            rf"\b(?:is|are|was|were)(?: not|n't) {_FEW}"
            r"(?:mentioned|given|provided|found|specified|stated|present|included|listed|available|known|in the)\b",
            r"\bthere (?:is|are|was|were|isn't|aren't) (?:no|not|any|nothing)\b[^.]{0,60}"
            r"\b(?:mention|mentioned|information|such|record|reference|given|provided|text|document|passage|context)\b",
            r"\bno (?:mention|information|record|reference|such|matching|relevant|indication)\b",
            r"\b(?:not enough|insufficient|lack of) (?:information|context|detail)",
            r"\bhave (?:no|any|enough|sufficient) (?:[\w'-]+ )?(?:information|context|knowledge|idea)\b",
        )
    )
)
_NOT_FOUND_ALONE = frozenset(
    ("none", "n/a", "na", "unknown", "nothing", "null", "not found", "no answer", "unanswerable", "not mentioned",
     "not available", "not given", "not in the text")
)  # fmt: skip
_REFUSED = re.compile(
    "|".join(
        (
            r"\b(?:i|we)(?: am| are|'m|'re)?(?: \w+){0,2}? "
            r"(?:cannot|can't|can not|won't|will not|unable to|not able to|must decline|decline|refuse)\b"
            r"[^.\n]{0,80}?\b(?:help|assist|comply|provide|share|answer|fulfil|fulfill|do|disclose|reveal|continue|"
            r"engage|support|discuss|complete|respond|to)\b",
            r"\bas an? (?:ai|artificial intelligence|(?:large )?language model)\b",
            r"\bagainst (?:my|our|the) (?:\w+ )?(?:policy|policies|guidelines|rules|principles)\b",
            r"\b(?:not (?:allowed|permitted|comfortable)|isn't appropriate|not appropriate)\b",
        )
    )
)


# --- denials ---
#
# "1234567, not 7654321" does not answer 7654321, and neither does "I cannot find 7654321 in the text". A negation right
# before a value holds up to the next comma, "not found" up to the end of the sentence, unless a new clause begins.

_SCOPE_CHARACTERS = 240
_SENTENCE_END = re.compile(
    r"[.!?](?=\s|$)|[\n;\u3002]|</?\w+>|\s-\s|(?<!anything )\b(?:but|however|although|though|yet|instead(?! of)|so)\b"
)
_CLAUSE = re.compile(r",(?=[^,]*\b(?:is|are|was|were|it's|that's|has|have|must|should|would|seems?|belongs?|equals)\b)")
_DOUBLE = re.compile(
    r"\b(?:not|isn't|no|without)(?: an?| any| the)? (?:only|just|merely|doubt|question|problem|further ado)\b"
    r"|\b(?:not|\w+n't|cannot) (?:mistaken|wrong|incorrect|doubt(?: that)?|believe it)\b"
    r"|\b(?:no|none|nothing|no one|nobody|not|\w+n't|cannot)(?: [\w'-]+){0,2} (?:other than|except(?: for)?|besides)\b"
    r"|\bnothing (?:else )?but\b"
)
_NEGATION = re.compile(
    r"\b(?:not|no|never|neither|nor|none|nobody|nowhere|lacks|cannot|\w+n't|without|except(?: for)?|excluding|unlike"
    r"|wrong(?:ly)?|incorrect(?:ly)?|false|(?:instead|rid) of|(?:rather|other) than|unable to|fail(?:s|ed)? to"
    r"|refuse to|decline to|doubt(?:s|ful)?|anything but)(?![\w'-])"
)
_LISTED_AS_DENIED = re.compile(r"\b(?:neither|none of|not any of)(?: [\w-]+,?){1,8},?(?: (?:and|or|nor))? ?$")
_MODAL = r"(?:is|are|was|were|does|do|did|has|have|had|can|could|will|would|should|must|may|might)"
_DENIED_AFTER = re.compile(
    r"[\s\"'`*)\]]*(?:"
    r"(?:(?!(?:is|are|was|that|which|who|and|or|so|as)\b)[\w'-]+ ){0,4}?"
    rf"(?:{_MODAL}(?: not\b|n't\b| never\b)(?! [\"'`*]*\d)|cannot\b|can't\b|won't\b"
    r"|(?:is|was|would be|seems) (?:also )?(?:wrong|incorrect|false|absent|missing|nowhere|no )\b)"
    r"|[(\[]\s*(?:wrong|incorrect|false)\b"
    r"|[-:(]?\s*(?:not|nowhere) (?:to be )?(?:found|in|mentioned|present|there|given|listed|correct|right)\b"
    r"|\?\W*(?:no|not|nope|wrong)\b)"
)


_INTERROGATIVE = re.compile(r"[^.!?\n]*\?")


def asks_for_what_is_not(question: str) -> bool:
    """Whether the question itself is negative, as in "Who did not come?", so that a right answer may be negative."""
    return any(_NEGATION.search(sentence) for sentence in _INTERROGATIVE.findall(folded(question)))


def _denies(before: str, after: str) -> bool:
    """Whether the text around a value denies it. Both are folded; `before` ends and `after` begins at the value."""
    sentence = _SENTENCE_END.split(_DOUBLE.sub(" ", before))[-1]
    clause = _CLAUSE.split(sentence + "\x00")[-1]
    if _NEGATION.search(clause.rpartition(",")[2]) or _NOT_FOUND.search(clause):
        return True
    if _LISTED_AS_DENIED.search(clause.rstrip("\x00")):
        return True
    return _DENIED_AFTER.match(after) is not None


def says_not_found(answer: str) -> bool:
    """Whether the model says that the text does not have it, or that it does not know."""
    start = _beginning(answer)
    return bare(start) in _NOT_FOUND_ALONE or _NOT_FOUND.search(start) is not None


def says_refusal(answer: str) -> bool:
    """Whether the model declines to answer."""
    return _REFUSED.search(_beginning(answer)) is not None


def repeats_itself(answer: str) -> bool:
    """Whether fewer than three in ten of the three-word phrases are distinct: a loop."""
    given = words(clean(answer[: _LOOP_WORDS * 12]))[:_LOOP_WORDS]
    phrases = list(zip(given, given[1:], given[2:], strict=False))
    return len(phrases) >= 20 and len(set(phrases)) < 0.3 * len(phrases)


def _beginning(answer: str) -> str:
    return clean(answer[: _BEGINNING_CHARACTERS * 2])[:_BEGINNING_CHARACTERS]
