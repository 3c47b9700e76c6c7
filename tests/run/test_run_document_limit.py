"""How many documents are in flight: by what a server says about its cache, else by its receipts."""

from __future__ import annotations

import random

import pytest

from leadline.core.contracts import PrefixCache, Task
from leadline.core.types import Cell
from leadline.run.documents import PlannedDocument
from leadline.run.queue import MISSES_OF_NO_CACHE, DocumentLimit, Queue, Work
from support.scripted_model import document_of


def test_one_document_is_always_admitted_even_if_the_cache_is_too_small_for_it() -> None:
    limit = DocumentLimit(PrefixCache(tokens=1000))
    assert limit.admits(100_000)
    limit.opened(100_000)
    assert not limit.admits(1)
    limit.closed(100_000)
    assert limit.admits(100_000)


def test_documents_are_counted_in_whole_blocks() -> None:
    limit = DocumentLimit(PrefixCache(tokens=320, block=16))
    limit.opened(161)  # eleven blocks
    assert not limit.admits(145)  # ten
    assert limit.admits(144)  # nine


def test_a_server_with_slots_takes_as_many_documents_and_their_probes_in_turn() -> None:
    limit = DocumentLimit(PrefixCache(slots=2))
    assert limit.in_turn
    limit.opened(10)
    assert limit.admits(10)
    limit.opened(10)
    assert not limit.admits(10)


def test_a_server_whose_cache_is_off_is_not_waited_for() -> None:
    limit = DocumentLimit(PrefixCache(tokens=100, off=True))
    limit.opened(100)
    assert limit.admits(100)
    assert "off" in limit.describe(100, 16)


def test_one_document_more_is_tried_when_the_hits_so_far_make_up_for_the_risk() -> None:
    limit = DocumentLimit()
    limit.opened(100, 4)
    for _ in range(35):
        limit.learn(1000, 990)
    assert not limit.admits(100, 4)  # eight probes in flight, six of which may miss: 36 hits make up for them
    limit.learn(1000, 990)
    assert limit.admits(100, 4)
    limit.opened(100, 4)
    for _ in range(100):
        limit.learn(1000, 990)
    assert limit.admits(100, 4)


def test_a_trial_that_misses_is_not_repeated_before_twice_the_risk_is_made_up_for() -> None:
    limit = DocumentLimit()
    limit.opened(100, 4)
    for _ in range(36):
        limit.learn(1000, 990)
    limit.opened(100, 4)
    for _ in range(4):
        limit.learn(1000, 16)
    limit.closed(100)
    for _ in range(59):  # 95 hits for four misses and twice the risk of six
        limit.learn(1000, 990)
    assert not limit.admits(100, 4)
    limit.closed(100)
    limit.opened(100, 4)
    limit.learn(1000, 990)
    assert limit.admits(100, 4)


def test_unstated_counts_say_nothing_of_a_cache_of_known_size() -> None:
    limit = DocumentLimit(PrefixCache(tokens=250))
    limit.opened(100)
    for _ in range(100):
        limit.learn(1000, None)
    assert limit.admits(100)
    limit.opened(100)
    assert not limit.admits(100)


def test_a_server_of_which_nothing_is_known_begins_with_one_document_and_without_receipts_has_no_limit() -> None:
    limit = DocumentLimit()
    limit.opened(100)
    assert not limit.admits(100)
    limit.learn(1000, None)
    assert limit.admits(100)


def test_a_server_that_keeps_nothing_of_a_single_document_has_no_limit() -> None:
    limit = DocumentLimit()
    limit.opened(100)
    for _ in range(MISSES_OF_NO_CACHE):
        assert not limit.admits(100)
        limit.learn(1000, 0)
    assert limit.admits(100)


def test_a_prompt_too_short_for_a_hosted_cache_is_no_miss() -> None:
    limit = DocumentLimit(PrefixCache(min_tokens=1024))
    limit.opened(100)
    limit.learn(1100, 0)
    assert not limit.admits(100)
    limit.learn(900, 0)
    assert limit.admits(100)


@pytest.mark.parametrize("count", [4, 8, 24, 200])
@pytest.mark.parametrize("capacity", [1, 2, 3, 5])
def test_the_limit_found_from_receipts_keeps_85_percent_of_the_hits(capacity: int, count: int) -> None:
    for probes in (4, 10):
        for seed in range(5):
            assert simulated(capacity, count, probes, seed)[0] > 0.85


def test_a_cache_that_holds_everything_gets_more_and_more_documents() -> None:
    assert simulated(1000, 8, 10, 0)[1] == 1
    assert simulated(1000, 60, 10, 0)[1] >= 8
    assert simulated(1000, 200, 10, 0)[1] == 16


def simulated(capacity: int, count: int, probes: int, seed: int) -> tuple[float, int]:
    """The share of hits and the most documents in flight, with a cache that holds `capacity` documents. Those in flight
    are asked in a random order, sixteen at most."""
    rng, limit = random.Random(seed), DocumentLimit()
    held: list[int] = []  # the most recently used last
    open_: dict[int, int] = {}
    started, hits, peak = 0, 0, 0

    def read(document: int) -> bool:
        hit = document in held
        if hit:
            held.remove(document)
        held.append(document)
        del held[:-capacity]
        return hit

    while started < count or open_:
        while started < count and len(open_) < 16 and limit.admits(100, probes):
            limit.opened(100, probes)
            open_[started] = probes
            read(started)
            started += 1
        peak = max(peak, len(open_))
        document = rng.choice(sorted(open_))
        hit = read(document)
        limit.learn(1000, 990 if hit else 0)
        hits += hit
        open_[document] -= 1
        if not open_[document]:
            del open_[document]
            limit.closed(100)
    return hits / (count * probes), peak


def queue_of(documents: int, probes: int, cache: PrefixCache) -> Queue:
    cells = tuple(Cell("niah", 1024, 0.5, n) for n in range(probes))
    planned = (PlannedDocument(Task(), cells, cells) for _ in range(documents))
    return Queue(planned, lambda planned: document_of(probes, 1024), "probe", limit=DocumentLimit(cache))


def take(queue: Queue) -> Work:
    with queue.turn:
        work = queue.take()
    assert work is not None
    return work


def finish(queue: Queue, work: Work) -> None:
    with queue.turn:
        queue.finished(work)


def test_never_more_documents_are_in_flight_than_the_cache_holds_and_every_probe_is_asked_once() -> None:
    size = sum(p.question.allowance + p.prompt_tokens for p in document_of(4, 1024).probes)
    queue, rng = queue_of(30, 4, PrefixCache(tokens=3 * size)), random.Random(1)
    flying: list[Work] = []
    asked, peak = 0, 0
    while asked < 120:
        # Three works in flight can always be taken: the first probes of three documents, or their others.
        while len(flying) < 3 and asked + len(flying) < 120:
            flying.append(take(queue))
        peak = max(peak, len({id(w.document) for w in flying}))
        finish(queue, flying.pop(rng.randrange(len(flying))))
        asked += 1
    with queue.turn:
        assert queue.take() is None
    assert peak == 3


def test_with_slots_each_probe_waits_for_the_one_before_it_the_longest_first() -> None:
    queue = queue_of(2, 3, PrefixCache(slots=1))
    cuts, follows = [], []
    for _ in range(6):
        work = take(queue)
        assert not queue._ready
        cuts.append(work.probes[0].cut)
        follows.append(work.reuses_prefix)
        finish(queue, work)
    assert cuts[:3] == sorted(cuts[:3], reverse=True)
    assert follows == [False, True, True] * 2
