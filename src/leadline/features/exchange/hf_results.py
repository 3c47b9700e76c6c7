"""Hugging Face's `.eval_results/NAME.yaml` of a model repository (hub-docs, 2026-08): one entry for each score.

The format has no field for an interval, so the notes have it. Strings are written in JSON's quotes, which YAML reads
alike.
"""

from __future__ import annotations

import json
from pathlib import Path

from leadline.core.format import format_percent_range
from leadline.features.exchange.exported import ExportedScore, exported_scores
from leadline.results.run import Run
from leadline.results.verdict import verdict

FOLDER = ".eval_results"


def hf_results(run: Run, dataset: str) -> tuple[Path, str]:
    """Where the file belongs in the model's repository, and its text."""
    head = f"# {verdict(run).headline}\n"
    entries = "".join(_entry(run, score, dataset) for score in exported_scores(run))
    return Path(FOLDER, "leadline.yaml"), head + entries


def _entry(run: Run, score: ExportedScore, dataset: str) -> str:
    interval = score.tally.interval
    notes = (
        f"95% interval {format_percent_range(interval)}, {score.tally.done} of {score.tally.planned} samples answered, "
        f"{score.metric or 'score'}, {run.reading} reading, run {run.manifest.digest}"
    )
    return (
        "- dataset:\n"
        f"    id: {json.dumps(dataset)}\n"
        f"    task_id: {json.dumps(score.name)}\n"
        f"  value: {100 * score.mean:.4g}\n"
        f"  date: {json.dumps(run.date)}\n"
        f"  notes: {json.dumps(notes, ensure_ascii=False)}\n"
    )
