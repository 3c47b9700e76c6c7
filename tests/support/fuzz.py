"""Calls of the command line with damaged files and odd options, drawn from a seed.

`python tests/support/fuzz.py 5000` makes 5,000 calls, each batch in a process of its own, and prints what it found.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import traceback
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # the tests folder is on the path of pytest, not of a plain program
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.planted_runs import decay, planted_records, write_run
from support.question_data import hotpot, squad

CPU_SECONDS, CALL_SECONDS = 40, 300
"""After either a call counts as hanging."""
DEEP = 100_000
HARMFUL_TEXT = "\x1b]0;owned\x07\x1b[31m \u202eexe.txt\u2066 \x9b31m\x08\x7f"
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    -1,
    0,
    1,
    1.5,
    -0.0,
    1e308,
    2**31,
    2**63,
    2**64,
    10**30,
    float("nan"),
    float("inf"),
    "",
    " ",
    "nan",
    "0",
    "\x00",
    HARMFUL_TEXT,
    "x" * 5000,
    "\ud800",
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"name": 1},
    [1, "a"],
)
ODD_TEXTS = (
    "",
    " ",
    "0",
    "-1",
    "1",
    "1e400",
    "-1e400",
    "nan",
    "inf",
    "9" * 400,
    str(2**31),
    str(2**63),
    str(2**64),
    "1e-400",
    "0x10",
    "1_000",
    "٣",
    "1,,2",
    ",",
    "a,b",
    ":",
    "=",
    "?",
    "/",
    "..",
    "~",
    "/dev/null",
    "http://[::1",
    "http://[",
    "://",
    "http://127.0.0.1:99999/v1",
    "%00",
    "[",
    "{",
    '{"a":',
    "[" * 3000,
    "{" * 3000,
    "1k,2k",
    "1k",
    "0.5",
    "sigmoid:3",
    "sigmoid:0",
    "linear:9999999999999999999999",
    "0..1:3",
    "1..0:3",
    "auto",
    "true",
    "on",
    HARMFUL_TEXT,
    "\ud800",
    "é",
    "日本",
    "*",
    "**",
    "?x=1",
    "a=b",
    "'",
    '"',
    "\\",
    "x" * 5000,
)
"""Values of options."""
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}" * 9
ODD_TEMPLATES = (
    ENDLESS, "{{ messages[9].x.y }}", "{{ 'x' * 99999999999 }}", "{% if %}", "{{ 1 / 0 }}", "{{ 9 ** 9 ** 9 }}", "",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", HARMFUL_TEXT, "{{ messages | map(attribute='content') | join }}",
    "{{ messages[0].content }}é", "{{ 'a'|center(10**12) }}", "{{ messages }}",
)  # fmt: skip
CHAT = "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}<|start|>assistant\n"


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


# --- good files, made once


def write_good_files(folder: Path) -> Path:
    """One good file or folder of every kind that a command reads."""
    folder.mkdir(parents=True)
    grid: dict[str, Any] = {"lengths": [1024, 2048], "depths": [0.0, 0.5, 1.0], "samples": 2}
    for name, model in (("base", "sim:a"), ("candidate", "sim:b?window=4096")):
        records = list(planted_records(decay, tasks=["niah", "vt"], model=model, **grid))
        write_run(folder / "runs" / name, records, samples=2)
    _write_logprob_run(folder)
    line = {"index": 0, "pred": " 4821907.", "input": "Find it.", "outputs": ["4821907"], "length": 1024}
    _write_lines(folder / "ruler/1024/pred/niah_single_1.jsonl", [line | {"index": i} for i in range(4)])
    _write_lines(folder / "ruler/2048/pred/qa_1.jsonl", [line | {"index": i} for i in range(4)])
    sample = {"index": 0, "input": "Read this.\nWhat is it?", "outputs": ["4821907"], "length": 40}
    for task in ("niah_single_1", "vt"):
        _write_lines(folder / f"prompts/1024/{task}/validation.jsonl", [sample | {"index": i} for i in range(3)])
    run_command = {"pred": "Paris", "answers": ["Paris", "in Paris"], "all_classes": None, "length": 5000}
    _write_lines(folder / "longbench/qasper.jsonl", [run_command] * 4)
    _write_lines(folder / "longbench-e/qasper_e.jsonl", [run_command] * 4)
    choice = {"pred": "A", "answer": "A", "difficulty": "easy", "length": "short", "domain": "x", "response": "(A)"}
    _write_lines(folder / "longbench-v2/some.jsonl", [choice] * 4)
    _write_lines(folder / "infinitebench/preds_passkey.jsonl", [{"prediction": "71432", "ground_truth": "71432"}] * 4)
    _write(folder / "babilong/qa1_4k_some.csv", "target,output,question\nhall,hall,Where?\nhall,garden,Where?\n")
    _write(folder / "table.csv", "model,4k,8k,16k,avg\none,95.1,90.0,80.5,88.5\ntwo,85.1,70.0,60.5,71.9\n")
    _write(
        folder / "tasks.csv",
        "model,length,niah,vt,cwe\n"
        + "".join(f"m{i},4k,{90 - i},{80 - i * 2 % 7},{70 - i * 3 % 5}\n" for i in range(5)),
    )
    scores = {f"m{i}": {"acc": {"value": 0.9 - i / 10, "n": 4, "documents": 4}} for i in range(5)}
    entries = [{"name": n, "model": "sim:a", "score": s["acc"]["value"], "scores": s} for n, s in scores.items()]
    submission = {
        "metric": "acc",
        "better": "higher",
        "spec": {},
        "created": "2025-11-15T12:00:00+00:00",
        "leadline": "0.1.0",
        "entries": entries,
    }
    _write(folder / "submission.json", json.dumps(submission))
    _write(folder / "targets.json", json.dumps({f"m{i}": 0.8 - i * i / 30 for i in range(5)}))
    _write(folder / "targets.csv", "name,score\n" + "".join(f"m{i},{0.8 - i * i / 30}\n" for i in range(5)))
    _write(
        folder / "spec.toml",
        'model = "sim:cliff?tokenizer=bytes"\nlengths = "512"\ndepths = 2\nsamples = 1\n'
        '[[tasks]]\nname = "niah"\nkeys = 2\n[limits]\nworkers = 2\n',
    )
    _write(folder / "models.toml", 'models = ["sim:cliff?tokenizer=bytes", {name = "b", model = "sim:decay"}]\n')
    _write(folder / "models.json", '["sim:cliff?tokenizer=bytes", "sim:decay?tokenizer=bytes"]')
    _write(folder / "templates.toml", '[niah]\nquestion = "What is the {value_kind} for {key}?"\n')
    _write(folder / "hay.txt", "The wind was steady that day. Nobody came to the harbour. The light was on.\n\n" * 300)
    _write_lines(
        folder / "hay.jsonl", [{"text": f"Document {i}. " + "It was a long day at sea. " * 60} for i in range(20)]
    )
    squad(folder / "squad.json")
    hotpot(folder / "hotpot.json")
    _write_tokenizer(folder / "tokenizer")
    _write(
        folder / "mine.py",
        "def generate(prompt, max_tokens):\n    return 'no'\n\n\ndef grade(probe, completion):\n    return 1.0\n",
    )
    return folder


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _write_lines(path: Path, values: list[dict[str, Any]]) -> None:
    _write(path, "".join(json.dumps(value) + "\n" for value in values))


def _write_logprob_run(folder: Path) -> None:
    words = [
        "run",
        "mean_nll",
        "--model",
        "sim:decay?tokenizer=bytes",
        "--lengths",
        "512",
        "--samples",
        "2",
        "--no-figure",
        "--out",
        str(folder / "runs/logprobs"),
        "--set",
        f"documents={folder / 'hay.jsonl'}",
        "--set",
        "least=100",
    ]
    _write_lines(
        folder / "hay.jsonl", [{"text": f"Document {i}. " + "It was a long day at sea. " * 60} for i in range(20)]
    )
    call(words)


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder.mkdir()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|start|>", "<|end|>", "<s>"])
    made.save(str(folder / "tokenizer.json"))
    _write(
        folder / "tokenizer_config.json",
        json.dumps({"bos_token": "<s>", "eos_token": "<|end|>", "chat_template": CHAT}),
    )
    _write(folder / "config.json", json.dumps({"model_type": "llama", "max_position_embeddings": 2048}))


# --- damage


class Damage:
    """Ways to damage a file, drawn from a generator of random numbers."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def any_file_of(self, path: Path) -> None:
        """Damages a file, or one file of a folder."""
        files = sorted(p for p in path.rglob("*") if p.is_file() and p.name != "lock") if path.is_dir() else [path]
        if not files:
            return
        file = self.draw.choice(files)
        kinds: list[Callable[[Path], None]] = [self.bytes_of, self.lines_of, self.whole, self.values_of, self.values_of]
        self.draw.choice(kinds)(file)

    def bytes_of(self, file: Path) -> None:
        data = bytearray(file.read_bytes())
        for _ in range(self.draw.choice((1, 1, 3, 20))):
            at = self.draw.randrange(len(data) + 1)
            match self.draw.randrange(4):
                case 0:
                    data[at : at + 1] = bytes([self.draw.randrange(256)])
                case 1:
                    data[at:at] = self.draw.choice(
                        (b"\xff", b"\x00", b"\n", b'"', b"}", b"\xe9", b"\xed\xa0\x80", b"\x1b[2J")
                    )
                case 2:
                    del data[at : at + self.draw.choice((1, 5, 100))]
                case _:
                    del data[at:]
        file.write_bytes(data)

    def lines_of(self, file: Path) -> None:
        lines = file.read_bytes().splitlines(keepends=True) or [b""]
        at = self.draw.randrange(len(lines))
        match self.draw.randrange(5):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[at])
            case 2:
                lines.insert(
                    at, self.draw.choice((b"\n", b"null\n", b"[]\n", b"{}\n", b"junk\n", b"\xff\xfe\n", b'""\n'))
                )
            case 3:
                lines[at] = lines[at].rstrip(b"\n") + b" trailing junk\n"
            case _:
                lines[at] = b"[" * DEEP + b"\n"
        file.write_bytes(b"".join(lines))

    def whole(self, file: Path) -> None:
        data = file.read_bytes()
        match self.draw.randrange(10):
            case 0:
                file.write_bytes(
                    self.draw.choice(
                        (b"", b"\n", b" \n \n", b"\x00" * 100, b"\xef\xbb\xbf", b"null", b"[]", b"{}", b"0")
                    )
                )
            case 1:
                file.write_bytes(data.replace(b"a", b"\xe9"))  # Latin-1
            case 2:
                file.write_bytes(b"\xef\xbb\xbf" + data)
            case 3:
                file.write_bytes(data.decode("utf-8", "replace").encode("utf-16"))
            case 4:
                file.unlink()
                file.mkdir()
            case 5:
                file.unlink()
            case 6:
                file.unlink()
                file.symlink_to(file.name)  # a loop
            case 7:
                file.write_bytes(
                    self.draw.choice((b"[" * DEEP, b'{"a":' * DEEP, b'{"text": ' + b"[" * DEEP + b"]" * DEEP + b"}"))
                )
            case 8:
                self.links_to(file.parent)
            case _:
                file.write_bytes(data.replace(b"\n", b"\r\n"))

    def links_to(self, folder: Path) -> None:
        """Eight links that lead back to their own folder."""
        for number in range(8):
            with contextlib.suppress(OSError):
                (folder / f"self{number}").symlink_to(".")

    def values_of(self, file: Path) -> None:
        """Replaces a value inside JSON, JSON lines, TOML or CSV."""
        text = file.read_text("utf-8", "replace")
        if file.suffix in (".csv", ".toml", ".txt", ".py"):
            cells = re.split(r'([,\n="])', text)
            for _ in range(self.draw.choice((1, 2))):
                cells[self.draw.randrange(len(cells))] = self.draw.choice(ODD_TEXTS)
            file.write_bytes("".join(cells).encode("utf-8", "surrogatepass"))
            return
        lines = text.splitlines() if file.suffix == ".jsonl" else [text]
        at = self.draw.randrange(len(lines) or 1)
        with contextlib.suppress(ValueError, IndexError, RecursionError):
            value = json.loads(lines[at])
            for _ in range(self.draw.choice((1, 1, 2, 4))):
                value = self._replaced(value)
            lines[at] = json.dumps(value)
        file.write_text("\n".join(lines) + "\n")

    def _replaced(self, value: Any) -> Any:
        """The value with one part replaced, removed, renamed or added."""
        if isinstance(value, dict) and value and self.draw.random() < 0.9:
            key = self.draw.choice(sorted(value))
            match self.draw.randrange(8):
                case 0:
                    del value[key]
                case 1:
                    value[self.draw.choice(("", "x", HARMFUL_TEXT, key + "2"))] = value.pop(key)
                case _:
                    value[key] = self._replaced(value[key])
            return value
        if isinstance(value, list) and value and self.draw.random() < 0.8:
            at = self.draw.randrange(len(value))
            value[at] = self._replaced(value[at])
            return value
        if isinstance(value, str) and self.draw.random() < 0.3:
            return value + self.draw.choice((HARMFUL_TEXT, "\n", "é", "\ud800", "x" * 3000, '"', "?", "<b>"))
        return self.draw.choice(ODD_VALUES)


