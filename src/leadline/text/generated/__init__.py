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
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np

from leadline.core.drafts import Filler, PieceBank
from leadline.core.files import cache_folder, read_cache, write_cache
from leadline.core.seeds import digest
from leadline.text.generated.expander import Expander, Tables
from leadline.text.generated.grammar import Compiler, read_symbols

if TYPE_CHECKING:
    from leadline.core.types import Indices

VERSION = 2
"""Raised when the same seed would give another text though the grammars are the same."""
NAMES = ("prose", "legal", "medical", "reports", "chat", "code", "agent", "german", "french", "spanish")
LINES = ("code", "agent")
"""Texts in which a fact is a line of its own."""
SAFE_JOINTS = ("agent",)
"""Texts whose pieces are parted where tokenizers split, so that facts come before lines without indentation only."""
SAFETY = 1.01
"""Texts written for each one that is expected to be needed: a second try costs more than a few too many."""
FEW_TEXTS = 4
"""Texts of one document up to which those of several are written together."""


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
