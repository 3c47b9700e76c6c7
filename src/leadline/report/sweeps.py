"""Tasks that were run once with each value of an option: `vt[hops=2]`, `vt[hops=4]` ... belong together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from leadline.report.colours import ACCURACY, colour_at

_LABEL = re.compile(r"(?P<family>[^\[\]]+)\[(?P<set>[A-Za-z_]\w*=.*)\]")
_BETWEEN = re.compile(r",(?=[A-Za-z_]\w*=)")
DARKEST, LIGHTEST = 0.12, 0.82
"""The part of the scale that lines are coloured from: they must show on white and on black."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """One task over the values of an option, or of several at once."""

    family: str
    options: tuple[str, ...]
    values: tuple[str, ...]
    tasks: tuple[str, ...]
    """The task of each value."""

    @property
    def title(self) -> str:
        return f"{self.family} by {', '.join(self.options)}"

    @property
    def is_ordered(self) -> bool:
        """Whether the values are numbers of one option, so that there is a more and a less."""
        return len(self.options) == 1 and all(map(_is_number, self.values))

    def colours(self, apart: Sequence[str]) -> list[str]:
        """From dark to light where there is an order, else `apart` in turn."""
        count = len(self.values)
        if not self.is_ordered:
            return [apart[i % len(apart)] for i in range(count)]
        steps = [DARKEST + (LIGHTEST - DARKEST) * i / max(count - 1, 1) for i in range(count)]
        return [colour_at(ACCURACY, step) for step in steps]


def sweeps_of(tasks: Sequence[str]) -> list[Sweep]:
    """The sweeps among some tasks, each with two values or more; numbers in their order."""
    found: dict[tuple[str, tuple[str, ...]], list[tuple[str, str]]] = {}
    for task in tasks:
        label = _LABEL.fullmatch(task)
        if label is None:
            continue
        pairs = [pair.partition("=") for pair in _BETWEEN.split(label["set"])]
        options, values = tuple(p[0] for p in pairs), ", ".join(p[2] for p in pairs)
        found.setdefault((label["family"], options), []).append((values, task))
    return [_sweep(*key, members) for key, members in found.items() if len(members) > 1]


def _sweep(family: str, options: tuple[str, ...], members: list[tuple[str, str]]) -> Sweep:
    if all(_is_number(value) for value, _ in members):
        members = sorted(members, key=lambda member: float(member[0]))
    return Sweep(family, options, tuple(value for value, _ in members), tuple(task for _, task in members))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
