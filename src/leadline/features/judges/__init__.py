"""LLM judges: rubrics, asking, verdicts, agreement, correction by labels, and their commands."""

from leadline.core.commands import Command

JUDGE = Command(
    "Grade recorded answers with judge models, corrected by labels.", "leadline.features.judges.command:judge", "check"
)
AGREEMENT = Command(
    "Agreement of raters in a CSV file, and their bias.", "leadline.features.judges.command:agreement", "check"
)
