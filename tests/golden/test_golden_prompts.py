"""The documents and questions of every registered task, in three tokenizers, at two lengths and in every reading mode,
are those that were frozen: texts, token ids, targets, and where every fact stands."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from golden.doors import (
    Cell,
    Document,
    Fitter,
    Frame,
    TaskSpec,
    Turns,
    make_spec,
    open_tokenizer,
    planned_documents,
    registry,
)
from golden.tools import TOKENIZERS, check, check_names, digest, frozen_labels, write_haystack
from support.published_data import (
    graphwalks_row,
    infinitebench_row,
    longbench_row,
    longbench_v2_row,
    mrcr_row,
    pile_row,
    write_rows,
)
from support.question_data import hotpot, squad


def turns_of(before: str, after: str, answer: str, ask: str) -> Turns:
    return Turns(before, after, (("user", "assistant", answer), ("assistant", "user", ask)))


FRAMES = {
    "completion": Frame("", "", "completion", True, "completion"),
    "chat": Frame("<|user|>\n", "<|end|>\n<|assistant|>\n", "chat", True, "chat", turns=turns_of(
        "<|user|>\n", "<|end|>\n<|assistant|>\n", "<|end|>\n<|assistant|>\n", "<|end|>\n<|user|>\n")),
    "appended": Frame("[INST] ", " [/INST]", "chat", False, "appended", turns=turns_of(
        "[INST] ", " [/INST]", " [/INST] ", " [INST] ")),
}  # fmt: skip


class Counting(NamedTuple):
    """A tokenizer, how a turn is wrapped, and how many of its tokens stand for one word of the other tokenizers."""

    tokenizer: str
    frame: str
    scale: int


COUNTINGS = {
    "words": Counting("whitespace", "completion", 1),
    "byte-level": Counting(str(TOKENIZERS / "byte-level.json"), "chat", 3),
    "across-words": Counting(str(TOKENIZERS / "across-words.json"), "appended", 3),
}
LENGTHS = (1100, 1711)
SEED = 5
LISTS = ("cwe", "fwe")
"""They need longer prompts, and one list has its frequent words around one depth only."""
LABELS = {"prompts": "niah_single_1"}
"""Prompts made elsewhere go by the name of the RULER task they are of."""


PLAIN = Frame("", "", "completion", True, "plain")
opened = cache(open_tokenizer)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data files that some tasks need."""
    place = tmp_path_factory.mktemp("golden")
    write_haystack(place / "golden-haystack.txt")
    text = (place / "golden-haystack.txt").read_text(encoding="utf-8").upper()
    (place / "golden-other.txt").write_text(text, encoding="utf-8")
    squad(place / "qa_1.json")
    hotpot(place / "qa_2.json")
    write_rows(place / "multifieldqa_en.jsonl", [longbench_row(n, 500 * n) for n in range(5)])
    write_rows(place / "passage_retrieval_en.jsonl", [pile_row("passage_retrieval_en", n) for n in range(40)])
    write_rows(place / "graphwalks.jsonl", [graphwalks_row(n) for n in range(5)])
    write_rows(place / "mrcr.jsonl", [mrcr_row(n) for n in range(5)])
    write_rows(place / "longbook_qa_eng.jsonl", [infinitebench_row(n, 500 * n) for n in range(5)])
    (place / "data.json").write_text(json.dumps([longbench_v2_row(n, 500 * n) for n in range(5)]))
    for scale in {c.scale for c in COUNTINGS.values()}:
        for length in LENGTHS:
            lines = [
                {"index": n, "input": f"Some text number {n}, {length}.\nWhat is the number?",
                 "outputs": [str(700 + n)], "length": length, "answer_prefix": " The number is"}
                for n in range(3)
            ]  # fmt: skip
            file = place / str(scale * length) / "niah_single_1" / "validation.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return place


