"""Chat templates come from strangers: rendering one ends, whatever it loops over, and leaves the process alone."""

from __future__ import annotations

import resource
import signal
import threading
from contextlib import suppress

import pytest

from leadline.core.errors import TokenizerError
from leadline.text import chat, template_process
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
        assert len(render(source, {"turns": [*range(150_000)]}, where="template")) == 150_000


LARGE = {
    "a width": "{{ '%1000000000s' % 'a' }}",
    "a width of format": "{{ '{:>999999999}'.format('a') }}",
    "the filter format": "{{ '%999999999s' | format('a') }}",
    "replace": "{% set a = 'x' * 100000 %}{{ a.replace('x', a).replace('x', a) | length }}",
    "the filter replace": "{% set a = 'x' * 100000 %}{{ a | replace('x', a) | length }}",
    "join": "{% set a = 'x' * 100000 %}{{ a.join(a) | length }}",
    "the filter join": "{{ range(9999) | join('x' * 999999) | length }}",
    "doubling": "{% set n = namespace(t='x') %}{% for i in range(70) %}{% set n.t = n.t ~ n.t %}{% endfor %}{{ n.t }}",
    "doubling of lists": "{% set n = namespace(t=[1]) %}{% for i in range(60) %}{% set n.t = n.t + n.t %}{% endfor %}",
    "repeating": "{{ 'x' * 10**10 }}",
    "center": "{{ 'x'.center(10**11) }}",
    "indent": "{{ 'x\ny' | indent(10**11) }}",
    "zfill": "{{ 'x'.zfill(10**11) }}",
    "a shift": "{{ (2 ** 200000) ** 200000 }}",
    "digits of a number": "{{ '%0*d' % (10**9, 1) }}",
    "an indentation of JSON": "{{ [1, [2]] | tojson(indent=10**9) }}",
    "a translation": "{{ 'aaaaaaaaaaaa'.translate({97: 'x' * 10**8}) | length }}",
    "lorem ipsum": "{{ lipsum(n=10**7) }}",
    "slices": "{{ 'ab' | slice(10**8) | list | length }}",
    "a long text": "{% for i in range(9000) %}{{ 'x' * 1000 }}{% endfor %}",
}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("source", LARGE.values(), ids=LARGE)
def test_a_template_that_takes_too_much_memory_is_refused_in_bounded_memory(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "RENDER_SECONDS", 1.0)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    with pytest.raises(TokenizerError, match=r"memory|does not render"):
        render(source, {}, where="template")
    assert render("{{ 'x' * 3 }}", {}, where="template") == "xxx"  # the next one renders
    # A child counts as large as this process was when it was started, if nothing that it does itself is larger.
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    most = max(before, own, template_process.MEMORY_BYTES >> 10)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert peak <= most


def test_a_renderer_that_waits_for_a_busy_machine_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "RENDER_SECONDS", 0.2)
    assert render("{{ 'a' }} first", {}, where="template") == "a first"
    process = chat._renderer()._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    threading.Timer(0.6, process.send_signal, [signal.SIGCONT]).start()
    assert render("{{ 'a' }} after a pause", {}, where="template") == "a after a pause"


def test_half_of_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(TokenizerError, match="half of a surrogate pair"):
        render("{{ '\\ud800' }}", {}, where="template")
    assert render("{{ '\\U0001f600' }}", {}, where="template") == "\U0001f600"


def test_a_template_is_rendered_once_for_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "{{ turn }} once for the same values"
    assert render(source, {"turn": "a"}, where="template") == "a once for the same values"
    monkeypatch.setattr(chat, "_renderer", None)  # asking the process again would fail
    assert render(source, {"turn": "a"}, where="template") == "a once for the same values"


@pytest.mark.slow
def test_a_renderer_that_died_is_started_again() -> None:
    assert render("{{ 1 }} before", {}, where="template") == "1 before"
    process = chat._renderer()._process
    assert process is not None
    process.kill()
    process.wait()
    with suppress(TokenizerError):  # the one that finds it dead
        render("{{ 2 }} between", {}, where="template")
    assert render("{{ 3 }} after", {}, where="template") == "3 after"
