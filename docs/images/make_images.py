"""Makes the pictures of README and docs: the demo of a real model, and real runs of simulated ones.

python docs/images/make_images.py [demo] [report] [dashboard]       all of them by default; needs chromium
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.chromium import CHROMIUM, launched

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HERE = Path(__file__).parent
LEADLINE = str(Path(sys.executable).with_name("leadline"))
MIDDLE = "sim:lost-in-the-middle?window=64k&strength=0.9&tokenizer=bytes"
GRID = ("--lengths", "1k,2k,4k,8k,16k,32k,64k,128k", "--depths", "11", "--samples", "5")


def main() -> None:
    if CHROMIUM is None:
        sys.exit("the screenshots need chromium")
    makers = {"demo": make_demo, "report": make_report, "dashboard": make_dashboard}
    for part in sys.argv[1:] or makers:
        with tempfile.TemporaryDirectory() as made, launched() as browser:
            makers[part](Path(made), browser)


def make_demo(folder: Path, browser: Browser) -> None:
    leadline("demo", "--out", folder / "demo")
    shutil.copy(folder / "demo" / "heatmap.png", HERE / "demo.png")


def make_report(folder: Path, browser: Browser) -> None:
    leadline("run", "niah", "--model", MIDDLE, *GRID, "--out", folder / "old")
    leadline("run", "niah", "--model", MIDDLE.replace("64k", "16k"), *GRID, "--out", folder / "new")
    leadline("report", folder / "old")
    leadline("report", folder / "old", folder / "new", "-o", folder / "compare.html")
    page = (folder / "old" / "report.html").as_uri()
    shoot(browser, page, "report.png", width=1200, height=1010)
    shoot(browser, page, "report-samples.png", width=1200, height=820, scheme="dark", click="0/0/131072/0.5/*")
    shoot(browser, page, "report-phone.png", width=390, height=844)
    shoot(browser, (folder / "compare.html").as_uri(), "compare.png", width=1200, height=900)


def make_dashboard(folder: Path, browser: Browser) -> None:
    """Six runs of simulated models, and one that goes on while the pictures are taken."""
    runs = folder / "runs"
    small = ("--lengths", "2k,4k,8k,16k,32k", "--depths", "7", "--samples", "5")
    for name, model in (
        ("base", "sim:lost-in-the-middle?window=32k&strength=0.9"),
        ("checkpoint-1000", "sim:cliff?window=4k"),
        ("checkpoint-2000", "sim:cliff?window=8k"),
        ("checkpoint-4000", "sim:decay?window=16k"),
    ):
        leadline("run", "niah", "--model", f"{model}&tokenizer=bytes", *small, "--out", runs / name, "--no-figure")
    leadline("run", "ruler-quick", "--model", "sim:decay?window=16k&tokenizer=bytes", "--lengths", "8k,16k,32k",
             "--samples", "2", "--out", runs / "ruler-4000", "--no-figure")  # fmt: skip
    slow = "sim:lost-in-the-middle?window=8k&strength=0.9&tokenizer=bytes&latency_seconds=1.2"
    words = ("run", "niah", "--model", slow, *small, "--workers", "4", "--out", "runs/endpoint", "--no-figure")
    with process(folder, *words), process(folder, "view", "runs", "--port", "0") as viewing:
        assert viewing.stdout is not None
        address = viewing.stdout.readline().strip()
        with opened(browser, address, width=1200, height=720) as page:
            page.wait_for_selector(".dot.running")
            page.wait_for_selector(".waiting", state="detached")
            page.wait_for_timeout(6_000)
            for name in ("cliff", "decay"):
                page.locator("tr[data-run]", has_text=f"sim:{name}").first.locator("input").check()
            page.screenshot(path=HERE / "dashboard.png")
            page.locator("tr[data-run]", has=page.locator(".dot.running")).locator("a").click()
            page.get_by_text("2k").first.wait_for()
            page.wait_for_selector("#live [data-select^='0/0/4096/']:not(.empty)", timeout=120_000)
            page.screenshot(path=HERE / "live.png")
        with opened(browser, address, width=390, height=844, scheme="dark") as page:
            page.wait_for_timeout(1_000)
            page.screenshot(path=HERE / "dashboard-phone.png")


def leadline(*words: Any) -> None:
    # A run in which a simulated sample fails ends with 1, and is a picture all the same.
    done = subprocess.run([LEADLINE, *map(str, words)], check=False, stdout=subprocess.DEVNULL)
    assert done.returncode in (0, 1), words


@contextmanager
def process(folder: Path, *words: Any) -> Iterator[subprocess.Popen[str]]:
    """`leadline WORDS` in a folder while the pictures are taken."""
    started = subprocess.Popen(
        [LEADLINE, *map(str, words)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield started
    finally:
        started.terminate()
        started.wait()


@contextmanager
def opened(browser: Browser, address: str, *, width: int, height: int, scheme: str = "light") -> Iterator[Page]:
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(address)
    yield page
    page.close()


def shoot(
    browser: Browser, address: str, name: str, *, width: int, height: int, scheme: str = "light", click: str = ""
) -> None:
    with opened(browser, address, width=width, height=height, scheme=scheme) as page:
        if click:
            page.click(f"[data-select='{click}']")
            page.wait_for_selector("#drawer-list[data-shown]")
            page.wait_for_timeout(300)
        page.screenshot(path=HERE / name)


if __name__ == "__main__":
    main()
