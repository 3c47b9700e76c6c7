"""The checks of a server before a run: the entry point of `leadline.model_checks`."""

from __future__ import annotations

from collections.abc import Sequence

from leadline.core.contracts import Model, Remote


def check_before_run(model: Model) -> Sequence[str]:
    """What the cheap checks of a server find, one line for each finding; nothing for a model in this process."""
    if not isinstance(model, Remote):
        return ()
    from leadline.features.doctor.checks import cheap_findings  # imported where there is a server to check

    return cheap_findings(model)
