"""The results of a provider's counts of prompts, kept in the run's folder.

A document that is built again, after a crash or to ask its questions a second time, is the same to the letter and is
not counted again.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from leadline.core.errors import StoreError
from leadline.core.files import read_inside
from leadline.text.fitting.counted import CountedDraft, ProviderCounts

COUNTS = "counts.jsonl"


def keep_counts(provider: ProviderCounts, folder: Path) -> None:
    """Takes over the folder's counts, and adds new ones. Once for a plan: its first folder is the run's."""
    if provider.keep is not None:
        return
    path = folder / COUNTS

    def keep(counted: CountedDraft) -> None:
        try:
            with path.open("ab") as file:
                file.write(msgspec.json.encode(counted) + b"\n")
        except OSError as error:
            raise StoreError(f"cannot keep the counts: {error.strerror}", where=str(path)) from None

    lines = _lines(path)
    there = {counted.draft: counted for counted in map(_decoded, lines) if counted is not None}
    for counted in [counted for name, counted in provider.known.items() if name not in there]:
        keep(counted)
    provider.known |= there
    provider.keep = keep


def _lines(path: Path) -> list[bytes]:
    """The lines of the file; one that a crash has torn is cut off."""
    try:
        data = read_inside(path)
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.truncate(path, len(whole))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"cannot read the counts: {error.strerror}", where=str(path)) from None
    return whole.splitlines()


def _decoded(line: bytes) -> CountedDraft | None:
    """None for a damaged line: its document is counted again."""
    try:
        return msgspec.json.decode(line, type=CountedDraft)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
