"""`leadline demo`: a heatmap worth looking at, without any settings."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

SPEC: dict[str, Any] = {
    "model": "hf:smollm2",
    "tasks": [{"name": "niah", "answer_tokens": 12}],
    "lengths": "512,1k,2k,4k",
    "depths": 8,
    "samples": 3,
    "reading": "shared",
}
"""A real model of 135M parameters, inside half of its window of 8k: that is where its own limits lie. `shared` rather
than `nested`, since every other fact in a document is a distractor, and of the 32 of a nested one so small a model
finds but the last."""

SIMULATED: dict[str, Any] = {
    "model": "sim:lost-in-the-middle?window=64k&strength=0.9&tokenizer=bytes",
    "tasks": "niah",
    "lengths": "1k,2k,4k,8k,16k,32k,64k,128k",
    "depths": 11,
    "samples": 5,
}


def demo(
    out: Annotated[Path | None, typer.Option(help="The run's folder. [default: runs/TASK-MODEL-DIGEST]")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
    simulated: Annotated[bool, typer.Option("--simulated", help="Seconds instead of minutes: no real model.")] = False,
) -> None:
    """Draw a needle heatmap of a small real model: no settings, a few minutes on two CPU cores."""
    from leadline.cli.run import carry_out
    from leadline.cli.run_summary import finish
    from leadline.core.spec import make_spec

    values = SPEC if not simulated and _real_model_is_here() else SIMULATED
    summary = carry_out(make_spec(values, where="demo"), out)
    finish(summary, as_json=json)
    if not json:
        program = "leadline" if shutil.which("leadline") else sys.argv[0]  # `make demo` leaves the PATH alone
        typer.echo(f"next      {program} report {summary.folder}  # every answer, on a page")


def _real_model_is_here() -> bool:
    """Fetches and converts it the first time. What stands in the way is said, and a simulated model takes its place."""
    from leadline.cli.output import warn
    from leadline.core.errors import LeadlineError
    from leadline.models.hf import smollm2
    from leadline.models.hf.provider import require_torch

    try:
        require_torch("demo")
        smollm2.ensure_folder(warn)
    except LeadlineError as error:
        warn(f"SmolLM2 cannot be had, so this is a simulated model instead: {error.what}")
        if error.fix:
            warn(error.fix)
        return False
    return True
