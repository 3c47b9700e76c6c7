"""A wheel built from the tracked files, installed alone, has everything that a user needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*words: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    ended = subprocess.run([*map(str, words)], cwd=cwd, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return ended.stdout


def clean_clone(folder: Path) -> Path:
    """The files of this working tree that git tracks, or would: what others get."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git repository")
    listing = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in listing.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clean_clone(tmp_path_factory.mktemp("clone"))


@pytest.fixture(scope="module")
def wheel(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built with the setuptools of this environment: nothing is downloaded."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", folder, clone, cwd=folder)
    (built,) = folder.glob("leadline-*.whl")
    return built


@pytest.mark.slow
def test_every_file_of_the_package_is_in_the_wheel(clone: Path, wheel: Path) -> None:
    source = clone / "src"
    files = {str(path.relative_to(source)) for path in (source / "leadline").rglob("*") if path.is_file()}
    assert {"leadline/py.typed", "leadline/text/generated/prose.txt"} < files
    assert files - set(zipfile.ZipFile(wheel).namelist()) == set()


@pytest.mark.slow
def test_a_wheel_installed_alone_runs_the_simulated_demo(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    # Dependencies are those of this environment. Folders named in a .pth file come after the wheel, and .pth files in
    # them are not read: the editable install of this working tree stays out of sight.
    (site / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    assert Path(run(python, "-c", "import leadline; print(leadline.__file__)", cwd=tmp_path).strip()).is_relative_to(
        site
    )

    result = json.loads(
        run(environment / "bin" / "leadline", "demo", "--simulated", "--json", "--out", "demo", cwd=tmp_path)
    )
    assert result
    assert (tmp_path / "demo" / "records.jsonl").stat().st_size > 0
    run(environment / "bin" / "leadline", "report", "demo", cwd=tmp_path)
    assert (tmp_path / "demo" / "report.html").stat().st_size > 10_000
    assert list((tmp_path / "demo").rglob("*.png"))
