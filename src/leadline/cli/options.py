"""Words in: what is asked for, from a suite, a task or a spec file, and flags that override it.

A TOML file and flags give the same Spec. Commands that ask something share these flags through `with_flags`.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import inspect
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin, get_type_hints

import typer

if TYPE_CHECKING:
    from leadline.core.contracts import Task
    from leadline.core.spec import Spec, TaskSpec

DEFAULT_LENGTHS = "1k,2k,4k,8k"
MOST = 100
"""Samples a cell may have when a rule decides how many it gets, and nobody says otherwise."""
UNTIL_HELP = (
    'Ask in rounds, and stop when it is known: effective, "cell +-0.10" or "verdict 0.95". '
    f"--samples is then the most a cell may have. [default there: {MOST}]"
)


@dataclass(frozen=True)
class Flags:
    """The flags as typed. None: not given."""

    what: Annotated[
        str | None, typer.Argument(metavar="SUITE|TASK|SPEC.toml", help="What to ask; see `leadline tasks`, `suites`.")
    ] = None
    model: Annotated[
        str | None, typer.Option(help="PROVIDER:NAME?key=value&key=value; see `leadline models`.", show_default=False)
    ] = None
    task: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TASK", help="A task, also ./mine.py:Mine. May be repeated; replaces the tasks of a suite or spec."
        ),
    ] = None
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A task's option. KEY=A,B,C runs the task once with each."),
    ] = None
    templates: Annotated[
        Path | None,
        typer.Option(help="A file of texts in place of ours; `leadline tasks show NAME --template` prints a start."),
    ] = None
    no_context: Annotated[
        bool, typer.Option("--no-context", help="Ask questions without their documents as well: answers from memory.")
    ] = False
    prompts: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH", help="Ask RULER's own prompts: a validation.jsonl, or a folder of them. May be repeated."
        ),
    ] = None
    lengths: Annotated[str | None, typer.Option(help=f"4k,8k,16k: 4k is 4096 tokens. [default: {DEFAULT_LENGTHS}]")] = (
        None
    )
    depths: Annotated[str | None, typer.Option(help="11 (even), sigmoid:11, or 0,0.5,1. [default: 5]")] = None
    samples: Annotated[int | None, typer.Option(help="Samples of every cell. [default: 3]")] = None
    reading: Annotated[str | None, typer.Option(help="fresh, shared or nested. [default: fresh]")] = None
    seed: Annotated[int | None, typer.Option(help="Another number, other samples. [default: 0]")] = None
    workers: Annotated[int | None, typer.Option(help="Requests in flight. [default: 16]")] = None
    attempts: Annotated[int | None, typer.Option(help="Times a sample is asked before it has failed. [default: 6]")] = (
        None
    )
    timeout: Annotated[float | None, typer.Option(help="Seconds a request may take. [default: 600]")] = None
    ray: Annotated[
        int | None, typer.Option(min=0, help="Replicas of an in-process model as Ray actors; 0 is one for every GPU.")
    ] = None
    out: Annotated[Path | None, typer.Option(help="The run's folder. [default: runs/TASK-MODEL-DIGEST]")] = None
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is Flags, with each flag as an option of its own."""
    hints = get_type_hints(Flags, include_extras=True)
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "flags"]
    shared = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in dataclasses.fields(Flags)
    ]

    @functools.wraps(command)
    def typed(**values: Any) -> None:
        given = {p.name: values.pop(p.name) for p in shared}
        command(Flags(**given), **values)

    parameters = [*shared, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own)]
    typed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    typed.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
    return typed


def spec_of(flags: Flags) -> Spec:
    """Gate 1: one Spec from file or suite, and flags over it."""
    from leadline.core.errors import UsageError
    from leadline.core.spec import make_spec

    values, where = _prompts(flags) if flags.prompts else _values(flags.what)
    several = values.pop("models", None)  # for commands that take many; see leadline.cli.many_models
    over: dict[str, Any] = {k: v for k in _SPEC_FLAGS if (v := getattr(flags, k)) is not None}
    limits = {k: v for k in _LIMIT_FLAGS if (v := getattr(flags, k)) is not None}
    values = {"lengths": DEFAULT_LENGTHS, **values, **over}
    if limits:
        values["limits"] = {**values.get("limits", {}), **limits}
    if flags.task:
        values["tasks"] = [*(values["tasks"] if where == "task" else ()), *flags.task]
    if "tasks" not in values:
        raise UsageError("nothing to ask", fix="name a suite, a task or a spec file, as in `leadline run niah`")
    if "model" not in values:
        given = "several models given, and this is about one" if several else "no model given"
        raise UsageError(given, fix="add --model, as in --model sim:perfect; see `leadline models`")
    spec = make_spec(values, where="flags" if where == "task" else f"{where}, flags" if over or limits else where)
    if flags.templates is not None:
        from leadline.tasks.wording import with_templates

        spec = spec.model_copy(update={"tasks": tuple(with_templates(spec.tasks, flags.templates))})
    tasks = make_spec(_configured(spec, flags.set_ or []), where="flags").tasks
    return spec.model_copy(update={"tasks": (*tasks, *from_memory(tasks)) if flags.no_context else tasks})


