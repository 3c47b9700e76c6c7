"""The order of pieces in generated texts, drawn from the tables of a grammar by numpy.

A draw is the hash of the seed of a text plus a number times `_GOLDEN`. Hashes and their terms are numbers modulo 2^64, in
which a product of a sum is the sum of the products: what is known of a number beforehand is multiplied once, in tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from leadline.text.generated.grammar import FREE, PARAGRAPH

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Indices

    Hashes = npt.NDArray[np.uint64]
    Nodes = npt.NDArray[np.int32]
    """Half as much to move as in 64 bits."""

DEALT_LEVELS = 3
"""Levels of expansion at which the patterns of a section are dealt like cards, so that none comes twice in a text
before all have come. Below are short phrases, which may."""
_STRIDES = np.array([10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079], np.int64)
"""Primes above the number of patterns of any section."""
_ALL = (1 << 64) - 1
_GOLDEN, _FIRST, _SECOND = (
    np.array(n, np.uint64) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_7, _27, _30, _31, _33 = (np.array(n, np.uint64) for n in (7, 27, 30, 31, 33))
"""Arrays, not scalars: numpy makes an array of a scalar each time, which takes longer than some hundred products."""
_OF_PLACE = np.asarray(_GOLDEN << np.uint64(6))
"""What a place counts in a draw."""


class Tables(NamedTuple):
    """Of each variant: its alternatives, and how one is chosen. Of each alternative: its nodes."""

    pool: Indices
    """Nodes of all alternatives, after all pieces."""
    starts: Indices
    lengths: Indices
    first: Indices
    """By variant: the first of its alternatives."""
    counts: Indices
    keys: Indices
    scopes: Indices
    instances: Indices
    after: Indices
    """A row for each number that follows another: its key, that one's key and count, least, most, each."""


