"""The words around a planted fact, for runs that kept their prompts."""

from __future__ import annotations

from pathlib import Path

from leadline.core.types import Record
from leadline.store.runs import PROMPTS, slug

AROUND = 160
"""Characters shown on either side."""


class Excerpts:
    """Reads prompts that were kept with `--keep-prompts`; gives nothing where they were not."""

    def __init__(self, folder: Path) -> None:
        prompts = folder / PROMPTS
        self._prompts = prompts if prompts.is_dir() else None

    def of(self, record: Record) -> str:
        """What stands around the first target in the document, the question after it left out."""
        if self._prompts is None or not record.targets:
            return ""
        try:
            prompt = (self._prompts / f"{slug(record.cell.key)}.txt").read_text("utf-8", "replace")
        except OSError:
            return ""
        at = prompt.find(record.targets[0])
        if at < 0:
            return ""
        start, end = max(0, at - AROUND), at + len(record.targets[0]) + AROUND
        return ("…" if start else "") + prompt[start:end] + ("…" if end < len(prompt) else "")
