"""Prompts made by other programs, sent unchanged: RULER's own validation.jsonl files.

Prompts are not fitted to a length: their tokens are counted and compared with the model's own count. A sample is a line
of the file; its `index` is kept as a label, because it is not unique.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from leadline.core.contracts import Task, TextOrigin
from leadline.core.drafts import Draft, DraftQuestion
from leadline.core.errors import SourceError, UsageError
from leadline.core.seeds import digest_bytes
from leadline.core.types import Cell, Match
from leadline.store.ruler_files import Sample, decode_sample, family_of_task, find_prompts, new_tokens, split_question
from leadline.tasks.wording import SCORERS, verbatim_draft

TEMPLATE_MARKS = ("<|", "[/INST]", "<start_of_turn>", "ASSISTANT:", "### Response")


class Prompts(Task):
    """Send prompts made by other programs, from RULER's validation.jsonl files."""

    version: ClassVar[str] = "1"

    files: dict[int, str] = Field({}, description="for each length, a validation.jsonl")
    answer_tokens: int = Field(0, ge=0, description="tokens for the answer; 0 takes what RULER gives the task")

    @property
    def has_depth(self) -> bool:
        return False

    def sources(self) -> Sequence[TextOrigin]:
        if not self.files:
            raise SourceError(
                "no prompts are given", where="prompts", fix="leadline run --prompts validation.jsonl --model M"
            )
        return [open_prompts(Path(path)) for _, path in sorted(self.files.items())]

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        (cell,) = cells
        if cell.length not in self.files:
            raise UsageError(
                f"there is no file of prompts for length {cell.length:,}",
                where=cell.task,
                fix=f"there are files for {', '.join(map(str, sorted(self.files)))}",
            )
        sample = open_prompts(Path(self.files[cell.length])).sample(cell.sample)
        name = cell.task_family
        family = family_of_task(name)
        match: Match = "any" if family == "questions" else "all"
        head, question = split_question(sample.input)
        return verbatim_draft(
            head,
            DraftQuestion(
                cell=cell,
                text=question,
                answer_prefix=sample.answer_prefix,
                targets=tuple(sample.outputs),
                allowance=self.answer_tokens or new_tokens(name),
                scorers=SCORERS[match],
                labels={"index": str(sample.index)},
                match=match,
                family=family,
            ),
        )


@dataclass(frozen=True)
class PromptFile:
    """A file of prompts, read one prompt at a time. Also a TextOrigin."""

    path: Path

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.name}"

    @cached_property
    def digest(self) -> str:
        return digest_bytes(self.path.read_bytes())

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Byte offset of each line that is not blank."""
        starts, offset = [], 0
        with self.path.open("rb") as file:
            for line in file:
                if line.strip():
                    starts.append(offset)
                offset += len(line)
        return tuple(starts)

    def sample(self, number: int) -> Sample:
        if number >= len(self.starts):
            raise SourceError(
                f"the file has {len(self.starts):,} prompts, and number {number + 1:,} was asked for",
                where=str(self.path),
                fix=f"use --samples {len(self.starts)}",
            )
        with self.path.open("rb") as file:
            file.seek(self.starts[number])
            return decode_sample(file.readline(), f"{self.path}, prompt {number + 1}")


_FIX = "give a validation.jsonl of RULER, or the folder it wrote them to"


@cache
def open_prompts(path: Path) -> PromptFile:
    if not path.is_file():
        raise SourceError("there is no such file of prompts", where=str(path), fix=_FIX)
    return PromptFile(path)


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Spec values for some files of prompts, and notes for the user."""

    values: Mapping[str, Any]
    notes: tuple[str, ...]


def prompts_spec(paths: Sequence[Path]) -> PromptSet:
    """Tasks, lengths and samples of files of prompts. Every task must have every length."""
    tasks: dict[str, dict[int, str]] = {}
    counts: dict[str, int] = {}
    for entry in find_prompts(paths):
        file = open_prompts(Path(os.path.realpath(entry.path)))
        if not file.starts:
            raise SourceError("the file holds no prompts", where=str(entry.path), fix=_FIX)
        length = entry.length or max(file.sample(n).length for n in range(len(file.starts)))
        if length < 1 or length in tasks.setdefault(entry.task, {}):
            raise UsageError(
                f"the length of this file of {entry.task} is unknown" if length < 1
                else f"two files hold {entry.task} at {length:,}",
                where=str(entry.path),
                fix="keep RULER's folders: LENGTH/data/TASK/validation.jsonl",
            )  # fmt: skip
        tasks[entry.task][length] = str(file.path)
        counts[str(entry.path)] = len(file.starts)
    lengths = sorted({length for files in tasks.values() for length in files})
    for task, files in tasks.items():
        if missing := [length for length in lengths if length not in files]:
            what, fix = f"{task} has no file for length {missing[0]:,}", "use a separate run for such tasks"
            raise UsageError(what, where="--prompts", fix=fix)
    samples = min(counts.values())
    values = {
        "tasks": [{"name": "prompts", "label": task, "options": {"files": files}} for task, files in tasks.items()],
        "lengths": lengths,
        "samples": samples,
    }
    return PromptSet(values, tuple(_notes(tasks, counts, samples)))


def _notes(tasks: Mapping[str, Mapping[int, str]], counts: Mapping[str, int], samples: int) -> list[str]:
    notes = []
    if max(counts.values()) > samples:
        notes.append(
            f"files have from {samples:,} to {max(counts.values()):,} prompts: the first {samples:,} of each are used"
        )
    first = next(iter(next(iter(tasks.values())).values()))
    ending = open_prompts(Path(first)).sample(0).input[-200:]
    if any(mark in ending for mark in TEMPLATE_MARKS):
        notes.append(
            "the prompts already contain a chat template, and a chat model would add its own: "
            "use a completions endpoint, or write them with RULER's template type `base`"
        )
    return notes
