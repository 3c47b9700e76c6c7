"""The page on the dashboard says what the commands do, and the README shows what they look like."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from leadline.features.dashboard.command import view

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "dashboard.md"
BYTES = 300_000


def pictures(page: Path) -> list[Path]:
    return [page.parent / name for name in re.findall(r"!\[[^\]]+\]\(([^)]+\.png)\)", page.read_text())]


def test_every_option_is_explained() -> None:
    names = {"open" if name == "browser" else name for name in inspect.signature(view).parameters} - {"folders"}
    for name in names:
        assert re.search(rf"^\| `--{name}[ `]", PAGE.read_text(), re.MULTILINE), name


def test_every_picture_is_there_and_small() -> None:
    shown = [*pictures(PAGE), *pictures(ROOT / "README.md")]
    assert {"dashboard.png", "live.png", "report.png", "compare.png"} <= {path.name for path in shown}
    assert all(10_000 < path.stat().st_size < BYTES for path in shown)
