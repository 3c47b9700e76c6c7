"""RULER's own files: prompts to ask (ROOT/LENGTH/TASK/validation.jsonl) and predictions to grade (pred/TASK.jsonl).

Field names and folders are those of NVIDIA/RULER. A sample is known by its line: `index` is not unique there (for
needles it is a character offset). Which task and length a file is of is read from its path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from leadline.core.errors import SourceError, UsageError

RulerFamily = Literal["needle", "tracing", "counting", "questions"]
NEW_TOKENS: dict[RulerFamily, int] = {"needle": 128, "tracing": 30, "counting": 120, "questions": 32}
"""tokens_to_generate by family; fwe has its own."""
FWE_TOKENS = 50
RULER_TASKS = (
    "niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2", "niah_multikey_3",
    "niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe", "qa_1", "qa_2",
)  # fmt: skip
"""The names in RULER's synthetic.yaml."""
_TASK = re.compile(r"^(?:ruler_)?(niah_(?:single|multikey)_\d|niah_multivalue|niah_multiquery|niah|vt|cwe|fwe|qa)")
_CHUNK = re.compile(r"-\d+$")
_FAMILIES: dict[str, RulerFamily] = {"niah": "needle", "vt": "tracing", "cwe": "counting", "fwe": "counting",
                                "qa": "questions"}  # fmt: skip


class Sample(msgspec.Struct, kw_only=True):
    """A line of validation.jsonl, with RULER's fields in their order."""

    index: int = 0
    input: str
    outputs: list[str]
    length: int = 0
    length_w_model_temp: int = 0
    answer_prefix: str = ""
    token_position_answer: int | None = None


class Prediction(msgspec.Struct, kw_only=True):
    """A line of pred/TASK.jsonl."""

    pred: str
    outputs: list[str]
    input: str = ""
    index: int = 0
    length: int | None = None
    truncation: int | None = None


@dataclass(frozen=True, slots=True)
class RulerFile:
    """A file with the task and the length that its path names; the length is None where it names none."""

    path: Path
    task: str
    length: int | None


def family_of_task(name: str) -> RulerFamily:
    """The family of a RULER task, which also decides the metric: `qa` accepts any reference, the others need all."""
    match = _TASK.match(name)
    if match is None:
        raise UsageError(
            f"{name!r} is not a task of RULER",
            where="task",
            fix="name files TASK.jsonl or folders TASK/validation.jsonl: niah_single_1 ..., vt, cwe, fwe, qa_1, qa_2",
        )
    return _FAMILIES[match[1].partition("_")[0]]


def new_tokens(name: str) -> int:
    """The number of tokens RULER lets a model generate."""
    return FWE_TOKENS if "fwe" in name else NEW_TOKENS[family_of_task(name)]


def find_predictions(paths: Sequence[Path]) -> list[RulerFile]:
    """Prediction files as given, and all of a folder's `pred/`."""
    predictions: list[RulerFile] = []
    for path in paths:
        files = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
        if path.is_dir() and any(f.parent.name == "pred" for f in files):
            files = [f for f in files if f.parent.name == "pred"]
        if not files:
            raise SourceError("there are no .jsonl files here", where=str(path), fix="give RULER's pred folder")
        predictions.extend(RulerFile(f, _CHUNK.sub("", f.stem), length_in(f.parent)) for f in files)
    return predictions


def find_prompts(paths: Sequence[Path]) -> list[RulerFile]:
    """Prompt files as given, and every TASK/validation.jsonl of a folder."""
    prompts = []
    for path in paths:
        files = sorted(path.rglob("validation*.jsonl")) if path.is_dir() else [path]
        if not files:
            raise SourceError(
                "there is no validation.jsonl here", where=str(path), fix="give a file, or the folder RULER wrote to"
            )
        for file in files:
            own = file.stem if not file.stem.startswith("validation") else file.absolute().parent.name
            prompts.append(RulerFile(file, own, length_in(file.absolute().parent)))
    return prompts


def length_in(folder: Path) -> int | None:
    """The nearest folder above that is named by a length."""
    return next((int(part) for part in reversed(folder.parts) if part.isdigit() and int(part) >= 128), None)


def decode_sample(line: bytes, where: str) -> Sample:
    sample: Sample = _decode(line, Sample, where, "a line of RULER's validation.jsonl has input and outputs")
    return sample


def read_predictions(path: Path) -> Iterator[Prediction]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _decode(
                        line, Prediction, f"{path}:{number}", "a line of RULER's predictions has pred and outputs"
                    )
    except OSError as error:
        fix = "give RULER's own .jsonl files, or a folder above them"
        raise SourceError(f"cannot be read: {error.strerror}", where=str(path), fix=fix) from None


def _decode(line: bytes, kind: Any, where: str, fix: str) -> Any:
    try:
        return msgspec.convert(_plain(json.loads(line)), kind, strict=False)
    except (ValueError, RecursionError, OverflowError, msgspec.ValidationError) as error:
        raise SourceError(f"not a line of RULER's: {error}", where=where, fix=fix) from None


def _plain(value: Any) -> Any:
    """A single reference may be a plain string or be called `output`, as RULER's evaluator has it; lm-eval calls the
    answer prefix `gen_prefix` and the length `max_length`; and fields may be null in files that programs rewrote."""
    if isinstance(value, dict):
        if value.get("outputs") is None and "output" in value:
            value["outputs"] = value["output"]
        if isinstance(value.get("outputs"), str):
            value["outputs"] = [value["outputs"]]
        prefix = value.get("gen_prefix")
        if isinstance(prefix, str) and prefix and not value.get("answer_prefix"):
            value["answer_prefix"] = prefix if prefix[0].isspace() else f" {prefix}"  # joined by a space, as there
        if value.get("length") is None and "max_length" in value:
            value["length"] = value["max_length"]
        if value.get("pred", "") is None:
            value["pred"] = ""
        return {k: v for k, v in value.items() if v is not None}
    return value


def encode_sample(sample: Sample) -> bytes:
    """The line as RULER writes it: every field that has a value."""
    known = {name: value for name, value in msgspec.structs.asdict(sample).items() if value is not None}
    return msgspec.json.encode(known) + b"\n"


def split_question(text: str) -> tuple[str, str]:
    """A prompt in two parts: everything up to its last line, and the last line, which is RULER's question."""
    body = text.rstrip()
    start = body.rfind("\n") + 1
    return text[:start], text[start:]
