"""How much two texts overlap: token F1, ROUGE-L in both variants people publish, edit similarity.

`rouge_l` is the `rouge` package's (1.0.1, by sentence, over sets of words; LongBench uses it), `rouge_l_google` and
`rouge_lsum_google` are those of `rouge_score` 0.1.2 (HELMET and InfiniteBench use it). On the same texts they differ by
up to ten points, so a score must say which it is. All of them need a longest common subsequence; `common_subsequence`
computes it with one machine-word-parallel step per row (Hyyrö 2004) and backtracks as the packages do, so that the
numbers are theirs to the last digit at a fraction of the time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import pairwise
from typing import Literal

EditBackend = Literal["difflib", "levenshtein"]


def token_f1(prediction: Sequence[str], reference: Sequence[str]) -> float:
    """F1 over two bags of tokens; 0 when they share none."""
    shared = (Counter(prediction) & Counter(reference)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(prediction), shared / len(reference)
    return 2 * precision * recall / (precision + recall)


Positions = dict[Hashable, int]


def positions_of(columns: Sequence[Hashable]) -> Positions:
    """For each item the columns that it is in, as bits."""
    positions: Positions = {}
    for column, item in enumerate(columns):
        positions[item] = positions.get(item, 0) | 1 << column
    return positions


def common_subsequence(
    rows: Sequence[Hashable], columns: Sequence[Hashable], positions: Positions | None = None
) -> list[tuple[int, int]]:
    """A longest common subsequence as pairs of indices, last pair first. `positions` are those of `columns`, if known.

    Of several longest ones it is the one found by backtracking from the ends and, at a mismatch, moving up where the
    table grows along the row and left where it does not.
    """
    at = (positions_of(columns) if positions is None else positions).get
    full = (1 << len(columns)) - 1
    ungrown, stops = full, []  # bit j of `ungrown` is 0 where the table grows from column j to j + 1
    matches = [at(item, 0) for item in rows]
    for match in matches:
        if match:
            taken = ungrown & match
            ungrown = ((ungrown + taken) | (ungrown - taken)) & full
        stops.append(match | (ungrown ^ full))
    common = []
    row, width = len(rows) - 1, len(columns)
    while row >= 0:
        width = (stops[row] & ((1 << width) - 1)).bit_length()
        if not width:
            break
        if matches[row] >> (width - 1) & 1:
            common.append((row, width - 1))
            width -= 1
        row -= 1
    return common


def common_length(first: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """The length of a longest common subsequence."""
    positions = positions_of(other)
    full = (1 << len(other)) - 1
    ungrown = full
    for item in first:
        taken = ungrown & positions.get(item, 0)
        ungrown = ((ungrown + taken) | (ungrown - taken)) & full
    return len(other) - ungrown.bit_count()


def rouge_l(prediction: str, reference: str) -> float:
    """ROUGE-L F of the `rouge` package 1.0.1; 0 where it raises an error, for a text without sentences."""
    predicted, wanted = _dot_sentences(prediction), _dot_sentences(reference)
    if not predicted or not wanted:
        return 0.0
    indexed = [(sentence, positions_of(sentence)) for sentence in predicted]
    in_prediction = {word for sentence in predicted for word in sentence}
    in_reference = {word for sentence in wanted for word in sentence}
    union: set[str] = set()
    for sentence in wanted:
        open_words = (set(sentence) & in_prediction) - union
        for other, positions in indexed:
            if not open_words.isdisjoint(positions):  # else no word of the subsequence would be new
                new_words = {sentence[row] for row, _ in common_subsequence(sentence, other, positions)}
                union |= new_words
                open_words -= new_words
    recall, precision = len(union) / len(in_reference), len(union) / len(in_prediction)
    return 2.0 * ((precision * recall) / (precision + recall + 1e-8))


def _dot_sentences(text: str) -> list[list[str]]:
    return [" ".join(part.split()).split(" ") for part in text.split(".") if part]


_NOT_WORD = re.compile(r"[^a-z0-9]+")


def google_tokens(text: str, *, stemmed: bool = False) -> list[str]:
    """Tokens of `rouge_score`: runs of ASCII letters and digits, lower-cased; its stemmer leaves short ones alone."""
    tokens = [token for token in _NOT_WORD.split(text.lower()) if token]
    return [stem(token) if len(token) > 3 else token for token in tokens] if stemmed else tokens


def rouge_l_google(prediction: str, reference: str, *, stemmed: bool = False) -> float:
    """rougeL F of `rouge_score`."""
    predicted, other = google_tokens(prediction, stemmed=stemmed), google_tokens(reference, stemmed=stemmed)
    if not predicted or not other:
        return 0.0
    return _f1(common_length(predicted, other), len(predicted), len(other))


def rouge_lsum_google(prediction: str, reference: str, *, stemmed: bool = False) -> float:
    """rougeLsum F of `rouge_score`: sentences are lines, and words count as often as both have them."""
    predicted = [google_tokens(line, stemmed=stemmed) for line in prediction.split("\n")]
    wanted = [google_tokens(line, stemmed=stemmed) for line in reference.split("\n")]
    left, right = Counter(t for s in wanted for t in s), Counter(t for s in predicted for t in s)
    size_wanted, size_predicted = left.total(), right.total()
    if not size_wanted or not size_predicted:
        return 0.0
    hits = 0
    for sentence in wanted:
        positions = positions_of(sentence)
        matched = {column for other in predicted for _, column in common_subsequence(other, sentence, positions)}
        for column in sorted(matched):
            token = sentence[column]
            if left[token] > 0 and right[token] > 0:
                hits += 1
                left[token] -= 1
                right[token] -= 1
    return _f1(hits, size_predicted, size_wanted)


def _f1(hits: int, predicted: int, wanted: int) -> float:
    precision, recall = hits / predicted, hits / wanted
    return 2 * precision * recall / (precision + recall) if hits else 0.0


def edit_similarity(prediction: str, reference: str, backend: EditBackend) -> float:
    """fuzzywuzzy's `ratio` / 100, rounded to whole percent as there.

    The package uses python-Levenshtein where it is installed and difflib where it is not; the two differ by 1.4 to 3.2
    points on code completion, so the backend is part of the metric's name.
    """
    if prediction == reference:
        return 1.0
    if backend == "difflib":
        ratio = SequenceMatcher(None, prediction, reference).ratio()
    else:
        total = len(prediction) + len(reference)
        ratio = 2 * common_length(prediction, reference) / total if total else 0.0
    return round(100 * ratio) / 100


# --- Porter's stemmer (Porter 1980), with the departures of NLTK that rouge_score uses ------------------

_VOWELS = frozenset("aeiou")
_WHOLE = {
    form: stem
    for stem, forms in {
        "sky": "sky skies", "die": "dying", "lie": "lying", "tie": "tying", "news": "news", "howe": "howe",
        "inning": "innings inning", "outing": "outings outing", "canning": "cannings canning", "proceed": "proceed",
        "exceed": "exceed", "succeed": "succeed",
    }.items()
    for form in forms.split()
}  # fmt: skip
_STEP_2 = tuple(
    tuple(rule.split("-"))
    for rule in (
        "ational-ate tional-tion enci-ence anci-ance izer-ize bli-ble alli-al entli-ent eli-e ousli-ous ization-ize "
        "ation-ate ator-ate alism-al iveness-ive fulness-ful ousness-ous aliti-al iviti-ive biliti-ble fulli-ful"
    ).split()
)
_STEP_3 = tuple(tuple(rule.split("-")) for rule in "icate-ic ative- alize-al iciti-ic ical-ic ful- ness-".split())
_STEP_4 = "al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize".split()


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The stem of a lower-case English word."""
    if word in _WHOLE:
        return _WHOLE[word]
    if len(word) <= 2:
        return word
    for step in (_plural, _past, _final_y, _double_suffix, _suffix, _last_suffix, _final_e):
        word = step(word)
    return word


