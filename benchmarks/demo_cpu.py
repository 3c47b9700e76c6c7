"""SmolLM2 on this machine's CPU: the demo's grid read once per document, beside one prompt per probe.

    python benchmarks/demo_cpu.py                 the demo's grid
    python benchmarks/demo_cpu.py 1k,2k 5         other lengths and depths

One document is measured whole. The plain loop is measured with one probe per length and multiplied by the number of
depths, since all of it would take the better part of an hour. CPU seconds stand beside wall-clock seconds because other
work on the machine stretches the latter. Answers of both paths are compared.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from leadline.cli.demo import SPEC
from leadline.core import registry
from leadline.core.spec import Spec, make_spec
from leadline.core.types import Completion, Document
from leadline.models.hf import HF
from leadline.models.in_process.plain import generate_plain
from leadline.run.grid import jobs
from leadline.text.fit import fit


def clock(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """(wall seconds, CPU seconds, what came of it)"""
    wall, cpu = time.perf_counter(), time.process_time()
    got = work()
    return time.perf_counter() - wall, time.process_time() - cpu, got


def first_document(spec: Spec, model: Any) -> Document:
    tasks = {t.title: registry.task(t) for t in spec.tasks}
    job = next(jobs(spec, tasks))
    return fit(job.task.write(job.cells, seed=spec.seed), model.tokenizer, model.frame)


def main(lengths: str | None, depths: str | None) -> None:
    values = {**SPEC, **({"lengths": lengths} if lengths else {}), **({"depths": depths} if depths else {})}
    spec = make_spec(values, where="benchmark")
    model = HF().open("smollm2")
    document = first_document(spec, model)
    wall, cpu, answers = clock(lambda: model.answer(document, document.probes))
    tokens = max(p.cut for p in document.probes)
    print(f"read once: {len(document.probes)} probes over {tokens} tokens: {wall:.0f} s, {cpu:.0f} CPU s")
    model.close()
    engine = model.engine
    engine.reader.use_own_attention()
    plain_wall = plain_cpu = 0.0
    same = 0
    middle = len(spec.depths) // 2
    for length in spec.lengths:
        place = [i for i, p in enumerate(document.probes) if p.cell.length == length][middle]
        probe = document.probes[place]
        prompt = document.prompt_ids(probe)
        plain = partial(generate_plain, engine.model, prompt, probe.allowance, engine.stops)
        one_wall, one_cpu, got = clock(plain)
        plain_wall += one_wall * len(spec.depths)
        plain_cpu += one_cpu * len(spec.depths)
        outcome = answers[place].outcome
        same += isinstance(outcome, Completion) and outcome.text == model.text_of(got)
        print(f"plain: a probe of {len(prompt)} tokens: {one_wall:.1f} s, {one_cpu:.1f} CPU s", flush=True)
    print(f"plain loop on the same grid: {plain_wall:.0f} s, {plain_cpu:.0f} CPU s a sample")
    print(f"faster by {plain_wall / wall:.1f} (wall), {plain_cpu / cpu:.1f} (CPU)")
    print(f"the same answer at {same} of {len(spec.lengths)} lengths; mean length {np.mean(spec.lengths):.0f}")


if __name__ == "__main__":
    main(*[*sys.argv[1:], None, None][:2])
