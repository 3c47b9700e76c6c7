"""The grid as work: every cell once, documents by reading mode, longest first, haystacks together."""

from __future__ import annotations

from itertools import groupby
from typing import Any, ClassVar

import pytest

from leadline.core.contracts import Task
from leadline.core.spec import Spec, make_spec
from leadline.core.types import Reading
from leadline.run.documents import count_cells, first_rows, planned_documents


class Deep(Task):
    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")


class Flat(Task):
    has_depth: ClassVar[bool] = False


TASKS: dict[str, Task] = {"deep": Deep(), "flat": Flat()}


def spec(**values: Any) -> Spec:
    return make_spec(
        {"model": "sim:perfect", "tasks": ["deep", "flat"], "lengths": "1k,2k,4k", "depths": 3, "samples": 2, **values}
    )


@pytest.mark.parametrize("reading", ["fresh", "shared", "nested"])
def test_every_cell_is_asked_once_and_a_task_without_depth_has_one(reading: Reading) -> None:
    asked = [c.key for planned in planned_documents(spec(reading=reading), TASKS) for c in planned.missing]
    assert len(asked) == len(set(asked)) == 3 * 3 * 2 + 3 * 2 == count_cells(spec(), TASKS)
    assert {k for k in asked if k.startswith("flat/1024")} == {"flat/1024/-/0", "flat/1024/-/1"}


@pytest.mark.parametrize(("reading", "documents", "largest"), [("fresh", 24, 1), ("shared", 12, 3), ("nested", 4, 9)])
def test_cells_share_documents_by_reading_mode(reading: Reading, documents: int, largest: int) -> None:
    made = list(planned_documents(spec(reading=reading), TASKS))
    assert len(made) == documents
    assert max(len(planned.cells) for planned in made) == largest


def test_longest_come_first_and_documents_of_one_haystack_stand_together() -> None:
    cells = [planned.cells[0] for planned in planned_documents(spec(), TASKS)]
    assert [c.length for c in cells] == sorted((c.length for c in cells), reverse=True)
    haystacks = [key for key, _ in groupby((c.task, c.length, c.sample) for c in cells)]
    assert len(haystacks) == len(set(haystacks))
    assert [c.depth for c in cells[:3]] == [1.0, 0.5, 0.0]


def test_a_resumed_document_carries_all_its_cells_and_asks_only_the_missing() -> None:
    done = {"deep/4096/0.0000/0", "deep/4096/0.5000/0"}
    first = next(planned_documents(spec(reading="shared"), TASKS, done))
    assert [c.depth for c in first.cells] == [0.0, 0.5, 1.0]
    assert [c.depth for c in first.missing] == [1.0]


def test_nothing_is_left_when_all_is_done() -> None:
    everything = {c.key for planned in planned_documents(spec(), TASKS) for c in planned.cells}
    assert list(planned_documents(spec(), TASKS, everything)) == []


def test_what_is_tried_before_a_run_has_every_length() -> None:
    lengths = {r: [{c.length for c in row} for row in first_rows(spec(reading=r), "deep", Deep())] for r in READINGS}
    assert lengths == {
        "fresh": [{1024}, {2048}, {4096}],
        "shared": [{1024}, {2048}, {4096}],
        "nested": [{1024, 2048, 4096}],
    }


READINGS: tuple[Reading, ...] = ("fresh", "shared", "nested")
