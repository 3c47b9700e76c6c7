"""Runs of many models as they go: one count and one bar for all of them, whatever order they take."""

from __future__ import annotations

import sys
import time

from leadline.cli.faces import Bar, Lines
from leadline.cli.progress import Counts, Watcher
from leadline.cli.screen import harmless
from leadline.core.errors import Interrupted
from leadline.run.events import Started, Stopping
from leadline.run.matrix import Began, Ended, MatrixEvent, Outcome


class AllCounts(Counts):
    """Where all runs stand together. Every model is asked the same, so those that wait are counted like those that
    have begun."""

    def __init__(self, models: int) -> None:
        super().__init__()
        self.models = models
        self.ended = self.lost = 0
        self._planned: list[int] = []
        self._tokens: list[int] = []

    def begin(self, event: Started) -> None:
        if not self._planned:
            self.began = time.monotonic()
        self._planned.append(event.planned)
        self._tokens.append(event.prompt_tokens_left)
        self.done += event.done
        self._expect()

    def end(self, *, asked: bool) -> None:
        """`asked` is False for a model that never came so far."""
        self.ended += 1
        self.lost += not asked
        self._expect()

    def words(self) -> str:
        return f"{self.ended} of {self.models} models, {super().words()}"

    def _expect(self) -> None:
        if self._planned:
            waiting = self.models - self.lost - len(self._planned)
            self.planned = sum(self._planned) + waiting * self._planned[-1]
            self.tokens_total = sum(self._tokens) + waiting * max(self._tokens)


class MatrixWatcher(Watcher):
    """The listener of many runs."""

    counts: AllCounts

    def __init__(self, models: int) -> None:
        super().__init__()
        self.counts = AllCounts(models)
        self._begun: set[str] = set()
        self._said: set[str] = set()
        self._stopping = False

    def hear(self, event: MatrixEvent) -> None:
        if isinstance(event, Ended):
            self._end(event.outcome)
        elif isinstance(event, Stopping):  # every run says so when all are stopped
            if not self._stopping:
                self(event)
            self._stopping = True
        elif not isinstance(event, Began):
            self(event)

    def _begin(self, event: Started) -> None:
        self.counts.begin(event)
        self._begun.add(str(event.folder))
        if self._face is None:
            self._face = Bar(self.counts) if sys.stderr.isatty() else Lines()
        there = f" ({event.done:,} of {event.planned:,} samples have an answer)" if event.done else ""
        self._say(f"run: {event.folder}{there}")
        for note in event.notes:
            if note not in self._said:  # most models of a list have the same to say
                self._said.add(note)
                self._say(f"note:  {harmless(note)}")

    def _end(self, outcome: Outcome) -> None:
        name = harmless(outcome.entrant.name)
        if outcome.was_there:
            self._say(f"{name}: measured already")
        elif outcome.error is not None and not isinstance(outcome.error, Interrupted):
            self._say(f"{name}: not measured: {harmless(outcome.error.what)}")
            if outcome.error.fix:
                self._say(f"       fix: {harmless(outcome.error.fix)}")
        if not outcome.was_there:
            self.counts.end(asked=str(outcome.entrant.folder) in self._begun)
        if self._face is not None:
            self._face.update(self.counts)
