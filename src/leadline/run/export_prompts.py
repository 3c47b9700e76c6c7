"""Prompts and answers as files: documents are built as for a run and written instead of asked.

The formats come through the door `leadline.prompt_formats`. Two are here:

jsonl   one file, one line per prompt with everything known about it
ruler   ROOT/LENGTH/TASK/validation.jsonl with RULER's fields, for programs that read its files
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from leadline.core import registry
from leadline.core.contracts import PromptFormat, Task, Tokenizer
from leadline.core.errors import StoreError, UsageError
from leadline.core.seeds import digest
from leadline.core.spec import Spec
from leadline.core.types import Cell, Document, Probe
from leadline.run.documents import check_memory, count_cells, planned_documents
from leadline.store.files import replace_file
from leadline.store.manifest import session
from leadline.store.ruler_files import RULER_TASKS, Sample, encode_sample
from leadline.store.runs import slug
from leadline.text.fitting import Fitter

ABOUT = "about.json"
RULER_NAMES = {"qa_fiction_1": "qa_1", "qa_fiction_2": "qa_2"}
"""RULER's predictor refuses tasks that are not in its own list."""


def ruler_name(title: str) -> str:
    return RULER_NAMES.get(title, title)


@dataclass(frozen=True, slots=True)
class WrittenPrompts:
    files: tuple[Path, ...]
    prompts: int
    notes: tuple[str, ...] = ()


def write_prompts(
    spec: Spec,
    fitter: Fitter,
    output: Path,
    form: PromptFormat,
    *,
    progress: Callable[[int, int], None] = lambda n, all: None,
) -> WrittenPrompts:
    """Writes every prompt of a spec. Files appear when all their prompts are written."""
    fitter.share_text(spec.depths)
    tasks = {t.title: registry.task(t) for t in spec.tasks}
    for title, task in tasks.items():
        if task.request == "logprobs":
            raise UsageError(f"{title} asks for log-probabilities: it has no prompts", where="build")
    check_memory(spec, tasks, fitter.tokenizer)
    notes = tuple(form.notes(tasks))
    total, done = count_cells(spec, tasks), 0
    with _Files(output, form) as files:
        for planned in planned_documents(spec, tasks):
            document = planned.document(spec.seed, fitter)
            for probe in document.probes:
                files.add(document, probe, planned.task, fitter.tokenizer)
                done += 1
                progress(done, total)
    about = output / ABOUT if form.is_folder else output.with_name(f"{output.name}.{ABOUT}")
    replace_file(about, msgspec.json.format(msgspec.json.encode(_about(spec, tasks, fitter)), indent=2) + b"\n")
    beside = {output / name: text for name, text in form.beside(files.probes).items()}
    for path, text in beside.items():
        replace_file(path, text.encode())
    return WrittenPrompts((*files.finished, *beside), done, notes)


def _about(spec: Spec, tasks: Mapping[str, Task], fitter: Fitter) -> dict[str, Any]:
    """The origin of the prompts: enough to write them again."""
    return {
        "spec": {k: v for k, v in spec.identity().items() if k != "model"},
        "tasks": {
            title: {"version": task.version, "split": task.split, "written_as": ruler_name(title)}
            for title, task in tasks.items()
        },
        "sources": {source.name: source.digest for task in tasks.values() for source in task.sources()},
        "tokenizer": fitter.tokenizer.fingerprint,
        "frame": fitter.frame.fingerprint,
        "session": msgspec.to_builtins(session()),
    }


# --- formats


class JsonLines:
    """One file, one line per prompt with everything known about it."""

    is_folder = False

    def notes(self, tasks: Mapping[str, Task]) -> Sequence[str]:
        return ()

    def path(self, output: Path, cell: Cell) -> Path:
        return output

    def line(self, document: Document, probe: Probe, task: Task, tokenizer: Tokenizer, index: int) -> bytes:
        return plain_line(document, probe, task)

    def beside(self, lines: Mapping[Path, Sequence[Probe]]) -> Mapping[str, str]:
        return {}


class RulerFiles:
    """ROOT/LENGTH/TASK/validation.jsonl with RULER's fields."""

    is_folder = True

    def notes(self, tasks: Mapping[str, Task]) -> Sequence[str]:
        return _ruler_notes(tasks)

    def path(self, output: Path, cell: Cell) -> Path:
        return output / str(cell.length) / slug(ruler_name(cell.task)) / "validation.jsonl"

    def line(self, document: Document, probe: Probe, task: Task, tokenizer: Tokenizer, index: int) -> bytes:
        return ruler_line(document, probe, tokenizer, index)

    def beside(self, lines: Mapping[Path, Sequence[Probe]]) -> Mapping[str, str]:
        return {}


JSONL = JsonLines()
RULER = RulerFiles()


