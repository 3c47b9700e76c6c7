"""A feature is a folder that can be deleted: the rest imports, `leadline --help` works, and a needle run reports."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "leadline"
FEATURES = sorted(p.name for p in (SOURCE / "features").iterdir() if (p / "__init__.py").exists())
QUICK = "judges"
"""The feature with the most doors: the one that the quick tests delete."""

CHECKS = """
import contextlib, importlib, io, json, pkgutil, sys
from pathlib import Path

folder, feature = Path(sys.argv[1]), sys.argv[2]
HEAVY = ("torch", "transformers", "ray", "mlflow", "wandb", "tensorboardX", "inspect_ai", "lm_eval", "datasets")


class Absent:
    '''The optional packages are not installed: nothing here needs them.'''

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HEAVY:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
import leadline

assert Path(leadline.__file__).is_relative_to(folder), leadline.__file__
for module in pkgutil.walk_packages(leadline.__path__, "leadline."):
    assert not module.name.startswith(f"leadline.features.{feature}"), module.name
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        if str(error.name).partition(".")[0] not in HEAVY:
            raise

from leadline.cli.main import commands, run_command


def said(*arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = run_command([*map(str, arguments)])
    assert code == 0, (arguments, code, out.getvalue())
    return out.getvalue()


assert "run" in said("--help") and "cannot be loaded" not in said("--help")
assert all(f"features.{feature}." not in command.implementation for command in commands().values())
run = folder / "run"
options = ["--model", "sim:perfect?window=8k", "--lengths", "1k,2k", "--depths", "2", "--samples", "2", "--no-figure"]
assert "8 answered, 0 failed" in said("run", "niah", *options, "--out", run)
assert json.loads(said("report", run, "--json"))["mean"] == 1.0
said("report", run)
assert "could not be made" not in (run / "report.html").read_text()
"""


FORKS = """
import os, sys, traceback
import altair, jinja2, msgspec, numpy, pydantic, rich.live, rich.progress, scipy.optimize, scipy.stats, typer

checks, folder, *features = sys.argv[1:]
for feature in features:
    child = os.fork()
    if not child:
        sys.path.insert(0, f"{folder}/{feature}")
        sys.argv = ["-c", f"{folder}/{feature}", feature]
        try:
            exec(checks, {"__name__": "__main__"})
        except BaseException:
            print(f"without {feature}", file=sys.stderr)
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        sys.exit(1)
    print(feature, flush=True)
"""
"""The checks of several features, each in a child process that has the libraries already: they are most of what a new
process would import."""


def copy_without(feature: str, folder: Path) -> None:
    """The package without a feature's folder, and without its entry points: as if it had never been written.

    Compiled modules are copied too: Python takes them, because files keep their time of change."""
    shutil.copytree(
        SOURCE, folder / "leadline", ignore=lambda at, names: [n for n in names if _is_left_out(at, n, feature)]
    )
    installed = distribution("leadline")
    about = folder / f"leadline-{installed.version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: leadline\nVersion: {installed.version}\n")
    groups: dict[str, list[str]] = {}
    for point in installed.entry_points:
        if not point.value.startswith((f"leadline.features.{feature}:", f"leadline.features.{feature}.")):
            groups.setdefault(point.group, []).append(f"{point.name} = {point.value}")
    (about / "entry_points.txt").write_text("".join(f"[{g}]\n{chr(10).join(p)}\n\n" for g, p in groups.items()))


def _is_left_out(folder: str, name: str, feature: str) -> bool:
    return Path(folder) == SOURCE / "features" and name == feature


def test_with_a_feature_deleted_the_rest_imports_helps_and_measures(tmp_path: Path) -> None:
    copy_without(QUICK, tmp_path)
    run_program(tmp_path, "-c", CHECKS, str(tmp_path), QUICK, PYTHONPATH=str(tmp_path))


@pytest.mark.slow
def test_with_any_other_feature_deleted_too(tmp_path: Path) -> None:
    others = [name for name in FEATURES if name != QUICK]
    for name in others:
        (tmp_path / name).mkdir()
        copy_without(name, tmp_path / name)
    ended = run_program(tmp_path, "-c", FORKS, CHECKS, str(tmp_path), *others)
    assert ended.split() == others


def run_program(folder: Path, *arguments: str, **environment: str) -> str:
    """What a Python program of its own prints."""
    environment |= {"PATH": "", "HOME": str(folder)}
    command = [sys.executable, *arguments]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout
