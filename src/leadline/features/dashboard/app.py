"""The dashboard and the page for labelling over HTTP: pages, samples, streams of changes, and the servers that answer.

/                 the list of runs; q, status, sort and page in the query
/events           `list` whenever the list has changed
/run/ID           the report of a run, live while the run is in progress
/run/ID/events    `state`: progress, cells and failures since the last one
/run/ID/status    whether the run is in progress
/compare?run=ID&run=ID   several runs side by side
/samples?run=ID   the packed samples of one or several runs

The page for labelling answers by keyboard, blind, one at a time, saved after every key:

/                 the page
/rows             the answers to label; no verdict of any judge is sent
/label            POST {"row": n, "label": "yes"}: writes labels.csv
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leadline.core.errors import LeadlineError, ServerError, StoreError, UsageError
from leadline.features.dashboard.index import IndexEntry
from leadline.features.dashboard.pages import PACKAGE, CachedPage, Dashboard, RunQuery, error_page, served_policy
from leadline.features.judges.verdicts import LABELS, parse_label, read_label_rows, write_labels
from leadline.report.page import asset, template

TICK_SECONDS = 1.0
MAX_COMPARED = 12
STREAM_HEADERS = {"X-Accel-Buffering": "no"}


def make_app(dashboard: Dashboard, host: str = "127.0.0.1", closing: Callable[[], bool] = lambda: False) -> Starlette:
    """`closing` returns True when the server is shutting down, which ends the streams."""
    handlers = _Handlers(dashboard, closing)
    return Starlette(
        routes=[
            Route("/", handlers.runs),
            Route("/events", handlers.list_events),
            Route("/run/{id}", handlers.run),
            Route("/run/{id}/events", handlers.run_events),
            Route("/run/{id}/status", handlers.run_status),
            Route("/compare", handlers.compare),
            Route("/samples", handlers.samples),
        ],
        middleware=[Middleware(HostGuard, host=host)],
        exception_handlers={HTTPException: _http_error, LeadlineError: _leadline_error},
    )


class _Handlers:
    def __init__(self, dashboard: Dashboard, closing: Callable[[], bool]) -> None:
        self._dashboard = dashboard
        self._closing = closing

    async def runs(self, request: Request) -> Response:
        return _page(await run_in_threadpool(self._dashboard.list_page, RunQuery.of(request.query_params)))

    async def run(self, request: Request) -> Response:
        (entry,) = await self._entries([request.path_params["id"]])
        return _page(await run_in_threadpool(self._dashboard.report, [entry]))

    async def run_status(self, request: Request) -> Response:
        (entry,) = await self._entries([request.path_params["id"]])
        return JSONResponse({"status": entry.status})

    async def compare(self, request: Request) -> Response:
        ids = list(dict.fromkeys(request.query_params.getlist("run")))
        if not 2 <= len(ids) <= MAX_COMPARED:
            raise HTTPException(400, f"Select 2 to {MAX_COMPARED} runs to compare, not {len(ids)}.")
        return _page(await run_in_threadpool(self._dashboard.report, await self._entries(ids)))

    async def samples(self, request: Request) -> Response:
        entries = await self._entries(request.query_params.getlist("run")[:MAX_COMPARED])
        made = await run_in_threadpool(self._dashboard.samples, entries)
        headers = {"ETag": f'"{made.tag}"', "Cache-Control": "private, no-cache"}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(made.text, media_type="application/json", headers=headers)

    async def _entries(self, ids: list[str]) -> list[IndexEntry]:
        found = await run_in_threadpool(self._dashboard.find, ids)
        if found is None:
            raise HTTPException(404, "No such run. It may have been moved or deleted.")
        return found

    # --- streams --------------------------------------------------------------------------------

    async def list_events(self, request: Request) -> Response:
        # The version is taken before the stream opens, because the page loads the list when it does.
        return _stream(self._list_changes(request, await run_in_threadpool(self._dashboard.version)))

    async def _list_changes(self, request: Request, seen: str) -> AsyncIterator[bytes]:
        yield b"retry: 2000\n\n"
        async for _ in self._ticks(request):
            version = await run_in_threadpool(self._dashboard.version)
            yield b": \n\n" if version == seen else _event("list", {"version": version})
            seen = version

    async def run_events(self, request: Request) -> Response:
        (entry,) = await self._entries([request.path_params["id"]])
        return _stream(self._run_changes(request, entry))

    async def _run_changes(self, request: Request, entry: IndexEntry) -> AsyncIterator[bytes]:
        """The whole state first, so that a page can simply reconnect; then what is new."""
        yield b"retry: 2000\n\n"
        seen, status = -1, "running"
        while status == "running":
            try:
                state = await run_in_threadpool(self._dashboard.live_state, entry, seen)
            except LeadlineError:  # the page itself says why when it is loaded again
                return
            yield _event("state", state)
            seen, status = state["version"], state["status"]
            if status == "running" and not await self._tick(request):
                return

    async def _ticks(self, request: Request) -> AsyncIterator[None]:
        while await self._tick(request):
            yield

    async def _tick(self, request: Request) -> bool:
        """Waits; False when the page or the server is closed."""
        for _ in range(4):
            await asyncio.sleep(TICK_SECONDS / 4)
            if self._closing() or await request.is_disconnected():
                return False
        return True


def _event(name: str, values: dict[str, Any]) -> bytes:
    """One line of data: encoded JSON has no line breaks."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(values) + b"\n\n"


