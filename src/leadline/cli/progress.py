"""A run as it goes, counted from its events and shown by one of the faces."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from leadline.cli.faces import Bar, Face, Lines
from leadline.cli.screen import harmless, say, seconds_words, warn
from leadline.report.live.pace import Pace
from leadline.run.events import Answered, Event, Looked, Started, Stopping, Waiting


class Counts:
    """Where the run stands, and how long it may still take.

    With a `rule` that decides how many samples there will be, neither their number nor the time left is known.
    """

    def __init__(self, *, rule: bool = False) -> None:
        self._rule = rule
        self.planned: int | None = None
        self.done = self.failed = 0
        self.tokens_total = 0
        self._pace = Pace()
        self.began = time.monotonic()
        self.wait = ""

    def begin(self, event: Started) -> None:
        self.done, self.tokens_total = event.done, event.prompt_tokens_left
        self.planned = None if self._rule else event.planned
        self.began = time.monotonic()

    def add(self, event: Answered) -> None:
        self._pace.add(event.record.prompt_tokens, event.record.seconds)
        self.wait = ""
        if event.record.failed:
            self.failed += 1
        else:
            self.done += 1

    @property
    def tokens_per_second(self) -> float:
        return self._pace.tokens / max(time.monotonic() - self.began, 1e-9)

    @property
    def seconds_left(self) -> float | None:
        if self.planned is None or self.asked >= self.planned:
            return None
        tokens = max(0, self.tokens_total - self._pace.tokens)
        return self._pace.left(self.planned - self.asked, tokens, time.monotonic() - self.began)

    @property
    def asked(self) -> int:
        return self.done + self.failed

    def words(self) -> str:
        """`120 of 264 samples, 1,024 tokens/s, 3 min 20 s left, 2 failed`."""
        of = f"sample{'s' * (self.asked != 1)}" if self.planned is None else f"of {self.planned:,} samples"
        parts = [f"{self.asked:,} {of}"]
        if self.tokens_per_second:  # none before the first answer
            parts.append(f"{self.tokens_per_second:,.0f} tokens/s")
        if left := self.seconds_left:
            parts.append(f"{seconds_words(left)} left")
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.wait:
            parts.append(self.wait)
        return ", ".join(parts)


class Watcher:
    """The listener of a run. Use it as a context, so that the terminal is left in order."""

    def __init__(self, *, rule: bool = False) -> None:
        self.counts = Counts(rule=rule)
        self._face: Face | None = None
        self._looked = ""

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            self._begin(event)
        elif isinstance(event, Answered):
            self.counts.add(event)
        elif isinstance(event, Waiting):
            whom = "all wait" if event.everyone else "one waits"
            self.counts.wait = f"{whom} {seconds_words(event.seconds)}: {harmless(event.why)}"
        elif isinstance(event, Looked):
            if event.sentence != self._looked:
                self._say(event.sentence)
            self._looked = event.sentence
        elif isinstance(event, Stopping):
            self._say(f"stopping: {harmless(event.why)}. Finishing what is in flight; Ctrl-C leaves at once.")
        if self._face is not None and not (isinstance(event, Answered) and event.more):
            self._face.update(self.counts)

    def _begin(self, event: Started) -> None:
        self.counts.begin(event)
        say(f"run: {event.folder}")
        for note in event.notes:
            warn(note)
        if event.torn_bytes:
            warn(f"a torn last line of {event.torn_bytes:,} bytes was cut off; its sample is asked again")
        if event.done or event.failed_before:
            verb = "is" if event.failed_before == 1 else "are"
            again = f", {event.failed_before} that failed {verb} asked again" if event.failed_before else ""
            say(f"going on: {event.done:,} of {event.planned:,} samples have an answer{again}")
        if event.done < event.planned:
            self._face = Bar(self.counts) if sys.stderr.isatty() else Lines()

    def _say(self, text: str) -> None:
        if self._face is None:
            say(text)
        else:
            self._face.say(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._face is not None:
            self._face.update(self.counts, force=True)
            self._face.close()
