"""Start-up is part of every run: what a run does not need is not imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAVY = {"altair", "matplotlib", "pandas", "ray", "sklearn", "statsmodels", "torch", "transformers"}
PROGRAM = """
import sys
from leadline.cli.main import main
try:
    main()
finally:
    print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def imported(*arguments: str, status: int = 0) -> set[str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def test_a_run_that_draws_nothing_imports_nothing_heavy(tmp_path: Path) -> None:
    words = "run niah --model sim:perfect?window=8k --lengths 1k --depths 2 --samples 1 --json --no-figure --out"
    found = imported(*words.split(), str(tmp_path / "run"))
    assert "leadline" in found
    assert sorted(found & HEAVY) == []


def test_help_and_lists_import_nothing_heavy() -> None:
    for arguments in (["--help"], ["tasks"], ["models"], ["suites"]):
        assert not imported(*arguments) & (HEAVY | {"tokenizers"}), arguments


def test_a_folder_that_is_not_there_is_said_before_torch_comes_in() -> None:
    found = imported("run", "niah", "--model", "hf:./nowhere", "--lengths", "1k", status=66)
    assert not found & HEAVY
