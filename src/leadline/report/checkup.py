"""What `leadline doctor` found, for the terminal: a table of all checks, then every finding with its effect and fix."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from leadline.core.findings import CheckResult, CheckStatus, Checkup
from leadline.core.format import format_count, format_duration, format_length, sanitise
from leadline.report.score_tables import grid_of

RESULTS: dict[CheckStatus, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "finding": ("FINDING", "bold red"),
    "not_made": ("not made", "yellow"),
}
"""How a result is written, and in which colour."""


def show_checkup(checkup: Checkup, console: Console) -> None:
    console.print(Text(describe_model(checkup), style="bold"))
    console.print(checkup_table(checkup, plain=not console.is_terminal))
    for finding in checkup.findings:
        console.print()
        for line in finding_lines(finding):
            console.print(Text(line), soft_wrap=True)
    console.print()
    console.print(Text(describe_checkup(checkup)), soft_wrap=True)


def checkup_table(checkup: Checkup, *, plain: bool) -> Grid:
    grid = grid_of("check", plain=plain)
    grid.columns[0].no_wrap = True
    grid.add_column("result", no_wrap=True)
    grid.add_column("what was seen", overflow="fold")
    for result in checkup.results:
        word, style = RESULTS[result.status]
        grid.add_row(Text(result.title), Text(word, style=style), Text(sanitise(result.evidence, None)))
    return grid


def finding_lines(finding: CheckResult) -> Iterator[str]:
    yield f"{finding.title} ({finding.check})"
    yield f"  seen:   {sanitise(finding.evidence, None)}"
    yield f"  effect: {finding.effect}"
    yield f"  fix:    {sanitise(finding.fix, None)}"


def describe_model(checkup: Checkup) -> str:
    window = f", claimed window {format_length(checkup.window)}" if checkup.window else ""
    server = f" on {checkup.server}" if checkup.server else " in this process"
    return sanitise(f"{checkup.model}{server}{window}")


def describe_checkup(checkup: Checkup) -> str:
    """`2 findings; 15 checks are fine, 1 was not made; 123 requests, 45,678 prompt tokens, 12 s`."""
    fine = sum(result.status == "ok" for result in checkup.results)
    skipped = sum(result.status == "not_made" for result in checkup.results)
    found = format_count(len(checkup.findings), "finding") if checkup.findings else "no findings"
    parts = [f"{found}; {format_count(fine, 'check')} fine, {skipped} not made"]
    cost = f"{format_count(checkup.requests, 'request')}, {checkup.prompt_tokens:,} prompt tokens"
    return "; ".join([*parts, f"{cost}, {format_duration(checkup.seconds)}"])
