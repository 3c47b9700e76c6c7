"""Invented names of people, towns, rivers and firms: pronounceable, and nobody's.

Names are put together from syllables once a process. No name of a pool stands inside another name of it, so that one
cannot be taken for another where answers are looked for as substrings.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Literal

from leadline.core.seeds import Split, part_of, rng

Pool = Literal["first", "last", "place", "river"]

# No beginning ends another, and no ending holds another: then no name can stand inside another one.
_BEGINNINGS = "B Br D Dr F Fl G Gr H J Kl Kr M N P Pl Qu Sk Sl T Tr V W Y Z".split()
_VOWELS = "a e i o u ai".split()
_MIDDLES = "b bl d dr g k kl l ld lm lv m mb n nd ng nv p pl r rd rk rl rn rv s sk st t tr v x z".split()
_ENDINGS: dict[Pool, list[str]] = {
    "first": "ael and eda elia enn essa iko ilde ina iro onne ora osh ula us ya".split(),
    "last": "abeck adine ahl amont anski arro asund ediger elkar esque evall igan ingast omer oquist orval".split(),
    "place": "abury adel aford aholm amere anza astead avik egrad emark enthal esk estow eville imouth ovar".split(),
    "river": "ach adour aine ambra awen edra eln enz essa iffe innet isla ode omber onde uir una".split(),
}
_SIZES: dict[Pool, int] = {"first": 400, "last": 3000, "place": 24_000, "river": 4000}

TRADES = (
    "Brickworks Canneries Carriages Ceramics Chandlers Clockworks Cordage Cranes Dairies Dredging Dyeworks Enamels "
    "Engraving Ferries Forges Foundry Freight Furnaces Glassworks Instruments Ironworks Lamps Leather Lenses Looms "
    "Millwork Optics Orchards Pipelines Porcelain Presses Printers Pumps Quarries Rigging Ropes Sailcloth Saltworks "
    "Shipyards Signals Tanneries Tiles Timber Tools Turbines Varnish Weighbridges Woollens"
).split()


@cache
def pool(kind: Pool, split: Split) -> tuple[str, ...]:
    """The names of a kind on one side of the split. First names are on both: a person goes by the last one."""
    return _names(kind) if kind == "first" else part_of(_names(kind), split)


@cache
def _names(kind: Pool) -> tuple[str, ...]:
    ways = itertools.product(_BEGINNINGS, _VOWELS, _MIDDLES, _ENDINGS[kind])
    return tuple(rng("names", kind).sample(["".join(parts) for parts in ways], _SIZES[kind]))
