"""Counting words over a whole text, so that no part of it can be skipped.

After the aggregation tasks of RULER (arXiv 2404.06654): common words in a numbered list (`cwe`), and frequent words in
a coded text (`fwe`). The wordings are our own. Targets are counted in the text that is sent, at every cut.
"""

from __future__ import annotations

import random
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field, field_validator, model_validator

from leadline.core.drafts import Composer, Draft, DraftQuestion, PieceBank, SegmentSize
from leadline.core.errors import UsageError
from leadline.core.seeds import Split, bulk_rng, digest_text, rng, seed_of
from leadline.core.types import Cell, Reading
from leadline.tasks.placement import mix_around_depth, mix_between_guards, pick_sizes
from leadline.tasks.wording import SCORERS, PromptPart, WordedTask, answer_allowance, answer_forms, demonstration_part
from leadline.tasks.words import Vocabulary, demonstration_words, english_count, list_words

if TYPE_CHECKING:
    from leadline.core.types import Indices
import math
from string import ascii_lowercase
from typing import TYPE_CHECKING

from leadline.core.seeds import split_of

if TYPE_CHECKING:
    from leadline.core.types import Indices


# --- A text of coded words with an exact number of tokens, whose frequencies fall off as a power of their rank ---
#
# The word of rank k occurs floor(N k^-alpha / zeta(alpha)) times among N words, as in RULER (arXiv 2404.06654, section
# 3.3). The first rank is noise. Every cut of the text follows the same law with its own N, so the most frequent words
# are the same at every cut, and no other word is ever as frequent.


BARE_NOISE, NOISE, DOT, FIRST_WORD = 0, 1, 2, 3
"""Pieces of the bank: the noise at the beginning of a text, the noise elsewhere, a dot without a space, the words."""
WORDS = 4096
"""Words in a bank, unless a text needs more."""
SPARE_CODES = 256
MOST_CODES = 8
MOST_DOTS = 7
TEXT_GIVEN_BACK = 24
"""The remaining tokens of a segment are filled with noise and up to MOST_CODES words that occur once, from SPARE_CODES
candidates, if necessary in a text up to TEXT_GIVEN_BACK words shorter. If all of these have an even number of tokens,
as in bytes, up to MOST_DOTS dots end the segment."""
LEAST_COUNT = 2
"""Least occurrences of the words asked for, so that a word that occurs once is never as frequent."""


@cache
def zeta(alpha: float) -> float:
    """Riemann's zeta function for alpha > 1, by the Euler-Maclaurin formula. Importing scipy for it takes longer than
    building a document."""
    cut = 64.0
    slope = alpha * math.pow(cut, -alpha - 1)
    rest = math.pow(cut, 1 - alpha) / (alpha - 1) + math.pow(cut, -alpha) / 2 + slope / 12
    return (
        sum(math.pow(k, -alpha) for k in range(1, int(cut))) + rest - slope * (alpha + 1) * (alpha + 2) / (720 * cut**2)
    )


@cache
def _code_bank(words: int, letters: int, noise: str, split: Split) -> PieceBank:
    draw = rng("coded words", letters)
    codes: dict[str, None] = {}
    while len(codes) < words:
        code = "".join(draw.choices(ascii_lowercase, k=letters))
        if split_of(code) == split:
            codes[code] = None
    pieces = [noise, f" {noise}", ".", *(f" {code}" for code in codes)]
    return PieceBank(
        f"coded words of {letters} letters",
        digest_text("\n".join(pieces)),
        pieces,
        contiguous=False,
        uniform_joints=True,
    )


@dataclass(frozen=True, slots=True)
class _TextFilling:
    """Occurrences of each rank up to the end of a segment, and what fills the remaining tokens."""

    occurrences: Indices
    noise: int
    singles: Indices


