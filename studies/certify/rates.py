"""How often `leadline certify` is wrong, and how often it names a planted fault: 400 pairs of sides for each row.

    python studies/certify/rates.py            all rows, one after the other; prints a Markdown table

Answers are yes or no. Both sides are right on the same nine prompts of ten; of a share `flips` of the prompts the
candidate draws its answer anew, as a server does that is not deterministic; then a fault turns right answers of one
part of the grid wrong. The decision is that of the command, with its looks and its significance levels. Seeds are
(SEED, row, number), and no setting of the command was chosen with them.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

import numpy as np

from leadline.features.certify.decide import alpha_at, decide, looks
from leadline.stats.compare import Pairs
from leadline.stats.observations import Observations

SEED = 311_118
PAIRS = 400
TASKS = ("niah", "vt", "mrcr[needles=2]", "mrcr[needles=8]")
LENGTHS = (2048, 16384, 131072)
DEPTHS = (0.0, 0.5, 1.0)
BANDS = {0.0: "first third", 0.5: "middle third", 1.0: "last third"}


@dataclass(frozen=True)
class Row:
    name: str
    flips: float
    samples: int
    part: str = ""
    """The part of the grid with the fault, as the command names it; empty where the sides are equal."""
    lost: float = 0.0
    """Share of the right answers of that part that become wrong."""
    base: float = 0.9


ROWS = (
    Row("equal, no flips", 0.0, 32),
    Row("equal, 1 % flips", 0.01, 32),
    Row("equal, 5 % flips", 0.05, 32),
    Row("8 needles, -8 points", 0.02, 64, "task:mrcr[needles=8]", 0.08 / 0.9),
    Row("past 64k, -8 points", 0.02, 64, "length:128k", 0.08 / 0.9),
    Row("middle third, -8 points", 0.02, 64, "depth:middle third", 0.08 / 0.9),
    Row("91 to 13 % past a length", 0.02, 32, "length:128k", 1 - 0.13 / 0.91, 0.91),
    Row("collapse past 2,048 tokens", 0.02, 32, "length:16k length:128k", 1.0),
    Row("MRCR down 30 %", 0.02, 32, "task:mrcr[needles=2] task:mrcr[needles=8]", 0.3),
)


def planted(rng: np.random.Generator, row: Row) -> Pairs:
    grid = [(t, n, d, s) for t in TASKS for n in LENGTHS for d in DEPTHS for s in range(row.samples)]
    task, length, depth, sample = (np.array(column) for column in zip(*grid, strict=True))
    base = (rng.random(len(grid)) < row.base).astype(float)
    anew = (rng.random(len(grid)) < row.base).astype(float)
    candidate = np.where(rng.random(len(grid)) < row.flips, anew, base)
    names = {f"task:{t}": task == t for t in TASKS} | {f"length:{n // 1024}k": length == n for n in LENGTHS}
    names |= {f"depth:{band}": depth == d for d, band in BANDS.items()}
    inside = np.any([mask for name, mask in names.items() if name in row.part.split(" ") or name == row.part], axis=0)
    candidate = np.where(inside & (rng.random(len(grid)) < row.lost), 0.0, candidate)
    cluster = np.array(["/".join(map(str, place)) for place in grid])
    none = np.zeros(len(grid), bool)
    sides = [Observations(task, length, depth, sample, cluster, value, none) for value in (base, candidate)]
    return Pairs(sides[0], sides[1], 0, 0, 0)


def certified(whole: Pairs, samples: int) -> tuple[str, set[str], int]:
    """Outcome, blamed parts and samples a cell, as the command looks."""
    steps = looks(samples)
    for number, upto in enumerate(steps):
        rows = whole.base.sample < upto
        decision = decide(
            Pairs(whole.base.take(rows), whole.candidate.take(rows), 0, 0, 0), 0.05, alpha_at(number, len(steps))
        )
        if decision.outcome != "undecided":
            break
    return decision.outcome, {difference.name for difference in decision.blamed}, upto


def rates(number: int, row: Row, pairs: int = PAIRS) -> dict[str, float]:
    """Shares of the pairs."""
    outcomes: Counter[str] = Counter()
    parts = {row.part} if row.part.startswith("depth") else set(row.part.split())
    named = others = used = 0
    for pair in range(pairs):
        outcome, blamed, upto = certified(planted(np.random.default_rng([SEED, number, pair]), row), row.samples)
        outcomes[outcome] += 1
        named += bool(parts) and parts <= blamed
        others += bool(blamed - parts)
        used += upto
    shares = {name: outcomes[name] / pairs for name in ("kept", "lost", "undecided")}
    return shares | {"named": named / pairs, "others": others / pairs, "samples": used / pairs / row.samples}


def main(wanted: list[str]) -> None:
    print("| planted | kept | lost | undecided | its part named | another part blamed | samples used |")
    print("|---|---|---|---|---|---|---|")
    for number, row in enumerate(ROWS):
        if wanted and str(number) not in wanted:
            continue
        found = rates(number, row)
        named = f"{found['named']:.1%}" if row.part else "-"
        print(f"| {row.name} | {found['kept']:.1%} | {found['lost']:.1%} | {found['undecided']:.1%} | {named} | "
              f"{found['others']:.1%} | {found['samples']:.0%} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
