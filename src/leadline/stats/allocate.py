"""Which samples to ask for next: rounds go where they can still change the answer, and cost least.

Every function here looks at the records so far and returns a `Step`: what to ask next, or that it is over, what was
found, what it cost and what it would still cost to be surer. Nothing is kept in between, so a run that was stopped
goes on from its records alone. Sample i of a cell is the same whoever asks for it, so two checkpoints that stopped at
different times stay paired on what both have.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from leadline.core.errors import UsageError
from leadline.core.format import format_tokens
from leadline.core.types import Cell
from leadline.stats.compare import coordinates, pair
from leadline.stats.effective import Line
from leadline.stats.gate import Clause, judge
from leadline.stats.observations import Observations
from leadline.stats.sequential import (
    LengthStanding,
    Rounds,
    beta_binomial_sequence,
    hopeless,
    next_length,
    rounds_by_length,
    rounds_to_settle,
    standing_of,
)

Place = tuple[str, int, float | None]
"""A cell without its sample: task, length, depth."""
Outcome = Literal["going on", "decided", "undecided"]


@dataclass(frozen=True, slots=True)
class Design:
    """What may be asked. `fixed` is the samples a cell that a design without looking would spend."""

    places: tuple[Place, ...]
    cap: int = 500
    fixed: int = 100
    cost: Mapping[int, float] = field(default_factory=dict)
    """Of one sample at each length; a length that is not named costs its own number of tokens."""
    at_once: int = 16
    """Samples worth asking together: as many as there are workers."""
    nested: bool = False
    """Whether one document answers for every length, so that a round of one is a round of all."""

    def cost_of(self, length: int) -> float:
        return self.cost.get(length, float(length))

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(sorted({length for _, length, _ in self.places}))

    @property
    def fixed_cost(self) -> float:
        return self.fixed * sum(self.cost_of(length) for _, length, _ in self.places)


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now. `next` is empty when it is over."""

    outcome: Outcome
    sentence: str
    next: tuple[Cell, ...]
    spent: float
    fixed_cost: float
    more: float | None = None
    """About what it would still cost to settle what is open, where that can be told."""
    standings: tuple[LengthStanding, ...] = ()

    @property
    def done(self) -> bool:
        return self.outcome != "going on"

    @property
    def saving(self) -> float:
        """How many times less this cost than the fixed design."""
        return self.fixed_cost / self.spent if self.spent else math.inf


@dataclass(frozen=True, slots=True)
class Until:
    """`--until`, taken apart."""

    rule: Literal["effective", "cell", "verdict"]
    number: float
    """Confidence for effective and verdict, half-width for cell."""


def parse_until(text: str) -> Until:
    """`effective`, `effective 0.9`, `cell +-0.10`, `verdict 0.95`."""
    found = re.fullmatch(r"\s*(effective|cell|verdict)\s*(?:(?:\+-|\+/-|±)?\s*(0?\.\d+))?\s*", text)
    if not found or (found[1] == "cell" and found[2] is None):
        raise UsageError(
            f"{text!r} is not a stopping rule", where="--until", fix='write effective, "cell +-0.10" or "verdict 0.95"'
        )
    number = float(found[2]) if found[2] else 0.95
    if found[1] == "cell" and not 0 < number < 0.5:
        raise UsageError(f"a half-width of {number:g} is not below 0.5", where="--until", fix='write "cell +-0.10"')
    if found[1] != "cell" and not 0.5 < number < 1:
        raise UsageError(f"a confidence of {number:g} is not above 0.5", where="--until", fix='write "verdict 0.95"')
    rule: Literal["effective", "cell", "verdict"] = found[1]  # type: ignore[assignment]
    return Until(rule, number)


