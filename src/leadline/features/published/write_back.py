"""Scores of answers in Inspect logs, in files that Inspect's scorer `precomputed_scores` reads.

It finds a score by the id and the epoch of a sample, which logs of one task share, so every log has a file of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from leadline.console.output import say, warn
from leadline.core.errors import LeadlineError, SourceError, UsageError
from leadline.core.format import format_count
from leadline.features.published.grade import headline_score
from leadline.features.published.harness_logs import FoundLogs, LoggedAnswer
from leadline.store.files import replace_file


def write_scores_back(found: FoundLogs, path: Path) -> LeadlineError | None:
    """Writes the scores of every log that can be read, and names each log with its file or with the reason why it has
    none. Returns the error that the command ends with, if a log has none."""
    logs = [log for log in found.logs if log.harness == "inspect"]
    if not logs and not found.unread:
        raise UsageError("scores are written back to Inspect logs only", where="--write-back", fix="name .eval files")
    files = _files_of([log.path for log in logs], path, alone=len(logs) + len(found.unread) == 1)
    unwritten = {file: error.what for file, error in found.unread.items()}
    for log in logs:
        answers = [answer for task in log.tasks for answer in task.answers]
        if not answers:
            unwritten[log.path] = "no sample of it has an answer"
            continue
        try:
            replace_file(files[log.path], b"".join(msgspec.json.encode(_precomputed(a)) + b"\n" for a in answers))
        except LeadlineError as error:
            unwritten[log.path] = error.what
        else:
            say(f"{files[log.path]}: {format_count(len(answers), 'score')} of {log.path}", label="written:")
    for log in found.logs:
        if log not in logs:
            warn(f"{log.path}: not written, since only Inspect logs take scores")
    for file, why in unwritten.items():
        warn(f"{file}: not written: {why}")
    return _error(found, unwritten)


def _error(found: FoundLogs, unwritten: dict[Path, str]) -> LeadlineError | None:
    if not unwritten:
        return None
    if len(unwritten) == 1 and not found.logs:
        return found.unread[next(iter(unwritten))]
    written = sum(log.harness == "inspect" and log.path not in unwritten for log in found.logs)
    others = "; the scores of the others are written" if written else ""
    return SourceError(
        f"{len(unwritten)} of {format_count(len(unwritten) + written, 'Inspect log')} got no scores{others}",
        where=", ".join(map(str, unwritten)),
        fix="each is named above with its reason; give logs of finished evaluations, which `inspect view` opens",
    )


def _files_of(logs: Sequence[Path], path: Path, *, alone: bool) -> dict[Path, Path]:
    """`scores.jsonl` for the only log, `scores-LOG.jsonl` for each of several."""
    if alone:
        return dict.fromkeys(logs, path)
    names: dict[str, Path] = {}
    for log in logs:
        name, number = log.stem, 1
        while name in names:
            number += 1
            name = f"{log.stem}-{number}"
        names[name] = log
    return {log: path.with_name(f"{path.stem}-{name}{path.suffix}") for name, log in names.items()}


def _precomputed(answer: LoggedAnswer) -> dict[str, Any]:
    """A line as `precomputed_scores` reads it."""
    score = headline_score(answer)
    values = {"id": answer.id, "epoch": answer.epoch, "value": score.value, "answer": score.answer or answer.text}
    return values | ({"explanation": score.explanation} if score.explanation else {})
