"""The quick ways of the fitting give what the plain definitions give: places of facts, cuts, positions in the order."""

from __future__ import annotations

from itertools import pairwise
from operator import itemgetter

import numpy as np
import pytest

from leadline.core.drafts import PieceBank
from leadline.text.fitting.bank import CountedBank, count_bank
from leadline.text.fitting.cuts import (
    CUT_PLACES,
    Boundaries,
    cut_by_tokenising,
    cut_piece,
    may_end_word,
)
from leadline.text.fitting.joints import (
    SOUND,
    UNKNOWN,
    UNSOUND,
    ContextTokenizer,
    JointTable,
    number_distinct,
    number_distinct_pairs,
)
from leadline.text.fitting.order import PieceOrder
from leadline.text.sources import open_source
from leadline.text.tokenizers import open_tokenizer
from support.toy_tokenizers import toy_tokenizer

BARRED = 1 << 40


def places_by_definition(
    bounds: np.ndarray, free: np.ndarray, wanted: list[float], cut_tokens: int, end: int
) -> tuple[tuple[int, ...], int]:
    """The distance of every boundary to every wanted position, for every place of the cut piece."""
    count = len(bounds) - 1
    barred = np.full(count + 1, BARRED)
    barred[free] = 0

    def nearest(shifted: np.ndarray, barred: np.ndarray) -> tuple[int, ...]:
        places: list[int] = []
        for want in wanted:
            place = int((np.abs(shifted - want) + barred).argmin())
            places.append(max(place, places[-1]) if places else place)
        return tuple(places)

    if not cut_tokens:
        return nearest(bounds, barred), count
    places, candidates = nearest(bounds + cut_tokens * (np.arange(count + 1) >= end), barred), [count]
    if end in places:
        candidates = np.setdiff1d(free[free < end], places)[: -CUT_PLACES - 1 : -1].tolist() or [count]
    found = []
    for cut_place in candidates:
        there, near = barred.copy(), int(np.searchsorted(free, cut_place))
        there[cut_place] = BARRED
        there[free[near : near + 2]] = BARRED
        shifted = bounds + cut_tokens * (np.arange(count + 1) > cut_place)
        places = nearest(shifted, there)
        found.append((float(np.abs(shifted[list(places)] - wanted).max(initial=0)), places, cut_place))
    _, places, cut_place = min(found, key=itemgetter(0))
    return places, cut_place


@pytest.mark.parametrize("seed", range(8))
def test_places_found_by_bisection_are_those_of_the_definition(seed: int) -> None:
    draw = np.random.default_rng(seed)
    for _ in range(200):
        count = int(draw.integers(1, 60))
        sizes = draw.integers(0, 12, count)  # pieces without tokens, too: equal bounds
        bounds = np.concatenate(([0.0], np.cumsum(sizes)))
        free = np.flatnonzero(draw.random(count + 1) < draw.choice([0.0, 0.1, 0.5, 1.0]))
        last = bool(draw.integers(2))
        free = free[free < count] if last else free
        total = bounds[-1] * 1.1 + 2
        wanted = sorted(np.round(draw.random(int(draw.integers(0, 6))) * total, int(draw.integers(0, 3))).tolist())
        wanted += [float(total)] * int(draw.integers(2))
        cut = int(draw.integers(0, 30))
        expected = places_by_definition(bounds, free, wanted, cut, count - last)
        boundaries = Boundaries(bounds, free.tolist(), bounds[free].tolist())
        assert boundaries.choose_places(wanted, cut, count - last) == expected


def counted_bank(tokenizer: str, haystack: str) -> CountedBank:
    context = ContextTokenizer(open_tokenizer(tokenizer) if tokenizer == "bytes" else toy_tokenizer(tokenizer))
    return count_bank(open_source(haystack).filler(seed=0).bank, context)


@pytest.mark.parametrize(
    ("tokenizer", "haystack"), [("bytes", "prose"), ("gpt2", "prose"), ("gpt2", "code"), ("llama3", "chat")]
)
def test_cuts_from_the_tokens_of_pieces_are_those_of_the_tokenised_text(tokenizer: str, haystack: str) -> None:
    counted, found = counted_bank(tokenizer, haystack), 0
    order = PieceOrder(counted, open_source(haystack).filler(seed=3).arrange(400))
    for at in range(0, len(order), 3):
        for sizes in ([1 + at % 40], [3, 3 + at % 11, 30], [0, 4]):
            cut = cut_piece(order, at, sizes, attempt=0)
            assert cut == cut_by_tokenising(order, at, sizes, attempt=0)
            found += cut is not None
    assert found > 20