def until_effective(
    data: Observations, design: Design, line: Line | None = None, *, confidence: float = 0.95, give_up: bool = True
) -> Step:
    """Sample until it is known which measured lengths clear the line. Ends undecided at the cap, never in a guess.

    `give_up` stops at a length once the cap would almost surely not settle it either.
    """
    line = line or Line()
    held = {rounds.length: rounds for rounds in rounds_by_length(data)}
    lengths = design.lengths
    stands = [_against(line, length, lengths[0], held, confidence) for length in lengths]
    asked = {length: _asked(data, design, length) for length in lengths}
    capped = [
        min(asked[s.length].values()) >= design.cap
        or (give_up and s.rounds > 0 and bool(hopeless(s.mean, s.scatter, s.rounds, s.line, design.cap, confidence)))
        for s in stands
    ]
    cells = {length: len(asked[length]) for length in lengths}
    cost = [design.cost_of(length) * cells[length] for length in lengths]
    at = next_length([s.standing for s in stands], capped, cost)
    spent = sum(design.cost_of(length) for length in data.length.tolist())
    if at is not None:
        wanted = [lengths[at]] if line.share is None else [lengths[0], lengths[at]]
        wanted = list(lengths) if design.nested else wanted
        follow = tuple(cell for length in dict.fromkeys(wanted) for cell in _round(asked[length], length, design))
        return Step(
            "going on",
            f"looking at {format_tokens(lengths[at])}",
            follow,
            spent,
            design.fixed_cost,
            None,
            tuple(stands),
        )
    outcome, sentence, open_ones = _effective_words(stands, line, confidence)
    return Step(
        outcome, sentence, (), spent, design.fixed_cost, _more(open_ones, cells, design, confidence), tuple(stands)
    )


def until_cells(data: Observations, design: Design, half_width: float, *, confidence: float = 0.95) -> Step:
    """Sample until every cell's confidence sequence is narrower than +- `half_width`, or its cap is reached."""
    follow: list[Cell] = []
    stuck, widest, more = 0, 0.0, 0.0
    keys, code = data.codes(("task", "length", "depth"))
    place_of = {key: j for j, key in enumerate(keys)}
    for place in design.places:
        rows = (
            data.take(code == place_of[place]) if place in place_of else data.take(np.zeros(len(data), dtype=np.bool_))
        )
        scored = rows.counted()
        total, n = float(scored.value.sum()), len(scored)
        width = beta_binomial_sequence(total, n, confidence).half_width
        widest = max(widest, width)
        if width <= half_width:
            continue
        needed = _samples_for(half_width, total, n, confidence)
        if len(rows) >= design.cap:
            stuck += 1
            more += (needed - n) * design.cost_of(place[1])
            continue
        # Steps of half as much again: the share may turn out kinder than it looks now.
        target = min(needed, max(4, math.ceil(1.5 * n)), design.cap)
        follow += _missing(place, set(rows.sample.tolist()), max(1, target - n))
    spent = sum(design.cost_of(length) for length in data.length.tolist())
    if follow:
        return Step("going on", f"widest cell +-{widest:.2f}", tuple(follow), spent, design.fixed_cost)
    if stuck:
        sentence = f"{stuck} of {len(design.places)} cells are wider than +-{half_width:g} at {design.cap} samples"
        return Step("undecided", sentence, (), spent, design.fixed_cost, more)
    return Step(
        "decided", f"every cell is known to +-{half_width:g} ({_percent(confidence)})", (), spent, design.fixed_cost
    )


def until_verdict(
    data: Observations, base: Observations, design: Design, clauses: Sequence[Clause], *, confidence: float = 0.95
) -> Step:
    """Sample a candidate until a gate against `base` passes or fails, looking after every round of all cells.

    What the base was not asked cannot be compared with anything, so it is not asked of the candidate either.
    """
    pairs = pair(base, data)
    spent = sum(design.cost_of(length) for length in data.length.tolist())
    sentence = "nothing to compare yet"
    if len(pairs):
        result = judge(pairs, clauses, confidence=confidence, anytime=True)
        sentence = str(result)
        if result.verdict != "undecided":
            return Step("decided", sentence, (), spent, design.fixed_cost)
    asked = [_asked(data, design, length) for length in design.lengths]
    wanted = [c for each, length in zip(asked, design.lengths, strict=True) for c in _round(each, length, design)]
    there = set(coordinates(base))
    follow = tuple(
        c for c in wanted if (c.task, c.length, -1.0 if c.depth is None else round(c.depth, 4), c.sample) in there
    )
    if wanted and not follow:
        sentence += "; the base has no more samples to compare with"
    return Step("going on" if follow else "undecided", sentence, follow, spent, design.fixed_cost)


def saving_words(step: Step, fixed: int, unit: str = "tokens") -> str:
    """`spent 20M tokens, 14x less than 100 samples a cell`."""
    ratio = f"{step.saving:.3g}x less than" if step.saving >= 1 else f"{1 / step.saving:.3g}x as much as"
    if f"{step.saving:.3g}" == "1":
        ratio = "as much as"
    spent = f"spent {_short(step.spent)} {unit}, {ratio} {fixed} samples a cell"
    return spent if step.more is None else f"{spent}; about {_short(step.more)} more would settle the rest"


