"""Embedded samples: every sample can be unpacked, packs are small, and omissions are stated."""

from __future__ import annotations

import base64
import gzip
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadline.core.answers import Completion
from leadline.core.records import Record
from leadline.report.embedded_samples import (
    COLUMNS,
    TEXT_COLUMNS,
    EmbeddedSamples,
    PromptExcerpts,
    RunSamples,
    SamplePacker,
)
from leadline.results.table import FAILURE_CLASSES
from leadline.store.runs import PROMPTS, slug
from support.planted_runs import cliff, failed_record, planted_records

NOWHERE = PromptExcerpts(Path("there is no such folder"))


def packed(records: list[Record], **settings: Any) -> EmbeddedSamples:
    samples = SamplePacker()
    of_run = RunSamples(Path("there is no such folder"))
    of_run.add(records)
    samples.add(0, {t: i for i, t in enumerate(dict.fromkeys(r.cell.task for r in records))}, of_run)
    return samples.packed(**settings)


def unpacked(found: EmbeddedSamples) -> list[dict[str, Any]]:
    """As the page does it."""
    rows = []
    for text, entry in zip(found.packs, found.index, strict=True):
        pack = msgspec.json.decode(gzip.decompress(base64.b64decode(text)))
        for task, length, first, count in entry["parts"]:
            for at in range(first, first + count):
                row = {"run": entry["run"], "task": task, "length": length}
                for name in COLUMNS:
                    value = pack["columns"][name][at] if name in pack["columns"] else None
                    row[name] = pack["strings"][value] if name in TEXT_COLUMNS and value is not None else value
                rows.append(row)
    return rows


def test_every_sample_comes_back_as_it_was() -> None:
    records = list(planted_records(cliff, tasks=["a", "b"], lengths=[1024, 65536], depths=[0.0, 0.5], samples=3))
    records[3] = failed_record(records[3].cell)
    found = {(r["task"], r["length"], r["depth"], r["sample"]): r for r in unpacked(packed(records))}
    assert len(found) == len(records)
    for record in records:
        row = found["ab".index(record.cell.task), record.cell.length, record.cell.depth, record.cell.sample]
        assert row["question"] == record.question.text
        assert row["targets"] == record.question.targets[0]
        assert row["score"] == record.score
        assert FAILURE_CLASSES[row["class"]] == record.failure_class
        assert row["answer"] == (record.outcome.text if isinstance(record.outcome, Completion) else None)
        assert row["ours"] == record.receipt.ours
    failure = found[0, 1024, 0.5, 0]
    assert failure["failure"] == "timeout: no answer within 600 s"


def test_parts_of_a_pack_stand_where_the_index_says() -> None:
    records = list(planted_records(cliff, tasks=["a", "b"], samples=20))
    found = packed(records)
    assert sum(count for entry in found.index for *_, count in entry["parts"]) == len(records)
    assert len(found.packs) > 1, "more than one pack, so that one click does not unpack everything"


def noisy(count: int, length: int) -> list[Record]:
    """Answers that hardly compress."""
    draw = random.Random(1)
    return [
        msgspec.structs.replace(r, outcome=Completion("".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=length))))
        for r in planted_records(lambda n, d: 0.5, lengths=[1024], depths=[0.0, 1.0], samples=count // 2)
    ]


@pytest.mark.parametrize("budget", [400_000, 120_000, 20_000])
def test_a_page_never_grows_past_its_budget(budget: int) -> None:
    found = packed(noisy(400, 1500), budget=budget)
    assert sum(map(len, found.packs)) <= budget
    assert "records.jsonl holds everything" in found.left_out


def test_wrong_answers_are_the_last_to_be_left_out() -> None:
    records = noisy(400, 1500)
    rows = unpacked(packed(records, budget=60_000))
    wrong = sum(r.failure_class != "correct" for r in records)
    assert sum(FAILURE_CLASSES[row["class"]] != "correct" for row in rows) == wrong
    assert len(rows) < len(records)


def test_nothing_is_left_out_of_a_small_run() -> None:
    assert packed(noisy(20, 300)).left_out == ""


def test_the_words_around_a_fact_are_shown_where_prompts_were_kept(tmp_path: Path) -> None:
    record = next(planted_records(cliff, lengths=[1024]))
    folder = tmp_path / PROMPTS
    folder.mkdir()
    text = f"{'before ' * 100}The number is {record.question.targets[0]}. {'after ' * 100}"
    (folder / f"{slug(record.cell.key)}.txt").write_text(text)
    excerpt = PromptExcerpts(tmp_path).of(record)
    assert f"The number is {record.question.targets[0]}." in excerpt
    assert len(excerpt) < 400
    assert NOWHERE.of(record) == ""
