"""Trackers: where a team already looks at its results, and what is written there for one checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from leadline.core.contracts import Options


@dataclass(frozen=True, slots=True)
class TrackerEntry:
    """One measured checkpoint, as plain values. Names of numbers hold letters, digits and `_-. :/` only."""

    name: str
    """Of the line that the steps belong to, the same for every checkpoint of a training run."""
    step: int
    at: float
    """When the last answer came, so that writing the same entry twice is the same entry."""
    numbers: Mapping[str, float]
    figures: Mapping[str, bytes] = field(default_factory=dict)
    """PNG by name."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Which model, spec and version the numbers are of."""
    verdict: str = ""
    page: Path | None = None
    """A report to keep beside the numbers, where that was asked for."""

    @property
    def digest(self) -> str:
        """Equal for entries that say the same."""
        from leadline.core.digest import digest

        return digest([self.name, self.step, self.at, dict(self.numbers)])


class Tracker(Options):
    """The part before the colon in `TRACKER:PLACE?key=value`. Fields are its options.

    An entry for a step that is there already replaces it where the tracker can, and is left alone where it says the
    same. Nothing here may change the run folder.
    """

    summary: ClassVar[str] = ""

    def check(self, place: str) -> None:
        """Raises what can be known to go wrong before anything is written: a missing package."""

    def write(self, place: str, entry: TrackerEntry) -> str:
        """Writes the entry and says where a person finds it. Raises TrackerError when it cannot."""
        raise NotImplementedError
