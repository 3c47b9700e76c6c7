"""The common content of all exports: the run's model by the names that others use, and a score for each task and
length."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from leadline.core.answers import Completion
from leadline.core.errors import SourceError, UsageError
from leadline.core.files import read_inside
from leadline.core.format import format_length
from leadline.core.records import Record
from leadline.results.run import Run, format_interval_kind
from leadline.results.table import Tally
from leadline.store.runs import PROMPTS, slug

CONFIDENCE = 0.95
UNKNOWN = "unknown"
"""The developer of a model that a run knows by its name alone."""
_MODEL_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class ModelId:
    """`developer/name`, as on the Hugging Face hub. The developer is `unknown` where the run does not name one."""

    developer: str
    name: str

    def __str__(self) -> str:
        return f"{self.developer}/{self.name}"


def model_id(run: Run, named: str | None) -> ModelId:
    """`named` if given, else the run's name for its model."""
    if named is not None and not _MODEL_ID.fullmatch(named):
        raise UsageError(
            f"{named!r} is not the id of a model", where="--model-id", fix="give DEVELOPER/MODEL, as on the hub"
        )
    name = named or str(run.manifest.spec.get("model", "")).partition("?")[0].partition(":")[2] or run.label
    parts = [slug(part) for part in name.strip("/").split("/") if part.strip(".")]
    if named is None and (len(parts) != 2 or name.startswith(("/", ".", "~"))):  # a folder, or a name without an owner
        return ModelId(UNKNOWN, parts[-1] if parts else "model")
    return ModelId(*parts)


@dataclass(frozen=True, slots=True)
class ExportedScore:
    """One task at one length: the headline mean with its interval, of answered samples."""

    task: str
    length: int
    metric: str
    tally: Tally
    mean: float
    low: float
    high: float

    @property
    def name(self) -> str:
        """`niah_4k`: the name of a task of its own, for tools without an axis of length."""
        return f"{slug(self.task)}_{format_length(self.length)}"

    @property
    def standard_error(self) -> float:
        """The standard error that a normal interval of this width has, for tools that take no interval."""
        return (self.high - self.low) / 2 / 1.959964


def exported_scores(run: Run) -> list[ExportedScore]:
    """All scores of a run. Raises where it has none: an empty file would look like a result."""
    scores = [
        ExportedScore(
            task, length, run.metrics.get(task, ""), tally, tally.estimate.mean,
            tally.estimate.interval.low, tally.estimate.interval.high,
        )
        for (task, length), tally in run.table.by_task_and_length.items()
        if tally.estimate is not None
    ]  # fmt: skip
    if not scores:
        raise SourceError(
            "this run has no graded answers to export",
            where=str(run.folder),
            fix="finish it with the same `leadline run`; log-probabilities are written by `leadline report --data`",
        )
    return scores


def uncertainty_method(run: Run) -> str:
    return format_interval_kind(run)


def created(run: Run) -> datetime:
    return datetime.fromisoformat(run.manifest.created)


def answered(run: Run) -> Iterator[tuple[Record, Completion]]:
    """The answered samples that are in the scores, in the order of the records."""
    for record in run.records:
        if isinstance(record.outcome, Completion) and not record.failed and record.cell.task in run.table.by_task:
            yield record, record.outcome


def kept_prompt(run: Run, record: Record) -> str | None:
    """The prompt as it was sent, where the run kept it."""
    try:
        return read_inside(run.folder / PROMPTS / f"{slug(record.cell.key)}.txt").decode("utf-8", "replace")
    except OSError:
        return None
