"""Chart definitions to files and to the page: png for the web, svg for the page, pdf for a paper."""

from __future__ import annotations

import html
import re
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

import msgspec

from leadline.core.errors import StoreError
from leadline.report.charts.theme import HEAD, LINE, MUTED, TEXT, Figure

# --- Where definitions become pictures: here, or on an easel, a process of its own that draws while this one goes on.
#
# vl-convert takes most of a second to start and holds the interpreter's lock while it draws, so threads would only wait
# for each other.

Definition = dict[str, Any]
GRACE_SECONDS = 10.0


def drawn(definition: Definition) -> Future[str]:
    """The svg of a Vega-Lite definition: at once, or in a while where there is an easel."""
    easel = _EASEL.get()
    if easel is not None:
        return easel.draw(definition)
    done: Future[str] = Future()
    done.set_result(_svg(definition))
    return done


@contextmanager
def render_process() -> Iterator[None]:
    """What is drawn in this block is drawn by a process of its own, which starts now."""
    easel = RenderProcess()
    token = _EASEL.set(easel)
    try:
        yield
    finally:
        _EASEL.reset(token)
        easel.close()


class RenderProcess:
    """Draws in the order of asking. What it cannot, since it does not start or has died, is drawn in this process."""

    def __init__(self) -> None:
        self._turns = ThreadPoolExecutor(1, thread_name_prefix="easel")
        self._process: subprocess.Popen[bytes] | None = None
        try:
            # -P: a json.py where the command was typed must not be taken for the library's.
            command = [sys.executable, "-P", "-m", __name__]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError:
            pass

    def draw(self, definition: Definition) -> Future[str]:
        return self._turns.submit(self._drawn, definition)

    def _drawn(self, definition: Definition) -> str:
        reply = self._asked(msgspec.json.encode(definition)) if self._process is not None else b""
        return msgspec.json.decode(reply, type=str) if reply.endswith(b"\n") else _svg(definition)

    def _asked(self, line: bytes) -> bytes:
        """The reply as a whole line; nothing where the definition is wrong, which is told when it is drawn here."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
            return self._process.stdout.readline()
        except OSError:
            return b""

    def close(self) -> None:
        self._turns.shutdown(cancel_futures=True)
        if self._process is None:
            return
        try:
            self._process.communicate(timeout=GRACE_SECONDS)  # the end of what it is given is its end
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


_EASEL: ContextVar[RenderProcess | None] = ContextVar("easel", default=None)


def _svg(definition: Definition) -> str:
    import vl_convert

    return str(vl_convert.vegalite_to_svg(definition))


def serve(asked: IO[bytes], replies: IO[bytes]) -> None:
    """The process on the other side: a definition a line in, an svg as a JSON string a line out. A definition that
    cannot be drawn ends it, and whoever asked finds out why."""
    _svg({"data": {"values": []}, "mark": "point"})  # starts the engine before there is anything to draw
    for line in asked:
        replies.write(msgspec.json.encode(_svg(msgspec.json.decode(line))) + b"\n")
        replies.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever gave the work decides when it is over
    try:
        serve(sys.stdin.buffer, sys.stdout.buffer)
    except ValueError:
        sys.exit(1)


# --- Chart definitions to files and to the page: png for the web, svg for the page, pdf for a paper.

FORMATS = ("png", "svg", "pdf")
_PAGE_COLOURS = {HEAD: "var(--head)", TEXT: "var(--text)", MUTED: "var(--muted)", LINE: "var(--line)"}
COLUMN_POINTS = 252
"""Three and a half inches, a column of most proceedings."""
PAGE_POINTS = 504
"""Seven inches, both columns: for figures too wide to be read in one."""
COLUMN_PIXELS = 600
"""Figures that are drawn wider than this are for both columns."""
_SIZE = re.compile(r'width="([\d.]+)" height="([\d.]+)"')
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_LONG_NUMBER = re.compile(r"(\d+\.\d\d)\d+")
_SELECTION = re.compile(r'aria-label="\[([^\]]*)\] ')


def render(figure: Figure, kind: str) -> bytes:
    """A figure as one of FORMATS."""
    return _converted(svg_of(figure), kind, column=False)


def svg_of(figure: Figure) -> str:
    return _SELECTION.sub('aria-label="', drawn(figure.spec()).result())


def _converted(svg: str, kind: str, *, column: bool) -> bytes:
    """`column` makes it as wide as a column of a paper, or as both of them, png at 300 dots an inch."""
    import vl_convert

    width = float(_SIZE.search(svg)[1])  # type: ignore[index]
    points = COLUMN_POINTS if width <= COLUMN_PIXELS else PAGE_POINTS
    if kind == "png":
        return squeezed(vl_convert.svg_to_png(svg, scale=points / 72 * 300 / width if column else 2))
    if column:
        svg = _scaled(svg, points / width)
    return bytes(vl_convert.svg_to_pdf(svg)) if kind == "pdf" else svg.encode()


def _scaled(svg: str, factor: float) -> str:
    """The same drawing at another size: the view box stays, the outer size changes."""
    return _SIZE.sub(lambda m: f'width="{float(m[1]) * factor:.1f}" height="{float(m[2]) * factor:.1f}"', svg, count=1)


def write_figure(figure: Figure, stem: Path, kinds: Iterable[str] = FORMATS, *, column: bool = False) -> list[Path]:
    """`stem` with each ending; says which files were written."""
    written = []
    svg = svg_of(figure)
    for kind in kinds:
        path = stem.with_name(f"{stem.name}.{kind}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_converted(svg, kind, column=column))
        except OSError as error:
            raise StoreError(f"cannot write the figure: {error.strerror}", where=str(path)) from None
        written.append(path)
    return written


def squeezed(png: bytes) -> bytes:
    """The same picture in about a third of the bytes: the renderer hardly compresses."""
    chunks, at = [], len(_PNG_SIGNATURE)
    while at < len(png):
        size, kind = struct.unpack_from(">I4s", png, at)
        chunks.append((kind, png[at + 8 : at + 8 + size]))
        at += size + 12
    pixels = zlib.compress(zlib.decompress(b"".join(data for kind, data in chunks if kind == b"IDAT")), 7)
    first = next(i for i, (kind, _) in enumerate(chunks) if kind == b"IDAT")
    others = [chunk for chunk in chunks if chunk[0] != b"IDAT"]
    made = [*others[:first], (b"IDAT", pixels), *others[first:]]
    return _PNG_SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in made
    )


class PageFigure:
    """A figure for the page, begun now and finished when the page is put together."""

    def __init__(self, figure: Figure, name: str) -> None:
        self._figure, self._name = figure, name
        self._drawn = drawn(figure.spec(background="transparent"))

    def __html__(self) -> str:
        return _in_page(self._drawn.result(), self._figure, self._name)


def page_svg(figure: Figure, name: str) -> str:
    return PageFigure(figure, name).__html__()


def _in_page(svg: str, figure: Figure, name: str) -> str:
    """The figure as a live part of the document.

    Text and lines take the page's own light or dark colours, what a mark stands for becomes `data-select`, and ids
    carry the figure's name, for two figures of one page must not share a gradient.
    """
    svg = _LONG_NUMBER.sub(r"\1", svg)
    svg = _SELECTION.sub(r'data-select="\1" aria-label="', svg)
    for colour, variable in _PAGE_COLOURS.items():
        svg = svg.replace(f'"{colour}"', f'"{variable}"')
    svg = re.sub(r'id="(\w+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r"url\(#(\w+)\)", rf"url(#{name}-\1)", svg)
    label = html.escape(figure.alternative, quote=True)
    return svg.replace("<svg ", f'<svg role="group" aria-label="{label}" ', 1)
