"""`--serve "COMMAND"`: a server that a command starts, asks and stops."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from leadline.console.model_names import address_parts
from leadline.console.output import say
from leadline.core import registry
from leadline.core.errors import Interrupted, UsageError
from leadline.run.interrupt import RESUME
from leadline.run.serving import StartedServer

ServeOption = Annotated[
    str,
    typer.Option(
        "--serve",
        metavar="COMMAND",
        help='Start this server first, and stop it at the end with everything it started: "vllm serve NAME --port '
        '8001". Its address is that of the model, or its --port.',
        show_default=False,
    ),
]
LOCAL = "http://127.0.0.1:{}/v1"


@contextmanager
def serving(command: str, model: str, out: Path | None) -> Iterator[str]:
    """The model to ask, while its server runs; without a command the model as it is. The server's output goes to a
    file beside the folder `out`. An error after the server's end is the server's, with its last lines."""
    if not command:
        yield model
        return
    address = server_address(command, model)
    port = address_parts(address).port or 80
    log = Path("runs") / f"server-{port}.log" if out is None else out.with_name(f"{out.name}-server.log")
    with ending_on_sigterm(), StartedServer(command, address, log, say=say) as server, blaming(server):
        yield model or address


def server_address(command: str, model: str) -> str:
    """Where a server will answer: the base URL of its model, or the --port of its command."""
    if model.startswith(("http://", "https://")):
        address = model.partition("?")[0].rstrip("/")
        return address if address.endswith("/v1") else f"{address}/v1"
    if model:
        address = registry.ModelName.parse(model).options.get("base_url", "")
        if address:
            return address
    if (port := _port(command)) is not None and (not model or model.startswith("openai:")):
        return LOCAL.format(port)
    raise UsageError(
        "the address of the server is not known",
        where=model or command,
        fix="add --port PORT to its command, or give the model as openai:NAME?base_url=http://127.0.0.1:PORT/v1",
    )


def served_model(command: str, model: str) -> str:
    """The model string of a server that is not running yet: its name is asked for when it answers."""
    if model and not model.startswith(("http://", "https://")):
        return model
    options = model.partition("?")[2]
    return f"openai:?base_url={server_address(command, model)}{'&' + options if options else ''}"


def _port(command: str) -> int | None:
    try:
        words = shlex.split(command)
    except ValueError:
        return None  # the error about its quotes comes when it is started
    for word, following in zip(words, [*words[1:], ""], strict=True):
        text = following if word == "--port" else word.removeprefix("--port=") if word.startswith("--port=") else ""
        if text.isdecimal():
            return int(text)
    return None


@contextmanager
def blaming(server: StartedServer | None) -> Iterator[None]:
    """An error that comes when the server has ended is the server's, with its last lines."""
    try:
        yield
    except Exception as error:
        if server is not None and server.died and not isinstance(error, Interrupted):
            raise server.death() from error
        raise


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """SIGTERM raises, so that servers that were started are stopped; while samples are asked, the run handles it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise Interrupted("ended by a signal", where="--serve", fix=RESUME)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
