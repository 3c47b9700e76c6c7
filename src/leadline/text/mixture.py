"""Mixtures of haystacks: whole pages of each text in turn, in fixed proportions of characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.contracts import Source
from leadline.core.drafts import Filler, PieceBank
from leadline.core.errors import SourceError
from leadline.core.seeds import digest, seed_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Indices

PAGE_CHARACTERS = 1500
"""A page ends with the first paragraph or block of code that ends after so many characters."""
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
        closes = [closed for bank in banks for closed in (bank.closes or [True] * len(bank.pieces))]
        return PieceBank(
            self.name,
            digest([self.name, *(bank.digest for bank in banks)]),
            pieces,
            contiguous=all(bank.contiguous for bank in banks),
            closes=closes if any(bank.closes is not None for bank in banks) else None,
        )

    @property
    def digest(self) -> str:
        return self.bank.digest

    def filler(self, *, seed: int) -> Filler:
        fillers = [part.filler(seed=seed_of(seed, "mixture", n)) for n, (_, part) in enumerate(self.parts)]
        return Pages(self, tuple(fillers))

    @cached_property
    def sizes(self) -> Indices:
        return np.array([len(piece) for piece in self.bank.pieces], np.int64)

    @cached_property
    def ends_paragraph(self) -> npt.NDArray[np.bool_]:
        closes = self.bank.closes
        return np.array(
            [piece.endswith("\n") and (closes is None or closes[i]) for i, piece in enumerate(self.bank.pieces)],
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
class Pages:
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
            if len(order) >= count or len(order) == known:
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
        kept = sorted(((at, number, page) for at, number, page in pages if at < end), key=lambda found: found[:2])
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
