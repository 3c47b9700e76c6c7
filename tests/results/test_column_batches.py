"""What a run says does not depend on how its records are divided: batches of a large run, or one record at a time."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from leadline.core import records as records_module
from leadline.core.answers import Completion, Sent
from leadline.core.records import Receipt, Record, Score
from leadline.results.progress import SampleCounter
from leadline.results.table import GridPoint, tabulate
from leadline.results.totals import totals_of
from leadline.stats.marginals import group_means
from leadline.stats.observations import compact, distinct, distinct_codes
from support.planted_runs import decay, failed_record, planted_records


def varied_records() -> list[Record]:
    """Failures, truncated prompts, receipts of every kind, caches, thinking, notes, labels and moved facts."""
    found = []
    for number, record in enumerate(planted_records(decay, tasks=("niah", "vt"), samples=2)):
        outcome = record.outcome
        assert isinstance(outcome, Completion)
        question, kind = record.question, number % 9
        if kind == 1:
            found.append(failed_record(record.cell))
            continue
        if kind == 2:
            record = msgspec.structs.replace(
                record, failure_class="input_truncated", receipt=Receipt(record.prompt_tokens, 7)
            )
        elif kind == 3:
            outcome = msgspec.structs.replace(outcome, cached_tokens=number, thinking="so", thinking_tokens=number)
            record = msgspec.structs.replace(record, receipt=Receipt(99, 90, cached=9, cacheable=5 + number))
        elif kind == 4:
            outcome = msgspec.structs.replace(outcome, text=" ", model="m", system_fingerprint=str(number % 2))
            record = msgspec.structs.replace(record, receipt=Receipt(99, None), sent=Sent("chat", "none"))
        elif kind == 5:
            sent = msgspec.structs.replace(record.sent, notes=("plain path: sliding window",))
            record = msgspec.structs.replace(record, sent=sent, document="one", attempts=3)
        elif kind == 6:
            question = msgspec.structs.replace(question, labels={"operation": "max", "needles": "2"})
            record = msgspec.structs.replace(record, scores={"match.all": Score(1 / 3), "ruler.v1": Score(1.0)})
        seconds = 0.1 + number / 7
        found.append(msgspec.structs.replace(record, question=question, outcome=outcome, seconds=seconds))
    return found


@pytest.mark.parametrize("size", [2, 7, 1000])
def test_sums_and_table_are_those_of_one_record_at_a_time(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    records = varied_records()
    planned = {GridPoint(r.cell.task, r.cell.length, r.cell.depth): 2 for r in records}

    def everything() -> str:
        table = tabulate(records, planned)
        counter = SampleCounter(len(records), 10**6)
        for batch in records_module.batched(records):
            counter.add_all(batch)
        progress = counter.progress("running", now=records[-1].started + 1000)
        return f"{totals_of(records)} {progress} {table} {table.cells} {table.wrong} {table.scored_by('ruler.v1')}"

    monkeypatch.setattr(records_module, "BATCH", 1)
    one_at_a_time = everything()
    monkeypatch.setattr(records_module, "BATCH", size)
    assert everything() == one_at_a_time
    assert "input_truncated" in one_at_a_time


@pytest.mark.parametrize("highest", [5, 10**6])
def test_codes_are_numbered_as_numpy_numbers_them(highest: int) -> None:
    code = np.random.default_rng(highest).integers(0, highest, 1000)
    kept, number = np.unique(code, return_inverse=True)
    assert np.array_equal(compact(code)[0], kept)
    assert np.array_equal(compact(code)[1], number)
    assert np.array_equal(distinct_codes(code), kept)
    assert np.array_equal(distinct(code / 7), np.unique(code / 7))


def test_means_that_are_known_are_those_of_the_same_groups_alone() -> None:
    samples = tabulate(varied_records(), {}).samples.counted()
    of_lengths, of_tasks = samples.code(("length",)), samples.code(("task",))
    first = group_means(samples, of_lengths, 8)
    assert group_means(samples, of_lengths.copy(), 8) is first
    assert len(group_means(samples, of_tasks, 2).means) == 2
    assert len(group_means(samples, of_lengths, 9).means) == 9
    moved = samples.with_values(1 - samples.value)
    assert group_means(moved, of_lengths, 8).means == pytest.approx(1 - first.means)
