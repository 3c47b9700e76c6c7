"""The Triton kernels on a CPU: Triton interprets them, in processes of their own, since it decides for a whole process
whether it does, and in an environment that has Triton."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.environments import environment

pytest.importorskip("torch")

FILES = ("test_hf_fused.py", "test_hf_delta_kernels.py", "test_hf_rows_kernels.py")
NEEDS = "needs Triton"


@pytest.mark.real
@pytest.mark.parametrize("file", FILES)
def test_kernels_give_what_plain_torch_gives_in_tritons_interpreter(file: str) -> None:
    python = environment("triton", "triton==3.6.0")
    command = [python, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-rs", "-m", "not real", file]
    done = subprocess.run(
        command, cwd=Path(__file__).parent, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert NEEDS not in done.stdout, "the interpreter was not used"
