"""How often a simulated model reads right: pure functions of length and depth, after published profiles.

perfect             always
cliff               up to `window` tokens, and not beyond: rotary positions never seen in training
lost-in-the-middle  a dip over the depths between both ends, which opens over the four doublings up to `window`
                    (Liu et al., arXiv 2307.03172)
decay               half way down at `window`, smoothly: position interpolation (arXiv 2306.15595)
floor               the same, but down to a floor that is kept: as YaRN-extended models do (arXiv 2309.00071)
recency             only facts within `window` tokens of the end: sliding-window attention

These functions are the known truth that a measurement of a simulated model must recover. NLL follows from them: every
token has a base NLL drawn from itself and the two tokens before it, and a token that continues a passage seen earlier
in the context is predicted with the chance that the profile gives to that depth at that length. With `cliff`,
perplexity therefore stays level beyond the window while retrieval gain falls to zero: the perplexity trap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from leadline.core.contracts import Options
from leadline.core.errors import UnknownName
from leadline.core.spec import parse_length

if TYPE_CHECKING:
    from leadline.core.types import Continuation, Ids, Nats

Length = Annotated[int, BeforeValidator(parse_length)]
_DEPTH_STEPS = 64


class Profile(Options):
    """Parameters of a profile."""

    window: Length = Field(8192, ge=1, description="length at which accuracy falls")
    high: float = Field(1.0, ge=0, le=1, description="highest accuracy")
    low: float | None = Field(None, ge=0, le=1, description="lowest accuracy; 0, or 0.6 for floor")
    strength: float = Field(0.8, ge=0, le=1, description="depth of the dip in the middle, as a share")
    slope: float = Field(2.0, gt=0, description="steepness of a decay per doubling; 1 is gentle, 8 almost a cliff")
    noise: float = Field(0.0, ge=0, le=1, description="share of right answers lost at any length and depth")
    difficulty: Literal["same", "by_task"] = Field(
        "same", description="by_task: tracing falls at half the length of a needle, counting at a quarter"
    )


LENGTH_FACTORS = {"questions": 2, "tracing": 2, "counting": 4}
"""With difficulty=by_task, a task of this family is as hard as a needle in a text this many times as long: aggregation
falls first, as in published results (RULER, arXiv 2404.06654)."""


Shape = Callable[[int, float, Profile], float]
"""From length, depth and profile to a share between low (0) and high (1)."""


def _lost_in_the_middle(length: int, depth: float, profile: Profile) -> float:
    opened = min(max(math.log2(16 * length / profile.window) / 4, 0.0), 1.0)
    return 1.0 - profile.strength * opened * 4 * depth * (1 - depth)


def _decay(length: int, depth: float, profile: Profile) -> float:
    return float(1 / (1 + (length / profile.window) ** profile.slope))


SHAPES: dict[str, Shape] = {
    "perfect": lambda length, depth, profile: 1.0,
    "cliff": lambda length, depth, profile: float(length <= profile.window),
    "lost-in-the-middle": _lost_in_the_middle,
    "decay": _decay,
    "floor": _decay,
    "recency": lambda length, depth, profile: float((1 - depth) * length <= profile.window),
    "flaky": lambda length, depth, profile: 1.0,
}
NEVER_RIGHT = ("refuses", "empty", "wanders", "cuts-off")
JUDGE = "judge"
NAMES = {
    "perfect": "always right",
    "cliff": "right up to `window` tokens and not beyond",
    "lost-in-the-middle": "a dip over the middle depths that opens up to `window`",
    "decay": "falls smoothly, half way down at `window`",
    "floor": "falls smoothly to `low`, which it keeps",
    "recency": "finds only what is within `window` tokens of the end",
    "flaky": "right, but a share `rate` of requests fails",
    "refuses": "declines every question",
    "empty": "answers nothing",
    "wanders": "talks about something else",
    "cuts-off": "introduces its answer until its tokens are used up",
    "judge": "a judge of answers, with a known `sensitivity` and `specificity`",
}
ARCHETYPES = tuple(NAMES)
_LOW = {"floor": 0.6}


def success_probability(archetype: str, length: int, depth: float | None, options: Profile, family: str = "") -> float:
    """The chance that a piece of evidence at `depth` of a prompt of `length` tokens is read right.

    `length` includes the allowance for the answer. Without a depth: the mean over all depths. The task's `family`
    matters with difficulty=by_task only.
    """
    if archetype in (*NEVER_RIGHT, JUDGE):
        return 0.0
    if archetype not in SHAPES:
        raise UnknownName("simulated model", archetype, ARCHETYPES, where=f"model sim:{archetype}")
    if depth is None:
        middles = ((i + 0.5) / _DEPTH_STEPS for i in range(_DEPTH_STEPS))
        return sum(success_probability(archetype, length, d, options, family) for d in middles) / _DEPTH_STEPS
    if options.difficulty == "by_task":
        length *= LENGTH_FACTORS.get(family, 1)
    low = options.low if options.low is not None else _LOW.get(archetype, 0.0)
    share = SHAPES[archetype](length, min(max(depth, 0.0), 1.0), options)
    return (low + (options.high - low) * share) * (1 - options.noise)


# --- NLL ----------------------------------------------------------------------------------------

BASE_NATS, SPREAD_NATS = 3.0, 1.0  # mean and half the range of the NLL of a token that was not seen before
CERTAINTY = 0.95  # probability of the next token of a passage that is remembered
MATCHED_TOKENS = 8  # in a row must be equal for a passage to count as seen before
LengthChance = Callable[[int, float], float]
"""From the tokens in the context and a depth (0 first, 1 last) to the probability to read right there."""


def span_nll(ids: Ids, wanted: Sequence[int], chance: LengthChance) -> Nats:
    """NLL in nats of the tokens at the `wanted` positions of a text."""
    base = _base(ids)
    copies = _copies(ids, wanted)
    nats = base[np.asarray(wanted, np.int64)].copy()
    for number, (token, copy) in enumerate(zip(wanted, copies, strict=True)):
        if copy >= 0:
            known = chance(token + 1, copy / max(token - 1, 1))
            nats[number] = -np.log(known * CERTAINTY + (1 - known) * np.exp(-nats[number]))
    return nats


def continuation_nll(ids: Ids, continuation: Continuation, chance: LengthChance) -> Nats:
    text = np.concatenate([ids[: continuation.cut], continuation.ids])
    return span_nll(text, range(continuation.cut + continuation.start, len(text)), chance)


def _base(ids: Ids) -> Nats:
    """Uniform between BASE - SPREAD and BASE + SPREAD, from a hash of the token and the two before it."""
    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for back, odd in ((1, 0xC2B2AE3D27D4EB4F), (2, 0x165667B19E3779F9)):
        mixed[back:] ^= ids[:-back].astype(np.uint64) * np.uint64(odd)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    share = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53
    return BASE_NATS + SPREAD_NATS * (2 * share - 1)


def _copies(ids: Ids, wanted: Sequence[int]) -> list[int]:
    """For each wanted position, an earlier position where the same tokens led to the same token, or -1."""
    size = MATCHED_TOKENS + 1
    if len(ids) <= size or not len(wanted):
        return [-1] * len(wanted)
    windows = np.lib.stride_tricks.sliding_window_view(ids, size)
    hashes = windows.astype(np.uint64) @ (np.uint64(0x100000001B3) ** np.arange(size, dtype=np.uint64))
    order = np.argsort(hashes, kind="stable")
    ranked = hashes[order]
    earliest = np.empty(len(hashes), np.int64)
    earliest[order] = order[np.searchsorted(ranked, ranked, side="left")]
    found = []
    for token in wanted:
        start = token - MATCHED_TOKENS
        copy = int(earliest[start]) if start >= 0 else start
        seen = 0 <= copy < start and np.array_equal(windows[copy], windows[start])
        found.append(copy + MATCHED_TOKENS if seen else -1)
    return found
