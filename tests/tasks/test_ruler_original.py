"""The suite `ruler-original`: RULER's structure, from files of the user's own, exact in every tokenizer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from leadline.console.options import RunOptions, spec_of
from leadline.core import registry
from leadline.core.contracts import Tokenizer
from leadline.core.errors import SourceError, UsageError
from leadline.core.spec import TaskSpec, make_spec
from leadline.core.types import Cell, Document
from leadline.run.measure import measure
from leadline.store.ruler_files import NEW_TOKENS, RULER_TASKS, family_of_task
from leadline.store.runs import read_records
from leadline.tasks.ruler import RULER_ORIGINAL
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import ByteTokenizer, WhitespaceTokenizer
from support.fitting import fit
from support.question_data import hotpot, squad
from support.toy_tokenizers import SMALL_PROSE, toy_tokenizer

TOKENIZERS: list[Tokenizer] = [ByteTokenizer(), WhitespaceTokenizer(), toy_tokenizer("gpt2"), toy_tokenizer("llama")]
PROSE = {"niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multivalue", "niah_multiquery"}


def tasks(folder: Path) -> dict[str, TaskSpec]:
    own = {"qa_1": {"data": str(squad(folder / "s.json"))}, "qa_2": {"data": str(hotpot(folder / "h.json"))}}
    own |= {name: {"haystack": SMALL_PROSE} for name in PROSE}
    found = [TaskSpec.model_validate(task) for task in RULER_ORIGINAL.values["tasks"]]
    return {t.name: t.model_copy(update={"options": {**t.options, **own.get(t.name, {})}}) for t in found}


def document(spec: TaskSpec, tokenizer: Tokenizer, length: int, sample: int = 0) -> Document:
    return fit(
        registry.task(spec).write([Cell(spec.name, length, None, sample)], seed=0), tokenizer, completion_frame()
    )


def test_the_suite_has_rulers_thirteen_tasks_anywhere_with_its_allowances(tmp_path: Path) -> None:
    found = tasks(tmp_path)
    assert tuple(found) == RULER_TASKS
    for name, spec in found.items():
        made = document(spec, WhitespaceTokenizer(), 2048 if name.startswith("qa_") else 8192)
        tokens = 50 if name == "fwe" else NEW_TOKENS[family_of_task(name)]
        assert (made.probes[0].question.allowance, made.probes[0].cell.depth) == (tokens, None)


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=lambda t: t.fingerprint[:20])
@pytest.mark.parametrize("name", RULER_TASKS)
def test_every_document_has_its_exact_length(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    short, long = (8192, 16_384) if isinstance(tokenizer, ByteTokenizer) else (2048, 8192)
    length = short if name.startswith("qa_") else long
    made = document(tasks(tmp_path)[name], tokenizer, length)
    [probe] = made.probes
    assert len(tokenizer.encode(made.prompt_text(probe))) == probe.prompt_tokens == length - probe.question.allowance
    assert np.array_equal(tokenizer.encode(made.prompt_text(probe)), made.prompt_ids(probe))


def test_documents_are_numbered_from_one_and_the_answer_is_in_one_of_them(tmp_path: Path) -> None:
    for name in ("qa_1", "qa_2"):
        places = set()
        for sample in range(8):
            made = document(tasks(tmp_path)[name], WhitespaceTokenizer(), 2048, sample)
            [probe] = made.probes
            text = made.prompt_text(probe)
            numbers = [int(n) for n in re.findall(r"^Document (\d+):$", text, re.M)]
            assert numbers == list(range(1, len(numbers) + 1))
            [place] = [
                n for n, d in enumerate(re.split(r"Document \d+:\n", text)[1:]) if probe.question.targets[0] in d
            ][:1]
            places.add(place)
        assert len(places) > 2  # not one slot for all samples


def test_too_few_documents_are_said_and_can_be_repeated(tmp_path: Path) -> None:
    spec = tasks(tmp_path)["qa_1"]
    with pytest.raises(SourceError, match="tokens of documents"):
        document(spec, WhitespaceTokenizer(), 16_384)
    again = spec.model_copy(update={"options": {**spec.options, "repeat": True}})
    assert document(again, WhitespaceTokenizer(), 16_384).probes[0].prompt_tokens == 16_384 - 32


def test_a_depth_puts_the_numbered_document_there(tmp_path: Path) -> None:
    spec = tasks(tmp_path)["qa_1"]
    spec = spec.model_copy(update={"options": {**spec.options, "placement": "depth"}})
    for depth in (0.0, 0.5, 1.0):
        task = registry.task(spec)
        made = fit(task.write([Cell("qa_1", 2048, depth, 0)], seed=0), WhitespaceTokenizer(), completion_frame())
        [probe] = made.probes
        body = made.text[made.body_start_characters : probe.cut_characters]
        assert body.index(probe.question.targets[0]) / len(body) == pytest.approx(depth, abs=0.12)
    with pytest.raises(UsageError, match="one question each"):
        registry.task(spec).write([Cell("qa_1", 4096, 0.0, 0), Cell("qa_1", 4096, 1.0, 0)], seed=0)


def test_one_line_break_parts_the_text_from_its_question(tmp_path: Path) -> None:
    for name, spec in tasks(tmp_path).items():
        if name.startswith("niah"):
            made = document(spec, ByteTokenizer(), 8192)
            [probe] = made.probes
            before, question, _ = made.prompt_text(probe).rpartition("Which ")
            assert question
            assert re.search(r"[^\n]\n$", before), (name, before[-20:])


RULERS = """
["niah_single_1"]
noise = "Green grass. Blue sky."
instruction = "A magic {type}:\\n"
needle = "One of the {types} for {key} is: {value}."
question = "\\nWhat is the {type} for {serial}?"
prefix = " The {type} for {serial} is"

