"""Suites of log-probability tasks: one for each metric as defined, and the trap, which perplexity does not show."""

from __future__ import annotations

from typing import Any

from leadline.core.spec import Suite

TWO_ANCHORS = (0.1, 0.6)
"""The two anchors of the definition, as shares of the positions an anchor can have."""


def _suite(name: str, summary: str, **grid: Any) -> Suite:
    return Suite(name=name, summary=summary, values={"tasks": [name], "samples": 50, **grid})


RETRIEVAL_GAIN_SUITE = _suite(
    "retrieval_gain", "as defined: 50 documents of 8,192 tokens, two anchors", lengths="8k", depths=TWO_ANCHORS
)
RETRIEVAL_NLL_SUITE = _suite(
    "retrieval_nll",
    "the same without the comparison: 50 documents of 8,192 tokens",
    lengths="8k",
    depths=TWO_ANCHORS,
)
MEAN_NLL_SUITE = _suite("mean_nll", "perplexity of 20 documents at each length", lengths="1k,2k,4k,8k", samples=20)
TAIL_LOSS_SUITE = _suite("tail_loss", "loss over the last quarter of 50 documents", lengths="8k")
TAIL_VS_HEAD_SUITE = _suite("tail_vs_head", "loss over the last quarter less that over the first", lengths="8k")
LONGPPL_SUITE = _suite("longppl", "perplexity of tokens that need the far context, in 50 documents", lengths="16k")
NEEDLE_GAIN_SUITE = _suite(
    "needle_gain", "planted facts against the fact alone, 20 documents a cell", lengths="2k,4k,8k", samples=20
)
NEEDLE_CHANCE_SUITE = _suite(
    "needle_chance", "the chance of planted values, eight in each of two documents at each length",
    lengths="2k,4k,8k,16k", depths="0.05..0.95:8", samples=2, reading="shared",
)  # fmt: skip
PROXIES_SUITE = _suite(
    "proxies", "every metric of plain documents from one reading of each", lengths="8k", depths=TWO_ANCHORS
)
TRAP_SUITE = Suite(
    name="trap",
    summary="perplexity, retrieval and gain over the same lengths: what perplexity does not show",
    values={
        "tasks": ["niah", {"name": "mean_nll"}, {"name": "retrieval_gain"}],
        "lengths": "1k,2k,4k,8k,16k",
        "depths": (0.1, 0.35, 0.6),
        "samples": 10,
    },
)
