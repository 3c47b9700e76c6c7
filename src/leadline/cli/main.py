"""The `leadline` program. Commands are imported when they are invoked; errors are caught, printed and turned into exit
codes here and nowhere else."""

from __future__ import annotations

import errno
import gc
import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint
from itertools import groupby
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import leadline
from leadline.console import output
from leadline.console.option_groups import GroupedCommand
from leadline.core.commands import GROUPS, Command
from leadline.core.errors import Interrupted, LeadlineError, StoreError, UnknownName, UsageError
from leadline.core.installed import entry_points_of

COMMANDS = {
    "demo": Command("Draw a heatmap of a small model; needs no options.", "leadline.cli.demo:demo", "measure"),
    "run": Command("Measure a model, or a list of models.", "leadline.cli.run:run", "measure"),
    "plan": Command("Show what a run would cost: requests, tokens, time, money.", "leadline.cli.plan:plan", "measure"),
    "report": Command("Show runs as tables, heatmaps and one HTML page.", "leadline.cli.report:report", "look"),
    "watch": Command("Follow a run of another process in the terminal.", "leadline.cli.watch:watch", "look"),
    "compare": Command(
        "Compare two runs prompt by prompt, and apply a gate.", "leadline.cli.compare:compare", "compare"
    ),
    "rescore": Command(
        "Grade the saved answers of a run again, by other scorers.", "leadline.cli.rescore:rescore", "check"
    ),
    "build": Command("Write prompts and answers to files.", "leadline.cli.build:build", "exchange"),
    "list": Command("List tasks, models, sources or suites.", "leadline.cli.catalogue:lists", "list"),
    "tasks": Command("List tasks; `tasks show NAME` lists its options.", "leadline.cli.catalogue:tasks", "list"),
    "models": Command(
        "List model providers; `models show NAME` lists options.", "leadline.cli.catalogue:models", "list"
    ),
    "sources": Command(
        "List haystacks; `sources pull` downloads public data.", "leadline.cli.catalogue:sources", "list"
    ),
    "suites": Command("List suites; `suites show NAME` lists its tasks.", "leadline.cli.catalogue:suites", "list"),
}
"""The commands of the core. Those of features and of other packages come from the entry points `leadline.commands`."""
HIDDEN = frozenset({"tasks", "models", "sources", "suites"})
"""Short forms of `leadline list tasks` and so on: they work, because scripts have them; the help has one word."""
OTHER_TOOLS = {
    "-m": "--model",
    "-t": "--task",
    "-n": "--samples",
    "--limit": "--samples N, the number of samples per cell",
    "--num-samples": "--samples N, the number of samples per cell",
    "--max-length": "--lengths 4k,8k,16k",
    "--context-length": "--lengths 4k,8k,16k",
    "--context": "--lengths 4k,8k,16k",
    "--max-tokens": "--set answer_tokens=N, the room for an answer, or --allowance N for thinking",
    "--max-new-tokens": "--set answer_tokens=N, the room for an answer, or --allowance N for thinking",
    "--concurrency": "--workers",
    "--max-connections": "--workers",
    "--tasks": "--task",
    "--model-args": '--model "hf:FOLDER?dtype=bf16", with options after the question mark',
    "--pretrained": "--model hf:FOLDER",
    "--api-key": "--model openai:NAME?api_key_env=VARIABLE with the key in that variable; OPENAI_API_KEY by default",
    "--tokenizer": "--model PROVIDER:NAME?tokenizer=FOLDER",
    "--base-url": "--model openai:NAME?base_url=URL",
    "--output": "--out",
    "--output-path": "--out",
    "--batch-size": "--workers N for a server; in process batches are as large as memory allows",
    "--device": "--model hf:NAME?device=cpu",
    "--gpu": "--model hf:NAME?device=cuda:0",
    "--gpus": "--model hf:NAME?device=cuda:0",
}
"""Options that other tools have, and ours for the same purpose."""
NOT_AN_OPTION = {
    "--dry-run": "leadline plan with the same arguments, which sends nothing",
    "--resume": "the same command without it, which continues what is missing",
    "--continue": "the same command without it, which continues what is missing",
    "--overwrite": "--out with another folder; no run is written over",
    "--force": "--out with another folder; no run is written over",
    "--verbose": "--debug, which shows tracebacks; a run shows its progress by itself",
    "-v": "--debug, which shows tracebacks; a run shows its progress by itself",
    "--dtype": "--model hf:NAME?dtype=bf16",
    "--gen-kwargs": "--model PROVIDER:NAME?max_tokens=N&temperature=T",
    "--temperature": "--model openai:NAME?temperature=T",
    "--apply-chat-template": "--model hf:NAME?form=chat, which is the default where the model has a template",
}
"""Options that other tools have, and what to do here instead."""
OTHER_COMMANDS = {
    "help": "leadline --help, or leadline COMMAND --help",
    "resume": "the same leadline run command again, which continues what is missing",
    "continue": "the same leadline run command again, which continues what is missing",
    "show": "leadline report RUN",
    "plot": "leadline report RUN --figures",
    "serve": "leadline view, or --serve COMMAND to start a model's server",
    "init": "leadline run TASK --model MODEL; nothing has to be set up first",
}
"""Commands that other tools have, and what to write here."""
_NO_MEMORY = re.compile("failed to map segment|cannot allocate memory", re.IGNORECASE)
DISK_ERRORS = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EISDIR, errno.EIO,
    errno.ENAMETOOLONG, errno.ELOOP, errno.ESTALE, errno.EFBIG, errno.ETXTBSY,
}  # fmt: skip


