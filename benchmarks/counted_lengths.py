"""How exact documents are that are fitted by counts of whole prompts alone, and how many counts they take.

    python benchmarks/counted_lengths.py TOKENIZER [TASKS] [LENGTHS] [SAMPLES]

The counter has the given tokenizer (a tokenizer.json or its folder); what lays documents out does not know it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from leadline.core import registry
from leadline.core.lengths import parse_length
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell, Document, Frame, Probe, Reading
from leadline.text.fitting import Fitter
from leadline.text.fitting.counted import Counting
from leadline.text.tokenizers import ApproximateTokenizer, open_tokenizer

TASKS = "niah,niah_multikey_2,niah_multikey_3,kv,vt,cwe,fwe,qa_fiction_1"
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
TEMPLATE_TOKENS = 11


def measure(tokenizer: str, title: str, lengths: Sequence[int], samples: int, reading: Reading) -> Counting:
    """Every document of a task at these lengths."""
    known, approximate = open_tokenizer(tokenizer), ApproximateTokenizer()
    task = registry.task(TaskSpec(name=title))

    def count(document: Document, probe: Probe) -> int:
        return TEMPLATE_TOKENS + len(known.encode(document.user_text(probe)))

    fitter = Fitter(approximate, Frame("", "", "chat", False, fingerprint="counted"))
    fitter.counting = counting = Counting(count, approximate)
    depths = DEPTHS if task.has_depth else (None,)
    fitter.share_text([depth for depth in depths if depth is not None])
    for length in lengths:
        for sample in range(samples):
            cells = [Cell(title, length, depth, sample) for depth in depths]
            for group in [cells] if reading == "shared" else [[cell] for cell in cells]:
                task.document(group, seed=1, fitter=fitter)
    return counting


def main() -> None:
    tokenizer, tasks, lengths, samples = [*sys.argv[1:], *("", TASKS, "2k,8k", "8")[len(sys.argv) - 1 :]]
    sizes = [parse_length(length) for length in lengths.split(",")]
    total: Counter[int] = Counter()
    for title in tasks.split(","):
        counting = measure(tokenizer, title, sizes, int(samples), "fresh")
        total.update(counting.off)
        print(f"{title:18} counts {dict(sorted(Counter(counting.counts).items()))} off {dict(Counter(counting.off))}")
    questions = sum(total.values())
    print(f"{questions} documents of one question, {100 * total[0] / questions:.1f} % exact")
    for title in ("niah", "graphwalks"):
        counting = measure(tokenizer, title, sizes[-1:], int(samples), "shared")
        print(f"{title:18} shared: counts {dict(Counter(counting.counts))} off {dict(Counter(counting.off))}")


if __name__ == "__main__":
    main()
