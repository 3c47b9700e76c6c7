"""How often `leadline certify` is wrong, how often it names a planted fault, and how many samples it takes.

    python studies/certify/rates.py --jobs 16                  all rows with 400 pairs of sides each; a Markdown table
    python studies/certify/rates.py --rows 0,3 --pairs 100     some of them
    python studies/certify/rates.py --fixed --jobs 16          the same power from one look: how many samples that takes

Answers are yes or no. Both sides are right on the same share of the prompts; then a share `flips` of all prompts scores
otherwise on the candidate, half of them each way, as servers do that are not deterministic; then a fault turns right
answers of one part of the grid wrong. The decision is that of the command, with its looks, its significance levels and
the samples a cell that it chooses for `--detect 5pt --power 0.8`. Seeds are (SEED, row, number), and no setting of the
command was chosen with them.
"""

from __future__ import annotations

import argparse
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from leadline.features.certify.decide import Look, decide, looks, only_look
from leadline.features.certify.sizing import samples_needed
from leadline.stats.compare import Pairs
from leadline.stats.observations import Observations

SEED = 18_112_026
PAIRS = 400
MARGIN = 0.05
TASKS = ("niah", "vt", "mrcr[needles=2]", "mrcr[needles=8]")
LENGTHS = (2048, 16384, 131072)
DEPTHS = (0.0, 0.5, 1.0)
BANDS = {0.0: "first third", 0.5: "middle third", 1.0: "last third"}
PLACES = [(task, length, depth) for task in TASKS for length in LENGTHS for depth in DEPTHS]


@dataclass(frozen=True)
class Row:
    name: str
    flips: float
    parts: tuple[str, ...] = ()
    """The parts of the grid with the fault, as the command names them; none where the sides are equal."""
    lost: float = 0.0
    """Points that these parts lose, as a share."""
    base: float = 0.9
    """Right answers of the base in these parts; 0.9 in all others."""


MRCR = ("task:mrcr[needles=2]", "task:mrcr[needles=8]")
ROWS = (
    Row("equal, no flips", 0.0),
    Row("equal, 1 % flips", 0.01),
    Row("equal, 5 % flips", 0.05),
    Row("8 points lost with 8 needles only, 1 % flips", 0.01, ("task:mrcr[needles=8]",), 0.08),
    Row("8 points lost with 8 needles only, 5 % flips", 0.05, ("task:mrcr[needles=8]",), 0.08),
    Row("8 points lost past 64k only, 5 % flips", 0.05, ("length:128k",), 0.08),
    Row("8 points lost in the middle third only, 5 % flips", 0.05, ("depth:middle third",), 0.08),
    Row("5 points lost everywhere, 5 % flips", 0.05, ("overall",), 0.05),
    Row("91 to 13 % past a length (FP8 accumulation), 5 % flips", 0.05, ("length:128k",), 0.78, 0.91),
    Row("all lost past 2,048 tokens (`index_topk`), 5 % flips", 0.05, ("length:16k", "length:128k"), 0.9),
    Row("MRCR from 35 to 24.5 % (-30 %), 5 % flips", 0.05, MRCR, 0.105, 0.35),
)
SIZING_ROW = 4
"""The fault whose power a design with one look must reach too."""


def planted(rng: np.random.Generator, row: Row, samples: int) -> Pairs:
    grid = [(*place, s) for place in PLACES for s in range(samples)]
    task, length, depth, sample = (np.array(column) for column in zip(*grid, strict=True))
    masks = {f"task:{t}": task == t for t in TASKS} | {f"length:{n // 1024}k": length == n for n in LENGTHS}
    masks |= {f"depth:{band}": depth == d for d, band in BANDS.items()} | {"overall": sample >= 0}
    inside = np.any([sample < 0, *(masks[part] for part in row.parts)], axis=0)
    rate = np.where(inside, row.base, 0.9)
    right = rng.random(len(grid)) < rate
    changed = rng.random(len(grid)) < row.flips / 2 / np.where(right, rate, 1 - rate)
    candidate = right ^ changed
    candidate &= ~(inside & (rng.random(len(grid)) < row.lost / row.base))
    cluster = np.array(["/".join(map(str, place)) for place in grid])
    none = np.zeros(len(grid), bool)
    sides = [Observations(task, length, depth, sample, cluster, v.astype(float), none) for v in (right, candidate)]
    return Pairs(sides[0], sides[1], 0, 0, 0)


