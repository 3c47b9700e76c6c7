"""Which samples to ask for next: samples go where they can still change the answer, and cost least.

Every rule here reads the records so far and returns a `SamplingStep`: the samples to ask next, or that sampling is
over, what was found and what it cost. No state is kept between steps, so an interrupted run continues from its records.
Sample i of a cell is the same in every run, so two runs that stopped at different times stay paired on what both have.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from leadline.core.errors import UsageError
from leadline.core.types import Cell, Reading
from leadline.stats.compare import coordinates, pair
from leadline.stats.effective import Threshold
from leadline.stats.gate import Clause, GateResult, check_gate
from leadline.stats.intervals import CONFIDENCE
from leadline.stats.observations import CELL, Observations
from leadline.stats.sequential import (
    LengthStatus,
    beta_binomial_sequence,
    is_futile,
    next_length,
    rounds_by_length,
    rounds_to_settle,
    statuses_by_length,
)

GridPoint = tuple[str, int, float | None]
"""A cell without its sample: task, length, depth."""
FIRST_ROUNDS = 12
"""Rounds that a length is expected to take before anything is known about it."""
StepOutcome = Literal["going on", "decided", "undecided"]


@dataclass(frozen=True, slots=True)
class Design:
    """The cells that may be asked. `fixed` is the number of samples a cell in a design without looks."""

    points: tuple[GridPoint, ...]
    cap: int = 500
    fixed: int = 100
    cost: Mapping[int, float] = field(default_factory=dict)
    """The cost of one sample at each length. A length that is not named costs its own number of tokens."""
    at_once: int = 16
    """Samples worth asking together: as many as there are workers."""
    reading: Reading = "fresh"
    """How documents are read: one of `shared` answers all cells of a task at a length, one of `nested` those of all
    lengths up to the longest that is asked of it."""

    def cost_of(self, length: int) -> float:
        return self.cost.get(length, float(length))

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(sorted({length for _, length, _ in self.points}))

    @property
    def fixed_cost(self) -> float:
        """The cost of the fixed number of samples of every cell; a document counts once."""
        read = [(task, length) for task, length, _ in self.points]
        if self.reading == "shared":
            read = list(dict.fromkeys(read))
        elif self.reading == "nested":
            read = list({task: (task, length) for task, length in sorted(read, key=lambda each: each[1])}.values())
        return self.fixed * sum(self.cost_of(length) for _, length in read)

    def round_cost(self, length: int) -> float:
        """The cost of one sample of every cell of a length."""
        cells = [task for task, n, _ in self.points if n == length]
        return self.cost_of(length) * (len(cells) if self.reading == "fresh" else len(set(cells)))


@dataclass(frozen=True, slots=True)
class LengthSearch:
    """The state of the rule `effective`: the longest length above the threshold, the shortest below it, those
    between."""

    threshold: Threshold
    confidence: float
    shortest: int
    longest: int
    looking_at: int | None
    last_above: int | None
    first_below: int | None
    between: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CellWidths:
    """The state of the rule `cell`: the width of the widest interval, and the number of intervals that are too wide at
    the cap."""

    half_width: float
    confidence: float
    widest: float
    too_wide: int
    cells: int
    cap: int


@dataclass(frozen=True, slots=True)
class GateLook:
    """The state of the rule `verdict`; no result while nothing can be compared."""

    result: GateResult | None
    base_exhausted: bool


@dataclass(frozen=True, slots=True)
class SamplingStep:
    """The next step. `next` is empty at the end."""

    outcome: StepOutcome
    found: LengthSearch | CellWidths | GateLook
    next: tuple[Cell, ...]
    spent: float
    fixed_cost: float
    more: float | None = None
    """The approximate cost of deciding the open cells, if known."""
    unanswered: bool = False
    """Whether it ended because the samples it needs failed."""

    @property
    def done(self) -> bool:
        return self.outcome != "going on"

    @property
    def saving(self) -> float:
        """The cost of the fixed design divided by the cost so far."""
        return self.fixed_cost / self.spent if self.spent else math.inf


@dataclass(frozen=True, slots=True)
class Until:
    """The rule and the number of `--until`."""

    rule: Literal["effective", "cell", "verdict"]
    number: float
    """Confidence for effective and verdict, half-width for cell."""


def parse_until(text: str) -> Until:
    """`effective`, `effective 0.9`, `cell +-0.10`, `verdict 0.95`."""
    match = re.fullmatch(r"\s*(effective|cell|verdict)\s*(?:(?:\+-|\+/-|±)?\s*(0?\.\d+))?\s*", text)
    if not match or (match[1] == "cell" and match[2] is None):
        raise UsageError(
            f"{text!r} is not a stopping rule", where="--until", fix='write effective, "cell +-0.10" or "verdict 0.95"'
        )
    number = float(match[2]) if match[2] else 0.95
    if match[1] == "cell" and not 0 < number < 0.5:
        raise UsageError(f"a half-width of {number:g} is not below 0.5", where="--until", fix='write "cell +-0.10"')
    if match[1] != "cell" and not 0.5 < number < 1:
        raise UsageError(f"a confidence of {number:g} is not above 0.5", where="--until", fix='write "verdict 0.95"')
    rule: Literal["effective", "cell", "verdict"] = match[1]  # type: ignore[assignment]
    return Until(rule, number)


def until_effective(
    data: Observations, design: Design, threshold: Threshold | None = None, *, confidence: float = 0.95
) -> SamplingStep:
    """Sample until it is known which measured lengths clear the threshold. Ends undecided at the cap, never in a guess,
    and earlier at a length that the cap would almost surely not settle either."""
    threshold = threshold or Threshold()
    lengths = design.lengths
    statuses = statuses_by_length(rounds_by_length(data), lengths, threshold, confidence)
    counts = {length: _asked(data, design, length) for length in lengths}
    capped = [
        min(counts[s.length].values()) >= design.cap
        or (s.rounds > 0 and bool(is_futile(s.mean, s.scatter, s.rounds, s.threshold, design.cap, confidence)))
        for s in statuses
    ]
    cost = [design.round_cost(s.length) * rounds_left(s, design.cap, confidence) for s in statuses]
    at = next_length([s.status for s in statuses], capped, cost)
    low = max((i for i, s in enumerate(statuses) if s.status == "above"), default=-1)
    high = min((i for i, s in enumerate(statuses) if s.status == "below" and i > low), default=len(statuses))
    between = statuses[low + 1 : high]
    search = LengthSearch(
        threshold=threshold,
        confidence=confidence,
        shortest=lengths[0],
        longest=lengths[-1],
        looking_at=None if at is None else lengths[at],
        last_above=lengths[low] if low >= 0 else None,
        first_below=lengths[high] if high < len(lengths) else None,
        between=tuple(s.length for s in between),
    )
    spent = _cost(data, design)
    if at is None:
        more = _cost_to_settle(between, design, confidence)
        return SamplingStep("undecided" if between else "decided", search, (), spent, design.fixed_cost, more)
    wanted = [lengths[at]] if threshold.share is None else [lengths[0], lengths[at]]
    if design.reading == "nested":  # a document that is read up to a length answers the open ones before it
        wanted += [s.length for s in between if s.length < lengths[at]]
    follow = tuple(cell for length in dict.fromkeys(wanted) for cell in _round(counts[length], length, design))
    return SamplingStep("going on", search, follow, spent, design.fixed_cost)


def _cost(data: Observations, design: Design) -> float:
    """A document counts once, at the longest length that was asked of it."""
    read: dict[str, int] = {}
    for document, length in zip(data.cluster.tolist(), data.length.tolist(), strict=True):
        read[document] = max(read.get(document, 0), length)
    return sum(design.cost_of(length) for length in read.values())


def rounds_left(status: LengthStatus, cap: int, confidence: float) -> float:
    """The approximate number of further rounds of a length by its own scores, at most the cap."""
    needed = rounds_to_settle(status, confidence) if status.rounds else FIRST_ROUNDS
    return float(max(1, min(needed or cap, cap) - status.rounds))


def until_cells(data: Observations, design: Design, half_width: float) -> SamplingStep:
    """Sample until every cell's confidence sequence is narrower than +- `half_width`, or its cap is reached."""
    follow: list[Cell] = []
    stuck, widest, more = 0, 0.0, 0.0
    keys, code = data.codes(CELL)
    code_of = {key: j for j, key in enumerate(keys)}
    for point in design.points:
        rows = data.take(code == code_of.get(point, -1))
        scored = rows.counted()
        total, n = float(scored.value.sum()), len(scored)
        width = beta_binomial_sequence(total, n).half_width
        widest = max(widest, width)
        if width <= half_width:
            continue
        needed = _samples_for(half_width, total, n)
        if len(rows) >= design.cap:
            stuck += 1
            more += (needed - n) * design.cost_of(point[1])
            continue
        # Grow by half at most: fewer samples may do when the share turns out to be more extreme than it is now.
        target = min(needed, max(4, math.ceil(1.5 * n)), design.cap)
        follow += _missing(point, set(rows.sample.tolist()), min(max(1, target - n), design.cap - len(rows)))
    widths = CellWidths(half_width, CONFIDENCE, widest, stuck, len(design.points), design.cap)
    outcome: StepOutcome = "going on" if follow else "undecided" if stuck else "decided"
    missing = more if outcome == "undecided" else None
    return SamplingStep(outcome, widths, tuple(follow), _cost(data, design), design.fixed_cost, missing)