@pytest.mark.parametrize(
    "countings", [("words", "byte-level"), pytest.param(("across-words",), marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", registry.names("tasks"))
def test_the_documents_of_a_task_are_those_that_were_frozen(
    name: str, countings: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEADLINE_CACHE", str(folder / "cache"))
    found = {
        f"{reading} {counting}": documents_of(name, reading, COUNTINGS[counting], folder)
        for reading in registry.task(TaskSpec(name=name)).readings
        for counting in countings
    }
    check("prompts", name, found, ending=tuple(f" {counting}" for counting in countings))


def test_the_tasks_are_those_that_were_frozen() -> None:
    check_names("prompts", registry.names("tasks"))


TEXT = "golden-haystack.txt"
OTHER_OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("niah", {"placement": "anywhere", "keys": 3}),
    ("niah", {"queries": 2, "values": 2, "value_kind": "uuids"}),
    ("niah", {"split": "train"}),
    ("niah", {"no_context": True}),
    ("niah", {"haystack": "needles", "key_kind": "uuids"}),
    ("niah", {"unit": "paragraph"}),
    ("niah", {"haystack": f"{TEXT}:0.7,golden-other.txt:0.3"}),
    ("vt", {"haystack": TEXT}),
    ("vt", {"placement": "anywhere", "chains": 2, "split": "train"}),
    ("passkey", {"haystack": TEXT}),
    ("cwe", {"split": "train"}),
    ("fwe", {"split": "train"}),
    ("qa_fiction_2", {"placement": "anywhere", "split": "train"}),
    ("retrieval_gain", {"separator": " | ", "query": 12, "answer": 8}),
    ("needle_gain", {"placement": "anywhere"}),
]


@pytest.mark.parametrize(("name", "options"), OTHER_OPTIONS)
def test_the_documents_of_a_task_with_other_options_are_those_that_were_frozen(
    name: str, options: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEADLINE_CACHE", str(folder / "cache"))
    monkeypatch.chdir(folder)
    key = " ".join((name, *(f"{k}={v}" for k, v in options.items())))
    check("options", key, documents_of(name, "fresh", COUNTINGS["words"], folder, **options))


GENERATED: list[tuple[str, dict[str, Any]]] = [
    ("niah", {"haystack": "prose"}),
    ("niah", {"haystack": "code"}),
    ("niah", {"haystack": "legal", "unit": "paragraph"}),
]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("name", "options"), GENERATED)
def test_the_documents_over_generated_text_are_those_that_were_frozen(
    name: str, options: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one token a byte, where most attempts at a cut fail, and in the other tokenizers, in every reading mode."""
    monkeypatch.setenv("LEADLINE_CACHE", str(folder / "cache"))
    found = {
        f"{reading} {counting}": documents_of(name, reading, how, folder, **options)
        for reading in registry.task(TaskSpec(name=name)).readings
        for counting, how in {**COUNTINGS, "bytes": Counting("bytes", "completion", 5)}.items()
    }
    check("generated", " ".join(map(str, options.values())), found)


@cache
def fitter_of(counting: Counting) -> Fitter:
    """One for all tasks, so that a text is tokenized once: what was fitted before changes no document."""
    return Fitter(opened(counting.tokenizer), FRAMES[counting.frame], PLAIN)


def documents_of(name: str, reading: str, counting: Counting, folder: Path, **options: Any) -> dict[str, str]:
    """A digest of each side of all the documents, so that a difference says what it is about."""
    lengths = tuple(counting.scale * n * (2 if name in LISTS else 1) for n in LENGTHS)
    data = _data(name, reading, lengths, folder)
    spec = make_spec(
        {
            "model": "sim:perfect",
            "tasks": [{"name": name, "label": LABELS.get(name, ""), "options": {**data, **options}}],
            "lengths": lengths,
            "depths": (0.2, 0.7),
            "samples": 1,
            "reading": reading,
        }
    )
    tasks = {t.title: registry.task(t) for t in spec.tasks}
    fitter = fitter_of(counting)
    made = [one.task.document(one.cells, seed=SEED, fitter=fitter) for one in planned_documents(spec, tasks)]
    sides: dict[str, list[Any]] = {}
    for document in sorted(made, key=lambda d: (d.id, d.cluster)):
        for side, value in _sides(document).items():
            sides.setdefault(side, []).append(value)
    return {side: digest(values) for side, values in sides.items()}


def _data(name: str, reading: str, lengths: tuple[int, ...], folder: Path) -> dict[str, Any]:
    """Options in place of data that is not here, or that comes with Python and changes with its version."""
    task = registry.task(TaskSpec(name=name))
    if name == "prompts":
        return {"files": {n: str(folder / str(n) / "niah_single_1" / "validation.jsonl") for n in lengths},
                "answer_tokens": 16}  # fmt: skip
    if name == "tool_calls":  # the frames of these tests have no template that declares tools
        return {"declare": "text", "tools": 2, "haystack": str(folder / TEXT)}
    if name in ("qa_1", "qa_2"):
        return {"data": str(folder / f"{name}.json"), "repeat": True}
    if name in ("longbench_dataset", "longbench_pile", "longbench_v2", "infinitebench_dataset"):
        return {"data": str(folder)}
    if name == "graphwalks_dataset":
        return {"data": str(folder / "graphwalks.jsonl")}
    if name == "mrcr_dataset":
        return {"data": str(folder / "mrcr.jsonl")}
    if name in LISTS:
        return {} if reading == "fresh" else {"placement": "anywhere"}
    options = {"haystack": str(folder / "golden-haystack.txt")} if getattr(task, "haystack", "") == "prose" else {}
    fields = type(task).model_fields
    return options | ({"repeat": True} if "repeat" in fields else {}) | ({"short": 300} if "short" in fields else {})


def _sides(document: Document) -> dict[str, Any]:
    probes = document.probes
    found = {
        "names": [document.id, document.cluster, [_cell(p.cell) for p in probes]],
        "texts": [document.prompt_text(p) for p in probes],
        "ids": [document.prompt_ids(p).tolist() for p in probes],
        "questions": [[p.question.text, p.user_suffix, p.question.answer_prefix, p.question.allowance, p.prompt_tokens,
                       p.body_tokens] for p in probes],
        "targets": [[p.question.targets, p.question.distractors] for p in probes],
        "facts": [[[f.id, f.text, f.start, f.end, f.depth_asked, f.depth] for f in document.facts],
                  [p.question.facts for p in probes]],
        "scoring": [[p.question.scorers, frozen_labels(p.question)] for p in probes],
    }  # fmt: skip
    if document.passages:
        found["passages"] = [
            [p.ids.tolist(), [[c.cut, c.ids.tolist(), c.start] for c in p.continuations], p.spans]
            for p in document.passages
        ]
        found["reckonings"] = {p.cell.key: p.logprobs.passages for p in probes if p.logprobs is not None}
    return found


def _cell(cell: Cell) -> list[Any]:
    return [cell.task, cell.length, cell.depth, cell.sample]
