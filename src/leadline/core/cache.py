"""The cache folder, for data that can be computed again."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """$LEADLINE_CACHE, else the user's cache folder."""
    chosen = os.environ.get("LEADLINE_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(chosen) if chosen else base / "leadline"


def write_cache(file: Path, data: bytes) -> None:
    """Writes a file atomically; does nothing if the folder cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as part:
            part.write(data)
        Path(part.name).replace(file)
    except OSError:
        return