class Expander:
    """Draws texts from tables: a row of nodes for all texts at once, in which variants give way to one of their
    alternatives, level by level, until only pieces are left. What is drawn depends on the seed of the text, and on the
    key of the variant, its paragraph or its position."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._pool: Nodes = tables.pool.astype(np.int32)
        self._heads = _take(self._pool, tables.starts)
        """The first node of each alternative."""
        self._is_longer = tables.lengths > 1
        self._keys = tables.keys.astype(np.min_scalar_type(int(tables.keys.max())))
        """In 16 bits if they fit: such numbers are sorted fastest."""
        self._key_draws = _product(tables.keys << 6)
        self._variant_draws = _product(np.arange(len(tables.counts)))
        self._is_held = tables.scopes != FREE
        """Of variants that are drawn once a text or paragraph; the latter's draws grow by 64 with each paragraph."""
        by_paragraph = np.where(tables.scopes == PARAGRAPH, 64, 0)
        self._held_draws = _product((tables.keys << 12) + 63 + by_paragraph)
        self._paragraph_draws = _product(by_paragraph)
        self._distances = (tables.instances[:, None] * _STRIDES % tables.counts[:, None]).ravel()
        """Of each variant and stride: from the first card of the hand to the one of its instance."""
        self._is_following = self._is_held & np.isin(tables.keys, tables.after[:, 0])
        self._following = Following(tables)

    def write(self, seeds: Sequence[int], first: int, count: int) -> list[Indices]:
        """For each seed the pieces of `count` texts from number `first` on, end to end."""
        tables = self._tables
        voices = np.array([seed & _ALL for seed in seeds], np.uint64).repeat(count)
        numbers = np.arange(first + 1, first + count + 1, dtype=np.uint64)
        texts = _mix(np.tile(numbers, len(seeds)) * _GOLDEN + voices)
        # Level 0: variant 0 is a text, its alternatives are rows of paragraphs.
        plans = _below(_mix(texts + self._key_draws[0] + _GOLDEN), tables.counts[0])
        lengths = _take(tables.lengths, plans)
        nodes = _take(self._pool, _runs(_take(tables.starts, plans), lengths))
        paragraphs, level = Paragraphs(lengths, texts, voices), 1
        while len(places := (nodes < 0).nonzero()[0]):
            variants, where = (~_take(nodes, places)).astype(np.int64), _take(paragraphs.owners(), places)
            chosen = self._choose(variants, places, where, paragraphs, level)
            chosen += _take(tables.first, variants)
            nodes = self._expanded(nodes, places, where, chosen, paragraphs)
            level += 1
        ends = paragraphs.text_ends()[count - 1 :: count].tolist()
        return [nodes[begin:end].astype(np.int64) for begin, end in pairwise([0, *ends])]

    def _expanded(
        self, nodes: Nodes, places: Indices, where: Indices, chosen: Indices, paragraphs: Paragraphs
    ) -> Nodes:
        """The row with the chosen alternatives in these places, `where` with their paragraphs. Unless everything is
        replaced, most have one node, which takes the place; what the others have besides is inserted."""
        tables = self._tables
        if len(places) == len(nodes):
            lengths = _take(tables.lengths, chosen)
            paragraphs.grow(where, lengths - 1)
            return _take(self._pool, _runs(_take(tables.starts, chosen), lengths))
        nodes[places] = _take(self._heads, chosen)
        longer = _take(self._is_longer, chosen).nonzero()[0]
        if not len(longer):
            return nodes
        chosen, places = _take(chosen, longer), _take(places, longer)
        more = _take(tables.lengths, chosen) - 1
        paragraphs.grow(_take(where, longer), more)
        inserted = (places + 1).repeat(more)
        inserted += np.arange(len(inserted))
        row = np.empty(len(nodes) + len(inserted), np.int32)
        is_old = np.ones(len(row), np.bool_)
        is_old[inserted] = False
        row[is_old] = nodes
        row[inserted] = _take(self._pool, _runs(_take(tables.starts, chosen) + 1, more))
        return row

    def _choose(
        self, variants: Indices, places: Indices, where: Indices, paragraphs: Paragraphs, level: int
    ) -> Indices:
        """Of each variant the number of an alternative. `where` has their paragraphs."""
        counts = _take(self._tables.counts, variants)
        seeds = paragraphs.seeds + _product(level + 1)
        if level < DEALT_LEVELS:
            draws = _take(self._key_draws, variants)
        else:
            seeds -= paragraphs.text_starts().view(np.uint64) * _OF_PLACE  # the place in the text, not in the row
            draws = places.view(np.uint64) * _OF_PLACE
        draws += _take(seeds, where)
        held = _take(self._is_held, variants).nonzero()[0]
        if len(held):
            held_variants, held_where = _take(variants, held), _take(where, held)
            held_draws = _take(self._paragraph_draws, held_variants)
            held_draws *= _take(paragraphs.numbers, held_where)
            held_draws += _take(self._held_draws, held_variants)
            held_draws += _take(paragraphs.seeds, held_where)
            draws[held] = held_draws
        hashes = _mix(draws)
        if level < DEALT_LEVELS:
            chosen = _deal(hashes, _occurrences(_take(paragraphs.text, where), _take(self._keys, variants)), counts)
        else:
            chosen = _nearest_of_three(hashes, counts)
            chosen += self._preferred(variants, counts, paragraphs, where)
            _wrap(chosen, counts)
        if len(held):
            chosen[held] = self._dealt_once(_take(hashes, held), held_variants, held_where, paragraphs)
        return chosen

    def _dealt_once(self, hashes: Hashes, variants: Indices, where: Indices, paragraphs: Paragraphs) -> Indices:
        """The same of variants that are drawn once a text or paragraph, which have their place in a hand."""
        counts = _take(self._tables.counts, variants)
        dealt = _below(hashes, counts)
        dealt += _take(self._distances, variants * len(_STRIDES) + (hashes & _7).view(np.int64))
        _wrap(dealt, counts)
        follow = _take(self._is_following, variants).nonzero()[0]
        if len(follow):
            dealt[follow] = self._following.numbers(_take(variants, follow), _take(where, follow), paragraphs)
        return dealt

    def _preferred(self, variants: Indices, counts: Indices, paragraphs: Paragraphs, where: Indices) -> Indices:
        """The alternative that the texts of a seed prefer, of each variant."""
        if paragraphs.voice is None or len(variants) < len(self._variant_draws):
            draws = _take(self._variant_draws, variants)
            draws ^= _take(paragraphs.voices, where)
            return _below(_mix(draws), counts)
        # One seed and a long text: each variant comes many times.
        return _take(_below(_mix(self._variant_draws ^ paragraphs.voice), self._tables.counts), variants)


class Following:
    """Numbers that follow others, counted from the least that they can be. Each is a sum of steps: the number that the
    others of its chain follow, the distance from there to the next, and so on."""

    def __init__(self, tables: Tables) -> None:
        after = {key: numbers for key, *numbers in tables.after.tolist()}
        self._chains = np.zeros(len(tables.keys), np.int64)
        """By variant."""
        chains = []
        for number, key in enumerate(after):
            self._chains[tables.keys == key] = number
            chain = []
            while key in after:
                parent, count, least, most, each = after[key]
                chain.append(((key << 12) + 62 + 64, 64 * each, most - least + 1, most * each))
                key = parent
            chains.append([*chain, ((key << 12) + 63, 0, count, 0)])
        steps = np.zeros((4, max(map(len, chains), default=0), len(chains)), np.int64)
        for number, chain in enumerate(chains):
            steps[:, : len(chain), number] = np.transpose(chain)
        self._steps = np.concatenate([_product(steps[:2]), steps[2:].view(np.uint64)])
        """Of each step: its draw, what each paragraph before adds to that, how many distances there are, and what each
        paragraph before adds to the distance."""

    def numbers(self, variants: Indices, where: Indices, paragraphs: Paragraphs) -> Indices:
        """One for each variant and its paragraph."""
        seeds, before = _take(paragraphs.seeds, where), _take(paragraphs.numbers, where)
        draws, more_draws, counts, more = self._steps.take(_take(self._chains, variants), axis=2, mode="clip")
        steps = _below(_mix(seeds + draws + before * more_draws), counts.view(np.int64))
        steps += (before * more).view(np.int64)
        numbers: Indices = steps.sum(0)
        return numbers


