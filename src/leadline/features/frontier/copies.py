"""How well a text of one repeated word was copied (`copy_words`).

copy.exact           1 for the same words in the same order
copy.edit            the share of words that text and copy have in common, in order: 1 - d / (n + m), where d words have
                     to be taken out or put in and n and m are the numbers of words
copy.place           1 if the word that differs from the others is in the copy once, at its place

White space, punctuation around words and letter case do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from leadline.core.records import Score
from leadline.core.types import Question
from leadline.scorers.match import RuleScorer
from leadline.scorers.overlap import common_length


def _copy_exact(question: Question, answer: str) -> Score:
    wanted, copied = _words(question.targets[0]), _words(answer)
    return Score(float(wanted == copied), _shown(copied), _difference(wanted, copied))


def _copy_edit(question: Question, answer: str) -> Score:
    wanted, copied = _words(question.targets[0]), _words(answer)
    common = common_length(wanted, copied) if copied else 0
    return Score(2 * common / (len(wanted) + len(copied)), _shown(copied))


def _copy_place(question: Question, answer: str) -> Score:
    wanted = _words(question.targets[0])
    expected, copied = _odd_places(wanted, wanted), _odd_places(wanted, _words(answer))
    return Score(float(bool(expected) and expected == copied), ", ".join(str(n + 1) for n in copied[:4]))


def _words(text: str) -> list[str]:
    return [word for word in (raw.strip(".,;:!?\"'`*()") for raw in text.casefold().split()) if word]


def _odd_places(wanted: Sequence[str], words: Sequence[str]) -> list[int]:
    """The positions in a text of the word that is rare in the text to copy. A last word that was cut does not count."""
    [(common, _), *rare] = Counter(wanted).most_common()
    odd = {word for word, _ in rare if not (word == wanted[-1] and common.startswith(word))}
    return [number for number, word in enumerate(words) if word in odd]


def _shown(words: Sequence[str]) -> str:
    return " ".join(words[:8]) + (" ..." if len(words) > 8 else "")


def _difference(wanted: Sequence[str], copied: Sequence[str]) -> str:
    if wanted == copied:
        return ""
    expected, actual = _odd_places(wanted, wanted), _odd_places(wanted, copied)
    at = f"at {actual[0] + 1:,}" if actual else "nowhere"
    return (
        f"{len(copied):,} of {len(wanted):,} words; the other word {at}, not at {expected[0] + 1:,}" if expected else ""
    )


COPY_EXACT = RuleScorer("copy.exact", _copy_exact, version="")
COPY_EDIT = RuleScorer("copy.edit", _copy_edit, version="")
COPY_PLACE = RuleScorer("copy.place", _copy_place, version="")
