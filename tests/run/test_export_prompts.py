"""Prompts as files: they appear whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadline.core.errors import StoreError
from leadline.core.spec import make_spec
from leadline.run.export_prompts import write_prompts
from leadline.run.plan import open_model
from leadline.text.fitting import Fitter


def test_prompts_that_cannot_be_put_in_their_place_are_an_error_and_leave_nothing(tmp_path: Path) -> None:
    spec = make_spec({"model": "sim:perfect?tokenizer=bytes", "tasks": ["niah"], "lengths": [2000], "samples": 1})
    model = open_model(spec)
    output = tmp_path / "prompts.jsonl"
    output.mkdir()
    with pytest.raises(StoreError, match="cannot write the prompts: Is a directory"):
        write_prompts(spec, Fitter(model.tokenizer, model.frame), output, "jsonl")
    assert list(tmp_path.rglob("*")) == [output]
