"""Every RULER task and classic, asked of a real model through a real server: llama.cpp with SmolLM2-135M-Instruct."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from leadline.core.answers import Completion
from leadline.core.records import Record
from leadline.core.spec import make_spec
from leadline.models.hf.smollm2 import ensure_folder
from leadline.run.measure import measure
from leadline.store.runs import read_records
from leadline.tasks.ruler import PROSE_TASKS, TASKS
from support.llama_server import MODEL, LlamaServer, half_weights
from support.question_data import squad
from support.toy_tokenizers import SMALL_PROSE

pytestmark = pytest.mark.real

SHORT, LONG = 384, 512
"""As short as they can be: this model reads some hundred tokens a second on a small CPU."""
NEEDLES = (*(name for name in TASKS if name.startswith("niah")), "passkey", "kv", "lines")
OTHERS = (*(name for name in TASKS if not name.startswith("niah")), "qa_1")
EASY = ("niah_single_1", "niah_single_2", "niah_multikey_1", "passkey")
"""What a model of 135 million parameters can do at this length."""


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Record]]:
    """One document of each. A few tokens of an answer are enough: the rest of the allowance stays unused."""
    folder = tmp_path_factory.mktemp("real")
    own: dict[str, dict[str, Any]] = {
        **{name: {"haystack": SMALL_PROSE} for name in PROSE_TASKS},
        "cwe": {"demonstration": False, "answer_tokens": 60},
        "qa_1": {"data": str(squad(folder / "squad.json"))},
    }
    with LlamaServer(half_weights(), window=LONG + 64) as server:
        # The tokenizer from a folder: asking the server for every piece of a haystack takes longer than the answers.
        model = f"openai:{MODEL}?base_url={server.base_url}&tokenizer={ensure_folder()}&max_tokens=16"
        for names, length in ((NEEDLES, SHORT), (OTHERS, LONG)):
            tasks = [{"name": name, "placement": "anywhere", **own.get(name, {})} for name in names]
            asked = {"model": model, "tasks": tasks, "lengths": length, "samples": 1, "limits": {"workers": 1}}
            measure(make_spec(asked), folder / str(length))
        yield [record for length in (SHORT, LONG) for record in read_records(folder / str(length))]


def test_every_sample_of_every_task_has_an_answer_both_scores_and_a_class(records: list[Record]) -> None:
    assert sorted(r.cell.task for r in records) == sorted((*NEEDLES, *OTHERS))
    for record in records:
        assert isinstance(record.outcome, Completion), record.outcome
        assert {"ruler.v1", "ruler.strict"} <= record.scores.keys()
        assert all(0 <= score.value <= 1 for score in record.scores.values())
        assert record.failure_class not in ("error", "measured", "input_truncated")


def test_the_server_read_as_many_tokens_as_we_say(records: list[Record]) -> None:
    for record in records:
        assert record.receipt.ok, record.cell
        assert record.receipt.ours == record.prompt_tokens == record.cell.length - record.question.allowance


def test_a_small_model_finds_what_is_easy(records: list[Record]) -> None:
    scores = {r.cell.task: r.scores["ruler.v1"].value for r in records if r.cell.task in EASY}
    assert sum(scores.values()) >= 1, scores
