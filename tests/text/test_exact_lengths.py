"""A quick part of the sweep of tests/support/exact_lengths.py: every family, five tokenizers, templates in turn."""

from __future__ import annotations

import pytest

from leadline.core import registry
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell
from leadline.text.fitting import Fitter
from support.exact_lengths import FAMILIES, TOKENIZERS, frames, is_exact, opened, sweep


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_every_family_has_exactly_the_length_asked_for(tokenizer: str) -> None:
    found = dict(sweep((2048, 3331), (tokenizer,), tuple(FAMILIES)))
    assert len(found) == 2
    for counts in found.values():
        assert not counts.wrong
        assert counts.exact + len(counts.too_short) == len(FAMILIES)
        assert counts.exact >= len(FAMILIES) - 4


def test_tokens_that_hold_the_end_of_a_value_and_the_mark_after_it_are_counted() -> None:
    """The unigram vocabulary has `def"`, which is where a key may end: 15 of 40 such documents had a wrong length."""
    tokenizer = opened("unigram")
    fitter = Fitter(tokenizer, frames()["qwen3"])
    task = registry.task(TaskSpec(name="kv"))
    for length in (2048, 8192, 16384):
        for sample in range(1, 9):
            document = task.document([Cell("kv", length, 0.5, sample)], seed=7, fitter=fitter)
            assert is_exact(document, tokenizer), (length, sample)
