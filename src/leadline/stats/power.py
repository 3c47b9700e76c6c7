"""Sample sizes: the chance that a comparison or a gate detects a given drop, by simulating their procedure.

Two runs of the same prompts differ only where one is right and the other wrong. The share of such prompts between
equal models, the discordance, is the noise; measure it by running one model twice (an A/A run), or take it from an
earlier run. A drop comes on top: answers flip both ways as between equal models, and a further share is lost. Pairs of
runs are drawn on the planned grid: in each, every prompt is lost, gained or unchanged. Differences of prompts over one
haystack have a given intraclass correlation, for one of two reasons: chances differ from haystack to haystack
(Dirichlet-multinomial), or some haystacks are lost or gained whole. The same correlation gives other rates in the two
cases, and no plan can know which it will be. All pairs are judged at once by the tests, intervals and corrections of
`compare` and `gate`; a test checks that both give the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtr

from leadline.core.errors import UsageError
from leadline.core.format import format_tokens
from leadline.core.seeds import bulk_rng
from leadline.stats.compare import holm, mcnemar_midp, sign_flip_p
from leadline.stats.gate import Clause, matching
from leadline.stats.intervals import CONFIDENCE, t_quantile
from leadline.stats.marginals import design_effect
from leadline.stats.observations import CELL, DEPTH_BANDS, BoolArray, FloatArray, IntArray, Observations

DEFAULT_DISCORDANCE = 0.10
"""The assumption without an earlier run: one answer in ten flips."""
HAYSTACK_CORRELATION = 0.08
"""The correlation of paired differences over one haystack, from records of real models."""
POWER = 0.8
MOST_SAMPLES = 4000
"""Samples a cell beyond which no plan is looked for."""
_ROWS_AT_ONCE = 4_000_000
_FLIPS = 999

Sharing = Literal["nothing", "length", "task"]
"""What prompts share a haystack: none, those of a sample of a task and length, those of a sample of a task."""
Cause = Literal["graded", "all_or_none"]
"""Why prompts of one haystack correlate: all haystacks differ a little, or some are lost or gained whole."""
CAUSES: tuple[Cause, ...] = ("graded", "all_or_none")


@dataclass(frozen=True, slots=True)
class Noise:
    discordance: float = DEFAULT_DISCORDANCE
    """The share of answers that flip between equal models, half of them each way."""
    correlation: float = HAYSTACK_CORRELATION
    """Of paired differences over one haystack; without meaning where nothing is shared."""
    level: float = 0.9
    """The base run's score, for bounds in per cent of it."""
    cause: Cause = "graded"

    def chances(self, drop: float) -> tuple[float, float]:
        """The chances of a prompt to be lost and to be gained by a candidate that scores `drop` less. The drop does not
        use up the noise: it is added to what equal models lose, as far as there are answers left."""
        flips = min(self.discordance, 1.0 - drop) / 2
        return flips + drop, flips


def seen_noise(data: Observations) -> Noise:
    """From one run: as if the other model's answers were drawn anew in every cell.

    Checkpoints of one model agree more than that, so plans made from this err towards too many samples.
    """
    counted = data.counted()
    if len(counted) == 0:
        raise UsageError("no sample has a score", where="power")
    cell = counted.code(CELL)
    n = np.bincount(cell)
    means = np.bincount(cell, weights=counted.value) / np.maximum(n, 1)
    squares = np.bincount(cell, weights=(counted.value - means[cell]) ** 2)
    several = n > 1
    scatter = float(np.mean(squares[several] / (n[several] - 1))) if several.any() else 0.25
    effect = design_effect(counted)
    shared = effect.documents < effect.samples and effect.correlation is not None
    correlation = effect.correlation if shared and effect.correlation is not None else HAYSTACK_CORRELATION
    return Noise(min(1.0, 2 * scatter), correlation, float(np.mean(means)))


