"""Prompts as files: they appear whole, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from leadline.cli.main import run_command
from leadline.core.errors import StoreError
from leadline.core.spec import make_spec
from leadline.run.export_prompts import JSONL, write_prompts
from leadline.run.plan import open_model
from leadline.text.fitting import Fitter


def with_start_token(folder: Path) -> Path:
    """A tokenizer that begins every text with a token of its own, as Llama's do."""
    data = json.loads((Path(__file__).parents[1] / "golden" / "tokenizers" / "byte-level.json").read_text())
    rust = Tokenizer.from_str(json.dumps(data))
    rust.add_special_tokens(["<s>"])
    rust.post_processor = TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", rust.token_to_id("<s>"))]
    )
    path = folder / "tokenizer.json"
    rust.save(str(path))
    return path


def test_a_built_prompt_has_its_length_as_the_tokenizer_itself_counts_it(tmp_path: Path) -> None:
    path = with_start_token(tmp_path)
    rust = Tokenizer.from_file(str(path))
    for task in ("lines", "vt", "mrcr"):
        out = tmp_path / f"{task}.jsonl"
        grid = ["--lengths", "4k", "--depths", "2", "--samples", "1"]
        assert run_command(["build", task, "--tokenizer", str(path), "-o", str(out), *grid]) == 0
        for row in map(json.loads, out.read_text().splitlines()):
            ids = rust.encode(row["prompt"] + row["answer_prefix"]).ids
            assert len(ids) == row["prompt_tokens"], task
            assert len(ids) + row["answer_tokens"] == row["length"], task


def test_prompts_that_cannot_be_put_in_their_place_are_an_error_and_leave_nothing(tmp_path: Path) -> None:
    spec = make_spec({"model": "sim:perfect?tokenizer=bytes", "tasks": ["niah"], "lengths": [2000], "samples": 1})
    model = open_model(spec)
    output = tmp_path / "prompts.jsonl"
    output.mkdir()
    with pytest.raises(StoreError, match="cannot write the prompts: Is a directory"):
        write_prompts(spec, Fitter(model.tokenizer, model.frame), output, JSONL)
    assert list(tmp_path.rglob("*")) == [output]
