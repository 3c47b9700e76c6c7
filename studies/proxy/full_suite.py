"""The cheapest measurements of a checkpoint beside a whole suite of seven tasks, on the variants of this study.

    python studies/proxy/full_suite.py studies/proxy/results

The suite's score of a variant is the mean of its seven accuracies: two tasks of needles, and the five of another kind.
What is measured cheaply is left out of the suite's needles. A nested map is one document with a needle for each of 6
lengths to 32k and 11 depths, read once; its texts and needles are not those of the suite.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from analyse import CHANCE, PERPLEXITY, by_family, paired
from records import Proxy, Question, Records, Scores

from leadline.features.correlate.correlation import spearman

DRAWS = 200
Documents = Mapping[int, Sequence[str]]
Measured = tuple[Scores, Scores]
"""A cheap measurement, and the suite without what it asked."""


def suite_scores(needles: Records, others: Records, questions: Sequence[Question]) -> Scores:
    """By variant, the mean of the accuracies of all tasks; of the needles, on these questions."""
    tasks = [[q for q in questions if q.task == task] for task in dict.fromkeys(q.task for q in questions)]
    other = [[q for q in others.common if q.task == task] for task in dict.fromkeys(q.task for q in others.common)]
    found = [needles.accuracy(some) for some in tasks] + [others.accuracy(some) for some in other]
    return {v: float(np.mean([scores[v] for scores in found])) for v in needles.variants if v in others.variants}


def by_proxy(proxy: Proxy, lengths: Sequence[int], count: int | None, needles: Records, suite: Scores) -> Callable[
    [np.random.Generator], Measured
]:  # fmt: skip
    """So many documents of each length; all of them where that is None."""
    shelves = {n: needles.documents(proxy.task, n) for n in lengths}

    def draw(random: np.random.Generator) -> Measured:
        chosen = {n: set(random.choice(s, count or len(s), replace=False)) for n, s in shelves.items()}
        return proxy.scores(needles, list(lengths), chosen), suite

    return draw


def by_questions(needles: Records, others: Records) -> Callable[[np.random.Generator], Measured]:
    """One document of each length, asked for its four needles."""
    shelves = {n: sorted({q.document for q in needles.common if (q.task, q.length) == ("keys", n)})
               for n in needles.lengths}  # fmt: skip

    def draw(random: np.random.Generator) -> Measured:
        chosen = {(n, random.choice(shelf)) for n, shelf in shelves.items()}
        cheap = [q for q in needles.common if q.task == "keys" and (q.length, q.document) in chosen]
        left = set(cheap)
        return needles.accuracy(cheap), suite_scores(needles, others, [q for q in needles.common if q not in left])

    return draw


def by_map(maps: Records, task: str, count: int | None, suite: Scores) -> Callable[
    [np.random.Generator], Measured
]:  # fmt: skip
    """The share of right answers on so many nested maps; on all of them where that is None."""
    documents = sorted({q.document for q in maps.common if q.task == task})

    def draw(random: np.random.Generator) -> Measured:
        chosen = set(random.choice(documents, count or len(documents), replace=False))
        return maps.accuracy([q for q in maps.common if q.task == task and q.document in chosen]), suite

    return draw


def row(name: str, tokens: int, draw: Callable[[np.random.Generator], Measured], draws: int) -> str:
    """The median over draws of documents with their middle 90 %, and the interval by families of the median draw."""
    random, found = np.random.default_rng(0), []
    for _ in range(draws):
        models, xs, ys = paired(*draw(random))
        found.append((spearman(xs, ys), models, xs, ys))
    values = [value for value, *_ in found]
    middle = sorted(found, key=lambda one: one[0])[len(found) // 2]
    low, high = by_family(*middle[1:])
    spread = f"{np.quantile(values, 0.05):.2f} to {np.quantile(values, 0.95):.2f}" if draws > 1 else ""
    return f"| {name} | {tokens / 1000:,.0f}k | {np.median(values):.2f} | {spread} | [{low:.2f}, {high:.2f}] |"


def main() -> None:
    folder = Path(sys.argv[1])
    needles, others, maps = (Records.read(folder / f"{name}.jsonl.gz") for name in ("records", "targets", "maps"))
    suite = suite_scores(needles, others, needles.common)
    lengths, pair = needles.lengths, [needles.lengths[0], needles.lengths[2]]
    keys = by_questions(needles, others)
    asked = sum(lengths)

    def chance(some: Sequence[int], count: int | None, name: str, draws: int) -> str:
        counts = {n: count or len(needles.documents(CHANCE.task, n)) for n in some}
        return row(name, CHANCE.tokens(needles, counts), by_proxy(CHANCE, some, count, needles, suite), draws)

    whole = needles.accuracy(needles.common)
    print("| measurement | tokens | Spearman with the suite | 90 % of draws | by families |\n|---|---|---|---|---|")
    print(chance(pair, 1, "`needle_chance`, one document of 2k and one of 8k", DRAWS))
    print(chance(lengths, 1, "`needle_chance`, one document of each length", DRAWS))
    print(chance(lengths, None, "`needle_chance`, all documents", 1))
    print(row("four questions on one document of each length", asked, keys, DRAWS))
    one = by_proxy(PERPLEXITY, lengths, 1, needles, suite)
    print(
        row(
            "`mean_nll`, one document of each length", PERPLEXITY.tokens(needles, dict.fromkeys(lengths, 1)), one, DRAWS
        )
    )
    one_map = maps.tokens[maps.variants[0], "map-0"]
    for task, name in (("map", "`niah`"), ("single_map", "`niah_single`")):
        count = len({q.document for q in maps.common if q.task == task})
        print(row(f"nested map to 32k of {name}, one document", one_map, by_map(maps, task, 1, suite), DRAWS))
        print(row(f"{count} such maps", count * one_map, by_map(maps, task, None, suite), 1))
    print(row("accuracy on all needles (part of the suite)", needles.tokens_asked(needles.common),
              lambda random: (whole, suite), 1))  # fmt: skip
    print(f"the suite: {needles.tokens_asked(needles.common) + others.tokens_asked(others.common):,} tokens a variant")


if __name__ == "__main__":
    main()
