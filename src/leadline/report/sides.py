"""The two sides of a comparison as people know them: what each is called, which model it is and where its run lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from leadline.report.load import label_of, model_of
from leadline.report.words import inert, safe, told_apart
from leadline.stats.comparability import Obstacle
from leadline.store.manifest import Manifest

ROLES = ("base", "candidate")


@dataclass(frozen=True, slots=True)
class Side:
    name: str
    """Never that of the other side."""
    model: str
    run: str

    def __str__(self) -> str:
        """`stretched, hf:checkpoints/4000?rope=yarn:4, runs/zoo/stretched`."""
        parts = (self.name, self.model if self.model not in self.name else "", self.run)
        return ", ".join(part for part in parts if part)


def sides_of(folders: tuple[Path, Path], manifests: tuple[Manifest, Manifest]) -> list[Side]:
    """Base and candidate."""
    names = told_apart([label_of(m) for m in manifests], [folder.resolve().name for folder in folders])
    return [
        Side(name, inert(model_of(manifest), 200), inert(str(folder), 200))
        for name, manifest, folder in zip(names, manifests, folders, strict=True)
    ]


def lines_in_markdown(sides: Sequence[Side], obstacles: Sequence[Obstacle]) -> list[str]:
    """Who was compared, and everything that differs besides the model."""
    named = [f"- {role}: {safe(str(side))}" for role, side in zip(ROLES, sides, strict=True)]
    return [*named, *(f"- {safe(inert(str(obstacle), 300))}" for obstacle in obstacles)]
