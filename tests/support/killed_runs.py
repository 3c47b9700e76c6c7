"""A run that is killed at random moments and begun again, as real processes against a real server.

python tests/support/killed_runs.py 100
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

if __name__ == "__main__":  # the tests folder is on the path of pytest, not of a plain program
    sys.path.insert(0, str(Path(__file__).parents[1]))

from leadline.store.runs import RECORDS
from support.fake_server import FakeServerProcess, Faults
from support.leadline_process import call, start, write_haystack

WORKERS = 8
SAMPLES = 240
MOST_BETWEEN_KILLS = 20
"""Records that are added before the next kill, at most, and what was in flight."""


def words(server: FakeServerProcess, folder: Path, samples: int = SAMPLES) -> list[str]:
    """The run of so many samples."""
    return [
        "run", "niah", "--model", f"openai:fake?base_url={server.base_url}&tokenizer=bytes", "--out", str(folder),
        "--set", f"haystack={write_haystack(folder.parent)}", "--lengths", "1200", "--depths", "4",
        "--samples", str(samples // 4), "--workers", str(WORKERS), "--no-figure",
    ]  # fmt: skip


def lines(folder: Path) -> list[bytes]:
    path = folder / RECORDS
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []


def wait_for(process: subprocess.Popen[str], folder: Path, records: int) -> None:
    """Until the folder has so many records, or the process has ended."""
    while len(lines(folder)) < records and process.poll() is None:
        time.sleep(0.01)


def kill_often(server: FakeServerProcess, folder: Path, kills: int, seed: int = 7) -> None:
    """Kills a run so often, lets it end, and asserts that nothing was lost or is there twice."""
    samples = max(SAMPLES, SAMPLES // 10 * kills)
    command, draw = words(server, folder, samples), random.Random(seed)
    kept: list[bytes] = []
    for number in range(1, kills + 1):
        process = start(*command)
        wait_for(process, folder, len(kept) + draw.randrange(1, MOST_BETWEEN_KILLS))
        time.sleep(draw.random() * 0.02)
        process.kill()
        process.communicate()
        whole = [line for line in lines(folder) if line.endswith(b"}\n")]
        assert whole[: len(kept)] == kept  # nothing that was recorded has changed
        kept = whole
        if number % 10 == 0:
            print(f"{number:,} kills, {len(kept):,} records", flush=True)
    assert 0 < len(kept) < samples
    code, out, err = call(*command)
    assert code == 0, err
    assert f"{samples:,} planned, {samples:,} answered, 0 failed" in out
    assert lines(folder)[: len(kept)] == kept
    assert len(lines(folder)) == samples  # no answer was asked for twice once it was recorded
    asked = Counter(r.digest for r in server.completions if r.tokens > 900)
    assert len(asked) == samples
    assert asked.total() - samples <= kills * WORKERS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kills", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    faults = Faults(delay_seconds=0.04)
    with FakeServerProcess(faults, kind="vllm") as server, tempfile.TemporaryDirectory() as folder:
        kill_often(server, Path(folder, "run"), given.kills, given.seed)
    print(f"{given.kills:,} kills of one run: 0 records lost, 0 there twice")


if __name__ == "__main__":
    main()
