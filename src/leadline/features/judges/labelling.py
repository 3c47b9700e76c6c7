"""The page for labelling answers: by keyboard, blind, one at a time, saved after every key.

/                 the page
/rows             the answers to label; no verdict of any judge is sent
/label            POST {"row": n, "label": "yes"}: appends to labels.jsonl, then writes labels.csv

Several pages, here and in the dashboard, may be open for one run: each label is saved under a lock, for its answer and
not for the number of a row, and what was acknowledged is never lost. It is served by itself (`leadline judge RUN
--page`), under an address with a token, and as a page of the dashboard.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import msgspec
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route

from leadline.core.errors import LeadlineError, UsageError
from leadline.features.judges.verdicts import LABELS, LabelKey, add_label, label_key, parse_label, read_label_rows
from leadline.report.page import asset, template
from leadline.report.serve import HostGuard, LocalServer, RunPage, html_response, listen_on, served_policy

PACKAGE = "leadline.features.judges"
LABEL_COLUMNS = ("question", "targets", "evidence", "answer", "label")
"""The columns of labels.csv that the page shows."""


class NewLabel(msgspec.Struct):
    row: int
    label: str


def label_routes(folder: Path) -> list[Route]:
    """labels.csv is read again for every label."""
    known: list[LabelKey] = []
    """The answers by the numbers that pages use: a number never changes, whatever is done to the file."""

    def numbered() -> list[dict[str, str]]:
        """The rows by their numbers. An answer that the file has no more keeps its number, without a text."""
        by_key = {label_key(row): row for row in read_label_rows(folder / LABELS)}
        known.extend(key for key in by_key if key not in set(known))
        return [by_key.get(key, {}) for key in known]

    async def show(request: Request) -> Response:
        style, script = asset("labelling.css", PACKAGE), asset("labelling.js", PACKAGE)
        page = template("labelling.html", PACKAGE).render(
            style=Markup(style), script=Markup(script), name=folder.resolve().name
        )
        return html_response(page.encode("utf-8", "replace"), served_policy(style, script))

    async def rows(request: Request) -> Response:
        return JSONResponse([{name: row.get(name, "") for name in LABEL_COLUMNS} for row in numbered()])

    async def label(request: Request) -> Response:
        try:
            new_label = msgspec.json.decode(await request.body(), type=NewLabel)
            parse_label(new_label.label, f"row {new_label.row}")
        except (msgspec.DecodeError, UsageError) as error:
            return PlainTextResponse(f"{error}\n", 400)
        numbered()
        try:
            if new_label.row < 0:
                raise IndexError
            labels = add_label(folder, known[new_label.row], new_label.label)
        except (IndexError, KeyError):
            return PlainTextResponse(f"there is no row {new_label.row}\n", 400)
        except LeadlineError as error:
            return PlainTextResponse(f"the label is not saved: {error.what}\n", 500)
        return JSONResponse({"labelled": sum(bool(row.get("label")) for row in labels)})

    return [Route("/", show), Route("/rows", rows), Route("/label", label, methods=["POST"])]


LABEL_PAGE = RunPage("Label", is_offered=lambda folder: (folder / LABELS).is_file(), routes=label_routes)


class LabelServer(LocalServer):
    def __init__(self, folder: Path, port: int) -> None:
        host = "127.0.0.1"
        guard = Middleware(HostGuard, host=host, posts=lambda path: True)
        token = secrets.token_urlsafe(16)
        routes = [Mount(f"/{token}", routes=label_routes(folder))]
        super().__init__(Starlette(routes=routes, middleware=[guard]), listen_on(host, port), host)
        self.address += f"{token}/"  # other users of this machine do not know it
