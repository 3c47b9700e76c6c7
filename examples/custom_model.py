"""A model of your own: any Python function that takes the prompt and returns the answer.

leadline run niah --model "./examples/custom_model.py:answer_from_text?window=4k" --lengths 1k,2k
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import leadline


def answer_from_text(prompt: str) -> str:
    """A model that knows only how needles are phrased: it repeats the sentence nearest to the question's words."""
    text, _, question = prompt.rpartition("\n")
    wanted = set(re.findall(r"\w{4,}", question.lower()))
    sentences = re.split(r"(?<=[.!?])\s+", text)
    return max(sentences, key=lambda s: len(wanted & set(re.findall(r"\w{4,}", s.lower()))))


if __name__ == "__main__":
    here = Path(__file__)
    spec = leadline.Spec(model=f"{here}:answer_from_text?window=4k", tasks="niah", lengths="1k,2k", depths=3, samples=4)
    run = leadline.measure(spec, sys.argv[1] if len(sys.argv) > 1 else None)
    print(run.verdict.headline)
    for record in run.records:
        if isinstance(record.outcome, leadline.Completion) and not record.score:
            print(record.question.text.strip(), "->", record.outcome.text.strip()[:60])
