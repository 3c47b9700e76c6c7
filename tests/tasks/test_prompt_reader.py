"""Every generated task is answered by a reader that sees the prompt's text and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leadline.core.types import Cell, Document
from leadline.text.chat import completion_frame
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import WhitespaceTokenizer
from support.exact_lengths import generated_tasks
from support.prompt_reader import CannotRead, answer_from_text
from support.solve_prompts import VARIANTS, is_solved, solve, task_of

TASKS = generated_tasks()
LENGTH = 1100


def documents_of(name: str, variant: str, samples: int) -> Iterator[Document]:
    """A document for each sample, and where the task can one that all of them share."""
    task = task_of(name, variant)
    if task is None:
        pytest.skip(f"{name} has no variant {variant}")
    fitter = Fitter(WhitespaceTokenizer(), completion_frame())
    cells = [Cell(name, LENGTH, (0.1 + 0.2 * (i % 5)) if task.has_depth else None, i) for i in range(samples)]
    for cell in cells:
        yield task.document([cell], seed=7, fitter=fitter)
    if "shared" in task.readings and variant != "asked first":
        per_document = min(task.samples_per_document, samples) or 1
        yield task.document(
            [Cell(name, 2 * LENGTH, cells[0].depth, i) for i in range(per_document)], seed=8, fitter=fitter
        )


def assert_answered_from_its_text(name: str, variant: str, samples: int) -> None:
    asked = 0
    for document in documents_of(name, variant, samples):
        for probe in document.probes:
            solved, answer = is_solved(document, probe)
            assert solved, (name, probe.cell, probe.question.text, answer[:300], probe.question.targets)
            asked += 1
    assert asked >= samples


@pytest.mark.parametrize("name", TASKS)
def test_what_a_task_calls_right_is_what_its_prompt_says(name: str) -> None:
    assert_answered_from_its_text(name, "plain", samples=3)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", TASKS)
def test_what_a_variant_calls_right_is_what_its_prompt_says(name: str, variant: str) -> None:
    assert_answered_from_its_text(name, variant, samples=14)


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", ["gpt2", "llama2"])
@pytest.mark.parametrize("name", TASKS)
def test_prompts_in_other_tokenizers_say_what_their_task_calls_right(name: str, tokenizer: str) -> None:
    counts = solve(30, seed=3, part=(name, tokenizer))
    assert counts.prompts >= 30
    assert counts.mismatches == []


def test_the_reader_uses_nothing_but_the_prompt() -> None:
    """Another number in the text is another answer, and a question that it does not know is an error."""
    [document] = list(documents_of("passkey", "plain", 1))[:1]
    [probe] = document.probes
    prompt, target = document.prompt_text(probe), probe.question.targets[0]
    assert answer_from_text(prompt) == target
    assert answer_from_text(prompt.replace(target, "123454321")) == "123454321"
    with pytest.raises(CannotRead):
        answer_from_text("What is the meaning of it all?")