def _against(line: Line, length: int, shortest: int, held: Mapping[int, Rounds], confidence: float) -> LengthStanding:
    rounds = held.get(length, Rounds(length, np.zeros(0), 1.0))
    if line.share is None:
        return standing_of(rounds, line.threshold, confidence)
    # A share of the model's own short score: the difference of paired rounds, against zero.
    base = held.get(shortest, Rounds(shortest, np.zeros(0), 1.0))
    n = min(len(rounds.means), len(base.means))
    gap = rounds.means[:n] - line.share * base.means[:n]
    return standing_of(Rounds(length, gap, rounds.prompts), 0.0, confidence, unit=False)


def _asked(data: Observations, design: Design, length: int) -> dict[Place, int]:
    """How many samples of each cell of a length there are, failed ones included."""
    mine = data.take(data.length == length)
    keys, code = mine.codes(("task", "length", "depth"))
    counts = dict(zip(keys, np.bincount(code, minlength=len(keys)).tolist(), strict=True))
    return {place: counts.get(place, 0) for place in design.places if place[1] == length}


def rounds_after(have: int, cells: int, design: Design) -> int:
    """How many rounds a length should have at the next look: enough more to keep the workers busy, and a tenth more
    once there are many."""
    return min(design.cap, have + max(math.ceil(design.at_once / cells), math.ceil(0.1 * have)))


def _round(asked: Mapping[Place, int], length: int, design: Design) -> list[Cell]:
    """What is missing to the next rounds of a length."""
    target = rounds_after(min(asked.values()), len(asked), design)
    return [
        Cell(task, length, depth, sample)
        for (task, _, depth), count in asked.items()
        for sample in range(count, max(target, count))
    ]


def _missing(place: Place, there: set[int], count: int) -> list[Cell]:
    task, length, depth = place
    found: list[Cell] = []
    sample = 0
    while len(found) < count:
        if sample not in there:
            found.append(Cell(task, length, depth, sample))
        sample += 1
    return found


def _samples_for(half_width: float, total: float, n: int, confidence: float) -> int:
    """About how many samples bring a cell's sequence down to a half-width, if its share stays where it is."""
    share = (total + 0.5) / (n + 1)
    low, high = max(n, 1), 16
    while beta_binomial_sequence(share * high, high, confidence).half_width > half_width:
        high *= 2
    while low < high:
        middle = (low + high) // 2
        if beta_binomial_sequence(share * middle, middle, confidence).half_width > half_width:
            low = middle + 1
        else:
            high = middle
    return high


def _effective_words(
    stands: Sequence[LengthStanding], line: Line, confidence: float
) -> tuple[Outcome, str, list[LengthStanding]]:
    low = max((i for i, s in enumerate(stands) if s.standing == "above"), default=-1)
    high = min((i for i, s in enumerate(stands) if s.standing == "below" and i > low), default=len(stands))
    open_ones = list(stands[low + 1 : high])
    sure = f"({_percent(confidence)} at every look)"
    if open_ones:
        bounds = [f"at least {format_tokens(stands[low].length)}"] if low >= 0 else []
        bounds += [f"less than {format_tokens(stands[high].length)}"] if high < len(stands) else []
        *others, last = [format_tokens(s.length) for s in open_ones]
        names = f"{', '.join(others)} and {last}" if others else last
        on = f"{names} {'sits' if len(open_ones) == 1 else 'sit'} on the line of {line}"
        return "undecided", f"undecided: {', '.join([*bounds, on])} {sure}", open_ones
    if low < 0:
        return "decided", f"below {format_tokens(stands[0].length)} {sure}", []
    if high == len(stands):
        return "decided", f"at least {format_tokens(stands[-1].length)} {sure}", []
    return (
        "decided",
        f"{format_tokens(stands[low].length)} clears {line}, {format_tokens(stands[high].length)} does not {sure}",
        [],
    )


def _more(
    open_ones: Sequence[LengthStanding], cells: Mapping[int, int], design: Design, confidence: float
) -> float | None:
    total = 0.0
    for standing in open_ones:
        needed = rounds_to_settle(standing, confidence)
        if needed is None:
            return None
        total += (needed - standing.rounds) * cells[standing.length] * design.cost_of(standing.length)
    return total if open_ones else None


def _percent(confidence: float) -> str:
    return f"{100 * confidence:g} %"


def _short(number: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"
