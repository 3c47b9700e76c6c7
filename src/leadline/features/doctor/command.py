"""`leadline doctor`: check a model and its server before measuring it."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from leadline.console.model_names import resolve_model
from leadline.console.output import print_json, say
from leadline.console.progress import ProgressListener, SanitisingConsole
from leadline.console.serving import ServeOption, serving
from leadline.core.contracts import Model
from leadline.core.errors import UsageError
from leadline.core.format import format_count, format_duration, format_length, sanitise
from leadline.core.spec import make_spec, parse_length
from leadline.features.doctor.checks import CHECKS, choose_checks, examine
from leadline.features.doctor.findings import CheckReport, CheckStatus
from leadline.report.text_table import grid_of
from leadline.run.events import reporting_waits
from leadline.run.plan import open_model, refuse_secrets

CHECK_HELP = f"Make only this check: {', '.join(check.id for check in CHECKS)}. Repeatable. [default: all]"
RATE_LIMIT_SECONDS = 60.0
"""How long a rate limit is waited for when the model is opened."""
LONGEST_HELP = (
    "Longest prompt to send, in tokens. [default: the claimed window, up to 128k; 4k if the model claims none]"
)


def doctor(
    model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="PROVIDER:NAME?key=value&key=value, as for `leadline run`: "
            "openai:NAME?base_url=http://127.0.0.1:8000/v1, hf:FOLDER.",
            show_default=False,
        ),
    ] = "",
    serve: ServeOption = "",
    check: Annotated[list[str] | None, typer.Option(metavar="CHECK", help=CHECK_HELP)] = None,
    longest: Annotated[str, typer.Option(metavar="TOKENS", help=LONGEST_HELP, show_default=False)] = "",
    timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Seconds until a request times out.")
    ] = 600.0,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON to stdout.")] = False,
) -> None:
    """Check that a model is asked what you think: nothing is cut off, rewritten, miscounted or added.

    A document as long as the window is sent with facts in it, texts of several kinds are counted, and small requests
    are repeated, sampled and sent all at once: about 130 requests. Every finding says how it was seen, what it does to
    results, and what to do. A check that cannot be made on this server says why.

    Exit code: 0 no findings, 1 findings, 69 the server does not answer.

    \b
      leadline doctor --model "openai:NAME?base_url=http://127.0.0.1:8000/v1"
      leadline doctor --model "openai:NAME?base_url=URL&tokenizer=FOLDER" --longest 32k --json
      leadline doctor --model "openai:NAME?base_url=URL" --check truncation --check receipts
      leadline doctor --serve "vllm serve NAME --port 8001"

    `leadline run` makes the cheap ones of these checks by itself (--no-checks leaves them out).
    """
    choose_checks(check or ())
    tokens = parse_length(longest) if longest else None
    if not model and not serve:
        raise UsageError("no model given", where="leadline doctor", fix="add --model, or --serve COMMAND")
    with (
        serving(serve, model, None) as served,
        ProgressListener() as listener,
        reporting_waits(listener),
    ):
        opened = _open_for_checks(resolve_model(served, say), timeout)
        try:
            checkup = examine(
                opened,
                only=check or (),
                longest=tokens,
                progress=lambda n, count, title: say(f"{n} of {count}: {title}"),
            )
        finally:
            opened.close()
    if json:
        print_json({**msgspec.to_builtins(checkup), "findings": len(checkup.findings)})
    else:
        _show(checkup, SanitisingConsole())
    if checkup.findings:
        raise typer.Exit(1)


def _open_for_checks(model: str, timeout: float) -> Model:
    """Opens the model although its tokenizer may not be the server's: that is one of the checks."""
    limits = {"anyway": True, "timeout": timeout, "rate_limit_wait": RATE_LIMIT_SECONDS}
    spec = make_spec({"model": model, "tasks": ["niah"], "lengths": [1024], "limits": limits}, where="doctor")
    refuse_secrets(spec)
    return open_model(spec)


# --- the results in the terminal

RESULTS: dict[CheckStatus, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "finding": ("FINDING", "bold red"),
    "not_made": ("not made", "yellow"),
}
"""How a result is written, and in which colour."""


def _show(checkup: CheckReport, console: Console) -> None:
    """A table of all checks, every finding with its effect and fix, and how many there were."""
    window = f", claimed window {format_length(checkup.window)}" if checkup.window else ""
    server = f" on {checkup.server}" if checkup.server else " in this process"
    console.print(Text(sanitise(f"{checkup.model}{server}{window}"), style="bold"))
    grid = grid_of("check", plain=not console.is_terminal)
    grid.columns[0].no_wrap = True
    grid.add_column("result", no_wrap=True)
    grid.add_column("what was seen", overflow="fold")
    for result in checkup.results:
        word, style = RESULTS[result.status]
        grid.add_row(Text(result.title), Text(word, style=style), Text(sanitise(result.evidence, None)))
    console.print(grid)
    for finding in checkup.findings:
        lines = (
            f"{finding.title} ({finding.check})",
            f"  seen:   {sanitise(finding.evidence, None)}",
            f"  effect: {finding.effect}",
            f"  fix:    {sanitise(finding.fix, None)}",
        )
        console.print()
        for line in lines:
            console.print(Text(line), soft_wrap=True)
    console.print()
    console.print(Text(_counts(checkup)), soft_wrap=True)


def _counts(checkup: CheckReport) -> str:
    """`2 findings; 15 checks fine, 1 not made; 123 requests, 45,678 prompt tokens, 12 s`."""
    fine = sum(result.status == "ok" for result in checkup.results)
    skipped = sum(result.status == "not_made" for result in checkup.results)
    found = format_count(len(checkup.findings), "finding") if checkup.findings else "no findings"
    tokens, duration = f"{checkup.prompt_tokens:,} prompt tokens", format_duration(checkup.seconds)
    cost = f"{format_count(checkup.requests, 'request')}, {tokens}, {duration}"
    return f"{found}; {format_count(fine, 'check')} fine, {skipped} not made; {cost}"
