"""The `leadline` command in a separate process, for tests that kill it, interrupt it or fill its disk."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PROGRAM = Path(sys.executable).parent / "leadline"
PATIENCE_SECONDS = 300
"""How long a test waits for a process that should end by itself: on a busy machine it takes its time."""


def start(*words: str, limits: Mapping[int, int] | None = None) -> subprocess.Popen[str]:
    """`leadline WORDS`; `limits` by the numbers that `resource` has for them, such as RLIMIT_FSIZE."""

    def prepare() -> None:
        for number in (signal.SIGINT, signal.SIGHUP):  # a background job of a shell, and one of nohup, ignores it
            signal.signal(number, signal.SIG_DFL)
        for kind, limit in (limits or {}).items():
            resource.setrlimit(kind, (limit, limit))

    return subprocess.Popen(
        [str(PROGRAM), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
        preexec_fn=prepare,
    )


def call(*words: str, limits: Mapping[int, int] | None = None) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    process = start(*words, limits=limits)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, out, err


def write_haystack(folder: Path) -> Path:
    """A small text of invented sentences: faster to open than the built-in ones."""
    draw = random.Random(1)
    syllables = ("ba", "do", "ki", "lu", "me", "no", "pa", "ri", "so", "tu", "va", "we")
    words = ["".join(draw.choices(syllables, k=draw.randrange(1, 5))) for _ in range(300)]
    sentences = (" ".join(draw.choices(words, k=draw.randrange(4, 14))).capitalize() + "." for _ in range(600))
    path = folder / "haystack.txt"
    path.write_text(" ".join(sentences))
    return path
