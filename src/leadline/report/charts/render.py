"""Figures to png, svg and pdf, drawn by vl-convert in a process of its own.

vl-convert aborts the process it runs in on some texts, so it never runs in this one. The drawing process starts with
the first figure, draws in the order of the requests and ends with this process. When it dies, the figure raises
RenderError and the next figure gets a new process. Run as a program, this module is that process.

vl-convert brings Liberation Sans, so png and pdf look the same everywhere. An svg is shown in a font of the reader's
machine: every text carries the width that it was laid out with, so that no font can push it out of the figure.
"""

from __future__ import annotations

import atexit
import html
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from leadline.core.errors import RenderError, StoreError
from leadline.core.format import sanitise
from leadline.report.colours import HEAD, LINE, MUTED, TEXT

if sys.platform == "win32":
    resource = None
else:
    import resource

if TYPE_CHECKING:  # altair takes a second to import, and the drawing process does not need it
    from leadline.report.charts.theme import Figure

Format = Literal["png", "svg", "pdf"]
FORMATS: tuple[Format, ...] = ("png", "svg", "pdf")
COLUMN_POINTS = 252
"""3.5 inches, one column of most proceedings."""
PAGE_POINTS = 504
"""7 inches, both columns."""
COLUMN_PIXELS = 600
"""A figure drawn wider than this takes both columns."""
_PAGE_COLOURS = {HEAD: "var(--head)", TEXT: "var(--text)", MUTED: "var(--muted)", LINE: "var(--line)"}
_SIZE = re.compile(r'width="([\d.]+)" height="([\d.]+)"')
_ATTRIBUTE = re.compile(r' (?!aria-)[\w:-]+="[^"]*"')
_LONG_NUMBER = re.compile(r"(\d+\.\d\d)\d+")
_SELECTION = re.compile(r'aria-label="\[([^\]]*)\] ')
_TEXT = re.compile(r"<text ([^>]*)>(.*?)</text>")
_LINE_OF_TEXT = re.compile(r"<tspan([^>]*)>([^<]*)</tspan>")
_FONT_SIZE = re.compile(r'font-size="([\d.]+)px"')
# Advance widths of Liberation Sans, which are those of Arial and Helvetica, in thousandths of the font size: the
# characters from space to tilde, then those of `_MORE_CHARACTERS`.
_MORE_CHARACTERS = "\u00a0·…–−×≥≤"
_REGULAR = (
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556,
    556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833,
    722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556,
    556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334,
    260, 334, 584, 278, 333, 1000, 556, 584, 584, 549, 549,
)  # fmt: skip
_BOLD = (
    278, 333, 474, 556, 556, 889, 722, 238, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556,
    556, 556, 556, 333, 333, 584, 584, 584, 611, 975, 722, 722, 722, 722, 667, 611, 778, 722, 278, 556, 722, 611, 833,
    722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 333, 278, 333, 584, 556, 333, 556, 611, 556, 611,
    556, 333, 611, 611, 278, 278, 556, 278, 889, 611, 611, 611, 611, 389, 556, 333, 611, 556, 778, 556, 556, 500, 389,
    280, 389, 584, 278, 333, 1000, 556, 584, 584, 549, 549,
)  # fmt: skip
_CHARACTERS = "".join(map(chr, range(32, 127))) + _MORE_CHARACTERS
_WIDTHS = {False: dict(zip(_CHARACTERS, _REGULAR, strict=True)), True: dict(zip(_CHARACTERS, _BOLD, strict=True))}


