"""Submissions: a file with the scores of many models on the same documents, to correlate with other scores.

A model that could not be measured is in the file with the reason.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from leadline.core.errors import SourceError, UsageError
from leadline.store.files import replace_file
from leadline.store.runs import encode_pretty

VERSION = 1
Better = Literal["higher", "lower"]


class MetricScore(msgspec.Struct, frozen=True):
    """One metric of one model, with its 95 % interval over documents."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int = 0
    documents: int = 0
    better: Better = "higher"


class SubmissionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One model. `score` is the first metric's; None, with the reason in `error`, when there is none."""

    name: str
    model: str
    score: float | None
    scores: dict[str, MetricScore] = {}
    error: str = ""
    failed_samples: int = 0
    prompt_tokens: int = 0
    seconds: float = 0.0
    run: str = ""
    """The folder of its run, beside the submission."""


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    version: int = VERSION
    metric: str
    better: Better
    spec: dict[str, Any]
    """What was asked of every model: tasks, lengths, depths, samples, seed, reading."""
    created: str
    leadline: str
    entries: tuple[SubmissionEntry, ...]


def write_submission(submission: Submission, path: Path) -> None:
    replace_file(path, encode_pretty(submission))


def read_submission(path: Path) -> Submission:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Submission)
    except OSError as error:
        raise SourceError(f"cannot read the submission: {error.strerror}", where=str(path)) from None
    except msgspec.DecodeError as error:
        raise SourceError(
            f"this is not a submission: {error}",
            where=str(path),
            fix="give the file that `leadline run --models FILE --submission FILE` wrote",
        ) from None


def merged(parts: Sequence[Submission]) -> Submission:
    """Shards as one submission, in their order. An entry with a score replaces one without."""
    first = next((part for part in parts if any(e.score is not None for e in part.entries)), parts[0])
    entries: dict[str, SubmissionEntry] = {}
    for part in parts:
        if part.spec != first.spec:
            raise UsageError("these are shards of different submissions", where="merge")
        for entry in part.entries:
            known = entries.get(entry.name)
            if known is None or known.score is None:
                entries[entry.name] = entry
    return msgspec.structs.replace(first, entries=tuple(entries.values()))


def read_targets(path: Path, metric: str = "") -> dict[str, float]:
    """Scores by model: a submission, `{"name": score}`, a list of `{"name", "score"}`, or CSV with these columns."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SourceError(f"cannot read the targets: {error.strerror}", where=str(path)) from None
    if path.suffix == ".csv":
        return dict(_from_csv(text, path))
    try:
        loaded = json.loads(text)
    except ValueError as error:
        raise SourceError(f"not JSON: {error}", where=str(path)) from None
    if isinstance(loaded, dict) and "entries" in loaded:
        return scores_of(read_submission(path), metric)
    if isinstance(loaded, dict):
        loaded = [{"name": name, "score": score} for name, score in loaded.items()]
    found: dict[str, Any] = {str(one.get("name")): one.get("score") for one in loaded if isinstance(one, dict)}
    wrong = [name for name, score in found.items() if isinstance(score, bool) or not isinstance(score, (int, float))]
    if not found or wrong:
        what = f"{wrong[0]!r} has no score" if wrong else "there are no scores in it"
        raise SourceError(what, where=str(path), fix='write {"model": 0.8, ...}')
    return {name: float(score) for name, score in found.items()}


def _from_csv(text: str, path: Path) -> Iterator[tuple[str, float]]:
    rows = csv.DictReader(io.StringIO(text))
    if not {"name", "score"} <= set(rows.fieldnames or ()):
        raise SourceError("the table has no columns name and score", where=str(path))
    for number, row in enumerate(rows, 2):
        try:
            yield row["name"], float(row["score"])
        except (TypeError, ValueError):
            raise SourceError(f"{row['score']!r} is not a number", where=f"{path}:{number}") from None


def scores_of(submission: Submission, metric: str = "") -> dict[str, float]:
    """One metric by model, negated where lower is better; models without it are left out."""
    name = metric or submission.metric
    known = {n for entry in submission.entries for n in entry.scores}
    if known and name not in known:
        raise UsageError(
            f"the submission has no metric {name!r}", where="metric", fix=f"it has {', '.join(sorted(known))}"
        )
    found = {entry.name: entry.scores[name] for entry in submission.entries if name in entry.scores}
    return {model: one.value if one.better == "higher" else -one.value for model, one in found.items()}
