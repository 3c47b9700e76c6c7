"""RULER (arXiv 2404.06654): its configurations as presets, and its protocol as suites.

A preset sets the options that the paper gives a task. A suite sets where the evidence is placed, the lengths and the
number of documents. docs/ruler.md lists what is the same as in the paper and what is not.
"""

from __future__ import annotations

from typing import Any

from leadline.core.spec import Suite, SuiteSetting
from leadline.store.ruler_files import RULER_TASKS
from leadline.tasks.counting import CommonWords, FrequentWords
from leadline.tasks.niah import Needle
from leadline.tasks.tracing import Tracing

NIAH_SINGLE = Needle(keys=1)
NIAH_SINGLE_1 = Needle(haystack="noise", keys=1, answer_tokens=128)
NIAH_SINGLE_2 = Needle(haystack="prose", keys=1, answer_tokens=128)
NIAH_SINGLE_3 = Needle(haystack="prose", keys=1, value_kind="uuids", answer_tokens=128)
NIAH_MULTIKEY_1 = Needle(haystack="prose", keys=4, answer_tokens=128)
NIAH_MULTIKEY_2 = Needle(haystack="needles", keys=1, answer_tokens=128)
NIAH_MULTIKEY_3 = Needle(haystack="needles", keys=1, key_kind="uuids", value_kind="uuids", answer_tokens=128)
NIAH_MULTIVALUE = Needle(haystack="prose", keys=1, values=4, answer_tokens=128)
NIAH_MULTIQUERY = Needle(haystack="prose", keys=4, queries=4, answer_tokens=128)
VT = Tracing()
CWE = CommonWords()
FWE = FrequentWords()

PROSE_TASKS = ("niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multivalue", "niah_multiquery")
TASKS = (
    "niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2", "niah_multikey_3",
    "niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe", "qa_fiction_1", "qa_fiction_2",
)  # fmt: skip
LISTS = ("cwe", "fwe")
LENGTHS = "4k,8k,16k,32k,64k,128k"
SETTINGS = {"essays": SuiteSetting(option="haystack", tasks=PROSE_TASKS)}
"""RULER's essays are the haystack of five tasks. Those of the others define them: one line of noise, needles."""


def _tasks(anywhere: tuple[str, ...], *, fixed: bool = False, **prose: Any) -> list[dict[str, Any]]:
    """All thirteen: `anywhere` have placement=anywhere, `prose` are options for tasks with a haystack of prose.
    `fixed` keeps the paper's answer allowances in every tokenizer."""
    every: dict[str, Any] = {"fixed_allowance": True} if fixed else {}
    placed: dict[str, Any] = {"placement": "anywhere"}
    return [
        {"name": name, **every, **(placed if name in anywhere else {}), **(prose if name in PROSE_TASKS else {})}
        for name in TASKS
    ]


RULER = Suite(
    name="ruler",
    summary="the paper's protocol: 13 tasks, 4k to 128k, 500 documents each, evidence anywhere",
    values={"tasks": _tasks(TASKS, fixed=True), "lengths": LENGTHS, "samples": 500, "reading": "fresh"},
    settings=SETTINGS,
)
_SEVERAL = {
    "instruction": "Some {types} that belong to names are hidden in the text. Remember them; a question follows.\n",
    "question": "\nWhich {types} belong to {serial}, according to the text?",
    "prefix": " According to the text, the {types} for {serial} are",
}
_SINGLE = {
    "instruction": "A {type} that belongs to a name is hidden in the text. Remember it; a question follows.\n",
    "question": "\nWhich {type} belongs to {serial}, according to the text?",
    "prefix": " According to the text, the {type} for {serial} is",
}
_TRACED = {
    "question": "\nQuestion: Which variables hold the value {value}?",
    "prefix": " Answer: the {count} variables that hold {value} are",
    "demonstration": "{instruction}{document}{question}{prefix} {spaced}\n\n",
}
_COMMON = {
    "question": "\nQuestion: Which {count} words are the most common in the list?",
    "prefix": " Answer: the {count} most common words are:",
    "demonstration": "{instruction}{document}{question}{prefix} {numbered}\n",
}
_FREQUENT = {
    "question": "\nQuestion: Which {count} coded words are the most frequent? Leave out {noise}, and do not explain.",
    "prefix": " Answer: the {count} most frequent coded words are:",
}
_ASKED = {
    "instruction": "Answer the question from the documents below, in as few words as you can.\n\n",
    "document": "Document {number}:\n{text}",
    "question": "\nAnswer the question from the documents above, in as few words as you can.\n\nQuestion: {question}",
    "prefix": " Answer:",
}


def _original(name: str) -> dict[str, Any]:
    """A task of RULER in its structure: what follows what, and with which line breaks. The sentences are ours."""
    wording = {
        "vt": _TRACED,
        "cwe": _COMMON,
        "fwe": _FREQUENT,
        "qa_1": _ASKED,
        "qa_2": _ASKED | {"document": "Document {number}:\n{title}\n{text}"},
        "niah_multivalue": _SEVERAL,
        "niah_multiquery": _SEVERAL,
    }.get(name, _SINGLE)
    options: dict[str, Any] = {"questions": 0} if name.startswith("qa_") else {}
    return {"name": name, "placement": "anywhere", "fixed_allowance": True, "wording": wording, **options}


RULER_ORIGINAL = Suite(
    name="ruler-original",
    summary="RULER's structure throughout, with SQuAD and HotpotQA: 13 tasks, 4k to 128k, 500 documents each",
    values={"tasks": [_original(name) for name in RULER_TASKS], "lengths": LENGTHS, "samples": 500, "reading": "fresh"},
    settings=SETTINGS,
)
RULER_QUICK = Suite(
    name="ruler-quick",
    summary="the tasks of `ruler` at a twentieth of its reading: 25 documents each, asked at five depths",
    values={"tasks": _tasks(LISTS), "lengths": LENGTHS, "samples": 25, "depths": 5, "reading": "shared"},
    settings=SETTINGS,
)
RULER_1M = Suite(
    name="ruler-1m",
    summary="13 tasks from 4k to a million tokens, ten documents each, asked at five depths",
    values={
        "tasks": _tasks(LISTS, repeat=True),
        "lengths": "4k,32k,128k,256k,512k,1m",
        "samples": 10,
        "depths": 5,
        "reading": "shared",
    },
    settings=SETTINGS,
)
