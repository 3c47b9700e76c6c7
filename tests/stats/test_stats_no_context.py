"""Answers from memory are told apart from answers that needed reading."""

from __future__ import annotations

import msgspec

from leadline.core.answers import Completion, Failure
from leadline.core.records import Record, Score
from leadline.core.types import Cell, Question
from leadline.results.breakdowns import FromMemory, from_memory
from support.planted_runs import planted_record


def said(task: str, sample: int, text: str, score: float, *, bare: bool) -> Record:
    record = planted_record(Cell(task, 4096, 0.5, sample), 1.0)
    return msgspec.structs.replace(
        record,
        question=Question(f"question {sample}", targets=("Rome",), labels={"no_context": "true"} if bare else {}),
        outcome=Completion(text),
        scores={"ruler.v1": Score(score)},
    )


def test_each_question_is_held_against_itself_without_its_document() -> None:
    read = [
        said("qa_1", 0, "Rome", 1, bare=False),  # known by heart
        said("qa_1", 1, "Rome", 1, bare=False),  # read
        said("qa_1", 2, "Paris", 0, bare=False),  # not read: the same without the document
        said("qa_1", 3, "Paris", 0, bare=False),  # misread
        said("qa_1", 4, "", 0, bare=False),  # nothing is no memory
        said("qa_1", 5, "Rome", 1, bare=False),  # never asked without
    ]
    bare = [
        said("qa_1[no context]", 0, "Rome.", 1, bare=True),
        said("qa_1[no context]", 1, "Oslo", 0, bare=True),
        said("qa_1[no context]", 2, ' "paris"\nI think.', 0, bare=True),
        said("qa_1[no context]", 3, "Oslo", 0, bare=True),
        said("qa_1[no context]", 4, "", 0, bare=True),
    ]
    expected = [FromMemory("qa_1", 4096, both=5, right_without=1, wrong=3, wrong_from_memory=1)]
    assert from_memory([*read, *bare]) == from_memory([*bare, *read]) == expected


def test_without_such_records_there_is_nothing_to_tell_and_failures_are_no_answers() -> None:
    read = said("qa_1", 0, "Rome", 1, bare=False)
    failed = msgspec.structs.replace(
        said("qa_1[no context]", 0, "", 0, bare=True), outcome=Failure("timeout", "late"), scores={}
    )
    assert from_memory([read]) == from_memory([read, failed]) == []
