"""What is written is on the disk: files are synced before they take a name, and lines at most SYNC_SECONDS later."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leadline.store import files
from leadline.store.files import AppendFile, replace_file


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of `os.fsync` and `os.replace`, in order."""
    calls: list[str] = []
    replace = os.replace

    def note_replace(source: Path, target: Path) -> None:
        calls.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", lambda fd: calls.append("sync"))
    monkeypatch.setattr(os, "replace", note_replace)
    return calls


def test_a_file_is_synced_before_it_takes_its_name(tmp_path: Path, steps: list[str]) -> None:
    replace_file(tmp_path / "run.json", b"{}")
    assert steps == ["sync", "replace"]
    assert (tmp_path / "run.json").read_bytes() == b"{}"


def test_lines_are_synced_when_it_is_time_and_only_if_there_are_new_ones(
    tmp_path: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("leadline.store.files.time.monotonic", lambda: now)
    lines = AppendFile(tmp_path / "records.jsonl")
    now += 2 * files.SYNC_SECONDS
    lines.sync()
    assert steps == []
    lines.append(b"1\n")
    lines.sync()
    lines.append(b"2\n")
    lines.sync()  # too early
    assert steps == ["sync"]
    now += 2 * files.SYNC_SECONDS
    lines.sync()
    assert steps == ["sync", "sync"]
    lines.append(b"3\n")
    lines.close()
    assert steps == ["sync", "sync", "sync"]
