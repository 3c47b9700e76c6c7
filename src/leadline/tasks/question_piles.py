"""A pile of documents: what questions are asked over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.seeds import bulk_rng
from leadline.core.types import PieceBank

if TYPE_CHECKING:
    from leadline.core.types import Indices


@dataclass(frozen=True, slots=True)
class Pile:
    """Documents of a bank in a drawn order. Those in `first` are taken before those in `then`.

    Whatever is taken stands in no order that tells which it was, so the pile must know how many there are. Where a
    shorter pile has to be the beginning of a longer one (`prefix_stable`), all are taken alike.
    """

    bank: PieceBank
    first: Indices
    then: Indices
    seed: int
    repeat: bool = False
    prefix_stable: bool = False

    @property
    def limit(self) -> int | None:
        return None if self.repeat else len(self.first) + len(self.then)

    def arrange(self, count: int) -> Indices:
        taken = self._taken(count)
        if self.prefix_stable or len(taken) < 3:
            return taken
        # The last one taken stays last: with one document more, the others still are these.
        mixed, last = taken[:-1], taken[-1:]
        return np.concatenate([mixed[np.argsort(bulk_rng(self.seed, "places").random(len(mixed)))], last])

    def _taken(self, count: int) -> Indices:
        draw = bulk_rng(self.seed, "pile")
        if self.prefix_stable:
            order = draw.permutation(np.concatenate([self.first, self.then]))
        else:
            order = np.concatenate([draw.permutation(self.first), draw.permutation(self.then)])
        return np.resize(order, count) if self.repeat else order[:count]
