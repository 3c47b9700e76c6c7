"""How well a text was copied: one among several alike (`mrcr`), and one of a repeated word (`copy_words`).

mrcr                 the published rule of openai/mrcr: 0 unless the answer begins with the code word; else the ratio of
                     Python's difflib between answer and target, both without the code word. White space around them is
                     not counted, as in NeMo Gym
mrcr.all_characters  the same without difflib's junk heuristic, which leaves out of the comparison every character that
                     makes up more than 1 % of a target of 200 characters or more: with it one wrong word can cost half
mrcr.strict          1 if the answer begins with the code word and is a copy of the right text, at most one word in
                     twenty changed; else 0, with the text that was copied instead
copy.exact           1 for the same words in the same order
copy.edit            the share of words that text and copy have in common, in order: 1 - d / (n + m), where d words have
                     to be taken out or put in and n and m are the numbers of words
copy.place           1 if the word that differs from the others stands in the copy once, at its place

For copy.*, white space, punctuation around words and letter case do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import ClassVar, Literal

from leadline.core.records import Completion, Score
from leadline.core.types import Probe
from leadline.scorers.answer_forms import words
from leadline.scorers.normalise import clean
from leadline.scorers.overlap import common_length

# --- mrcr -------------------------------------------------------------------------------------------

COPIED = 0.5
"""Share of the phrases of a text that an answer must have to be a copy of it."""
EXACT = 0.95
"""Share of equal words in a copy that counts as right."""
_PHRASE_WORDS = 4


def ratio(answer: str, target: str, opening: str, *, autojunk: bool = True) -> float:
    """The published score of an answer; `opening` is the code word."""
    answer = answer.strip()
    if not answer.startswith(opening):
        return 0.0
    said, right = answer.removeprefix(opening), target.strip().removeprefix(opening)
    return SequenceMatcher(None, said, right, autojunk=autojunk).ratio()


@dataclass(frozen=True, slots=True)
class Copied:
    """Which of the texts an answer is a copy of."""

    right: bool
    """The one that was asked for."""
    ordinal: int = 0
    """Of another of its kind and topic, counted from 1; 0 for any other text."""
    none: bool = False
    """No known text at all."""


def copied(probe: Probe, answer: str) -> Copied:
    """The text whose phrases the answer has most of, if it has half of them."""
    said = _phrases(answer)
    alike = [text for texts in probe.mistakes.values() for text in texts]
    shares = [_share(text, probe.opening, said) for text in (*probe.targets[:1], *alike, *probe.distractors)]
    best = max(range(len(shares)), key=shares.__getitem__, default=-1)
    if best < 0 or shares[best] < COPIED:
        return Copied(False, none=True)
    if best == 0:
        return Copied(True)
    if best > len(alike):
        return Copied(False)
    asked = int(probe.labels.get("ordinal", "0"))
    return Copied(False, ordinal=best if best < asked else best + 1)


def _phrases(text: str) -> set[tuple[str, ...]]:
    given = words(clean(text))
    return set(zip(*(given[n:] for n in range(_PHRASE_WORDS)), strict=False)) or {tuple(given)}


def _share(text: str, opening: str, said: set[tuple[str, ...]]) -> float:
    known = _phrases(text.removeprefix(opening))
    return len(known & said) / len(known)


@dataclass(frozen=True, slots=True)
class MrcrRatio:
    name: str
    autojunk: bool
    version: ClassVar[str] = "1"

    def score(self, probe: Probe, completion: Completion) -> Score:
        value = max(ratio(completion.text, t, probe.opening, autojunk=self.autojunk) for t in probe.targets)
        begins = completion.text.strip().startswith(probe.opening)
        return Score(value, explanation="" if begins else "does not begin with the code word")


@dataclass(frozen=True, slots=True)
class MrcrStrict:
    name: str = "mrcr.strict"
    version: ClassVar[str] = "1"

    def score(self, probe: Probe, completion: Completion) -> Score:
        text = completion.text.strip()
        found = copied(probe, text)
        if not found.right:
            asked = probe.labels.get("ordinal", "?")
            what = f"number {found.ordinal} in place of number {asked}" if found.ordinal else "another text"
            return Score(0.0, explanation="copies none of the texts" if found.none else f"copies {what}")
        if not text.startswith(probe.opening):
            return Score(0.0, explanation="the right text, not after the code word")
        same = _equal_words(text, probe.targets[0])
        return Score(float(same >= EXACT), explanation="" if same == 1 else f"{100 * same:.0f}% of its words")


def _equal_words(answer: str, target: str) -> float:
    said, right = _bare_words(answer), _bare_words(target)
    return SequenceMatcher(None, said, right, autojunk=False).ratio()


def _bare_words(text: str) -> Sequence[str]:
    return words(clean(text))


MRCR = MrcrRatio("mrcr", autojunk=True)
MRCR_ALL_CHARACTERS = MrcrRatio("mrcr.all_characters", autojunk=False)
MRCR_STRICT = MrcrStrict()


# --- copy_words -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CopyScorer:
    name: str
    rule: Literal["exact", "edit", "place"]

    def score(self, probe: Probe, completion: Completion) -> Score:
        wanted, given = _words(probe.targets[0]), _words(completion.text)
        if self.rule == "exact":
            return Score(float(wanted == given), _shown(given), _difference(wanted, given))
        if self.rule == "edit":
            common = common_length(wanted, given) if given else 0
            return Score(2 * common / (len(wanted) + len(given)), _shown(given))
        place, there = _odd_places(wanted, wanted), _odd_places(wanted, given)
        return Score(float(bool(place) and place == there), ", ".join(str(n + 1) for n in there[:4]))


def _words(text: str) -> list[str]:
    return [word for word in (raw.strip(".,;:!?\"'`*()") for raw in text.casefold().split()) if word]


def _odd_places(wanted: Sequence[str], words: Sequence[str]) -> list[int]:
    """Where a text has the word that is rare in the text to copy. A last word that was cut is not it."""
    [(common, _), *rare] = Counter(wanted).most_common()
    odd = {word for word, _ in rare if not (word == wanted[-1] and common.startswith(word))}
    return [number for number, word in enumerate(words) if word in odd]


def _shown(words: Sequence[str]) -> str:
    return " ".join(words[:8]) + (" ..." if len(words) > 8 else "")


def _difference(wanted: Sequence[str], given: Sequence[str]) -> str:
    if wanted == given:
        return ""
    place, there = _odd_places(wanted, wanted), _odd_places(wanted, given)
    stands = f"at {there[0] + 1:,}" if there else "nowhere"
    return f"{len(given):,} of {len(wanted):,} words; the other word {stands}, not at {place[0] + 1:,}" if place else ""


COPY_EXACT, COPY_EDIT, COPY_PLACE = (
    CopyScorer("copy.exact", "exact"),
    CopyScorer("copy.edit", "edit"),
    CopyScorer("copy.place", "place"),
)
