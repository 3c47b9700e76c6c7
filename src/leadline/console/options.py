"""The options that `run`, `plan` and `build` share, and the Spec they make together with a suite, task or spec file."""

from __future__ import annotations

import csv
import dataclasses
import functools
import inspect
import itertools
import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from leadline.console.model_names import resolve_model
from leadline.console.output import BudgetOption, PricesOption, TierOption, say, warn
from leadline.core import registry
from leadline.core.contracts import Task
from leadline.core.errors import OptionElsewhere, UnknownName, UsageError
from leadline.core.lengths import AUTO
from leadline.core.spec import MAX_SAMPLES_UNTIL, Spec, Suite, SuiteSetting, TaskSpec, load_spec, make_spec
from leadline.tasks.prompts import prompts_spec
from leadline.tasks.standard import STANDARD
from leadline.tasks.templates import template_notes, with_templates
from leadline.tasks.wording import WordedTask

MODEL_VARIABLE = "LEADLINE_MODEL"
"""The environment's model, where neither a flag nor the spec names one."""
COMMAND_LINE = "command line"
"""The place of a wrong value, for errors."""
FROM_MEMORY = ("question answering", "published")
"""Categories of tasks whose questions can be asked without the document."""
UntilOption = Annotated[
    str,
    typer.Option(
        "--until",
        metavar="RULE",
        help='Stop as soon as the result is certain: effective, "cell +-0.10" or "verdict 0.95". '
        f"--samples is then the maximum per cell. [default with --until: {MAX_SAMPLES_UNTIL}]",
    ),
]
LENGTHS_HELP = (
    "Prompt lengths in tokens, such as 4k,8k,16k; 4k is 4096. auto: from 1k to the window, one beyond it, and both "
    "sides of sizes such as a sliding window. [default: auto]"
)
DEPTHS_HELP = "Depths of the evidence: 11 (evenly spaced), sigmoid:11 (denser at the ends) or 0,0.5,1. [default: 5]"
SAMPLES_HELP = "Samples per cell, that is per length and depth. [default: 3]"
READING_HELP = (
    "fresh: one document per question; shared: one document for all depths; nested: one for all lengths too; "
    "auto: the cheapest for this model. [default: fresh]"
)
SEED_HELP = "Random seed of the documents. [default: 0]"
SET_HELP = (
    "Set a task option; `leadline tasks show NAME` lists them. keys=1,4,16 runs the task once with each value; "
    'lists are JSON, as in answers=["x","y"]; qa_1.data=FILE is for one task of several. Repeatable.'
)
JUDGES_HELP = "A model that grades the answers at the end, as `leadline judge RUN --with MODEL` does later. Repeatable."
THINKING_SAMPLES = 8
"""Samples per cell of the suite `standard` where the allowance of a thinking model is found."""
THINKING_HELP = (
    "How a served model is to think: on, off, low, medium, high, or a budget of tokens. Several, such as off,low,high, "
    "give a run each and one page."
)
ALLOWANCE_HELP = (
    "Tokens for thinking, as part of the length; auto grows them until fewer than 1 % of the answers are cut off. "
    "[default with --thinking: auto]"
)
TRACKER_HELP = (
    "mlflow:URI?experiment=NAME, wandb:ENTITY/PROJECT?mode=offline or tensorboard:FOLDER. "
    "run_id=ID logs into an existing run of the tracker. Repeatable."
)
STEP_HELP = "Training step of the checkpoint; auto reads it from the name (hf:out/checkpoint-12000)."
NAME_HELP = "Name of the tracker's run. [default: the model's name without its step]"
TEMPLATES_HELP = "File with your own prompt texts; `leadline tasks show NAME --template` prints one to start from."


