"""Checkpoints in a training folder, their order, and whether they are written completely."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
INDEX = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_STEP = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    folder: Path
    step: int
    """The last number in its name: `checkpoint-4000`, `step_4000`, `iter_0004000`."""

    @property
    def name(self) -> str:
        return self.folder.name

    def missing(self) -> str:
        """The missing part of it; empty if it has its configuration and all weights that its index names."""
        if not (self.folder / "config.json").is_file():
            return "config.json"
        for name in INDEX:
            if (self.folder / name).is_file():
                return self._missing_shard(self.folder / name)
        return "" if any((self.folder / name).is_file() for name in WEIGHTS) else WEIGHTS[0]

    def _missing_shard(self, index: Path) -> str:
        try:
            shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return f"a readable {index.name}"
        return next((shard for shard in shards if not (self.folder / str(shard)).is_file()), "")

    def files(self) -> tuple[tuple[str, int, int], ...]:
        """Name, size and time of every file: if they are the same twice, no process is writing."""
        try:
            entries = [(path.name, path.stat()) for path in sorted(self.folder.iterdir()) if path.is_file()]
        except OSError:
            return ()
        return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in entries)

    def quiet_seconds(self) -> float:
        """Seconds since the last change in it."""
        newest = max((mtime for _, _, mtime in self.files()), default=time.time_ns())
        return (time.time_ns() - newest) / 1e9


def checkpoints_in(folder: Path) -> list[CheckpointFolder]:
    """Subfolders with a number in their name, by step. The folder itself, if it is a checkpoint, is not one of them."""
    checkpoints = []
    for path in folder.iterdir():
        numbers = _STEP.findall(path.name)
        if path.is_dir() and numbers and not path.name.startswith((".", "tmp")):
            checkpoints.append(CheckpointFolder(path, int(numbers[-1])))
    return sorted(checkpoints, key=lambda checkpoint: (checkpoint.step, checkpoint.name))
