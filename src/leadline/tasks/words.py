"""Word lists, and the keys, values and words for counting that are drawn from them.

673 adjectives and 1770 nouns give 1,191,210 pairs. No noun begins with another noun, so no pair is a substring of
another pair.
"""

from __future__ import annotations

import random
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Literal

from leadline.core.errors import SourceError, UsageError
from leadline.core.seeds import Split, bulk_rng, of_split, split_of
from leadline.core.types import ValueKind

# --- word lists ---


def _sections(text: str) -> dict[str, tuple[str, ...]]:
    """The words below each line `== name`."""
    parts = (part.partition("\n") for part in text.split("== ")[1:])
    return {name: tuple(words.split()) for name, _, words in parts}


WORDS = _sections(files("leadline.tasks").joinpath("words.txt").read_text(encoding="utf-8"))
ADJECTIVES, NOUNS, VERBS = WORDS["adjectives"], WORDS["nouns"], WORDS["verbs"]
MONTHS = tuple("January February March April May June July August September October November December".split())

# --- keys and values ---

SINGULAR: dict[ValueKind, str] = {"words": "word", "numbers": "number", "uuids": "code"}
PLURAL: dict[ValueKind, str] = {"words": "words", "numbers": "numbers", "uuids": "codes"}


LONGEST_VALUE: dict[ValueKind, int] = {
    "words": max(map(len, ADJECTIVES)) + 1 + max(map(len, NOUNS)),
    "numbers": 7,
    "uuids": 36,
}
"""Characters."""


def draw_value(kind: ValueKind, rng: random.Random) -> str:
    """One key or value, from either split. As in RULER (arXiv 2404.06654), numbers have 7 digits and UUIDs are
    version 4."""
    if kind == "words":
        return f"{rng.choice(ADJECTIVES)}-{rng.choice(NOUNS)}"
    if kind == "numbers":
        return str(rng.randrange(1_000_000, 10_000_000))
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def value_split(value: str) -> Split:
    """The split of a key or value. Its last part decides, so that lines can be put together from parts."""
    return split_of(value.rpartition("-")[2])


def draw_new_value(kind: ValueKind, rng: random.Random, taken: set[str], split: Split = "test") -> str:
    """A value of this split that is not in `taken`; it is added to `taken`."""
    return draw_new(lambda: draw_value(kind, rng), taken, split)


def draw_new_pair(first: Sequence[str], last: Sequence[str], rng: random.Random, taken: set[str], split: Split) -> str:
    """Two words joined by a hyphen, of this split and not in `taken`; the pair is added to `taken`."""
    return draw_new(lambda: f"{rng.choice(first)}-{rng.choice(last)}", taken, split)


def draw_new(draw: Callable[[], str], taken: set[str], split: Split) -> str:
    """Drawn until it is of this split and not in `taken`; it is added to `taken`."""
    for _ in range(4000):
        value = draw()
        if value not in taken and value_split(value) == split:
            taken.add(value)
            return value
    raise UsageError(
        f"one document cannot have more different names and values: {len(taken):,} are taken",
        where="task options",
        fix="ask for fewer (keys, chains), or use --reading fresh, where a document has fewer",
    )


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# --- words to count: English words first, then coined ones where a list needs more ---
#
# No word of the pool is a substring of another, so that naming one never gives credit for another under a substring
# scorer. (In RULER's own pool one word in four is.)

Vocabulary = Literal["english", "coined"]
CONSONANTS, VOWELS = "bdfghjklmnprstvwyz", "aeiou"
SYLLABLES = tuple(c + v for c in CONSONANTS for v in VOWELS)
LEAST_LETTERS = 4
KEPT_FOR_DEMONSTRATIONS = 8
"""One English word in KEPT_FOR_DEMONSTRATIONS is used in demonstrations and never in a list."""
_UNWANTED = ("nig", "fag", "jap", "rape", "tit", "poo", "pus", "suk", "fuk", "nazi", "homo")
_SAID_BY_US = frozenset(
    "assist common count decline example follow know list number please question request word".split()
)
"""Words of instructions, refusals and polite phrases: an answer may contain them without naming them."""


@cache
def english_words() -> tuple[str, ...]:
    """English words, none of which is a substring of another, sorted."""
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
    return of_split(filter(_is_for_demonstrations, english_words()), split)


@cache
def list_words(count: int, vocabulary: Vocabulary, split: Split) -> tuple[str, ...]:
    """At least `count` words for lists: English ones unless `vocabulary` is coined, then coined ones."""
    english = () if vocabulary == "coined" else of_split(english_words(), split)
    words = [w for w in english if not _is_for_demonstrations(w)]
    coined = _coined(split)
    words.extend(word for _, word in zip(range(count - len(words)), coined, strict=False))
    if len(words) < count:
        raise SourceError(
            f"{count:,} different words are needed and there are {len(words):,}",
            where="word list",
            fix="use a shorter length, or repeat uncommon words more often (freq_ucw)",
        )
    return tuple(words)


def english_count(vocabulary: Vocabulary, split: Split) -> int:
    """Number of English words at the beginning of `list_words`."""
    return len(list_words(0, vocabulary, split))


def _coined(split: Split) -> Iterator[str]:
    """Words of three syllables. All have one length, so none is a substring of another."""
    size = len(SYLLABLES)
    english = frozenset(english_words())
    parts_of_english = frozenset(part for word in english for part in _parts(word) if len(part) == 6)
    for number in bulk_rng("coined words").permutation(size**3).tolist():
        word = SYLLABLES[number % size] + SYLLABLES[number // size % size] + SYLLABLES[number // size**2]
        if split_of(word) != split or word in parts_of_english:
            continue
        if _holds_any(word, english) or any(unwanted in word for unwanted in _UNWANTED):
            continue
        yield word


def _holds_any(word: str, others: Iterable[str]) -> bool:
    return any(part in others for part in _parts(word))