@cache
def commands() -> Mapping[str, Command]:
    """Every command by name, group by group. One that cannot be loaded is listed with the reason."""
    plugins = {p.name: _plugin_command(p) for p in entry_points_of("leadline.commands")}
    return dict(sorted((plugins | COMMANDS).items(), key=lambda item: GROUPS.index(item[1].group)))


def _plugin_command(point: EntryPoint) -> Command:
    try:
        command = point.load()
        if isinstance(command, Command):
            return command
        reason = f"{command!r} is not a Command"
    except Exception as error:  # code of another package
        reason = f"{type(error).__name__}: {error}"
    return Command(f"(cannot be loaded: {reason})", "")


class LazyGroup(TyperGroup):
    """A command group that imports a command's module when the command is invoked or its own help is shown."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(commands())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        known = commands()
        if cmd_name not in known:
            for kind in ("suites", "tasks"):
                if cmd_name in entry_points_of(f"leadline.{kind}").names:
                    raise UsageError(
                        f"{cmd_name!r} is one of the {kind}, not a command",
                        where="leadline",
                        fix=f"write leadline run {cmd_name} --model MODEL",
                    )
            if cmd_name in OTHER_COMMANDS:
                fix = f"write {OTHER_COMMANDS[cmd_name]}"
                raise UsageError(f"unknown command {cmd_name!r}", where="leadline", fix=fix)
            raise UnknownName("command", cmd_name, known, where="leadline")
        if not known[cmd_name].implementation:
            raise UsageError(
                known[cmd_name].summary.strip("()"), where=f"leadline {cmd_name}", fix="reinstall its package"
            )
        implementation = known[cmd_name].load()
        if not isinstance(implementation, typer.Typer):
            function, implementation = implementation, new_app()
            implementation.command(cls=GroupedCommand if cmd_name in ("run", "plan") else None)(function)
        command = typer.main.get_command(implementation)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for group, members in groupby(commands().items(), key=lambda item: item[1].group):
            with formatter.section(group.capitalize()):
                shown = [(f"{name:<9}", command.summary) for name, command in members if name not in HIDDEN]
                formatter.write_dl(shown)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # typer itself would turn it into a silent exit code
            raise typer.Abort from None


def new_app(**settings: Any) -> typer.Typer:
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **settings)


app = new_app(
    name="leadline", cls=LazyGroup, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]}
)


def _show_version(wanted: bool) -> None:
    if wanted:
        output.echo(leadline.__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks of errors. LEADLINE_DEBUG=1 does the same.")
    ] = False,
) -> None:
    """Measure how much of its context window a language model can really use.

    Start with `leadline demo`, or `leadline run --model http://127.0.0.1:8000`.
    """


def main() -> NoReturn:
    """The entry point of the program."""
    arguments = sys.argv[1:]
    debug = os.environ.get("LEADLINE_DEBUG", "") not in ("", "0")
    if "--debug" in arguments:  # accepted at any position
        arguments.remove("--debug")
        debug = True
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that is not UTF-8 gets escapes, not an error
            stream.reconfigure(errors="backslashreplace")
    try:
        code = run_command(arguments, debug=debug)
    except KeyboardInterrupt:  # a second Ctrl-C while the first is handled
        code = Interrupted.exit_code
    if code == Interrupted.exit_code:
        _exit_at_once(code)
    gc.freeze()  # else Python looks through every object for garbage before it frees them all: 0.2 s after a run
    sys.exit(code)


def _exit_at_once(code: int) -> NoReturn:
    """Exits without joining threads, which may be waiting for a server. Records are already written and closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def run_command(arguments: list[str], *, debug: bool = False) -> int:
    """Runs one command and returns its exit code."""
    try:
        return int(app(args=arguments, prog_name="leadline", standalone_mode=False) or 0)
    except typer.TyperException as error:
        return _show_usage_error(error)
    except (KeyboardInterrupt, typer.Abort):
        output.say("interrupted; run the same command again to continue")
        return Interrupted.exit_code
    except BrokenPipeError:
        output.discard_stdout()
        return 0
    except Exception as error:
        shown = error if isinstance(error, LeadlineError) else _as_leadline_error(error)
        output.show_error(shown, _command_in(arguments))
        if debug:
            traceback.print_exc()
        return shown.exit_code