class Paragraphs:
    """Of each paragraph in a row of texts: its text, the seeds of that, and its number in it."""

    def __init__(self, counts: Indices, seeds: Hashes, voices: Hashes) -> None:
        """By text: its number of paragraphs, its seed, and the seed that it is one of several texts of."""
        ends = counts.cumsum()
        self.text = np.arange(len(counts)).repeat(counts)
        self.seeds, self.voices = _take(seeds, self.text), _take(voices, self.text)
        self.voice = voices[0] if (voices == voices[0]).all() else None
        """Of all texts, if they have one."""
        self._starts = np.arange(len(self.text) + 1)
        """The first node of each paragraph, and their number; `grow` follows an expansion."""
        self._firsts, self._ends = _take(ends - counts, self.text), ends
        """By paragraph the first of its text, and by text the end of its paragraphs."""
        self.numbers = (self._starts[:-1] - self._firsts).view(np.uint64)

    def grow(self, where: Indices, more: Indices) -> None:
        """After an expansion: which paragraphs have how many nodes more."""
        self._starts[1:] += np.bincount(where, more, len(self.text)).cumsum().astype(np.int64)

    def owners(self) -> Indices:
        """The paragraph of each node."""
        return np.arange(len(self.text)).repeat(self._starts[1:] - self._starts[:-1])

    def text_starts(self) -> Indices:
        """By paragraph: the first node of its text."""
        return _take(self._starts, self._firsts)

    def text_ends(self) -> Indices:
        """By text: the number of nodes up to its last one."""
        return _take(self._starts, self._ends)


# --- hashes and indices -------------------------------------------------------------------------
#
# A text has some hundred nodes and a long document fifty thousand: results are written in place where that saves an
# array, and a call of numpy takes as long as some hundred sums.


def _take(table: npt.NDArray[Any], indices: Indices) -> npt.NDArray[Any]:
    """`table[indices]` in half the time: for indices that are in bounds, as clipping is cheaper than checking."""
    return table.take(indices, mode="clip")


def _runs(starts: Indices, lengths: Indices) -> Indices:
    """The numbers from each start on, as many as its length, end to end."""
    runs: Indices = (starts - lengths.cumsum() + lengths).repeat(lengths)
    runs += np.arange(len(runs))
    return runs


def _product(numbers: Indices | int) -> Hashes:
    """Of a number in a draw: what it adds to the seed."""
    return np.asarray(numbers, np.int64).view(np.uint64) * _GOLDEN


def _mix(numbers: Hashes) -> Hashes:
    """A hash of each number (the finaliser of splitmix64)."""
    mixed = numbers >> _30
    mixed ^= numbers
    mixed *= _FIRST
    shifted = mixed >> _27
    mixed ^= shifted
    mixed *= _SECOND
    np.right_shift(mixed, _31, out=shifted)
    mixed ^= shifted
    return mixed


def _below(hashes: Hashes, counts: Indices | np.int64) -> Indices:
    draws: Indices = (hashes >> _33).view(np.int64)
    draws *= counts
    draws >>= 31
    return draws


def _nearest_of_three(hashes: Hashes, counts: Indices) -> Indices:
    """The least of three draws below `counts`."""
    least, other = hashes >> _33, hashes << _31
    other >>= _33
    np.minimum(least, other, out=least)
    np.multiply(hashes, _GOLDEN, out=other)
    other >>= _33
    np.minimum(least, other, out=least)
    nearest = least.view(np.int64)
    nearest *= counts
    nearest >>= 31
    return nearest


def _wrap(numbers: Indices, counts: Indices) -> None:
    """Makes numbers below twice their counts their remainders. As a number without sign, a difference below 0 is
    huge."""
    differences = (numbers - counts).view(np.uint64)
    np.minimum(numbers.view(np.uint64), differences, out=numbers.view(np.uint64))


def _deal(hashes: Hashes, nth: Indices, counts: Indices) -> Indices:
    """The nth of a hand: distinct for `counts` draws."""
    dealt = _below(hashes, counts)
    later = (nth > 0).nonzero()[0]
    distances = _take(_STRIDES, (_take(hashes, later) & _7).view(np.int64)) * _take(nth, later)
    dealt[later] = (_take(dealt, later) + distances) % _take(counts, later)
    return dealt


def _occurrences(texts: Indices, keys: Indices) -> Indices:
    """How often each key came before in its text; the texts are in order."""
    order = keys.argsort(kind="stable")
    ranked = (_take(texts, order) << 32) + _take(keys, order)
    numbers = np.arange(len(keys))
    begins = numbers.copy()
    begins[1:] *= ranked[1:] != ranked[:-1]
    nth = np.empty(len(keys), np.int64)
    nth[order] = numbers - np.maximum.accumulate(begins)
    return nth
