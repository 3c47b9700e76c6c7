"""Handing out work: built when wanted, a document's longest probe first and alone, nothing lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from leadline.core.contracts import Task
from leadline.core.types import Cell, Document
from leadline.run.feed import AT_A_TIME, Feed
from leadline.run.grid import Job
from scripted_model import document_of


def feed_of(
    documents: int, probes: int, grain: Literal["probe", "document"] = "probe", length: int = 1024
) -> tuple[Feed, list[Job]]:
    built: list[Job] = []

    def build(job: Job) -> Document:
        built.append(job)
        return document_of(probes, length)

    cells = tuple(Cell("niah", length, 0.5, n) for n in range(probes))
    return Feed((Job(Task(), cells, cells) for _ in range(documents)), build, grain), built


def test_a_document_is_built_when_it_is_wanted_and_not_before() -> None:
    feed, built = feed_of(3, 1, length=AT_A_TIME)
    assert built == []
    feed.take()
    assert len(built) == 1


def test_small_documents_are_built_several_at_a_time_and_never_beyond_the_tokens_for_it() -> None:
    feed, built = feed_of(100, 1, length=AT_A_TIME // 10)
    feed.take()
    assert len(built) == 10
    for _ in range(9):
        feed.take()
    assert len(built) == 10
    feed.take()
    assert len(built) == 20


def test_small_documents_for_a_model_that_reads_them_whole_are_built_one_at_a_time() -> None:
    feed, built = feed_of(3, 2, "document")
    feed.take()
    assert len(built) == 1


def test_the_rest_of_a_document_goes_before_others_that_are_built_already() -> None:
    feed, built = feed_of(3, 2)
    leader = feed.take()
    assert leader is not None
    assert len(built) == 3
    feed.finished(leader)
    rest = feed.take()
    assert rest is not None
    assert rest.document is leader.document


def test_by_document_all_probes_come_at_once() -> None:
    feed, _ = feed_of(2, 3, "document")
    assert [len(w.probes) for w in iter(feed.take, None)] == [3, 3]


def test_the_longest_probe_goes_alone_and_the_others_when_it_is_answered() -> None:
    feed, built = feed_of(2, 3)
    leader, other_leader = feed.take(), feed.take()
    assert leader is not None
    assert other_leader is not None
    assert [p.cell.sample for p in leader.probes] == [2]
    assert len(built) == 2
    feed.finished(leader)
    rest = [feed.take(), feed.take()]
    assert [w.probes[0].cell.sample for w in rest if w] == [1, 0]
    assert all(w.document is leader.document for w in rest if w)


def test_only_missing_probes_are_handed_out() -> None:
    cells = tuple(Cell("niah", 1024, 0.5, n) for n in range(4))
    feed = Feed(iter([Job(Task(), cells, cells[1:2])]), lambda job: document_of(4), "probe")
    work = feed.take()
    assert work is not None
    assert [p.cell.sample for p in work.probes] == [1]
    assert feed.take() is None


def test_a_worker_waits_for_what_depends_on_another_and_closing_frees_it() -> None:
    feed, _ = feed_of(1, 2)
    leader = feed.take()
    assert leader is not None
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(feed.take)
        feed.finished(leader)
        work = waiting.result(5)
        assert work is not None
        assert work.probes[0].cell.sample == 0
        assert feed.take() is None
        closing, _ = feed_of(1, 2)
        closing.take()
        blocked = pool.submit(closing.take)
        closing.close()
        assert blocked.result(5) is None


def test_many_workers_together_get_every_probe_once() -> None:
    feed, _ = feed_of(20, 7)
    seen: list[int] = []
    guard = threading.Lock()

    def work() -> None:
        while (taken := feed.take()) is not None:
            with guard:
                seen.append(taken.probes[0].cell.sample)
            feed.finished(taken)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(seen) == sorted(list(range(7)) * 20)
