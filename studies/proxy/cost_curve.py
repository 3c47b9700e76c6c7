"""What fewer documents cost in ranking: Spearman of a proxy that reads only some of them, over draws of which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from records import Proxy, Question, Records, Scores

from leadline.features.correlate.correlation import spearman

DRAWS = 200


@dataclass(frozen=True, slots=True)
class Point:
    words: str
    tokens: int
    median: float
    low: float
    high: float

    def as_json(self) -> dict[str, object]:
        return {"read": self.words, "tokens": self.tokens, "spearman": [self.median, self.low, self.high]}


@dataclass(frozen=True, slots=True)
class Curve:
    name: str
    points: tuple[Point, ...]


def cost_curves(records: Records, target: Scores, best: Proxy, others: Sequence[Proxy]) -> list[Curve]:
    lengths = records.lengths
    short_and_long = [lengths[0], lengths[2]]
    curves = [_curve(p.name, p, records, target, [lengths]) for p in (best, *others)]
    few = [[lengths[0]], [lengths[2]], short_and_long]
    curves.insert(1, _curve(f"{best.name}, fewer lengths", best, records, target, few, most=1))
    curves.insert(2, _fewer_needles(best, records, target))
    curves.append(_asked("accuracy, four questions a document", records, lambda q: q.task == "keys"))
    curves.append(_asked("accuracy", records, lambda q: True))
    return curves


def _curve(
    name: str, proxy: Proxy, records: Records, target: Scores, designs: Sequence[Sequence[int]], most: int = 99
) -> Curve:
    points = []
    for lengths in designs:
        shelves = {n: records.documents(proxy.task, n) for n in lengths}
        for count in (c for c in (1, 2, 4, 8) if c <= min(most, *map(len, shelves.values()))):
            words = f"{count} of {' and '.join(f'{n // 1024}k' for n in lengths)}"
            tokens = proxy.tokens(records, dict.fromkeys(lengths, count))
            points.append(_drawn(words, tokens, proxy, records, target, shelves, count))
    return Curve(name, tuple(points))


def _fewer_needles(best: Proxy, records: Records, target: Scores) -> Curve:
    """One document of each length, with fewer of its places."""
    lengths = records.lengths
    shelves = {n: records.documents(best.task, n) for n in lengths}
    depths = sorted({r.depth for r in records.rows[records.variants[0], best.task, lengths[0]] if r.depth is not None})
    points = []
    for step in (8, 4, 2):
        some = replace(best, depths=tuple(depths[step // 2 :: step]))
        tokens = some.tokens(records, dict.fromkeys(lengths, 1))
        points.append(_drawn(f"1 of each, {len(some.depths)} needles", tokens, some, records, target, shelves, 1))
    return Curve(f"{best.name}, fewer needles", tuple(points))


def _drawn(
    words: str, tokens: int, proxy: Proxy, records: Records, target: Scores, shelves: dict[int, list[str]], count: int
) -> Point:
    draw, values = np.random.default_rng(0), []
    for _ in range(DRAWS):
        chosen = {n: set(draw.choice(shelf, count, replace=False)) for n, shelf in shelves.items()}
        scores = proxy.scores(records, list(shelves), chosen)
        both = [v for v in target if v in scores]
        values.append(spearman([scores[v] for v in both], [target[v] for v in both]))
    return _point(words, tokens, values)


def _asked(name: str, records: Records, chosen: Callable[[Question], bool]) -> Curve:
    """Accuracy itself from fewer documents, against accuracy from all the others: what a proxy has to beat."""
    places: dict[tuple[str, int], dict[str, list[Question]]] = {}
    for q in records.common:
        places.setdefault((q.task, q.length), {}).setdefault(q.document, []).append(q)
    points = []
    for count in (1, 2):
        draw, values, tokens = np.random.default_rng(0), [], 0
        for _ in range(DRAWS):
            cheap: list[Question] = []
            rest: list[Question] = []
            for documents in places.values():
                some = set(draw.choice(list(documents), min(count, len(documents) - 1), replace=False))
                for document, questions in documents.items():
                    use = document in some and chosen(questions[0])
                    (cheap if use else rest).extend(questions)
            one, other = records.accuracy(cheap), records.accuracy(rest)
            values.append(spearman(list(one.values()), list(other.values())))
            tokens = records.tokens_asked(cheap)
        points.append(_point(f"{count} of each", tokens, values))
    return Curve(name, tuple(points))


def _point(words: str, tokens: int, values: Sequence[float]) -> Point:
    median, low, high = (round(float(q), 3) for q in np.nanquantile(values, [0.5, 0.05, 0.95]))
    return Point(words, tokens, median, low, high)