@dataclass(frozen=True, slots=True)
class Grid:
    """The cells of a plan, without samples, and what prompts share a haystack."""

    points: tuple[tuple[str, int, float | None], ...]
    sharing: Sharing = "nothing"
    common: frozenset[str] = frozenset()
    """Tasks with one haystack for all depths of a length and sample, where nothing else is shared."""

    @property
    def haystacks(self) -> tuple[tuple[object, ...], ...]:
        """The haystack of one sample of each cell."""
        parts = {"nothing": 3, "length": 2, "task": 1}
        return tuple(p[: min(parts[self.sharing], 2 if p[0] in self.common else 3)] for p in self.points)

    @property
    def shares(self) -> bool:
        """Whether several cells have one haystack."""
        return len(set(self.haystacks)) < len(self.points)


@dataclass(frozen=True, slots=True)
class CompareRates:
    """The rates at which `compare` calls the overall score worse, or any part of the grid better or worse."""

    worse: float
    any_difference: float
    tests: int


@dataclass(frozen=True, slots=True)
class GateRates:
    passed: float
    failed: float
    left_out: tuple[str, ...] = ()
    """Clauses that are not simulated: those about effective length."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A group of cells: which they are, and how much a row of each counts."""

    scope: str
    name: str
    weight: FloatArray
    """Of one sample of each cell of the grid, times the samples; 0 outside of the group."""

    @property
    def inside(self) -> BoolArray:
        return self.weight > 0


class PairedDraws:
    """Simulated pairs of runs on a grid: what was lost and gained in each cell, and the error of every mean."""

    def __init__(self, grid: Grid, samples: int, noise: Noise, drop: float, runs: int, seed: int) -> None:
        if samples < 2:
            raise ValueError("two samples a cell are the fewest that show how samples scatter")
        self.grid, self.samples, self.runs = grid, samples, runs
        self.parts = _parts(grid)
        chances = noise.chances(drop)
        rng = bulk_rng(seed, "power", samples, round(1e6 * drop))
        cells = len(grid.points)
        self._cluster, self._clusters = _clusters(grid)
        if not grid.shares:
            self.lost = rng.binomial(samples, chances[0], size=(runs, cells))
            self.gained = rng.binomial(samples - self.lost, chances[1] / max(1 - chances[0], 1e-12))
            self._differences: FloatArray | None = None
        else:
            drawn = _haystack_chances(chances, noise, (runs, self._clusters, samples), rng)
            uniform = rng.random((runs, cells, samples))
            first, second = (part[:, self._cluster, :] for part in drawn)
            lost, gained = uniform < first, uniform >= 1 - second
            self.lost, self.gained = lost.sum(axis=2), gained.sum(axis=2)
            self._differences = gained.astype(np.float64) - lost
        self.means = (self.gained - self.lost) / samples

    def sums(self, part: _Part) -> FloatArray:
        """The weighted difference of every haystack (runs x haystacks) of a part."""
        assert self._differences is not None
        return self._by_haystack(self._differences, part)

    def _by_haystack(self, values: FloatArray, part: _Part) -> FloatArray:
        sums = np.zeros((self.runs, self._clusters, self.samples))
        for cell in np.flatnonzero(part.inside):
            sums[:, self._cluster[cell], :] += part.weight[cell] / self.samples * values[:, cell, :]
        used = np.unique(self._cluster[part.inside])
        return np.asarray(sums[:, used, :].reshape(self.runs, -1))

    def mean(self, part: _Part) -> FloatArray:
        return np.asarray(self.means @ part.weight)

    def variance(self, part: _Part) -> FloatArray:
        n = self.samples
        if self._differences is None:
            squares = self.lost + self.gained - n * self.means**2
            return np.asarray(squares @ part.weight**2 * n / (n - 1) / n**2)
        residuals = (self._differences - self.means[:, :, None]) * math.sqrt(n / (n - 1))
        return np.asarray(np.sum(self._by_haystack(residuals, part) ** 2, axis=1))

    def degrees(self, part: _Part) -> int:
        return self.haystacks(part) // self.samples * (self.samples - 1)

    def haystacks(self, part: _Part) -> int:
        return len(np.unique(self._cluster[part.inside])) * self.samples

    def error(self, part: _Part, *, by_document: bool = False) -> tuple[FloatArray, FloatArray]:
        """The centre and deviation of a mean difference with two pretended prompts, or documents, as `compare` adds."""
        weights = np.bincount(self._cluster, weights=part.weight) if by_document else part.weight
        n = self.samples / float(np.sum(weights**2))
        centre = self.mean(part) * n / (n + 2)
        return centre, np.sqrt(self.variance(part) + 2 / (n + 2) ** 2)


