"""A run's table while it grows, made anew only as often as the machine can spare."""

from __future__ import annotations

import time
from collections.abc import Callable

from leadline.report.live.standing import Standing
from leadline.report.load import Run

SHARE = 0.2
"""Of the time, what making tables may take."""


class PacedRun:
    """The run so far. A table of thousands of cells takes a second, so it is not made for every record."""

    def __init__(self, standing: Standing, clock: Callable[[], float] = time.monotonic) -> None:
        self._standing = standing
        self._clock = clock
        self._made = -1
        self._next = 0.0
        self._run: Run | None = None

    def now(self, *, fresh: bool = False) -> Run:
        """`fresh` wants the very newest, whatever it takes."""
        due = self._made != self._standing.version and (fresh or self._clock() >= self._next)
        if self._run is None or due:
            began, version = self._clock(), self._standing.version
            self._run = self._standing.run()
            ended = self._clock()
            self._made, self._next = version, ended + (ended - began) * (1 / SHARE - 1)
        return self._run
