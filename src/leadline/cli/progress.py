"""A run as it goes, counted from its events and shown by one of the faces."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from leadline.cli.output import say, warn
from leadline.core.errors import Interrupted
from leadline.core.format import format_duration, sanitise
from leadline.results.follow import Eta
from leadline.run.events import Answered, Event, Looked, Started, Stopping, Waiting
from leadline.run.many_models import Began, Ended, MatrixEvent, ModelRunResult

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


# --- How progress is shown: a bar to people, a line now and then to logs and pipes.

LINE_SECONDS = 10.0
"""Between two lines where there is no terminal."""


class Shown(Protocol):
    """What there is to show. `planned` is None where nobody can know yet."""

    @property
    def asked(self) -> int: ...

    @property
    def planned(self) -> int | None: ...

    def words(self) -> str:
        """`120 of 264 samples, 3,200 tokens/s, 3 min 20 s left, 2 failed`."""
        ...


class ProgressView(Protocol):
    def update(self, shown: Shown, *, force: bool = False) -> None: ...

    def say(self, text: str) -> None: ...

    def close(self) -> None: ...


class Lines:
    """For logs and pipes."""

    def __init__(self, out: Callable[[str], None] = say) -> None:
        self._out = out
        self._last = time.monotonic()
        self._told = ""

    def update(self, shown: Shown, *, force: bool = False) -> None:
        now = time.monotonic()
        if force or now - self._last >= LINE_SECONDS:
            self._last = now
            if shown.words() != self._told:
                self._told = shown.words()
                self._out(self._told)

    def say(self, text: str) -> None:
        self._out(text)

    def close(self) -> None:
        pass


class Bar:
    """For people."""

    def __init__(self, shown: Shown) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress: Progress = Progress(
            BarColumn(bar_width=None),
            TextColumn("{task.fields[words]}", markup=False),
            console=Console(stderr=True),
            refresh_per_second=4,
            expand=True,
        )
        self._progress.start()
        self._id: TaskID = self._progress.add_task("", total=shown.planned, completed=shown.asked, words="")

    def update(self, shown: Shown, *, force: bool = False) -> None:
        self._progress.update(self._id, total=shown.planned, completed=shown.asked, words=shown.words())

    def say(self, text: str) -> None:
        """Above the bar, which would be drawn over otherwise."""
        self._progress.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self._progress.stop()


# --- A run as it goes, counted from its events and shown by one of the faces.


class Counts:
    """Where the run stands, and how long it may still take.

    With a `rule` that decides how many samples there will be, neither their number nor the time left is known.
    """

    def __init__(self, *, rule: bool = False) -> None:
        self._rule = rule
        self.planned: int | None = None
        self.done = self.failed = 0
        self.tokens_total = 0
        self._pace = Eta()
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
            parts.append(f"{format_duration(left)} left")
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.wait:
            parts.append(self.wait)
        return ", ".join(parts)


class Watcher:
    """The listener of a run. Use it as a context, so that the terminal is left in order."""

    def __init__(self, *, rule: bool = False) -> None:
        self.counts = Counts(rule=rule)
        self._face: ProgressView | None = None
        self._looked = ""

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            self._begin(event)
        elif isinstance(event, Answered):
            self.counts.add(event)
        elif isinstance(event, Waiting):
            whom = "all wait" if event.everyone else "one waits"
            self.counts.wait = f"{whom} {format_duration(event.seconds)}: {sanitise(event.why)}"
        elif isinstance(event, Looked):
            if event.sentence != self._looked:
                self._say(event.sentence)
            self._looked = event.sentence
        elif isinstance(event, Stopping):
            self._say(f"stopping: {sanitise(event.why)}. Finishing what is in flight; Ctrl-C leaves at once.")
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


# --- Runs of many models as they go: one count and one bar for all of them, whatever order they take.


class ManyModelsCounts(Counts):
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


class ManyModelsWatcher(Watcher):
    """The listener of many runs."""

    counts: ManyModelsCounts

    def __init__(self, models: int) -> None:
        super().__init__()
        self.counts = ManyModelsCounts(models)
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
                self._say(f"note:  {sanitise(note)}")

    def _end(self, outcome: ModelRunResult) -> None:
        name = sanitise(outcome.entrant.name)
        if outcome.was_there:
            self._say(f"{name}: measured already")
        elif outcome.error is not None and not isinstance(outcome.error, Interrupted):
            self._say(f"{name}: not measured: {sanitise(outcome.error.what)}")
            if outcome.error.fix:
                self._say(f"       fix: {sanitise(outcome.error.fix)}")
        if not outcome.was_there:
            self.counts.end(asked=str(outcome.entrant.folder) in self._begun)
        if self._face is not None:
            self._face.update(self.counts)