def certified(whole: Pairs, steps: tuple[Look, ...]) -> tuple[str, frozenset[str], int]:
    """Outcome, blamed parts and samples a cell, as the command looks."""
    for look in steps:
        rows = whole.base.sample < look.samples
        pairs = Pairs(whole.base.take(rows), whole.candidate.take(rows), 0, 0, 0)
        decision = decide(pairs, MARGIN, look)
        if decision.is_settled:
            break
    return decision.outcome, frozenset(difference.name for difference in decision.blamed), look.samples


def one_pair(number: int, steps: tuple[Look, ...], pair: int) -> tuple[str, frozenset[str], int]:
    return certified(planted(np.random.default_rng([SEED, number, pair]), ROWS[number], steps[-1].samples), steps)


@dataclass(frozen=True)
class Rates:
    """Shares of the pairs."""

    outcomes: Counter[str]
    pairs: int
    named: int = 0
    """Pairs with all parts of the fault named."""
    some: int = 0
    others: int = 0
    samples: int = 0

    def share(self, count: int) -> str:
        return f"{count / self.pairs:.1%}"


def rates(number: int, steps: tuple[Look, ...], pairs: int, jobs: int) -> Rates:
    ask = partial(one_pair, number, steps)
    if jobs == 1:
        answers = [ask(pair) for pair in range(pairs)]
    else:
        with ProcessPoolExecutor(jobs) as pool:
            answers = list(pool.map(ask, range(pairs), chunksize=max(1, pairs // (4 * jobs))))
    counted, parts = Rates(Counter(), pairs), set(ROWS[number].parts)
    for outcome, blamed, samples in answers:
        counted.outcomes[outcome] += 1
        counted = replace(
            counted,
            named=counted.named + (bool(parts) and parts <= blamed),
            some=counted.some + bool(parts & blamed),
            others=counted.others + bool(blamed - parts),
            samples=counted.samples + samples,
        )
    return counted


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", default="", help="numbers of rows, with commas")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--fixed", action="store_true", help="one look at the end instead of several")
    given = parser.parse_args()
    most = samples_needed(PLACES, MARGIN)
    if given.fixed:
        print(f"One look, {ROWS[SIZING_ROW].name}:\n\n| samples a cell | its part named |\n|---|---|")
        for samples in (round(most * share / 20) for share in (20, 18, 16, 14, 12)):
            counted = rates(SIZING_ROW, (only_look(samples),), given.pairs, given.jobs)
            print(f"| {samples} | {counted.share(counted.named)} |", flush=True)
        return
    at = ", ".join(str(look.samples) for look in looks(most))
    print(f"At most {most} samples a cell, looks after {at}; {given.pairs} pairs a row.\n")
    print("| planted | kept | lost | undecided | its parts named | one of them | another blamed | samples a cell |")
    print("|---|---|---|---|---|---|---|---|")
    for number in map(int, given.rows.split(",")) if given.rows else range(len(ROWS)):
        row, counted = ROWS[number], rates(number, looks(most), given.pairs, given.jobs)
        shares = [counted.share(counted.outcomes[outcome]) for outcome in ("kept", "lost", "undecided")]
        shares += [counted.share(count) if row.parts else "-" for count in (counted.named, counted.some)]
        shares.append(counted.share(counted.others))
        print(f"| {row.name} | {' | '.join(shares)} | {counted.samples / given.pairs:.1f} |", flush=True)


if __name__ == "__main__":
    main()