["niah_multiquery"]
question = "\\nWhat are the {types} for {serial}?"

["niah_multikey_3"]
question = "\\nWhat is the {type} for {serial}?"

[vt]
noise = "Green grass. Blue sky."
"""


def test_templates_can_say_what_ruler_says(tmp_path: Path) -> None:
    """Line-based noise of the user's own, ", and" between keys, "uuid", one line break."""
    (tmp_path / "own.toml").write_text(RULERS)
    made = {}
    for name in ("niah_single_1", "niah_multiquery", "niah_multikey_3", "vt"):
        flags = RunOptions(what=name, model="sim:perfect", templates=tmp_path / "own.toml", set_=["placement=anywhere"])
        [spec] = spec_of(flags).tasks
        if name in PROSE:
            spec = spec.model_copy(update={"options": {**spec.options, "haystack": SMALL_PROSE}})
        document_ = document(spec, ByteTokenizer(), 8192)
        made[name] = document_.prompt_text(document_.probes[0])
    assert made["niah_single_1"].startswith("A magic number:\nGreen grass. Blue sky.\n")
    assert re.search(r"^One of the numbers for \S+ is: \d{7}\.$", made["niah_single_1"], re.M)
    assert re.search(r"\nWhat are the numbers for \S+, \S+, \S+, and \S+\?", made["niah_multiquery"])
    assert re.search(r"[^\n]\nWhat is the uuid for \S+\?", made["niah_multikey_3"])
    assert made["vt"].count("Green grass. Blue sky.\n") > 50
    assert "tide" not in made["vt"]


def test_missing_data_names_the_option_of_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADLINE_CACHE", str(tmp_path / "empty"))
    for name, data in (("qa_1", "squad"), ("qa_2", "hotpotqa")):
        spec = {"model": "sim:perfect", "tasks": RULER_ORIGINAL.values["tasks"], "lengths": [2048], "samples": 1}
        spec["tasks"] = [t for t in spec["tasks"] if t["name"] == name]
        with pytest.raises(SourceError, match=f"{data}.*is not on this machine") as refused:
            measure(make_spec(spec), tmp_path / "run")
        assert refused.value.fix.endswith(f"--set {name}.data=FILE")


def test_each_task_of_a_suite_takes_its_own_file(tmp_path: Path) -> None:
    files = [f"qa_1.data={squad(tmp_path / 's.json')}", f"qa_2.data={hotpot(tmp_path / 'h.json')}"]
    spec = spec_of(RunOptions(what="ruler-original", model="sim:perfect", set_=files))
    found = {t.name: t.options.get("data") for t in spec.tasks}
    assert (Path(str(found["qa_1"])).name, Path(str(found["qa_2"])).name, found["vt"]) == ("s.json", "h.json", None)
    asked = {**json.loads(spec.model_dump_json()), "lengths": [2048], "samples": 2}
    asked["tasks"] = [t for t in asked["tasks"] if t["name"].startswith("qa_")]
    measure(make_spec(asked), tmp_path / "run")
    assert {r.score for r in read_records(tmp_path / "run")} == {1.0}
