"""What starting the program costs beyond Python's own start: `--help`, the help of a command, `import leadline`.

python benchmarks/start_up.py [--times 5]

CPU seconds of processes of their own, the lowest of several, after one that compiles the modules.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PROGRAM = str(Path(sys.executable).with_name("leadline"))
STARTS: dict[str, Sequence[str]] = {
    "leadline --help": [PROGRAM, "--help"],
    "leadline run --help": [PROGRAM, "run", "--help"],
    "import leadline": [sys.executable, "-c", "import leadline"],
}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--times", type=int, default=5)
    times = words.parse_args().times
    python = lowest([sys.executable, "-c", "pass"], times)
    print(f"load {os.getloadavg()[0]:.0f}\n{'python alone':22} {python:.3f} CPU s")
    for what, command in STARTS.items():
        print(f"{what:22} {lowest(command, times) - python:.3f} CPU s beyond it", flush=True)


def lowest(command: Sequence[str], times: int) -> float:
    return min([cpu_seconds(command) for _ in range(times + 1)][1:])


def cpu_seconds(command: Sequence[str]) -> float:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, command
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
