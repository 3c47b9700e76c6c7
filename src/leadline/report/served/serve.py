"""Starting the dashboard, and ending it at once when told to."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from pathlib import Path

from leadline.core.errors import MissingExtra, ServerError


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

            from leadline.report.served.app import make_app
        except ImportError as error:
            raise MissingExtra((error.name or "starlette").partition(".")[0], "view", where="view") from None

        from leadline.report.served.dashboard import Dashboard

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
