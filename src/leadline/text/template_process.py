"""The process that renders chat templates. Templates come from servers and model folders: they are untrusted code.

`python -m leadline.text.template_process` renders what comes on stdin, one JSON object per line, and writes a JSON
object per line to stdout, in bounded memory and processor time. `leadline.text.chat.render` is its client. The
sandbox refuses attributes that lead out of a template, and counts its steps; what a template may build of texts and
numbers is bounded by the memory of the process, whatever operator, filter or method it uses.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range

MAX_STEPS = 200_000
"""Passes through loops and macros, and numbers of ranges. Chat templates need a few for each turn."""
MEMORY_BYTES = 512 << 20
"""The limit of the address space. Python and jinja2 take a hundred megabytes, chat templates a few more."""
MAX_CHARACTERS = 8_000_000
"""The longest rendered text."""


_STEPS = "steps left"
"""The name of the limit among the values of a template, which no template can write: it has a space."""


class _StepLimit:
    """Ends a template after MAX_STEPS passes through its loops and macros."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def take(self, steps: int) -> bool:
        self._left -= steps
        if self._left < 0:
            raise jinja2.TemplateError(f"it does not end within {MAX_STEPS:,} steps")
        return True


@jinja2.pass_context
def _step(context: jinja2.runtime.Context, value: bool) -> bool:
    """A filter that the parser puts at the beginning of every loop, macro and condition of a loop."""
    return bool(context[_STEPS].take(1))


@jinja2.pass_context
def _counted_range(context: jinja2.runtime.Context, *bounds: int) -> range:
    numbers = safe_range(*bounds)
    context[_STEPS].take(len(numbers))
    return numbers


class _Sandbox(ImmutableSandboxedEnvironment):
    """A sandbox that counts steps."""

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """With steps counted: jinja2 itself bounds no loop, and a trace function would belong to the whole thread."""
        tree = super()._parse(source, name, filename)
        for node in list(tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock))):
            step = nodes.Filter(nodes.Const(True), "step", [], [], None, None)
            assert isinstance(node, (nodes.For, nodes.Macro, nodes.CallBlock))
            node.body.insert(0, nodes.ExprStmt(step))
            if isinstance(node, nodes.For) and node.test is not None:
                node.test = nodes.And(step, node.test)
        tree.set_environment(self)
        return tree


class _Generation(Extension):
    """Accepts {% generation %}, which marks the assistant's part for training and has no effect on a prompt."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it so)

    def parse(self, parser: Any) -> Any:
        parser.stream.expect("name:generation")
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@cache
def _environment() -> _Sandbox:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation])

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def to_json(value: Any, **settings: Any) -> str:
        return json.dumps(value, **{"ensure_ascii": False, **settings})

    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    environment.globals["range"] = _counted_range
    environment.filters["tojson"] = to_json
    environment.filters["step"] = _step
    return environment


def render_here(source: str, values: Mapping[str, Any]) -> str:
    """The text of a template. Raises anything that a template can raise."""
    text = _environment().from_string(source).render({**values, _STEPS: _StepLimit()})
    if len(text) > MAX_CHARACTERS:
        raise jinja2.TemplateError(f"it writes more than {MAX_CHARACTERS:,} characters")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise jinja2.TemplateError("it writes half of a surrogate pair, which is no character")
    return text


def _limit_memory() -> None:
    try:
        import resource  # not on Windows
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_seconds(seconds: float) -> None:
    """Ends this process after this processor time, in any library; 0 removes the limit."""
    if hasattr(signal, "setitimer"):  # not on Windows
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # also if the parent ignores it
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _reply(request: str) -> dict[str, str]:
    try:
        wanted = json.loads(request)
        _limit_seconds(wanted["seconds"])
        return {"text": render_here(wanted["source"], wanted["values"])}
    except MemoryError:
        return {"error": f"it needs more than {MEMORY_BYTES >> 20} MB of memory"}
    except Exception as error:  # a template can raise anything: TypeError, ZeroDivisionError, RecursionError ...
        return {"error": str(error)[:500] or type(error).__name__}
    finally:
        _limit_seconds(0)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the parent decides
    _environment().from_string("")  # everything is imported before the memory is bounded
    _limit_memory()
    for request in sys.stdin:
        sys.stdout.write(json.dumps(_reply(request)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
