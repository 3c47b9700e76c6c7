"""Versions to install. `lock` prints constraints.txt: an exact version for everything that `make` may install, resolved
anew. `lowest` prints the lowest version that pyproject.toml allows for each direct dependency."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
TORCH = "torch==2.13.0"
"""Not refreshed: other versions bring gigabytes of CUDA packages."""
BUILDERS = ["setuptools"]
"""Installed before the package, which is built without isolation: an isolated build takes the newest release."""
CHECKERS = {"mypy", "ruff", "scipy-stubs", "xllamacpp"}
"""Style, types and the server of the real tests: used in their locked versions only."""


def locked() -> list[str]:
    """NAME==VERSION of everything that any extra needs, as pip resolves it today."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        target = f"{ROOT}[{','.join(EXTRAS)}]"
        pip = [sys.executable, "-m", "pip", "-qq", "install", "--dry-run", "--ignore-installed"]
        subprocess.run([*pip, "--report", report.name, TORCH, target, *BUILDERS], check=True)
        packages = [entry["metadata"] for entry in json.load(report)["install"]]
    pins = {package["name"].lower(): package["version"].partition("+")[0] for package in packages}
    del pins[PROJECT["name"]]
    return [f"{name}=={version}" for name, version in sorted(pins.items())]


def lowest() -> list[str]:
    """NAME==LOWER BOUND of the package's own dependencies and those of every extra."""
    requirements = [*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)]
    bounds = {match[1]: match[2] for text in requirements if (match := re.fullmatch(r"([\w-]+)>=([\d.]+)", text))}
    return [f"{name}=={bound}" for name, bound in sorted(bounds.items()) if name not in CHECKERS]


if __name__ == "__main__":
    pins = {"lock": locked, "lowest": lowest}[sys.argv[1]]()
    made_by = {"lock": "make lock", "lowest": "make lowest.txt"}[sys.argv[1]]
    print(f"# Written by `{made_by}`.", *pins, sep="\n")
