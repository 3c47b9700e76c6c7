"""`leadline tasks`, `models`, `sources` and `suites`: list plugins, show one of them, and download public data."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer

from leadline.console.output import echo, print_json, print_table, say
from leadline.core import registry
from leadline.core.contracts import ModelProvider, Options, Task
from leadline.core.errors import LeadlineError, UnknownName, UsageError
from leadline.core.registry import PluginKind
from leadline.core.spec import TaskSpec
from leadline.scorers.trivial_readers import SAMPLES, mean_scores, trivial_scores
from leadline.tasks.templates import template_of
from leadline.tasks.wording import WordedTask
from leadline.text.downloads import DOWNLOADS, data_folder, group_of
from leadline.text.downloads import pull as download
from leadline.text.sources import describe, open_source

Name = Annotated[str, typer.Argument(metavar="NAME")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
TemplateFlag = Annotated[
    bool, typer.Option("--template", help="Print its prompt texts, to edit and use with --templates.")
]


def _app(kind: PluginKind, help: str) -> typer.Typer:
    """The commands of one kind: the list when invoked alone, and `show NAME`."""
    app = typer.Typer(invoke_without_command=True, add_completion=False, help=help, rich_markup_mode=None)

    @app.callback()
    def list_all(context: typer.Context, json: JsonFlag = False) -> None:
        if context.invoked_subcommand is None:
            _list(kind, as_json=json)

    def show(context: typer.Context, name: Name, json: JsonFlag = False) -> None:
        """Show one by name, with its options."""
        before = context.parent is not None and context.parent.params.get("json")  # tasks --json show NAME
        _show(kind, name, as_json=bool(json or before))

    def show_or_print(
        context: typer.Context, name: Name, json: JsonFlag = False, template: TemplateFlag = False
    ) -> None:
        """Show one by name, with its options, or print its prompt texts."""
        if template:
            echo(_template(kind, name).rstrip("\n"))
        else:
            show(context, name, json)

    app.command("show")(show_or_print if kind in ("tasks", "suites") else show)
    return app


tasks = _app("tasks", "List tasks. `leadline tasks show NAME` shows the options of one.")
models = _app("models", "List model providers. `leadline models show NAME` shows the options of one.")
sources = _app(
    "sources",
    "List haystacks. `leadline sources show NAME` also takes a path or a mixture, `leadline sources pull` downloads "
    "public data.",
)
suites = _app("suites", "List suites. `leadline suites show NAME` shows what one runs.")


def _list(kind: PluginKind, *, as_json: bool) -> None:
    summaries = [(name, _summary(kind, name)) for name in registry.names(kind)]
    if as_json:
        print_json([{"name": name, "summary": summary} for name, summary in summaries])
    elif summaries:
        print_table(summaries, ("name", "summary"))
    else:
        echo(f"no {kind} are installed")


def _summary(kind: PluginKind, name: str) -> str:
    """One line. A plugin that cannot be loaded says why, and does not hide the others."""
    try:
        return str(DESCRIBE[kind](name)["summary"])
    except Exception as error:
        return f"(cannot be loaded: {type(error).__name__}: {str(error).partition(chr(10))[0]})"


def _show(kind: PluginKind, name: str, *, as_json: bool) -> None:
    try:
        described = DESCRIBE[kind](name)
    except UnknownName as error:
        others = [other for other in DESCRIBE if other != kind and name in registry.names(other)]
        if not others:
            raise
        fix = f"did you mean leadline {others[0]} show {name}?"
        raise UsageError(error.what, where=error.where, fix=fix) from None
    if kind == "tasks" and (by_depth := _trivial_scores(name)):
        described["trivial_readers"] = mean_scores(by_depth)
        described["trivial_readers_by_depth"] = {
            str(depth): scores for depth, scores in by_depth.items() if depth is not None
        }
    if as_json:
        print_json(described)
        return
    apart = ("options", "trivial_readers", "trivial_readers_by_depth", "models")
    plain = {key: value for key, value in described.items() if key not in apart}
    if "trivial_readers" in described:
        plain["trivial readers"] = _format_readers(described["trivial_readers"])
        for depth, scores in described["trivial_readers_by_depth"].items():
            plain[f"  at depth {depth}"] = _format_readers(scores)
        plain[""] = (
            "what rules score that never look at the question, only at places and forms of values: low is good "
            f"({SAMPLES} documents a depth, so 30 points more or less are luck)"
        )
    width = max(map(len, plain))
    for key, value in plain.items():
        lines = (
            [_format_value(v) for v in value] if key == "tasks" and isinstance(value, list) else [_format_value(value)]
        )
        echo(f"{key.ljust(width)}  {lines[0]}")
        for line in lines[1:]:
            echo(f"{'':{width}}  {line}")
    if named := described.get("models"):
        echo()
        print_table([(model["name"], model["help"]) for model in named], ("model", "what it does"))
    if options := described.get("options"):
        echo()
        rows = [(o["name"], o["type"], repr(o["default"]), o["help"]) for o in options]
        print_table(rows, ("option", "type", "default", "help"))


def _format_readers(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{reader} {100 * value:.0f}%" for reader, value in scores.items())


def _trivial_scores(name: str) -> dict[float | None, dict[str, float]]:
    """By depth: what readers that do not look at the question score; empty for a task that needs data."""
    task = registry.task(TaskSpec(name=name))
    if task.request != "answer":
        return {}
    try:
        return trivial_scores(task, name)
    except LeadlineError:
        return {}


def _template(kind: PluginKind, name: str) -> str:
    """The prompt texts of a task, or of every task of a suite, as the start of a file for --templates."""
    specs = [TaskSpec(name=name)]
    if kind == "suites":
        specs = [TaskSpec.model_validate(task) for task in registry.find("suites", name).values["tasks"]]
    titled = [(spec.name, registry.task(spec)) for spec in specs]
    sections = [template_of(title, task) for title, task in titled if isinstance(task, WordedTask)]
    if not sections:
        raise UsageError(f"{name} has no prompt texts to replace", where="--template")
    return "\n".join(sections)


# --- descriptions


def describe_task(name: str) -> dict[str, Any]:
    task = registry.task(TaskSpec(name=name))
    return {
        "name": name,
        "summary": _first_line(type(task)) + _preset(task),
        "category": task.category,
        "version": task.version,
        "readings": list(task.readings),
        "depth": "a grid" if task.has_depth else "none: the evidence is everywhere",
        "options": _options(task),
    }


def describe_model(name: str) -> dict[str, Any]:
    plugin: type[ModelProvider] | ModelProvider = registry.find("models", name)
    provider = plugin if isinstance(plugin, type) else type(plugin)
    names = [{"name": f"{name}:{model}", "help": about} for model, about in provider.names.items()]
    about = {"name": name, "summary": provider.summary or _first_line(provider)}
    return about | ({"models": names} if names else {}) | {"options": _options(plugin)}


def describe_source(name: str) -> dict[str, Any]:
    values = describe(open_source(name))
    sample = " ".join(str(values.pop("sample")).split())
    return {
        **values,
        "name": name,
        "summary": f"{values['characters']:,} characters in {values['pieces']:,} pieces"
        if "characters" in values
        else f"generated without end from {values['pieces']:,} phrases",
        "sample": sample if len(sample) <= 160 else f"{sample[:156]} ...",
    }


def describe_suite(name: str) -> dict[str, Any]:
    suite = registry.find("suites", name)
    return {"name": name, "summary": suite.summary, **suite.values}


DESCRIBE: dict[PluginKind, Callable[[str], dict[str, Any]]] = {
    "tasks": describe_task,
    "models": describe_model,
    "sources": describe_source,
    "suites": describe_suite,
}


def _preset(task: Task) -> str:
    """The options that a preset sets."""
    preset = {k: v for k, v in task.model_dump(mode="json", exclude_defaults=True).items() if v != ""}
    return f" [{', '.join(f'{k}={_format_value(v)}' for k, v in preset.items())}]" if preset else ""


def _options(plugin: type[Options] | Options) -> list[dict[str, Any]]:
    """Each option with its type, default and help. The values of a preset are its defaults."""
    fields = (plugin if isinstance(plugin, type) else type(plugin)).model_fields
    values = {} if isinstance(plugin, type) else plugin.model_dump(mode="json")
    return [
        {
            "name": name,
            "type": _format_type(field.annotation),
            "default": "" if field.is_required() else values.get(name, field.get_default(call_default_factory=True)),
            "help": field.description or "",
        }
        for name, field in fields.items()
    ]


def _format_type(annotation: Any) -> str:
    """`int`, `a|b|c` for choices, `list of str`. None is omitted: the default shows that an option may be unset."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _format_type(inside[0])
    if origin is Literal:
        return "|".join(map(str, inside))
    if origin in (Union, UnionType):
        return " or ".join(_format_type(t) for t in inside if t is not NoneType)
    if origin in (tuple, list):
        return f"list of {_format_type(inside[0])}"
    return str(getattr(origin or annotation, "__name__", annotation))


