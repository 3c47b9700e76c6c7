"""Security of the dashboard: response headers, and which requests are answered.

The server is for browsers on this machine. A page from elsewhere must not read runs through it: not by requests from
its own origin (nothing is shared), not in a frame, and not through a host name that resolves to this machine (DNS
rebinding), which is refused by the Host header.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app = app
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
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("This server is read-only.\n", 405, {"Allow": "GET, HEAD"})
        name = host_name(Headers(scope=scope).get("host", "")).lower()
        if name in self._names or (self._open and _is_address(name)):
            return None
        return PlainTextResponse("Unknown host name. Use the address that the server printed.\n", 403)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
