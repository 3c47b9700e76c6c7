"""The families that are not solved yet, answered by a real model: SmolLM2 in process and through llama.cpp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("xllamacpp")

from leadline.core.answers import Completion
from leadline.core.records import Record
from leadline.core.spec import make_spec
from leadline.run.measure import measure
from leadline.store.runs import read_records
from support.llama_server import MODEL, LlamaServer, half_weights

pytestmark = pytest.mark.real

FAMILIES: list[dict[str, Any]] = [
    {"name": "mrcr", "lines": 3, "placement": "anywhere"},
    {"name": "graphwalks", "operations": ["parents"], "hops": [1], "placement": "anywhere"},
    {"name": "aggregate", "operations": ["most", "compare"]},
    {"name": "worlds", "ask": ["person", "yes_no"], "placement": "anywhere"},
    {"name": "ladder", "steps": ["retrieve", "solve"], "placement": "anywhere"},
]
LENGTH, SAMPLES = 1000, 2


def answered(model: str, folder: Path) -> list[Record]:
    measure(make_spec({"model": model, "tasks": FAMILIES, "lengths": str(LENGTH), "samples": SAMPLES}), folder)
    records = list(read_records(folder))
    assert len(records) == SAMPLES * len(FAMILIES)
    assert all(isinstance(r.outcome, Completion) and r.outcome.text.strip() for r in records)
    assert all(r.receipt.ok for r in records)
    assert all(r.scores for r in records)
    return records


def test_a_model_in_process_answers_some_of_each(tmp_path: Path) -> None:
    records = answered("hf:smollm2", tmp_path / "run")
    assert {r.cell.task for r in records} == {family["name"] for family in FAMILIES}
    assert any(r.score for r in records)


def test_a_model_behind_a_server_answers_some_of_each(tmp_path: Path) -> None:
    with LlamaServer(half_weights(), window=LENGTH + 200) as server:
        records = answered(f"openai:{MODEL}?base_url={server.base_url}", tmp_path / "run")
    assert {r.cell.task for r in records} == {family["name"] for family in FAMILIES}
    assert any(r.score for r in records)
