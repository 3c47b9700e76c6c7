"""The same documents from lm-evaluation-harness: its size search counts as start-up, its sample loop as documents.

Called by ../documents.py as  ruler_documents.py TASK LENGTH TOKENIZER DOCUMENTS.
"""

# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any


class Clock:
    """Stands in for the progress bar: it goes round the sample loop, and nothing else, from beginning to end."""

    def __init__(self) -> None:
        self.began = self.ended = 0.0

    def __call__(self, samples: Iterable[int], **_: Any) -> Iterator[int]:
        self.began = time.process_time()
        yield from samples
        self.ended = time.process_time()


def generate(name: str, length: int, tokenizer: Any, documents: int, clock: Clock) -> None:
    if name in ("vt", "cwe", "fwe"):
        from lm_eval.tasks.ruler import cwe_utils, fwe_utils, vt_utils

        cwe_utils.tqdm = fwe_utils.tqdm = vt_utils.tqdm = clock
        if name == "cwe":
            cwe_utils.sys_word_pair_random(num_samples=documents, max_seq_length=length, tokenizer=tokenizer)
        elif name == "fwe":
            fwe_utils.sys_kwext(tokenizer=tokenizer, max_seq_length=length, num_samples=documents)
        else:
            vary = vt_utils.sys_vartrack_w_noise_random
            shown = vary(tokenizer=tokenizer, num_samples=1, max_seq_length=500, incremental=5)[0]
            vary(tokenizer=tokenizer, num_samples=documents, max_seq_length=length, icl_example=shown)
        return
    from lm_eval.tasks.ruler import niah_utils, prepare_niah

    prepare_niah.tqdm = clock
    haystack = "repeat" if name == "niah_single_1" else "needle"
    keys, values = ("uuids", "uuids") if name == "niah_multikey_3" else ("words", "numbers")
    prepare_niah.generate_samples(
        prepare_niah.get_haystack(type_haystack=haystack),
        max_seq_length=length,
        template=niah_utils.TEMPLATE,
        type_haystack=haystack,
        type_needle_k=keys,
        type_needle_v=values,
        num_samples=documents,
        TOKENIZER=tokenizer,
    )


def main(name: str, length: int, folder: str, documents: int) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    clock = Clock()
    with contextlib.redirect_stdout(io.StringIO()):
        generate(name, length, tokenizer, documents, clock)
    print(json.dumps({"start": clock.began, "document": (clock.ended - clock.began) / documents}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
