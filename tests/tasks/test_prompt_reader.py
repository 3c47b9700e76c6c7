"""Every generated task is answered by a reader that sees the prompt's text and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline.core import registry
from leadline.core.errors import LeadlineError
from leadline.core.records import Completion
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell, Document, Probe
from leadline.scorers.match import abstention
from leadline.text.chat import completion_frame
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import WhitespaceTokenizer
from support.prompt_reader import CannotRead, answer_from_text

FROM_FILES = frozenset(
    "qa_1 qa_2 prompts graphwalks_dataset mrcr_dataset longbench_dataset longbench_pile longbench_v2 "
    "infinitebench_dataset".split()
)
"""Tasks that ask the questions of a file, whose answers are the file's and not ours."""
READ_BY_FEATURE = {
    "embed": "another_solver_gets_the_same_answers_from_the_prompt",
    "tool_calls": "another_solver_makes_the_same_calls_from_the_prompt",
    "compaction": "another_solver_finds_every_fact_in_the_prompt",
}
"""Tasks whose reader is beside their feature's tests, and the test that runs it."""
TASKS = [
    name
    for name in registry.names("tasks")
    if registry.task(TaskSpec(name=name)).request == "answer" and name not in FROM_FILES.union(READ_BY_FEATURE)
]
VARIANTS: dict[str, dict[str, object]] = {
    "plain": {}, "nothing there": {"absent": 1.0}, "asked first": {"question_at": "before"},
    "any place": {"placement": "anywhere"}, "tracing among chains": {"chains": 3, "hops": 2},
    "by association": {"match": "association"}, "in pieces": {"pieces": 2}, "corrected": {"hard": "contradiction"},
    "near misses": {"hard": "near_miss"}, "last failure": {"ask": "last"}, "parents": {"operation": "parents"},
}  # fmt: skip
LENGTH = 1100


def documents_of(name: str, options: dict[str, object], samples: int) -> Iterator[Document]:
    """A document for each sample, and where the task can one that all of them share."""
    plain = registry.task(TaskSpec(name=name))
    if unknown := options.keys() - type(plain).model_fields.keys():
        pytest.skip(f"{name} has no option {', '.join(sorted(unknown))}")
    try:
        task = registry.task(TaskSpec(name=name, options=options))
    except LeadlineError as error:
        pytest.skip(f"{name} does not take {options}: {error.what}")
    fitter = Fitter(WhitespaceTokenizer(), completion_frame())
    cells = [Cell(name, LENGTH, (0.1 + 0.2 * (i % 5)) if task.has_depth else None, i) for i in range(samples)]
    for cell in cells:
        yield task.document([cell], seed=7, fitter=fitter)
    if "shared" in task.readings and "question_at" not in options:
        per_document = min(task.samples_per_document, samples) or 1
        yield task.document(
            [Cell(name, 2 * LENGTH, cells[0].depth, i) for i in range(per_document)], seed=8, fitter=fitter
        )


def score_of_reader(document: Document, probe: Probe) -> tuple[float, str]:
    """What the task's first scorer gives to what was read in the text that a model is sent."""
    question = probe.question
    answer = answer_from_text(document.prompt_text(probe))
    scorer = registry.scorer(question.scorers[0])
    score = abstention(question, Completion(answer)) if question.absent else scorer.score(question, Completion(answer))
    return score.value, answer


def assert_answered_from_its_text(name: str, options: dict[str, object], samples: int) -> None:
    asked = 0
    for document in documents_of(name, options, samples):
        for probe in document.probes:
            value, answer = score_of_reader(document, probe)
            assert value == 1.0, (name, probe.cell, probe.question.text, answer[:300], probe.question.targets)
            asked += 1
    assert asked >= samples


@pytest.mark.parametrize("name", TASKS)
def test_what_a_task_calls_right_is_what_its_prompt_says(name: str) -> None:
    assert_answered_from_its_text(name, {}, samples=3)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", TASKS)
def test_what_a_variant_calls_right_is_what_its_prompt_says(name: str, variant: str) -> None:
    assert_answered_from_its_text(name, VARIANTS[variant], samples=14)


@pytest.mark.parametrize("name", READ_BY_FEATURE)
def test_a_reader_beside_a_feature_is_run_there(name: str) -> None:
    tests = Path(__file__).parents[1] / "features" / name / f"test_{name}.py"
    if not tests.exists() and name not in registry.names("tasks"):
        pytest.skip(f"there is no feature {name}")
    assert f"def test_{READ_BY_FEATURE[name]}" in tests.read_text()


def test_the_reader_uses_nothing_but_the_prompt() -> None:
    """Another number in the text is another answer, and a question that it does not know is an error."""
    [document] = list(documents_of("passkey", {}, 1))[:1]
    [probe] = document.probes
    prompt, target = document.prompt_text(probe), probe.question.targets[0]
    assert answer_from_text(prompt) == target
    assert answer_from_text(prompt.replace(target, "123454321")) == "123454321"
    with pytest.raises(CannotRead):
        answer_from_text("What is the meaning of it all?")