def _stream(events: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(events, media_type="text/event-stream", headers=STREAM_HEADERS)


def _page(made: CachedPage, status: int = 200) -> Response:
    return HTMLResponse(made.text, status, {"Content-Security-Policy": made.policy})


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _page(error_page(error.detail, ""), error.status_code)


async def _leadline_error(request: Request, error: Exception) -> Response:
    """What, where and fix, as on the command line. A run that cannot be read is no fault of the server."""
    assert isinstance(error, LeadlineError)
    status = 422 if isinstance(error, StoreError) else 500
    return _page(error_page(error.what, f"{error.where} {error.fix}".strip()), status)


# --- labels by people ---------------------------------------------------------------------------

LABEL_COLUMNS = ("question", "targets", "evidence", "answer", "label")
"""The columns of labels.csv that the page shows."""


class NewLabel(msgspec.Struct):
    row: int
    label: str


def make_label_app(folder: Path, host: str) -> Starlette:
    """The rows of labels.csv are written whole after every label."""
    labels = read_label_rows(folder / LABELS)
    style, script = asset("labelling.css", PACKAGE), asset("labelling.js", PACKAGE)
    page = template("labelling.html", PACKAGE).render(
        style=Markup(style), script=Markup(script), name=folder.resolve().name
    )
    made = CachedPage(page.encode("utf-8", "replace"), "", served_policy(style, script))

    async def show(request: Request) -> Response:
        return _page(made)

    async def rows(request: Request) -> Response:
        return JSONResponse([{name: row.get(name, "") for name in LABEL_COLUMNS} for row in labels])

    async def label(request: Request) -> Response:
        try:
            given = msgspec.json.decode(await request.body(), type=NewLabel)
            parse_label(given.label, f"row {given.row}")
        except (msgspec.DecodeError, UsageError) as error:
            return PlainTextResponse(f"{error}\n", 400)
        if not 0 <= given.row < len(labels):
            return PlainTextResponse(f"there is no row {given.row}\n", 400)
        labels[given.row]["label"] = given.label
        write_labels(folder, labels)
        return JSONResponse({"labelled": sum(bool(row.get("label")) for row in labels)})

    return Starlette(
        routes=[Route("/", show), Route("/rows", rows), Route("/label", label, methods=["POST"])],
        middleware=[Middleware(HostGuard, host=host, posts=True)],
    )


# --- security -----------------------------------------------------------------------------------
#
# The server is for browsers on this machine. A page from elsewhere must not read runs through it: not by requests from
# its own origin (nothing is shared), not in a frame, and not through a host name that resolves to this machine (DNS
# rebinding), which is refused by the Host header.

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def host_name(header: str) -> str:
    """`localhost` of `localhost:8321`, `::1` of `[::1]:8321`. The port is ignored: it differs behind a tunnel."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if header.count(":") == 1 else header


class HostGuard:
    """Allows GET and HEAD with a Host header that names this machine.

    When the server listens on another address than loopback, its host option, the machine's own name and IP addresses,
    which cannot be rebound, are allowed too.
    """

    def __init__(self, app: ASGIApp, host: str, posts: bool = False) -> None:
        """`posts` also allows POST of JSON, from pages of this server alone."""
        self._app = app
        self._posts = posts
        self._names = LOOPBACK | {host.lower()}
        self._open = host.lower() not in LOOPBACK
        if self._open:
            self._names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if scope["method"] == "POST" and self._posts:
            origin = headers.get("origin", "").partition("://")[2]
            if origin != headers.get("host") or headers.get("content-type") != "application/json":
                return PlainTextResponse("Only the page of this server may write.\n", 403)
        elif scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("This server is read-only.\n", 405, {"Allow": "GET, HEAD"})
        name = host_name(headers.get("host", "")).lower()
        if name in self._names or (self._open and _is_address(name)):
            return None
        return PlainTextResponse("Unknown host name. Use the address that the server printed.\n", 403)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


# --- the server ---------------------------------------------------------------------------------


def listen_on(host: str, port: int) -> socket.socket:
    """The server's socket; port 0 chooses a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(128)  # a browser may connect from now on, before the server has started
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            what, fix = f"port {port} is in use", f"choose another with --port {port + 1}, or a free one with --port 0"
        else:
            what, fix = f"cannot listen on {host}, port {port}: {error.strerror}", "try --host 127.0.0.1 --port 0"
        raise ServerError(what, where="view", fix=fix) from None
    return made


def address_of(listening: socket.socket, host: str) -> str:
    port = listening.getsockname()[1]
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/"


class LocalServer:
    """A server that listens. `run` serves until it is interrupted or `stop` is called."""

    def __init__(self, app: Starlette, listening: socket.socket, host: str) -> None:
        self.address = address_of(listening, host)
        self._listening = listening
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="error",
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_graceful_shutdown=2,
            )
        )

    def run(self) -> None:
        try:
            self._server.run(sockets=[self._listening])
        finally:
            self._listening.close()

    def stop(self) -> None:
        self._server.should_exit = True


class DashboardServer(LocalServer):
    def __init__(self, folders: Sequence[Path], host: str, port: int, headlines: Path | None = None) -> None:
        self._dashboard = Dashboard(folders, headlines)
        app = make_app(self._dashboard, host, closing=lambda: self._server.should_exit)
        super().__init__(app, listen_on(host, port), host)

    def run(self) -> None:
        try:
            super().run()
        finally:
            self._dashboard.close()


class LabelServer(LocalServer):
    def __init__(self, folder: Path, port: int) -> None:
        host = "127.0.0.1"
        super().__init__(make_label_app(folder, host), listen_on(host, port), host)
