"""Generated text without end: prose, legal, medical, reports, chat, code, sessions of agents, and prose in three
more languages, every word of it written for Leadline.

    GeneratedText("prose").text(seed=7, characters=5000)

The grammars are the files beside this one, in the notation of `grammar.py`.

The phrases between the choices are the pieces: they are tokenised once, and a text is only an order of them. So a
document of 128k tokens costs some milliseconds, whatever the tokenizer, and none has a stretch in common with another.
Every joint is at white space, except where a name is glued to punctuation in code.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

import numpy as np

from leadline.core.drafts import Filler, PieceBank
from leadline.core.files import cache_folder, read_cache, write_cache
from leadline.core.seeds import digest
from leadline.text.generated.grammar import FREE, PARAGRAPH, Compiler, read_symbols

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Indices

    Hashes = npt.NDArray[np.uint64]

VERSION = 2
"""Raised when the same seed would give another text though the grammars are the same."""
NAMES = ("prose", "legal", "medical", "reports", "chat", "code", "agent", "german", "french", "spanish")
LINES = ("code", "agent")
"""Texts in which a fact is a line of its own."""
SAFE_JOINTS = ("agent",)
"""Texts whose pieces are parted where tokenizers split, so that facts come before lines without indentation only."""
DEALT_LEVELS = 3
"""Levels of expansion at which the patterns of a section are dealt like cards, so that none comes twice in a text
before all have come. Below are short phrases, which may."""
SAFETY = 1.01
"""Texts written for each one that is expected to be needed: a second try costs more than a few too many."""
FEW_TEXTS = 4
"""Texts of one document up to which those of several are written together."""
_STRIDES = np.array([10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079], np.int64)
"""Primes above the number of patterns of any section."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ALL = (1 << 64) - 1
_7, _27, _30, _31, _33 = (np.uint64(n) for n in (7, 27, 30, 31, 33))
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Grammar:
    """A grammar in tables of numbers: its pieces, and the order of them in the text of any seed."""

    def __init__(self, name: str) -> None:
        self.name = name
        source_files = sorted(
            (f for f in files(__package__).iterdir() if re.fullmatch(rf"{name}(_\w+)?\.txt", f.name)), key=str
        )
        self.source = "\n".join(file.read_text(encoding="utf-8") for file in source_files)
        self.digest = digest([VERSION, name, self.source])
        self.pieces_per_text = 250.0
        """Of the texts written last."""
        self.waiting: WeakSet[GeneratedFiller] = WeakSet()
        """Streams without a text yet."""
        self.turn = threading.RLock()

    @property
    def pieces(self) -> list[str]:
        return self._compiled[0]

    @cached_property
    def _compiled(self) -> tuple[list[str], Tables]:
        """Compiled once and kept in the cache folder: that takes a second, and reading it a hundredth of one."""
        file = cache_folder() / "compiled" / f"{self.digest}.npz"
        saved = read_cache(file, lambda data: dict(np.load(io.BytesIO(data))))
        if saved is not None:
            return bytes(saved["pieces"]).decode().split("\0"), Tables(*(saved[name] for name in Tables._fields))
        compiler = Compiler(read_symbols(self.source), self.name in SAFE_JOINTS)
        compiler.compile("\n\n\n" if self.name == "code" else "\n\n")
        pieces, tables, data = list(compiler.pieces), _tables(compiler), io.BytesIO()
        np.savez(data, pieces=np.frombuffer("\0".join(pieces).encode(), np.uint8), **tables._asdict())
        write_cache(file, data.getvalue())
        return pieces, tables

    @cached_property
    def _expander(self) -> Expander:
        return Expander(self._compiled[1])

    def write(self, seeds: Sequence[int], first: int, count: int) -> list[Indices]:
        """For each seed the pieces of `count` texts from number `first` on, end to end. Many seeds take little longer
        than one. The texts of a seed have one voice: which words are preferred of those that can stand for each
        other."""
        return self._expander.write(seeds, first, count)


