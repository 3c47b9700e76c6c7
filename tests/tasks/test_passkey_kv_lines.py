"""Pass key, key-value pairs and lines: the classics, exact and with one answer."""

from __future__ import annotations

import json
import re

import pytest

from leadline.core.answers import Completion
from leadline.core.contracts import Task
from leadline.core.types import Cell, Document
from leadline.scorers.match import RULER_STRICT
from leadline.tasks.passkey_kv_lines import KeyValue, LineRetrieval, Passkey
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import ByteTokenizer
from support.fitting import fit
from support.toy_tokenizers import toy_tokenizer

TASKS: tuple[Task, ...] = (Passkey(), KeyValue(), LineRetrieval())
TOKENS = toy_tokenizer("gpt2")


def one(task: Task, length: int = 6000, depth: float = 0.5, sample: int = 0) -> Document:
    return fit(task.write([Cell("classic", length, depth, sample)], seed=4), TOKENS, completion_frame())


@pytest.mark.parametrize("task", TASKS, ids=lambda t: type(t).__name__)
@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_the_answer_stands_at_its_depth_and_scores_1(task: Task, depth: float) -> None:
    document = one(task, depth=depth)
    [probe] = document.probes
    [fact] = document.planted(probe)
    assert len(document.prompt_ids(probe)) == 6000 - probe.question.allowance
    guarded = 0.03 if isinstance(task, Passkey) else 0.13  # the toy tokenizer has twice the tokens of a real one
    assert fact.depth == pytest.approx(depth, abs=guarded)
    assert probe.question.targets[0] in fact.text
    assert fact.text in document.text[document.body_start_characters : probe.cut_characters]
    assert RULER_STRICT.score(probe.question, Completion(f" {probe.question.targets[0]}.")).value == 1


def test_a_pass_key_has_its_digits_and_stands_in_one_sentence() -> None:
    for digits in (5, 12):
        document = one(Passkey(digits=digits))
        [probe] = document.probes
        assert re.fullmatch(rf"\d{{{digits}}}", probe.question.targets[0])
        assert document.text.count("The pass key is") == 1


def test_key_value_lines_are_pairs_of_json_with_every_key_once() -> None:
    document = one(KeyValue(), depth=1.0)
    [probe] = document.probes
    lines = document.text[document.body_start_characters : probe.cut_characters].strip().split("\n")
    pairs = json.loads("{" + "\n".join(lines).rstrip(",") + "}", object_pairs_hook=list)
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)) == len(lines) > 20
    asked = re.search(r'key "([^"]+)"', probe.question.text)
    assert asked is not None
    assert dict(pairs)[asked[1]] == probe.question.targets[0]


def test_a_line_is_named_and_has_a_content_of_its_own() -> None:
    document = one(LineRetrieval())
    [probe] = document.probes
    body = document.text[document.body_start_characters : probe.cut_characters].strip()
    found = [re.fullmatch(r"line ([a-z-]+): its content is (\d{7})\.", line) for line in body.split("\n")]
    assert all(found)
    assert len({match[1] for match in found if match}) == len(found)
    assert sum(match[2] == probe.question.targets[0] for match in found if match) == 1


@pytest.mark.parametrize("task", [KeyValue(), LineRetrieval()], ids=lambda t: type(t).__name__)
@pytest.mark.parametrize("lengths", [(6000,), (3000, 6000)])
def test_one_document_answers_for_every_depth(task: Task, lengths: tuple[int, ...]) -> None:
    cells = [Cell("classic", length, depth, 2) for length in lengths for depth in (0.0, 0.5, 1.0)]
    document = fit(task.write(cells, seed=4), TOKENS, completion_frame())
    assert len({probe.question.targets for probe in document.probes}) == len(cells)
    for probe in document.probes:
        assert len(document.prompt_ids(probe)) == probe.cell.length - probe.question.allowance
        assert document.text[: probe.cut_characters].count(probe.question.targets[0]) == 1


@pytest.mark.parametrize("task", TASKS, ids=lambda t: type(t).__name__)
def test_lines_of_one_size_still_make_any_length(task: Task) -> None:
    """In bytes every key-value line has the same size: the last one is cut."""
    for length in (4000, 4001, 4039, 4080):
        draft = task.write([Cell("classic", length, 0.3, 0)], seed=1)
        document = fit(draft, ByteTokenizer(), completion_frame())
        assert len(document.prompt_text(document.probes[0]).encode()) == length - document.probes[0].question.allowance
