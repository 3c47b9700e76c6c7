"""One model's part of a submission: its run, and the scores that come of its records."""

from __future__ import annotations

import math
from pathlib import Path

from leadline.core.types import Record
from leadline.stats.intervals import Estimate, mean_interval
from leadline.stats.soundings import estimate, metric_of
from leadline.store.runs import read_records
from leadline.store.submissions import Entry, Scored

ACCURACY = "accuracy"


def entry_of(name: str, model: str, folder: Path) -> Entry:
    """What a model's records come to: every metric they have, answers as accuracy."""
    records = list(read_records(folder))
    scores = _scores(records)
    return Entry(
        name=name,
        model=model,
        score=next((one.value for one in scores.values()), None),
        scores=scores,
        error="" if scores else "no sample has a score",
        failed_samples=sum(r.failed for r in records),
        prompt_tokens=sum(r.prompt_tokens for r in records),
        seconds=round(math.fsum(r.seconds for r in records), 3),
        run=folder.name,
    )


def _scores(records: list[Record]) -> dict[str, Scored]:
    names = dict.fromkeys(name for r in records if r.is_measure for name in r.scores)
    found = {name: _scored(estimate((r for r in records if r.is_measure), name), name) for name in names}
    asked = [r for r in records if not r.is_measure and r.score is not None]
    if asked:
        answers = mean_interval([r.score for r in asked if r.score is not None], [r.cluster for r in asked])
        found[ACCURACY] = _scored(answers, ACCURACY)
    return found


def _scored(found: Estimate, name: str) -> Scored:
    low, high = (bound if math.isfinite(bound) else None for bound in (found.interval.low, found.interval.high))
    return Scored(found.mean, low, high, found.n, found.n_clusters, metric_of(name).better)
