"""Training runs: every checkpoint of a folder measured as it appears, gated against the last, on one page."""

from leadline.core.commands import Command

FOLLOW = Command(
    "Measure every checkpoint that appears in a folder.", "leadline.features.follow.command:follow", "measure"
)
