"""Runs whose lengths differ in more than their mean: in scatter, in correlation inside documents, in documents lost.

No curve and no family of the statistics themselves is used: document scores are drawn by rules such as "0.95, or
nothing in one case of ten", and answers are put into documents by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from leadline.stats.effective import EffectiveLength, effective_length
from leadline.stats.marginals import marginals
from leadline.stats.observations import FloatArray, Observations

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)
CRITICAL = 16384
"""The length whose true score is near the threshold; shorter ones are good, longer ones bad."""

Draw = Callable[[np.random.Generator, int, int, int], FloatArray]
"""Scores (lengths x documents x answers) of a number of documents and answers, for lengths by their number."""


def run_of(values: FloatArray, *, nested: bool = False) -> Observations:
    """Rows from values[length, document, answer]; with `nested`, document i is the same at all lengths."""
    lengths, documents, answers = values.shape
    row, document, answer = (part.ravel() for part in np.indices(values.shape))
    cluster = document if nested else row * documents + document
    return Observations(
        task=np.full(len(row), "uneven"),
        length=np.array(LENGTHS[:lengths])[row],
        depth=answer / max(answers - 1, 1),
        sample=document,
        cluster=np.char.add("document ", cluster.astype(np.str_)),
        value=values.ravel(),
        failed=np.zeros(len(row), dtype=np.bool_),
    )


@dataclass(frozen=True, slots=True)
class UnevenRun:
    """A kind of run; `critical` is the true score at `CRITICAL`."""

    draw: Draw
    critical: float
    nested: bool = False
    answers: int = 1

    def observations(self, documents: int, rng: np.random.Generator) -> Observations:
        return run_of(self.draw(rng, len(LENGTHS), documents, self.answers), nested=self.nested)

    def is_right(self, found: EffectiveLength) -> bool:
        """Whether the interval holds the truth: 16k reaches 85.6 or not, the lengths before and after are clear."""
        above = self.critical >= 0.856
        truth = LENGTHS.index(CRITICAL) if above else LENGTHS.index(CRITICAL) - 1
        low = -1 if found.low_open else LENGTHS.index(int(found.low))
        high = len(LENGTHS) if found.high_open else LENGTHS.index(int(found.high))
        return low <= truth < high or (found.bound == "at least" and found.high_open and low <= truth)


def _bands(quiet: float, rng: np.random.Generator, shape: tuple[int, int, int]) -> FloatArray:
    """Good lengths near 0.96, bad ones near 0.3, with a given small scatter."""
    level = np.array([0.97, 0.97, 0.96, 0.96, 0.96, 0.3])[: shape[0], None, None]
    return np.clip(level + quiet * rng.standard_normal(shape), 0, 1)


def _at_critical(values: FloatArray, own: FloatArray) -> FloatArray:
    values[LENGTHS.index(CRITICAL)] = own
    return values


def all_or_nothing(rng: np.random.Generator, lengths: int, documents: int, answers: int) -> FloatArray:
    """At 16k a document scores 0.95, or nothing in one case of ten; elsewhere scores scatter by 0.03."""
    own = np.where(rng.random((documents, answers)) < 0.0995, 0.0, 0.95)
    return _at_critical(_bands(0.03, rng, (lengths, documents, answers)), own)


def lost_at_one_length(rng: np.random.Generator, lengths: int, documents: int, answers: int) -> FloatArray:
    """Yes/no answers, right in 97 of 100; at 16k a document is lost whole in 12.5 of 100."""
    right = rng.random((lengths, documents, answers)) < np.array([0.97] * 5 + [0.3])[:, None, None]
    own = right[LENGTHS.index(CRITICAL)] & (rng.random((documents, 1)) >= 0.125)
    return _at_critical(right.astype(np.float64), own.astype(np.float64))


def nested_lost_from_there(rng: np.random.Generator, lengths: int, documents: int, answers: int) -> FloatArray:
    """Nested documents. One in four is lost at 16k and beyond, and nothing but these answers is ever wrong there."""
    right = rng.random((lengths, documents, answers)) < np.array([1.0] * 5 + [0.3])[:, None, None]
    lost = rng.random((documents, 1)) < 0.25
    right[LENGTHS.index(CRITICAL) :] &= ~lost
    return right.astype(np.float64)


def nested_lost_up_to_there(rng: np.random.Generator, lengths: int, documents: int, answers: int) -> FloatArray:
    """Nested documents: one in seven is lost at every length up to 16k."""
    right = rng.random((lengths, documents, answers)) < np.array([0.99] * 5 + [0.3])[:, None, None]
    right[:5] &= rng.random((documents, 1)) >= 1 / 7
    return right.astype(np.float64)


def clustered_at_one_length(rng: np.random.Generator, lengths: int, documents: int, answers: int) -> FloatArray:
    """Answers at 16k come in runs of equal ones within a document; elsewhere they are independent."""
    right = rng.random((lengths, documents, answers)) < np.array([0.97] * 5 + [0.3])[:, None, None]
    first = rng.random((documents, 1)) < 0.85
    again = rng.random((documents, answers)) < 0.8
    own = np.where(again, first, rng.random((documents, answers)) < 0.85)
    return _at_critical(right.astype(np.float64), own.astype(np.float64))


def rouge_like(rng: np.random.Generator, lengths: int, documents: int, answers: int) -> FloatArray:
    """Overlap scores: near 0.93 with little scatter, and at 16k the best of two uneven halves, far more scattered."""
    calm = 1 - np.minimum(rng.exponential(0.05, (lengths, documents, answers)), 1)
    calm[-1] = rng.random((documents, answers)) ** 2
    own = 1 - 0.585 * rng.random((documents, answers)) ** 3.07
    return _at_critical(calm, own)


def partial_recall(rng: np.random.Generator, lengths: int, documents: int, answers: int) -> FloatArray:
    """Shares of four needles: all or three of four at short lengths; at 16k all, or few at once."""
    short = 1 - 0.25 * (rng.random((lengths, documents, answers)) < 0.15)
    short[-1] = 0.25 * rng.integers(0, 3, (documents, answers))
    own = np.where(rng.random((documents, answers)) < 0.82, 1.0, 0.25 * rng.integers(0, 2, (documents, answers)) + 0.05)
    return _at_critical(short.astype(np.float64), own.astype(np.float64))


def yes_no(rng: np.random.Generator, lengths: int, documents: int, answers: int) -> FloatArray:
    """Yes/no answers from documents of their own, 84 of 100 right at 16k."""
    level = np.array([0.97, 0.96, 0.96, 0.95, 0.84, 0.3])[:, None, None]
    return (rng.random((lengths, documents, answers)) < level).astype(np.float64)


UNEVEN_RUNS: Mapping[str, UnevenRun] = {
    "0.95 or nothing at 16k": UnevenRun(all_or_nothing, 0.95 * (1 - 0.0995)),
    "documents lost at 16k only": UnevenRun(lost_at_one_length, 0.97 * 0.875, answers=5),
    "nested, lost from 16k on": UnevenRun(nested_lost_from_there, 0.75, nested=True, answers=5),
    "nested, lost up to 16k": UnevenRun(nested_lost_up_to_there, 0.99 * 6 / 7, nested=True, answers=5),
    "clustered at 16k only": UnevenRun(clustered_at_one_length, 0.85, answers=5),
    "overlap scores, scattered at 16k": UnevenRun(rouge_like, 1 - 0.585 / 4.07),
    "shares of four needles": UnevenRun(partial_recall, 0.82 + 0.18 * 0.175),
    "yes or no": UnevenRun(yes_no, 0.84, answers=1),
}


def coverage(kind: str, documents: int, runs: int, seed: int = 0) -> tuple[float, float]:
    """Of many runs of a kind: how often the interval of the effective length holds the truth, and how often the low end
    is surer than the interval of its length in the table."""
    rng = np.random.default_rng([seed, documents])
    right = surer = 0
    for _ in range(runs):
        data = UNEVEN_RUNS[kind].observations(documents, rng)
        found = effective_length(data)
        right += UNEVEN_RUNS[kind].is_right(found)
        table = {m.key[0]: m.estimate.interval for m in marginals(data, ("length",))}
        surer += not found.low_open and table[int(found.low)].low < found.threshold
    return right / runs, surer / runs
