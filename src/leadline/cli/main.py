"""The command line: one command a file, and the only place that catches, prints and exits."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from leadline.cli import catalogue
from leadline.cli import output as screen
from leadline.core.errors import Interrupted, LeadlineError, StoreError, UsageError

COMMANDS = {
    "demo": "Draw a heatmap of a small real model, without any settings.",
    "run": "Measure a model, or a list of models.",
    "plan": "Say what a run would cost: requests, tokens, time, money.",
    "report": "Look at runs: tables, heatmaps, one self-contained page.",
    "log": "Log runs to MLflow, Weights & Biases or TensorBoard.",
    "compare": "Compare two runs prompt by prompt, and judge a gate.",
    "watch": "Watch a run that goes on elsewhere, to its end.",
    "view": "Look at all runs in a browser, live.",
    "summarize": "Sum up published scores as RULER does.",
    "score": "Grade RULER's own prediction files.",
    "build": "Write prompts and their keys for other programs.",
    "submit": "Score a list of models.",
    "correlate": "Correlate scores of models, or tasks over models.",
}
_FILES = {"watch": "view", "summarize": "score"}
"""Each is a function of this name in a file of this name, in a few words that fit a line of a terminal. Files import
what is heavy inside the function."""
REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EISDIR})
"""What a system says of a place that cannot be read from or written to."""


class Commands(TyperGroup):
    """Hands an interruption on as what it is: typer itself makes a silent exit code of it."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort from None


app = typer.Typer(
    name="leadline",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def leadline(
    version: Annotated[bool, typer.Option("--version", help="Say the version.", is_eager=True)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; LEADLINE_DEBUG=1 does the same.")] = False,
) -> None:
    """How much of a context window can a language model really use?"""


for name, short in COMMANDS.items():
    app.command(short_help=short)(getattr(import_module(f"leadline.cli.{_FILES.get(name, name)}"), name))
for kind in catalogue.KINDS:
    app.add_typer(catalogue.commands(kind), name=kind, short_help=catalogue.SHORT[kind])


def main() -> NoReturn:
    """The entry point: every error becomes three lines and an exit code."""
    words = sys.argv[1:]
    debug = os.environ.get("LEADLINE_DEBUG", "") not in ("", "0")
    if "--debug" in words:  # wherever it stands
        words.remove("--debug")
        debug = True
    if "--version" in words[:1]:
        from leadline import __version__

        print(__version__)
        sys.exit(0)
    try:
        code = answer(words, debug=debug)
    except KeyboardInterrupt:  # another one, while the first was told
        code = Interrupted.exit_code
    if code == Interrupted.exit_code:
        _leave(code)
    sys.exit(code)


def _leave(code: int) -> NoReturn:
    """Without the interpreter's own way out, which calls on threads that a server keeps waiting, and which one more
    Ctrl-C would break off anywhere. What was recorded has been written, and what was open has been closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def answer(words: list[str], *, debug: bool = False) -> int:
    """Carries out one command and says its exit code. The only place that catches."""
    try:
        return int(app(args=words, prog_name="leadline", standalone_mode=False) or 0)
    except LeadlineError as error:
        screen.show_error(error)
        if debug:
            traceback.print_exc()
        return error.exit_code
    except typer.TyperException as error:
        return _usage(error)
    except (KeyboardInterrupt, typer.Abort):
        screen.say("left at once; run the same command again to go on")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        shown = _of_the_disk(error) or _unexpected(error)
        screen.show_error(shown)
        if debug:
            traceback.print_exc()
        return shown.exit_code


def _usage(error: typer.TyperException) -> int:
    """The parser's complaint in our three lines; without any word, the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        screen.say(error.format_message())
        return UsageError.exit_code
    context = getattr(error, "ctx", None)
    place = context.command_path if context else "leadline"
    what, fix = error.format_message(), f"see `{place} --help`"
    near = get_close_matches(getattr(error, "option_name", ""), getattr(error, "possibilities", None) or (), n=1)
    if near:
        what, fix = error.message, f"did you mean {near[0]}?"
    elif " Did you mean " in what:
        what, _, name = what.partition(" Did you mean ")
        fix = f"did you mean {name}"
    screen.show_error(UsageError(what, where=place, fix=fix))
    return UsageError.exit_code


def _of_the_disk(error: Exception) -> LeadlineError | None:
    """A file or folder that the system refuses, wherever it was met: nobody's defect."""
    if not isinstance(error, OSError) or error.filename is None or error.errno not in REFUSED:
        return None
    return StoreError(
        f"{error.strerror}", where=str(error.filename), fix="mend what stands there, or name another place"
    )


def _unexpected(error: Exception) -> LeadlineError:
    return LeadlineError(
        f"unexpected {type(error).__name__}: {error}",
        where=_place(error),
        fix="this is a defect of Leadline or of a plugin; `--debug` shows the traceback",
    )


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
