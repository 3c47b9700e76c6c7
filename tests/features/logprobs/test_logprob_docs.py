"""The page on log-probabilities says what the code does: metrics, defaults, choices, commands and corpora."""

from __future__ import annotations

import re
from pathlib import Path

from leadline.console.options import RunOptions, spec_of
from leadline.core import registry
from leadline.core.spec import TaskSpec
from leadline.features.logprobs.metrics import KEY_FALL, KEY_LOSS
from leadline.features.logprobs.tasks import LogProbs
from leadline.stats.logprobs import METRICS, metric_of

PAGE = (Path(__file__).parents[3] / "docs" / "log-probs.md").read_text()


def test_every_metric_is_explained_with_its_direction() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (higher|lower) \|$", PAGE, re.MULTILINE))
    assert rows.keys() == {"retrieval_gain", "retrieval_nll", "mean_nll", "tail_loss", "tail_vs_head", "longppl",
                           "needle_gain", "needle_chance"}  # fmt: skip
    assert all(metric_of(name).better == better for name, better in rows.items())
    assert rows.keys() <= METRICS.keys()
    for name in rows:
        registry.task(TaskSpec(name=name))


def test_the_defaults_are_those_of_the_definition() -> None:
    spec = spec_of(RunOptions(what="retrieval_gain", model="sim:perfect"))
    assert (spec.lengths, spec.depths, spec.samples) == ((8192,), (0.1, 0.6), 50)
    task = registry.task(spec.tasks[0])
    assert isinstance(task, LogProbs)
    assert (task.query, task.answer, task.least, task.separator) == (24, 24, 1024, "")
    assert (task.short, task.step, task.tail) == (4096, 1024, 0.25)
    assert (KEY_FALL, KEY_LOSS) == (2.0, 2.0)
    for words in (
        "*q* = 24",
        "*r* = 24",
        "`least` = 1,024",
        "4,096 to 5,119",
        "more than 2 nats",
        "50 documents of 8,192",
    ):
        assert words in PAGE


def test_the_commands_on_the_page_make_specs() -> None:
    lines = re.findall(r"^leadline run (\w+) +--model (\S+)(.*?)(?: +#.*)?$", PAGE, re.MULTILINE)
    assert len(lines) == 5
    for what, model, rest in lines:
        words = rest.split()
        given = dict(zip(words[::2], words[1::2], strict=True))
        flags = RunOptions(
            what=what, model=model, lengths=given.get("--lengths"), depths=given.get("--depths"),
            reading=given.get("--reading"), set_=[given["--set"]] if "--set" in given else None,
        )  # fmt: skip
        assert spec_of(flags).tasks


def test_every_choice_of_the_manifest_is_on_the_page() -> None:
    choices = registry.task(TaskSpec(name="proxies")).choices()
    assert {"anchor_rule", "separator", "short documents", "special tokens", "arithmetic", "averaging", "key tokens",
            "documents", "order of documents", "end and beginning"} == set(choices)  # fmt: skip
    for open_question in ("anchors", "truncation", "short documents", "beginning of text", "separator", "averaging",
                          "arithmetic", "intervals", "key tokens", "other special tokens"):  # fmt: skip
        assert f"| {open_question} |" in PAGE
