"""Measures checkpoints as they appear: complete ones only, the newest first when behind. The run folders show what was
measured, so a killed `follow` continues where it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from leadline.core.errors import Interrupted, LeadlineError, MissingExtra, SourceError, UsageError
from leadline.core.format import format_count, format_duration
from leadline.features.follow.checkpoints import CheckpointFolder, checkpoints_in
from leadline.results.run import Run

Measure = Callable[[CheckpointFolder], Run]
Files = tuple[tuple[str, int, int], ...]
STOPPING = (Interrupted, UsageError, MissingExtra)
"""Errors that every checkpoint would have; others belong to the checkpoint."""


@dataclass(frozen=True, slots=True)
class MeasuredCheckpoint:
    """A checkpoint with its run, or with the error that kept it from being measured."""

    checkpoint: CheckpointFolder
    run: Run | None = None
    error: LeadlineError | None = None


@dataclass(frozen=True, slots=True)
class NothingDue:
    """Nothing to measure now, with the reason."""

    why: str


@dataclass(slots=True)
class Follower:
    """The files of a checkpoint must not have changed for `settle` seconds."""

    folder: Path
    measure: Measure
    settle: float = 30.0
    _done: set[CheckpointFolder] = field(default_factory=set)
    _failed: dict[CheckpointFolder, Files] = field(default_factory=dict)
    """The files of each checkpoint that could not be measured. It is tried again when they change."""

    def next(self) -> MeasuredCheckpoint | NothingDue:
        """Measures the checkpoint that is due, or returns the reason to wait. Runs that were stopped raise."""
        pending = [c for c in self._checkpoints() if c not in self._done and self._failed.get(c) != c.files()]
        ready = [c for c in pending if not c.missing() and c.quiet_seconds() >= self.settle]
        if not ready:
            return NothingDue(self._why(pending))
        return self._measured(ready[-1])

    def _measured(self, due: CheckpointFolder) -> MeasuredCheckpoint:
        files = due.files()
        try:
            run = self.measure(due)
        except STOPPING:
            raise
        except LeadlineError as error:
            self._failed[due] = files
            return MeasuredCheckpoint(due, error=error)
        self._done.add(due)
        self._failed.pop(due, None)
        return MeasuredCheckpoint(due, run)

    def _checkpoints(self) -> list[CheckpointFolder]:
        try:
            return checkpoints_in(self.folder)
        except OSError as error:
            raise SourceError(
                f"the folder of checkpoints cannot be read: {error.strerror}",
                where=str(self.folder),
                fix="give the output_dir of the training run",
            ) from None

    def _why(self, pending: list[CheckpointFolder]) -> str:
        half_written = [(c, c.missing()) for c in pending if c.missing()]
        if half_written:
            checkpoint, missing = half_written[-1]
            return f"{checkpoint.name} has no {missing} yet"
        if pending:
            return f"{pending[-1].name} is still being written"
        return f"no new checkpoint; {format_count(len(self._done), 'checkpoint')} measured"

    @property
    def unfinished(self) -> list[CheckpointFolder]:
        """Checkpoints that cannot be measured as they are: half written, or failed."""
        return [c for c in self._checkpoints() if c not in self._done]


def follow_checkpoints(
    follower: Follower,
    *,
    once: bool,
    patience: float,
    poll: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[MeasuredCheckpoint | NothingDue]:
    """Yields events until nothing new has come for `patience` seconds; with `once`, until all checkpoints are
    measured."""
    since = clock()
    while True:
        event = follower.next()
        yield event
        if isinstance(event, MeasuredCheckpoint):
            since = clock()
            continue
        settling = any(not c.missing() and c.quiet_seconds() < follower.settle for c in follower.unfinished)
        if once and not settling:
            return
        if clock() - since >= patience:
            yield NothingDue(f"no new checkpoint for {format_duration(patience)}")
            return
        sleep(min(poll, follower.settle) if settling else poll)
