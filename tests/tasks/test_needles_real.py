"""Needles of every form, agent sessions, copying and other languages, answered by a real model: SmolLM2 in process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from leadline.core.answers import Completion
from leadline.core.spec import make_spec
from leadline.run.measure import measure
from leadline.store.runs import read_records

pytestmark = pytest.mark.real

ASKED: list[dict[str, Any]] = [
    {"name": "niah_forms", "label": "literal", "match": "literal"},
    {"name": "niah_forms", "label": "paraphrase", "match": "paraphrase"},
    {"name": "niah_forms", "label": "association", "match": "association"},
    {"name": "niah_forms", "label": "pieces", "pieces": 2},
    {"name": "niah_forms", "label": "contradiction", "hard": "contradiction"},
    {"name": "niah", "label": "shuffled", "order": "shuffled"},
    {"name": "niah", "label": "before", "question_at": "both"},
    {"name": "niah", "label": "german", "language": "de"},
    {"name": "niah", "label": "spanish", "language": "es"},
    {"name": "agent_log", "jobs": 1},
    {"name": "copy_words"},
]


def test_a_real_model_answers_some_of_each(tmp_path: Path) -> None:
    spec = make_spec({"model": "hf:smollm2", "tasks": ASKED, "lengths": "600", "depths": "0.5", "samples": 2})
    measure(spec, tmp_path / "run")
    records = list(read_records(tmp_path / "run"))
    assert len(records) == 2 * len(ASKED)
    assert all(isinstance(r.outcome, Completion) and r.outcome.text.strip() for r in records)
    assert all(r.receipt.ok for r in records)
    right = {r.cell.task for r in records if r.score == 1.0}
    assert "literal" in right
