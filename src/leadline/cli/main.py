"""The `leadline` program. Commands are imported when they are invoked; errors are caught, printed and turned into exit
codes here and nowhere else."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import leadline
from leadline.cli import output
from leadline.core.errors import Interrupted, LeadlineError, StoreError, UnknownName, UsageError

COMMANDS = {
    "demo": ("demo", "Draw a heatmap of a small model; needs no options."),
    "run": ("run", "Measure a model, or a list of models."),
    "plan": ("plan", "Show what a run would cost: requests, tokens, time, money."),
    "doctor": ("doctor", "Check a server: truncation, templates, counts, and more."),
    "report": ("report", "Show runs as tables, heatmaps and one HTML page."),
    "judge": ("judge", "Grade recorded answers with judge models, corrected by labels."),
    "agreement": ("judge", "Agreement of raters in a CSV file, and their bias."),
    "log": ("log", "Log runs to MLflow, Weights & Biases or TensorBoard."),
    "compare": ("compare", "Compare two runs prompt by prompt, and apply a gate."),
    "watch": ("view", "Follow a run of another process in the terminal."),
    "view": ("view", "Browse all runs in a web browser, live."),
    "summarize": ("score", "Summarize published scores, with error bars."),
    "score": ("score", "Grade prediction files of RULER, LongBench and others."),
    "rescore": ("score", "Grade the saved answers of a run again, by other scorers."),
    "build": ("build", "Write prompts and answers to files."),
    "correlate": ("correlate", "Correlate scores of models, or tasks over models."),
    "tasks": ("catalogue", "List tasks; `tasks show NAME` lists its options."),
    "models": ("catalogue", "List model providers; `models show NAME` lists options."),
    "sources": ("catalogue", "List haystacks; `sources pull` downloads public data."),
    "suites": ("catalogue", "List suites; `suites show NAME` lists its tasks."),
}
"""For each command the module of `leadline.cli` that defines it, and its one-line help."""
REMOVED = {"submit": "leadline run TASK --models FILE --submission OUT.json"}
"""Former commands, and what replaces them."""
OTHER_TOOLS = {
    "-m": "--model",
    "-t": "--task",
    "-n": "--samples",
    "-o": "--out",
    "--limit": "--samples N, the number of samples per cell",
    "--num-samples": "--samples N, the number of samples per cell",
    "--max-length": "--lengths 4k,8k,16k",
    "--context-length": "--lengths 4k,8k,16k",
    "--concurrency": "--workers",
    "--max-connections": "--workers",
    "--tasks": "--task",
    "--model-args": "--model PROVIDER:NAME?key=value&key=value",
    "--tokenizer": "--model PROVIDER:NAME?tokenizer=FOLDER",
    "--base-url": "--model openai:NAME?base_url=URL",
    "--output": "--out",
    "--output-path": "--out",
    "--batch-size": "--workers N for a server; in process batches are as large as memory allows",
    "--device": "--model hf:NAME?device=cpu",
    "--dtype": "--model hf:NAME?dtype=bf16",
    "--gen-kwargs": "--model PROVIDER:NAME?max_tokens=N&temperature=T",
    "--temperature": "--model openai:NAME?temperature=T",
    "--apply-chat-template": "--model hf:NAME?form=chat, which is the default where the model has a template",
}
"""Options that other tools have, and ours for the same purpose."""
_NO_MEMORY = re.compile("failed to map segment|cannot allocate memory", re.IGNORECASE)
DISK_ERRORS = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EISDIR, errno.EIO,
    errno.ENAMETOOLONG, errno.ELOOP, errno.ESTALE, errno.EFBIG, errno.ETXTBSY,
}  # fmt: skip


class LazyGroup(TyperGroup):
    """A command group that imports a command's module when the command is invoked or its own help is shown."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in REMOVED:
            raise UsageError(
                f"the command {cmd_name!r} no longer exists", where="leadline", fix=f"did you mean {REMOVED[cmd_name]}?"
            )
        if cmd_name not in COMMANDS:
            raise UnknownName("command", cmd_name, COMMANDS, where="leadline")
        found = getattr(import_module(f"leadline.cli.{COMMANDS[cmd_name][0]}"), cmd_name)
        if not isinstance(found, typer.Typer):
            function, found = found, new_app()
            found.command()(function)
        command = typer.main.get_command(found)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in COMMANDS.items()])

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

    Start with `leadline demo`, or `leadline run niah --model hf:FOLDER`.
    """


def main() -> NoReturn:
    """The entry point of the program."""
    arguments = sys.argv[1:]
    debug = os.environ.get("LEADLINE_DEBUG", "") not in ("", "0")
    if "--debug" in arguments:  # accepted at any position
        arguments.remove("--debug")
        debug = True
    try:
        code = run_command(arguments, debug=debug)
    except KeyboardInterrupt:  # a second Ctrl-C while the first is handled
        code = Interrupted.exit_code
    if code == Interrupted.exit_code:
        _exit_at_once(code)
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
    named = next((word for word in arguments if word in COMMANDS), "")
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
        what = f"one task, suite or file at a time; not expected: {extra[1]}"
        first = str(context.params.get("what") or "")
        named = " ".join(f"--task {word}" for word in [first, *extra[1].split()] if word)
        fix = f"for several tasks give each with --task: {named}"
    if option:
        options = [name for p in context.command.params for name in p.opts] if context else []
        near = get_close_matches(option, [o for o in options if o.startswith("--")], n=1)
        ours = OTHER_TOOLS.get(option.replace("_", "-"), "")
        what = f"no such option: {option}"
        if ours.partition(" ")[0] in options:
            fix = f"did you mean {ours}?"
        elif near:
            fix = f"did you mean {near[0]}?"
    output.show_error(UsageError(what, where=command, fix=fix))
    return UsageError.exit_code


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
