"""`leadline tasks | models | sources | suites`: what there is, and `show NAME` for one of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer

if TYPE_CHECKING:
    from leadline.core.contracts import ModelProvider, Options, Task
    from leadline.core.registry import Kind


# --- `leadline tasks | models | sources | suites`: what there is, and `show NAME` for one of them.

KINDS: tuple[Kind, ...] = ("tasks", "models", "sources", "suites")
HELP: dict[str, str] = {
    "tasks": "List tasks; `tasks show NAME` has the options of one.",
    "models": "List model providers; `models show NAME` has the options of one.",
    "sources": "List haystacks; `sources show NAME` takes a path or mixture too; `sources pull` fetches data.",
    "suites": "List suites; `suites show NAME` has what one asks.",
}
SHORT = {
    "tasks": "List tasks; `tasks show NAME` has its options.",
    "models": "List model providers; `models show NAME` has its options.",
    "sources": "List haystacks; `sources pull` fetches public data.",
    "suites": "List suites; `suites show NAME` has what it asks.",
}

TemplateFlag = Annotated[bool, typer.Option("--template", help="Print its texts as a start for --templates.")]
Name = Annotated[str, typer.Argument(metavar="NAME")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


def commands(kind: Kind) -> typer.Typer:
    """The group of one kind: it lists when called alone, and shows one when asked to."""
    group = typer.Typer(invoke_without_command=True, help=HELP[kind], rich_markup_mode=None)

    @group.callback()
    def listing(context: typer.Context, json: JsonFlag = False) -> None:
        if context.invoked_subcommand is None:
            _list(kind, as_json=json)

    def show(context: typer.Context, name: Name, json: JsonFlag = False) -> None:
        """Show one by its name."""
        _show(kind, name, as_json=json or _json_before(context))

    def show_or_print(
        context: typer.Context, name: Name, json: JsonFlag = False, template: TemplateFlag = False
    ) -> None:
        """Show one by its name, or print its texts for a file of your own."""
        if template:
            typer.echo(_template(kind, name), nl=False)
        else:
            _show(kind, name, as_json=json or _json_before(context))

    group.command("show")(show_or_print if kind in ("tasks", "suites") else show)
    if kind == "sources":
        group.command()(pull)
    return group


def _json_before(context: typer.Context) -> bool:
    """`tasks --json show niah` means what `tasks show niah --json` does."""
    return bool(context.parent and context.parent.params.get("json"))


def _show(kind: Kind, name: str, *, as_json: bool) -> None:
    from leadline.cli.output import print_json
    from leadline.core import registry
    from leadline.core.errors import UnknownName, UsageError

    try:
        found = _DESCRIBE[kind](name)
    except UnknownName as error:
        others = [other for other in KINDS if other != kind and name in registry.names(other)]
        if not others:
            raise
        fix = f"it is one of the {others[0]}: leadline {others[0]} show {name}"
        raise UsageError(error.what, where=error.where, fix=fix) from None
    if as_json:
        print_json(found)
    else:
        _print(found)


def _template(kind: Kind, name: str) -> str:
    """The texts of a task, or of every task of a suite that has some, to start a file for --templates from."""
    from leadline.core import registry
    from leadline.core.errors import UsageError
    from leadline.core.spec import TaskSpec
    from leadline.tasks.wording import Worded, template_of

    asked = [TaskSpec(name=name)]
    if kind == "suites":
        asked = [TaskSpec.model_validate(task) for task in registry.find("suites", name).values["tasks"]]
    made = [(one.name, registry.task(one)) for one in asked]
    sections = [template_of(title, task) for title, task in made if isinstance(task, Worded)]
    if not sections:
        raise UsageError(f"{name} has no texts to replace", where="--template")
    return "\n".join(sections)


def _list(kind: Kind, *, as_json: bool) -> None:
    from leadline.cli.output import print_json, print_table
    from leadline.core import registry

    found = [(name, _summary(kind, name)) for name in registry.names(kind)]
    if as_json:
        print_json([{"name": name, "summary": summary} for name, summary in found])
    elif found:
        print_table(found, ("name", "summary"))
    else:
        typer.echo(f"there are no {kind} yet")


def _summary(kind: Kind, name: str) -> str:
    """One line; a plugin that cannot be loaded says so here and does not take the others down."""
    try:
        return str(_DESCRIBE[kind](name)["summary"])
    except Exception as error:
        return f"(cannot be loaded: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})"


def describe_task(name: str) -> dict[str, Any]:
    from leadline.core import registry
    from leadline.core.spec import TaskSpec

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


def _preset(task: Task) -> str:
    """What a preset sets, after its class's summary."""
    set_here = {k: v for k, v in task.model_dump(mode="json", exclude_defaults=True).items() if v != ""}
    return f" [{', '.join(f'{k}={_value_words(v)}' for k, v in set_here.items())}]" if set_here else ""


def describe_model(name: str) -> dict[str, Any]:
    from leadline.core import registry

    found: type[ModelProvider] | ModelProvider = registry.find("models", name)
    provider = found if isinstance(found, type) else type(found)
    return {
        "name": name,
        "summary": provider.summary or _first_line(provider),
        "options": _options(found),
    }


