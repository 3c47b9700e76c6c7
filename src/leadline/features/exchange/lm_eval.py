"""lm-evaluation-harness: `results_DATE.json` and `samples_TASK_DATE.jsonl`, as its `--output_path --log_samples` writes
them, for programs that read those. It has no axis of length, so every length is a task of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from leadline.core.answers import Completion
from leadline.core.records import Record
from leadline.features.exchange.exported import ExportedScore, ModelId, answered, created, exported_scores, kept_prompt
from leadline.results.run import Run
from leadline.store.runs import slug


def lm_eval_files(run: Run, model: ModelId) -> Iterator[tuple[Path, str]]:
    """The results first, then the samples of each task."""
    date, scores = created(run).strftime("%Y-%m-%dT%H-%M-%S.%f"), exported_scores(run)
    folder = Path(f"{model.developer}__{model.name}")
    yield folder / f"results_{date}.json", json.dumps(_results(run, model, scores), indent=2) + "\n"
    names = {(score.task, score.length): score.name for score in scores}
    lines: dict[str, list[str]] = {}
    for record, completion in answered(run):
        name = names[record.cell.task, record.cell.length]
        own = lines.setdefault(name, [])
        own.append(json.dumps(_sample(run, record, completion, len(own)), ensure_ascii=False) + "\n")
    for name, own in lines.items():
        yield folder / f"samples_{slug(name)}_{date}.jsonl", "".join(own)


def _results(run: Run, model: ModelId, scores: list[ExportedScore]) -> dict[str, Any]:
    spec = run.manifest.spec
    return {
        "results": {
            s.name: {
                "alias": s.name,
                f"{s.metric},none": s.mean,
                f"{s.metric}_stderr,none": s.standard_error,
                "interval_low,none": s.low,
                "interval_high,none": s.high,
            }
            for s in scores
        },
        "configs": {
            s.name: {"task": s.name, "metadata": {"length": s.length, "task": s.task, "reading": run.reading}}
            for s in scores
        },
        "versions": {s.name: str(run.manifest.tasks.get(s.task, {}).get("version", "")) for s in scores},
        "n-shot": {s.name: 0 for s in scores},
        "higher_is_better": {s.name: {s.metric: True} for s in scores},
        "n-samples": {s.name: {"original": s.tally.planned, "effective": s.tally.done} for s in scores},
        "config": {"model": str(spec.get("model", "")), "model_args": "", "random_seed": spec.get("seed")},
        "model_name": str(model),
        "model_source": "leadline",
        "date": created(run).timestamp(),
    }  # fmt: skip


def _sample(run: Run, record: Record, completion: Completion, number: int) -> dict[str, Any]:
    question, prompt = record.question, kept_prompt(run, record)
    doc = {
        "index": number, "question": question.text, "outputs": list(question.targets),
        "gen_prefix": question.answer_prefix, "length": record.prompt_tokens + question.allowance,
        "max_length": record.cell.length, "depth": record.cell.depth, "key": record.cell.key,
        **({"input": prompt} if prompt is not None else {}),
    }  # fmt: skip
    return {
        "doc_id": number,
        "doc": doc,
        "target": list(question.targets),
        "arguments": [[prompt if prompt is not None else question.text, {"max_gen_toks": question.allowance}]],
        "resps": [[completion.text]],
        "filtered_resps": [completion.text],
        "filter": "none",
        "metrics": list(record.scores),
        "doc_hash": hashlib.sha256(json.dumps(doc, sort_keys=True).encode()).hexdigest(),
        "prompt_hash": record.prompt_digest,
        "target_hash": hashlib.sha256(json.dumps(question.targets).encode()).hexdigest(),
        **{name: score.value for name, score in record.scores.items()},
    }
