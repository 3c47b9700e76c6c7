"""What every answer of the server carries, and which questions it takes at all.

The server is for the browser on this machine. A page from elsewhere must not read runs through it: not by asking from
its own origin (nothing is shared), not in a frame, and not by a name of its own that points here (DNS rebinding), which
the Host header gives away.
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
    """`localhost` of `localhost:8321`, `::1` of `[::1]:8321`. Ports differ behind a tunnel and do not matter."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if header.count(":") == 1 else header


class Guard:
    """Reading only, from hosts that are this machine. Told to listen beyond it, it also answers to the name it was
    told, to the machine's own, and to plain addresses, which nobody can point elsewhere."""

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
            return PlainTextResponse("This server is for reading only.\n", 405, {"Allow": "GET, HEAD"})
        name = host_name(Headers(scope=scope).get("host", "")).lower()
        if name in self._names or (self._open and _is_address(name)):
            return None
        return PlainTextResponse("This server does not answer to that name. Use the address it printed.\n", 403)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
