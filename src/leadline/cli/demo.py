"""`leadline demo`: a heatmap worth looking at, without any settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

SPEC: dict[str, Any] = {
    "model": "sim:lost-in-the-middle?window=64k&strength=0.9&tokenizer=bytes",
    "tasks": "niah",
    "lengths": "1k,2k,4k,8k,16k,32k,64k,128k",
    "depths": 11,
    "samples": 5,
}


def demo(
    out: Annotated[Path | None, typer.Option(help="The run's folder. [default: runs/TASK-MODEL-DIGEST]")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Draw a needle heatmap of a simulated model: no settings, no network."""
    from leadline.cli.outcome import finish
    from leadline.cli.run import carry_out
    from leadline.core.spec import make_spec

    finish(carry_out(make_spec(SPEC, where="demo"), out), as_json=json)