def _consonants(word: str) -> list[bool]:
    """For each letter; y is one at the beginning and after a vowel."""
    consonants: list[bool] = []
    for letter in word:
        consonants.append(not (consonants and consonants[-1]) if letter == "y" else letter not in _VOWELS)
    return consonants


def _measure(word: str) -> int:
    """The number of times that a consonant follows a vowel."""
    kinds = _consonants(word)
    return sum(after and not before for before, after in pairwise(kinds))


def _ends_cvc(word: str) -> bool:
    """Consonant, vowel, consonant at the end, the last not w, x or y; or a word of one vowel and one consonant."""
    kinds = _consonants(word)
    if len(word) == 2:
        return kinds == [False, True]
    return kinds[-3:] == [True, False, True] and word[-1] not in "wxy"


def _plural(word: str) -> str:
    if word.endswith("ies"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        left = word.removesuffix(ending)
        if left != word and not all(_consonants(left)):
            break
    else:
        return word
    if left.endswith(("at", "bl", "iz")):
        return left + "e"
    if len(left) > 1 and left[-1] == left[-2] and _consonants(left)[-1]:
        return left if left[-1] in "lsz" else left[:-1]
    return left + "e" if _measure(left) == 1 and _ends_cvc(left) else left


def _final_y(word: str) -> str:
    return word[:-1] + "i" if word.endswith("y") and len(word) > 2 and _consonants(word[:-1])[-1] else word


def _double_suffix(word: str) -> str:
    if word.endswith("alli") and _measure(word[:-4]) > 0:
        return _double_suffix(word[:-2])
    for ending, instead in _STEP_2:
        if word.endswith(ending):
            left = word.removesuffix(ending)
            return left + instead if _measure(left) > 0 else word
    return word[:-1] if word.endswith("logi") and _measure(word[:-3]) > 0 else word


def _suffix(word: str) -> str:
    for ending, instead in _STEP_3:
        if word.endswith(ending):
            left = word.removesuffix(ending)
            return left + instead if _measure(left) > 0 else word
    return word


def _last_suffix(word: str) -> str:
    for ending in _STEP_4:
        if word.endswith(ending):
            left = word.removesuffix(ending)
            if ending == "ion" and not left.endswith(("s", "t")):
                return word
            return left if _measure(left) > 1 else word
    return word


def _final_e(word: str) -> str:
    if word.endswith("e"):
        left = word[:-1]
        if _measure(left) > 1 or (_measure(left) == 1 and not _ends_cvc(left)):
            word = left
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
