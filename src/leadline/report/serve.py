"""A small web server for pages about runs, and the door `leadline.pages` for pages that features add to the dashboard.

The server is for browsers on this machine. A page from elsewhere must not read runs through it: not by requests from
its own origin (nothing is shared), not in a frame, and not through a host name that resolves to this machine (DNS
rebinding), which is refused by the Host header.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leadline.core import registry
from leadline.core.errors import ServerError, UsageError
from leadline.report.page import fingerprint

# --- pages of a run -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page about one run that a feature adds to the dashboard: an entry point of `leadline.pages`.

    It is at /run/ID/NAME/, where NAME is that of the entry point, and linked from the report of the run. Addresses in
    it are relative.
    """

    title: str
    """Of the link."""
    is_offered: Callable[[Path], bool]
    """Whether the run in this folder has the page."""
    routes: Callable[[Path], Sequence[BaseRoute]]
    """Of the run in this folder, the page itself at `/`."""


def run_pages() -> dict[str, RunPage]:
    """The pages of all features, by the names of their entry points."""
    pages = {name: registry.find("pages", name) for name in registry.names("pages")}
    for name, page in pages.items():
        if not isinstance(page, RunPage):
            raise UsageError(f"{page!r} is not a RunPage", where=f"page {name}", fix="reinstall or remove its package")
    return pages


def html_response(text: str | bytes, policy: str, status: int = 200) -> Response:
    return HTMLResponse(text, status, {"Content-Security-Policy": policy})


def served_policy(style: str, script: str) -> str:
    """A Content-Security-Policy: only the page's own style and script, and connections to this server alone."""
    return (
        f"default-src 'none'; img-src data:; style-src '{fingerprint(style)}'; script-src '{fingerprint(script)}'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


# --- security -----------------------------------------------------------------------------------

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


_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9_.-]+))(?::[0-9]{1,5})?")


def host_name(header: str) -> str:
    """`localhost` of `localhost:8321`, `::1` of `[::1]:8321`. The port is ignored: it differs behind a tunnel. Empty
    where the header is neither of the two forms."""
    parsed = _HOST.fullmatch(header)
    return (
        (parsed["address"] or parsed["name"]).lower().rstrip(".") if parsed else header if _is_address(header) else ""
    )


class HostGuard:
    """Allows GET and HEAD with a Host header that names this machine.

    When the server listens on another address than loopback, its host option, the machine's own name and IP addresses,
    which cannot be rebound, are allowed too.
    """

    def __init__(self, app: ASGIApp, host: str, posts: Callable[[str], bool] = lambda path: False) -> None:
        """`posts` names the paths that also take POST of JSON, from pages of this server alone."""
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
        if scope["method"] == "POST" and self._posts(scope["path"]):
            if (
                not _is_origin(headers.get("origin", ""), headers.get("host", ""))
                or headers.get("content-type") != "application/json"
            ):
                return PlainTextResponse("Only the page of this server may write.\n", 403)
        elif scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("This server is read-only.\n", 405, {"Allow": "GET, HEAD"})
        hosts = headers.getlist("host")
        name = host_name(hosts[0]) if len(hosts) == 1 else ""
        if name in self._names or (self._open and _is_address(name)):
            return None
        return PlainTextResponse("Unknown host name. Use the address that the server printed.\n", 403)


def _is_origin(origin: str, host: str) -> bool:
    """Whether a page of this host sent the request."""
    try:
        parsed = urlsplit(origin)
    except ValueError:
        return False
    return parsed.scheme in ("http", "https") and bool(host) and parsed.netloc == host


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
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)  # a browser may connect from now on, before the server has started
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            what, fix = f"port {port} is in use", f"choose another with --port {port + 1}, or a free one with --port 0"
        else:
            what, fix = f"cannot listen on {host}, port {port}: {error.strerror}", "try --host 127.0.0.1 --port 0"
        raise ServerError(what, where="view", fix=fix) from None
    return listening


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