def _format_value(value: Any) -> str:
    """A list with commas; a task of a suite as its name and options."""
    if isinstance(value, dict):
        options = [f"{k}={_format_value(v)}" for k, v in value.items() if k != "name"]
        return " ".join([*([str(value["name"])] if "name" in value else []), *options])
    return ", ".join(map(_format_value, value)) if isinstance(value, (list, tuple)) else str(value)


def _first_line(thing: type) -> str:
    return (thing.__doc__ or "").strip().partition("\n")[0]


# --- leadline sources pull

CHECKED = {
    "pinned": "SHA-256 matches the pinned one",
    "locked": "SHA-256 matches the first download",
    "trusted on first use": "no pinned SHA-256: it was saved to lock.json, and later downloads must match it",
}


@sources.command()
def pull(
    name: Annotated[str | None, typer.Argument(help="Data set, such as squad; lists all without a name.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Download it again.")] = False,
    source: Annotated[
        str, typer.Option("--from", metavar="PLACE", help="A mirror's URL, or a folder, with files of the same names.")
    ] = "",
    json: JsonFlag = False,
) -> None:
    """Download a public data set to the cache folder and verify its hash."""
    if name is None:
        _list_downloads(as_json=json)
        return
    pulled_files = []
    for part in group_of(name) or [name]:
        size = DOWNLOADS[part].size_bytes if part in DOWNLOADS else None
        if size and not json:
            say(f"{part}: {size / 1e6:,.0f} MB")
        pulled = download(part, progress=_download_progress(), again=again, source=source)
        pulled_files.append(
            {field: str(getattr(pulled, field)) for field in ("name", "path", "sha256", "url", "checked")}
        )
        if not json:
            there = "downloaded" if pulled.fetched else "already there"
            say(f"{there}: {pulled.size_bytes:,} bytes, {CHECKED[pulled.checked]}")
            echo(pulled.path)
    if json:
        print_json(pulled_files if group_of(name) else pulled_files[0])


