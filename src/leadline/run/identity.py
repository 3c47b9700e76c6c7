"""What a run is: its manifest, the name of its folder, and the fingerprints of everything that can change an answer."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from leadline.core import registry
from leadline.core.contracts import Model, Task, options_of
from leadline.core.spec import Spec, TaskSpec
from leadline.core.types import Document, Frame
from leadline.run.recording import scorer_fingerprints
from leadline.store.manifest import Manifest, now, session
from leadline.store.runs import slug
from leadline.text.fitting import Fitter
from leadline.text.fitting.search import NESTED_LAYOUT


def manifest_for(
    spec: Spec,
    tasks: Mapping[str, Task],
    model: Model,
    fitter: Fitter,
    *,
    planned: int,
    built: Mapping[str, Sequence[Document]] | None = None,
    notes: Sequence[str] = (),
) -> Manifest:
    """`built` has some documents of every task, whose probes name its scorers; `notes` are for reports."""
    probes = [p for d in (built or {}).values() for document in d for p in document.probes if p.logprobs is None]
    scorers = scorer_fingerprints(dict.fromkeys(name for probe in probes for name in probe.question.scorers))
    return Manifest(
        digest=spec.digest,
        spec=spec.identity(),
        planned=planned,
        fingerprints=dict(sorted([*fingerprints(spec, tasks, model, fitter), *scorers.items()])),
        model={**(card := model.card.model_dump(mode="json")), "notes": [*card["notes"], *notes]},
        frame=dataclasses.asdict(model.frame),
        tasks={t.title: _task_entry(t, tasks[t.title], model, fitter) for t in spec.tasks},
        created=now(),
        sessions=(session(),),
    )


def folder_name(spec: Spec, suite: str = "") -> str:
    """`niah-openai-NAME-1a2b3c4d`: the same for the same spec. Of a path only the last part is used. A suite that was
    asked for by its name takes the place of its tasks."""
    first, *others = (t.title for t in spec.tasks)
    task = slug(suite) if suite else f"{slug(first)}+{len(others)}" if others else slug(first)
    provider, _, name = spec.model.partition("?")[0].partition(":")
    model = slug(f"{provider}-{name.rstrip('/').rpartition('/')[2]}")
    return f"{task[:60]}-{model[:60]}-{spec.digest[:8]}"


def fingerprints(spec: Spec, tasks: Mapping[str, Task], model: Model, fitter: Fitter) -> Iterator[tuple[str, str]]:
    """Everything beyond the spec that can change an answer, each under a name that an error can say."""
    for name, value in model.card.fingerprints.items():
        yield f"model.{name}", value
    if code := registry.plugin_digest(spec.model):
        yield "model.code", code
    yield "model.frame", model.frame.fingerprint
    if spec.reading == "nested":
        yield "text.nested", NESTED_LAYOUT
    if fitter.plain is not None and any(task.request == "logprobs" for task in tasks.values()):
        yield "model.plain", fitter.plain.fingerprint
    for task_spec in spec.tasks:
        task = tasks[task_spec.title]
        yield f"task.{task_spec.title}.version", task.version
        for name, value in options_of(task).items():
            yield f"task.{task_spec.title}.{name}", json.dumps(value, sort_keys=True, ensure_ascii=False)
        if code := registry.plugin_digest(task_spec.name):
            yield f"task.{task_spec.title}.code", code
        for source in task.sources():
            yield f"source.{source.name}", source.digest


def _task_entry(task_spec: TaskSpec, task: Task, model: Model, fitter: Fitter) -> dict[str, Any]:
    return {
        "name": task_spec.name,
        "version": task.version,
        "category": task.category,
        "has_depth": task.has_depth,
        "options": options_of(task),
        **(_describe_logprobs(task, model, fitter.plain) if task.request == "logprobs" and fitter.plain else {}),
    }


def _describe_logprobs(task: Task, model: Model, plain: Frame) -> dict[str, Any]:
    """For a task that asks for log-probabilities, that fact and the choices that the definitions of its metrics leave
    open."""
    return {
        "kind": "measure",
        "choices": {
            **task.choices(),
            "beginning of text": repr(plain.before) if plain.before else "none: the tokenizer adds none",
            "model numbers": model.card.fingerprints.get("dtype", "unknown"),
        },
    }
