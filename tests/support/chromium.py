"""The browser for page tests: the system's Chromium, or one installed by `make setup`.

python tests/support/chromium.py      installs it if it is missing; never fails, because tests that need it are skipped
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
TIMEOUT_SECONDS = 300
PATIENCE_MS = 120_000
"""How long a test waits for what a page should show; playwright's 30 seconds can pass on a busy machine."""


def find_chromium() -> str | None:
    """The system's Chromium, else the one that playwright has installed."""
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
        browser = running.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS), timeout=PATIENCE_MS)
        open_page = browser.new_page

        def open_patient_page(**settings: Any) -> Page:
            page = open_page(**settings)
            page.set_default_timeout(PATIENCE_MS)
            return page

        browser.new_page = open_patient_page  # type: ignore[method-assign]
        yield browser
        browser.close()


def main() -> None:
    if CHROMIUM is not None:
        return
    print("installing chromium for the browser tests")
    commands: list[Sequence[str]] = [[sys.executable, "-m", "playwright", "install", "chromium"]]
    if shutil.which("apt-get") and os.geteuid() == 0:
        install = "apt-get install -y -qq --no-install-recommends chromium"
        commands.insert(0, ["sh", "-c", f"{install} || (apt-get update -qq && {install})"])
    if not any(works(command) and find_chromium() for command in commands):
        print("chromium cannot be installed here; tests that need a browser are skipped")


def works(command: Sequence[str]) -> bool:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


if __name__ == "__main__":
    main()
