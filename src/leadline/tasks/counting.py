"""Counting words over a whole text, so that no part of it can be skipped.

After the aggregation tasks of RULER (arXiv 2404.06654): common words in a numbered list (`cwe`), and frequent words in
a coded text (`fwe`). The wordings are our own. Targets are counted in the text that is sent, at every cut.
"""

from __future__ import annotations

import random
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import ClassVar

from pydantic import Field, field_validator, model_validator

from leadline.core.drafts import Composer, Draft, DraftQuestion
from leadline.core.errors import UsageError
from leadline.core.seeds import Split, rng, seed_of
from leadline.core.types import Cell, Reading
from leadline.tasks.word_list import WordList
from leadline.tasks.wording import SCORERS, PromptPart, WordedTask, answer_allowance, answer_forms, demonstration_part
from leadline.tasks.words import Vocabulary, demonstration_words
from leadline.tasks.zipf_text import ZipfText, zeta

LIST = (
    "Below is a numbered list of words. Some of them stand in it much more often than the others. Keep count of them; "
    "a question about it follows.\n\n"
)
LIST_QUESTION = "\n\nQuestion: Which {count} words are the most common in the list? Name each of them once."
LIST_PREFIX = "The {count} most common words are"
LIST_PARTS = {
    "instruction": PromptPart((LIST,), may=("count",), opens=True),
    "question": PromptPart((LIST_QUESTION,), may=("count",), asks=True),
    "prefix": PromptPart((LIST_PREFIX,), may=("count",)),
    "demonstration": demonstration_part("another list"),
}

CODE = (
    "The text below is written in code. Its words have no meaning, and {noise} is mere noise between them. Keep count "
    "of the coded words; a question about it follows.\n\n"
)
CODE_QUESTION = (
    "\n\nQuestion: Which {count} coded words are the most frequent in the text? The noise {noise} does not count. "
    "Give the words without any explanation."
)
CODE_PREFIX = "The {count} most frequent coded words are"
CODE_PARTS = {
    "instruction": PromptPart((CODE,), may=("noise", "count"), opens=True),
    "question": PromptPart((CODE_QUESTION,), may=("noise", "count"), asks=True),
    "prefix": PromptPart((CODE_PREFIX,), may=("noise", "count")),
}

WORD_CHARACTERS = 13
RULER_LIST_CHARACTERS = 10 * WORD_CHARACTERS
"""Of RULER's answer, ten words of up to eleven letters in a list, which has 120 tokens."""
DEMONSTRATIONS = 16
SHORT_BELOW = 4096
"""Below this length RULER's list, and its demonstration, has fewer repetitions."""


_NO_LETTERS = (string.digits + string.punctuation).encode()


def most_frequent(text: str, count: int) -> tuple[str, ...]:
    """The `count` most frequent words of a text in order of appearance. A tie with another word is an error."""
    # Splitting bytes takes half the time of splitting text.
    counts = Counter(text.encode().translate(None, _NO_LETTERS).split())
    least = sorted(counts.values())[-count:][0]
    found = tuple(word.decode() for word, times in counts.items() if times >= least)
    if len(found) != count:
        raise ValueError(f"{len(found)} words occur at least {least} times, not {count}")
    return found


class Counting(WordedTask):
    """Shared by both tasks: one list per document, with the frequent words all over it or around a depth."""

    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")
    category: ClassVar[str] = "aggregation"

    spread: float = Field(0.5, ge=0, le=1, description="width of the band around the depth for the words asked for")

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        cluster = self.cluster(cells)
        if len(cells) > 1 and any(c.depth is not None for c in cells):
            raise UsageError(
                "one list of words cannot have its frequent words around several depths",
                where=cells[0].task,
                fix="use --reading fresh, or --set placement=anywhere",
            )
        lengths = sorted(c.length for c in cells)
        head, questions = self.written(cells, rng(seed, "counting", *cluster.coordinates))
        return self.new_draft(
            cells,
            head=head,
            filler=self.composer(lengths, cells[0].depth, seed_of(seed, "list", *cluster.coordinates)),
            facts=(),
            questions=questions,
        )

    def written(self, cells: Sequence[Cell], draw: random.Random) -> tuple[str, tuple[DraftQuestion, ...]]:
        """The text before the list, and a question for each cell."""
        raise NotImplementedError

    def composer(self, lengths: Sequence[int], depth: float | None, seed: int) -> Composer:
        raise NotImplementedError


def _question(cell: Cell, text: str, prefix: str, count: int, allowance: int, shown: Sequence[str]) -> DraftQuestion:
    return DraftQuestion(
        cell=cell,
        text=text,
        answer_prefix=prefix,
        count_targets=partial(most_frequent, count=count),
        allowance=allowance,
        scorers=SCORERS["all"],
        family="counting",
        demonstration=tuple(shown),
    )


