"""Counts documents whose prompts are not exactly as long as asked, for every family, tokenizer, template and length.

    python tests/support/exact_lengths.py                                512 to 64k, one template in turn
    python tests/support/exact_lengths.py --lengths 131072 --every-template

A prompt is exact if it has as many tokens as asked less the allowance, and its text tokenised whole gives those tokens.
Lengths that a family does not fit into in a tokenizer are counted apart: there is no document, and the error says so.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from sys import path
from typing import Any

import numpy as np

path.insert(0, str(Path(__file__).parents[1]))

from leadline.core import registry
from leadline.core.contracts import Tokenizer
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
TOKENIZERS = ("whitespace", "bytes", "gpt2", "unigram", "llama2")
LENGTHS = tuple(512 << n for n in range(8))


@dataclass
class LengthCounts:
    exact: int = 0
    wrong: list[str] = field(default_factory=list)
    too_short: list[str] = field(default_factory=list)


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
    lengths: Sequence[int], tokenizers: Sequence[str], families: Sequence[str], *, every_template: bool = False
) -> Iterator[tuple[str, LengthCounts]]:
    """Counts for each tokenizer and length. Templates take turns unless every one is asked for."""
    turn = cycle(frames().items())
    for name in tokenizers:
        tokenizer = opened(name)
        fitters: dict[str, Fitter] = {}
        for length in lengths:
            counts = LengthCounts()
            for family in families:
                task_name, options = FAMILIES[family]
                task = registry.task(TaskSpec(name=task_name, options=options))
                for template, frame in list(frames().items()) if every_template else [next(turn)]:
                    fitter = fitters.setdefault(template, Fitter(tokenizer, frame))
                    where = f"{family} {name} {template} {length}"
                    depth = 0.5 if task.has_depth else None
                    try:
                        document = task.document([Cell(task_name, length, depth, 1)], seed=7, fitter=fitter)
                    except LengthError:
                        counts.too_short.append(where)
                        continue
                    if is_exact(document, tokenizer):
                        counts.exact += 1
                    else:
                        counts.wrong.append(where)
            yield f"{name} {length}", counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--tokenizers", default=",".join(TOKENIZERS))
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--every-template", action="store_true")
    given = parser.parse_args()
    total = LengthCounts()
    lengths = [int(n) for n in given.lengths.split(",")]
    for what, counts in sweep(
        lengths, given.tokenizers.split(","), given.families.split(","), every_template=given.every_template
    ):
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
