"""A quick part of the sweep of tests/support/exact_lengths.py: every family, five tokenizers, templates in turn."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leadline.core import registry
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import open_tokenizer
from support.exact_lengths import FAMILIES, TOKENIZERS, frames, is_exact, opened, sweep


@pytest.mark.quick_cases(tokenizer=("gpt2",))
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_every_family_has_exactly_the_length_asked_for(tokenizer: str) -> None:
    found = dict(sweep((2048, 3331), (tokenizer,), FAMILIES))
    assert len(found) == 2
    for counts in found.values():
        assert not counts.wrong
        assert counts.exact + len(counts.too_short) == len(FAMILIES)
        assert counts.exact >= len(FAMILIES) - 4


@pytest.mark.parametrize("rank", ["largest", "third largest"])
@pytest.mark.parametrize("length", [1024, 1536, 4093])
def test_a_list_whose_entries_all_have_one_size_still_fills_every_length(length: int, rank: str) -> None:
    """Every number has six tokens, and a space before the question is one with its line break."""
    tokenizer = opened("digits_and_breaks")
    assert len(tokenizer.encode(" \n\nQ")) == len(tokenizer.encode("\n\nQ"))
    fitter = Fitter(tokenizer, frames()["completion"])
    task = registry.task(TaskSpec(name="math_find", options={"rank": rank}))
    for sample, depth in enumerate((0.0, 0.5, 1.0)):
        document = task.document([Cell("math_find", length, depth, sample)], seed=7, fitter=fitter)
        assert is_exact(document, tokenizer)
        [probe] = document.probes
        numbers = re.findall(r"\d+", document.text[document.body_start_characters : probe.cut_characters])
        assert sorted(map(int, numbers))[-1 if rank == "largest" else -3] == int(probe.question.targets[0])


@pytest.mark.parametrize("name", ["across-words", "byte-level"])
def test_small_tokenizers_fit_lists_with_hardly_any_room(name: str) -> None:
    tokenizer = open_tokenizer(str(Path(__file__).parents[1] / "golden" / "tokenizers" / f"{name}.json"))
    fitter = Fitter(tokenizer, frames()["completion"])
    for family in ("graphwalks", "aggregate", "agent_log"):
        task = registry.task(TaskSpec(name=family))
        for sample in range(3):
            depth = 0.5 if task.has_depth else None
            document = task.document([Cell(family, 1280, depth, sample)], seed=sample, fitter=fitter)
            assert is_exact(document, tokenizer), (family, sample)


def test_one_document_for_all_lengths_fits_where_questions_end_it_at_several_places() -> None:
    tokenizer = open_tokenizer(str(Path(__file__).parents[1] / "golden" / "tokenizers" / "across-words.json"))
    fitter = Fitter(tokenizer, frames()["completion"])
    task = registry.task(TaskSpec(name="agent_log"))
    for sample in range(3):
        cells = [Cell("agent_log", length, depth, sample) for length in (5120, 6144) for depth in (0.0, 0.5, 1.0)]
        assert is_exact(task.document(cells, seed=sample, fitter=fitter), tokenizer), sample


def test_tokens_that_hold_the_end_of_a_value_and_the_mark_after_it_are_counted() -> None:
    """The unigram vocabulary has `def"`, which is where a key may end: 15 of 40 such documents had a wrong length."""
    tokenizer = opened("unigram")
    fitter = Fitter(tokenizer, frames()["qwen3"])
    task = registry.task(TaskSpec(name="kv"))
    for length in (2048, 8192, 16384):
        for sample in range(1, 9):
            document = task.document([Cell("kv", length, 0.5, sample)], seed=7, fitter=fitter)
            assert is_exact(document, tokenizer), (length, sample)
