"""Submissions: a file with the scores of many models on the same documents, to correlate with other scores.

A model that could not be measured is in the file with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from leadline.core.errors import SourceError, UsageError
from leadline.core.files import decode_json, decoded, parse_json, read_bytes, table_rows
from leadline.store.files import replace_file
from leadline.store.runs import encode_pretty

VERSION = 1
Better = Literal["higher", "lower"]
PLAIN = "score"
"""The metric of a file of plain scores."""
_FIX = 'give a file of `leadline run --models FILE --submission FILE`, {"model": 0.8, ...}, or CSV with name,score'


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
    """A submission, or plain scores: `{"model": score}`, a list of `{"name", "score"}`, or CSV with these columns."""
    data = read_bytes(path, fix=_FIX)
    if path.suffix == ".csv":
        return _plain_submission(_table_scores(decoded(data, str(path)), str(path)), str(path))
    loaded = parse_json(decoded(data, str(path)), str(path), fix=_FIX)
    if isinstance(loaded, dict) and "entries" in loaded:
        return decode_json(data, Submission, str(path), what="this is not a submission", fix=_FIX)
    if isinstance(loaded, dict):
        loaded = [{"name": name, "score": score} for name, score in loaded.items()]
    items = [item for item in loaded if isinstance(item, dict)] if isinstance(loaded, list) else []
    return _plain_submission({str(item.get("name")): item.get("score") for item in items}, str(path))


def _table_scores(text: str, where: str) -> dict[str, Any]:
    rows = list(table_rows(text, where))
    header = rows[0][1] if rows else []
    if not {"name", "score"} <= set(header):
        raise SourceError("the table has no columns name and score", where=where, fix="begin it with name,score")
    name, score = header.index("name"), header.index("score")
    scores: dict[str, Any] = {}
    for number, row in rows[1:]:
        try:
            scores[row[name]] = float(row[score])
        except (IndexError, ValueError):
            shown = repr(row[score]) if score < len(row) else "an empty cell"
            raise SourceError(f"{shown} is not a number", where=f"{where}:{number}", fix="write a score") from None
    return scores


def _plain_submission(scores: Mapping[str, Any], where: str) -> Submission:
    """Scores of models without anything else known about them; higher is better."""
    for name, score in scores.items():
        if isinstance(score, bool) or not isinstance(score, (int, float)) or not abs(score) < 1e300:
            raise SourceError(f"{name!r} has no score", where=where, fix='write {"model": 0.8, ...}')
    if not scores:
        raise SourceError("there are no scores in it", where=where, fix='write {"model": 0.8, ...}')
    entries = tuple(
        SubmissionEntry(name=name, model=name, score=float(score), scores={PLAIN: MetricScore(float(score))})
        for name, score in scores.items()
    )
    return Submission(metric=PLAIN, better="higher", spec={}, created="", leadline="", entries=entries)


def merged(parts: Sequence[Submission]) -> Submission:
    """Shards as one submission, in their order. An entry with a score replaces one without."""
    first = next((part for part in parts if any(e.score is not None for e in part.entries)), parts[0])
    entries: dict[str, SubmissionEntry] = {}
    for part in parts:
        if part.spec != first.spec:
            fix = "give each its own file"
            raise UsageError("these are shards of different submissions", where="--submission", fix=fix)
        for entry in part.entries:
            known = entries.get(entry.name)
            if known is None or known.score is None:
                entries[entry.name] = entry
    return msgspec.structs.replace(first, entries=tuple(entries.values()))


def scores_of(submission: Submission, metric: str = "") -> dict[str, float]:
    """One metric by model, negated where lower is better; models without it are left out."""
    name = metric or submission.metric
    known = {n for entry in submission.entries for n in entry.scores}
    if known and name not in known:
        raise UsageError(
            f"the submission has no metric {name!r}", where="metric", fix=f"it has {', '.join(sorted(known))}"
        )
    scores = {entry.name: entry.scores[name] for entry in submission.entries if name in entry.scores}
    return {model: score.value if score.better == "higher" else -score.value for model, score in scores.items()}
