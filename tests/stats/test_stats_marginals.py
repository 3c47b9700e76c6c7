"""Records to columns, and means over parts of a grid."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from leadline.core.answers import Completion, Failure, Sent
from leadline.core.records import Receipt, Record, Score
from leadline.core.types import Cell, Question, Reading
from leadline.stats.marginals import design_effect, group_means, marginals
from leadline.stats.observations import (
    Column,
    Observations,
    compact,
    observations,
    parts_by_category,
    parts_by_depth,
    parts_by_task,
)
from support.planted import Archetype, archetype, planted


def record(cell: Cell, value: float | None, *, cluster: str = "", other: float = 0.0) -> Record:
    outcome = Failure(why="timeout", message="slow") if value is None else Completion(text="x")
    scores = {} if value is None else {"match.all": Score(value=value), "match.exact": Score(value=other)}
    return Record(
        cell=cell, reading="fresh", document=cell.key, cluster=cluster or cell.key, model="sim:x",
        question=Question("?", targets=("a",), allowance=5), facts=(), body_tokens=10, prompt_tokens=20,
        sent=Sent(form="chat", prefix="none"), outcome=outcome, receipt=Receipt(20, 20), scores=scores,
        failure_class="error" if value is None else "correct", attempts=1, started=0.0, seconds=0.1,
    )  # fmt: skip


def two_tasks() -> Observations:
    """Task a: 4 samples at one length, all right. Task b: 2 samples, one right, one failed."""
    cells = [Cell("a", 4096, 0.5, i) for i in range(4)] + [Cell("b", 4096, None, i) for i in range(3)]
    return observations([record(c, v) for c, v in zip(cells, [1, 1, 1, 1, 1, 0, None], strict=True)])


def test_a_failed_sample_stays_a_row_without_a_value() -> None:
    data = two_tasks()
    assert len(data) == 7
    assert data.failed.sum() == 1
    assert np.isnan(data.value[data.failed]).all()
    assert len(data.counted()) == 6
    assert data.counted("zero").value.sum() == 5


def test_a_later_record_of_a_cell_replaces_the_failed_one() -> None:
    cell = Cell("a", 4096, 0.5, 0)
    data = observations([record(cell, None), record(cell, 1.0)])
    assert data.value.tolist() == [1.0]


def test_tasks_weigh_alike_whatever_their_samples() -> None:
    [overall] = marginals(two_tasks(), ())
    assert overall.estimate.mean == pytest.approx((1.0 + 0.5) / 2)
    assert (overall.done, overall.failed) == (6, 1)
    assert overall.mean_if_failures_were_zero == pytest.approx((1.0 + 1 / 3) / 2)


def test_failures_can_count_as_zero() -> None:
    by_task = {m.key: m for m in marginals(two_tasks(), ("task",), failures="zero")}
    assert by_task[("b",)].estimate.mean == pytest.approx(1 / 3)
    assert by_task[("b",)].failed == 1


def test_a_group_of_failures_only_has_no_mean() -> None:
    data = observations([record(Cell("a", 4096, 0.5, i), None) for i in range(3)])
    [made] = marginals(data, ("length",))
    assert math.isnan(made.estimate.mean)
    assert made.failed == 3


def test_keys_keep_their_type_and_a_missing_depth() -> None:
    assert [m.key for m in marginals(two_tasks(), ("task", "length", "depth"))] == [
        ("a", 4096, 0.5),
        ("b", 4096, None),
    ]


def test_cells_that_differ_do_not_widen_the_mean_over_them() -> None:
    rng = np.random.default_rng(1)
    surface = np.where(np.arange(8)[:, None] < 4, 1.0, 0.0) * np.ones((8, 11))
    data = planted(surface * 0.98 + 0.01, 10, rng)
    [made] = marginals(data, ())
    assert made.estimate.interval.half_width < 0.01  # a pooled yes/no interval would be 0.033


@pytest.mark.parametrize(
    ("reading", "samples", "degrees"), [("fresh", 3, 264 - 88), ("shared", 3, 24 - 8), ("nested", 3, 3 - 1)]
)
def test_degrees_of_freedom_follow_the_documents(reading: Reading, samples: int, degrees: int) -> None:
    data = planted(np.full((8, 11), 0.7), samples, np.random.default_rng(0), reading=reading)
    whole = group_means(data, np.zeros(len(data), dtype=np.int64), 1)
    assert whole.degrees[0] == degrees


def test_the_variance_of_a_mean_is_the_textbook_one() -> None:
    rng = np.random.default_rng(2)
    data = planted(np.full((8, 11), 0.6), 5, rng)
    groups = group_means(data, data.code(("length",)), 8)
    values = data.value.reshape(8, 11, 5)
    expected = values.var(axis=2, ddof=1).sum(axis=1) / 5 / 11**2
    assert groups.variances == pytest.approx(expected)
    assert np.diag(groups.covariance) == pytest.approx(expected)


def test_one_sample_a_cell_borrows_its_scatter_from_the_length() -> None:
    data = planted(np.full((8, 11), 0.6), 1, np.random.default_rng(3))
    groups = group_means(data, data.code(("length",)), 8)
    assert groups.variances == pytest.approx(data.value.reshape(8, 11).var(axis=1, ddof=1) / 11)


@pytest.mark.parametrize("reading", ["fresh", "shared", "nested"])
def test_marginals_cover_the_truth(reading: Reading) -> None:
    rng = np.random.default_rng(7)
    held: list[bool] = []
    kinds: tuple[Archetype, ...] = ("cliff", "smooth decay", "lost in the middle")
    for kind in kinds * 6:
        surface = archetype(kind, rng)
        data = planted(surface, 6, rng, reading=reading, correlation=0.0 if reading == "fresh" else 0.2)
        made = [*marginals(data, ("length",)), *marginals(data, ("depth",)), *marginals(data, ())]
        truths = [*surface.mean(axis=1), *surface.mean(axis=0), surface.mean()]
        held += [m.estimate.interval.holds(t) for m, t in zip(made, truths, strict=True)]
    assert 0.93 <= np.mean(held) <= (0.995 if reading == "fresh" else 1.0)  # few documents: wide


def test_parts_cut_a_run_by_task_category_and_depth() -> None:
    data = two_tasks()
    assert {name: len(part) for name, part in parts_by_task(data).items()} == {"a": 4, "b": 3}
    assert {name: len(part) for name, part in parts_by_category(data, {"a": "easy"}).items()} == {"easy": 4, "b": 3}
    grid = planted(np.full((8, 11), 0.5), 1, np.random.default_rng(0))
    bands = parts_by_depth(grid)
    assert {name: len(np.unique(part.depth)) for name, part in bands.items()} == {
        "first third": 4,
        "middle third": 3,
        "last third": 4,
    }
    assert sum(len(part) for part in bands.values()) == len(grid)


def test_joined_observations_keep_all_rows() -> None:
    data = two_tasks()
    both = data.joined(replace(data, sample=data.sample + 10))
    assert len(both) == 14
    assert len(np.unique(both.sample)) == 8


def test_the_design_effect_is_estimated_from_what_documents_share() -> None:
    rng = np.random.default_rng(4)
    found = [
        design_effect(planted(np.full((8, 11), 0.7), 20, rng, reading="shared", correlation=0.3)) for _ in range(20)
    ]
    assert {(one.samples, one.documents, round(one.size, 6)) for one in found} == {(1760, 160, 11.0)}
    # A correlation of 0.3 between hidden normals is one of about 0.18 between answers at 70 %.
    assert np.mean([one.correlation for one in found if one.correlation is not None]) == pytest.approx(0.18, abs=0.03)
    assert np.mean([one.effect for one in found]) == pytest.approx(2.8, abs=0.3)


def test_samples_with_documents_of_their_own_have_a_design_effect_of_one() -> None:
    alone = design_effect(planted(np.full((8, 11), 0.7), 3, np.random.default_rng(0)))
    assert (alone.documents, alone.size, alone.effect) == (264, 1.0, 1.0)
    unvaried = design_effect(planted(np.ones((8, 11)), 3, np.random.default_rng(0), reading="nested"))
    assert unvaried.correlation is None
    assert (unvaried.documents, round(unvaried.effect)) == (3, 88)


@pytest.mark.parametrize(("documents", "lost", "unseen"), [(40, 0, 0.0722), (5, 0, 0.4507), (40, 1, None)])
def test_what_share_of_documents_could_be_lost_unseen_is_the_rule_of_three(
    documents: int, lost: int, unseen: float | None
) -> None:
    data = planted(np.full((8, 11), 0.97), documents, np.random.default_rng(4), reading="nested")
    whole = np.isin(data.cluster, np.unique(data.cluster)[:lost])
    found = design_effect(replace(data, value=np.where(whole, 0.0, data.value)))
    assert found.lost == lost
    assert found.unseen == (None if unseen is None else pytest.approx(unseen, abs=1e-3))


@pytest.mark.parametrize("highest", [1, 40, 100_000])
def test_codes_are_made_compact_as_numpy_does_it(highest: int) -> None:
    code = np.random.default_rng(highest).integers(0, highest, 500)
    for mine, plain in zip(compact(code), np.unique(code, return_inverse=True), strict=True):
        assert mine.tolist() == plain.tolist()
    assert [len(part) for part in compact(code[:0])] == [0, 0]


@pytest.mark.parametrize("by", [("task",), ("length",), ("cluster",), ("task", "length", "depth"), ("depth", "sample")])
def test_a_part_of_numbered_samples_has_the_means_of_the_same_samples_alone(by: tuple[Column, ...]) -> None:
    rng = np.random.default_rng(5)
    whole = planted(archetype("smooth decay", rng), 3, rng, reading="shared")
    whole = whole.joined(replace(whole, task=np.full(len(whole), "another"), depth=np.full(len(whole), np.nan)))
    marginals(whole, by)
    rows = rng.random(len(whole)) < 0.3
    part, alone = whole.take(rows).take(np.arange(40)[::-1]), replace(whole.take(rows)).take(np.arange(40)[::-1])
    keys, code = part.codes(by)
    alone_keys, alone_code = alone.codes(by)
    assert keys == alone_keys
    assert code.tolist() == alone_code.tolist()
    assert marginals(part, by) == marginals(alone, by)
    assert (part.documents, part.lengths.tolist()) == (len(set(part.cluster)), sorted(set(part.length.tolist())))


def test_the_newest_record_of_a_cell_counts_wherever_it_comes() -> None:
    cells = [Cell(task, 1024, depth, sample) for task in "ba" for depth in (None, 0.5) for sample in (2, 10)]
    first, second = ([record(cell, value) for cell in cells] for value in (0.0, None))
    last = [record(cell, float(cell.sample == 10)) for cell in reversed(cells)]
    data = observations([*first, *second, *last])
    assert [*zip(data.task.tolist(), data.sample.tolist(), data.value.tolist(), strict=True)] == [
        (task, sample, float(sample == 10)) for task in "ab" for _ in range(2) for sample in (2, 10)
    ]
    assert np.isnan(data.depth).tolist() == [True, True, False, False] * 2
    assert not data.failed.any()