@dataclass(frozen=True, slots=True)
class ZipfText:
    """The text of one document."""

    ranks: int
    """Number of different words, noise included."""
    alpha: float
    letters: int
    top: int
    """Words asked for: ranks 2 .. top + 1."""
    noise: str
    seed: int
    depth: float | None
    spread: float
    split: Split

    @property
    def bank(self) -> PieceBank:
        words = WORDS
        while words < self.ranks + SPARE_CODES:
            words *= 2
        return _code_bank(words, self.letters, self.noise, self.split)

    def occurrences(self, size: float) -> Indices:
        """Occurrences of each rank in a text of about `size` words."""
        ranks = np.arange(1, self.ranks + 1, dtype=np.float64)
        times = np.floor(size * ranks**-self.alpha / zeta(self.alpha)).astype(np.int64)
        times[self.top + 1 :] = np.minimum(times[self.top + 1 :], max(int(times[self.top]) - 1, 0))
        return times

    @property
    def _least_size(self) -> float:
        """Words that a text needs for the words asked for to occur LEAST_COUNT times."""
        return float(np.ceil(LEAST_COUNT * zeta(self.alpha) * (self.top + 1) ** self.alpha)) + 1

    def least(self, counts: Indices) -> int:
        pieces = np.concatenate(([NOISE], self._codes()[: self.ranks - 1]))
        return int(self.occurrences(self._least_size + TEXT_GIVEN_BACK) @ counts[pieces])

    def compose(self, segment_sizes: Sequence[SegmentSize], counts: Indices) -> list[Indices] | None:
        codes = self._codes()
        pieces = np.concatenate(([NOISE], codes[: self.ranks - 1]))
        spare = codes[self.ranks - 1 :]
        segments = []
        before = np.zeros(self.ranks, np.int64)
        for number, (room, again) in enumerate(segment_sizes):
            if number == 0:
                room += int(counts[NOISE] - counts[BARE_NOISE])
            sizes, singles, dot = counts[pieces], counts[spare[:SPARE_CODES]], int(counts[DOT])
            fillings = (self._fill(before, room - dots * dot, sizes, singles) for dots in range(MOST_DOTS + 1))
            dots, filling = next(((n, f) for n, f in enumerate(fillings) if f is not None), (0, None))
            if filling is None:
                return None
            further = np.concatenate([np.full(filling.noise, NOISE), spare[filling.singles]])
            laid = self._laid(pieces, filling.occurrences - before, further, number, again)
            segments.append(np.concatenate([laid, np.full(dots, DOT)]))
            before, spare = filling.occurrences, np.delete(spare, filling.singles)
        return segments

    def _fill(self, before: Indices, room: int, sizes: Indices, spare: Indices) -> _TextFilling | None:
        """The longest text that fits, or a slightly shorter one if the remaining tokens cannot be filled."""
        longest = self._longest(room + int(before @ sizes), sizes)
        for size in range(longest, longest - TEXT_GIVEN_BACK, -1):
            now = np.maximum(self.occurrences(size), before)
            rest = room - int((now - before) @ sizes)
            if rest < 0 or int(now[self.top]) < LEAST_COUNT:
                return None
            rest_filled = _fill_rest(rest, int(sizes[0]), spare)
            if rest_filled is not None:
                return _TextFilling(now, *rest_filled)
        return None

    def _codes(self) -> Indices:
        """The words of this text in the order of their ranks, followed by unused ones."""
        return bulk_rng(self.seed, "codes").permutation(len(self.bank.pieces) - FIRST_WORD) + FIRST_WORD

    def _longest(self, room: int, sizes: Indices) -> int:
        """The words of the longest text that has no more than `room` tokens."""
        low, high = 0, 2 * room + 64  # rounding down drops words, so a text of N has fewer than N
        while high - low > 1:
            middle = (low + high) // 2
            if int(self.occurrences(middle) @ sizes) <= room:
                low = middle
            else:
                high = middle
        return low

    def _laid(self, pieces: Indices, times: Indices, further: Indices, segment: int, again: int) -> Indices:
        """A shuffled segment. The filling is inserted last, so that one word more or less does not move the others."""
        draw = bulk_rng(self.seed, "order", segment, again)
        ranks = slice(1, self.top + 1)
        special = np.repeat(pieces[ranks], times[ranks])
        noise = np.repeat(pieces[:1], times[0])
        others = np.repeat(pieces[self.top + 1 :], times[self.top + 1 :])
        if self.depth is None:
            order = mix_around_depth(special, np.concatenate([noise, others]), None, self.spread, draw)
        else:
            order = mix_between_guards(special, others, noise, self.top, self.depth, self.spread, draw)
        order = np.insert(order, draw.integers(0, len(order) + 1, len(further)), further)
        if segment == 0:
            first = int(np.flatnonzero(order == NOISE)[0])
            order[1 : first + 1] = order[:first].copy()
            order[0] = BARE_NOISE
        return order


