"""Generated text without end: prose, legal, medical, chat and code, every word of it written for Leadline.

    GeneratedText("prose").text(seed=7, characters=5000)

The grammars are the files beside this one, in the notation of `grammar.py`.

The phrases between the choices are the pieces: they are tokenised once, and a text is only an order of them. So a
document of 128k tokens costs some milliseconds, whatever the tokenizer, and none has a stretch in common with another.
Every joint is at white space, except where a name is glued to punctuation in code.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from leadline.core.files import cache_folder, read_cache, write_cache
from leadline.core.seeds import digest
from leadline.core.types import Filler, PieceBank
from leadline.text.generated.grammar import FREE, PARAGRAPH, Compiler, read_symbols

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Indices

    Hashes = npt.NDArray[np.uint64]

VERSION = 2
"""Raised when the same seed would give another text though the grammars are the same."""
NAMES = ("prose", "legal", "medical", "chat", "code")
DEALT_LEVELS = 3
"""Levels of expansion at which the patterns of a section are dealt like cards, so that none comes twice in a text
before all have come. Below are short phrases, which may."""
_STRIDES = np.array([10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079], np.int64)
"""Primes above the number of patterns of any section."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ALL = (1 << 64) - 1


class Nodes(NamedTuple):
    """A row of nodes, and of each the text and the paragraph that it belongs to."""

    nodes: Indices
    text: Indices
    paragraph: Indices


class Grammar:
    """A grammar in tables of numbers: its pieces, and the order of them in the text of any seed."""

    def __init__(self, name: str) -> None:
        self.name = name
        found = sorted((f for f in files(__package__).iterdir() if re.fullmatch(rf"{name}(_\w+)?\.txt", f.name)), key=str)
        self.source = "\n".join(file.read_text(encoding="utf-8") for file in found)
        self.digest = digest([VERSION, name, self.source])
        self.pieces_per_text = 250.0
        """Of the texts written last."""

    @cached_property
    def pieces(self) -> list[str]:
        return self._compiled[0]

    @cached_property
    def _tables(self) -> Tables:
        return self._compiled[1]

    @cached_property
    def _compiled(self) -> tuple[list[str], Tables]:
        """Compiled once and kept in the cache folder: that takes a second, and reading it a hundredth of one."""
        file = cache_folder() / "compiled" / f"{self.digest}.npz"
        saved = read_cache(file, lambda data: dict(np.load(io.BytesIO(data))))
        if saved is not None:
            return bytes(saved["pieces"]).decode().split("\0"), Tables(*(saved[name] for name in Tables._fields))
        made = Compiler(read_symbols(self.source)).compile("\n\n\n" if self.name == "code" else "\n\n")
        pieces, tables, data = list(made.pieces), _tables(made), io.BytesIO()
        np.savez(data, pieces=np.frombuffer("\0".join(pieces).encode(), np.uint8), **tables._asdict())
        write_cache(file, data.getvalue())
        return pieces, tables

    def write(self, seed: int, first: int, count: int) -> Indices:
        """The pieces of `count` texts from number `first` on, end to end. The texts of a seed have one voice: which
        words are preferred of those that can stand for each other."""
        seeds = _mix(np.arange(first + 1, first + count + 1, dtype=np.uint64) * _GOLDEN + np.uint64(seed & _ALL))
        row = Nodes(np.full(count, -1, np.int64), np.arange(count), np.zeros(count, np.int64))
        voice, level = self._tables.voice(seed), 0
        while (row.nodes < 0).any():
            row = self._tables.expand(row, seeds, voice, level)
            level += 1
        return row.nodes


class Tables(NamedTuple):
    """Of each variant: its alternatives, and how one is chosen. Of each alternative: its nodes."""

    pool: Indices
    """Nodes of all alternatives, after all pieces: a piece stands for itself."""
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

    def voice(self, seed: int) -> Indices:
        """Of each variant the alternative that the texts of a seed prefer."""
        drawn = _mix(np.arange(len(self.counts), dtype=np.uint64) * _GOLDEN ^ np.uint64(seed & _ALL))
        return _below(drawn, self.counts)

    def expand(self, row: Nodes, seeds: Hashes, voice: Indices, level: int) -> Nodes:
        """The row with one alternative in place of every variant."""
        places = np.flatnonzero(row.nodes < 0)
        variants = ~row.nodes[places]
        begins = np.searchsorted(row.text, np.arange(len(seeds)))
        chosen = self.first[variants] + self._choose(variants, places, row, seeds, voice, level, begins)
        starts, lengths = row.nodes.copy(), np.ones(len(row.nodes), np.int64)
        starts[places], lengths[places] = self.starts[chosen], self.lengths[chosen]
        ends = np.cumsum(lengths)
        within = np.repeat(starts - (ends - lengths), lengths)
        within += np.arange(len(within))
        text = np.repeat(row.text, lengths)
        if level == 0:
            paragraph = np.arange(len(text)) - np.searchsorted(text, text)
        else:
            paragraph = np.repeat(row.paragraph, lengths)
        return Nodes(self.pool[within], text, paragraph)

    def _choose(
        self, variants: Indices, places: Indices, row: Nodes, seeds: Hashes, voice: Indices, level: int, begins: Indices
    ) -> Indices:
        text, counts = row.text[places], self.counts[variants]
        own = seeds[text]
        if level < DEALT_LEVELS:
            keys = self.keys[variants]
            nth = _occurrences((text << 32) + keys)
            free = _deal(_mix(own + (keys * 64 + level + 1).astype(np.uint64) * _GOLDEN), nth, counts)
        else:
            position = places - begins[text]
            drawn = _mix(own + (position * 64 + level + 1).astype(np.uint64) * _GOLDEN)
            nearest = np.minimum(_below(drawn, counts), _below(drawn << np.uint64(31), counts))
            nearest = np.minimum(nearest, _below(drawn * _GOLDEN, counts))
            free = nearest + voice[variants]
            free -= counts * (free >= counts)  # both are below `counts`
        scopes = self.scopes[variants]
        held = np.flatnonzero(scopes != FREE)
        keys, own = self.keys[variants[held]], own[held]
        paragraph = row.paragraph[places[held]]
        drawn_for = np.where(scopes[held] == PARAGRAPH, paragraph + 1, 0)
        free[held] = self._held(keys, own, drawn_for, self.instances[variants[held]], counts[held])
        for key in self.after[:, 0].tolist():
            these = np.flatnonzero(keys == key)
            if len(these):
                free[held[these]] = self._follow(key, own[these], paragraph[these])
        return free

    @staticmethod
    def _held(keys: Indices, own: Hashes, paragraph: Indices, instances: Indices, counts: Indices) -> Indices:
        """What is drawn once a text or paragraph, for each key; several instances of a key are distinct."""
        return _deal(_mix(own + (keys * 4096 + paragraph * 64 + 63).astype(np.uint64) * _GOLDEN), instances, counts)

    def _follow(self, key: int, own: Hashes, paragraph: Indices) -> Indices:
        """A number that follows another, counted from the least that it can be."""
        [[_, parent, count, least, most, each]] = self.after[self.after[:, 0] == key].tolist()
        none, many = np.zeros(len(own), np.int64), np.full(len(own), count)
        if parent in self.after[:, 0]:
            base = self._follow(parent, own, paragraph)
        else:
            base = self._held(np.full(len(own), parent), own, none, none, many)
        when = paragraph if each else none
        drawn = _below(_mix(own + (key * 4096 + (when + 1) * 64 + 62).astype(np.uint64) * _GOLDEN), none + most - least + 1)
        number: Indices = base + drawn + when * most
        return number


