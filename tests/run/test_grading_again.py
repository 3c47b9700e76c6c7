"""Grading a record again is the identity: for every task, option preset and scorer, whatever was answered."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from leadline.cli.main import run_command
from leadline.core import registry
from leadline.core.answers import Answer, Completion, Sent
from leadline.core.errors import SourceError
from leadline.core.records import Record
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell, Document, Probe, Question
from leadline.features.published.benchmark_files import INFINITEBENCH, LONGBENCH
from leadline.run.recording import MAX_EVIDENCE_CHARACTERS, Recorder, evidence_of
from leadline.run.retry import Asked
from leadline.store.runs import decode, encode, read_records
from leadline.text.chat import completion_frame
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import WhitespaceTokenizer
from support.question_data import hotpot, squad
from support.simulated_grid import open_simulated
from support.toy_tokenizers import SMALL_PROSE

LENGTH = 1500
TASKS = [name for name in registry.names("tasks") if registry.task(TaskSpec(name=name)).request == "answer"]
ONE_OF_A_KIND = (
    "niah", "niah_forms", "passkey", "vt", "cwe", "qa_fiction_1", "worlds", "mrcr", "graphwalks", "aggregate", "ladder",
    "tool_calls", "agent_log",
)  # fmt: skip
GENERAL = tuple(
    n for n in registry.names("scorers") if not n.startswith(("longbench", "infinitebench", "copy", "rouge"))
)
"""Scorers that grade a question of any task; those of a data set grade the questions of that data set alone."""
PRESETS: dict[str, dict[str, object]] = {
    "default": {},
    "nothing there": {"absent": 1.0},
    "half there": {"absent": 0.5},
    "asked first": {"question_at": "before"},
    "no document": {"no_context": True},
    "any place": {"placement": "anywhere"},
}


def documents_of(name: str, options: dict[str, object], folder: Path) -> Iterator[Document]:
    """Two samples of the task, or a skip where it has no such option or its data is not here."""
    plain = registry.task(TaskSpec(name=name))
    if "prose" in plain.model_dump(mode="json").values():
        options = {"haystack": SMALL_PROSE, **options}
    if name in ("qa_1", "qa_2"):
        data = (squad if name == "qa_1" else hotpot)(folder / f"{name}.json")
        options = {"data": str(data), "repeat": True, **options}
    if unknown := options.keys() - type(plain).model_fields.keys():
        pytest.skip(f"{name} has no option {', '.join(unknown)}")
    fitter = Fitter(WhitespaceTokenizer(), completion_frame())
    try:
        task = registry.task(TaskSpec(name=name, options=options))
        for sample in range(2):
            cell = Cell(name, LENGTH, 0.4 if task.has_depth else None, sample)
            yield task.document([cell], seed=3, fitter=fitter)
    except SourceError as error:
        pytest.skip(f"{name} needs data: {error.what}")
    except Exception as error:  # an option that this task refuses, with its reason
        if type(error).__name__ not in ("UsageError", "ValidationError", "SpecError"):
            raise
        pytest.skip(f"{name} does not take {options}: {error}")


def answers_to(document: Document, probe: Probe) -> Iterator[Completion]:
    """Right, partly right, wrong in the known ways, denied, refused, cut off, empty, and what simulated models say."""
    question = probe.question
    mistakes = [value for values in question.mistakes.values() for value in values]
    body = document.text[document.body_start_characters : probe.cut_characters].split()
    texts = [
        ", ".join(question.targets), " ".join(question.targets[:1]), f"It is not {' '.join(question.targets[:1])}.",
        ", ".join((*question.targets, *question.distractors[:2])), " ".join(question.distractors[:1]),
        " ".join(mistakes[:1]), ", ".join(mistakes), " ".join(question.demonstration), "not there", "I cannot help.",
        " ".join(body[-40:]), " ".join(word for word in body if any(c.isdigit() for c in word))[:200],
        (question.targets or ("",))[0][:4], "yes no yes no " * 40, "",
    ]  # fmt: skip
    for text in texts:
        yield Completion(text, "stop", prompt_tokens=probe.prompt_tokens)
        yield Completion(text, "length", thinking="Hm.")
    for model in ("perfect", "decay?window=1k", "perfect?noise=1&seed=2"):
        [answer] = open_simulated(f"sim:{model}").answer(document, [probe])
        if isinstance(answer.outcome, Completion):
            yield answer.outcome


def recorded(document: Document, probe: Probe, completion: Completion, scorers: tuple[str, ...]) -> Record:
    """As a run writes it, and as it is read back from its file."""
    question = msgspec.structs.replace(probe.question, scorers=scorers)
    asked = Asked(
        Probe(**{name: getattr(probe, name) for name in probe.__slots__} | {"question": question}),
        Answer(Sent("completion", "none"), completion, 0.1), attempts=1, started=0.0,
    )  # fmt: skip
    return decode(encode(Recorder("sim:hand", "fresh").record(document, asked)))


def scorers_for(question: Question) -> Iterator[tuple[str, ...]]:
    """Its own scorers, and every other that can grade it in the first place, which decides the failure class."""
    yield question.scorers
    if not question.targets and question.family != "walks":
        return
    yield from ((name,) for name in GENERAL)
    if question.dataset in LONGBENCH or not question.dataset:
        yield ("rouge.google", "rouge.google_lsum")
    if question.dataset in LONGBENCH:
        yield ("longbench", "longbench.strict", "longbench.levenshtein")
    if question.dataset in INFINITEBENCH:
        yield ("infinitebench",)


def assert_graded_again_alike(name: str, options: dict[str, object], folder: Path, *, every_scorer: bool) -> None:
    recorder, graded = Recorder("", "fresh"), 0
    for document in documents_of(name, options, folder):
        for probe in document.probes:
            completions = list(answers_to(document, probe))
            for scorers in scorers_for(probe.question) if every_scorer else [probe.question.scorers]:
                first = random.Random(f"{probe.cell.key} {scorers}").randrange(4)
                for completion in completions if scorers == probe.question.scorers else completions[first::4]:
                    record = recorded(document, probe, completion, scorers)
                    assert recorder.regraded(record) == record
                    graded += 1
    assert graded


@pytest.mark.quick_cases(name=ONE_OF_A_KIND)
@pytest.mark.parametrize("name", TASKS)
def test_grading_a_record_again_changes_nothing(name: str, tmp_path: Path) -> None:
    has_absent = "absent" in type(registry.task(TaskSpec(name=name))).model_fields
    assert_graded_again_alike(name, {"absent": 0.5} if has_absent else {}, tmp_path, every_scorer=False)


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", TASKS)
def test_no_option_and_no_scorer_changes_a_record_that_is_graded_again(name: str, preset: str, tmp_path: Path) -> None:
    """Every scorer with and without an answer in the document; the other presets change no more than the prompt. The
    task's own scorers grade every answer, the others a quarter each."""
    every_scorer = preset in ("default", "nothing there")
    assert_graded_again_alike(name, PRESETS[preset], tmp_path, every_scorer=every_scorer)


