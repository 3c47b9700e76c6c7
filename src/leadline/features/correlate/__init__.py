"""Rank agreement of scores over models."""

from leadline.core.commands import Command

CORRELATE = Command(
    "Correlate scores of models, or tasks over models.", "leadline.features.correlate.command:correlate", "compare"
)
