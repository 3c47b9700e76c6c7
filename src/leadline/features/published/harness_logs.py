"""Answers in the logs of other harnesses: lm-evaluation-harness's `samples_TASK_DATE.jsonl` and Inspect's `.eval`.

A file is recognised by what is in it. What such a log cannot tell is said in a note: lm-eval cuts prompts that are too
long from the left and leaves no mark in the line (lm-eval 0.4.13).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from leadline.core.errors import LeadlineError, MissingExtra, SourceError, UsageError
from leadline.core.types import Match, Question
from leadline.models.openai.replies import without_echo
from leadline.store.logged_questions import FIELD, logged_question
from leadline.store.ruler_files import RulerFamily, family_of_task, split_question

LM_EVAL_NOTE = (
    "lm-eval cuts prompts that do not fit from the left and does not say so: whether all were read whole is unknown"
)
INSPECT_VERSION = 2
"""The version of Inspect's logs whose fields these are."""
_LM_EVAL_NAME = re.compile(r"^samples_(?P<task>.+?)(?:_\d{4}-\d{2}-\d{2}T[\d.:-]+)?$")
_LENGTH_SUFFIX = re.compile(r"_(?P<length>\d+)k?$")


@dataclass(frozen=True, slots=True)
class LoggedAnswer:
    """One answer of a log, with the question that grades it. `id` and `epoch` are the log's own."""

    id: int | str
    question: Question
    text: str
    epoch: int = 1
    cut_off: bool = False
    """Whether the answer ended because its tokens were used up."""


@dataclass(frozen=True, slots=True)
class LoggedTask:
    task: str
    length: int | None
    answers: list[LoggedAnswer] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HarnessLog:
    """The answers of one file, by task and length."""

    path: Path
    harness: Literal["lm-eval", "inspect"]
    tasks: list[LoggedTask]
    notes: tuple[str, ...] = ()


def harness_log(path: Path) -> HarnessLog | None:
    """The log in a file; None if the file is not one."""
    if path.suffix == ".eval":
        return _inspect_log(path)
    return _lm_eval_log(path) if path.suffix == ".jsonl" and _is_lm_eval(path) else None


@dataclass(frozen=True, slots=True)
class FoundLogs:
    """The logs among files and folders, and the errors of those that cannot be read."""

    logs: list[HarnessLog]
    unread: dict[Path, SourceError]

    def all_read(self) -> list[HarnessLog]:
        """The logs, if each could be read."""
        for error in self.unread.values():
            raise error
        return self.logs


def find_harness_logs(paths: Sequence[Path]) -> FoundLogs:
    """All logs among files and folders; none if there are only files of another kind. A mixture is an error."""
    logs, unread, others = [], {}, []
    for file in (f for p in paths for f in (_logs_in(p) if p.is_dir() else [p])):
        try:
            log = harness_log(file)
        except SourceError as error:
            unread[file] = error
            continue
        if log is None:
            others.append(file)
        else:
            logs.append(log)
    if logs and others:
        raise UsageError(
            "logs of a harness and other files cannot be graded together", where=str(others[0]), fix="grade them apart"
        )
    return FoundLogs(logs, unread)


def _logs_in(folder: Path) -> list[Path]:
    """Only files that are named like logs: a folder may hold RULER's predictions instead."""
    return sorted([*folder.rglob("*.eval"), *folder.rglob("samples_*.jsonl")])


# --- lm-evaluation-harness


class _Line(msgspec.Struct):
    """What grading needs of a line of samples_TASK_DATE.jsonl."""

    doc_id: int
    doc: dict[str, Any]
    resps: list[list[str]]
    target: Any = None
    arguments: Any = None


def _is_lm_eval(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            first = json.loads(file.readline())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, dict) and {"doc_id", "resps", "doc"} <= first.keys()


def _lm_eval_log(path: Path) -> HarnessLog:
    matched = _LM_EVAL_NAME.match(path.stem)
    task = matched["task"] if matched else path.stem
    by_length: dict[int | None, dict[int, LoggedAnswer]] = {}
    for where, line in _lines(path):
        task = str(line.doc["task"]) if FIELD in line.doc and "task" in line.doc else task
        length = line.doc.get("max_length")
        answers = by_length.setdefault(length if isinstance(length, int) else None, {})
        if line.doc_id not in answers:  # one line for each filter: the raw answer is the same in all
            text = without_echo(_response(line, where), _own_prefix(line.doc))
            answers[line.doc_id] = LoggedAnswer(line.doc_id, _lm_eval_question(task, line, where), text)
    tasks = [LoggedTask(_without_length(task, n), n, list(a.values())) for n, a in sorted(by_length.items(), key=str)]
    return HarnessLog(path, "lm-eval", tasks, (LM_EVAL_NOTE,))


def _lines(path: Path) -> Iterator[tuple[str, _Line]]:
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            where = f"{path}:{number}"
            try:
                yield where, msgspec.json.decode(text, type=_Line)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
                raise SourceError(
                    f"not a line of lm-eval's samples: {error}", where=where,
                    fix="give samples_TASK_DATE.jsonl as --log_samples of lm-eval writes it, for a generating task",
                ) from None  # fmt: skip