class CommonWords(Counting):
    """Name the most common words of a numbered list.

    Depth is the middle of the band that holds the common words; the band widens if they do not fit. With
    placement=anywhere they are spread over the whole list, as in the paper.
    """

    version: ClassVar[str] = "3"

    num_cw: int = Field(10, ge=1, le=30, description="number of common words, all of which are asked for")
    freq_cw: int = Field(0, ge=0, description="occurrences of a common word; 0 chooses 30, or 6 below 4096 tokens")
    freq_ucw: int = Field(0, ge=0, description="occurrences of another word; 0 chooses 3, or 1 below 4096 tokens")
    vocabulary: Vocabulary = Field("english", description="english while there are enough words, or coined throughout")
    demonstration: bool = Field(True, description="show one solved example before the list")
    answer_tokens: int = Field(120, ge=1, description="tokens for the answer; more for more words than RULER's")

    def parts(self) -> Mapping[str, PromptPart]:
        return LIST_PARTS

    @model_validator(mode="after")
    def _common_words_are_common(self) -> CommonWords:
        for length in (SHORT_BELOW - 1, SHORT_BELOW):
            often, seldom = self.frequencies(length)
            if often <= seldom:
                raise ValueError(
                    f"a common word occurs {often} times and another {seldom}: freq_cw must be above freq_ucw"
                )
        return self

    def frequencies(self, longest: int) -> tuple[int, int]:
        """Occurrences of a common word and of another word in a document of this length."""
        often, seldom = (30, 3) if longest >= SHORT_BELOW else (6, 1)
        return self.freq_cw or often, self.freq_ucw or seldom

    def composer(self, lengths: Sequence[int], depth: float | None, seed: int) -> Composer:
        often, seldom = self.frequencies(lengths[-1])
        return WordList(
            longest=lengths[-1],
            growth=lengths[-1] / lengths[0],
            segments=len(lengths),
            common=self.num_cw,
            often=often,
            seldom=seldom,
            seed=seed,
            depth=depth,
            spread=self.spread,
            vocabulary=self.vocabulary,
            split=self.split,
        )

    def written(self, cells: Sequence[Cell], draw: random.Random) -> tuple[str, tuple[DraftQuestion, ...]]:
        head, text, prefix = (self.fill(part, count=self.num_cw) for part in ("instruction", "question", "prefix"))
        words: list[str] = []
        if self.demonstration:
            short = min(c.length for c in cells) < SHORT_BELOW
            shown, words = demonstrated_list(draw.randrange(DEMONSTRATIONS), self.num_cw, short, self.split)
            example = self.fill(
                "demonstration", instruction=head, document=shown, question=text, prefix=prefix, **answer_forms(words)
            )
            head = example + head
        allowance = answer_allowance(self.answer_tokens, self.num_cw * WORD_CHARACTERS, RULER_LIST_CHARACTERS)
        return head, tuple(_question(c, text, prefix, self.num_cw, allowance, words) for c in cells)


@cache
def demonstrated_list(number: int, common: int, short: bool, split: Split) -> tuple[str, list[str]]:
    """One of the demonstration lists, with its common words: 10 times each, and 30 others 3 times each; when short 3,
    10 and 1.

    There are only a few, of words used in no other list: tokenising a new one each time would take as long as building
    the document.
    """
    often, others, seldom = (3, 10, 1) if short else (10, 30, 3)
    draw = rng("demonstration", number, common)
    words = draw.sample(demonstration_words(split), common + others)
    shown = [*words[:common] * often, *words[common:] * seldom]
    draw.shuffle(shown)
    return " ".join(f"{n}. {word}" for n, word in enumerate(shown, 1)), words[:common]


class FrequentWords(Counting):
    """Name the most frequent words of a coded text.

    Frequencies fall off as a power of the rank. Depth is the middle of the band that holds the words asked for; the
    band widens if they do not fit. With placement=anywhere they are spread over the whole text, as in the paper.
    """

    version: ClassVar[str] = "3"

    alpha: float = Field(2.0, gt=1, le=8, description="how steeply frequencies fall off with rank")
    letters: int = Field(6, ge=4, le=16, description="letters of a coded word")
    top: int = Field(3, ge=1, le=20, description="words asked for; the most frequent of all is noise")
    vocabulary: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="different words, the noise among them; 0: a fiftieth of the length, as RULER",
    )
    noise: str = Field("...", description="signs used in place of the most frequent word")
    answer_tokens: int = Field(50, ge=1, description="tokens for the answer; more for longer answers than RULER's")

    def parts(self) -> Mapping[str, PromptPart]:
        return CODE_PARTS

    @field_validator("noise")
    @classmethod
    def _noise_is_no_word(cls, value: str) -> str:
        if not value or not set(value) <= set(string.punctuation):
            raise ValueError("the noise must not be a word, or it would be counted: use dots or other signs")
        return value

    def composer(self, lengths: Sequence[int], depth: float | None, seed: int) -> Composer:
        longest = lengths[-1]
        # RULER's vocabulary, without the ranks that would occur less than once.
        ranks = min(self.vocabulary or (longest - 50) // 50, int((longest / zeta(self.alpha)) ** (1 / self.alpha)) + 1)
        return ZipfText(
            ranks=max(ranks, self.top + 2),
            alpha=self.alpha,
            letters=self.letters,
            top=self.top,
            noise=self.noise,
            seed=seed,
            depth=depth,
            spread=self.spread,
            split=self.split,
        )

    def written(self, cells: Sequence[Cell], draw: random.Random) -> tuple[str, tuple[DraftQuestion, ...]]:
        said = {"count": self.top, "noise": self.noise}
        head, text, prefix = (self.fill(part, **said) for part in ("instruction", "question", "prefix"))
        allowance = answer_allowance(self.answer_tokens, self.top * (self.letters + 2))
        return head, tuple(_question(c, text, prefix, self.top, allowance, ()) for c in cells)
