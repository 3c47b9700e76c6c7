"""Files for fuzzed calls: one good file of every kind that a command reads, and ways to damage it."""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.planted_runs import decay, planted_records, write_run
from support.question_data import hotpot, squad

DEEP = 100_000
HARMFUL_TEXT = "\x1b]0;owned\x07\x1b[31m \u202eexe.txt\u2066 \x9b31m\x08\x7f"
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 1.5, -0.0, 1e308, 2**31, 2**63, 2**64, 10**30, float("nan"), float("inf"), "",
    " ", "nan", "0", "\x00", HARMFUL_TEXT, "x" * 5000, "\ud800", [], {}, [[]], [None], {"": None}, {"name": 1},
    [1, "a"],
)  # fmt: skip
ODD_TEXTS = (
    "", " ", "0", "-1", "1", "1e400", "-1e400", "nan", "inf", "9" * 400, str(2**31), str(2**63), str(2**64),
    "1e-400", "0x10", "1_000", "٣", "1,,2", ",", "a,b", ":", "=", "?", "/", "..", "~", "/dev/null",
    "http://[::1", "http://[", "://", "http://127.0.0.1:99999/v1", "%00", "[", "{", '{"a":', "[" * 3000,
    "{" * 3000, "1k,2k", "1k", "0.5", "sigmoid:3", "sigmoid:0", "linear:9999999999999999999999", "0..1:3",
    "1..0:3", "auto", "true", "on", HARMFUL_TEXT, "\ud800", "é", "日本", "*", "**", "?x=1", "a=b", "'", '"', "\\",
    "x" * 5000,
)  # fmt: skip
"""Values of options."""
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}" * 9
ODD_TEMPLATES = (
    ENDLESS, "{{ messages[9].x.y }}", "{{ 'x' * 99999999999 }}", "{% if %}", "{{ 1 / 0 }}", "{{ 9 ** 9 ** 9 }}", "",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", HARMFUL_TEXT, "{{ messages | map(attribute='content') | join }}",
    "{{ messages[0].content }}é", "{{ 'a'|center(10**12) }}", "{{ messages }}",
)  # fmt: skip
CHAT = "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}<|start|>assistant\n"


# --- good files, made once


def write_good_files(folder: Path) -> Path:
    """One good file or folder of every kind that a command reads."""
    folder.mkdir(parents=True)
    grid: dict[str, Any] = {"lengths": [1024, 2048], "depths": [0.0, 0.5, 1.0], "samples": 2}
    for name, model in (("base", "sim:a"), ("candidate", "sim:b?window=4096")):
        records = list(planted_records(decay, tasks=["niah", "vt"], model=model, **grid))
        write_run(folder / "runs" / name, records, samples=2)
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
    raters = "".join(f"{j},{j % 2},{(j * 3) % 4 % 2},{j % 3 % 2}\n" for j in range(8))
    _write(folder / "raters.csv", "id,a,b,truth\n" + raters)
    _write(folder / "labels.csv", "sample,label\nniah/1024/0/0.0000,1\nniah/1024/1/0.5000,0\n")
    _write(folder / "targets.csv", "name,score\n" + "".join(f"m{i},{0.8 - i * i / 30}\n" for i in range(5)))
    _write(
        folder / "spec.toml",
        'model = "sim:cliff?tokenizer=bytes"\nlengths = "1k"\ndepths = 2\nsamples = 1\n'
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
