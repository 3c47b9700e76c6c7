"""SummHay's public evaluation data: labels by people and the verdicts of six judges on every one."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

_PLACES = [folder / "shared" / "data" / "golden" / "judge.tar.xz" for folder in Path(__file__).parents]
ARCHIVE = next((place for place in _PLACES if place.exists()), _PLACES[2])
"""Beside the project; tests skip without it."""
HUMAN = {"fully_covered": 1.0, "partially_covered": 0.5, "not_covered": 0.0}
JUDGE = {"FULL_COVERAGE": 1.0, "PARTIAL_COVERAGE": 0.5, "NO_COVERAGE": 0.0}


@dataclass(frozen=True)
class Summhay:
    human: list[float]
    summaries: list[str]
    """The summary of each label."""
    judges: dict[str, list[float]]


def read_summhay() -> Summhay:
    with tarfile.open(ARCHIVE) as archive:
        file = archive.extractfile("judge/summhay_eval_benchmark_data.json")
        assert file is not None
        rows = json.load(file)
    keys = [key for key in rows[0] if key.startswith("predictions_")]
    found = Summhay([], [], {key.removeprefix("predictions_"): [] for key in keys})
    for number, row in enumerate(rows):
        said = {key: {p["insight_id"]: p["coverage"] for p in row[key]} for key in keys}
        for label in row["annotation"]:
            found.human.append(HUMAN[label["coverage"]])
            found.summaries.append(str(number))
            for key in keys:
                found.judges[key.removeprefix("predictions_")].append(JUDGE[said[key][label["insight_id"]]])
    return found