class Tables(NamedTuple):
    """Of each variant: its alternatives, and how one is chosen. Of each alternative: its nodes."""

    pool: Indices
    """Nodes of all alternatives, after all pieces: a piece is its own expansion."""
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
        self._is_held = tables.scopes != FREE
        self._held_draws = (tables.keys << 12) + 63
        """Of variants that are drawn once a text or paragraph; of the latter with the paragraph added, times 64."""
        self._paragraph_draws = np.where(tables.scopes == PARAGRAPH, 64, 0)
        self._after = {key: numbers for key, *numbers in tables.after.tolist()}
        self._follows = self._is_held & np.isin(tables.keys, tables.after[:, 0])

    def write(self, seeds: Sequence[int], first: int, count: int) -> list[Indices]:
        """For each seed the pieces of `count` texts from number `first` on, end to end."""
        tables, texts = self._tables, len(seeds) * count
        voices = np.array([seed & _ALL for seed in seeds], np.uint64).repeat(count)
        numbers = np.arange(first + 1, first + count + 1, dtype=np.uint64)
        owner = np.arange(texts)
        paragraphs = Paragraphs(owner, _mix(np.tile(numbers, len(seeds)) * _GOLDEN + voices), voices)
        nodes, level = np.full(texts, -1), 0
        while len(places := (nodes < 0).nonzero()[0]):
            variants = ~nodes[places]
            chosen = tables.first[variants] + self._choose(variants, places, owner, paragraphs, level)
            lengths = np.ones(len(nodes), np.int64)
            nodes[places], lengths[places] = tables.starts[chosen], tables.lengths[chosen]
            ends = lengths.cumsum()
            within = (nodes - ends + lengths).repeat(lengths)
            within += np.arange(len(within))
            nodes = tables.pool[within]
            if level == 0:
                paragraphs, owner = Paragraphs(owner.repeat(lengths), paragraphs.seeds, voices), np.arange(len(nodes))
            else:
                paragraphs.grow(ends)
                owner = paragraphs.owners()
            level += 1
        return np.split(nodes, paragraphs.starts[paragraphs.begins[count::count]])

    def _choose(
        self, variants: Indices, places: Indices, owner: Indices, paragraphs: Paragraphs, level: int
    ) -> Indices:
        """Of each variant the number of an alternative."""
        tables, where = self._tables, owner[places]
        counts, own = tables.counts[variants], paragraphs.seed[where]
        held = self._is_held[variants].nonzero()[0]
        held_variants = variants[held]
        instances = tables.instances[held_variants]
        if level < DEALT_LEVELS:
            keys = tables.keys[variants]
            nth = _occurrences((paragraphs.text[where] << 32) + keys)
            nth[held] = instances
            draws = (keys << 6) + (level + 1)
        else:
            draws = ((places - paragraphs.text_starts[where]) << 6) + (level + 1)
        numbers = paragraphs.number[where[held]]
        draws[held] = self._held_draws[held_variants] + self._paragraph_draws[held_variants] * (numbers + 1)
        hashes = _mix(own + draws.view(np.uint64) * _GOLDEN)
        if level < DEALT_LEVELS:
            chosen = _deal(hashes, nth, counts)
        else:
            chosen = _nearest_of_three(hashes, counts) + self._preferred(variants, counts, paragraphs, where)
            chosen -= counts * (chosen >= counts)  # both are below `counts`
            chosen[held] = _deal(hashes[held], instances, counts[held])
        follow = held[self._follows[held_variants]]
        if len(follow):
            keys = tables.keys[variants[follow]]
            for key in set(keys.tolist()):
                these = follow[keys == key]
                chosen[these] = self._following(key, paragraphs)[where[these]]
        return chosen

    def _preferred(self, variants: Indices, counts: Indices, paragraphs: Paragraphs, where: Indices) -> Indices:
        """The alternative that the texts of a seed prefer, of each variant."""
        voices = paragraphs.voices
        if len(variants) < len(self._tables.counts) or (voices != voices[0]).any():
            return _below(_mix(variants.view(np.uint64) * _GOLDEN ^ voices[paragraphs.text[where]]), counts)
        every = np.arange(len(self._tables.counts))  # one seed and a long text: each variant comes many times
        return _below(_mix(every.view(np.uint64) * _GOLDEN ^ voices[0]), self._tables.counts)[variants]

    def _following(self, key: int, paragraphs: Paragraphs) -> Indices:
        """For each paragraph a number that follows another, counted from the least that it can be."""
        if key not in paragraphs.following:
            parent, count, least, most, each = self._after[key]
            if parent in self._after:
                base = self._following(parent, paragraphs)
            else:
                base = _below(_mix(paragraphs.seed + _product(parent * 4096 + 63)), count)
            number = paragraphs.number if each else np.zeros(len(base), np.int64)
            drawn = _mix(paragraphs.seed + (key * 4096 + (number + 1) * 64 + 62).view(np.uint64) * _GOLDEN)
            paragraphs.following[key] = base + _below(drawn, most - least + 1) + number * most
        return paragraphs.following[key]


