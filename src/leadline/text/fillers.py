"""The haystacks of single documents: a stretch of a text, pages of a mixture of texts, and shuffled sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.contracts import Source
from leadline.core.drafts import Filler, PieceBank
from leadline.core.errors import SourceError
from leadline.core.seeds import bulk_rng, digest, rng, seed_of
from leadline.core.types import Cluster

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Indices


# --- one text


@dataclass(frozen=True, slots=True)
class TextFiller:
    """A text from a drawn position on, wrapping around at its end; used more than once only with `repeat`."""

    bank: PieceBank
    start: int
    repeat: bool
    prefix_stable: bool = True

    @property
    def limit(self) -> int | None:
        return None if self.repeat else len(self.bank.pieces)

    def arrange(self, count: int) -> Indices:
        size = len(self.bank.pieces)
        if not self.repeat:
            count = min(count, size)
        return (np.arange(count, dtype=np.int64) + self.start) % size


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch(TextFiller):
    """The stretch of a text for one haystack of at most `tokens` tokens. Its beginning is known when the text has been
    counted: the text is divided into blocks of `tokens` tokens, and each document of a task and length has another
    block until all are used."""

    cluster: Cluster
    seed: int
    tokens: int
    beginnings: Indices
    """Pieces that may begin a document."""

    def placed(self, ends: Indices, depths: Sequence[float], added: Sequence[float] = ()) -> TextFiller:
        """`ends` has the tokens before each piece and in all, `depths` are those the run began with and `added` the
        later ones, whose blocks are counted from the other end so that no earlier document changes."""
        cluster, size = self.cluster, int(ends[-1])
        blocks = max(size // self.tokens, 1)
        if cluster.depth in added:  # numbered so that neither more samples nor more depths change the number
            index = added.index(cluster.depth)
            diagonal = cluster.sample + index
            number = blocks - 1 - (diagonal * (diagonal + 1) // 2 + index)
        elif cluster.depth in depths:
            number = cluster.sample * len(depths) + depths.index(cluster.depth)
        else:  # one for all depths, or a document of no run
            number = cluster.sample + int((cluster.depth or 0.0) * blocks * 10 / 11)
        block = float(_block_order(seed_of(self.seed, "stretches", *cluster.group), blocks)[number % blocks])
        if not 0 <= number < blocks:  # the text is used up
            block += rng(self.seed, "stretch", *cluster.coordinates).random()
        # The first beginning with as many tokens before it. Searched for in two steps: both arrays may be long.
        at = int(self.beginnings.searchsorted(ends.searchsorted(block * size / blocks)))
        return TextFiller(self.bank, int(self.beginnings[at % len(self.beginnings)]), self.repeat)


@lru_cache(maxsize=256)
def _block_order(seed: int, blocks: int) -> Indices:
    return bulk_rng(seed, "blocks").permutation(blocks)


# --- mixtures: whole pages of each text in turn, in fixed proportions of characters

PAGE_CHARACTERS = 1500
"""A page ends with the first paragraph or block of code that ends after this number of characters."""
FIRST_PIECES = 256


@dataclass(frozen=True)
class Mixture:
    """Several sources in fixed proportions of characters."""

    name: str
    parts: tuple[tuple[float, Source], ...]

    @cached_property
    def _banks(self) -> list[PieceBank]:
        fillers = [part.filler(seed=0) for _, part in self.parts]
        for filler in fillers:
            if not filler.prefix_stable:
                raise SourceError(
                    f"{filler.bank.name!r} cannot be part of a mixture",
                    where=self.name,
                    fix="mix texts, files and folders",
                )
        return [filler.bank for filler in fillers]

    @cached_property
    def bank(self) -> PieceBank:
        """The pieces of all parts, one part after the other."""
        banks = self._banks
        pieces = [piece for bank in banks for piece in bank.pieces]
        ends_sentence = [closed for bank in banks for closed in (bank.ends_sentence or [True] * len(bank.pieces))]
        return PieceBank(
            self.name,
            digest([self.name, *(bank.digest for bank in banks)]),
            pieces,
            contiguous=all(bank.contiguous for bank in banks),
            ends_sentence=ends_sentence if any(bank.ends_sentence is not None for bank in banks) else None,
        )

    @cached_property
    def digest(self) -> str:
        """Of the texts."""
        return self.bank.digest

    def filler(self, *, seed: int) -> Filler:
        fillers = [part.filler(seed=seed_of(seed, "mixture", n)) for n, (_, part) in enumerate(self.parts)]
        return MixtureFiller(self, tuple(fillers))

    @cached_property
    def sizes(self) -> Indices:
        return np.array([len(piece) for piece in self.bank.pieces], np.int64)

    @cached_property
    def ends_paragraph(self) -> npt.NDArray[np.bool_]:
        ends_sentence = self.bank.ends_sentence
        return np.array(
            [
                piece.endswith("\n") and (ends_sentence is None or ends_sentence[i])
                for i, piece in enumerate(self.bank.pieces)
            ],
            np.bool_,
        )

    @cached_property
    def begins_paragraph(self) -> npt.NDArray[np.bool_]:
        return np.array([not piece[:1].isspace() for piece in self.bank.pieces], np.bool_)

    @cached_property
    def firsts(self) -> list[int]:
        """The first piece of each part in the bank."""
        return [0, *np.cumsum([len(bank.pieces) for bank in self._banks]).tolist()]


@dataclass(frozen=True, slots=True)
class MixtureFiller:
    """The haystack of one document: the next page is from the part that is furthest behind its share."""

    mixture: Mixture
    parts: tuple[Filler, ...]
    prefix_stable: bool = field(default=True, init=False)

    @property
    def bank(self) -> PieceBank:
        return self.mixture.bank

    @property
    def limit(self) -> int | None:
        return None if all(part.limit is None for part in self.parts) else len(self.arrange(len(self.bank.pieces)))

    def arrange(self, count: int) -> Indices:
        taken, known = max(FIRST_PIECES, count), -1
        while True:
            order = self._mixed(taken)
            is_all = len(order) == known and taken > 2 * len(self.bank.pieces)  # a page may be as long as its text
            if len(order) >= count or is_all:
                return order[:count]
            taken, known = 2 * taken, len(order)

    def _mixed(self, taken: int) -> Indices:
        """The pages in the first `taken` pieces of each part, as far as all parts have some."""
        pages: list[tuple[float, int, Indices]] = []
        reach = []
        for number, (part, (weight, _)) in enumerate(zip(self.parts, self.mixture.parts, strict=True)):
            order = part.arrange(taken) + self.mixture.firsts[number]
            size = 0
            for page in self._pages(order, complete=len(order) < taken):
                pages.append((size / weight, number, page))
                size += int(self.mixture.sizes[page].sum())
            reach.append(size / weight)
        end = min(reach)
        kept = sorted(((at, number, page) for at, number, page in pages if at < end), key=lambda drawn: drawn[:2])
        return np.concatenate([page for _, _, page in kept]) if kept else np.empty(0, np.int64)

    def _pages(self, order: Indices, *, complete: bool) -> Sequence[Indices]:
        """Pages of consecutive pieces, from one paragraph or block of code to the next; the last only of a text that is
        complete."""
        mixture, pages, first = self.mixture, [], 0
        reach = np.cumsum(mixture.sizes[order])
        ends = np.flatnonzero(mixture.ends_paragraph[order[:-1]] & mixture.begins_paragraph[order[1:]]) + 1
        if complete:
            ends = np.append(ends, len(order))
        while first < len(order):
            wanted = (int(reach[first - 1]) if first else 0) + PAGE_CHARACTERS
            later = ends[np.searchsorted(ends, int(np.searchsorted(reach, wanted)) + 1) :]
            if not len(later):
                break
            pages.append(order[first : later[0]])
            first = int(later[0])
        return pages


# --- shuffled: how much does coherence matter?


@dataclass(frozen=True)
class ShuffledFiller:
    """The sentences of another filler, as many as a document takes, in an order drawn from the seed.

    Chroma's report on context rot (2025) finds that models retrieve better from shuffled text than from coherent text.
    A sentence changes places only with one of the same kind (beginning, middle or end of a paragraph), so that the
    paragraphs keep their shape and nothing but the order differs.
    """

    text: Filler
    seed: int
    prefix_stable: bool = False

    @property
    def bank(self) -> PieceBank:
        return self.text.bank

    @property
    def limit(self) -> int | None:
        return self.text.limit

    def placed(self, ends: Indices, depths: Sequence[float], added: Sequence[float] = ()) -> ShuffledFiller:
        """With the stretch of the text that this document has."""
        text = self.text
        return replace(self, text=text.placed(ends, depths, added)) if isinstance(text, Stretch) else self

    def arrange(self, count: int) -> Indices:
        order = self.text.arrange(count)
        ends_sentence = self._closes[order]
        if not ends_sentence.any():
            return order
        ends = np.flatnonzero(ends_sentence) + 1
        starts = np.concatenate(([0], ends[:-1]))
        kinds = self._shapes[order[starts]] * (self._shapes.max() + 1) + self._shapes[order[ends - 1]]
        moved = np.arange(len(starts))
        draw = bulk_rng(self.seed, "shuffled")
        for kind in np.unique(kinds).tolist():
            these = np.flatnonzero(kinds == kind)
            moved[these] = these[draw.permutation(len(these))]
        lengths = (ends - starts)[moved]
        begins = np.repeat(starts[moved] - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
        return np.concatenate([order[begins + np.arange(int(lengths.sum()))], order[ends[-1] :]])

    @cached_property
    def _closes(self) -> npt.NDArray[np.bool_]:
        closes, pieces = self.bank.ends_sentence, self.bank.pieces
        return np.ones(len(pieces), np.bool_) if closes is None else np.array(closes, np.bool_)

    @cached_property
    def _shapes(self) -> Indices:
        """For each piece, a number for the white space that it begins and ends with."""
        spaces = [(p[: len(p) - len(p.lstrip())], p[len(p.rstrip()) :]) for p in self.bank.pieces]
        numbers = {space: number for number, space in enumerate(dict.fromkeys(spaces))}
        return np.array([numbers[space] for space in spaces], np.int64)