@pytest.mark.parametrize(("tokenizer", "haystack"), [("bytes", "prose"), ("gpt2", "prose"), ("gpt2", "code")])
def test_positions_passed_over_are_those_where_no_cut_ends_a_word(tokenizer: str, haystack: str) -> None:
    counted = counted_bank(tokenizer, haystack)
    order = PieceOrder(counted, open_source(haystack).filler(seed=3).arrange(400))
    positions = range(0, len(order) + 20, 3)
    for size in (1, 7, 23, 60):
        for at, promising in zip(positions, may_end_word(order, positions, size), strict=True):
            assert promising or cut_piece(order, at, [size], attempt=0) is None
    if order.all_sound:
        assert not all(may_end_word(order, positions, 7))


@pytest.mark.parametrize(("tokenizer", "haystack"), [("bytes", "prose"), ("gpt2", "code"), ("gpt2", "prose")])
def test_numbers_of_many_pieces_are_those_of_few(
    tokenizer: str, haystack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = counted_bank(tokenizer, haystack)
    pieces = open_source(haystack).filler(seed=3).arrange(400)

    def searched(order: PieceOrder) -> list[int]:
        found = [order.whole(used, room) for used in (0, 7, 399, 400) for room in (0, 1, 50, 10_000)]
        found += [order.sentence_end(used, at) for used, at in ((0, 5), (3, 200), (50, 400))]
        found += [position for at in (0, 1, 37, 399, 400) for position in order.skips(at, range(60))]
        return found + [order.next_beginning(at) for at in range(0, 401, 9)]

    few = PieceOrder(counted, pieces)
    expected = searched(few)
    assert isinstance(few.break_sums, list)
    monkeypatch.setattr("leadline.text.fitting.order.FEW_PIECES", 0)
    many = PieceOrder(counted, pieces)
    assert not isinstance(many.sums, list)
    assert searched(many) == expected
    assert {type(number) for number in searched(many)} == {int}
    for start in (0, 3, 80):
        wanted = [10.0, float(few.sums[300]), float(few.sums[-1])]
        chosen = [
            Boundaries(o.ends, o.breaks[start:], o.break_sums[start:]).choose_places(wanted, 9, 400)
            for o in (few, many)
        ]
        assert chosen[0] == chosen[1]
        assert {type(place) for places, cut_place in chosen for place in (*places, cut_place)} == {int}


@pytest.mark.parametrize("last_closes", [True, False])
def test_positions_in_an_order_are_those_of_walking_through_it(last_closes: bool) -> None:
    closes = [False, False, True, True, False, True, False, False, last_closes]
    pieces = [f" part{n}" for n in range(9)]
    bank = PieceBank("parts", f"parts {last_closes}", pieces, contiguous=False, ends_sentence=closes)
    order = PieceOrder(count_bank(bank, ContextTokenizer(open_tokenizer("bytes"))), np.arange(9))

    def next_beginning(at: int) -> int:
        while 0 < at < 9 and not closes[at - 1]:
            at += 1
        return at

    for at in range(12):
        assert order.next_beginning(at) == next_beginning(at)
        position = at
        for sentences in range(8):
            assert order.skip(at, sentences) == position
            position = next_beginning(position + 1)
    for used, at in pairwise(range(10)):
        assert order.sentence_end(used, at) == (at if closes[at - 1] else used)
    assert order.sentence_end(3, 5) == 4
    assert order.sentence_end(4, 5) == 4


@pytest.mark.parametrize("count", [0, 1, 40])
def test_pairs_are_numbered_in_the_order_they_come_first(count: int) -> None:
    draw = np.random.default_rng(count)
    first, second = draw.integers(0, 9, count).astype(np.int32), draw.integers(0, 5, count)
    distinct, numbers = number_distinct(zip(first.tolist(), second.tolist(), strict=True))
    found, numbers_found = number_distinct_pairs(first, second)
    assert found == len(distinct)
    assert np.array_equal(numbers_found, numbers)


def test_verdicts_on_joints_are_the_same_in_a_whole_table_and_in_one_of_known_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = counted_bank("gpt2", "code")
    pieces = counted.bank.pieces
    _, first = number_distinct(piece[:1] for piece in pieces)
    _, last = number_distinct(piece[-1:] for piece in pieces)
    whole = JointTable(first, last, counted.ids, counted.starts)
    monkeypatch.setattr("leadline.text.fitting.joints.MOST_PAIRS", 0)
    sparse = JointTable(first, last, counted.ids, counted.starts)
    assert whole.is_whole
    assert not sparse.is_whole
    draw = np.random.default_rng(0)
    for _ in range(3):
        pairs = whole.pairs(draw.integers(0, len(pieces), 50), draw.integers(0, len(pieces), 50))
        new = np.unique(pairs[whole.look_up(pairs) == UNKNOWN])
        for table in (whole, sparse):
            table.learn(new, new % 2 == 0)
        assert np.array_equal(whole.look_up(pairs), sparse.look_up(pairs))
        assert set(whole.look_up(pairs).tolist()) == {SOUND, UNSOUND}
