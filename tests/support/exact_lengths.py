"""Counts documents whose prompts are not exactly as long as asked, for every family, tokenizer, template and length.

    python tests/support/exact_lengths.py                                512 to 64k, one template in turn
    python tests/support/exact_lengths.py --families every --seeds 3     every generated task and its variants
    python tests/support/exact_lengths.py --lengths 131072 --every-template

A prompt is exact if it has as many tokens as asked less the allowance, and its text tokenised whole gives those tokens.
Lengths that a family does not fit into in a tokenizer are counted apart, if the error names a longer one that can hold
it. A length that is refused for any other reason is counted with the wrong ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, product
from pathlib import Path
from sys import path
from typing import Any

import numpy as np

path.insert(0, str(Path(__file__).parents[1]))

from leadline.core import registry
from leadline.core.contracts import Task, Tokenizer
from leadline.core.errors import LengthError
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell, Document, Frame
from leadline.text.chat import completion_frame
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import ByteTokenizer, WhitespaceTokenizer
from support.chat_templates import TEMPLATES
from support.toy_tokenizers import toy_tokenizer

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "mrcr": ("mrcr", {}), "graphwalks": ("graphwalks", {}), "aggregate": ("aggregate", {}), "worlds": ("worlds", {}),
    "ladder": ("ladder", {}), "niah": ("niah", {}), "association": ("niah_forms", {"match": "association"}),
    "pieces": ("niah_forms", {"pieces": 2}), "hard": ("niah_forms", {"hard": "near_miss"}),
    "absent": ("kv", {"absent": 0.5}), "agent_log": ("agent_log", {}), "copy_words": ("copy_words", {}),
    "compaction": ("compaction", {}),
    "embed": ("embed", {"answer_tokens": 64}), "tool_calls": ("tool_calls", {"declare": "text", "tools": 2}),
}  # fmt: skip
FROM_FILES = frozenset(
    "qa_1 qa_2 prompts graphwalks_dataset mrcr_dataset longbench_dataset longbench_pile longbench_v2 "
    "infinitebench_dataset".split()
)
"""Tasks that ask the questions of a file, whose answers are the file's and not ours."""
TOKENIZERS = ("whitespace", "bytes", "gpt2", "unigram", "llama2", "llama3")
LENGTHS = tuple(512 << n for n in range(8))
DEPTHS = (0.5, 0.0, 1.0)
"""In turn, by seed."""


def generated_tasks() -> list[str]:
    """Tasks that ask for answers and write their own texts."""
    names = [name for name in registry.names("tasks") if name not in FROM_FILES]
    return [name for name in names if registry.task(TaskSpec(name=name)).request == "answer"]


def every_family() -> dict[str, tuple[str, dict[str, Any]]]:
    """Those above, and every other generated task as it is."""
    here = {task for task, options in FAMILIES.values() if not options} | {"embed", "tool_calls"}
    return FAMILIES | {name: (name, {}) for name in generated_tasks() if name not in here}


@dataclass
class LengthCounts:
    exact: int = 0
    wrong: list[str] = field(default_factory=list)
    too_short: list[str] = field(default_factory=list)

    def count(self, where: str, task: Task, cell: Cell, seed: int, fitter: Fitter) -> None:
        """Builds one document and counts what it is."""
        try:
            document = task.document([cell], seed=seed, fitter=fitter)
        except LengthError as error:
            named = error.shortest is not None and error.shortest > cell.length
            (self.too_short if named else self.wrong).append(f"{where}: {error.what}; {error.fix}")
            return
        if is_exact(document, fitter.tokenizer):
            self.exact += 1
        else:
            self.wrong.append(where)


def opened(name: str) -> Tokenizer:
    if name == "whitespace":
        return WhitespaceTokenizer()
    return ByteTokenizer() if name == "bytes" else toy_tokenizer(name)


def frames() -> dict[str, Frame]:
    return {"completion": completion_frame("<s>"), **{name: t.frame() for name, t in TEMPLATES.items()}}


def is_exact(document: Document, tokenizer: Tokenizer) -> bool:
    for probe in document.probes:
        ids = document.prompt_ids(probe)
        if len(ids) != probe.cell.length - probe.question.allowance or not np.array_equal(
            tokenizer.encode(document.prompt_text(probe)), ids
        ):
            return False
    return bool(document.probes)


def sweep(
    lengths: Sequence[int],
    tokenizers: Sequence[str],
    families: Mapping[str, tuple[str, dict[str, Any]]],
    *,
    seeds: int = 1,
    every_template: bool = False,
) -> Iterator[tuple[str, LengthCounts]]:
    """Counts for each tokenizer and length. Templates take turns unless every one is asked for."""
    turn = cycle(frames().items())
    for name, length in product(tokenizers, lengths):
        fitters: dict[str, Fitter] = {}
        counts = LengthCounts()
        for (family, (task_name, options)), seed in product(families.items(), range(seeds)):
            task = registry.task(TaskSpec(name=task_name, options=options))
            for template, frame in list(frames().items()) if every_template else [next(turn)]:
                fitter = fitters.setdefault(template, Fitter(opened(name), frame))
                cell = Cell(task_name, length, DEPTHS[seed % len(DEPTHS)] if task.has_depth else None, seed + 1)
                counts.count(f"{family} {name} {template} {length} seed {seed}", task, cell, 7 + seed, fitter)
        yield f"{name} {length}", counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--tokenizers", default=",".join(TOKENIZERS))
    parser.add_argument("--families", default=",".join(FAMILIES), help="names, or every")
    parser.add_argument("--seeds", type=int, default=1, help="each with a depth of its own")
    parser.add_argument("--every-template", action="store_true")
    given = parser.parse_args()
    total = LengthCounts()
    lengths = [int(n) for n in given.lengths.split(",")]
    known = every_family()
    families = known if given.families == "every" else {name: known[name] for name in given.families.split(",")}
    counted = sweep(
        lengths, given.tokenizers.split(","), families, seeds=given.seeds, every_template=given.every_template
    )
    for what, counts in counted:
        print(f"{what}: {counts.exact} exact, {len(counts.wrong)} not, {len(counts.too_short)} do not fit", flush=True)
        for where in counts.wrong:
            print(f"  NOT EXACT {where}")
        total.exact += counts.exact
        total.wrong += counts.wrong
        total.too_short += counts.too_short
    print(
        f"{total.exact} exact, {len(total.wrong)} not, {len(total.too_short)} do not fit:", *total.too_short, sep="\n  "
    )


if __name__ == "__main__":
    main()
