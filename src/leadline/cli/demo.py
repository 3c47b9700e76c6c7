"""`leadline demo`: a heatmap worth looking at, without any settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MODEL = "sim:lost-in-the-middle"


def demo(
    out: Annotated[Path | None, typer.Option(help="The run's folder. [default: runs/TASK-MODEL-DIGEST]")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Run a small needle heatmap with a simulated model. No settings, no network."""
