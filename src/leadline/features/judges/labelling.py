"""The page for labelling answers: by keyboard, blind, one at a time, saved after every key.

/                 the page
/rows             the answers to label; no verdict of any judge is sent
/label            POST {"row": n, "label": "yes"}: writes labels.csv

It is served by itself (`leadline judge RUN --page`) and as a page of the dashboard.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from leadline.core.errors import UsageError
from leadline.features.judges.verdicts import LABELS, parse_label, read_label_rows, write_labels
from leadline.report.page import asset, template
from leadline.report.serve import HostGuard, LocalServer, RunPage, html_response, listen_on, served_policy

PACKAGE = "leadline.features.judges"
LABEL_COLUMNS = ("question", "targets", "evidence", "answer", "label")
"""The columns of labels.csv that the page shows."""


class NewLabel(msgspec.Struct):
    row: int
    label: str


def label_routes(folder: Path) -> list[Route]:
    """labels.csv is read again and written whole for every label."""

    async def show(request: Request) -> Response:
        style, script = asset("labelling.css", PACKAGE), asset("labelling.js", PACKAGE)
        page = template("labelling.html", PACKAGE).render(
            style=Markup(style), script=Markup(script), name=folder.resolve().name
        )
        return html_response(page.encode("utf-8", "replace"), served_policy(style, script))

    async def rows(request: Request) -> Response:
        labels = read_label_rows(folder / LABELS)
        return JSONResponse([{name: row.get(name, "") for name in LABEL_COLUMNS} for row in labels])

    async def label(request: Request) -> Response:
        try:
            given = msgspec.json.decode(await request.body(), type=NewLabel)
            parse_label(given.label, f"row {given.row}")
        except (msgspec.DecodeError, UsageError) as error:
            return PlainTextResponse(f"{error}\n", 400)
        labels = read_label_rows(folder / LABELS)
        if not 0 <= given.row < len(labels):
            return PlainTextResponse(f"there is no row {given.row}\n", 400)
        labels[given.row]["label"] = given.label
        write_labels(folder, labels)
        return JSONResponse({"labelled": sum(bool(row.get("label")) for row in labels)})

    return [Route("/", show), Route("/rows", rows), Route("/label", label, methods=["POST"])]


LABEL_PAGE = RunPage("Label", is_offered=lambda folder: (folder / LABELS).is_file(), routes=label_routes)


class LabelServer(LocalServer):
    def __init__(self, folder: Path, port: int) -> None:
        host = "127.0.0.1"
        guard = Middleware(HostGuard, host=host, posts=lambda path: True)
        super().__init__(Starlette(routes=label_routes(folder), middleware=[guard]), listen_on(host, port), host)
