"""Suites of the families: one document answers a dozen samples or more, so the suite to 1M reads few documents."""

from __future__ import annotations

from typing import Any

from leadline.core.spec import Suite

FRONTIER_LENGTHS = "4k,8k,16k,32k,64k,128k,256k,512k,1m"


def _families(needles: tuple[int, ...], per_document: int) -> list[dict[str, Any]]:
    """All families, with `per_document` samples of one document."""
    shared: dict[str, Any] = {"placement": "anywhere", "per_document": per_document}
    return [
        *({"name": "mrcr", "label": f"mrcr[needles={n}]", "options": {**shared, "needles": n}} for n in needles),
        {"name": "graphwalks", "options": shared},
        {"name": "aggregate", "options": shared},
        {"name": "worlds", "options": shared},
        {"name": "ladder", "options": shared},
        {"name": "niah_forms", "label": "association", "options": {**shared, "match": "association"}},
    ]


FRONTIER = Suite(
    name="frontier",
    summary="mrcr with 2, 4 and 8 needles, graphwalks, aggregate, worlds, ladder, associations: 4k to 1M, shared",
    values={"tasks": _families((2, 4, 8), 28), "lengths": FRONTIER_LENGTHS, "samples": 56, "reading": "shared"},
)
FRONTIER_QUICK = Suite(
    name="frontier-quick",
    summary="the same to 128k with 2 and 8 needles and 28 samples",
    values={"tasks": _families((2, 8), 28), "lengths": "4k,16k,64k,128k", "samples": 28, "reading": "shared"},
)