class Paragraphs:
    """Of each paragraph in a row of texts: its text, the seed of that, and its number in it. Before the first
    expansion each text is one paragraph."""

    def __init__(self, text: Indices, seeds: Hashes, voices: Hashes) -> None:
        self.seeds = seeds
        """By text."""
        self.voices = voices
        """By text: the seed that it is one of several texts of."""
        self.text = text
        self.seed = seeds[text]
        self.begins = text.searchsorted(np.arange(len(seeds)))
        """By text: the first of its paragraphs."""
        self.number = np.arange(len(text)) - self.begins[text]
        self.starts = np.arange(len(text) + 1)
        """The first node of each paragraph, and their number; `grow` follows an expansion."""
        self.following: dict[int, Indices] = {}
        """By key: the numbers that follow others."""

    def grow(self, ends: Indices) -> None:
        """After an expansion; `ends` has the nodes up to each node's last one."""
        self.starts = np.where(self.starts, ends[self.starts - 1], 0)

    def owners(self) -> Indices:
        """The paragraph of each node."""
        return np.arange(len(self.text)).repeat(np.diff(self.starts))

    @property
    def text_starts(self) -> Indices:
        """By paragraph: the first node of its text."""
        first: Indices = self.starts[self.begins]
        return first[self.text]


def _tables(compiler: Compiler) -> Tables:
    numbers = {key: n for n, key in enumerate(dict.fromkeys(s.key for s in [*compiler.symbols.values(), *compiler.of_variant]))}
    flat = [nodes for alternatives in compiler.alternatives for nodes in alternatives]
    lengths = np.array([len(nodes) for nodes in flat], np.int64)
    counts = np.array([len(alternatives) for alternatives in compiler.alternatives], np.int64)
    pool = np.concatenate([np.arange(len(compiler.pieces)), np.array([n for nodes in flat for n in nodes], np.int64)])
    after = []
    for symbol in compiler.symbols.values():
        if symbol.after:
            parent, least, most, each = symbol.after
            base = compiler.symbols[parent]
            after.append([numbers[symbol.key], numbers[base.key], len(base.patterns), least, most, int(each)])
    return Tables(
        pool, len(compiler.pieces) + np.cumsum(lengths) - lengths, lengths, np.cumsum(counts) - counts, counts,
        np.array([numbers[s.key] for s in compiler.of_variant]), np.array([s.scope for s in compiler.of_variant]),
        np.array([s.instance for s in compiler.of_variant]), np.array(after, np.int64).reshape(-1, 6),
    )  # fmt: skip


def _mix(numbers: Hashes) -> Hashes:
    """A hash of each number (the finaliser of splitmix64)."""
    numbers = numbers ^ (numbers >> _30)
    numbers *= _FIRST
    numbers ^= numbers >> _27
    numbers *= _SECOND
    numbers ^= numbers >> _31
    return numbers


def _product(number: int) -> np.uint64:
    return np.uint64(number * int(_GOLDEN) & _ALL)


def _below(hashes: Hashes, counts: Indices | int) -> Indices:
    return ((hashes >> _33).view(np.int64) * counts) >> 31