def _response(line: _Line, where: str) -> str:
    if not line.resps or not line.resps[0]:
        raise SourceError("this sample has no answer", where=where, fix="grade logs of a finished evaluation")
    return line.resps[0][0]


def _lm_eval_question(task: str, line: _Line, where: str) -> Question:
    if (own := logged_question(line.doc, where)) is not None:
        return own
    targets = line.doc.get("outputs", line.target)
    targets = [targets] if isinstance(targets, str | int | float) else targets
    if not isinstance(targets, list) or not targets:
        raise SourceError("this sample has no reference answers", where=where, fix="name a log of a generating task")
    prompt = line.doc.get("input") or line.doc.get("question") or ""
    return _question(task, tuple(map(str, targets)), str(prompt))


def _own_prefix(fields: dict[str, Any]) -> str:
    """The begun answer of a prompt that Leadline wrote, which some servers repeat."""
    return str(fields.get("answer_prefix") or fields.get("gen_prefix") or "") if FIELD in fields else ""


def _without_length(task: str, length: int | None) -> str:
    """`niah_4k` of an exported run is `niah` at 4096."""
    matched = _LENGTH_SUFFIX.search(task)
    if length is None or matched is None:
        return task
    number = int(matched["length"])
    return task[: matched.start()] if length in (number, 1024 * number) else task


# --- Inspect


def _inspect_log(path: Path) -> HarnessLog:
    try:
        from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries, read_eval_log_samples_by_id
    except ImportError:
        raise MissingExtra("inspect_ai", "inspect", where=str(path)) from None
    version = INSPECT_VERSION
    try:
        header = read_eval_log(str(path), header_only=True)
        version = header.version
        # By the samples that are there: the header names only those that were known when the evaluation began.
        ids = [(summary.id, summary.epoch) for summary in read_eval_log_sample_summaries(str(path))]
        samples = read_eval_log_samples_by_id(
            str(path), ids, resolve_attachments="core", exclude_fields={"events", "store"}
        )
        return _read_inspect_log(path, header, samples)
    except LeadlineError:
        raise
    except Exception as error:  # whatever a foreign library raises for a foreign file
        reason = f"{type(error).__name__}: {error}"
        what, fix = f"cannot be read by inspect_ai: {reason}", "give an .eval log that `inspect view` opens"
        if version != INSPECT_VERSION:
            what = f"a log of version {version}, and {INSPECT_VERSION} is known here: {reason}"
            fix = "update leadline, or write the log again with an inspect_ai of the other version"
        raise SourceError(what, where=str(path), fix=fix) from None


def _read_inspect_log(path: Path, header: Any, samples: Iterable[Any]) -> HarnessLog:
    by_task: dict[tuple[str, int | None], LoggedTask] = {}
    failed = 0
    for sample in samples:
        if sample.error is not None or not sample.output.choices:
            failed += 1
            continue
        metadata = sample.metadata or {}
        task, length = str(metadata.get("task") or header.eval.task), metadata.get("length")
        length = length if isinstance(length, int) else None
        logged = by_task.setdefault((task, length), LoggedTask(task, length))
        logged.answers.append(_inspect_answer(task, sample, metadata))
    cut = sum(answer.cut_off for task in by_task.values() for answer in task.answers)
    notes = [f"{cut} answers of {path.name} were cut off at their limit of tokens"] if cut else []
    notes += [f"{failed} samples of {path.name} ended in an error and are not graded"] if failed else []
    if header.version > INSPECT_VERSION:
        notes.append(
            f"{path} is a log of version {header.version}, and {INSPECT_VERSION} is known here: compare some scores "
            "with `inspect view`, or update leadline"
        )
    notes.append("prompts that a server cut without saying so look like any other in an Inspect log")
    return HarnessLog(path, "inspect", list(by_task.values()), tuple(notes))


def _inspect_answer(task: str, sample: Any, metadata: dict[str, Any]) -> LoggedAnswer:
    targets = (sample.target,) if isinstance(sample.target, str) else tuple(sample.target)
    prompt = sample.input if isinstance(sample.input, str) else (sample.input[-1].text if sample.input else "")
    question = logged_question(metadata, str(sample.id)) or _question(task, targets, prompt, metadata.get("match"))
    stopped = sample.output.choices[0].stop_reason in ("max_tokens", "model_length")
    text = without_echo(sample.output.completion, _own_prefix(metadata))
    return LoggedAnswer(sample.id, question, text, sample.epoch, stopped)


# --- what grades an answer


def _question(task: str, targets: tuple[str, ...], prompt: str, match: object = None) -> Question:
    """RULER's rule where the task is one of its own; else any one of the references is enough, unless the log says that
    all are needed."""
    family: RulerFamily | Literal[""] = ""
    with suppress(UsageError):  # not a task of RULER
        family = family_of_task(task)
    own: Match = "any" if family in ("questions", "") else "all"
    rule: Match = "all" if match == "all" else "any" if match == "any" else own
    return Question(split_question(prompt)[1].strip(), targets=targets, match=rule, family=family)
