"""Tests of paired differences, and corrections for asking more than one question."""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.special import bdtr, gammaln

from leadline.stats.observations import FloatArray

EXACT_UP_TO = 12
"""So many documents have few enough sign patterns to go through all of them."""


def mcnemar_midp(lost: int, gained: int) -> float:
    """Two-sided mid-p of McNemar's test: were so many of the changed prompts lost by chance? (Fagerland et al. 2013)"""
    n = lost + gained
    fewer = min(lost, gained)
    if lost == gained:
        return 1.0
    point = float(np.exp(gammaln(n + 1) - gammaln(fewer + 1) - gammaln(n - fewer + 1) - n * np.log(2)))
    return min(1.0, 2 * float(bdtr(fewer, n, 0.5)) - point)


def sign_flip_p(totals: FloatArray, resamples: int, rng: np.random.Generator) -> FloatArray:
    """Two-sided p of each column's sum (documents x groups) when the sign of every document's difference is a coin.

    A document that serves several groups is flipped in all of them at once. Exact for few documents.
    """
    documents = len(totals)
    seen = np.abs(totals.sum(axis=0))
    tolerance = 1e-12 + 1e-9 * np.abs(totals).sum(axis=0)  # equal sums must count as equal, whatever order they add in
    if documents <= EXACT_UP_TO:
        signs = np.array(list(product((-1.0, 1.0), repeat=documents)))
        return np.asarray(np.mean(np.abs(signs @ totals) >= seen - tolerance, axis=0))
    reached = np.zeros(totals.shape[1])
    done, step = 0, max(1, 2_000_000 // documents)
    while done < resamples:
        many = min(step, resamples - done)
        signs = rng.integers(0, 2, size=(many, documents)).astype(np.float64) * 2 - 1
        reached += np.sum(np.abs(signs @ totals) >= seen - tolerance, axis=0)
        done += many
    return np.asarray((reached + 1) / (resamples + 1))


def holm(p: FloatArray) -> FloatArray:
    """Adjusted p-values that keep the chance of any false alarm (Holm 1979)."""
    order = np.argsort(p)
    factors = len(p) - np.arange(len(p))
    stepped = np.maximum.accumulate(np.minimum(1.0, p[order] * factors))
    adjusted = np.empty_like(p)
    adjusted[order] = stepped
    return adjusted


def benjamini_hochberg(p: FloatArray) -> FloatArray:
    """Adjusted p-values that keep the share of false alarms among alarms (Benjamini and Hochberg 1995)."""
    order = np.argsort(p)[::-1]
    factors = len(p) / (len(p) - np.arange(len(p)))
    stepped = np.minimum.accumulate(np.minimum(1.0, p[order] * factors))
    adjusted = np.empty_like(p)
    adjusted[order] = stepped
    return adjusted
