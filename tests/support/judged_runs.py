"""Runs for judges: right answers in sentences, which no rule decides, or texts that try to dictate the verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from leadline.core.spec import make_spec
from leadline.run.measure import measure
from support.scripted_judge import INJECTIONS

FILES = ("manifest.json", "records.jsonl")


def record_run(folder: Path, *, bare_every: int, **values: Any) -> Path:
    """A run at three lengths with right answers in sentences, but for those that `put_in_sentences` leaves."""
    run = measure(make_spec({"lengths": "512,1k,2k", "samples": 8, **values}), folder / "run").folder
    put_in_sentences(run, bare_every=bare_every)
    return run


def put_in_sentences(run: Path, *, bare_every: int = 0) -> None:
    """The sample numbers that `bare_every` divides keep their answers."""
    lines = read_lines(run)
    for line in lines:
        if line["failure_class"] == "correct" and (not bare_every or line["cell"]["sample"] % bare_every):
            line["outcome"]["text"] = (
                f"As far as I can see it is {line['question']['targets'][0]}, which the text says once."
            )
    write_lines(run, lines)


def inject(run: Path, count: int = len(INJECTIONS)) -> None:
    """The answers of the run become texts that try to dictate the verdict; none states its target."""
    lines = read_lines(run)[:count]
    for line, text in zip(lines, INJECTIONS[:count], strict=True):
        line["outcome"]["text"], line["failure_class"] = text, "distractor"
    write_lines(run, lines)


def read_lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "records.jsonl").read_bytes().splitlines()]


def write_lines(run: Path, lines: list[dict[str, Any]]) -> None:
    (run / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def copy_run(recorded: Path, folder: Path) -> Path:
    run = folder / "run"
    run.mkdir()
    for name in FILES:
        (run / name).write_bytes((recorded / name).read_bytes())
    return run