# --- calls


class CallWriter:
    """Draws one call at a time: the words of a command line, over good files of which some were damaged."""

    def __init__(self, good: Path, seed: int) -> None:
        self.good = good
        self.draw = random.Random(seed)
        self.damage = Damage(self.draw)
        self.kinds: list[tuple[int, Callable[[], list[str]]]] = [
            (14, self.report),
            (10, self.compare),
            (12, self.score),
            (7, self.summarize),
            (6, self.correlate),
            (14, self.run),
            (10, self.plan),
            (6, self.build),
            (5, self.catalogue),
            (3, self.log),
            (3, self.watch),
            (2, self.view),
            (4, self.prompts),
            (4, self.words),
            (6, self.corpus),
            (6, self.tokenizer),
            (3 if (good / "checkpoint").exists() else 0, self.checkpoint),
        ]

    def __call__(self) -> list[str]:
        """The words of a call. Files are written to the current folder, which is empty."""
        weights, kinds = zip(*self.kinds, strict=True)
        kind: Callable[[], list[str]] = self.draw.choices(kinds, weights)[0]
        return kind()

    def file(self, name: str, chance: float = 0.7) -> str:
        """A copy of a good file or folder, damaged by chance."""
        place, number = Path(name), 0
        while place.exists():
            number += 1
            place = Path(f"{number}", name)
        place.parent.mkdir(parents=True, exist_ok=True)
        source = self.good / name
        if source.is_dir():
            shutil.copytree(source, place)
        else:
            shutil.copy(source, place)
        while self.draw.random() < chance:
            if place.exists():
                self.damage.any_file_of(place)
            chance *= 0.4
        return str(place)

    def maybe(self, *words: str, chance: float = 0.3) -> list[str]:
        return list(words) if self.draw.random() < chance else []

    def odd(self) -> str:
        return self.draw.choice(ODD_TEXTS)

    def run_folder(self, chance: float = 0.8) -> str:
        return self.file(f"runs/{self.draw.choice(('base', 'base', 'candidate', 'logprobs'))}", chance)

    def report(self) -> list[str]:
        form = self.draw.choices(
            (["--json"], ["--markdown"], [], ["--data", "x.csv"], ["--data", self.odd(), "--json"]), (30, 1, 2, 1, 2)
        )[0]
        return [
            "report",
            *(self.run_folder() for _ in range(self.draw.choice((1, 1, 2)))),
            *form,
            *self.maybe("--failures", self.draw.choice(("zero", "excluded", "x"))),
        ]

    def compare(self) -> list[str]:
        gates = (
            "overall >= -1",
            "task:* >= -3",
            "length:1k >= -5",
            "effective >= -10%",
            "overall >= nan",
            "x",
            ";",
            "overall >= 1e400",
            "task:niah>=-2;overall>=0",
            self.odd(),
        )
        forms: tuple[list[str], ...] = (["--json"], ["--markdown"], ["--cells"], ["--junit", "x.xml"], [], ["--anyway"])
        return [
            "compare",
            self.file("runs/base"),
            self.file("runs/candidate"),
            *self.maybe("--gate", self.draw.choice(gates), chance=0.5),
            *self.draw.choice(forms),
            *self.maybe("--anyway", chance=0.7),
        ]

    def score(self) -> list[str]:
        name = self.draw.choice(("ruler", "longbench", "longbench-e", "longbench-v2", "infinitebench", "babilong"))
        other = self.draw.choice(("ruler", "longbench", "babilong", self.odd())) if self.draw.random() < 0.1 else name
        return [
            "score",
            self.file(name, 0.9),
            "--as",
            other,
            *self.maybe("--json"),
            *self.maybe("--compensated", chance=0.1),
        ]

    def summarize(self) -> list[str]:
        return [
            "summarize",
            self.file("table.csv", 0.9),
            *self.maybe("--threshold", self.odd()),
            *self.maybe("--share", self.odd()),
            *self.maybe("--json"),
        ]

    def correlate(self) -> list[str]:
        if self.draw.random() < 0.4:
            return [
                "correlate",
                "--tasks",
                self.file("tasks.csv", 0.95),
                "--resamples",
                self.draw.choice(("100", self.odd())),
            ]
        targets = self.file(self.draw.choice(("targets.json", "targets.csv")), 0.7)
        return [
            "correlate",
            self.file("submission.json", 0.7),
            targets,
            "--resamples",
            "100",
            *self.maybe("--metric", self.odd(), chance=0.2),
            *self.maybe("--seed", self.odd(), chance=0.1),
        ]

    def options(self) -> list[str]:
        """Options of run and plan, a few of them odd."""
        good = {"--lengths": "512", "--depths": "2", "--samples": "1"}
        names = (
            "--lengths",
            "--depths",
            "--samples",
            "--reading",
            "--seed",
            "--workers",
            "--attempts",
            "--timeout",
            "--ray",
            "--set",
            "--until",
            "--out",
            "--model",
            "--task",
            "--step",
            "--run-name",
            "--shard",
            "--base",
        )
        settings = (
            "keys",
            "values",
            "queries",
            "haystack",
            "needle",
            "answers",
            "spread",
            "answer_tokens",
            "scorers",
            "x",
            "wording",
        )
        for name in self.draw.sample(names, self.draw.choice((0, 1, 1, 2))):
            if name != "--ray":  # starts a cluster
                good[name] = f"{self.draw.choice(settings)}={self.odd()}" if name == "--set" else self.odd()
        if not is_small(good):
            good["--lengths"] = "512"
        return [word for pair in good.items() for word in pair]

    def model(self) -> str:
        """A simulated model, or one that cannot be reached, with odd options."""
        keys = (
            "window",
            "high",
            "low",
            "strength",
            "slope",
            "noise",
            "seed",
            "rate",
            "limit",
            "tokenizer",
            "timeout",
            "base_url",
            "temperature",
            "extra",
            "api_key_env",
            "template",
            "max_tokens",
            "x",
        )
        key = self.draw.choice(keys)
        value = self.odd().replace("&", "")
        if self.draw.random() < 0.25:
            address = self.draw.choice(
                ("http://127.0.0.1:9/v1", "http://[::1", "http://[", "ftp://x", "", "http://127.0.0.1:99999")
            )
            return f"openai:m?base_url={address}&tokenizer=bytes&window=9999&timeout=1&{key}={value}"
        name = self.draw.choice(("perfect", "cliff", "decay", "flaky", "middle", "floor", "x", "", self.odd()[:50]))
        return f"sim:{name}?tokenizer=bytes" + (
            f"&{key}={value}" if key != "latency_seconds" and self.draw.random() < 0.6 else ""
        )

    def run(self) -> list[str]:
        kind = self.draw.randrange(8)
        words = ["niah", "--model", self.model()]
        if kind == 0:
            words = [self.file("spec.toml", 0.95)]
        elif kind == 1:
            words = ["niah", "--models", self.file(self.draw.choice(("models.toml", "models.json")), 0.95)]
        elif kind == 2:
            words = ["niah", "--model", "sim:cliff?tokenizer=bytes", "--templates", self.file("templates.toml", 0.95)]
        elif kind == 3:
            words = [
                "niah",
                "--model",
                f"{self.file('mine.py', 0.5)}:{self.draw.choice(('generate', 'grade', 'x'))}?tokenizer=bytes",
            ]
        elif kind == 4:
            words = [
                self.draw.choice(("vt", "kv", "passkey", "fwe", "lines", self.odd())),
                "--model",
                "sim:decay?tokenizer=bytes",
            ]
        elif kind == 5:  # resumes a run that was damaged
            return ["run", "niah", "--model", "sim:a", "--out", self.run_folder(0.95), "--no-figure", *self.options()]
        return ["run", *words, "--no-figure", "--attempts", "1", *self.maybe("--json"), *self.options()]

    def plan(self) -> list[str]:
        return [
            "plan",
            *self.run()[1:],
            *self.maybe("--detect", self.odd()),
            *self.maybe("--price-in", self.odd()),
            *self.maybe("--like", self.run_folder(0.9), "--detect", "5pt", chance=0.2),
        ]

    def build(self) -> list[str]:
        tokenizer = self.draw.choice(("bytes", "whitespace", "tokenizer", self.odd()))
        if tokenizer == "tokenizer":
            tokenizer = self.file("tokenizer", 0.8)
        return [
            "build",
            "niah",
            "-o",
            self.draw.choice(("x.jsonl", "x", self.odd())),
            "--tokenizer",
            tokenizer,
            *self.maybe("--chat"),
            *self.maybe("--format", "ruler"),
            *self.options()[:6],
        ]

    def catalogue(self) -> list[str]:
        kind = self.draw.choice(("tasks", "models", "sources", "suites"))
        name = self.draw.choice(("niah", "sim", "prose", "ruler", self.odd(), f"prose:{self.odd()},code:1"))
        if kind == "sources" and self.draw.random() < 0.7:
            name = self.file(self.draw.choice(("hay.txt", "hay.jsonl", "runs")), 0.9)
        return [kind, "show", "--", name] if name.startswith("-") else [kind, "show", name, *self.maybe("--json")]

    def log(self) -> list[str]:
        to = self.draw.choice(("tensorboard:logs", "mlflow:file", "wandb:x?mode=offline", "x:y", self.odd()))
        return ["log", self.run_folder(), "--to", to, *self.maybe("--step", self.draw.choice(("auto", self.odd())))]

    def watch(self) -> list[str]:
        return ["watch", self.run_folder()]

    def view(self) -> list[str]:
        """Only what ends by itself: folders that are not there, and ports that cannot be used."""
        return ["view", self.odd().replace("..", "x") + "-", "--port", self.odd()]

    def prompts(self) -> list[str]:
        return [
            "run",
            "--prompts",
            self.file("prompts", 0.95),
            "--model",
            "sim:perfect?tokenizer=bytes",
            "--no-figure",
            "--attempts",
            "1",
        ]

    def corpus(self) -> list[str]:
        """Tasks that read a user's files."""
        text = self.file(self.draw.choice(("hay.jsonl", "hay.txt")), 0.95)
        if self.draw.random() < 0.1:
            self.damage.links_to(Path(text).parent)
            text = "**/*.txt"
        choices = {
            "mean_nll": [f"documents={text}", "least=100"],
            "niah": [f"haystack={text}"],
            "qa_1": [f"data={self.file('squad.json', 0.95)}"],
            "qa_2": [f"data={self.file('hotpot.json', 0.95)}"],
        }
        task = self.draw.choice(sorted(choices))
        settings = [word for value in choices[task] for word in ("--set", value)]
        field = self.maybe("--set", f"field={self.odd()}", chance=0.1)
        model = ["--model", "sim:decay?tokenizer=bytes", "--lengths", "1k", "--depths", "2", "--samples", "1"]
        return [self.draw.choice(("run", "plan")), task, *settings, *field, *model]

    def tokenizer(self) -> list[str]:
        """A model folder with a damaged tokenizer or chat template, or without weights."""
        folder = self.file("tokenizer", 0.8)
        config = Path(folder, "tokenizer_config.json")
        if config.is_file() and self.draw.random() < 0.4:
            values = {"chat_template": self.draw.choice(ODD_TEMPLATES), "bos_token": self.draw.choice(ODD_VALUES)}
            config.write_text(json.dumps(values))
        server = f"openai:m?base_url=http://127.0.0.1:9/v1&template={folder}&tokenizer={folder}"
        words = self.draw.choice(
            (
                ["plan", "niah", "--model", f"sim:perfect?tokenizer={folder}"],
                ["build", "niah", "-o", "x.jsonl", "--tokenizer", folder, "--chat"],
                ["build", "niah", "-o", "x.jsonl", "--model", server],
            )
        )
        return [*words, "--lengths", "512", "--depths", "1", "--samples", "1"]

    def checkpoint(self) -> list[str]:
        """A damaged model in this process."""
        options = ["--set", "haystack=noise", "--lengths", "400", "--depths", "1", "--samples", "1"]
        return [self.draw.choice(("run", "plan")), "niah", "--model", f"hf:./{self.file('checkpoint', 0.9)}", *options]

    def words(self) -> list[str]:
        """Words that are not a command line."""
        first = self.draw.choice(("run", "plan", "report", "compare", "tasks", "score", "", self.odd()))
        return [
            first,
            *(
                self.draw.choice((self.odd(), "--json", "--limit", "-m", "--samples", "--help", "-x"))
                for _ in range(self.draw.randrange(4))
            ),
        ]


