"""A run of 200,000 records: time and memory of opening, reporting, comparing and viewing it.

python benchmarks/large_run.py [--records 200000]

Writes two runs of planted answers to a temporary folder (174 MB each) and calls the commands in processes of their own.
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

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from leadline.store.manifest import MANIFEST
from leadline.store.runs import RECORDS, encode, encode_pretty
from support.planted_runs import lost_in_the_middle, planted_records, write_run

DRAWN = 20
"""Samples per cell that are drawn; the others repeat their answers under other numbers and documents."""
PROGRAM = str(Path(sys.executable).with_name("leadline"))
OPEN = "import sys; from leadline.results.run import load_run; print(load_run(sys.argv[1]).totals.done)"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--records", type=int, default=200_000)
    count = words.parse_args().records
    with tempfile.TemporaryDirectory() as made:
        base, candidate = (write_large(Path(made) / name, count) for name in ("base", "candidate"))
        page = str(Path(made) / "page.html")
        timed("open", [sys.executable, "-c", OPEN, str(base)])
        timed("report --json", [PROGRAM, "report", str(base), "--json"])
        timed("report, page and figures", [PROGRAM, "report", str(base), "-o", page])
        timed("compare", [PROGRAM, "compare", str(base), str(candidate)])
        view(base, Path(made) / "cache")


def write_large(folder: Path, count: int) -> Path:
    drawn = list(planted_records(lost_in_the_middle, samples=DRAWN))
    places = len(drawn) // DRAWN
    samples = -(-count // places)
    write_run(folder, drawn, samples=DRAWN)
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes())
    manifest["spec"]["samples"], manifest["planned"] = samples, samples * places
    (folder / MANIFEST).write_bytes(encode_pretty(manifest))
    with (folder / RECORDS).open("wb") as file:
        for first in range(0, samples, DRAWN):
            for record in drawn:
                if (sample := record.cell.sample + first) < samples:
                    cell, document = msgspec.structs.replace(record.cell, sample=sample), f"{record.document}-{first}"
                    changed = msgspec.structs.replace(record, cell=cell, document=document, cluster=document)
                    file.write(encode(changed))
    return folder


def timed(what: str, command: list[str]) -> None:
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    took, cpu = time.perf_counter() - began, used.ru_utime + used.ru_stime
    print(f"{what:28} {took:7.1f} s {cpu:7.1f} CPU s {used.ru_maxrss / 1024:7.0f} MB   exit {status >> 8}", flush=True)


def view(folder: Path, cache: Path) -> None:
    """From the start of `leadline view` to the list, and to the page of the run."""
    began = time.perf_counter()
    environment = {**os.environ, "LEADLINE_CACHE": str(cache)}
    command = [PROGRAM, "view", str(folder), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    assert server.stdout is not None
    host = server.stdout.readline().strip().removeprefix("http://").rstrip("/")
    page = get(host, "/")
    print(f"{'view, first page':28} {time.perf_counter() - began:7.1f} s", flush=True)
    began = time.perf_counter()
    get(host, f"/run/{page.partition('/run/')[2].partition(chr(34))[0]}")
    print(f"{'view, page of the run':28} {time.perf_counter() - began:7.1f} s", flush=True)
    server.terminate()
    _, _, used = os.wait4(server.pid, 0)
    cpu = used.ru_utime + used.ru_stime
    print(f"{'view, in all':28} {cpu:17.1f} CPU s {used.ru_maxrss / 1024:7.0f} MB", flush=True)


def get(host: str, path: str) -> str:
    connection = http.client.HTTPConnection(host, timeout=300)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    assert answer.status == 200, text[:300]
    connection.close()
    return text


if __name__ == "__main__":
    main()
