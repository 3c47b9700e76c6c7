"""Orders of generated texts: what numpy draws for all texts at once is what a loop over one text draws."""

from __future__ import annotations

from collections import Counter

import pytest

from leadline.text.generated import NAMES, Grammar
from leadline.text.generated.expander import Tables
from leadline.text.generated.grammar import FREE, PARAGRAPH

GOLDEN, ALL = 0x9E3779B97F4A7C15, (1 << 64) - 1
STRIDES = (10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079)


def mix(number: int) -> int:
    """The finaliser of splitmix64."""
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & ALL
    number = (number ^ number >> 27) * 0x94D049BB133111EB & ALL
    return number ^ number >> 31


def drawn(seed: int, number: int) -> int:
    return mix(seed + number * GOLDEN & ALL)


def below(hashed: int, count: int) -> int:
    return (hashed >> 33) * count >> 31


def dealt(hashed: int, nth: int, count: int) -> int:
    return (below(hashed, count) + nth * STRIDES[hashed & 7]) % count


def following(tables: Tables, key: int, seed: int, paragraph: int) -> int:
    """A number that follows another, which may follow another itself."""
    after: dict[int, list[int]] = {key: numbers for key, *numbers in tables.after.tolist()}
    parent, count, least, most, each = after[key]
    base = below(drawn(seed, (parent << 12) + 63), count)
    if parent in after:
        base = following(tables, parent, seed, paragraph)
    number = paragraph if each else 0
    return base + below(drawn(seed, (key << 12) + (number + 1) * 64 + 62), most - least + 1) + number * most


def written(tables: Tables, voice: int, number: int) -> list[int]:
    """The pieces of one text, level by level and node by node."""
    seed = drawn(voice, number + 1)
    row, level = [(-1, 0)], 0
    while any(node < 0 for node, _ in row):
        expanded: list[tuple[int, int]] = []
        seen: Counter[int] = Counter()
        for place, (node, paragraph) in enumerate(row):
            if node >= 0:
                expanded.append((node, paragraph))
                continue
            key, scope, count = (int(column[~node]) for column in (tables.keys, tables.scopes, tables.counts))
            if scope != FREE and key in tables.after[:, 0]:
                chosen = following(tables, key, seed, paragraph)
            elif scope != FREE:
                own = (key << 12) + 63 + (64 * (paragraph + 1) if scope == PARAGRAPH else 0)
                chosen = dealt(drawn(seed, own), int(tables.instances[~node]), count)
            elif level < 3:
                chosen = dealt(drawn(seed, (key << 6) + level + 1), seen[key], count)
            else:
                hashed = drawn(seed, (place << 6) + level + 1)
                thrice = (hashed >> 33, (hashed << 31 & ALL) >> 33, (hashed * GOLDEN & ALL) >> 33)
                preferred = below(mix(~node * GOLDEN & ALL ^ voice), count)
                chosen = ((min(thrice) * count >> 31) + preferred) % count
            seen[key] += 1
            alternative = int(tables.first[~node]) + chosen
            start = int(tables.starts[alternative])
            nodes = tables.pool[start : start + int(tables.lengths[alternative])].tolist()
            expanded += [(each, paragraph if level else n) for n, each in enumerate(nodes)]
        row, level = expanded, level + 1
    return [node for node, _ in row]


@pytest.mark.parametrize("name", NAMES)
def test_texts_written_at_once_are_those_of_a_loop(name: str) -> None:
    grammar = Grammar(name)
    tables = grammar._compiled[1]
    for first, seeds in ((0, [3]), (5, [11, (1 << 64) - 1, 0, 12])):
        for seed, pieces in zip(seeds, grammar.write(seeds, first, 2), strict=True):
            assert pieces.tolist() == [piece for n in (first, first + 1) for piece in written(tables, seed, n)]


def test_a_long_text_is_that_of_a_loop() -> None:
    grammar = Grammar("prose")
    [pieces] = grammar.write([8], 0, 40)
    assert pieces.tolist() == [piece for n in range(40) for piece in written(grammar._compiled[1], 8, n)]