def until_verdict(
    data: Observations, base: Observations, design: Design, clauses: Sequence[Clause], *, confidence: float = 0.95
) -> SamplingStep:
    """Sample a candidate until a gate against `base` passes or fails, looking after every round of all cells.

    The candidate is not asked questions that the base was not asked: nothing could be compared.
    """
    pairs = pair(base, data)
    result = check_gate(pairs, clauses, confidence=confidence, anytime=True) if len(pairs) else None
    spent = _cost(data, design)
    if result is not None and result.verdict != "undecided":
        return SamplingStep("decided", GateLook(result, False), (), spent, design.fixed_cost)
    counts = [_asked(data, design, length) for length in design.lengths]
    wanted = [
        c for count_of, length in zip(counts, design.lengths, strict=True) for c in _round(count_of, length, design)
    ]
    there = set(coordinates(base))
    follow = tuple(
        c for c in wanted if (c.task, c.length, -1.0 if c.depth is None else round(c.depth, 4), c.sample) in there
    )
    look = GateLook(result, bool(wanted) and not follow)
    return SamplingStep("going on" if follow else "undecided", look, follow, spent, design.fixed_cost)


def _asked(data: Observations, design: Design, length: int) -> dict[GridPoint, int]:
    """The number of samples of each cell of a length, failed ones included."""
    mine = data.take(data.length == length)
    keys, code = mine.codes(CELL)
    counts = dict(zip(keys, np.bincount(code, minlength=len(keys)).tolist(), strict=True))
    return {point: counts.get(point, 0) for point in design.points if point[1] == length}


