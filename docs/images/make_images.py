"""Makes the pictures of README and docs: real runs of simulated models, drawn and photographed.

python docs/images/make_images.py        needs chromium for the screenshots
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

HERE = Path(__file__).parent
MIDDLE = "sim:lost-in-the-middle?window=64k&strength=0.9&tokenizer=bytes"
GRID = ("--lengths", "1k,2k,4k,8k,16k,32k,64k,128k", "--depths", "11", "--samples", "5")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")  # fmt: skip


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("the screenshots need chromium")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        leadline("demo", "--out", folder / "demo")
        shutil.copy(folder / "demo" / "heatmap.png", HERE / "demo.png")
        leadline("run", "niah", "--model", MIDDLE, *GRID, "--out", folder / "old")
        leadline("run", "niah", "--model", MIDDLE.replace("64k", "16k"), *GRID, "--out", folder / "new")
        leadline("report", folder / "old")
        leadline("report", folder / "old", folder / "new", "-o", folder / "compare.html")
        with sync_playwright() as running:
            browser = running.chromium.launch(executable_path=chromium, args=list(FLAGS))
            page = folder / "old" / "report.html"
            shoot(browser, page, "report.png", width=1200, height=1010)
            shoot(browser, page, "report-samples.png", width=1200, height=820, scheme="dark", click="0/0/131072/0.5/*")
            shoot(browser, page, "report-phone.png", width=390, height=844)
            shoot(browser, folder / "compare.html", "compare.png", width=1200, height=900)
            browser.close()


def leadline(*words: Any) -> None:
    subprocess.run(
        [Path(sys.executable).with_name("leadline"), *map(str, words)], check=True, stdout=subprocess.DEVNULL
    )


def shoot(
    browser: Browser, path: Path, name: str, *, width: int, height: int, scheme: str = "light", click: str = ""
) -> None:
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(path.as_uri())
    if click:
        page.click(f"[data-select='{click}']")
        page.wait_for_selector("#drawer-list[data-shown]")
        page.wait_for_timeout(300)
    page.screenshot(path=HERE / name)
    page.close()


if __name__ == "__main__":
    main()