def test_nothing_changes_when_a_run_of_absent_answers_is_graded_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert run_command(["run", "niah", "--model", "sim:perfect?window=8k", "--lengths", "1k", "--depths", "2",
                        "--samples", "2", "--set", "absent=1", "--no-figure", "--out", str(run)]) == 0  # fmt: skip
    before = list(read_records(run))
    assert {record.score for record in before} == {1.0}
    assert run_command(["rescore", str(run)]) == 0
    assert list(read_records(run)) == before


@pytest.mark.parametrize("name", ["niah", "vt", "worlds", "mrcr"])
def test_a_record_has_its_evidence_with_the_text_around_it_and_no_more(name: str, tmp_path: Path) -> None:
    for document in documents_of(name, {}, tmp_path):
        for probe in document.probes:
            evidence = evidence_of(document, probe)
            assert (
                len(evidence) == len(document.planted(probe)) or sum(map(len, evidence)) > MAX_EVIDENCE_CHARACTERS / 2
            )
            assert sum(map(len, evidence)) <= MAX_EVIDENCE_CHARACTERS
            for text, fact in zip(evidence, document.planted(probe), strict=False):
                assert fact.text.strip() in text
                assert text in document.text
            assert name == "mrcr" or all(
                len(e) > len(f.text) for e, f in zip(evidence, document.planted(probe), strict=True)
            )


def test_a_record_says_in_its_file_only_what_is_not_the_default(tmp_path: Path) -> None:
    document = next(documents_of("niah", {}, tmp_path))
    record = recorded(document, document.probes[0], Completion("4"), ("match.all",))
    question = json.loads(encode(record))["question"]
    assert question.keys() == {"text", "answer_prefix", "targets", "allowance", "scorers", "facts", "distractors",
                               "labels", "family", "value_kind"}  # fmt: skip
