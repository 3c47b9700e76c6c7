"""Calls of the command line with damaged files and odd options, drawn from a seed.

`python tests/support/fuzz.py 5000 --jobs 8` makes 5,000 calls, each batch in a process of its own, and prints what it
found.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import traceback
import unicodedata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":  # the tests folder is on the path of pytest, not of a plain program
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.fuzz_calls import CallWriter
from support.fuzz_files import write_good_files

CPU_SECONDS, CALL_SECONDS = 40, 300
"""After either a call counts as hanging."""
VERDICTS = (["compare"], ["certify"], ["follow"], ["doctor"])
"""Commands whose exit codes 1 and 2 are results."""


@dataclass(frozen=True)
class Problem:
    """A call that did not end as it should."""

    number: int
    words: list[str]
    what: str
    output: str

    def __str__(self) -> str:
        shown = " ".join(word if len(word) < 80 else f"{word[:77]}..." for word in self.words)
        return f"call {self.number}: {self.what}\n  leadline {shown!r}\n{self.output}"


class Hanging(BaseException):
    """Raised in a call that takes too long."""


# --- outcomes


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str
    hanging: str = ""


def call(words: list[str]) -> Outcome:
    """Runs one command in this process."""
    from leadline.cli.main import run_command

    def give_up(*_: object) -> None:
        raise Hanging

    out, err = io.StringIO(), io.StringIO()
    before = signal.signal(signal.SIGALRM, give_up), signal.signal(signal.SIGPROF, give_up)
    signal.alarm(CALL_SECONDS)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run_command(list(words))
        return Outcome(code, out.getvalue(), err.getvalue())
    except Hanging:
        return Outcome(-1, out.getvalue(), err.getvalue(), traceback.format_exc(limit=-3))
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGALRM, before[0])
        signal.signal(signal.SIGPROF, before[1])


def good_files(folder: Path) -> Path:
    """Good files, and a run with log-probabilities."""
    write_good_files(folder)
    options = f"--lengths 512 --samples 2 --no-figure --out {folder}/runs/logprobs --set least=100".split()
    call(
        ["run", "mean_nll", "--model", "sim:decay?tokenizer=bytes", *options, "--set", f"documents={folder}/hay.jsonl"]
    )
    return folder


def is_harmful(character: str) -> bool:
    """Whether a terminal may act on it: control, format and invalid characters."""
    return unicodedata.category(character) in ("Cc", "Cf", "Cs")


def complaint(found: Outcome, words: list[str]) -> str:
    """What is wrong with how a call ended; empty if nothing is."""
    if found.hanging:
        return f"hangs\n{found.hanging}"
    if found.code == 70 or found.code < 0 or found.code > 130:
        return f"exit {found.code}"
    if "Traceback" in found.err:
        return "a traceback"
    errors = found.err[found.err.rfind("error:") :] if "error:" in found.err else ""
    is_verdict = words[:1] in VERDICTS and found.code in (1, 2)
    if found.code and not is_verdict and words[:1] != [""]:
        for part in ("error:", "where:", "fix:"):
            if f"{part}" not in errors:
                return f"exit {found.code} without {part!r}"
    for text in (found.out, found.err):
        bad = sorted(
            {f"U+{ord(c):04X}" for c in text if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cf", "Cs")}
        )
        if bad:
            return f"prints {', '.join(bad)}"
    return ""


def fuzz(good: Path, seed: int, calls: int) -> Iterator[Problem]:
    """Makes the calls one after another, each in an empty folder, and yields those that did not end as they should."""
    home = Path.cwd()
    for number in range(calls):
        with tempfile.TemporaryDirectory(prefix="fuzz", ignore_cleanup_errors=True) as folder:
            os.chdir(folder)
            try:
                words = CallWriter(good, hash_of(seed, number))()
                try:
                    found = call(words)
                    what, output = complaint(found, words), found.err[-1500:] or found.out[-300:]
                except Exception:
                    what, output = "an exception", traceback.format_exc(limit=-8)
            finally:
                os.chdir(home)
        if what:
            yield Problem(number, words, what, output)


def hash_of(seed: int, number: int) -> int:
    return seed * 1_000_003 + number


# --- many calls, in processes of their own


def _write_batch(good: Path, seed: int, numbers: range, where: Path) -> None:
    """Writes the number of the call it begins, and its problems: they are read when the process has died."""
    with where.open("w") as file, Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # what libraries print to the process's own stderr
        for number in numbers:
            file.write(f"BEGIN {number}\n")
            file.flush()
            for problem in fuzz(good, hash_of(seed, number), 1):
                file.write(
                    f"PROBLEM {json.dumps(Problem(number, problem.words, problem.what, problem.output).__dict__)}\n"
                )
                file.flush()


def _batch(good: Path, seed: int, numbers: range) -> list[str]:
    """The problems of some calls. A call that ends its process is one, and the next process goes on behind it."""
    problems = []
    context = multiprocessing.get_context("spawn")
    while numbers:
        with tempfile.TemporaryDirectory() as folder:
            where = Path(folder, "batch.txt")
            process = context.Process(target=_write_batch, args=(good, seed, numbers, where))
            process.start()
            process.join()
            lines = where.read_text().splitlines()
        problems += [
            str(Problem(**json.loads(line.removeprefix("PROBLEM ")))) for line in lines if line.startswith("PROBLEM")
        ]
        begun = [int(line.split()[1]) for line in lines if line.startswith("BEGIN")]
        if not process.exitcode:
            break
        problems.append(f"call {begun[-1]}: the process ended with {process.exitcode}")
        numbers = range(begun[-1] + 1, numbers.stop)
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("calls", type=int, nargs="?", default=5000)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="make this one call here, with its traceback")
    parser.add_argument("--first", type=int, default=0)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = str(Path(folder, "cache"))
        good = good_files(Path(folder, "good"))
        with contextlib.suppress(ImportError):
            from support.tiny_models import model_folder  # needs torch

            model_folder(good / "checkpoint")
        if wanted.only is not None:
            os.environ["LEADLINE_DEBUG"] = "1"
            for problem in fuzz(good, hash_of(wanted.seed, wanted.only), 1):
                print(problem)
            return 0
        return _many(good, wanted.seed, range(wanted.first, wanted.first + wanted.calls), wanted.jobs)


def _many(good: Path, seed: int, numbers: range, jobs: int, size: int = 50) -> int:
    batches = [numbers[start : start + size] for start in range(0, len(numbers), size)]
    counted = problems = 0
    with ThreadPoolExecutor(jobs) as pool:
        for batch, said in zip(batches, pool.map(lambda batch: _batch(good, seed, batch), batches), strict=True):
            counted, problems = counted + len(batch), problems + len(said)
            print(*said, f"{counted:,} calls, {problems:,} problems", sep="\n", flush=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
