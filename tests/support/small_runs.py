"""Small runs of real tasks with a simulated model, measured in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leadline.core.spec import make_spec
from leadline.results.run import Run, load_run
from leadline.run.measure import measure


def simulated_run(
    folder: Path,
    tasks: Sequence[str],
    *,
    lengths: Sequence[int],
    depths: Sequence[float],
    samples: int,
    model: str = "sim:perfect",
    options: Mapping[str, Any] | None = None,
) -> Run:
    """A finished run, opened. The options are those of every task."""
    spec = make_spec(
        {
            "model": model,
            "tasks": [{"name": name, "options": dict(options or {})} for name in tasks],
            "lengths": list(lengths),
            "depths": list(depths),
            "samples": samples,
        }
    )
    return load_run(measure(spec, folder / "run").folder)
