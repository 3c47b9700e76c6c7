"""The report as one HTML file: opens from disk, needs no network, runs nothing but its own script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from leadline.core.errors import StoreError
from leadline.report import words
from leadline.report.charts import heatmap
from leadline.report.figures import page_svg
from leadline.report.load import Run
from leadline.report.provenance import provenance
from leadline.report.terminal import small_print


def write_page(runs: Sequence[Run], path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(runs), encoding="utf-8", errors="replace")
    except OSError as error:
        raise StoreError(f"cannot write the report: {error.strerror}", where=str(path)) from None
    return path


def page(runs: Sequence[Run]) -> str:
    """The whole page. Everything that came from a model or a spec is escaped by the template."""
    style, script = _asset("page.css"), _asset("page.js")
    rendered: str = _template().render(
        title=f"{words.inert(runs[0].model, 80)} · Leadline",
        policy=policy(style, script),
        style=Markup(style),
        script=Markup(script),
        runs=[run_values(run, at) for at, run in enumerate(runs)],
    )
    return rendered


def policy(style: str, script: str) -> str:
    """Nothing may load, connect or run but the style and the script that are written into the page."""
    return (
        f"default-src 'none'; img-src data:; style-src '{fingerprint(style)}'; "
        f"script-src '{fingerprint(script)}'; base-uri 'none'; form-action 'none'"
    )


def fingerprint(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def run_values(run: Run, at: int) -> dict[str, Any]:
    return {
        "run": run,
        "heatmap": Markup(page_svg(heatmap(run, titled=False), f"heatmap-{at}")),
        "small_print": small_print(run),
        "provenance": provenance(run),
    }


def _asset(name: str) -> str:
    return files("leadline.report").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _template() -> Any:
    environment = Environment(
        loader=FunctionLoader(_asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["words"] = words
    return environment.get_template("page.html")
