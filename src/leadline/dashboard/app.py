"""Starting the dashboard, and ending it at once when told to."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from leadline.core.errors import LeadlineError, MissingExtra, ServerError
from leadline.dashboard.filters import Choice
from leadline.dashboard.index import IndexEntry
from leadline.dashboard.page_cache import CachedPage
from leadline.dashboard.pages import Dashboard, list_assets, served_policy
from leadline.dashboard.security import Guard
from leadline.report.page import Assets, joined_script, page_style, template

# --- The dashboard over HTTP: pages, samples, and streams of what is new.
#
# /                 the list of runs; q, status, sort and page in the address
# /events           `list` whenever the list has changed
# /run/ID           a run's report, live while it is being written
# /run/ID/events    `state`: progress, cells and failures since the last one
# /run/ID/status    whether it is being written
# /compare?run=ID&run=ID   several runs side by side
# /samples?run=ID   the packed samples of one or several runs

TICK_SECONDS = 1.0
MOST_COMPARED = 12
STREAM = {"X-Accel-Buffering": "no"}


def make_app(dashboard: Dashboard, host: str = "127.0.0.1", closing: Callable[[], bool] = lambda: False) -> Starlette:
    """`closing` says that the server wants to end, which streams must heed: they would go on for ever."""
    pages = _Pages(dashboard, closing)
    return Starlette(
        routes=[
            Route("/", pages.runs),
            Route("/events", pages.list_events),
            Route("/run/{id}", pages.run),
            Route("/run/{id}/events", pages.run_events),
            Route("/run/{id}/status", pages.run_status),
            Route("/compare", pages.compare),
            Route("/samples", pages.samples),
        ],
        middleware=[Middleware(Guard, host=host)],
        exception_handlers={HTTPException: _refused, LeadlineError: _broken},
    )


class _Pages:
    def __init__(self, dashboard: Dashboard, closing: Callable[[], bool]) -> None:
        self._board = dashboard
        self._closing = closing

    async def runs(self, request: Request) -> Response:
        text = await run_in_threadpool(self._board.list_page, Choice.of(request.query_params))
        return _page(text.encode("utf-8", "replace"), served_policy(*list_assets()))

    async def run(self, request: Request) -> Response:
        (entry,) = await self._entries([request.path_params["id"]])
        return _report(await run_in_threadpool(self._board.press.report, [entry]))

    async def run_status(self, request: Request) -> Response:
        (entry,) = await self._entries([request.path_params["id"]])
        return JSONResponse({"status": entry.status})

    async def compare(self, request: Request) -> Response:
        ids = list(dict.fromkeys(request.query_params.getlist("run")))
        if not 2 <= len(ids) <= MOST_COMPARED:
            raise HTTPException(400, f"A comparison takes two to {MOST_COMPARED} runs; {len(ids)} were ticked.")
        return _report(await run_in_threadpool(self._board.press.report, await self._entries(ids)))

    async def samples(self, request: Request) -> Response:
        entries = await self._entries(request.query_params.getlist("run")[:MOST_COMPARED])
        made = await run_in_threadpool(self._board.press.samples, entries)
        headers = {"ETag": f'"{made.tag}"', "Cache-Control": "private, no-cache"}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(made.text, media_type="application/json", headers=headers)

    async def _entries(self, ids: list[str]) -> list[IndexEntry]:
        found = await run_in_threadpool(self._board.find, ids)
        if found is None:
            raise HTTPException(404, "There is no such run here. It may have been moved or removed.")
        return found

    # --- streams --------------------------------------------------------------------------------

    async def list_events(self, request: Request) -> Response:
        # Before the answer begins: a page asks for the list when the stream opens, and what changes after that is news.
        return _stream(self._list_news(request, await run_in_threadpool(self._board.version)))

    async def _list_news(self, request: Request, seen: str) -> AsyncIterator[bytes]:
        yield b"retry: 2000\n\n"
        async for _ in self._ticks(request):
            version = await run_in_threadpool(self._board.version)
            yield b": \n\n" if version == seen else _event("list", {"version": version})
            seen = version

    async def run_events(self, request: Request) -> Response:
        (entry,) = await self._entries([request.path_params["id"]])
        return _stream(self._run_news(request, entry))

    async def _run_news(self, request: Request, entry: IndexEntry) -> AsyncIterator[bytes]:
        """Everything at first, so that a page that lost its stream needs nothing but a new one; then what is new."""
        yield b"retry: 2000\n\n"
        seen, status = -1, "running"
        while status == "running":
            state = await run_in_threadpool(self._state, entry, seen)
            yield _event("state", state)
            seen, status = state["version"], state["status"]
            if status == "running" and not await self._tick(request):
                return

    def _state(self, entry: IndexEntry, seen: int) -> dict[str, Any]:
        state = self._board.channels.of(entry).state(seen)
        tag, due = self._board.press.standing(entry)
        return state | {"tag": tag, "due": due}

    async def _ticks(self, request: Request) -> AsyncIterator[None]:
        while await self._tick(request):
            yield

    async def _tick(self, request: Request) -> bool:
        """Waits a little; False when nobody listens any more."""
        for _ in range(4):
            await asyncio.sleep(TICK_SECONDS / 4)
            if self._closing() or await request.is_disconnected():
                return False
        return True


def _event(name: str, values: dict[str, Any]) -> bytes:
    """JSON has no line breaks, so one line of data holds it."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(values) + b"\n\n"


