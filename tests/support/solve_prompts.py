"""Solves prompts of every generated task from their text alone, by readers that share no code with the tasks.

    python tests/support/solve_prompts.py --prompts 5000 --jobs 8

Prompts take turns over three tokenizers, several lengths and depths, and the variants that a task has. What is
counted as a mismatch is a prompt whose own scorer does not call the reader's answer right.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # the tests folder is on the path of pytest, not of a plain program
    sys.path.insert(0, str(Path(__file__).parents[1]))

from leadline.core import registry
from leadline.core.answers import Completion
from leadline.core.contracts import Task
from leadline.core.errors import LeadlineError, LengthError
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell, Document, Probe
from leadline.scorers.match import abstention
from leadline.text.chat import completion_frame
from leadline.text.fitting import Fitter
from support.agent_readers import recall_fact, solve_call, solve_item
from support.exact_lengths import generated_tasks, opened
from support.prompt_reader import answer_from_text

VARIANTS: dict[str, dict[str, object]] = {
    "plain": {}, "nothing there": {"absent": 1.0}, "asked first": {"question_at": "before"},
    "any place": {"placement": "anywhere"}, "tracing among chains": {"chains": 3, "hops": 2},
    "by association": {"match": "association"}, "in pieces": {"pieces": 2}, "corrected": {"hard": "contradiction"},
    "near misses": {"hard": "near_miss"}, "last failure": {"ask": "last"}, "parents": {"operation": "parents"},
}  # fmt: skip
TOKENIZERS = ("whitespace", "gpt2", "llama2")
LENGTHS = {"whitespace": (800, 1200, 2000), "gpt2": (2500, 3500, 5000), "llama2": (2500, 3500, 5000)}
SEEDED = 1_000_003


def task_of(name: str, variant: str) -> Task | None:
    """The task with the options of a variant; nothing if it does not take them."""
    options = VARIANTS[variant]
    try:
        plain = registry.task(TaskSpec(name=name))
        if options.keys() - type(plain).model_fields.keys():
            return None
        written = {"declare": "text"} if name == "tool_calls" else {}
        return registry.task(TaskSpec(name=name, options={**options, **written}))
    except LeadlineError:
        return None


def is_solved(document: Document, probe: Probe) -> tuple[bool, str]:
    """Whether what a reader finds in the prompt's text is right, and what it found."""
    question, prompt = probe.question, document.prompt_text(probe)
    if probe.cell.task == "tool_calls":
        call = solve_call(prompt)
        return call == json.loads(question.targets[0]), json.dumps(call)
    if probe.cell.task in ("embed", "compaction"):
        answer = solve_item(prompt) if probe.cell.task == "embed" else recall_fact(prompt)
        return (answer,) == question.targets, answer
    answer = answer_from_text(prompt)
    scorer = registry.scorer(question.scorers[0])
    score = abstention(question, Completion(answer)) if question.absent else scorer.score(question, Completion(answer))
    return score.value == 1.0, answer


@dataclass
class Solved:
    """What became of the prompts of one task in one tokenizer."""

    task: str
    tokenizer: str
    prompts: int = 0
    variants: int = 0
    too_short: int = 0
    mismatches: list[str] = field(default_factory=list)


def documents(name: str, tokenizer: str, seed: int, counts: Solved) -> Iterator[Document]:
    """Documents without end, over variants, lengths and depths in turn."""
    tasks = [task for variant in VARIANTS if (task := task_of(name, variant)) is not None]
    counts.variants = len(tasks)
    fitter, sample = Fitter(opened(tokenizer), completion_frame()), 0
    while True:
        for length, task in product(LENGTHS[tokenizer], tasks):
            sample += 1
            cell = Cell(name, length, 0.25 * (sample % 5) if task.has_depth else None, sample)
            try:
                yield task.document([cell], seed=seed * SEEDED + sample, fitter=fitter)
            except LengthError:
                counts.too_short += 1
                if counts.too_short > 200 + 9 * counts.prompts:
                    return


def solve(prompts: int, seed: int, part: tuple[str, str]) -> Solved:
    """Solves so many prompts of a task in a tokenizer."""
    counts = Solved(*part)
    for document in documents(*part, seed, counts):
        for probe in document.probes:
            counts.prompts += 1
            try:
                solved, answer = is_solved(document, probe)
            except Exception as error:  # a question that no reader knows, or a text that it cannot read
                solved, answer = False, f"{type(error).__name__}: {error}"
            if not solved:
                what: tuple[Any, ...] = (*part, probe.cell, probe.question.text[-200:], answer[:200])
                counts.mismatches.append(f"{what} instead of {probe.question.targets}")
        if counts.prompts >= prompts:
            break
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=5000, help="of each task, over all tokenizers")
    parser.add_argument("--tokenizers", default=",".join(TOKENIZERS))
    parser.add_argument("--tasks", default=",".join(generated_tasks()))
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    tokenizers = given.tokenizers.split(",")
    parts = list(product(given.tasks.split(","), tokenizers))
    prompts = mismatches = 0
    with ProcessPoolExecutor(given.jobs) as pool:
        for counts in pool.map(partial(solve, -(-given.prompts // len(tokenizers)), given.seed), parts):
            prompts, mismatches = prompts + counts.prompts, mismatches + len(counts.mismatches)
            print(
                f"{counts.task} {counts.tokenizer}: {counts.prompts:,} prompts, {counts.variants} variants, "
                f"{counts.too_short:,} too short, {len(counts.mismatches):,} mismatches",
                *counts.mismatches[:3], sep="\n  ", flush=True,
            )  # fmt: skip
    print(f"{len(parts) // len(tokenizers)} tasks, {prompts:,} prompts, {mismatches:,} mismatches")
    return 1 if mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