def _ruler_notes(tasks: Mapping[str, Task]) -> tuple[str, ...]:
    """The RULER names that tasks are written under, and those that RULER's predictor does not know."""
    renamed = {title: RULER_NAMES[title] for title in tasks if title in RULER_NAMES}
    if both := [title for title, name in renamed.items() if name in tasks]:
        raise UsageError(
            f"{both[0]} is written as {renamed[both[0]]}, which is here too", where="build", fix="build one of them"
        )
    unknown = [title for title in tasks if ruler_name(title) not in RULER_TASKS]
    notes = [
        f"{title} is written as {name}: RULER's predictor takes its own names only" for title, name in renamed.items()
    ]
    if unknown:
        notes.append(f"RULER's predictor refuses {', '.join(unknown)}: add an entry to its synthetic.yaml")
    return tuple(notes)


# --- lines


def plain_line(document: Document, probe: Probe, task: Task) -> bytes:
    """A prompt with its answers. `prompt` is the user turn; the model continues from `answer_prefix`. A conversation
    has its turns as `messages` too."""
    cell = probe.cell
    prefix = probe.question.answer_prefix if document.frame.prefill else ""
    values = {
        "id": cell.key,
        "task": cell.task,
        "length": cell.length,
        "depth": cell.depth,
        "sample": cell.sample,
        "split": task.split,
        "prompt": user_prompt(document, probe),
        **({"messages": _messages(document, probe)} if document.conversation else {}),
        "answer_prefix": prefix,
        "targets": probe.question.targets,
        "any_target_will_do": probe.question.match == "any",
        "prompt_tokens": probe.prompt_tokens,
        "answer_tokens": probe.question.allowance,
        "document": document.id,
        "facts": [
            {"start": f.start, "end": f.end, "depth": f.depth, "depth_asked": f.depth_asked}
            for f in document.planted(probe)
        ],
        "labels": dict(probe.question.labels),
        "digest": digest([user_prompt(document, probe), prefix]),
    }
    return msgspec.json.encode(values) + b"\n"


def user_prompt(document: Document, probe: Probe) -> str:
    """The user turn. For a conversation without a chat template, all turns and the beginning of the model's own."""
    opens_answer = document.conversation and document.frame.form == "completion"
    return document.user_text(probe) + (document.frame.after if opens_answer else "")


def _messages(document: Document, probe: Probe) -> list[dict[str, str]]:
    return [{"role": turn.role, "content": turn.text} for turn in document.turns(probe)]


def ruler_line(document: Document, probe: Probe, tokenizer: Tokenizer, index: int) -> bytes:
    """The same with RULER's fields: input + answer_prefix is the prompt, length counts the answer's tokens too."""
    frame = document.frame
    length, text = probe.prompt_tokens + probe.question.allowance, user_prompt(document, probe)
    outside = (frame.before,) if text.endswith(frame.after) else (frame.before, frame.after)
    around = sum(len(tokenizer.encode(part)) for part in outside if part) + frame.extra_tokens
    sample = Sample(
        index=index,
        input=text,
        outputs=list(probe.question.targets),
        length=length - around,
        length_w_model_temp=length,
        answer_prefix=probe.question.answer_prefix if frame.prefill else "",
        token_position_answer=_position(text, probe, tokenizer) if probe.question.family == "needle" else None,
    )
    return encode_sample(sample)


def _position(text: str, probe: Probe, tokenizer: Tokenizer) -> int | None:
    """The tokens of the input before the first place of the first target, as RULER counts them."""
    start = text.find(probe.question.targets[0])
    return len(tokenizer.encode(text[:start])) if start >= 0 else None


# --- files


class _Files:
    """Open files by path, written under temporary names and renamed when all went well."""

    def __init__(self, output: Path, form: PromptFormat) -> None:
        self._output = output
        self._form = form
        self._stack = ExitStack()
        self._open: dict[Path, tuple[IO[bytes], Path]] = {}
        self.probes: dict[Path, list[Probe]] = {}
        """The probes of each file, in the order of its lines."""
        self.finished: tuple[Path, ...] = ()

    def add(self, document: Document, probe: Probe, task: Task, tokenizer: Tokenizer) -> None:
        path = self._form.path(self._output, probe.cell)
        written = self.probes.setdefault(path, [])
        line = self._form.line(document, probe, task, tokenizer, len(written))
        written.append(probe)
        with _refusing(path):
            self._file(path).write(line)

    def _file(self, path: Path) -> IO[bytes]:
        if path not in self._open:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f".{path.name}.{os.getpid()}")
            self._open[path] = (self._stack.enter_context(draft.open("wb")), draft)
        return self._open[path][0]

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        try:
            with _refusing(self._output):
                self._stack.close()
                if kind is None:
                    for path, (_, draft) in self._open.items():
                        os.replace(draft, path)
                    self.finished = tuple(self._open)
        finally:
            for _, draft in self._open.values():
                draft.unlink(missing_ok=True)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot write the prompts: {error.strerror}", where=str(path)) from None
