"""SmolLM2 on this machine's CPU: the demo's grid read once per document, beside one prompt per probe.

    python benchmarks/demo_cpu.py                        the demo's grid
    python benchmarks/demo_cpu.py 512,1k,2k,4k 5 nested  other lengths, depths and reading

One sample is measured whole. The plain loop is measured with one probe per length and multiplied by the number of
depths, since all of it would take the better part of an hour. CPU seconds stand beside wall-clock seconds because other
work on the machine stretches the latter. Answers of both paths are compared.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from leadline.cli.demo import SPEC
from leadline.core import registry
from leadline.core.answers import Completion
from leadline.core.spec import Spec, make_spec
from leadline.core.types import Document
from leadline.models.hf import HF
from leadline.models.hf.decode import generate_plain
from leadline.models.hf.model import HFModel
from leadline.run.documents import planned_documents
from leadline.text.fitting import Fitter


def clock(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """(wall seconds, CPU seconds, what came of it)"""
    wall, cpu = time.perf_counter(), time.process_time()
    got = work()
    return time.perf_counter() - wall, time.process_time() - cpu, got


def first_sample(spec: Spec, model: Any) -> list[Document]:
    tasks = {t.title: registry.task(t) for t in spec.tasks}
    fitter = Fitter(model.tokenizer, model.frame)
    first = [planned for planned in planned_documents(spec, tasks) if planned.cells[0].sample == 0]
    return [planned.task.document(planned.cells, seed=spec.seed, fitter=fitter) for planned in first]


def main(lengths: str | None, depths: str | None, reading: str | None) -> None:
    given = {"lengths": lengths, "depths": depths, "reading": reading}
    spec = make_spec({**SPEC, **{key: value for key, value in given.items() if value}}, where="benchmark")
    model = HF().open("smollm2")
    assert isinstance(model, HFModel)
    documents = first_sample(spec, model)
    wall, cpu, told = clock(lambda: [model.answer(d, d.probes) for d in documents])
    asked = [
        (document, probe, answer)
        for document, answers in zip(documents, told, strict=True)
        for probe, answer in zip(document.probes, answers, strict=True)
    ]
    tokens = sum(max(p.cut for p in d.probes) for d in documents)
    print(f"{spec.reading}: {len(asked)} probes over {tokens} tokens: {wall:.0f} s, {cpu:.0f} CPU s", flush=True)
    model.close()
    engine = model.engine
    engine.reader.use_own_attention()
    plain_wall = plain_cpu = 0.0
    same = 0
    middle = len(spec.depths) // 2
    for length in spec.lengths:
        document, probe, answer = [one for one in asked if one[1].cell.length == length][middle]
        prompt = document.prompt_ids(probe)
        plain = partial(generate_plain, engine.model, prompt, probe.question.allowance, engine.stops)
        one_wall, one_cpu, got = clock(plain)
        plain_wall += one_wall * len(spec.depths)
        plain_cpu += one_cpu * len(spec.depths)
        same += isinstance(answer.outcome, Completion) and answer.outcome.text == model.tokenizer.decode(got.ids)
        print(f"plain: a probe of {len(prompt)} tokens: {one_wall:.1f} s, {one_cpu:.1f} CPU s", flush=True)
    print(f"plain loop on the same grid: {plain_wall:.0f} s, {plain_cpu:.0f} CPU s a sample")
    print(f"faster by {plain_wall / wall:.1f} (wall), {plain_cpu / cpu:.1f} (CPU)")
    print(f"the same answer at {same} of {len(spec.lengths)} lengths")


if __name__ == "__main__":
    main(*[*sys.argv[1:], None, None, None][:3])
