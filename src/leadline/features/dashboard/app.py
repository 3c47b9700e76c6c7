"""The dashboard over HTTP: pages, samples, streams of changes, and the server that answers.

/                 the list of runs; q, status, sort and page in the query
/events           `list` whenever the list has changed
/run/ID           the report of a run, live while the run is in progress
/run/ID/events    `state`: progress, cells and failures since the last one
/run/ID/status    whether the run is in progress
/compare?run=ID&run=ID   several runs side by side
/samples?run=ID   the packed samples of one or several runs
/run/ID/NAME/     a page that a feature adds (`leadline.pages`)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, Router
from starlette.types import Receive, Scope, Send

from leadline.core.errors import LeadlineError, StoreError
from leadline.features.dashboard.pages import CachedPage, Dashboard, RunQuery, error_page
from leadline.features.dashboard.run_folders import IndexEntry
from leadline.report.serve import LOOPBACK, HostGuard, LocalServer, RunPage, html_response, listen_on

TICK_SECONDS = 1.0
MAX_COMPARED = 12
STREAM_HEADERS = {"X-Accel-Buffering": "no"}


def make_app(dashboard: Dashboard, host: str = "127.0.0.1", closing: Callable[[], bool] = lambda: False) -> Starlette:
    """`closing` returns True when the server is shutting down, which ends the streams."""
    handlers = _Handlers(dashboard, closing)
    pages = {name: _MountedPage(dashboard, page) for name, page in dashboard.pages.items()}

    def takes_posts(path: str) -> bool:
        """Only pages that features add take POST requests, and only from this machine."""
        _, first, _, name, *_ = [*path.split("/"), "", "", ""]
        return first == "run" and name in pages and host.lower() in LOOPBACK

    return Starlette(
        routes=[
            Route("/", handlers.runs),
            Route("/events", handlers.list_events),
            Route("/run/{id}", handlers.run),
            Route("/run/{id}/events", handlers.run_events),
            Route("/run/{id}/status", handlers.run_status),
            Route("/compare", handlers.compare),
            Route("/samples", handlers.samples),
            *(Mount(f"/run/{{id}}/{name}", app=page) for name, page in pages.items()),
        ],
        middleware=[Middleware(HostGuard, host=host, posts=takes_posts)],
        exception_handlers={HTTPException: _http_error, LeadlineError: _leadline_error},
    )


class _MountedPage:
    """A page that a feature adds, for the run that the address names."""

    def __init__(self, dashboard: Dashboard, page: RunPage) -> None:
        self._dashboard, self._page = dashboard, page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        entries = await run_in_threadpool(self._dashboard.find, [scope["path_params"]["id"]])
        if entries is None or not self._page.is_offered(entries[0].folder):
            raise HTTPException(404, "This run has no such page.")
        await Router(self._page.routes(entries[0].folder))(scope, receive, send)


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
        page = await run_in_threadpool(self._dashboard.samples, entries)
        headers = {"ETag": f'"{page.tag}"', "Cache-Control": "private, no-cache"}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(page.text, media_type="application/json", headers=headers)

    async def _entries(self, ids: list[str]) -> list[IndexEntry]:
        entries = await run_in_threadpool(self._dashboard.find, ids)
        if entries is None:
            raise HTTPException(404, "No such run. It may have been moved or deleted.")
        return entries

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


def _page(page: CachedPage, status: int = 200) -> Response:
    return html_response(page.text, page.policy, status)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _page(error_page(error.detail, ""), error.status_code)


async def _leadline_error(request: Request, error: Exception) -> Response:
    """What, where and fix, as on the command line. A run that cannot be read is no fault of the server."""
    assert isinstance(error, LeadlineError)
    status = 422 if isinstance(error, StoreError) else 500
    return _page(error_page(error.what, f"{error.where} {error.fix}".strip()), status)


# --- the server ---------------------------------------------------------------------------------


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
