"""Grids that log-probability metrics are run with when nobody says otherwise, each under the name of its task."""

from __future__ import annotations

from typing import Any

from leadline.core.spec import Suite

ANCHORS = (0.1, 0.6)
"""The two anchors of the definition, as shares of the places an anchor can have."""


def _suite(name: str, summary: str, **grid: Any) -> Suite:
    return Suite(name=name, summary=summary, values={"tasks": [name], "samples": 50, **grid})


RETRIEVAL_GAIN = _suite(
    "retrieval_gain", "as defined: 50 documents of 8,192 tokens, two anchors", lengths="8k", depths=ANCHORS
)
RETRIEVAL_NLL = _suite(
    "retrieval_nll", "the same without the comparison: 50 documents of 8,192 tokens", lengths="8k", depths=ANCHORS
)
MEAN_NLL = _suite("mean_nll", "perplexity of 20 documents at each length", lengths="1k,2k,4k,8k", samples=20)
TAIL_LOSS = _suite("tail_loss", "loss over the last quarter of 50 documents", lengths="8k")
TAIL_VS_HEAD = _suite("tail_vs_head", "loss over the last quarter less that over the first", lengths="8k")
LONGPPL = _suite("longppl", "perplexity of tokens that need the far context, in 50 documents", lengths="16k")
NEEDLE_GAIN = _suite(
    "needle_gain", "planted facts against the fact alone, 20 documents a cell", lengths="2k,4k,8k", samples=20
)
NEEDLE_CHANCE = _suite(
    "needle_chance", "the chance of planted values, eight in each of two documents at each length",
    lengths="2k,4k,8k,16k", depths="0.05..0.95:8", samples=2, reading="shared",
)  # fmt: skip
PROXIES = _suite("proxies", "every metric of plain documents from one reading of each", lengths="8k", depths=ANCHORS)
TRAP = Suite(
    name="trap",
    summary="perplexity, retrieval and gain over the same lengths: what perplexity does not show",
    values={
        "tasks": ["niah", {"name": "mean_nll"}, {"name": "retrieval_gain"}],
        "lengths": "1k,2k,4k,8k,16k",
        "depths": (0.1, 0.35, 0.6),
        "samples": 10,
    },
)
