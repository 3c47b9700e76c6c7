"""Copying a text of one repeated word with one other word in it: the simplest task whose answer is as long as its text.

After the repeated-words experiment of Chroma's report on context rot (2025). Nothing has to be found or understood, so
whatever goes wrong is due to length alone: words left out or added, the other word lost or moved, a refusal. The words
are our own. Half of the length is the allowance, so that the whole text fits into the answer. Its scorers:

copy.exact           1 for the same words in the same order
copy.edit            the share of words that text and copy have in common, in order: 1 - d / (n + m), where d words have
                     to be taken out or put in and n and m are the numbers of words
copy.place           1 if the word that differs from the others is in the copy once, at its place

White space, punctuation around words and letter case do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import ClassVar

from pydantic import Field

from leadline.core.drafts import Draft, DraftQuestion, Fact, PieceBank
from leadline.core.records import Score
from leadline.core.seeds import digest, of_split, rng
from leadline.core.types import Cell, Question, Reading
from leadline.scorers.match import RuleScorer
from leadline.scorers.overlap import common_length
from leadline.tasks.placement import fact_depths
from leadline.tasks.wording import PromptPart, WordedTask, question_parts
from leadline.tasks.words import NOUNS
from leadline.text.fillers import TextFiller

WORDS = tuple(word for word in NOUNS if 4 <= len(word) <= 8 and word[-1] not in "shxyz")
"""Words whose plural ends in s. The plural is the other word."""
PARTS = question_parts(
    "Copy the text below exactly as it is, word for word, and write nothing else.\n\n",
    "\n\nThe text ends here. Write it again, exactly as it is.",
    "",
)


class CopyWords(WordedTask):
    """Copy a text of one repeated word that has one other word in it.

    Depth is where the other word is. The headline score is 1 for an exact copy; `copy.edit` is the share of words
    kept in order, and `copy.place` whether the other word is where it should be.
    """

    version: ClassVar[str] = "1"
    readings: ClassVar[tuple[Reading, ...]] = ("fresh",)
    category: ClassVar[str] = "copying"

    word: str = Field("", description="the repeated word; empty draws one for each sample")
    other: str = Field("", description="the other word; empty adds an s to the repeated one")

    def parts(self) -> Mapping[str, PromptPart]:
        return PARTS

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        (cell,) = cells  # the answer is the whole text
        draw = rng(seed, "copying", *cell.coordinates)
        drawn = draw.choice(of_split(WORDS, self.split))
        word = self.word or drawn
        other = self.other or f"{word}s"
        [depth] = fact_depths(cell, 0.0, 1, draw)
        fact = Fact(f"{cell.key}#0", other, depth, cell.length)
        return self.new_draft(
            cells,
            filler=TextFiller(_repeated(word), 0, repeat=True),
            facts=(fact,),
            questions=(
                DraftQuestion(
                    cell=cell,
                    text=self.fill("question"),
                    answer_prefix=self.fill("prefix"),
                    count_targets=lambda text: (text.strip(),),
                    allowance=(cell.length + 1) // 2,
                    scorers=("copy.exact", "copy.edit", "copy.place"),
                    facts=(fact.id,),
                    labels={"word": word, "other": other},
                    family="copying",
                ),
            ),
        )


@cache
def _repeated(word: str) -> PieceBank:
    pieces = (f" {word}",) * 64
    return PieceBank(f"the word {word}", digest([word, len(pieces)]), pieces)


# --- how well it was copied ---


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