@dataclass(frozen=True)
class RunOptions:
    """The options as given; None where an option was not given."""

    what: Annotated[
        str | None,
        typer.Argument(
            metavar="SUITE|TASK|SPEC.toml",
            help="What to run, such as niah; see `leadline list tasks` and `list suites`. [default: standard]",
            show_default=False,
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(
            help="A server's address (http://127.0.0.1:8000), a checkpoint's folder, a name on the hub (org/name), or "
            "PROVIDER:NAME?key=value&key=value; see `leadline list models`.",
            metavar="MODEL",
            show_default=False,
        ),
    ] = None
    task: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TASK",
            help="Tasks by name (niah,vt), or one of a file (./mine.py:Mine). Repeatable. Replaces those of a suite.",
        ),
    ] = None
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=SET_HELP)] = None
    templates: Annotated[Path | None, typer.Option(metavar="FILE", help=TEMPLATES_HELP)] = None
    no_context: Annotated[
        bool, typer.Option("--no-context", help="Also ask each question without its document, as a baseline.")
    ] = False
    prompts: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH", help="Run RULER's own prompts: a validation.jsonl, or a folder of them. Repeatable."
        ),
    ] = None
    lengths: Annotated[str | None, typer.Option(metavar="LENGTHS", help=LENGTHS_HELP)] = None
    depths: Annotated[str | None, typer.Option(metavar="DEPTHS", help=DEPTHS_HELP)] = None
    samples: Annotated[int | None, typer.Option(metavar="N", help=SAMPLES_HELP)] = None
    reading: Annotated[str | None, typer.Option(metavar="MODE", help=READING_HELP)] = None
    seed: Annotated[int | None, typer.Option(metavar="N", help=SEED_HELP)] = None
    thinking: Annotated[str | None, typer.Option(metavar="SETTINGS", help=THINKING_HELP)] = None
    allowance: Annotated[str | None, typer.Option(metavar="TOKENS|auto", help=ALLOWANCE_HELP)] = None
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", envvar="LEADLINE_WORKERS", help="Concurrent requests to a server. [default: 16]"),
    ] = None
    attempts: Annotated[
        int | None, typer.Option(metavar="N", help="Attempts per sample before it counts as failed. [default: 6]")
    ] = None
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Seconds until a request times out. [default: 600]")
    ] = None
    rate_limit_wait: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Seconds that a server's rate limit (429) is waited for while it answers nothing. [default: 3600]",
        ),
    ] = None
    ray: Annotated[
        int | None,
        typer.Option(metavar="N", help="Ray replicas of an in-process model; 0: as many as fit the GPUs."),
    ] = None
    judges: Annotated[list[str] | None, typer.Option(metavar="MODEL", help=JUDGES_HELP)] = None
    allow_tokenizer_mismatch: Annotated[
        bool | None,
        typer.Option(
            "--allow-tokenizer-mismatch",
            help="Measure although the tokenizer is not the server's. Lengths are then not its own.",
        ),
    ] = None
    batch: Annotated[
        bool | None,
        typer.Option("--batch", help="Ask by the provider's batches: half the price, answers within a day."),
    ] = None
    prices: PricesOption = None
    tier: TierOption = None
    budget: BudgetOption = None
    repeats: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Share of the questions that is asked twice, to see how answers to the same question differ. "
            "[default: a tenth, 20 to 200, where the model has no greedy decoding]",
        ),
    ] = None
    time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="End in this time, such as 10min, with the results until then; implies --until effective.",
        ),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FOLDER", help="Folder of the run. [default: runs/TASK-MODEL-DIGEST]"),
    ] = None
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON to stdout.")] = False