def rounds_after(have: int, cells: int, design: Design) -> int:
    """The rounds that a length should have at the next look: enough to keep the workers busy, and a tenth more once
    there are many."""
    return min(design.cap, have + max(math.ceil(design.at_once / cells), math.ceil(0.1 * have)))


def _round(counts: Mapping[GridPoint, int], length: int, design: Design) -> list[Cell]:
    """The missing samples of the next rounds of a length."""
    target = rounds_after(min(counts.values()), len(counts), design)
    return [
        Cell(task, length, depth, sample)
        for (task, _, depth), count in counts.items()
        for sample in range(count, max(target, count))
    ]


def _missing(point: GridPoint, there: set[int], count: int) -> list[Cell]:
    task, length, depth = point
    cells: list[Cell] = []
    sample = 0
    while len(cells) < count:
        if sample not in there:
            cells.append(Cell(task, length, depth, sample))
        sample += 1
    return cells


def _samples_for(half_width: float, total: float, n: int) -> int:
    """The approximate number of samples that bring a cell's sequence down to a half-width, if its share stays the
    same."""
    share = (total + 0.5) / (n + 1)
    low, high = max(n, 1), 16
    while beta_binomial_sequence(share * high, high).half_width > half_width:
        high *= 2
    while low < high:
        middle = (low + high) // 2
        if beta_binomial_sequence(share * middle, middle).half_width > half_width:
            low = middle + 1
        else:
            high = middle
    return high


def _cost_to_settle(open_ones: Sequence[LengthStatus], design: Design, confidence: float) -> float | None:
    """The cost of deciding the lengths that are still open, if their means stay the same; None if no number of rounds
    would."""
    total = 0.0
    for status in open_ones:
        needed = rounds_to_settle(status, confidence)
        if needed is None:
            return None
        total += (needed - status.rounds) * design.round_cost(status.length)
    return total if open_ones else None