def _stream(news: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(news, media_type="text/event-stream", headers=STREAM)


def _page(text: bytes, policy: str, status: int = 200) -> Response:
    return HTMLResponse(text, status, {"Content-Security-Policy": policy})


def _report(printed: CachedPage) -> Response:
    served = Assets("", "live" if printed.live else "")
    return _page(printed.text, served_policy(page_style(served), joined_script(served)))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _trouble(error.detail, "", error.status_code)


async def _broken(request: Request, error: Exception) -> Response:
    """A run that cannot be read: what, where and how to mend it, as on the command line."""
    assert isinstance(error, LeadlineError)
    return _trouble(error.what, f"{error.where} {error.fix}".strip(), 500)


def _trouble(what: str, more: str, status: int) -> Response:
    style = list_assets()[0]
    text = template("trouble.html").render(style=style, what=what, more=more)
    return _page(text.encode("utf-8", "replace"), served_policy(style, ""), status)


# --- Starting the dashboard, and ending it at once when told to.


def listen_on(host: str, port: int) -> socket.socket:
    """The server's socket; port 0 takes any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(128)  # from now on a browser may come, be the server ever so slow to start
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            what, fix = f"port {port} is taken", f"choose another with --port {port + 1}, or any free one with --port 0"
        else:
            what, fix = f"cannot listen on {host}, port {port}: {error.strerror}", "try --host 127.0.0.1 --port 0"
        raise ServerError(what, where="view", fix=fix) from None
    return made


def address_of(listening: socket.socket, host: str) -> str:
    port = listening.getsockname()[1]
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/"


class Serving:
    """A dashboard that is listening. `run` answers until it is interrupted or told to `stop`."""

    def __init__(self, folders: Sequence[Path], host: str, port: int, headlines: Path | None = None) -> None:
        try:
            import uvicorn

        except ImportError as error:
            raise MissingExtra((error.name or "starlette").partition(".")[0], "view", where="view") from None

        from leadline.dashboard.pages import Dashboard

        self._dashboard = Dashboard(folders, headlines)
        self._listening = listen_on(host, port)
        self.address = address_of(self._listening, host)
        app = make_app(self._dashboard, host, closing=lambda: self._server.should_exit)
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
            self._dashboard.close()
            self._listening.close()

    def stop(self) -> None:
        self._server.should_exit = True
