"""What scoring LongBench's answers costs: CPU seconds of `leadline score` in a fresh process, and whether it is right.

    python benchmarks/scoring.py [--repeats 3] [--predictions FOLDER] [--official PYTHON]

FOLDER has a folder for each model, with 21 files of predictions and the published result.json (4,750 answers a model).
PYTHON is an interpreter with rouge 1.0.1, fuzzywuzzy 0.18, jieba 0.42 and without python-Levenshtein: the same scores
are then made by these packages, which is how the benchmark's own script makes them and takes minutes. Start-up,
dictionaries, reading, scoring, intervals and printing are in every figure. Ratios are to the packages in the same run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from server_requests import Cost, has_package, measured
from support.leadline_process import PROGRAM

ARCHIVE = Path(__file__).parents[2] / "shared" / "data" / "golden" / "longbench.tar.xz"
OFFICIAL = Path(__file__).parent / "peers" / "with_longbench_packages.py"
MAX_CPU_SECONDS = 3.0


def same_scores(found: dict[str, float], folder: Path) -> int:
    """How many of the published scores these are, to two decimals."""
    published = json.loads((folder / "result.json").read_text())
    return sum(found.get(task) == score for task, score in published.items())


def compare(folder: Path, repeats: int, official: str) -> tuple[Cost, Cost | None, int]:
    """What one model's answers cost us (lowest of several) and the packages, and how many of our scores are right."""
    command = [str(PROGRAM), "score", str(folder), "--as", "longbench", "--json"]
    first = subprocess.run(command, check=True, capture_output=True, text=True)  # also makes the dictionary's cache
    right = same_scores({row["task"]: row["score"] for row in json.loads(first.stdout)["tasks"]}, folder)
    ours = min((measured(command) for _ in range(repeats)), key=lambda cost: cost.cpu_seconds)
    if not official:
        return ours, None, right
    with tempfile.NamedTemporaryFile() as out:
        cost = measured([official, str(OFFICIAL), str(folder), out.name])
        scores = json.loads(Path(out.name).read_text())
    print(f"  {folder.name:20} packages  {cost}   {same_scores(scores, folder)} scores as published")
    return ours, cost, right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--predictions", type=Path, help="[default: the archive beside the repository]")
    parser.add_argument("--official", metavar="PYTHON", default="", help="an interpreter that has the packages")
    chosen = parser.parse_args()
    if chosen.official and not has_package(chosen.official, "rouge"):
        sys.exit(f"{chosen.official} has no package rouge")
    with tempfile.TemporaryDirectory() as unpacked:
        if chosen.predictions is None:
            if not ARCHIVE.is_file():
                print("the published predictions are not at hand: give them with --predictions")
                return
            with tarfile.open(ARCHIVE) as tar:
                tar.extractall(unpacked, filter="data")
        root = chosen.predictions or Path(unpacked) / "longbench" / "pred"
        folders = sorted(path.parent for path in root.glob("*/gov_report.jsonl"))
        total = 0
        for folder in folders:
            ours, theirs, right = compare(folder, chosen.repeats, chosen.official)
            total += right
            ratio = f"   {theirs.cpu_seconds / ours.cpu_seconds:.0f} times less CPU" if theirs else ""
            reached = "reached" if ours.cpu_seconds <= MAX_CPU_SECONDS else "NOT reached"
            print(f"  {folder.name:20} leadline  {ours}{ratio}   goal {MAX_CPU_SECONDS:g} CPU s: {reached}")
        print(f"scores as published: {total} of {21 * len(folders)}")


if __name__ == "__main__":
    main()
