"""`leadline rescore`: grade the saved answers of a run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leadline.console.output import TrustOption, print_json, print_table, warn
from leadline.core.errors import UsageError
from leadline.run.recording import rescore as regrade_run


def rescore(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    scorers: Annotated[
        list[str] | None,
        typer.Option(
            "--scorer", metavar="NAME", help="A scorer, by name or ./file.py:Name; the first decides. Can be repeated."
        ),
    ] = None,
    only: Annotated[bool, typer.Option("--only", help="Leave out the scorers that the run has.")] = False,
    trust: TrustOption = False,
    json: Annotated[bool, typer.Option("--json", help="Print the means before and after as JSON.")] = False,
) -> None:
    """Grade the saved answers of a run again, without asking the model: by further scorers, or without --scorer by
    those it has, as they are today. The records as they were are kept beside the new ones."""
    if only and not scorers:
        raise UsageError("--only leaves no scorer", where="--only", fix="name one with --scorer")
    rescored = regrade_run(run, tuple(scorers or ()), only=only, trust=trust)
    if json:
        sides = {"before": rescored.before, "after": rescored.after}
        values = {s: {t: {"scorer": n, "mean": m} for t, (n, m) in tasks.items()} for s, tasks in sides.items()}
        print_json({"run": str(run), "samples": rescored.samples, "saved_as": str(rescored.saved_as), **values})
        return
    rows = [
        (task, name, f"{100 * mean:.1f}", rescored.after[task][0], f"{100 * rescored.after[task][1]:.1f}")
        for task, (name, mean) in rescored.before.items()
    ]
    print_table(rows, ("task", "before", "mean", "now", "mean"), right=frozenset((2, 4)))
    warn(f"{rescored.samples:,} answers graded; the records as they were are in {rescored.saved_as}")
    if scorers:
        options = [task.get("options", {}) for task in rescored.manifest.tasks.values()]
        listed = next((option["scorers"] for option in options if "scorers" in option), scorers)
        warn(f"to resume the run, add --set scorers={','.join(listed)}")
