"""Retrieval gain through a real server: tokens read by its receipts, time and numbers, the whole prompt against tails.

    vllm serve FOLDER --served-model-name smollm2 --dtype float32 --enforce-eager --enable-prompt-tokens-details
    python benchmarks/server_logprobs.py --url http://127.0.0.1:8000/v1 --model smollm2 --folder FOLDER --anchors 2

Every document is read in both ways, tails first: whole prompts are never taken from the cache, so that their tokens do
not depend on the order. A line is printed after each reading, and the sums at the end, also when it is ended or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path
from pydoc_data import topics
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.core.answers import Failure
from leadline.core.contracts import LogprobModel
from leadline.core.types import Continuation, TokenNLL
from leadline.models.hf import HF
from leadline.models.openai.provider import OpenAI, OpenAIModel
from leadline.models.prefix_scoring import ScoringWays

if TYPE_CHECKING:
    from leadline.core.types import Ids

SUMMED = ("seconds", "requests", "prompt_tokens", "cached_tokens", "tokens_read")


def document(model: OpenAIModel, tokens: int, seed: int) -> Ids:
    """Tokens of Python's own help texts, from a line that the seed says."""
    lines = Path(topics.__file__).read_text().splitlines(keepends=True)
    return model.tokenizer.encode("".join(lines[1000 * seed :])[: 8 * tokens])[:tokens]


def asked_of(ids: Ids, anchors: int, query: int, answer: int) -> list[Continuation]:
    """As retrieval_gain asks: the stretch at each anchor, after the document and alone."""
    last = len(ids) - query - answer
    places = [int(depth * last) for depth in np.linspace(0.1, 0.6, anchors)]
    return [Continuation(cut, ids[p : p + query + answer], query) for p in places for cut in (len(ids), 0)]


def largest_difference(one: TokenNLL, other: TokenNLL) -> float:
    pairs = zip(one.continuations, other.continuations, strict=True)
    return max(float(np.max(np.abs(a - b))) for a, b in pairs)


class Readings:
    """What was read so far, printed as it comes."""

    def __init__(self) -> None:
        self._lines: list[dict[str, Any]] = []

    def take(self, way: str, number: int, ways: ScoringWays | LogprobModel, ids: Ids, asked: list[Continuation]) -> Any:
        """The NLLs of a document read in one way."""
        began = time.monotonic()
        nll = ways.nll(ids, asked, [])
        seconds = round(time.monotonic() - began, 1)
        if isinstance(nll, Failure):
            raise SystemExit(f"document {number}, {way}, after {seconds} s: {nll.why}: {nll.message}")
        counts = dict(nll.counts)
        if "cached_tokens" in counts:
            counts["tokens_read"] = counts["prompt_tokens"] - counts["cached_tokens"]
        load = [round(value, 1) for value in os.getloadavg()]
        self.note({"document": number, "way": way, "seconds": seconds, **counts, "load": load, "notes": nll.notes})
        return nll

    def note(self, line: dict[str, Any]) -> None:
        self._lines.append(line)
        print(json.dumps(line), flush=True)

    def sums(self) -> dict[str, Any]:
        """Over the documents that were read in both ways."""
        of_way = {way: [line for line in self._lines if line.get("way") == way] for way in ("tails", "whole")}
        both = min(map(len, of_way.values()))
        sums: dict[str, Any] = {"documents": both}
        for way, lines in of_way.items():
            sums[way] = {name: round(sum(line.get(name, 0) for line in lines[:both]), 1) for name in SUMMED}
        for name in ("tokens_read", "seconds"):
            whole = sums["whole"][name]
            sums[f"share_of_{name}"] = round(sums["tails"][name] / whole, 3) if whole else None
        for name in ("apart_nats", "from_process_nats"):
            sums[name] = max((line[name] for line in self._lines if name in line), default=None)
        return sums


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--anchors", type=int, default=2)
    parser.add_argument("--query", type=int, default=24, help="tokens repeated at each anchor")
    parser.add_argument("--answer", type=int, default=24, help="tokens scored at each anchor")
    parser.add_argument("--documents", type=int, default=1, help="each is read in both ways before the next")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-process", action="store_true", help="do not compare with the model in this process")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
    server = OpenAI(base_url=given.url, api="completions").open_server(given.model)
    readings, tails_of = Readings(), []
    try:
        for number in range(given.documents):
            ids = document(server, given.tokens, given.seed + number)
            asked = asked_of(ids, given.anchors, given.query, given.answer)
            ways = server.logprob_ways(ids)
            if isinstance(ways, Failure):
                raise SystemExit(ways.message)
            tails = readings.take("tails", number, ways, ids, asked)
            whole = readings.take("whole", number, ScoringWays(None, ways.whole), ids, asked)
            readings.note({"document": number, "block": ways.block, "apart_nats": largest_difference(tails, whole)})
            tails_of.append((ids, asked, tails))
        if not given.no_process:
            here = HF(dtype="float32", device="cpu").open(given.folder)
            assert isinstance(here, LogprobModel)
            for number, (ids, asked, tails) in enumerate(tails_of):
                own = readings.take("process", number, here, ids, asked)
                readings.note({"document": number, "from_process_nats": largest_difference(own, tails)})
    finally:
        print(json.dumps(readings.sums(), indent=1), flush=True)


if __name__ == "__main__":
    main()
