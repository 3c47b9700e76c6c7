"""The dashboard over thousands of runs: how soon the first page comes, what a list costs, and how much memory it takes.

python benchmarks/dashboard.py [--runs 3000] [--samples 3]

Writes that many run folders of 264 records each to a temporary folder (about 220 KB a run), starts `leadline view` on
them in a process of its own, and asks as a browser would. The files are warm in the page cache, having just been
written.
"""

from __future__ import annotations

import argparse
import http.client
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.planted_runs import lost_in_the_middle, planted_records, write_run


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--runs", type=int, default=3000)
    words.add_argument("--samples", type=int, default=3)
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "runs"
        began = time.perf_counter()
        write_runs(folder, given.runs, given.samples)
        print(f"{given.runs:,} runs written in {time.perf_counter() - began:.0f} s")
        measure(folder)


def write_runs(folder: Path, count: int, samples: int) -> None:
    """One run drawn for real, the others the same under other names: models, dates and hence digests differ."""
    first = write_run(folder / "run-0000", list(planted_records(lost_in_the_middle, samples=samples)), samples=samples)
    manifest, records = (first / "manifest.json").read_text(), (first / "records.jsonl").read_bytes()
    for number in range(1, count):
        other = folder / f"run-{number:04d}"
        other.mkdir()
        text = manifest.replace("sim:planted", f"sim:planted?seed={number}")
        day = f"2025-{1 + number // 28 % 12:02d}-{1 + number % 28:02d}T12:00:00"
        (other / "manifest.json").write_text(text.replace("2025-11-15T12:00:00", day))
        (other / "records.jsonl").write_bytes(records)
        (other / "lock").touch()


def measure(folder: Path) -> None:
    began = time.perf_counter()
    server = subprocess.Popen(
        [str(Path(sys.executable).with_name("leadline")), "view", str(folder), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "LEADLINE_CACHE": str(folder.parent / "cache")},
    )
    try:
        assert server.stdout is not None
        host = server.stdout.readline().strip().removeprefix("http://").rstrip("/")
        print(f"{'start to address printed':44} {time.perf_counter() - began:8.2f} s")
        size = ask(host, "/")
        print(f"{'start to first page':44} {time.perf_counter() - began:8.2f} s   {size:,} bytes")
        print(f"{'memory then':44} {memory(server.pid):8.0f} MB   {cpu_seconds(server.pid):.2f} CPU s")
        timed(server.pid, host, "the same page again", "/")
        timed(server.pid, host, "page 30", "/?page=30")
        timed(server.pid, host, "filtered by words", "/?q=seed%3D17")
        timed(server.pid, host, "sorted by model", "/?sort=model")
        time.sleep(1.5)  # the list is scanned anew
        timed(server.pid, host, "again, folders scanned anew", "/")
        report = ask_text(host, "/").partition('href="/run/')[2].partition('"')[0]
        timed(server.pid, host, "a run's report", f"/run/{report}")
        timed(server.pid, host, "its samples", f"/samples?run={report}")
        began = time.perf_counter()
        while "reading" in ask_text(host, "/?sort=-effective").partition('id="count"')[2].partition("</p>")[0]:
            time.sleep(1)
        print(f"{'all headlines, for sorting by them':44} {time.perf_counter() - began:8.2f} s")
        timed(server.pid, host, "sorted by effective length", "/?sort=-effective")
        print(f"{'memory at the end':44} {memory(server.pid):8.0f} MB")
        print(f"{'CPU in all':44} {cpu_seconds(server.pid):8.2f} s")
    finally:
        server.terminate()
        server.wait()


def timed(pid: int, host: str, what: str, path: str) -> None:
    began, used = time.perf_counter(), cpu_seconds(pid)
    size = ask(host, path)
    took, used = time.perf_counter() - began, cpu_seconds(pid) - used
    print(f"{what:44} {took:8.2f} s   {used:.2f} CPU s   {size:,} bytes")


def ask(host: str, path: str) -> int:
    return len(ask_text(host, path))


def ask_text(host: str, path: str) -> str:
    connection = http.client.HTTPConnection(host, timeout=300)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    assert answer.status == 200, text[:300]
    connection.close()
    return text


def memory(pid: int) -> float:
    """Resident, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    main()
