"""A local page to label answers by keyboard: blind, one at a time, saved after every key.

/          the page
/rows      the answers to label; no verdict of any judge is sent
/label     POST {"row": n, "label": "yes"}: writes labels.csv
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import uvicorn
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from leadline.core.errors import UsageError
from leadline.dashboard.app import HostGuard, address_of, listen_on
from leadline.report.page import asset, fingerprint, template
from leadline.store.verdicts import LABELS, parse_label, read_label_rows, write_labels

SHOWN = ("question", "targets", "evidence", "answer", "label")


class NewLabel(msgspec.Struct):
    row: int
    label: str


class LabelDesk:
    """The rows of labels.csv, and what was labelled. Rows are written whole after every label."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = read_label_rows(folder / LABELS)

    def as_json(self) -> list[dict[str, str]]:
        return [{name: row.get(name, "") for name in SHOWN} for row in self.rows]

    def put(self, number: int, label: str) -> None:
        parse_label(label, f"row {number}")
        if not 0 <= number < len(self.rows):
            raise UsageError(f"there is no row {number}", where=LABELS)
        self.rows[number]["label"] = label
        write_labels(self.folder, self.rows)


def make_label_app(desk: LabelDesk, host: str = "127.0.0.1") -> Starlette:
    style, script = asset("labelling.css", "leadline.dashboard"), asset("labelling.js", "leadline.dashboard")
    policy = (
        f"default-src 'none'; img-src data:; style-src '{fingerprint(style)}'; script-src '{fingerprint(script)}'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    page = template("labelling.html", "leadline.dashboard").render(
        style=Markup(style), script=Markup(script), name=desk.folder.resolve().name
    )

    async def show(request: Request) -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})

    async def rows(request: Request) -> Response:
        return JSONResponse(desk.as_json())

    async def label(request: Request) -> Response:
        try:
            given = msgspec.json.decode(await request.body(), type=NewLabel)
            desk.put(given.row, given.label)
        except (msgspec.DecodeError, UsageError) as error:
            return PlainTextResponse(f"{error}\n", 400)
        return JSONResponse({"labelled": sum(bool(row.get("label")) for row in desk.rows)})

    return Starlette(
        routes=[Route("/", show), Route("/rows", rows), Route("/label", label, methods=["POST"])],
        middleware=[Middleware(HostGuard, host=host, posts=True)],
    )


class LabelServer:
    """Serves the page until it is interrupted or `stop` is called."""

    def __init__(self, folder: Path, port: int, host: str = "127.0.0.1") -> None:
        self.desk = LabelDesk(folder)
        self._listening = listen_on(host, port)
        self.address = address_of(self._listening, host)
        config = uvicorn.Config(
            make_label_app(self.desk, host), log_level="error", access_log=False, lifespan="off", server_header=False
        )
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        try:
            self._server.run(sockets=[self._listening])
        finally:
            self._listening.close()

    def stop(self) -> None:
        self._server.should_exit = True
