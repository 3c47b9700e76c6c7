"""What a command does not need is not imported. Checked by module names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leadline.cli.main import commands
from leadline.core.commands import BLAS_THREADS

HEAVY = {"altair", "matplotlib", "pandas", "ray", "sklearn", "statsmodels", "torch", "transformers"}
LIBRARIES = HEAVY | {"jinja2", "numpy", "pydantic", "rich", "scipy", "tokenizers"}
PROGRAM = """
import sys
from leadline.cli.main import main
try:
    main()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""


def imported(*arguments: str, status: int = 0) -> set[str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def test_help_and_version_import_no_command_and_no_library() -> None:
    modules = {command.implementation.partition(":")[0] for command in commands().values()}
    for argument in ("--help", "--version"):
        assert not imported(argument) & (LIBRARIES | modules), argument


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("arguments", [["tasks"], ["models"], ["suites"], ["run", "--help"], ["plan", "--help"]])
def test_lists_and_the_help_of_a_run_import_nothing_heavy(arguments: list[str]) -> None:
    assert not imported(*arguments) & (HEAVY | {"tokenizers"})


@pytest.mark.slow
@pytest.mark.parametrize("as_json", [True, False])
def test_a_run_that_draws_nothing_imports_nothing_heavy(tmp_path: Path, as_json: bool) -> None:
    options = "run niah --model sim:perfect?window=8k --lengths 1k --depths 2 --samples 1 --no-figure --out"
    found = imported(*options.split(), str(tmp_path / "run"), *(["--json"] if as_json else []))
    assert "leadline.run.engine" in found
    assert sorted(found & HEAVY) == []


def test_a_missing_model_folder_is_an_error_before_torch_is_imported() -> None:
    found = imported("run", "niah", "--model", "hf:./nowhere", "--lengths", "1k", status=66)
    assert not found & HEAVY


def test_a_run_imports_no_part_of_scipy_before_its_results_need_one() -> None:
    program = "import sys, leadline.cli.run, leadline.models.openai.provider; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"scipy.special", "scipy.optimize", "scipy.sparse", "scipy.stats"} & set(found)


def test_the_program_ends_without_looking_through_its_modules_for_garbage() -> None:
    program = f"import atexit, gc\natexit.register(lambda: print(gc.get_freeze_count() > 1000))\n{PROGRAM}"
    done = subprocess.run([sys.executable, "-c", program, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "True"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc has the threads of a process")
@pytest.mark.parametrize("chosen", ["", "2"])
def test_a_command_starts_no_threads_for_matrix_products_unless_they_are_chosen(chosen: str) -> None:
    program = (
        "import os\nfrom leadline.cli.main import COMMANDS\nCOMMANDS['run'].load()\n"
        "import numpy\nprint(len(os.listdir('/proc/self/task')), os.environ.get('OPENBLAS_NUM_THREADS'))"
    )
    environment = {name: value for name, value in os.environ.items() if name not in BLAS_THREADS}
    environment |= {"OPENBLAS_NUM_THREADS": chosen} if chosen else {}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    threads, kept = done.stdout.split()
    assert kept == str(chosen or None)
    assert chosen or threads == "1"