def _command_in(arguments: Sequence[str]) -> str:
    named = next((word for word in arguments if word in commands()), "")
    return f"leadline {named}".rstrip()


def _show_usage_error(error: typer.TyperException) -> int:
    """Prints an error of the argument parser as what / where / fix; without any arguments, the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        output.say(error.format_message())
        return UsageError.exit_code
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "leadline"
    what, fix = error.format_message(), f"see `{command} --help`"
    option: str = getattr(error, "option_name", "")
    extra = re.search(r"unexpected extra arguments?(?:\(s\))? \((.*)\)", what)
    if extra and context and any("--task" in p.opts for p in context.command.params):
        what, fix = _extra_words(extra[1].split(), str(context.params.get("what") or ""))
    if nested := re.match(r"No such command '([^']*)'", what):
        what, fix = _nested_command(
            nested[1], command, list(getattr(getattr(context, "command", None), "commands", {}))
        )
    if option:
        options = [name for p in context.command.params for name in p.opts] if context else []
        near = get_close_matches(option, [o for o in options if o.startswith("--")], n=1)
        ours = OTHER_TOOLS.get(option.replace("_", "-"), "")
        what = f"no such option: {option}"
        if option == "--suite" and "--task" in options:
            fix = f"name the suite without an option: {command} SUITE; `leadline list suites` has their names"
        elif option in NOT_AN_OPTION:
            fix = f"write {NOT_AN_OPTION[option]}"
        elif ours.partition(" ")[0] in options:
            fix = f"did you mean {ours}?"
        elif command.endswith(" plan") and option in _options_of("run"):
            fix = "leave it out: this option of `leadline run` does not change what a run costs"
        elif near:
            fix = f"did you mean {near[0]}?"
    output.show_error(UsageError(what, where=command, fix=fix))
    return UsageError.exit_code


def _nested_command(word: str, command: str, known: Sequence[str]) -> tuple[str, str]:
    """`leadline list suite`, and a name where `show` is needed, as in `leadline tasks niah`."""
    near = get_close_matches(word, known, n=1)
    if near or "show" not in known:
        fix = (
            f"did you mean {command} {near[0]}?" if near else f"write {command} {known[0]}, or: {', '.join(known[1:])}"
        )
    else:
        fix = f"write {command} show {word}"
    return f"{command} has no command {word!r}", fix


def _extra_words(words: Sequence[str], first: str) -> tuple[str, str]:
    """What is wrong with words after a task, and the fix: a model needs its option, further tasks theirs."""
    model = next((word for word in words if ":" in word and ".py:" not in word), "")
    if model:
        return f"a model is given with --model; not expected: {model}", f"write --model {model}"
    if all(re.fullmatch(r"\d+[kKmM]?", word) for word in words):
        return f"not expected: {' '.join(words)}", "put commas between lengths: --lengths 4k,8k,16k"
    named = " ".join(f"--task {word}" for word in [first, *words] if word)
    what = f"one task, suite or file at a time; not expected: {' '.join(words)}"
    return what, f"for several tasks give each with --task: {named}"


def _options_of(command: str) -> set[str]:
    parameters = LazyGroup().get_command(None, command).params
    return {name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)}


def _as_leadline_error(error: Exception) -> LeadlineError:
    if isinstance(error, OSError) and error.filename is not None and error.errno in DISK_ERRORS:
        fix = "fix its permissions, free some space, or choose another path"
        return StoreError(f"{error.strerror}", where=str(error.filename)[:300], fix=fix)
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        fix = "raise `ulimit -n`, or ask with fewer --workers"
        return StoreError("this process may open no more files", where=str(error.filename or "ulimit -n"), fix=fix)
    if isinstance(error, MemoryError) or (isinstance(error, ImportError) and _NO_MEMORY.search(str(error))):
        return UsageError("there is not enough memory for this", fix="ask for less: shorter --lengths, fewer samples")
    frames = traceback.extract_tb(error.__traceback__)
    return LeadlineError(
        f"unexpected {type(error).__name__}: {error}",
        where=f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "",
        fix="this is a bug in Leadline or in a plugin; --debug shows the traceback",
    )
