"""`leadline demo`: a needle heatmap of a small model, without any options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from leadline.cli.run import finish, measure_with_progress
from leadline.console.output import warn
from leadline.core.errors import LeadlineError, UsageError
from leadline.core.spec import make_spec
from leadline.models import hf
from leadline.models.hf import smollm2
from leadline.results.run import Run

SPEC: dict[str, Any] = {
    "model": "hf:smollm2",
    "tasks": [{"name": "niah_single", "answer_tokens": 12, "common_haystack": True}],
    "lengths": "256,1k,4k",
    "depths": 5,
    "samples": 3,
    "reading": "fresh",
}
"""A real model with 135M parameters, over half of its 8k window. `fresh` and a single needle, as in the first
published results: with several facts the others are distractors, and so small a model then fails at lengths that it
can use. It loses facts of the middle first, so three depths would flatter it. The five documents of a sample share
their haystack, so that a part of each is not read again."""

FULL_LENGTHS = "256,1k,4k,8k"
"""With `--full`: all of the window. 8k takes longer than everything shorter, together."""

SIMULATED: dict[str, Any] = {
    "model": "sim:lost-in-the-middle?window=64k&strength=0.9&tokenizer=bytes",
    "tasks": "niah",
    "lengths": "1k,2k,4k,8k,16k,32k,64k,128k",
    "depths": 11,
    "samples": 5,
}


def demo(
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder of the run. [default: runs/TASK-MODEL-DIGEST]")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON to stdout.")] = False,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Use a simulated model: seconds instead of minutes.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Measure to 8k, the model's whole window, instead of 4k: thrice the time.")
    ] = False,
) -> None:
    """Draw a needle heatmap of a small real model, in about three minutes on two idle CPU cores."""
    if simulated and full:
        raise UsageError("--full is for the real model", where="demo", fix="leave out --simulated or --full")
    values = SPEC if not simulated and _real_model_is_here() else SIMULATED
    if full and values is SPEC:
        values = SPEC | {"lengths": FULL_LENGTHS}
    measured = measure_with_progress(make_spec(values, where="demo"), out)
    finish(measured, as_json=json, page=_write_report(measured.run))


def _write_report(run: Run) -> Path | None:
    """The page of the run. One that cannot be written is a warning: the run itself is complete."""
    from leadline.report.page import write_page  # altair

    try:
        return write_page([run], run.folder / "report.html")
    except LeadlineError as error:
        warn(f"no page: {error.what}")
        return None


def _real_model_is_here() -> bool:
    """Downloads and converts the model the first time. If that fails, says why; the demo then uses a simulated one."""
    try:
        hf.require_torch("demo")
        smollm2.ensure_folder(warn)
    except LeadlineError as error:
        warn(f"SmolLM2 is not available, so the demo uses a simulated model: {error.what}")
        if error.fix:
            warn(error.fix)
        return False
    return True
