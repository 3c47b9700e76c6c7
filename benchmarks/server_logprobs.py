"""Retrieval gain through a real server: tokens read by its receipts, time and numbers, the whole prompt against tails.

    vllm serve FOLDER --served-model-name smollm2 --dtype float32 --enforce-eager --enable-prompt-tokens-details
    python benchmarks/server_logprobs.py --url http://127.0.0.1:8000/v1 --model smollm2 --folder FOLDER --anchors 2

A document is read in both ways, tails first: whole prompts are never taken from the cache, so that their figures do not
depend on the order.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from pydoc_data import topics
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.answers import Failure
from leadline.core.contracts import LogprobModel
from leadline.core.types import Continuation, TokenNLL
from leadline.models.hf import HF
from leadline.models.openai.provider import OpenAI, OpenAIModel
from leadline.models.prefix_scoring import ScoringWays

if TYPE_CHECKING:
    from leadline.core.types import Ids

QUERY = ANSWER = 24


def document(model: OpenAIModel, tokens: int, seed: int) -> Ids:
    """Tokens of Python's own help texts, from a line that the seed says."""
    lines = Path(topics.__file__).read_text().splitlines(keepends=True)
    return model.tokenizer.encode("".join(lines[1000 * seed :])[: 8 * tokens])[:tokens]


def asked_of(ids: Ids, anchors: int) -> list[Continuation]:
    """As retrieval_gain asks: the stretch at each anchor, after the document and alone."""
    last = len(ids) - QUERY - ANSWER
    places = [int(depth * last) for depth in np.linspace(0.1, 0.6, anchors)]
    return [Continuation(cut, ids[p : p + QUERY + ANSWER], QUERY) for p in places for cut in (len(ids), 0)]


def measured(ways: ScoringWays, ids: Ids, asked: list[Continuation]) -> tuple[TokenNLL, float]:
    began = time.monotonic()
    nll = ways.nll(ids, asked, [])
    if isinstance(nll, Failure):
        raise SystemExit(f"{nll.why}: {nll.message}")
    return nll, time.monotonic() - began


def figures(nll: TokenNLL, seconds: float) -> dict[str, object]:
    read = nll.counts["prompt_tokens"] - nll.counts["cached_tokens"]
    return {"ways": nll.notes, **nll.counts, "tokens_read": read, "seconds": round(seconds, 1)}


def largest_difference(one: TokenNLL, other: TokenNLL) -> float:
    pairs = zip(one.continuations, other.continuations, strict=True)
    return max(float(np.max(np.abs(a - b))) for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--anchors", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-process", action="store_true", help="do not compare with the model in this process")
    parser.add_argument("--count-whole", action="store_true", help="count the tokens of whole prompts, do not ask them")
    given = parser.parse_args()
    server = OpenAI(base_url=given.url, api="completions").open_server(given.model)
    ids = document(server, given.tokens, given.seed)
    asked = asked_of(ids, given.anchors)
    found = server.logprob_ways(ids)
    if isinstance(found, Failure):
        raise SystemExit(found.message)
    new, new_seconds = measured(found, ids, asked)
    if given.count_whole:
        print(
            json.dumps({"whole_tokens": sum(c.cut + len(c.ids) for c in asked), **figures(new, new_seconds)}, indent=1)
        )
        return
    old, old_seconds = measured(ScoringWays(None, found.whole), ids, asked)
    result: dict[str, object] = {"tokens": len(ids), "anchors": given.anchors, "block": found.block}
    result |= {"whole": figures(old, old_seconds), "tails": figures(new, new_seconds)}
    result["apart_nats"] = largest_difference(old, new)
    if not given.no_process:
        here = HF(dtype="float32", device="cpu").open(given.folder)
        assert isinstance(here, LogprobModel)
        own = here.nll(ids, asked)
        assert isinstance(own, TokenNLL)
        result["from_process_nats"] = largest_difference(own, new)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
