"""RULER (arXiv 2404.06654): its configurations as presets, and its protocol as suites.

A preset sets the options that the paper gives a task. A suite sets where the evidence is placed, the lengths and the
number of documents. docs/ruler.md lists what is the same as in the paper and what is not.
"""

from __future__ import annotations

from typing import Any

from leadline.core.spec import Suite
from leadline.tasks.counting import CommonWords, FrequentWords
from leadline.tasks.needle import Needle
from leadline.tasks.tracing import Tracing

NIAH_SINGLE_1 = Needle(haystack="noise", answer_tokens=128)
NIAH_SINGLE_2 = Needle(haystack="prose", answer_tokens=128)
NIAH_SINGLE_3 = Needle(haystack="prose", value_kind="uuids", answer_tokens=128)
NIAH_MULTIKEY_1 = Needle(haystack="prose", keys=4, answer_tokens=128)
NIAH_MULTIKEY_2 = Needle(haystack="needles", answer_tokens=128)
NIAH_MULTIKEY_3 = Needle(haystack="needles", key_kind="uuids", value_kind="uuids", answer_tokens=128)
NIAH_MULTIVALUE = Needle(haystack="prose", values=4, answer_tokens=128)
NIAH_MULTIQUERY = Needle(haystack="prose", queries=4, answer_tokens=128)
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
)
RULER_QUICK = Suite(
    name="ruler-quick",
    summary="the same at a twentieth of the reading: 25 documents each, asked at five depths",
    values={"tasks": _tasks(LISTS), "lengths": LENGTHS, "samples": 25, "depths": 5, "reading": "shared"},
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
)
