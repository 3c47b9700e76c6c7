"""What 1,000 verdicts cost the asker: CPU seconds, peak memory and wall time of `leadline judge` in a fresh process.

    python benchmarks/judge.py [--repeats 3]

The judge is the tests' fake server in a process of its own, which answers 20 ms after a request; its work counts to
nobody. The run has 1,000 answers of 1k tokens that no rule decides. Start-up, reading the run, building the documents
again for their evidence, twenty known cases, requests, parsing, storing and the report are all in the figure. The
ratio is to a bare asyncio + aiohttp loop that sends as many prompts of that size to the same server and reads nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from server_requests import BARE, Cost, Load, ask_from_a_loop, installed, measured
from support.fake_server import FakeServerProcess, Faults
from support.judged_runs import put_in_sentences
from support.leadline_process import PROGRAM, call, write_haystack

VERDICTS = 1000
MAX_CPU_SECONDS = 3.0
PROMPTS = Load("judges' prompts", VERDICTS + 20, 2_600, 32, MAX_CPU_SECONDS, 100.0)


def make_run(folder: Path) -> Path:
    """A run whose right answers stand in a sentence, so that each takes a judge."""
    run = folder / "run"
    words = ["run", "niah", "--model", "sim:perfect", "--set", f"haystack={write_haystack(folder)}", "--lengths", "1k"]
    code, _, error = call(*words, "--depths", "4", "--samples", str(VERDICTS // 4), "--no-figure", "--out", str(run))
    if code:
        sys.exit(error)
    put_in_sentences(run)
    return run


def once(run: Path) -> Cost:
    for name in ("verdicts.jsonl", "verdicts.lock"):
        (run / name).unlink(missing_ok=True)
    with FakeServerProcess(Faults(delay_seconds=0.02), answers="verdicts") as server:
        judge = f"openai:judge?base_url={server.base_url}&tokenizer=bytes"
        workers = str(PROMPTS.workers)
        cost = measured([str(PROGRAM), "judge", str(run), "--with", judge, "--workers", workers, "--min-accuracy", "0"])
    found = sum(1 for line in (run / "verdicts.jsonl").read_bytes().splitlines() if b'"canary"' not in line)
    assert found == VERDICTS, found
    return cost


def bare() -> Cost:
    with FakeServerProcess(Faults(delay_seconds=0.02), answers="verdicts") as server:
        return measured([sys.executable, __file__, "--bare", server.base_url])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--bare", metavar="URL", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.bare:
        asyncio.run(ask_from_a_loop(chosen.bare, PROMPTS))
        return
    repeats = chosen.repeats
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder))
        best = min((once(run) for _ in range(repeats)), key=lambda cost: cost.cpu_seconds)
    reached = "reached" if best.cpu_seconds <= MAX_CPU_SECONDS else "NOT reached"
    ratio = ""
    if installed(BARE):
        loop = min((bare() for _ in range(repeats)), key=lambda cost: cost.cpu_seconds)
        print(f"{BARE}: {loop}")
        ratio = f"   {best.cpu_seconds / loop.cpu_seconds:.1f} x the bare loop"
    print(f"{VERDICTS:,} verdicts: {best}{ratio}   goal {MAX_CPU_SECONDS:g} CPU s: {reached}")


if __name__ == "__main__":
    main()
