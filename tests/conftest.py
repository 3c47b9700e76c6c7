"""Fixtures that several folders of tests share, and the surroundings of all tests."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from leadline.core import secrets
from support.chromium import CHROMIUM, launched
from support.commands import CommandResult, Say

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Before numpy and torch are imported: threads of tiny models and matrices cost four times the CPU time they save.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests start hundreds of programs, each of which would compile all modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Only a power failure loses what was written and not synced. On a busy disk a sync takes up to seconds, and tests make
# thousands; `tests/store/test_files_synced.py` holds that files are synced.
os.fsync = lambda fd: None

# Hypothesis fails an example after 200 ms by default; on a busy machine any example can take that long.
settings.register_profile("leadline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("leadline")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: in a quarter of their time tests wait for servers, processes and clocks."""
    return len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks cases as slow that `quick_cases(2, name=("niah", "kv"))` leaves out: of its test, only those cases stay
    quick that have one of the values given for each named argument, and of these only the first two."""
    kept: Counter[str] = Counter()
    for item in items:
        marker = item.get_closest_marker("quick_cases")
        if marker is None:
            continue
        arguments: dict[str, object] = item.callspec.params  # type: ignore[attr-defined]
        test = item.nodeid.partition("[")[0]
        most = marker.args[0] if marker.args else sys.maxsize
        if all(arguments[name] in values for name, values in marker.kwargs.items()) and kept[test] < most:
            kept[test] += 1
        else:
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Takes what was imported and collected, a few million objects, out of every later garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_secrets_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that one test uses as a key may be a word that another one reads."""
    monkeypatch.setattr(secrets, "_used", set())
    monkeypatch.setattr(secrets, "_short", set())


@pytest.fixture(autouse=True)
def _proofs_are_kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fitters begin with what the ones before them found out, except in the tests of fitting."""
    from support.shared_banks import count_bank_again  # here, because it imports numpy

    if request.path.parent.name != "text":
        monkeypatch.setattr("leadline.text.fitting.fitter.count_bank", count_bank_again)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Say:
    """Runs `leadline WORDS` in this process, in an empty folder; returns exit code, stdout and stderr."""
    from leadline.cli.main import run_command  # here, so that tests of other folders do not load the command line

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def call(*words: str, **settings: Any) -> CommandResult:
        code = run_command(list(words), **settings)
        return CommandResult(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium. Tests that use it are skipped where it is not installed."""
    pytest.importorskip("playwright")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with launched() as started:
        yield started
