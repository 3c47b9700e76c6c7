"""Chat templates come from strangers: rendering one ends, whatever it loops over, and leaves the process alone."""

from __future__ import annotations

import sys
import threading

import pytest

from leadline.core.errors import TokenizerError
from leadline.text.chat import render

ENDLESS = {
    "nested loops": "{% for a in range(999) %}{% for b in range(999) %}{{ a }}{% endfor %}{% endfor %}",
    "empty loops": "{% for a in turns %}{% for b in turns %}{% for c in turns %}{% endfor %}{% endfor %}{% endfor %}",
    "a condition that is never met": "{% for a in turns %}{% for b in turns if b < 0 %}x{% endfor %}{% endfor %}",
    "a macro that calls itself twice": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}"
    "{{ m(60) }}",
    "a recursive loop": "{% for a in [2] recursive %}{% if a %}{{ loop([a, a]) }}{% endif %}{% endfor %}",
    "ranges in a loop": "{% for a in turns %}{{ range(9999) | list | length }}{% endfor %}",
    "a call block": "{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}"
    "{% for a in turns %}{% for b in turns %}{% call m() %}x{% endcall %}{% endfor %}{% endfor %}",
}


@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS)
def test_a_template_that_does_not_end_is_refused(source: str) -> None:
    with pytest.raises(TokenizerError, match=r"does not end within|recursion"):
        render(source, {"turns": list(range(1000))}, where="template")


def test_a_template_may_not_lift_its_limit() -> None:
    source = "{% set steps_left = 0 %}{% set step = 0 %}" + ENDLESS["nested loops"]
    with pytest.raises(TokenizerError, match="does not end within"):
        render(source, {}, where="template")


def test_a_long_conversation_renders() -> None:
    source = "{% for turn in turns %}{% for part in turn %}{{ part }}{% endfor %}{% endfor %}"
    assert render(source, {"turns": [["a", "b"]] * 5000}, where="template") == "ab" * 5000


def test_each_rendering_has_all_its_steps() -> None:
    source = "{% for turn in turns %}x{% endfor %}"
    for _ in range(4):
        assert len(render(source, {"turns": range(150_000)}, where="template")) == 150_000


def test_rendering_does_not_touch_the_trace_of_its_thread() -> None:
    traces: list[object] = []

    class Turn:
        def __str__(self) -> str:
            traces.append(sys.gettrace())
            return "turn"

    def render_untraced() -> None:
        render("{{ turn }}", {"turn": Turn()}, where="template")

    thread = threading.Thread(target=render_untraced)  # a coverage tool traces this one
    before = threading.gettrace()
    threading.settrace(None)  # type: ignore[arg-type]
    try:
        thread.start()
        thread.join()
    finally:
        threading.settrace(before)  # type: ignore[arg-type]
    assert traces == [None]
