"""A run as it goes: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from leadline.cli.screen import harmless, say, seconds_words, warn
from leadline.run.events import Answered, Event, Looked, Started, Stopping, Waiting

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LINE_SECONDS = 10.0
"""Between two lines where there is no terminal."""


class Face(Protocol):
    """How the counts are shown."""

    def update(self, counts: Counts, *, force: bool = False) -> None: ...

    def say(self, text: str) -> None: ...

    def close(self) -> None: ...


class Counts:
    """Where the run stands. Time left goes by tokens, since long prompts come first."""

    def __init__(self) -> None:
        self.planned = self.done = self.failed = self.asked = 0
        self.tokens_total = self.tokens = 0
        self.began = time.monotonic()
        self.wait = ""

    def begin(self, event: Started) -> None:
        self.planned, self.done, self.tokens_total = event.planned, event.done, event.prompt_tokens_left
        self.began = time.monotonic()

    def add(self, event: Answered) -> None:
        self.asked += 1
        self.tokens += event.record.prompt_tokens
        self.wait = ""
        if event.record.failed:
            self.failed += 1
        else:
            self.done += 1

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / max(time.monotonic() - self.began, 1e-9)

    def words(self) -> str:
        """`1,024 tokens/s, 3 min 20 s left, 2 failed`."""
        parts = [f"{self.tokens_per_second:,.0f} tokens/s"]
        if self.tokens and self.tokens < self.tokens_total:
            parts.append(f"{seconds_words((self.tokens_total - self.tokens) / self.tokens_per_second)} left")
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.wait:
            parts.append(self.wait)
        return ", ".join(parts)


class Watcher:
    """The listener of a run. Use it as a context, so that the terminal is left in order."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._face: Face | None = None
        self._looked = ""

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            self._begin(event)
        elif isinstance(event, Answered):
            self.counts.add(event)
        elif isinstance(event, Waiting):
            whom = "all wait" if event.everyone else "one waits"
            self.counts.wait = f"{whom} {seconds_words(event.seconds)}: {event.why}"
        elif isinstance(event, Looked):
            if event.sentence != self._looked:
                self._say(event.sentence)
            self._looked = event.sentence
        elif isinstance(event, Stopping):
            self._say(f"stopping: {harmless(event.why)}. Finishing what is in flight; Ctrl-C leaves at once.")
        if self._face is not None:
            self._face.update(self.counts)

    def _begin(self, event: Started) -> None:
        self.counts.begin(event)
        say(f"run: {event.folder}")
        for note in event.notes:
            warn(note)
        if event.torn_bytes:
            warn(f"a torn last line of {event.torn_bytes:,} bytes was cut off; its sample is asked again")
        if event.done or event.failed_before:
            again = f", {event.failed_before} that failed are asked again" if event.failed_before else ""
            say(f"going on: {event.done:,} of {event.planned:,} samples have an answer{again}")
        if event.done < event.planned:
            self._face = Bar(self.counts) if sys.stderr.isatty() else Lines()

    def _say(self, text: str) -> None:
        if self._face is None:
            say(text)
        else:
            self._face.say(text)

    def __enter__(self) -> Watcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._face is not None:
            self._face.update(self.counts, force=True)
            self._face.close()


class Lines:
    """For logs and pipes."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def update(self, counts: Counts, *, force: bool = False) -> None:
        now = time.monotonic()
        if force or now - self._last >= LINE_SECONDS:
            self._last = now
            say(f"{counts.done + counts.failed:,} of {counts.planned:,} samples, {counts.words()}")

    def say(self, text: str) -> None:
        say(text)

    def close(self) -> None:
        pass


class Bar:
    """For people."""

    def __init__(self, counts: Counts) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._progress: Progress = Progress(
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[words]}"),
            console=Console(stderr=True),
            refresh_per_second=4,
            expand=True,
        )
        self._progress.start()
        self._id: TaskID = self._progress.add_task("", total=counts.planned, completed=counts.done, words="")

    def update(self, counts: Counts, *, force: bool = False) -> None:
        done = counts.done + counts.failed
        self._progress.update(self._id, completed=done, words=counts.words())

    def say(self, text: str) -> None:
        """Above the bar, which would be drawn over otherwise."""
        self._progress.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self._progress.stop()
