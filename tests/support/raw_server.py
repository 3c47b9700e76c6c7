"""A server of raw bytes: the test writes every reply to the socket itself."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from typing import Any

MODELS = {"object": "list", "data": [{"id": "fake", "object": "model"}]}
GOOD: dict[str, Any] = {
    "choices": [{"message": {"role": "assistant", "content": "4711321"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 3},
}
Write = Callable[[socket.socket], None]


class RawServer:
    """Answers requests for completions with whatever `write` puts on the socket, then closes the connection."""

    def __init__(self) -> None:
        self.write: Write = lambda sock: sock.sendall(whole(json.dumps(GOOD).encode()))
        self.head = ""
        """Request line and headers of the latest request."""
        self.other = b""
        """The page at every other path; 404 where it is empty."""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listening.accept()
                threading.Thread(target=self._answer, args=(sock,), daemon=True).start()

    def _answer(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError, ValueError):
            data = b""
            while b"\r\n\r\n" not in data:
                data += sock.recv(65536)
            head, _, body = data.partition(b"\r\n\r\n")
            length = next((int(li[15:]) for li in head.split(b"\r\n") if li.lower().startswith(b"content-length:")), 0)
            while len(body) < length:
                body += sock.recv(65536)
            self.head = head.decode("latin-1")
            if head.startswith(b"POST"):
                self.write(sock)
            else:
                listed = b"/v1/models" in head
                page = json.dumps(MODELS).encode() if listed else self.other
                sock.sendall(whole(page, status=200 if page else 404))

    def close(self) -> None:
        self._listening.close()


def whole(body: bytes, *, status: int = 200, headers: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    )
    return (head + headers + "\r\n").encode() + body


def answering(content: Any, **more: Any) -> bytes:
    return json.dumps(
        {**GOOD, "choices": [{"message": {"content": content}, "finish_reason": "stop"}], **more}
    ).encode()
