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
from typing import Literal

EditBackend = Literal["difflib", "levenshtein"]


def token_f1(prediction: Sequence[str], reference: Sequence[str]) -> float:
    """F1 over two bags of tokens; 0 when they share none."""
    shared = (Counter(prediction) & Counter(reference)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(prediction), shared / len(reference)
    return 2 * precision * recall / (precision + recall)


def common_subsequence(rows: Sequence[Hashable], columns: Sequence[Hashable]) -> list[tuple[int, int]]:
    """A longest common subsequence as pairs of indices, last pair first.

    Of several longest ones it is the one found by backtracking from the ends and, at a mismatch, moving up where the
    table grows along the row and left where it does not.
    """
    positions: dict[Hashable, int] = {}
    for column, item in enumerate(columns):
        positions[item] = positions.get(item, 0) | 1 << column
    full = (1 << len(columns)) - 1
    ungrown, stops = full, []  # bit j of `ungrown` is 0 where the table grows from column j to j + 1
    matches = []
    for item in rows:
        match = positions.get(item, 0)
        taken = ungrown & match
        ungrown = ((ungrown + taken) | (ungrown - taken)) & full
        matches.append(match)
        stops.append(match | (ungrown ^ full))
    found = []
    row, width = len(rows) - 1, len(columns)
    while row >= 0:
        width = (stops[row] & ((1 << width) - 1)).bit_length()
        if not width:
            break
        if matches[row] >> (width - 1) & 1:
            found.append((row, width - 1))
            width -= 1
        row -= 1
    return found


def common_length(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """The length of a longest common subsequence."""
    positions: dict[Hashable, int] = {}
    for column, item in enumerate(other):
        positions[item] = positions.get(item, 0) | 1 << column
    full = (1 << len(other)) - 1
    ungrown = full
    for item in one:
        taken = ungrown & positions.get(item, 0)
        ungrown = ((ungrown + taken) | (ungrown - taken)) & full
    return len(other) - ungrown.bit_count()


def rouge_l(prediction: str, reference: str) -> float:
    """ROUGE-L F of the `rouge` package 1.0.1. Raises ValueError where it does: for a prediction without sentences."""
    predicted, wanted = _dot_sentences(prediction), _dot_sentences(reference)
    if not prediction or not predicted or not wanted:
        raise ValueError("a text without words has no ROUGE-L")
    words = [set(sentence) for sentence in predicted]
    in_prediction: set[str] = set().union(*words)
    in_reference = {word for sentence in wanted for word in sentence}
    union: set[str] = set()
    for sentence in wanted:
        open_words = (set(sentence) & in_prediction) - union
        for other, has in zip(predicted, words, strict=True):
            if not open_words.isdisjoint(has):  # else no word of the subsequence would be new
                found = {sentence[row] for row, _ in common_subsequence(sentence, other)}
                union |= found
                open_words -= found
    recall, precision = len(union) / len(in_reference), len(union) / len(in_prediction)
    return 2.0 * ((precision * recall) / (precision + recall + 1e-8))


def _dot_sentences(text: str) -> list[list[str]]:
    return [" ".join(part.split()).split(" ") for part in text.split(".") if part]


_NOT_WORD = re.compile(r"[^a-z0-9]+")


def google_tokens(text: str) -> list[str]:
    """Tokens of `rouge_score` without its stemmer: runs of ASCII letters and digits, lower-cased."""
    return [token for token in _NOT_WORD.split(text.lower()) if token]


def rouge_l_google(prediction: str, reference: str) -> float:
    """rougeL F of `rouge_score`, no stemmer."""
    one, other = google_tokens(prediction), google_tokens(reference)
    if not one or not other:
        return 0.0
    return _f1(common_length(one, other), len(one), len(other))


def rouge_lsum_google(prediction: str, reference: str) -> float:
    """rougeLsum F of `rouge_score`, no stemmer: sentences are lines, and words count as often as both have them."""
    predicted = [google_tokens(line) for line in prediction.split("\n")]
    wanted = [google_tokens(line) for line in reference.split("\n")]
    left, right = Counter(t for s in wanted for t in s), Counter(t for s in predicted for t in s)
    size_wanted, size_predicted = left.total(), right.total()
    if not size_wanted or not size_predicted:
        return 0.0
    hits = 0
    for sentence in wanted:
        matched = {column for other in predicted for _, column in common_subsequence(other, sentence)}
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