def _tables(made: Compiler) -> Tables:
    numbers = {key: n for n, key in enumerate(dict.fromkeys(s.key for s in [*made.symbols.values(), *made.of_variant]))}
    flat = [nodes for alternatives in made.alternatives for nodes in alternatives]
    lengths = np.array([len(nodes) for nodes in flat], np.int64)
    counts = np.array([len(alternatives) for alternatives in made.alternatives], np.int64)
    pool = np.concatenate([np.arange(len(made.pieces)), np.array([n for nodes in flat for n in nodes], np.int64)])
    after = []
    for symbol in made.symbols.values():
        if symbol.after:
            parent, least, most, each = symbol.after
            base = made.symbols[parent]
            after.append([numbers[symbol.key], numbers[base.key], len(base.patterns), least, most, int(each)])
    return Tables(
        pool, len(made.pieces) + np.cumsum(lengths) - lengths, lengths, np.cumsum(counts) - counts, counts,
        np.array([numbers[s.key] for s in made.of_variant]), np.array([s.scope for s in made.of_variant]),
        np.array([s.instance for s in made.of_variant]), np.array(after, np.int64).reshape(-1, 6),
    )  # fmt: skip


def _mix(numbers: Hashes) -> Hashes:
    """A hash of each number (the finaliser of splitmix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def _below(hashes: Hashes, counts: Indices) -> Indices:
    return ((hashes >> np.uint64(33)).astype(np.int64) * counts) >> 31


def _deal(hashes: Hashes, nth: Indices, counts: Indices) -> Indices:
    """The nth of a hand: distinct for `counts` draws."""
    dealt: Indices = (_below(hashes, counts) + nth * _STRIDES[(hashes & np.uint64(7)).astype(np.int64)]) % counts
    return dealt


def _occurrences(keys: Indices) -> Indices:
    """How often each number came before."""
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    begins = np.searchsorted(ranked, ranked)
    nth = np.empty(len(keys), np.int64)
    nth[order] = np.arange(len(keys)) - begins
    return nth


# --- as haystacks -------------------------------------------------------------------------------


class Stream:
    """The haystack of one document: texts of a seed, one after the other, as many as are needed."""

    prefix_stable = True
    limit = None

    def __init__(self, bank: PieceBank, made: Grammar, seed: int) -> None:
        self.bank = bank
        self._grammar = made
        self._seed = seed
        self._order = np.empty(0, np.int64)
        self._texts = 0

    def arrange(self, count: int) -> Indices:
        while len(self._order) < count:
            more = int((count - len(self._order)) / self._grammar.pieces_per_text) + 1
            self._order = np.concatenate([self._order, self._grammar.write(self._seed, self._texts, more)])
            self._texts += more
            self._grammar.pieces_per_text = len(self._order) / self._texts
        return self._order[:count]


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
        """The phrases. In code a fact is a line of its own, elsewhere a sentence."""
        code = self.name == "code"
        end = re.compile(r"\n\n$" if self.by_paragraph else r"\n$" if code else r"[.!?][\"')]*\n*$|\n$")
        pieces = self._grammar.pieces
        closes = [bool(end.search(piece)) for piece in pieces]
        return PieceBank(self.name, self.digest, pieces, False, closes, "\n" if code else "", alike=True)

    def filler(self, *, seed: int) -> Filler:
        return Stream(self.bank, self._grammar, seed)

    def text(self, seed: int, characters: int) -> str:
        """Whole texts of a seed, of at least so many characters together."""
        written, number = "", 0
        while len(written) < characters:
            order = self._grammar.write(seed, number, 8)
            written += "".join([self.bank.pieces[i] for i in order.tolist()])
            number += 8
        return written

    @property
    def _grammar(self) -> Grammar:
        return _grammar(self.name)


@cache
def _grammar(name: str) -> Grammar:
    return Grammar(name)
