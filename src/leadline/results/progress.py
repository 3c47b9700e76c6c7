"""Progress of a run: how many samples are answered, how fast, and how long the rest will take.

`SampleCounter` is fed with records and is the only place where progress is computed: for a finished folder, for a file
that is still growing, and for the events of a run in this process.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import mul
from pathlib import Path
from typing import Literal

from leadline.core.format import format_count, format_duration
from leadline.core.records import Record, added_up
from leadline.store.lock import is_held, machine_of
from leadline.store.manifest import Manifest
from leadline.store.runs import RECORDS

RunStatus = Literal["running", "finished", "stopped"]
FRESH_SECONDS = 60.0
"""Where the lock cannot be checked (another machine, a system without locks), a file this young is being written."""


def status_of(folder: Path, manifest: Manifest, now: float | None = None) -> RunStatus:
    """Finished if the last session has an end, running if a process holds the lock, else stopped."""
    if manifest.sessions and manifest.sessions[-1].ended:
        return "finished"
    return "running" if is_written(folder, now) else "stopped"


def finished_if_whole(status: RunStatus, manifest: Manifest, answered: int) -> RunStatus:
    """A stopped run that has nothing left to ask counts as finished."""
    whole = not manifest.spec.get("until") and answered >= manifest.planned
    return "finished" if status == "stopped" and whole else status


def is_written(folder: Path, now: float | None = None) -> bool:
    """Whether a process, here or on another machine, is writing the run."""
    held = is_held(folder)
    if held is False and machine_of(folder) not in ("", socket.gethostname()):
        held = None
    if held is not None:
        return held
    try:
        modified = (folder / RECORDS).stat().st_mtime
    except OSError:
        return False
    return (time.time() if now is None else now) - modified < FRESH_SECONDS


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Counts at one moment. `planned` is None where a stopping rule decides how many samples there will be."""

    status: RunStatus
    done: int
    failed: int
    planned: int | None
    tokens_per_second: float | None = None
    seconds_left: float | None = None
    models: tuple[int, int] | None = None
    """Of a run of many models: how many have ended, and how many there are."""
    waiting: str = ""
    """Why requests are held back at the moment."""

    @property
    def asked(self) -> int:
        return self.done + self.failed

    @property
    def share(self) -> float | None:
        return self.asked / self.planned if self.planned else None

    def describe(self) -> str:
        """`120 of 264 samples, 3,200 tokens/s, 3 min 20 s left, 2 failed`."""
        parts = [f"{self.models[0]} of {self.models[1]} models"] if self.models else []
        if self.planned is None:
            parts.append(format_count(self.asked, "sample"))
        else:
            parts.append(f"{self.asked:,} of {self.planned:,} samples")
        return ", ".join([*parts, *self.details()])

    def details(self) -> list[str]:
        parts = []
        if self.tokens_per_second is not None:
            parts.append(f"{self.tokens_per_second:,.0f} tokens/s")
        if self.seconds_left is not None:
            parts.append(f"{format_duration(self.seconds_left)} left")
        if self.failed:
            parts.append(f"{self.failed:,} failed")
        if self.waiting:
            parts.append(self.waiting)
        return parts