def _nearest_of_three(hashes: Hashes, counts: Indices) -> Indices:
    """The least of three draws below `counts`."""
    least = np.minimum(hashes >> _33, (hashes << _31) >> _33)
    least = np.minimum(least, (hashes * _GOLDEN) >> _33)
    nearest: Indices = (least.view(np.int64) * counts) >> 31
    return nearest


def _deal(hashes: Hashes, nth: Indices, counts: Indices) -> Indices:
    """The nth of a hand: distinct for `counts` draws."""
    dealt = _below(hashes, counts)
    later = nth.nonzero()[0]
    strides = _STRIDES[(hashes[later] & _7).view(np.int64)]
    dealt[later] = (dealt[later] + nth[later] * strides) % counts[later]
    return dealt


def _occurrences(keys: Indices) -> Indices:
    """How often each number came before."""
    order = keys.argsort(kind="stable")
    ranked = keys[order]
    begins = ranked.searchsorted(ranked)
    nth = np.empty(len(keys), np.int64)
    nth[order] = np.arange(len(keys)) - begins
    return nth


# --- as haystacks -------------------------------------------------------------------------------


class GeneratedFiller:
    """The haystack of one document: texts of a seed, one after the other, as many as are needed.

    The first texts of short documents are written together with those of other streams that wait for theirs.
    """

    prefix_stable = True
    limit = None

    def __init__(self, bank: PieceBank, grammar: Grammar, seed: int) -> None:
        self.bank = bank
        self._grammar = grammar
        self._seed = seed
        self._order = np.empty(0, np.int64)
        self._texts = 0
        with grammar.turn:
            grammar.waiting.add(self)

    def arrange(self, count: int) -> Indices:
        with self._grammar.turn:
            while len(self._order) < count:
                more = int(SAFETY * (count - len(self._order)) / self._grammar.pieces_per_text) + 1
                if self._texts == 0 and more <= FEW_TEXTS:
                    self._write_waiting(more)
                else:
                    self._add(self._grammar.write([self._seed], self._texts, more)[0], more)
                self._grammar.pieces_per_text = len(self._order) / self._texts
        return self._order[:count]

    def _write_waiting(self, count: int) -> None:
        """Writes the first texts of this stream and of all that have none yet."""
        streams = list({self, *self._grammar.waiting})
        orders = self._grammar.write([stream._seed for stream in streams], 0, count)
        for stream, order in zip(streams, orders, strict=True):
            stream._add(order, count)

    def _add(self, order: Indices, texts: int) -> None:
        self._order = np.concatenate([self._order, order])
        self._texts += texts
        self._grammar.waiting.discard(self)


@dataclass(frozen=True)
class GeneratedText:
    """A source of generated text. It has no end, and no two documents have a stretch of it in common."""

    name: str
    by_paragraph: bool = False
    """Whether facts are placed between paragraphs only."""

    @property
    def digest(self) -> str:
        return digest([self._grammar.digest, "paragraph"]) if self.by_paragraph else self._grammar.digest

    @cached_property
    def bank(self) -> PieceBank:
        """The phrases. In code and sessions a fact is a line of its own, elsewhere a sentence."""
        lines = self.name in LINES
        end = re.compile(r"\n\n$" if self.by_paragraph else r"\n$" if lines else r"[.!?][\"')]*\n*$|\n$")
        pieces = self._grammar.pieces
        closes = [bool(end.search(piece)) for piece in pieces]
        return PieceBank(self.name, self.digest, pieces, False, closes, "\n" if lines else "", uniform_joints=True)

    def filler(self, *, seed: int) -> Filler:
        return GeneratedFiller(self.bank, self._grammar, seed)

    def text(self, seed: int, characters: int) -> str:
        """Whole texts of a seed, with at least this number of characters together."""
        written, number = "", 0
        while len(written) < characters:
            [order] = self._grammar.write([seed], number, 8)
            written += "".join([self.bank.pieces[i] for i in order.tolist()])
            number += 8
        return written

    @property
    def _grammar(self) -> Grammar:
        return _grammar(self.name)


@cache
def _grammar(name: str) -> Grammar:
    return Grammar(name)
