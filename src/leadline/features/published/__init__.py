"""Published benchmarks: LongBench, InfiniteBench and OpenAI's data sets; grading files of predictions."""

from leadline.core.commands import Command

SCORE = Command(
    "Grade prediction files of RULER, LongBench and others.", "leadline.features.published.command:score", "exchange"
)
SUMMARIZE = Command(
    "Summarize published scores, with error bars.", "leadline.features.published.command:summarize", "exchange"
)
