"""`--time 10min`: a run that ends in time, and asks only what the time allows.

The first requests of a run show its pace: how long an answer takes at a length, and how many are answered at once. A
stopping rule looks only at lengths whose rounds the time allows, and no question is begun that would end too late.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from leadline.core.errors import RunStopped, UsageError
from leadline.core.format import format_duration

_UNITS = {"": 1.0, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
OVERRUN = 1.1
"""In multiples of the limit: no question is asked whose answer is expected later."""
ROUND_SHARE = 0.4
"""The largest share of the time, or of a budget, for one round of a length. With a smaller share, lengths could not be
distinguished."""


class TimeReached(RunStopped):
    """The time is used up; what was answered counts."""


def parse_time(text: str) -> float | None:
    """`10min`, `90s`, `2h` or `600` in seconds; None if there is no limit."""
    if not text.strip():
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS or float(match[1]) <= 0:
        raise UsageError(f"{text!r} is not a time", where="--time", fix="write 10min, 90s or 2h")
    return float(match[1]) * _UNITS[match[2]]


class TimeLimit:
    """The time of a run, from the moment it is made, and the pace of its answers. Used with a lock held."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._started = clock()
        self._answers: list[tuple[int, float]] = []

    @property
    def left(self) -> float:
        return self.seconds - (self._clock() - self._started)

    def answered(self, tokens: int, seconds: float) -> None:
        """Notes the time of an answer about this many tokens."""
        self._answers.append((tokens, seconds))

    def expected(self, tokens: int) -> float:
        """Seconds of one answer at this length: a fixed part and one in proportion, from the answers so far."""
        if not self._answers:
            return 0.0
        sizes = [size for size, _ in self._answers]
        short, long = min(sizes), max(sizes)
        at_short, at_long = (self._mean(size) for size in (short, long))
        per_token = max(0.0, (at_long - at_short) / (long - short)) if long > short else at_short / max(short, 1)
        return max(0.0, at_short + per_token * (tokens - short)) if long > short else max(at_short, per_token * tokens)

    def allows(self, tokens: int) -> bool:
        """Whether a question of this length may still begin."""
        return self.left > 0 and self.expected(tokens) <= self.left + (OVERRUN - 1) * self.seconds

    def affordable(self, lengths: Sequence[int], cells: int, at_once: int) -> list[int]:
        """The lengths at which one round of `cells` questions fits; the two shortest always."""
        rounds = -(-cells // max(at_once, 1))
        most = ROUND_SHARE * self.seconds
        return [n for i, n in enumerate(lengths) if i < 2 or rounds * self.expected(n) <= most]

    def reached(self, where: str) -> TimeReached:
        return TimeReached(
            f"the time of {format_duration(self.seconds)} is used up",
            where=where,
            fix="run the same command again: it continues for as long",
        )

    def _mean(self, size: int) -> float:
        seconds = [taken for tokens, taken in self._answers if tokens == size]
        return sum(seconds) / len(seconds)
