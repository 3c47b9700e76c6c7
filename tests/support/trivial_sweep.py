"""Counts how often readers that do not look at the question are right, in every row of every generated task's maps.

    python tests/support/trivial_sweep.py --samples 60 --jobs 2

A row is a task and a variant of it, a way of reading (a document for each question, for all depths, for all depths and
lengths), a length and a depth. A reader is above chance in a row if so many right answers are improbable for one that
guesses among the facts planted alike, or among everything that looks like an answer where that is less: the binomial
bound, divided by the number of rows and readers. Tasks that say themselves what they give away are left out.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from math import comb
from pathlib import Path

from scipy.stats import binom

if __name__ == "__main__":  # the tests folder is on the path of pytest, not of a plain program
    sys.path.insert(0, str(Path(__file__).parents[1]))

from leadline.core import registry
from leadline.core.answers import Completion
from leadline.core.contracts import Task
from leadline.core.errors import LengthError, UsageError
from leadline.core.types import Cell, Question
from leadline.scorers.trivial_readers import planted_sentences, trivial_answers, value_pattern
from leadline.tasks.placement import LEAST_GUARDS
from leadline.text.chat import completion_frame
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import WhitespaceTokenizer
from support.exact_lengths import generated_tasks
from support.solve_prompts import VARIANTS, task_of

ANSWERED_BY_FORM = frozenset(
    "niah_single niah_single_1 niah_single_2 niah_single_3 niah_multivalue niah_multiquery passkey vt "
    "number_string".split()
)
"""Published tasks in which nothing but the answer has its form; `tasks show` says so."""
ANSWERED_BY_COUNTING = frozenset({"cwe", "fwe"})
"""The most frequent words are what is asked for, and nothing but counting finds them."""
GRID = tuple(number / 10 for number in range(11))
LENGTHS: dict[str, tuple[int, ...]] = {"fresh": (1500,), "shared": (3000,), "nested": (3000, 5000)}
PLACES = (2, 3, 4)
"""Which values from either end are tried besides the first."""
CLOSED = {("worlds", "yes or no"): 1 / 2, ("worlds", "count"): 1 / 3, ("records", "compare"): 1 / 2}
"""Operations whose answer is one of a few words."""
FEW_ANSWERS = frozenset({"worlds", "records"})
"""Families in which as few as two names can be meant."""
MOST = 0.25
"""What guessing may give anywhere else, however few values the text has."""
CHANCE_OF_A_FALSE_ALARM = 0.01
"""Over all rows and readers of a sweep."""


def reader_answers(text: str, question: Question, sentences: list[str]) -> dict[str, str]:
    """What each reader says: those of `tasks show`, the rarest values, and the second, third ... from either end."""
    seen = value_pattern(question).findall(text)
    wanted = 1 if question.match == "any" else len(set(question.targets))
    distinct = list(dict.fromkeys(seen))
    chosen = {"rarest": [value for value, _ in Counter(seen).most_common()[::-1]][:wanted]}
    for place in PLACES:
        start = (place - 1) * wanted
        chosen[f"{place} from the start"] = distinct[start : start + wanted]
        chosen[f"{place} from the end"] = distinct[::-1][start : start + wanted]
    form = question.answer_form or "{answer}"
    written = {name: form.format(answer=", ".join(values)) for name, values in chosen.items()}
    return {**trivial_answers(text, question, sentences), **written}


def chance_of(text: str, question: Question, task: Task, depth: float | None) -> float:
    """How often a guess is right that knows what the facts look like, but not which of them is asked for. At an end of
    a document it also knows how many distractors can stand there, and of graphs how often no node is asked for."""
    known = 1 / LEAST_GUARDS if depth in (0.0, 1.0) else 0.0
    return max(_guess_of(text, question, getattr(task, "keys", 0)), getattr(task, "empty", 0.0), known)


def _guess_of(text: str, question: Question, keys: int) -> float:
    closed = CLOSED.get((question.family, question.labels.get("operation", "")))
    if closed is not None:
        return closed
    if keys > 1:
        return 1 / keys
    wanted = 1 if question.match == "any" else max(len(set(question.targets)), 1)
    candidates = len(set(value_pattern(question).findall(text)))
    planted = len(set(question.targets) | set(question.distractors))
    guess = 1 / comb(max(min(candidates, planted) if question.distractors else candidates, wanted), wanted)
    return guess if question.family in FEW_ANSWERS else min(guess, MOST)


@dataclass
class Row:
    """What the readers scored in a row of a map."""

    asked: int = 0
    chance: float = 0.0
    right: Counter[str] = field(default_factory=Counter)

    def probability(self, reader: str) -> float:
        """Of as many right answers by guessing."""
        return float(binom.sf(self.right[reader] - 1, self.asked, self.chance / self.asked))


Rows = dict[tuple[str, str, str, int, float | None], Row]


def groups_of_cells(task: Task, name: str, reading: str, sample: int) -> Iterator[list[Cell]]:
    """The cells of each document of a sample."""
    depths: tuple[float | None, ...] = GRID if task.has_depth else (None,)
    cells = [Cell(name, length, depth, sample) for length in LENGTHS[reading] for depth in depths]
    yield from ([cell] for cell in cells) if reading == "fresh" else (cells,)


def read_rows(samples: int, part: tuple[str, str, str]) -> Rows:
    """The rows of a task, a variant and a way of reading; none where the task does not take them."""
    name, variant, reading = part
    task = task_of(name, variant)
    rows: Rows = {}
    if task is None or reading not in task.readings:
        return rows
    fitter, sentences = Fitter(WhitespaceTokenizer(), completion_frame()), planted_sentences(task)
    for sample in range(samples):
        for cells in groups_of_cells(task, name, reading, sample):
            try:
                document = task.document(cells, seed=7, fitter=fitter)
            except (LengthError, UsageError):  # a text of several depths that this task or length does not hold
                continue
            for probe in document.probes:
                row = rows.setdefault((*part, probe.cell.length, probe.cell.depth), Row())
                text = document.text[document.body_start_characters : probe.cut_characters]
                row.asked += 1
                row.chance += chance_of(text, probe.question, task, probe.cell.depth)
                for reader, answer in reader_answers(text, probe.question, sentences).items():
                    row.right[reader] += is_right(probe.question, answer)
    return rows


def is_right(question: Question, answer: str) -> bool:
    return registry.scorer(question.scorers[0]).score(question, Completion(answer)).value == 1.0


def above_chance(rows: Rows) -> list[str]:
    """A line for each row and reader that is right too often."""
    pairs = [(key, row, reader) for key, row in rows.items() for reader in row.right]
    return [
        f"{key}: {reader!r} right in {row.right[reader]} of {row.asked}, {row.chance / row.asked:.0%} by chance"
        for key, row, reader in pairs
        if row.probability(reader) < CHANCE_OF_A_FALSE_ALARM / len(pairs)
    ]


def swept_tasks() -> list[str]:
    return [name for name in generated_tasks() if name not in ANSWERED_BY_FORM | ANSWERED_BY_COUNTING]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=60, help="of each row")
    parser.add_argument("--tasks", default=",".join(swept_tasks()))
    parser.add_argument("--variants", default=",".join(name for name in VARIANTS if name != "nothing there"))
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    given = parser.parse_args()
    parts = list(product(given.tasks.split(","), given.variants.split(","), LENGTHS))
    rows: Rows = {}
    with ProcessPoolExecutor(given.jobs) as pool:
        for part, read in zip(parts, pool.map(partial(read_rows, given.samples), parts), strict=True):
            rows |= read
            if read:
                best = max(row.right[reader] / row.asked for row in read.values() for reader in row.right)
                print(f"{' '.join(part)}: {len(read)} rows, at most {best:.0%}", flush=True)
    worse = above_chance(rows)
    print(*worse, sep="\n")
    print(f"{len({key[:2] for key in rows})} tasks and variants, {len(rows)} rows, {len(worse)} above chance")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
