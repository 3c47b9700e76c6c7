"""How exact documents are that are fitted by counts of whole prompts alone, and how many counts they take.

    python benchmarks/counted_lengths.py TOKENIZER [TASKS] [LENGTHS] [SAMPLES] [READINGS]

The counter has the given tokenizer (a tokenizer.json or its folder); what lays documents out does not know it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from leadline.core import registry
from leadline.core.errors import LengthError
from leadline.core.lengths import parse_length
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell, Document, Frame, Probe, Reading
from leadline.text.fitting import Fitter
from leadline.text.fitting.counted import MOST_COUNTS, ProviderCounts
from leadline.text.fitting.question_sizes import QuestionSizes
from leadline.text.tokenizers import ApproximateTokenizer, open_tokenizer

TASKS = "niah,niah_multikey_2,niah_multikey_3,kv,vt,cwe,fwe,qa_fiction_1"
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
TEMPLATE_TOKENS = 11


def measure(
    tokenizer: str, title: str, lengths: Sequence[int], samples: int, reading: Reading
) -> tuple[Counter[int], Counter[int]]:
    """Every document of a task at these lengths: the counts that documents took, and the tokens by which questions are
    off."""
    known, approximate = open_tokenizer(tokenizer), ApproximateTokenizer()
    task = registry.task(TaskSpec(name=title))

    def count(document: Document, probe: Probe) -> int:
        return TEMPLATE_TOKENS + len(known.encode(document.user_text(probe)))

    fitter = Fitter(approximate, Frame("", "", "chat", False, fingerprint="counted"))
    sizes = QuestionSizes(lambda text: TEMPLATE_TOKENS + len(known.encode(text)))
    fitter.provider_counts = counting = ProviderCounts(count, approximate, sizes)
    off: Counter[int] = Counter()
    depths = DEPTHS if task.has_depth else (None,)
    fitter.share_text([depth for depth in depths if depth is not None])
    for length in lengths:
        for sample in range(samples):
            cells = [Cell(title, length, depth, sample) for depth in depths]
            for group in [cells] if reading == "shared" else [[cell] for cell in cells]:
                try:
                    document = task.document(group, seed=1, fitter=fitter)
                except LengthError:  # all its facts do not fit into a short document
                    continue
                wanted = ((probe, probe.cell.length - probe.question.allowance) for probe in document.probes)
                off.update(count(document, probe) - tokens for probe, tokens in wanted)
    return Counter(counting.counts), off


def main() -> None:
    defaults = ("", TASKS, "2k,8k", "8", "fresh,shared")
    tokenizer, tasks, lengths, samples, readings = [*sys.argv[1:], *defaults[len(sys.argv) - 1 :]]
    sizes = [parse_length(length) for length in lengths.split(",")]
    for reading in readings.split(","):
        asked, exact, documents = 0, 0, Counter[int]()
        for title in tasks.split(","):
            if reading not in registry.task(TaskSpec(name=title)).readings:
                continue
            counts, off = measure(tokenizer, title, sizes, int(samples), reading)
            asked, exact, documents = asked + off.total(), exact + off[0], documents + counts
            print(f"{title:18} {reading}: counts {dict(sorted(counts.items()))} off {dict(off)}", flush=True)
        share = 100 * sum(n for size, n in documents.items() if size <= MOST_COUNTS) / max(1, documents.total())
        print(f"{reading}: {asked} questions, {100 * exact / max(1, asked):.1f} % exact")
        print(f"{reading}: {documents.total()} documents, {share:.1f} % within {MOST_COUNTS} counts", flush=True)


if __name__ == "__main__":
    main()
