"""Files that users and other programs write: odd values in them are read or named, never a Python error."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadline.features.judges.verdicts import read_label_rows, write_labels
from leadline.store.ruler_files import decode_sample


@pytest.mark.parametrize("prefix", ["5", '{"a": 1}', "[]", '""', "null"])
def test_a_prefix_that_is_no_text_is_left_out_of_a_prompt_of_ruler(prefix: str) -> None:
    line = f'{{"input": "Which?", "outputs": ["7"], "gen_prefix": {prefix}}}'
    assert decode_sample(line.encode(), "x.jsonl:1").answer_prefix == ""


def test_labels_of_very_long_answers_are_read_back(tmp_path: Path) -> None:
    rows = [{"id": "niah/1024/0.5000/0", "answer": "word, " * 50_000, "label": "yes"}]
    (found,) = read_label_rows(write_labels(tmp_path, rows))
    assert (found["label"], found["answer"]) == ("yes", rows[0]["answer"])
