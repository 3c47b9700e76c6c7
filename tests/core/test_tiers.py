"""Which cases of a test are quick and which are slow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from conftest import pytest_collection_modifyitems


class Case:
    """As much of a collected case as the tiers look at."""

    def __init__(self, marker: pytest.MarkDecorator | None, **params: object) -> None:
        self.nodeid = f"tests/test_x.py::test_x[{params}]"
        self.callspec = SimpleNamespace(params=params)
        self.marker = marker
        self.added: list[str] = []

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.marker.mark if self.marker is not None and self.marker.name == name else None

    def add_marker(self, name: str) -> None:
        self.added.append(name)


def quick(marker: pytest.MarkDecorator | None, cases: list[dict[str, object]]) -> list[dict[str, object]]:
    items: list[Any] = [Case(marker, **case) for case in cases]
    pytest_collection_modifyitems(items)
    assert all(item.added in ([], ["slow"]) for item in items)
    return [item.callspec.params for item in items if not item.added]


CASES: list[dict[str, object]] = [{"name": name, "length": length} for name in "abc" for length in (1, 2)]


def test_without_the_marker_every_case_is_quick() -> None:
    assert quick(None, CASES) == CASES


def test_a_count_keeps_the_first_cases_quick() -> None:
    assert quick(pytest.mark.quick_cases(2), CASES) == CASES[:2]


def test_values_keep_the_cases_quick_that_have_them_all() -> None:
    assert quick(pytest.mark.quick_cases(name=("a", "c"), length=(2,)), CASES) == [CASES[1], CASES[5]]
    assert quick(pytest.mark.quick_cases(1, name=("a", "c"), length=(2,)), CASES) == [CASES[1]]