def is_small(options: dict[str, str]) -> bool:
    """Whether the grid of a run is small enough to be run here. What is refused is not counted."""
    from leadline.core.errors import UsageError
    from leadline.core.spec import parse_depths, parse_lengths

    try:
        lengths, depths = parse_lengths(options["--lengths"]), parse_depths(options["--depths"])
        samples = int(options["--samples"])
    except (UsageError, ValueError):
        return True
    return max(lengths, default=0) <= 4096 and len(depths) * samples * len(lengths) <= 64


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
    is_verdict = words[:1] == ["compare"] and found.code in (1, 2)
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


def _batch(good: Path, seed: int, first: int, calls: int, where: Path) -> None:
    """Writes the number of the call it begins, and its problems: they are read when the process has died."""
    with where.open("w") as file:
        for number in range(first, first + calls):
            file.write(f"BEGIN {number}\n")
            file.flush()
            for problem in fuzz(good, hash_of(seed, number), 1):
                file.write(
                    f"PROBLEM {json.dumps(Problem(number, problem.words, problem.what, problem.output).__dict__)}\n"
                )
                file.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("calls", type=int, nargs="?", default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="make this one call here, with its traceback")
    parser.add_argument("--first", type=int, default=0)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = str(Path(folder, "cache"))
        good = write_good_files(Path(folder, "good"))
        with contextlib.suppress(ImportError):
            from support.tiny_models import model_folder  # needs torch

            model_folder(good / "checkpoint")
        if wanted.only is not None:
            os.environ["LEADLINE_DEBUG"] = "1"
            for problem in fuzz(good, hash_of(wanted.seed, wanted.only), 1):
                print(problem)
            return 0
        return _many(good, Path(folder), wanted.seed, wanted.first, wanted.calls)


def _many(good: Path, folder: Path, seed: int, first: int, calls: int, size: int = 50) -> int:
    problems = 0
    context = multiprocessing.get_context("spawn")
    at = first
    while at < first + calls:
        where, count = folder / "batch.txt", min(size, first + calls - at)
        process = context.Process(target=_batch, args=(good, seed, at, count, where))
        process.start()
        process.join()
        lines = where.read_text().splitlines()
        begun = [int(line.split()[1]) for line in lines if line.startswith("BEGIN")]
        for line in lines:
            if line.startswith("PROBLEM"):
                problems += 1
                print(Problem(**json.loads(line.removeprefix("PROBLEM "))), flush=True)
        if process.exitcode:
            problems += 1
            print(f"call {begun[-1]}: the process ended with {process.exitcode}", flush=True)
            at = begun[-1] + 1
        else:
            at += count
    print(f"{calls:,} calls, {problems:,} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