def with_rule(spec: Spec, until: str) -> Spec:
    """The spec with a rule that stops it. Samples that a flag, file or suite gives are then the most of a cell."""
    if until:
        samples = spec.samples if "samples" in spec.model_fields_set else MOST
        spec = spec.model_copy(update={"until": until, "samples": samples})
    if spec.until:
        from leadline.stats.allocate import parse_until  # scipy, which a run without a rule does not need

        parse_until(spec.until)
    return spec


_SPEC_FLAGS = ("model", "lengths", "depths", "samples", "reading", "seed")
_LIMIT_FLAGS = ("workers", "attempts", "timeout", "ray")


def _values(what: str | None) -> tuple[dict[str, Any], str]:
    """The plain values that the first word stands for, and what kind of word it is."""
    from leadline.core import registry
    from leadline.core.errors import UnknownName
    from leadline.core.spec import Suite, load_spec

    if what is None:
        return {}, "flags"
    if what.endswith(".toml"):
        return load_spec(Path(what)), what
    if what in registry.names("suites"):
        suite: Suite = registry.find("suites", what)
        return dict(suite.values), f"suite {what}"
    if what in registry.names("tasks") or ".py:" in what:
        return {"tasks": [what]}, "task"
    raise UnknownName("suite or task", what, [*registry.names("suites"), *registry.names("tasks")])


def _prompts(flags: Flags) -> tuple[dict[str, Any], str]:
    from leadline.cli.output import warn
    from leadline.core.errors import UsageError
    from leadline.tasks.prompts import prompts_spec

    if flags.what or flags.task:
        raise UsageError("--prompts are all that is asked", where="--prompts", fix="leave out the task or suite")
    asked = prompts_spec(flags.prompts or [])
    for note in asked.notes:
        warn(note)
    return dict(asked.values), "--prompts"


def from_memory(tasks: Sequence[TaskSpec]) -> list[TaskSpec]:
    """The tasks that ask questions once more, without their documents."""
    from leadline.core import registry
    from leadline.core.errors import UsageError

    asking = [t for t in tasks if registry.task(t).category == QUESTION_ANSWERING]
    if not asking:
        raise UsageError(
            "none of the tasks asks questions that could be answered from memory",
            where="--no-context",
            fix="use it with qa_1, qa_2 or qa_fiction_1, or set no_context=true for a task",
        )
    return [
        t.model_copy(update={"label": f"{t.title}[no context]", "options": {**t.options, "no_context": True}})
        for t in asking
    ]


QUESTION_ANSWERING = "question answering"


def _configured(spec: Spec, settings: list[str]) -> dict[str, Any]:
    """The spec's values with every task's options in the type the task gives them, and swept where told to.

    "4" from a flag and 4 from a file are one option; so the two are one run.
    """
    from leadline.core import registry
    from leadline.core.errors import UnknownName, UsageError
    from leadline.core.spec import TaskSpec

    pairs = [_pair(s) for s in settings]
    made = {t.title: registry.task(t) for t in spec.tasks}
    known = {name for task in made.values() for name in type(task).model_fields}
    for key, _ in pairs:
        if key not in known:
            raise UnknownName("option", key, known, where="--set")
    tasks: list[dict[str, Any]] = []
    for asked in spec.tasks:
        mine = [(k, choices_of(made[asked.title], k, v)) for k, v in pairs if k in type(made[asked.title]).model_fields]
        for choice in itertools.product(*(values for _, values in mine)):
            chosen = dict(zip((k for k, _ in mine), choice, strict=True))
            swept = {k: chosen[k] for k, values in mine if len(values) > 1}
            options = {**asked.options, **chosen}
            task = registry.task(TaskSpec(name=asked.name, options=options))
            tasks.append(
                {
                    "name": asked.name,
                    "label": _label(asked.title, swept) if swept else asked.label,
                    "options": task.model_dump(mode="json", include=set(options)),
                }
            )
    if not tasks:
        raise UsageError("nothing to ask", where="--set")
    return {**spec.identity(), "tasks": tasks}


def _pair(setting: str) -> tuple[str, str]:
    from leadline.core.errors import UsageError

    key, equals, value = setting.partition("=")
    if not equals:
        raise UsageError(f"{setting!r} sets nothing", where="--set", fix="write --set key=value")
    return key.strip(), value


def choices_of(task: Task, key: str, value: str) -> list[Any]:
    """`2,4,8` is three choices; a list option takes its commas for itself; quotes and mixtures keep theirs."""
    parts = [p.strip() for p in next(csv.reader([value], skipinitialspace=True), [""])]
    kind = type(task).model_fields[key].annotation
    if get_origin(kind) in (tuple, list):
        return [parts]
    return [value] if _is_mixture(parts) else parts


def _is_mixture(parts: list[str]) -> bool:
    """`prose:0.5,code:0.5` is one haystack."""
    return len(parts) > 1 and all(re.search(r":\d*\.?\d+$", p) for p in parts)


def _label(title: str, swept: Mapping[str, Any]) -> str:
    return f"{title}[{','.join(f'{k}={v}' for k, v in swept.items())}]"