def _haystack_chances(
    chances: tuple[float, float], noise: Noise, shape: tuple[int, ...], rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """The chances of each haystack to lose and to gain a prompt, drawn so that prompts correlate as much as asked."""
    correlation = noise.correlation
    if noise.cause == "all_or_none":
        whole, drawn = rng.random(shape) < correlation, rng.random(shape)
        lost, gained = drawn < chances[0], drawn >= 1 - chances[1]
        return np.where(whole, lost, chances[0]), np.where(whole, gained, chances[1])
    if correlation <= 1e-6:
        return np.full(shape, chances[0]), np.full(shape, chances[1])
    mass = (1 - min(correlation, 0.999)) / min(correlation, 0.999)
    rates = (*chances, 1 - sum(chances))
    masses = [rng.standard_gamma(max(mass * rate, 1e-9), size=shape) for rate in rates]
    total = np.maximum(sum(masses), 1e-300)
    return masses[0] / total, masses[1] / total


def _clusters(grid: Grid) -> tuple[IntArray, int]:
    """Which haystack of a sample each cell is over, and how many there are."""
    order = {key: at for at, key in enumerate(dict.fromkeys(grid.haystacks))}
    return np.array([order[key] for key in grid.haystacks], dtype=np.int64), len(order)


def _parts(grid: Grid) -> list[_Part]:
    """Everything that `compare` tests: overall, lengths, tasks and thirds of the depth, where there are several."""
    tasks = np.array([task for task, _, _ in grid.points])
    lengths = [length for _, length, _ in grid.points]
    depths = np.array([math.nan if depth is None else depth for _, _, depth in grid.points])
    edges = [high for _, high in DEPTH_BANDS.values()][:-1]
    band = np.where(np.isnan(depths), -1, np.searchsorted(edges, depths, side="right"))
    groups: list[tuple[str, str, BoolArray]] = [("overall", "overall", np.ones(len(tasks), dtype=np.bool_))]
    groups += [("length", format_tokens(n), np.array(lengths) == n) for n in sorted(set(lengths))]
    groups += [("task", str(task), tasks == task) for task in np.unique(tasks)]
    groups += [("depth", name, band == at) for at, name in enumerate(DEPTH_BANDS) if (band == at).any()]
    several = {scope for scope in ("length", "task", "depth") if sum(g[0] == scope for g in groups) > 1}
    parts = []
    for scope, name, inside in groups:
        weight = np.zeros(len(tasks))
        mine = np.unique(tasks[inside])
        for task in mine:
            here = inside & (tasks == task)
            weight[here] = 1 / (len(mine) * here.sum())
        parts.append(_Part(scope if scope == "overall" or scope in several else f"only {scope}", name, weight))
    return parts


def compare_rates(grid: Grid, samples: int, drop: float, noise: Noise, *, runs: int = 1000) -> CompareRates:
    """The results of `compare` if the candidate lost `drop` everywhere."""
    worse = different = 0
    tests = 0
    for draws in _drawn(grid, samples, drop, noise, runs):
        parts = [part for part in draws.parts if not part.scope.startswith("only")]
        tests = len(parts)
        p = np.stack([_p(draws, part, parts) for part in parts], axis=1)
        adjusted = holm(p)
        signs = []
        for part in parts:
            centre, deviation = draws.error(part)
            half = t_quantile(CONFIDENCE, draws.degrees(part)) * deviation
            signs.append(np.where(centre - half > 0, 1, np.where(centre + half < 0, -1, 0)))
        called = np.stack(signs, axis=1) * (adjusted <= 1 - CONFIDENCE)
        worse += int(np.sum(called[:, 0] < 0))
        different += int(np.sum(np.any(called != 0, axis=1)))
    return CompareRates(worse / runs, different / runs, tests)


def gate_rates(
    grid: Grid,
    samples: int,
    drop: float,
    noise: Noise,
    clauses: Sequence[Clause],
    *,
    runs: int = 1000,
) -> GateRates:
    """The rates at which a gate would pass and fail a candidate that lost `drop` everywhere; the rest is undecided."""
    passed = failed = 0
    planned = [clause for clause in clauses if clause.subject != "effective"]
    for draws in _drawn(grid, samples, drop, noise, runs):
        p, clear = [], []
        for clause in planned:
            for part in _matching(draws.parts, clause):
                bound = clause.bound * noise.level if clause.relative else clause.bound
                centre, deviation = draws.error(part)
                p.append(stdtr(draws.degrees(part), (centre - bound) / deviation))
                centre, deviation = draws.error(part, by_document=True)
                clear.append(centre - t_quantile(CONFIDENCE, draws.degrees(part)) * deviation >= bound)
        above = np.stack(clear, axis=1)
        fails = np.any((holm(np.stack(p, axis=1)) <= 1 - CONFIDENCE) & ~above, axis=1)
        failed += int(fails.sum())
        passed += int(np.sum(above.all(axis=1)))
    return GateRates(passed / runs, failed / runs, tuple(c.text for c in clauses if c.subject == "effective"))


def fewest_samples(rate: Callable[[int], float]) -> int | None:
    """The fewest samples a cell at which a rate that grows with them reaches `POWER`; None beyond `MOST_SAMPLES`."""
    high = 2
    while rate(high) < POWER:
        if high >= MOST_SAMPLES:
            return None
        high = min(2 * high, MOST_SAMPLES)
    low = high // 2
    while high - low > max(1, low // 25):
        middle = (low + high) // 2
        low, high = (middle, high) if rate(middle) < POWER else (low, middle)
    return high


def smallest_drop(rate: Callable[[float], float]) -> float | None:
    """The smallest drop whose detection rate reaches `POWER`, to half a point; None if even 50 points do not."""
    low, high = 0.0, 0.5
    if rate(high) < POWER:
        return None
    while high - low > 0.005:
        middle = (low + high) / 2
        low, high = (middle, high) if rate(middle) < POWER else (low, middle)
    return high


def _drawn(grid: Grid, samples: int, drop: float, noise: Noise, runs: int) -> list[PairedDraws]:
    """The pairs in portions that fit into memory; with nothing shared only counts are drawn."""
    rows = len(grid.points) * (samples if grid.shares else 1)
    size = max(1, min(runs, _ROWS_AT_ONCE // rows))
    portions = [size] * (runs // size) + ([runs % size] if runs % size else [])
    return [PairedDraws(grid, samples, noise, drop, many, at) for at, many in enumerate(portions)]


def _matching(parts: Sequence[_Part], clause: Clause) -> list[_Part]:
    if clause.subject == "overall":
        return [parts[0]]
    mine = [p for p in parts if p.scope.removeprefix("only ") == clause.subject]
    return [mine[j] for j in matching([f"{clause.subject}:{p.name}" for p in mine], clause)]


def _p(draws: PairedDraws, part: _Part, parts: Sequence[_Part]) -> FloatArray:
    """The two-sided p of a part in every pair, by the test that `compare` takes for its scope."""
    scope = [p for p in parts if p.scope == part.scope]
    alike = all(np.allclose(p.weight[p.inside], p.weight[p.inside].mean()) for p in scope)
    if not alike:
        centre, deviation = draws.error(part)
        return np.asarray(2 * stdtr(draws.degrees(part), -np.abs(centre) / deviation))
    cells = int(np.sum(np.any([p.inside for p in scope], axis=0)))
    together = len(np.unique(np.concatenate([draws._cluster[p.inside] for p in scope])))
    if together == cells:
        return mcnemar_midp(draws.lost[:, part.inside].sum(axis=1), draws.gained[:, part.inside].sum(axis=1))
    return sign_flip_p(draws.sums(part).T, _FLIPS, bulk_rng(0, "sign flips", part.name))