class SampleCounter:
    """Counts samples and estimates the time left.

    `planned` samples have `tokens` tokens together (the lengths of their cells), of which those given to `resume` are
    not counted again. The speed is that of records started at `since` or later: those of the present session.
    """

    def __init__(self, planned: int | None = None, tokens: int = 0, *, since: float = 0.0) -> None:
        self.planned = planned
        self.tokens = tokens
        self.done = 0
        self.failed = 0
        self._since = since
        self._first = float("inf")
        self._settled = 0
        """Samples that this session does not have to ask (again), and their tokens."""
        self._settled_tokens = 0
        self._prompt_tokens = 0
        self._eta = Eta()

    @classmethod
    def of(cls, manifest: Manifest) -> SampleCounter:
        """For the records of a run folder. Where a stopping rule is used, the number of samples is not known."""
        spec = manifest.spec
        tokens = sum(
            length * (len(spec["depths"]) if length and task.get("has_depth", True) else 1) * int(spec["samples"])
            for task in manifest.tasks.values()
            for length in spec["lengths"]
        )
        sessions = manifest.sessions
        since = datetime.fromisoformat(sessions[-1].started).timestamp() if sessions else 0.0
        return cls(None if spec.get("until") else manifest.planned, tokens, since=since)

    def resume(self, done: int) -> None:
        """Adds samples that were answered earlier and whose records are not fed in; `tokens` is without them."""
        self.done += done
        self._settled += done

    def add(self, record: Record, replaces: Record | None = None) -> None:
        """Counts a record. `replaces` is the earlier record of the same cell, if it was counted before."""
        self.add_all((record,))
        if replaces is not None:
            self._count((replaces,), -1)

    def add_all(self, records: Sequence[Record]) -> None:
        """Counts records of different cells."""
        self._count(records, 1)
        if present := [record for record in records if record.started >= self._since]:
            self._eta.add([record.cell.length for record in present], [record.seconds for record in present])
            self._prompt_tokens += sum([record.prompt_tokens for record in present])
            self._first = min(self._first, min([record.started for record in present]))

    def _count(self, records: Sequence[Record], sign: int) -> None:
        failed = sum([record.failed for record in records])
        self.failed += sign * failed
        self.done += sign * (len(records) - failed)
        settled = [record for record in records if not record.failed or record.started >= self._since]
        self._settled += sign * len(settled)
        self._settled_tokens += sign * sum([record.cell.length for record in settled])

    def progress(self, status: RunStatus = "running", now: float | None = None) -> RunProgress:
        elapsed = (time.time() if now is None else now) - self._first
        rate = left = None
        if status == "running" and elapsed > 0:
            rate = self._prompt_tokens / elapsed
            if self.planned is not None and self._settled < self.planned:
                tokens = max(0, self.tokens - self._settled_tokens)
                left = self._eta.seconds_left(self.planned - self._settled, tokens, elapsed)
        return RunProgress(status, self.done, self.failed, self.planned, rate, left)


class Eta:
    """Least-squares fit of the seconds of an answer: a fixed part plus a part for every token.

    The longest prompts come first, so neither part alone is enough: by tokens alone, a run whose answers all take the
    same time would seem nearly over at half time; by samples alone, a run that reads for minutes would seem to have
    days left. The sum of answer times over the elapsed time is how many were in flight together.
    """

    def __init__(self) -> None:
        self._count = 0
        self._tokens = 0
        self._seconds = 0.0
        self._squares = 0.0
        self._products = 0.0

    def add(self, tokens: Sequence[int], seconds: Sequence[float]) -> None:
        self._count += len(tokens)
        self._tokens += sum(tokens)
        self._seconds = added_up(self._seconds, seconds)
        self._squares = added_up(self._squares, [float(count) ** 2 for count in tokens])
        self._products = added_up(self._products, map(mul, tokens, seconds))

    def seconds_left(self, samples: int, tokens: int, elapsed: float) -> float | None:
        """For this many samples with this many tokens together; None before the first answer."""
        if not self._count or elapsed <= 0:
            return None
        if self._seconds <= 0:  # answers that take no measurable time: use the clock alone
            return tokens * elapsed / self._tokens if self._tokens else samples * elapsed / self._count
        fixed, per_token = self._fit()
        return (fixed * samples + per_token * tokens) * elapsed / self._seconds

    def _fit(self) -> tuple[float, float]:
        """Seconds per answer and seconds per token, neither negative."""
        spread = self._count * self._squares - self._tokens**2
        by_tokens = self._seconds / self._tokens if self._tokens else 0.0
        if spread <= 1e-9 * self._count * self._squares:  # only one length so far
            return 0.0, by_tokens
        per_token = (self._count * self._products - self._tokens * self._seconds) / spread
        fixed = (self._seconds - per_token * self._tokens) / self._count
        if per_token < 0:
            return self._seconds / self._count, 0.0
        return (fixed, per_token) if fixed >= 0 else (0.0, by_tokens)
