"""What pages are made from: templates, styles and scripts of this package, and the policy that lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

from leadline.report import words

SCRIPTS = ("theme.js", "samples.js", "figures.js", "page.js", "parquet.js", "downloads.js")


@dataclass(frozen=True, slots=True)
class Served:
    """What a page must know of the server that shows it. Its samples stay there until somebody looks at one."""

    samples: str
    """Where they are."""
    events: str = ""
    """Where the page hears what is new, for a run that is not over: its map is then drawn cell by cell."""
    notes: tuple[str, ...] = ()
    tag: str = ""
    """Changes whenever the page would say something else."""
    status: str = ""
    """Where the page of a run that lacks answers asks whether it goes on."""


def policy(style: str, script: str) -> str:
    """Nothing may load, connect or run but the style and the script that are written into the page."""
    return (
        f"default-src 'none'; img-src data:; style-src '{fingerprint(style)}'; "
        f"script-src '{fingerprint(script)}'; base-uri 'none'; form-action 'none'"
    )


def fingerprint(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def page_style(served: Served | None = None) -> str:
    return asset("page.css") + (asset("served.css") if served else "")


def joined_script(served: Served | None = None) -> str:
    scripts = (*SCRIPTS, "resumed.js") if served else SCRIPTS
    return joined((*scripts, "live.js") if served and served.events else scripts)


def joined(scripts: Sequence[str]) -> str:
    """Scripts as one, in a scope of their own."""
    parts = "\n".join(map(asset, scripts))
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def data_block(value: Any) -> Markup:
    """JSON that may stand in a script element: no `<` is left that could end it."""
    return Markup(msgspec.json.encode(value).decode().replace("<", "\\u003c"))


def asset(name: str) -> str:
    return files("leadline.report").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def template(name: str) -> Template:
    environment = Environment(
        loader=FunctionLoader(asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["words"] = words
    return environment.get_template(name)
