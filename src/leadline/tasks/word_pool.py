"""Words to count: English ones of ours first, coined ones where a list needs more of them than there are.

No word of the pool stands inside another, so that naming one never gives credit for another under a scorer that looks
for substrings. (In RULER's own pool one word in four does.)
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Literal

from leadline.core.errors import SourceError
from leadline.core.seeds import Split, bulk_rng, part_of, side_of
from leadline.tasks.words import ADJECTIVES, NOUNS, VERBS

Vocabulary = Literal["english", "coined"]
CONSONANTS, VOWELS = "bdfghjklmnprstvwyz", "aeiou"
SYLLABLES = tuple(c + v for c in CONSONANTS for v in VOWELS)
LEAST_LETTERS = 4
KEPT_FOR_DEMONSTRATIONS = 8
"""One English word in so many stands in demonstrations and never in a list."""
_UNWANTED = ("nig", "fag", "jap", "rape", "tit", "poo", "pus", "suk", "fuk", "nazi", "homo")
_SAID_BY_US = frozenset(
    "assist common count decline example follow know list number please question request word".split()
)
"""Words of our instructions, of refusals, and of politeness: an answer that holds them has not named them."""


@cache
def english_words() -> tuple[str, ...]:
    """English words of which none stands inside another, sorted."""
    words = {w for w in (*ADJECTIVES, *NOUNS, *VERBS) if len(w) >= LEAST_LETTERS} - _SAID_BY_US
    inside = {part for word in words for part in _parts(word) if part != word}
    return tuple(sorted(words - inside))


def _parts(word: str) -> Iterator[str]:
    for start in range(len(word)):
        for end in range(start + LEAST_LETTERS, len(word) + 1):
            yield word[start:end]


def _is_for_demonstrations(word: str) -> bool:
    return zlib.crc32(word[::-1].encode()) % KEPT_FOR_DEMONSTRATIONS == 0


@cache
def demonstration_words(split: Split) -> tuple[str, ...]:
    return part_of(filter(_is_for_demonstrations, english_words()), split)


@cache
def list_words(count: int, vocabulary: Vocabulary, split: Split) -> tuple[str, ...]:
    """At least `count` words for lists: the English ones, if wanted, and as many coined ones as that takes."""
    english = () if vocabulary == "coined" else part_of(english_words(), split)
    words = [w for w in english if not _is_for_demonstrations(w)]
    coined = _coined(split)
    words.extend(word for _, word in zip(range(count - len(words)), coined, strict=False))
    if len(words) < count:
        raise SourceError(
            f"{count:,} different words are needed and there are {len(words):,}",
            where="word list",
            fix="ask for a shorter length, or let uncommon words stand more often (freq_ucw)",
        )
    return tuple(words)


def english_count(vocabulary: Vocabulary, split: Split) -> int:
    """How many words at the beginning of `list_words` are English."""
    return len(list_words(0, vocabulary, split))


def _coined(split: Split) -> Iterator[str]:
    """Three syllables each: words of one length, of which none can stand inside another."""
    size = len(SYLLABLES)
    english = frozenset(english_words())
    parts_of_english = frozenset(part for word in english for part in _parts(word) if len(part) == 6)
    for number in bulk_rng("coined words").permutation(size**3).tolist():
        word = SYLLABLES[number % size] + SYLLABLES[number // size % size] + SYLLABLES[number // size**2]
        if side_of(word) != split or word in parts_of_english:
            continue
        if _holds_any(word, english) or any(unwanted in word for unwanted in _UNWANTED):
            continue
        yield word


def _holds_any(word: str, others: Iterable[str]) -> bool:
    return any(part in others for part in _parts(word))