class RenderProcess:
    """A child process that runs vl-convert functions one after the other. Safe to use from many threads."""

    def __init__(self) -> None:
        self._queue = ThreadPoolExecutor(1, thread_name_prefix="render")
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()

    def submit(self, function: str, **arguments: object) -> Future[Any]:
        return self._queue.submit(self._call, function, arguments)

    def _call(self, function: str, arguments: dict[str, object]) -> Any:
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((function, arguments), process.stdin)
            process.stdin.flush()
            succeeded, result = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            raise self._died(process) from None
        if not succeeded:
            raise RenderError(f"the figure cannot be drawn: {sanitise(result)}", where="drawing process")
        return result

    def _start(self) -> subprocess.Popen[bytes]:
        # -P: a vl_convert.py or pickle.py in the current folder must not be imported instead of the library.
        command = [sys.executable, "-P", "-m", "leadline.report.charts.render"]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
            )
        except OSError as error:
            raise RenderError(f"the drawing process cannot be started: {error}", where=sys.executable) from None
        return self._process

    def _died(self, process: subprocess.Popen[bytes]) -> RenderError:
        """Reaps the process, so that the next figure starts another one."""
        self._process = None
        process.kill()
        process.communicate()
        self._errors.seek(0)
        printed = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        self._errors.seek(0)
        self._errors.truncate()  # the next process must not be blamed for what this one said
        code = process.returncode
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        if limit := _memory_limit():
            return RenderError(
                f"the drawing process died ({how}): it needs more than the {limit / 2**30:,.3g} GiB of addresses that "
                "`ulimit -v` allows",
                where="drawing process",
                fix="the records are complete: run `leadline report RUN` where `ulimit -v` is unlimited",
            )
        said = next((line for line in printed if _REASON.search(line)), printed[-1] if printed else "")
        return RenderError(
            f"the drawing process died ({how})" + (f": {sanitise(said.strip(), 200)}" if said else ""),
            where="drawing process",
            fix="the records are complete; run `leadline report RUN` again, and report the names in the figure if it "
            "dies again",
        )

    def close(self) -> None:
        self._queue.shutdown(cancel_futures=True)
        if self._process is not None:
            self._process.communicate()  # it ends when its input does
            self._process = None
        self._errors.close()


_REASON = re.compile("fatal|panicked|error", re.IGNORECASE)


def _memory_limit() -> int:
    """The bytes of addresses that processes of this one may have; 0 if there is no limit. The JavaScript engine of
    vl-convert reserves many times of what it uses."""
    if resource is None:
        return 0
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    return 0 if hard == resource.RLIM_INFINITY else hard


_RENDERER: list[RenderProcess] = []


def renderer() -> RenderProcess:
    """The drawing process of this process."""
    if not _RENDERER:
        _RENDERER.append(RenderProcess())
        atexit.register(_RENDERER[0].close)
    return _RENDERER[0]


def render(figure: Figure, kind: Format) -> bytes:
    return _convert(_svg(figure), kind, column=False)


def write_figure(figure: Figure, stem: Path, kinds: Iterable[Format] = FORMATS, *, column: bool = False) -> list[Path]:
    """Writes `stem` with each ending and returns the paths.

    `column` sizes the figure for a paper: as wide as one column, or as both where it is drawn wide; png at 300 dpi.
    """
    written = []
    svg = _svg(figure)
    for kind in kinds:
        path = stem.with_name(f"{stem.name}.{kind}")
        encoded = _convert(svg, kind, column=column)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded)
        except OSError as error:
            raise StoreError(f"cannot write the figure: {error.strerror}", where=str(path)) from None
        written.append(path)
    return written


def _svg(figure: Figure) -> str:
    drawn: str = renderer().submit("vegalite_to_svg", vl_spec=figure.spec()).result()
    return _SELECTION.sub('aria-label="', drawn)


def _convert(svg: str, kind: Format, *, column: bool) -> bytes:
    width = float(_SIZE.search(svg)[1])  # type: ignore[index]
    points = COLUMN_POINTS if width <= COLUMN_PIXELS else PAGE_POINTS
    if kind == "png":
        scale = points / 72 * 300 / width if column else 2
        return bytes(renderer().submit("svg_to_png", svg=svg, scale=scale).result())
    if column:
        svg = _scaled(svg, points / width)
    return bytes(renderer().submit("svg_to_pdf", svg=svg).result()) if kind == "pdf" else with_widths(svg).encode()


