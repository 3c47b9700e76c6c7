"""No test asserts on elapsed or CPU time: such a test fails on a busy machine. Figures live in `benchmarks/`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CLOCKS = {"perf_counter", "perf_counter_ns", "process_time", "process_time_ns", "monotonic", "monotonic_ns",
          "thread_time", "time_ns", "getrusage", "ru_utime", "ru_stime"}  # fmt: skip
BROWSER_CLOCKS = ("performance.now", "getEntriesByType('navigation')")
CLOCK_WORDS = ("time.time", *CLOCKS, *BROWSER_CLOCKS)
"""A file without any of these reads no clock, so it is not parsed."""


def reads_clock(node: ast.AST) -> bool:
    """Whether an expression reads a clock: `time.time()`, `monotonic()`, `usage.ru_utime`, a browser's timing."""
    for part in ast.walk(node):
        match part:
            case ast.Attribute(value=ast.Name(id="time"), attr="time"):
                return True
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in CLOCKS:
                return True
            case ast.Constant(value=str(text)) if any(clock in text for clock in BROWSER_CLOCKS):
                return True
    return False


def measured_times(tree: ast.AST) -> set[str]:
    """Names of variables and functions whose value is an elapsed time: a sum or difference that reads a clock."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp | ast.Compare) and _is_elapsed(node.value):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.FunctionDef):
            returned = [part.value for part in ast.walk(node) if isinstance(part, ast.Return) and part.value]
            if any(_is_elapsed(value) for value in returned):
                found.add(node.name)
    return found


def _is_elapsed(node: ast.AST) -> bool:
    """A deadline (`monotonic() + 9`) is no elapsed time; CPU seconds are added up."""
    names = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    differs = any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub) for part in ast.walk(node))
    return reads_clock(node) and (differs or bool(names & {"ru_utime", "ru_stime"}))


def clock_assertions(source: str) -> Iterator[int]:
    """The lines of a test file that assert on a clock."""
    tree = ast.parse(source)
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)):
        times = measured_times(function)
        for node in ast.walk(function):
            if isinstance(node, ast.Assert) and (
                reads_clock(node.test)
                or any(isinstance(part, ast.Name) and part.id in times for part in ast.walk(node.test))
            ):
                yield node.lineno


def test_no_test_asserts_on_a_clock() -> None:
    files = sorted(TESTS.rglob("test_*.py"))
    texts = {str(path.relative_to(TESTS)): path.read_text() for path in files}
    assert len(texts) > 100
    timed = {path: text for path, text in texts.items() if any(word in text for word in CLOCK_WORDS)}
    lines = {path: list(clock_assertions(text)) for path, text in timed.items()}
    assert {path: numbers for path, numbers in lines.items() if numbers} == {}


@pytest.mark.parametrize(
    "body",
    [
        "assert time.monotonic() - began < 5",
        "took = time.perf_counter() - began\n    assert took < 1",
        "assert 0.2 <= perf_counter() - began",
        "def cpu():\n        return used.ru_utime + used.ru_stime\n    assert min(cpu() for _ in range(3)) < 0.3",
    ],
)
def test_an_assertion_on_a_clock_is_found(body: str) -> None:
    assert list(clock_assertions(f"def test_it():\n    {body}\n"))


def test_waiting_with_a_deadline_is_allowed() -> None:
    body = "until = time.monotonic() + 9\n    while time.monotonic() < until: pass\n    assert done"
    assert not list(clock_assertions(f"def test_it():\n    {body}\n"))
