"""HTTP/1.1 with Content-Length and keep-alive for the fake server: only what our client uses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Response:
    status: int
    body: bytes
    type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    announced: int | None = None
    """A Content-Length larger than the body: the connection is closed before the rest."""
    then_close: bool = False
    """Closes the connection afterwards without announcing it, as servers do with idle ones."""


Responder = Callable[[str, str, dict[str, str], bytes], Awaitable[Response | None]]
"""(method, path, headers, body) to a response, or to None: the connection is dropped without a response."""


def json_response(status: int, value: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(status, json.dumps(value).encode(), headers=headers or {})


class Connection(asyncio.Protocol):
    """One client's connection; requests on it are answered one after the other."""

    def __init__(self, respond: Responder, everyone: set[asyncio.Transport]) -> None:
        self._respond = respond
        self._everyone = everyone
        self._data = bytearray()
        self._need = 0
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._everyone.add(transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._everyone.discard(self._transport)
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) < self._need:
            return
        head_end = self._data.find(b"\r\n\r\n")
        if head_end < 0:
            return
        first, *lines = self._data[:head_end].decode("latin-1").split("\r\n")
        headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        self._need = head_end + 4 + int(headers.get("content-length", 0))
        if len(self._data) < self._need:
            return
        body = bytes(self._data[head_end + 4 : self._need])
        del self._data[: self._need]
        self._need = 0
        method, path, _ = first.split(" ", 2)
        self._task = asyncio.get_running_loop().create_task(self._reply(method, path, headers, body))

    async def _reply(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        response = await self._respond(method, path, headers, body)
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if response is None:
            transport.abort()
            return
        length = len(response.body) if response.announced is None else response.announced
        lines = [f"HTTP/1.1 {response.status} Status", f"Content-Type: {response.type}", f"Content-Length: {length}"]
        lines += [f"{name}: {value}" for name, value in response.headers.items()]
        transport.write("\r\n".join(lines).encode() + b"\r\n\r\n" + response.body)
        if response.announced is not None or response.then_close:
            transport.close()