_SPEC_FLAGS = ("model", "lengths", "depths", "samples", "reading", "seed", "allowance")
_LIMIT_FLAGS = (
    "workers", "attempts", "timeout", "rate_limit_wait", "ray", "allow_tokenizer_mismatch", "batch", "prices", "tier",
    "budget", "repeats", "time",
)  # fmt: skip


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command, whose first parameter is `flags: Flags`, every field of Flags as a command-line option."""
    hints = get_type_hints(RunOptions, include_extras=True)
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "flags"]
    shared = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in dataclasses.fields(RunOptions)
    ]

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        flags = RunOptions(**{p.name: values.pop(p.name) for p in shared})
        command(flags, **values)

    parameters = [*shared, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own)]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
    return wrapper


def spec_of(flags: RunOptions) -> Spec:
    """The validated Spec: values of the suite, task or spec file, overridden by flags."""
    values, where = _prompts(flags) if flags.prompts else _values(what_of(flags))
    models = values.pop("models", None)  # a list of models is read in leadline.cli.many_models
    from_flags: dict[str, Any] = {k: v for k in _SPEC_FLAGS if (v := getattr(flags, k)) is not None}
    limits = {k: v for k in _LIMIT_FLAGS if (v := getattr(flags, k)) is not None}
    values = {**values, **from_flags}
    if flags.judges:
        judging = values.get("judges", {})
        values["judges"] = {**(judging if isinstance(judging, dict) else {}), "models": flags.judges}
    if limits:
        values["limits"] = {**values.get("limits", {}), **limits}
    if flags.task:
        named = [name for words in flags.task for name in _task_names(words)]
        values["tasks"] = [*(values["tasks"] if where == "task" else ()), *named]
    _refuse_no_tasks(values, where)
    if not models and "model" not in values and (from_environment := os.environ.get(MODEL_VARIABLE, "")):
        values["model"] = resolve_model(from_environment, say)
    if "model" not in values:
        what = "this spec has a list of models, and one model is needed here" if models else "no model given"
        raise UsageError(what, fix="add --model, for example --model sim:perfect; see `leadline models`")
    if flags.model is not None:
        values["model"] = resolve_model(flags.model, say)
    if flags.thinking:
        [setting] = thinking_settings(flags.thinking)[:1]
        values["model"] = with_thinking(str(values["model"]), setting)
        if "thinking=off" not in values["model"]:
            values.setdefault("allowance", "auto")
            if flags.what is None and values["allowance"] == AUTO:  # it cannot be found while a rule decides
                values |= {"until": "", "samples": values.get("samples", THINKING_SAMPLES)}
    spec = make_spec(
        values,
        where=COMMAND_LINE if where == "task" else f"{where} and {COMMAND_LINE}" if from_flags or limits else where,
    )
    if flags.templates is not None:
        spec = spec.model_copy(update={"tasks": tuple(with_templates(spec.tasks, flags.templates))})
        for note in template_notes(spec.tasks, flags.templates):
            warn(note)
    configured = _configured(spec.tasks, flags.set_ or [], _suite_settings(what_of(flags)))
    tasks = make_spec({**spec.identity(), "tasks": configured}, where=COMMAND_LINE).tasks
    return spec.model_copy(update={"tasks": (*tasks, *without_context(tasks)) if flags.no_context else tasks})


def _refuse_no_tasks(values: Mapping[str, Any], where: str) -> None:
    if "tasks" in values:
        return
    if "task" in values:
        raise UnknownName("key", "task", ["tasks"], where=where)
    fix = 'add tasks = ["niah"]; `leadline list tasks` has all of them'
    raise UsageError("the spec names no tasks", where=where, fix=fix)


def model_of(flags: RunOptions) -> str:
    """The model as it was typed, or that of the spec file or the environment; empty where none is named."""
    what = what_of(flags) or ""
    in_file = str(load_spec(Path(what)).get("model", "")) if what.endswith(".toml") else ""
    return flags.model or in_file or os.environ.get(MODEL_VARIABLE, "")


def what_of(flags: RunOptions) -> str | None:
    """The suite, task or spec file; the suite `standard` where nothing says what to ask."""
    return flags.what or (None if flags.task or flags.prompts else STANDARD.name)


def thinking_settings(text: str) -> list[str]:
    """The settings of --thinking, without repeats."""
    settings = list(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    if not settings:
        raise UsageError("no setting is given", where="--thinking", fix="write --thinking off,low,high")
    return settings


def with_thinking(model: str, setting: str) -> str:
    """The model with this thinking setting, unless its name has one."""
    if "thinking=" in model.partition("?")[2]:
        return model
    name = registry.ModelName.parse(model)
    if "thinking" not in type(registry.provider(name)).model_fields:
        raise UsageError(
            f"models of {name.provider} have no setting for thinking",
            where="--thinking",
            fix="leave it out, or give an openai: or hf: model",
        )
    return f"{model}{'&' if '?' in model else '?'}thinking={setting}"


def with_rule(spec: Spec, until: str) -> Spec:
    """The spec with a stopping rule. Its samples, where given, become the maximum per cell."""
    limited = bool(spec.limits.time) or (bool(spec.limits.budget) and "samples" not in spec.model_fields_set)
    until = until or ("" if spec.until or not limited else "effective")
    if until:
        samples = spec.samples if "samples" in spec.model_fields_set else MAX_SAMPLES_UNTIL
        spec = spec.model_copy(update={"until": until, "samples": samples})
    if spec.until:
        from leadline.stats.allocate import parse_until  # imports scipy, which other runs do not need

        parse_until(spec.until)
    return spec


def _task_names(words: str) -> list[str]:
    """`niah,vt` are two tasks; a path may have commas of its own."""
    return [words] if ".py:" in words else [name.strip() for name in words.split(",") if name.strip()]


def _values(what: str | None) -> tuple[dict[str, Any], str]:
    """The spec values of a suite, task or file, and where they come from."""
    if what is None:
        return {}, COMMAND_LINE
    if what.endswith(".toml"):
        return load_spec(Path(what)), what
    if what in registry.names("suites"):
        suite: Suite = registry.find("suites", what)
        return suite.values_with(registry.names("tasks")), f"suite {what}"
    named, known = _task_names(what), registry.names("tasks")
    unknown = [name for name in named if name not in known and ".py:" not in name]
    if unknown:
        raise UnknownName("suite or task", unknown[0], [*registry.names("suites"), *known])
    return {"tasks": named}, "task"


def _suite_settings(what: str | None) -> Mapping[str, SuiteSetting]:
    if what not in registry.names("suites"):
        return {}
    suite: Suite = registry.find("suites", what)
    return suite.settings


def suite_of(flags: RunOptions) -> str:
    """The name of the suite that was asked for; empty where its tasks were replaced, and without a suite."""
    what = what_of(flags) or ""
    return what if what in registry.names("suites") and not flags.task else ""


def _prompts(flags: RunOptions) -> tuple[dict[str, Any], str]:
    if flags.what or flags.task:
        raise UsageError(
            "--prompts cannot be combined with a task or suite", where="--prompts", fix="leave out the task or suite"
        )
    prompts = prompts_spec(flags.prompts or [])
    for note in prompts.notes:
        warn(note)
    return dict(prompts.values), "--prompts"


def without_context(tasks: Sequence[TaskSpec]) -> list[TaskSpec]:
    """A copy of each task on questions over documents that asks without the document."""
    answering = [t for t in tasks if registry.task(t).category in FROM_MEMORY]
    if not answering:
        raise UsageError(
            "none of the tasks asks questions over documents",
            where="--no-context",
            fix="use it with qa_1, qa_fiction_1 or longbench_dataset, or set no_context=true for a task",
        )
    return [
        t.model_copy(update={"label": f"{t.title}[no context]", "options": {**t.options, "no_context": True}})
        for t in answering
    ]


# --- --set KEY=VALUE


def _configured(
    tasks: Sequence[TaskSpec], settings: Sequence[str], of_suite: Mapping[str, SuiteSetting]
) -> list[dict[str, Any]]:
    """The tasks with the options of --set; one task for each combination of values.

    Options get the types that the task declares: 4 from a file and "4" from a flag are the same run.
    """
    by_title = {spec.title: registry.task(spec) for spec in tasks}
    pairs = [pair for setting in settings for pair in _expanded(_pair(setting), of_suite, by_title)]
    _refuse_other_presets(tasks, pairs, of_suite)
    known = {name for task in by_title.values() for name in type(task).model_fields} | set(of_suite)
    for key, _ in pairs:
        title, _, option = key.rpartition(".")
        if title and title not in by_title:
            raise UnknownName("task", title, by_title, where="--set")
        if option not in known:
            elsewhere = {name: task for t in by_title.values() for name, task in t.options_elsewhere.items()}
            if option in elsewhere:
                raise OptionElsewhere(option, elsewhere[option], where="--set")
            raise UnknownName("option", option, known, where="--set")
    configured: list[dict[str, Any]] = []
    for spec in tasks:
        task = by_title[spec.title]
        mine = [(key.removeprefix(f"{spec.title}."), text) for key, text in pairs]  # TASK.KEY is for one task
        choices = {key: parse_choices(task, key, text) for key, text in mine if key in type(task).model_fields}
        for combination in itertools.product(*choices.values()):
            chosen = dict(zip(choices, combination, strict=True))
            title, replaced = _without_values(spec.title, choices)
            named = [key for key, values in choices.items() if len(values) > 1 or key in replaced]
            swept = ",".join(f"{key}={chosen[key]}" for key in named)
            options = {**spec.options, **chosen}
            task_with_options = registry.task(TaskSpec(name=spec.name, options=options))
            with_options = {
                "name": spec.name,
                "label": f"{title}[{swept}]" if swept else spec.label,
                "options": task_with_options.model_dump(mode="json", include=set(options)),
            }
            if with_options not in configured:  # the members of a sweep over the same option have become one
                configured.append(with_options)
    return configured


def _without_values(title: str, keys: Collection[str]) -> tuple[str, set[str]]:
    """A title such as `compaction[compactor=none,keep=0.5]` without the values of some options, and which it had."""
    name, *brackets = title.replace("]", "").split("[")
    parts = [bracket.split(",") for bracket in brackets]
    had = {part.partition("=")[0] for bracket in parts for part in bracket if "=" in part} & set(keys)
    if not had:
        return title, had
    left = [[part for part in bracket if part.partition("=")[0] not in had] for bracket in parts]
    return name + "".join(f"[{','.join(bracket)}]" for bracket in left if bracket), had


def _expanded(
    pair: tuple[str, str], of_suite: Mapping[str, SuiteSetting], tasks: Collection[str]
) -> list[tuple[str, str]]:
    """A setting of the suite as the option of each task that it is for; any other as it is."""
    key, text = pair
    if key not in of_suite:
        return [pair]
    setting = of_suite[key]
    reached = [name for name in setting.tasks if name in tasks]
    if not reached:
        raise UsageError(
            f"none of the tasks uses {key}", where="--set", fix=f"leave it out; it is for {', '.join(setting.tasks)}"
        )
    return [(f"{name}.{setting.option}", text) for name in reached]


ANSWER_OPTIONS = frozenset({"answer_tokens"})
"""Options of presets that do not change the question."""


def _refuse_other_presets(
    tasks: Sequence[TaskSpec], pairs: Sequence[tuple[str, str]], of_suite: Mapping[str, SuiteSetting]
) -> None:
    """Of several tasks, none is made another by an option that was meant for the others: what a preset sets is what
    its name says, and is changed by the name of the task only."""
    if len(tasks) == 1:
        return
    for key, text in pairs:
        setting = next((name for name, setting in of_suite.items() if setting.option == key), "")
        users = of_suite[setting].tasks if setting else None
        changed = [spec.title for spec in tasks if "." not in key and _changes_preset(spec, key, text, users)]
        if changed:
            for_users = f"--set {setting}={text} for the tasks that use {setting}, or " if setting else ""
            raise UsageError(
                f"{key}={text} would make {', '.join(changed)} another task: the name implies {key}",
                where="--set",
                fix=f"write {for_users}--set TASK.{key}={text} for one task, as in --set {changed[0]}.{key}={text}",
            )


def _changes_preset(spec: TaskSpec, key: str, text: str, users: Collection[str] | None) -> bool:
    """Whether the name implies another value of this option: one that its preset sets, or, if the suite has a setting
    for its `users`, that of every other task."""
    preset = registry.task(TaskSpec(name=spec.name))
    fields = type(preset).model_fields
    if key not in fields or key in ANSWER_OPTIONS:
        return False
    value = getattr(preset, key)
    defines = value != fields[key].default if users is None else spec.name not in users
    return defines and [str(choice) for choice in parse_choices(preset, key, text)] != [str(value)]


def _pair(setting: str) -> tuple[str, str]:
    key, equals, value = setting.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"{setting!r} is not KEY=VALUE", where="--set", fix="write --set keys=4")
    return key.strip(), value


def parse_choices(task: Task, key: str, text: str) -> list[Any]:
    """The values of an option to run the task with, from the text of --set.

    A JSON list is the value of a list option, and several values of any other. Commas separate the items of a list
    option and several values of a number, choice or haystack; text options keep theirs.
    """
    if key == "wording" and text.strip() == "all" and isinstance(task, WordedTask):
        return [str(number + 1) for number in range(task.wordings)]
    annotation = type(task).model_fields[key].annotation
    origin = get_origin(annotation)
    is_list = origin in (tuple, list)
    is_text = annotation is str or (origin in (Union, UnionType) and str in get_args(annotation))
    if text.lstrip().startswith("{" if origin is dict else "["):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            if not is_text:
                fix = f'quote it for the shell: --set \'{key}=["a", "b"]\''
                raise UsageError(f"{key}: {text} is not valid JSON: {error}", where="--set", fix=fix) from None
        else:
            if not value and not is_list:
                raise UsageError(f"{key}: the list is empty", where="--set", fix=f"write --set {key}=VALUE")
            return [value] if is_list or isinstance(value, dict) else list(value)
    extra = type(task).model_fields[key].json_schema_extra
    names = key == "haystack" or (isinstance(extra, dict) and bool(extra.get("names")))
    if is_text and not names:  # natural language has commas
        quoted = len(text) > 1 and text[0] == text[-1] == '"'
        return [text[1:-1] if quoted else text]
    try:
        parts = [part.strip() for part in next(csv.reader([text], skipinitialspace=True), [""])]
    except csv.Error as error:
        raise UsageError(f"{key}: cannot read the value: {error}", where="--set") from None
    if is_list:
        return [parts]
    mixture = len(parts) > 1 and all(re.search(r":\d*\.?\d+$", part) for part in parts)  # prose:0.5,code:0.5
    return [text] if mixture else parts