def describe_source(name: str) -> dict[str, Any]:
    from leadline.text.sources import describe, open_source

    found = open_source(name)
    words = describe(found)
    sample = " ".join(str(words.pop("sample")).split())
    return {
        **words,
        "name": name,
        "summary": f"{words['characters']:,} characters in {words['pieces']:,} pieces",
        "sample": sample if len(sample) <= 160 else f"{sample[:156]} ...",
    }


def describe_suite(name: str) -> dict[str, Any]:
    from leadline.core import registry

    suite = registry.find("suites", name)
    return {"name": name, "summary": suite.summary, **suite.values}


_DESCRIBE: dict[str, Callable[[str], dict[str, Any]]] = {
    "tasks": describe_task,
    "models": describe_model,
    "sources": describe_source,
    "suites": describe_suite,
}


def _options(plugin: type[Options] | Options) -> list[dict[str, Any]]:
    """Each option with its type, default and help. A preset's own values are its defaults."""
    fields = (plugin if isinstance(plugin, type) else type(plugin)).model_fields
    values = {} if isinstance(plugin, type) else plugin.model_dump(mode="json")
    return [
        {
            "name": name,
            "type": _type_words(field.annotation),
            "default": values.get(name, field.get_default(call_default_factory=True))
            if not field.is_required()
            else "",
            "help": field.description or "",
        }
        for name, field in fields.items()
    ]


def _type_words(annotation: Any) -> str:
    """`int`, `a|b|c` for a choice of words, `list of str`; that an option may be left out shows in its default."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_words(inside[0])
    if origin is Literal:
        return "|".join(map(str, inside))
    if origin in (Union, UnionType):
        return " or ".join(_type_words(t) for t in inside if t is not NoneType)
    if origin in (tuple, list):
        return f"list of {_type_words(inside[0])}"
    return str(getattr(origin or annotation, "__name__", annotation))


def _value_words(value: Any) -> str:
    """A value as one would write it in words: lists with commas, a suite's task as its name and what is set of it."""
    if isinstance(value, dict):
        set_here = [f"{k}={_value_words(v)}" for k, v in value.items() if k != "name"]
        return " ".join([*([str(value["name"])] if "name" in value else []), *set_here])
    return ", ".join(map(_value_words, value)) if isinstance(value, (list, tuple)) else str(value)


def _first_line(thing: type) -> str:
    return (thing.__doc__ or "").strip().partition("\n")[0]


def _print(found: dict[str, Any]) -> None:
    from leadline.cli.output import print_table

    plain = {key: value for key, value in found.items() if key != "options"}
    width = max(map(len, plain))
    for key, value in plain.items():
        lines = (
            [_value_words(v) for v in value] if key == "tasks" and isinstance(value, list) else [_value_words(value)]
        )
        typer.echo(f"{typer.style(key.ljust(width), bold=True)}  {lines[0]}")
        for line in lines[1:]:
            typer.echo(f"{'':{width}}  {line}")
    if options := found.get("options"):
        typer.echo()
        rows = [(o["name"], o["type"], repr(o["default"]), o["help"]) for o in options]
        print_table(rows, ("option", "type", "default", "help"))


# --- `leadline sources pull`: fetch public data once, check it, and read it offline ever after.


def pull(
    name: Annotated[str | None, typer.Argument(help="squad, hotpotqa ...; without a name, what there is.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Fetch it even if it is here.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Fetch a public data file, check its hash, and keep it in the cache folder."""
    if name is None:
        _list_downloads(as_json=json)
        return
    from leadline.cli.output import print_json, say
    from leadline.text.downloads import pull as fetch

    pulled = fetch(name, progress=_shown(), again=again)
    if json:
        print_json({field: str(getattr(pulled, field)) for field in ("name", "path", "sha256", "url", "checked")})
        return
    say(f"{'fetched' if pulled.fetched else 'already here'}: {pulled.size_bytes:,} bytes, {_CHECKED[pulled.checked]}")
    typer.echo(pulled.path)


_CHECKED = {
    "pinned": "and its SHA-256 is the pinned one",
    "locked": "and its SHA-256 is that of the first download",
    "trusted on first use": "whose SHA-256 nobody vouches for: it is now written to lock.json, and later downloads "
    "must match it",
}


def _list_downloads(*, as_json: bool) -> None:
    from leadline.cli.output import print_json, print_table
    from leadline.text.downloads import DOWNLOADS, data_folder

    here = {name: (data_folder() / d.file).is_file() for name, d in DOWNLOADS.items()}
    if as_json:
        print_json(
            [
                {"name": d.name, "summary": d.summary, "licence": d.licence, "here": here[d.name],
                 "places": [{"url": p.url, "sha256": p.sha256} for p in d.mirrors]}
                for d in DOWNLOADS.values()
            ]
        )  # fmt: skip
        return
    rows = [(d.name, d.summary, d.licence, "yes" if here[d.name] else "no") for d in DOWNLOADS.values()]
    print_table(rows, ("name", "summary", "licence", "here"))


def _shown() -> Callable[[int, int | None], None]:
    """A line in a terminal, now and then; nothing elsewhere."""
    last = 0.0

    def show(done: int, total: int | None) -> None:
        nonlocal last
        ended = done == total
        if sys.stderr.isatty() and (ended or time.monotonic() - last > 0.2):
            last = time.monotonic()
            share = f" of {total / 1e6:,.1f}" if total else ""
            sys.stderr.write(f"\r{done / 1e6:,.1f}{share} MB{chr(10) if ended else ''}")

    return show
