"""What makes two runs the same run: the spec, and the fingerprints of everything it names."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from leadline.core.contracts import Model, Surprised, Task, options_of
from leadline.core.digest import digest_bytes
from leadline.core.soundings import Measure
from leadline.core.spec import Spec, TaskSpec
from leadline.core.types import Frame
from leadline.store.manifest import Manifest
from leadline.store.provenance import now, session
from leadline.store.runs import slug


def manifest_for(spec: Spec, tasks: Mapping[str, Task], model: Model, *, planned: int) -> Manifest:
    return Manifest(
        digest=spec.digest,
        spec=spec.identity(),
        planned=planned,
        fingerprints=dict(sorted(fingerprints(spec, tasks, model))),
        model=model.card.model_dump(mode="json"),
        frame=_frame_words(model.frame),
        tasks={t.title: _task_words(t, tasks[t.title], model) for t in spec.tasks},
        created=now(),
        sessions=(session(),),
    )


def folder_name(spec: Spec) -> str:
    """`niah-openai-NAME-1a2b3c4d`: the same for the same spec, wherever it came from. Of a path the last part."""
    first, *others = (t.title for t in spec.tasks)
    task = f"{slug(first)}+{len(others)}" if others else slug(first)
    provider, _, name = spec.model.partition("?")[0].partition(":")
    model = slug(f"{provider}-{name.rstrip('/').rpartition('/')[2]}")
    return f"{task[:60]}-{model[:60]}-{spec.digest[:8]}"


def fingerprints(spec: Spec, tasks: Mapping[str, Task], model: Model) -> Iterator[tuple[str, str]]:
    """Everything beyond the spec that can change an answer, each under a name that an error can say."""
    for name, value in model.card.fingerprints.items():
        yield f"model.{name}", value
    yield "model.frame", model.frame.fingerprint
    if isinstance(model, Surprised) and any(isinstance(task, Measure) for task in tasks.values()):
        yield "model.plain", model.plain.fingerprint
    for asked in spec.tasks:
        task = tasks[asked.title]
        yield f"task.{asked.title}.version", task.version
        for name, value in options_of(task).items():
            yield f"task.{asked.title}.{name}", json.dumps(value, sort_keys=True, ensure_ascii=False)
        code = _plugin_file(asked)
        if code is not None:
            yield f"task.{asked.title}.code", digest_bytes(code.read_bytes())
        for source in task.sources():
            yield f"source.{source.name}", source.digest


def _plugin_file(asked: TaskSpec) -> Path | None:
    """The file of a task given as `file.py:Name`: it has no release whose version could stand for its text."""
    path, colon, _ = asked.name.rpartition(":")
    return Path(path) if colon and path.endswith(".py") else None


def _task_words(asked: TaskSpec, task: Task, model: Model) -> dict[str, Any]:
    return {
        "name": asked.name,
        "version": task.version,
        "category": task.category,
        "has_depth": task.has_depth,
        "options": options_of(task),
        **(_measure_words(task, model) if isinstance(task, Measure) else {}),
    }


def _measure_words(task: Measure, model: Model) -> dict[str, Any]:
    """That a task wants log-probabilities, and how everything was decided that their definitions leave open."""
    assert isinstance(model, Surprised)  # gate 2
    before = model.plain.before
    return {
        "kind": "measure",
        "choices": {
            **task.choices(),
            "beginning of text": repr(before) if before else "none: the tokenizer adds none",
            "model numbers": model.card.fingerprints.get("dtype", "unknown"),
        },
    }


def _frame_words(frame: Frame) -> dict[str, Any]:
    return dataclasses.asdict(frame)