def _fill_rest(rest: int, noise: int, sizes: Indices) -> tuple[int, Indices] | None:
    """Noise, and if that is not enough some words that occur once, with `rest` tokens in all."""
    for count in range(MOST_CODES + 1):
        for times in range(rest // noise, -1, -1):
            singles = pick_sizes(sizes, count, rest - times * noise)
            if singles is not None:
                return times, singles
    return None


# --- A numbered list of words with an exact number of tokens ---
#
# Some words are far more common than the others.
#
# 1. lantern 2. ponder 3. lantern 4. rustic ...
#
# Each common word occurs `often` times and each other word `seldom` times. Only the last few words of a segment occur
# less often; they are selected so that the tokens add up. With several cuts, each cut contains its
# share of the common words, more than `seldom` of each, so that they are the most common at every cut.


SIZES = (1 << 14, 1 << 17, 1 << 20, 1 << 23)
"""Lengths in tokens for which there is a bank. An entry has at least two tokens in every tokenizer."""
SPARE = 256
GIVEN_BACK = 6
MOST_CHOSEN = 24
"""The last GIVEN_BACK entries of a segment are replaced by up to MOST_CHOSEN entries, selected by token count from
SPARE words."""
PAD = " ..."
PADS = 24
"""PAD, at most PADS times, ends a list where no selection of words adds up (for example if every word is one token)."""


@dataclass(frozen=True, slots=True)
class _WordBank:
    bank: PieceBank
    entries: int
    """Pieces 0 .. entries - 1 are the numbers; the words follow, and the pad is the last piece."""
    words: int
    english: int


@cache
def _bank(size: int, seldom: int, vocabulary: Vocabulary, split: Split) -> _WordBank:
    entries = size // 2
    words = list_words(entries // seldom + 2 * SPARE, vocabulary, split)
    pieces = ["1.", *(f" {n}." for n in range(2, entries + 1)), *(f" {w}" for w in words), PAD]
    name = f"numbered list of {vocabulary} words"
    bank = PieceBank(name, digest_text("\n".join(pieces)), pieces, contiguous=False, uniform_joints=True)
    return _WordBank(bank, entries, len(words), english_count(vocabulary, split))


@dataclass(frozen=True, slots=True)
class _Used:
    """State after a segment: the other words that are left, the entries written, and the occurrences of each common
    word."""

    others: Indices
    entries: int = 0
    often: int = 0


@dataclass(frozen=True, slots=True)
class _ListFilling:
    """Content of one segment: `whole` of the other words, a few selected ones, then pads."""

    whole: int
    chosen: Indices
    pads: int


@dataclass(frozen=True, slots=True)
class WordList:
    """The list of one document."""

    longest: int
    """The longest length in tokens."""
    growth: float
    """Longest length divided by the shortest."""
    segments: int
    common: int
    often: int
    seldom: int
    seed: int
    depth: float | None
    spread: float
    vocabulary: Vocabulary
    split: Split

    @property
    def bank(self) -> PieceBank:
        return self._bank.bank

    @property
    def _bank(self) -> _WordBank:
        size = next((s for s in SIZES if s >= self.longest), self.longest)
        return _bank(size, self.seldom, self.vocabulary, self.split)

    def _often_by(self, segment: int) -> int:
        """Occurrences of a common word up to the end of a segment."""
        return max(-(-self.often * (segment + 1) // self.segments), self.seldom + 1)

    def least(self, counts: Indices) -> int:
        entries = self.common * self._often_by(0)
        words = counts[self._bank.entries :][: max(self._bank.english, SPARE)]
        return int(counts[:entries].sum()) + int(entries * float(words.mean()))

    def compose(self, segment_sizes: Sequence[SegmentSize], counts: Indices) -> list[Indices] | None:
        size = self._pool_size(segment_sizes[0].tokens, counts)
        while True:
            segments = self._composed(size, segment_sizes, counts)
            if segments is not None or size == self._bank.words:
                return segments
            size = min(2 * size, self._bank.words)  # too few words

    def _pool_size(self, room: int, counts: Indices) -> int:
        """The smallest part of the pool with enough words: the English ones, or twice as many, and so on."""
        bank = self._bank
        size = min(max(bank.english, SPARE + self.common), bank.words)
        while size < bank.words:
            word = float(counts[bank.entries : bank.entries + size].mean())
            entries = room / (1 + word)
            for _ in range(2):  # numbers grow with the list
                entries = min(room / (float(counts[: max(int(entries), 1)].mean()) + word), bank.entries)
            needed = 1.05 * (entries - self.common * self._often_by(0)) / self.seldom + self.common + SPARE
            if needed * self.growth + MOST_CHOSEN * self.segments <= size:
                break
            size = min(2 * size, bank.words)
        return size

    def _composed(self, size: int, segment_sizes: Sequence[SegmentSize], counts: Indices) -> list[Indices] | None:
        # Shuffled; the common words come first, so they are drawn like all others.
        words: Indices = bulk_rng(self.seed, "words", size).permutation(size) + self._bank.entries
        common, used, segments = words[: self.common], _Used(words[self.common :]), []
        for number, (room, again) in enumerate(segment_sizes):
            times = self._often_by(number) - used.often
            filling = self._fill(common, room, counts, used, times)
            if filling is None and number:
                times = 0  # too short for its share of the common words; the next segment has them
                filling = self._fill(common, room, counts, used, times)
            if filling is None:
                return None
            draw = bulk_rng(self.seed, "order", number, again)
            segments.append(self._laid(common, filling, used, times, draw))
            used = self._after(filling, used, times)
        return segments

    def _fitting(self, common: Indices, room: int, counts: Indices, used: _Used, times: int) -> Indices | None:
        """Tokens of the common words with 0, 1, 2 ... of the other words, as far as they fit."""
        fixed = self.common * times
        numbers = np.concatenate(([0], np.cumsum(counts[used.entries : self._bank.entries])))[fixed :: self.seldom]
        most = min(len(numbers) - 1 - MOST_CHOSEN, len(used.others) - SPARE, room // self.seldom)
        if most < 0:
            return None
        total = numbers[: most + 1] + times * int(counts[common].sum())
        total[1:] += self.seldom * np.cumsum(counts[used.others[:most]])
        fitting: Indices = total[: int(np.searchsorted(total, room, side="right"))]
        return fitting if len(fitting) else None

    def _fill(self, common: Indices, room: int, counts: Indices, used: _Used, times: int) -> _ListFilling | None:
        """As many of the other words as fit, and a selection that makes the tokens add up."""
        fitting = self._fitting(common, room, counts, used, times)
        if fitting is None:
            return None
        whole = max(len(fitting) - 1 - -(-GIVEN_BACK // self.seldom), 0)
        spare = counts[used.others[whole : whole + SPARE]]
        entries = used.entries + self.common * times + self.seldom * whole
        numbers = np.concatenate(([0], np.cumsum(counts[entries : entries + MOST_CHOSEN])))
        return self._choose(whole, spare, numbers, room - int(fitting[whole]), int(counts[-1]))

    def _choose(self, whole: int, spare: Indices, numbers: Indices, rest: int, pad: int) -> _ListFilling | None:
        """Selects words for the remaining tokens. `numbers[n]` are the tokens of n further entry numbers."""
        smallest, largest = int(spare.min()), int(spare.max())
        for pads in range(PADS + 1):
            left = rest - pads * pad - numbers
            possible = (np.arange(len(left)) * smallest <= left) & (left <= np.arange(len(left)) * largest)
            for count in np.flatnonzero(possible).tolist():
                chosen = pick_sizes(spare, count, int(left[count]))
                if chosen is not None:
                    return _ListFilling(whole, chosen, pads)
        return None

    def _after(self, filling: _ListFilling, used: _Used, times: int) -> _Used:
        entries = self.common * times + self.seldom * filling.whole + len(filling.chosen)
        left = np.delete(used.others[filling.whole :], filling.chosen)
        return _Used(left, used.entries + entries, used.often + times)

    def _laid(
        self, common: Indices, filling: _ListFilling, used: _Used, times: int, draw: np.random.Generator
    ) -> Indices:
        """The pieces of a segment: number, word, number, word ..."""
        special, others = np.repeat(common, times), np.repeat(used.others[: filling.whole], self.seldom)
        if self.depth is None:
            listed = mix_around_depth(special, others, None, self.spread, draw)
        else:
            listed = mix_between_guards(special, others, others[:0], self.common, self.depth, self.spread, draw)
        listed = np.concatenate([listed, used.others[filling.whole :][filling.chosen]])
        pieces = np.empty(2 * len(listed) + filling.pads, np.int64)
        pieces[0 : 2 * len(listed) : 2] = used.entries + np.arange(len(listed))
        pieces[1 : 2 * len(listed) : 2] = listed
        pieces[2 * len(listed) :] = len(self.bank.pieces) - 1
        return pieces


# --- the tasks ---


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
    words = tuple(word.decode() for word, times in counts.items() if times >= least)
    if len(words) != count:
        raise ValueError(f"{len(words)} words occur at least {least} times, not {count}")
    return words


class CountingTask(WordedTask):
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


class CommonWords(CountingTask):
    """Name the most common words of a numbered list.

    Depth is the middle of the band that holds the common words; the band widens if they do not fit, and other words
    stand at both ends of the list. With
    placement=anywhere they are spread over the whole list, as in the paper.
    """

    version: ClassVar[str] = "4"

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


class FrequentWords(CountingTask):
    """Name the most frequent words of a coded text.

    Frequencies fall off as a power of the rank. Depth is the middle of the band that holds the words asked for; the
    band widens if they do not fit, and other words stand at both ends of the text. With placement=anywhere they are
    spread over the whole text, as in the paper.
    """

    version: ClassVar[str] = "4"

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
        others = 1 if depth is None else self.top  # as many as are asked for, to stand at both ends
        return ZipfText(
            ranks=max(ranks, self.top + 1 + others),
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
