"""Virtual environments for tests against other people's programs, whose packages do not agree with the locked ones."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import leadline
from leadline.core.files import cache_folder


def environment(name: str, *packages: str, least: tuple[int, int] = (3, 11)) -> str:
    """The Python of an environment with these packages first and then, in the same version of Python, Leadline with the
    packages of this environment. Made once and kept. The test is skipped where that is not possible."""
    folder = cache_folder() / "test-environments" / f"{name}-{packages[0].partition('==')[2]}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        _run(name, _python_of(least), "-m", "venv", "--clear", str(folder))
        _run(name, str(python), "-m", "pip", "-qq", "--disable-pip-version-check", "install", *packages)
        (folder / "complete").touch()
    if least <= sys.version_info[:2]:
        own = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(folder), "platbase": str(folder)}))
        installed = [path for path in sys.path if path.endswith("-packages")]
        (own / "zz_leadline.pth").write_text("\n".join([*installed, str(Path(leadline.__file__).parents[1])]))
    return str(python)


def _python_of(least: tuple[int, int]) -> str:
    """This one if it is new enough, else one of the machine."""
    if sys.version_info[:2] >= least:
        return sys.executable
    newer = (shutil.which(f"python{least[0]}.{minor}") for minor in range(least[1], least[1] + 4))
    found = next((path for path in newer if path), None)
    return found or pytest.skip(f"no Python {least[0]}.{least[1]} on this machine")


def _run(name: str, *command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"{name} could not be installed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