def text_width(text: str, size: float, *, bold: bool = False) -> float | None:
    """In pixels, in the font that figures are laid out with; None where a character is not known."""
    widths = _WIDTHS[bold]
    return sum(widths[c] for c in text) * size / 1000 if all(c in widths for c in text) else None


def with_widths(svg: str) -> str:
    """Fixes the width of every text, whatever font shows it."""

    def fixed(attributes: str, text: str, size: float, *, bold: bool) -> str:
        width = text_width(html.unescape(text), size, bold=bold)
        return f'{attributes} textLength="{width:.1f}" lengthAdjust="spacingAndGlyphs"' if width else attributes

    def replaced(tag: re.Match[str]) -> str:
        attributes, inside = tag[1], tag[2]
        known = _FONT_SIZE.search(attributes)
        if known is None:
            return tag[0]
        size, bold = float(known[1]), 'font-weight="bold"' in attributes
        if "<" not in inside:
            return f"<text {fixed(attributes, inside, size, bold=bold)}>{inside}</text>"
        lines = _LINE_OF_TEXT.sub(lambda m: f"<tspan{fixed(m[1], m[2], size, bold=bold)}>{m[2]}</tspan>", inside)
        return f"<text {attributes}>{lines}</text>"

    return _TEXT.sub(replaced, svg)


def _shortened(svg: str) -> str:
    """Coordinates with two decimals. Texts and labels keep theirs: they are values."""
    return _ATTRIBUTE.sub(lambda attribute: _LONG_NUMBER.sub(r"\1", attribute[0]), svg)


def _scaled(svg: str, factor: float) -> str:
    """Changes the outer size; the view box, and with it the drawing, stays."""
    return _SIZE.sub(lambda m: f'width="{float(m[1]) * factor:.1f}" height="{float(m[2]) * factor:.1f}"', svg, count=1)


class PageFigure:
    """A figure of an HTML page: drawing begins now, and a template that shows it waits for the result.

    Text and lines use the page's light or dark colours. What a click on a mark selects becomes `data-select`. Ids
    carry the figure's name, because two figures of one page must not share a gradient. A figure that cannot be drawn
    is a sentence with the reason and its text alternative: the rest of the page is still worth reading.
    """

    def __init__(self, figure: Figure, name: str) -> None:
        self._figure, self._name = figure, name
        self._drawn = renderer().submit("vegalite_to_svg", vl_spec=figure.spec(background="transparent"))

    def __html__(self) -> str:
        label = html.escape(self._figure.alternative, quote=True)
        try:
            svg = with_widths(_shortened(self._drawn.result()))
        except RenderError as error:
            return f'<p class="warning">{html.escape(sanitise(error.what))}</p><p class="small">{label}</p>'
        svg = _SELECTION.sub(r'data-select="\1" aria-label="', svg)
        for colour, variable in _PAGE_COLOURS.items():
            svg = svg.replace(f'"{colour}"', f'"{variable}"')
        svg = re.sub(r'id="(\w+)"', rf'id="{self._name}-\1"', svg)
        svg = re.sub(r"url\(#(\w+)\)", rf"url(#{self._name}-\1)", svg)
        return svg.replace("<svg ", f'<svg role="group" aria-label="{label}" ', 1)


# --- the drawing process ------------------------------------------------------------------------


def main() -> None:
    """Requests come on stdin as pickled (function name, arguments), replies go to stdout as pickled (succeeded, result
    or message). It ends when stdin is closed."""
    if resource is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    import vl_convert  # in this process alone

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the parent decides
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # anything that a library prints must not mix with the replies
    while True:
        try:
            function, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            reply = (True, getattr(vl_convert, function)(**arguments))
        except ValueError as error:
            reply = (False, str(error))
        pickle.dump(reply, replies)
        replies.flush()


if __name__ == "__main__":
    main()
