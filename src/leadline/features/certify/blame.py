"""Which parts of the grid a loss is in.

A loss with eight needles only lowers every length and every third of the depths too, since each has prompts with eight
needles, and so all of them may be worse than chance explains. A part is therefore blamed only if

- it is worse after Holm's correction over all parts, and no part has stronger evidence;
- its loss stays, at 5 % one-sided, when the prompts of any one part of another scope are left out: with eight needles
  only, a length without them has lost nothing. Every part alone could be the whole reason, so each has to be refuted:
  an intersection-union test, which needs no correction;
- the evidence for it exceeds that for every part of another scope by a little (`LEAD`).

The whole is blamed, as a loss everywhere, under the same conditions, where every part points down and none has clearly
lost less than the whole. What is left outside of the parts blamed so far is then searched in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy  # loads its parts when they are first used

from leadline.stats.compare import Comparison, Difference, Pairs, Scope, compare, group_pairs
from leadline.stats.observations import DEPTH_BANDS, BoolArray, Observations

MOST_BLAMED = 4
OUTSIDE_ALPHA = 0.05
"""One-sided, for the loss of a part outside of each part of another scope."""
LEAD = 1.0
"""The square of a part's z must exceed those of its rivals by this."""
POINTS_DOWN = 0.2
"""The largest one-sided p of a part in a loss that is everywhere."""
CLEARLY_LESS = 2.3
"""A part that lost less than the whole by this many standard errors shows that the loss is not everywhere."""


@dataclass(frozen=True, slots=True)
class _Loss:
    """The mean loss of a part, and its deviation if the sign of each document's difference were a coin toss. For yes/no
    answers their ratio is McNemar's z. The observed scatter would be zero in a cell that has lost every answer."""

    mean: float
    deviation: float

    @property
    def z(self) -> float:
        return self.mean / self.deviation if self.deviation > 0 else 0.0

    @property
    def p(self) -> float:
        """One-sided, against no loss."""
        return float(scipy.special.ndtr(-self.z))


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A part of the grid, or the whole, and the evidence that it has lost."""

    difference: Difference
    loss: _Loss

    @property
    def z(self) -> float:
        return self.loss.z

    @property
    def is_whole(self) -> bool:
        return self.difference.scope == "overall"

    def is_worse(self, alpha: float) -> bool:
        return self.difference.adjusted <= alpha and self.difference.estimate.mean < 0

    def is_rival(self, other: _Candidate) -> bool:
        return self.difference.scope != other.difference.scope


def blamed_parts(pairs: Pairs, comparison: Comparison, alpha: float) -> tuple[Difference, ...]:
    """The parts to blame, the surest first; the whole alone for a loss everywhere; nothing if no part can be named."""
    blamed: list[Difference] = []
    rest = pairs
    while len(blamed) < MOST_BLAMED:
        surest = _surest(rest, comparison, alpha)
        if surest is None or (surest.is_whole and blamed):
            break
        blamed.append(surest.difference)
        rest = outside(rest, surest.difference)
        if surest.is_whole or len(rest) < 2:
            break
        comparison = compare(rest)
    return tuple(blamed)


def _surest(pairs: Pairs, comparison: Comparison, alpha: float) -> _Candidate | None:
    whole, *parts = _candidates(pairs, comparison)
    is_everywhere = not any(_lost_clearly_less(part, whole) for part in parts)
    if is_everywhere and whole.is_worse(alpha) and all(part.loss.p <= POINTS_DOWN for part in parts):
        is_leading = all(whole.z >= part.z for part in parts)
        if is_leading and all(_loses_outside(pairs, part) for part in parts):
            return whole
    worse = [part for part in parts if part.is_worse(alpha)]
    if not worse:
        return None
    surest = max(worse, key=lambda part: part.z)
    rivals = [part for part in parts if part.is_rival(surest)]
    strongest = max((rival.z for rival in (*rivals, whole) if not rival.is_whole or is_everywhere), default=0.0)
    if surest.z**2 < max(strongest, 0.0) ** 2 + LEAD:
        return None
    inside = subset(pairs, rows_of(pairs.base, surest.difference))
    return surest if all(_loses_outside(inside, rival) for rival in rivals) else None


def _candidates(pairs: Pairs, comparison: Comparison) -> list[_Candidate]:
    """In the order of the comparison: the whole comes first."""
    losses = {name: loss for scope in {d.scope for d in comparison.differences} for name, loss in _losses(pairs, scope)}
    return [_Candidate(difference, losses[difference.name]) for difference in comparison.differences]


def _losses(pairs: Pairs, scope: Scope) -> list[tuple[str, _Loss]]:
    """By name of each part of a scope."""
    grouped = group_pairs(pairs, scope)
    clusters, document = grouped.difference.documents, grouped.difference.code(("cluster",))
    numbers, size = grouped.code * clusters + document, len(grouped.keys) * clusters
    by_document = np.bincount(numbers, weights=grouped.weight * grouped.difference.value, minlength=size)
    totals = by_document.reshape(-1, clusters)
    return [
        (name, _Loss(-float(row.sum()), float(np.sqrt(np.sum(row**2)))))
        for (_, name), row in zip(grouped.keys, totals, strict=True)
    ]


def _lost_clearly_less(part: _Candidate, whole: _Candidate) -> bool:
    return whole.loss.mean - part.loss.mean > CLEARLY_LESS * part.loss.deviation


def _loses_outside(pairs: Pairs, part: _Candidate) -> bool:
    """Whether a loss stays without the prompts of a part. A part with all the prompts cannot be distinguished."""
    rest = outside(pairs, part.difference)
    return len(rest) == 0 or _losses(rest, "overall")[0][1].p <= OUTSIDE_ALPHA


def outside(pairs: Pairs, part: Difference) -> Pairs:
    """The pairs that are not in a part."""
    return subset(pairs, ~rows_of(pairs.base, part))


def rows_of(data: Observations, part: Difference) -> BoolArray:
    if part.scope == "overall":
        return np.ones(len(data), dtype=np.bool_)
    key = part.key[0]
    if part.scope == "task":
        return np.asarray(data.task == key)
    if part.scope == "length":
        return np.asarray(data.length == key)
    low, high = DEPTH_BANDS[str(key)]
    last = max(band[1] for band in DEPTH_BANDS.values())
    return np.asarray((data.depth >= low) & ((data.depth < high) | (high == last)))


def subset(pairs: Pairs, rows: BoolArray) -> Pairs:
    return replace(pairs, base=pairs.base.take(rows), candidate=pairs.candidate.take(rows))
