"""`auto` in a spec: lengths that fit the model, and the reading mode that costs least on it.

Lengths are the powers of two from 1k up to the window that the model claims and the window itself; one length beyond
it where the model takes more; and both sides of every constant of its architecture, because damage sits there: seven
eighths and five quarters of it, which are 3.5k and 5k for a sliding window of 4k.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from leadline.core.contracts import HasPrefixCache, Model, ModelCard, Task
from leadline.core.format import format_length, format_list
from leadline.core.lengths import AUTO, MAX_LENGTH
from leadline.core.spec import Spec
from leadline.core.types import Reading

FIRST_LENGTH = 1024
UNKNOWN_WINDOW = 8192
"""The longest length for a model that does not state its window."""
BELOW, BEYOND = Fraction(7, 8), Fraction(5, 4)
"""The two sides of a constant, and the length beyond the window."""
LEAST_CONSTANT = 512
"""Smaller sizes (pages, blocks of states) are passed many times by every length."""
STEP = 64


@dataclass(frozen=True, slots=True)
class AutoLengths:
    """The chosen lengths, and the sentence that says why."""

    lengths: tuple[int, ...]
    note: str


def choose_lengths(card: ModelCard) -> AutoLengths:
    """The lengths of `auto` for a model."""
    window = min(card.window or UNKNOWN_WINDOW, MAX_LENGTH)
    beyond = _near(window, BEYOND) if card.window and not card.window_is_hard else None
    longest = beyond or window
    lengths = {*_powers_of_two(window), window, *([beyond] if beyond else [])}
    sides: list[str] = []
    for name, size in sorted(card.constants.items(), key=lambda constant: constant[1]):
        apart = size >= LEAST_CONSTANT and size != window
        both = [_near(size, side) for side in (BELOW, BEYOND)] if apart else []
        if around := [length for length in both if length <= longest]:
            lengths.update(around)
            sides.append(f"both sides of the {name} of {size:,} ({format_list([*map(format_length, around)])})")
    return AutoLengths(tuple(sorted(lengths)), _describe(card, window, beyond, sides))


def choose_reading(model: Model, tasks: Iterable[Task]) -> Reading:
    """The cheapest that model and tasks allow; where all cost the same, the one with independent documents."""
    allowed = set.intersection(*(set(task.readings) for task in tasks))
    if model.asked_per == "document":
        order: tuple[Reading, ...] = ("shared", "fresh") if model.card.nested_problem else ("nested", "shared", "fresh")
    elif isinstance(model, HasPrefixCache) and not model.prefix_cache.off:
        order = ("shared", "fresh")
    else:
        order = ("fresh",)
    return next((reading for reading in order if reading in allowed), "fresh")


def resolve_auto(spec: Spec, tasks: Mapping[str, Task], model: Model) -> tuple[Spec, tuple[str, ...]]:
    """The spec with what fits the model in place of every `auto`, and notes on what was chosen."""
    notes: list[str] = []
    if not spec.lengths:
        chosen = choose_lengths(model.card)
        lengths, window = chosen.lengths, model.card.window
        notes.append(chosen.note)
        needs_room = model.card.window_is_hard and any(task.request == "logprobs" for task in tasks.values())
        if needs_room and lengths[-1] == window:
            lengths = lengths[:-1]
            notes.append(f"{format_length(window)} is left out: log-probabilities need room after a document")
        spec = spec.model_copy(update={"lengths": lengths})
    if spec.reading == AUTO:
        spec = spec.model_copy(update={"reading": choose_reading(model, tasks.values())})
    return spec, tuple(notes)


def _powers_of_two(window: int) -> list[int]:
    """From 1k to the window; for a window below 4k from a quarter of it."""
    first = min(FIRST_LENGTH, 1 << max(window // 4, 1).bit_length() - 1)
    return [first << doubling for doubling in range(40) if first << doubling <= window]


def _near(tokens: int, share: Fraction) -> int:
    """This share of a size, in whole steps."""
    return max(STEP, round(tokens * share / STEP) * STEP)


def _describe(card: ModelCard, window: int, beyond: int | None, sides: Iterable[str]) -> str:
    if card.window is None:
        parts = [f"lengths up to {format_length(window)}, as the model states no window"]
    else:
        origin = f" ({card.window_origin})" if card.window_origin else ""
        parts = [f"lengths up to the window of {window:,} tokens{origin}"]
        parts += [f"one beyond it ({format_length(beyond)})"] if beyond else []
    return ", ".join([*parts, *sides])
