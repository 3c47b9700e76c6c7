"""Progress of a run in the terminal: a bar for people, a line now and then for logs and pipes."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress
from rich.segment import Segment
from rich.text import Text

from leadline.console.output import say, warn
from leadline.core.errors import Interrupted
from leadline.core.format import format_count, format_duration, format_length, format_percent, sanitise, sanitise_lines
from leadline.core.records import Record
from leadline.results.breakdowns import NO_CONTEXT
from leadline.results.progress import RunProgress, SampleCounter
from leadline.run.events import (
    Answered,
    Event,
    ManyModelsEvent,
    ModelEnded,
    ModelRunResult,
    ModelStarted,
    Note,
    Pending,
    RuleChecked,
    Started,
    StepProgress,
    Stopping,
    Waiting,
)

LINE_SECONDS = 10.0
"""Between two lines where there is no terminal."""
BAR_SECONDS = 0.1
"""Between two texts of a bar, which is drawn four times a second."""
PIPED_WIDTH = 200
"""Characters of a line where there is no terminal, so that rows of tables are not wrapped."""


class SanitisingConsole(Console):
    """Rich's console for tables and progress bars. Its own control sequences are not text, and pass."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr)
        if not self.file.isatty() and not os.environ.get("COLUMNS", "").isdigit():  # else the width is COLUMNS
            self.width = PIPED_WIDTH

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or (segment.text.isascii() and segment.text.isprintable()):
                yield segment
            else:
                yield Segment(sanitise_lines(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Rich would exit with 1 here; of a closed stdout the command decides, as where lines are echoed."""
        if self.stderr:
            super().on_broken_pipe()
        raise BrokenPipeError


class LengthScores:
    """Mean scores by length of the answers so far: the map of a run while it fills in."""

    def __init__(self) -> None:
        self._sums: dict[int, float] = {}
        self._counts: dict[int, int] = {}

    def add(self, record: Record, replaces: Record | None = None) -> None:
        for counted, sign in ((replaces, -1), (record, 1)):
            if counted is None or counted.wants_logprobs or NO_CONTEXT in counted.question.labels:
                continue
            if (score := counted.score) is not None:
                length = counted.cell.length
                self._sums[length] = self._sums.get(length, 0.0) + sign * score
                self._counts[length] = self._counts.get(length, 0) + sign

    def describe(self) -> str:
        """`so far: 1k 100% of 9, 2k 67% of 9, 4k 33% of 3`; empty before the first answer."""
        parts = [
            f"{format_length(length)} {format_percent(self._sums[length] / count)}% of {count:,}"
            for length, count in sorted(self._counts.items())
            if count
        ]
        return f"so far: {', '.join(parts)}" if parts else ""


class ProgressLines:
    """For logs and pipes."""

    def __init__(self, out: Callable[[str], None] = say) -> None:
        self._out = out
        self._at = time.monotonic()
        self._last = ""

    def is_due(self) -> bool:
        """Whether an update would print: progress need not be described for every answer."""
        return time.monotonic() - self._at >= LINE_SECONDS

    def update(self, progress: RunProgress, scores: str = "", *, force: bool = False) -> None:
        if force or self.is_due():
            self._at = time.monotonic()
            text = f"{progress.describe()}; {scores}" if scores else progress.describe()
            if text != self._last:
                self._last = text
                self._out(text)

    def say(self, text: str) -> None:
        self._out(text)

    def close(self) -> None:
        pass


class _BarAndScores(RichProgress):
    """A progress bar with a line of text below it."""

    scores = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        if self.scores:
            yield Text(self.scores, no_wrap=True, overflow="ellipsis")


class Bar:
    """For people."""

    def __init__(self, *, transient: bool = False) -> None:
        """`transient` removes it at the end."""
        self._bar = _BarAndScores(
            BarColumn(bar_width=None),
            TextColumn("{task.fields[text]}", markup=False),
            console=SanitisingConsole(stderr=True),
            refresh_per_second=4,
            expand=True,
            transient=transient,
        )
        self._bar.start()
        self._id = self._bar.add_task("", total=None, text="")
        self._at = -math.inf

    def is_due(self) -> bool:
        return time.monotonic() - self._at >= BAR_SECONDS

    def show(self, done: int, total: int | None, text: str) -> None:
        self._at = time.monotonic()
        self._bar.update(self._id, total=total, completed=done, text=text)

    def update(self, progress: RunProgress, scores: str = "", *, force: bool = False) -> None:
        self._bar.scores = scores
        self.show(progress.asked, progress.planned, progress.describe())

    def say(self, text: str) -> None:
        """Prints above the bar."""
        self._bar.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self._bar.stop()


class ProgressListener:
    """The listener of a run, used as a context so that the terminal is restored.

    With `rule`, a stopping rule decides the number of samples, so neither that nor the time left is known.
    """

    def __init__(self, *, rule: bool = False) -> None:
        self.counter = SampleCounter()
        self.scores = LengthScores()
        self._rule = rule
        self._view: Bar | ProgressLines | None = None
        self._step_bar: Bar | None = None
        self._waiting = ""
        self._sentence = ""
        self._step_text = ""

    def progress(self) -> RunProgress:
        return replace(self.counter.progress(), waiting=self._waiting)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            self._begin(event)
        elif isinstance(event, StepProgress):
            self._show_step(event)
        elif isinstance(event, Answered):
            self.counter.add(event.record, event.replaces)
            self.scores.add(event.record, event.replaces)
            self._waiting = ""
        elif isinstance(event, Waiting):
            who = "all wait" if event.everyone else "one waits"
            self._waiting = f"{who} {format_duration(event.seconds)}: {sanitise(event.why)}"
        elif isinstance(event, Pending):
            self._say(f"waiting for {sanitise(event.what)}: {format_duration(event.seconds)}")
        elif isinstance(event, Note):
            self._say(f"note:  {sanitise(event.text)}")
        elif isinstance(event, RuleChecked):
            if event.sentence != self._sentence:
                self._say(event.sentence)
            self._sentence = event.sentence
        elif isinstance(event, Stopping):
            answers = format_count(event.in_flight, "answer")
            waits = f" Waiting for {answers} in flight; Ctrl-C again ends it at once." if event.in_flight else ""
            self._say(f"stopping: {sanitise(event.why)}.{waits}")
        if self._view is not None and (not isinstance(event, Answered) or (self._view.is_due() and not event.more)):
            self._view.update(self.progress(), self.describe_scores())

    def describe_scores(self) -> str:
        return self.scores.describe()

    def _begin(self, event: Started) -> None:
        self.counter.planned = None if self._rule else event.planned
        self.counter.tokens = event.tokens_left
        self.counter.resume(event.done)
        say(f"run: {event.folder}")
        for note in event.notes:
            warn(note)
        if event.torn_bytes:
            warn(f"an incomplete last line of {event.torn_bytes:,} bytes was cut off; its sample is asked again")
        if event.done or event.failed_before:
            again = f"; {event.failed_before:,} failed before and will be asked again" if event.failed_before else ""
            say(f"resuming: {event.done:,} of {event.planned:,} samples have an answer{again}")
        if event.done < event.planned:
            self._open_view()

    def _open_view(self) -> None:
        self._close_step_bar()  # of a step that ended early
        self._view = Bar() if sys.stderr.isatty() else ProgressLines()

    def _show_step(self, event: StepProgress) -> None:
        """A bar for people, one line at the end for logs."""
        text, self._step_text = self._step_text, event.text
        if sys.stderr.isatty():
            self._close_view()
            self._step_bar = self._step_bar or Bar(transient=True)
            self._step_bar.show(event.done, event.total, event.text)
            if event.done == event.total:
                self._close_step_bar()
        elif event.done == event.total and text != event.text:
            self._say(event.text)

    def _say(self, text: str) -> None:
        view = self._step_bar or self._view
        if view is None:
            say(text)
        else:
            view.say(text)

    def _close_view(self) -> None:
        if self._view is not None:
            self._view.update(self.progress(), self.describe_scores(), force=True)
            self._view.close()
            self._view = None

    def _close_step_bar(self) -> None:
        if self._step_bar is not None:
            self._step_bar.close()
            self._step_bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_view()
        self._close_step_bar()


class ManyModelsListener(ProgressListener):
    """The listener of the runs of many models: one count and one bar for all of them.

    Every model is asked the same, so those that have not started are counted like those that have.
    """

    def __init__(self, models: int) -> None:
        super().__init__()
        self.models = models
        self._ended = self._lost = 0
        self._planned: list[int] = []
        self._tokens: list[int] = []
        self._started: set[str] = set()
        self._notes: set[str] = set()
        self._stopping = False

    def progress(self) -> RunProgress:
        return replace(super().progress(), models=(self._ended, self.models))

    def describe_scores(self) -> str:
        """Nothing: a mean over several models would describe none of them."""
        return ""

    def hear(self, event: ManyModelsEvent) -> None:
        if isinstance(event, ModelEnded):
            self._end(event.result)
        elif isinstance(event, Stopping):  # every run sends one when all are stopped
            if not self._stopping:
                self(event)
            self._stopping = True
        elif not isinstance(event, ModelStarted):
            self(event)

    def _begin(self, event: Started) -> None:
        self._planned.append(event.planned)
        self._tokens.append(event.tokens_left)
        self.counter.resume(event.done)
        self._update_plan()
        self._started.add(str(event.folder))
        if self._view is None:
            self._open_view()
        done = f" ({event.done:,} of {event.planned:,} samples have an answer)" if event.done else ""
        self._say(f"run: {event.folder}{done}")
        for note in event.notes:
            if note not in self._notes:  # most models have the same notes
                self._notes.add(note)
                self._say(f"note:  {sanitise(note)}")

    def _end(self, result: ModelRunResult) -> None:
        name = sanitise(result.model_run.name)
        if result.was_complete:
            self._say(f"{name}: measured already")
        elif result.error is not None and not isinstance(result.error, Interrupted):
            self._say(f"{name}: not measured: {sanitise(result.error.what)}")
            if result.error.fix:
                self._say(f"       fix: {sanitise(result.error.fix)}")
        if not result.was_complete:
            self._ended += 1
            self._lost += str(result.model_run.folder) not in self._started
            self._update_plan()
        if self._view is not None:
            self._view.update(self.progress())

    def _update_plan(self) -> None:
        if self._planned:
            waiting = self.models - self._lost - len(self._planned)
            self.counter.planned = sum(self._planned) + waiting * self._planned[-1]
            self.counter.tokens = sum(self._tokens) + waiting * max(self._tokens)
