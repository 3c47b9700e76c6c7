"""Experiment trackers: the contract, and the entry that is written for one checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from leadline.core.contracts import Options
from leadline.core.digest import digest


@dataclass(frozen=True, slots=True)
class TrackerEntry:
    """One measured checkpoint. Names of numbers contain only letters, digits and `_-. :/`."""

    name: str
    """The series that the steps belong to, the same for every checkpoint of a training run."""
    step: int
    at: float
    """Time of the last answer."""
    numbers: Mapping[str, float]
    figures: Mapping[str, bytes] = field(default_factory=dict)
    """PNG by name."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Model, spec and version of the numbers."""
    verdict: str = ""
    page: Path | None = None
    """A report to store with the numbers, or None."""

    @property
    def digest(self) -> str:
        """Equal for entries with equal numbers."""
        return digest([self.name, self.step, self.at, dict(self.numbers)])


class Tracker(Options):
    """The part before the colon in `TRACKER:PLACE?key=value`. Fields are its options.

    Writing an entry for an existing step replaces it where the tracker can; an equal entry is not written again. A
    tracker must not change the run folder.
    """

    summary: ClassVar[str] = ""

    def check(self, place: str) -> None:
        """Raises if a package is missing, before anything is written."""

    def write(self, place: str, entry: TrackerEntry) -> str:
        """Writes the entry and returns where to find it. Raises TrackerError."""
        raise NotImplementedError