def _list_downloads(*, as_json: bool) -> None:
    here = {name: (data_folder() / entry.file).is_file() for name, entry in DOWNLOADS.items()}
    if as_json:
        print_json(
            [
                {
                    "name": entry.name,
                    "summary": entry.summary,
                    "licence": entry.licence,
                    "here": here[entry.name],
                    "places": [{"url": mirror.url, "sha256": mirror.sha256} for mirror in entry.mirrors],
                }
                for entry in DOWNLOADS.values()
            ]
        )
        return
    rows = [
        (entry.name, entry.summary, entry.licence, "yes" if here[entry.name] else "no") for entry in DOWNLOADS.values()
    ]
    print_table(rows, ("name", "summary", "licence", "downloaded"))


def _download_progress() -> Callable[[int, int | None], None]:
    """Updates one line in a terminal; shows nothing elsewhere."""
    last = 0.0

    def show(done: int, total: int | None) -> None:
        nonlocal last
        ended = done == total
        if sys.stderr.isatty() and (ended or time.monotonic() - last > 0.2):
            last = time.monotonic()
            of = f" of {total / 1e6:,.1f}" if total else ""
            sys.stderr.write(f"\r{done / 1e6:,.1f}{of} MB{chr(10) if ended else ''}")

    return show


lists = typer.Typer(
    add_completion=False, help="List tasks, models, sources or suites.", rich_markup_mode=None, no_args_is_help=True
)
for _kind, _commands in (("tasks", tasks), ("models", models), ("sources", sources), ("suites", suites)):
    lists.add_typer(_commands, name=_kind)
