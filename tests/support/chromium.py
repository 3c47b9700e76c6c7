"""The browser that pages are tested in: found where the system has it, fetched by `make setup` where it has none.

python tests/support/chromium.py      fetches it if need be; never fails, for the tests that need it are then skipped
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
PATIENCE_SECONDS = 300


def find_chromium() -> str | None:
    """The system's own, else the one that playwright has fetched."""
    system = next(filter(None, map(shutil.which, NAMES)), None)
    if system is not None:
        return system
    home = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    fetched = sorted(home.glob("chromium-*/chrome-*/chrome"))
    return str(fetched[-1]) if fetched else None


CHROMIUM = find_chromium()


@contextmanager
def launched() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


def main() -> None:
    if CHROMIUM is not None:
        return
    print("fetching chromium for the browser tests")
    ways: list[Sequence[str]] = [[sys.executable, "-m", "playwright", "install", "chromium"]]
    if shutil.which("apt-get") and os.geteuid() == 0:
        install = "apt-get install -y -qq --no-install-recommends chromium"
        ways.insert(0, ["sh", "-c", f"{install} || (apt-get update -qq && {install})"])
    if not any(works(way) and find_chromium() for way in ways):
        print("chromium cannot be had here, so tests that need a browser are skipped")


def works(command: Sequence[str]) -> bool:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


if __name__ == "__main__":
    main()
