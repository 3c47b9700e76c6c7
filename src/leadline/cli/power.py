"""What a run could see: the samples that a drop of so many points needs, for `leadline plan --detect`."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from leadline.core.errors import UsageError


def detection(drop: str, like: Path | None, prompts: int, samples: int) -> dict[str, Any]:
    """How many prompts, and how many samples a cell of this grid, would see such a drop at 80 % power."""
    from leadline.stats.power import DEFAULT_DISCORDANCE, detectable_drop, paired_sample_size

    discordance, design_effect = DEFAULT_DISCORDANCE, 1.0
    if like is not None:
        from leadline.stats.observations import observations
        from leadline.stats.power import seen_variance
        from leadline.store.manifest import read_manifest
        from leadline.store.runs import read_records

        read_manifest(like)  # says so if this is no run
        seen = seen_variance(observations(read_records(like)))
        discordance, design_effect = seen.discordance, seen.design_effect
    needed = paired_sample_size(parse_points(drop), discordance, design_effect=design_effect)
    smallest = detectable_drop(prompts, discordance, design_effect=design_effect)
    return {
        "sentence": str(needed),
        "prompts": needed.prompts,
        "samples_a_cell": math.ceil(needed.prompts / (prompts / samples)),
        "this_run_sees": smallest,
        "from": str(like) if like else f"no earlier run: {100 * DEFAULT_DISCORDANCE:g} % of answers taken to flip",
    }


def parse_points(text: str) -> float:
    """`5pt`, `5 points`, `5` or `0.05`: five points out of a hundred."""
    found = re.fullmatch(r"\s*(\d*\.?\d+)\s*(pts?|points?)?\s*", text)
    value = float(found[1]) if found else 0.0
    points = value / 100 if found and (found[2] or value >= 1) else value
    if not 0 < points <= 1:
        raise UsageError(f"{text!r} is not a drop in points", where="--detect", fix="write 5pt for five of a hundred")
    return points
