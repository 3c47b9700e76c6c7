"""Inspect's `.eval` log of a run, written by Inspect's own library, so that `inspect view` and its API read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from leadline.core.answers import Completion
from leadline.core.errors import MissingExtra, StoreError
from leadline.core.records import Record
from leadline.features.exchange.exported import ExportedScore, answered, created, exported_scores, kept_prompt
from leadline.results.run import Run

STOP_REASONS = {"stop": "stop", "length": "max_tokens", "content_filter": "content_filter"}


def write_inspect_log(run: Run, path: Path) -> Path:
    """One sample for each answered question, with all its scores. Failed samples are counted in the header."""
    try:
        from inspect_ai import log
    except ImportError:
        raise MissingExtra("inspect_ai", "inspect", where="--as inspect") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    scores = exported_scores(run)
    samples = [_sample(run, record, completion) for record, completion in answered(run)]
    eval_log = log.EvalLog(
        status="success" if not run.table.whole.missing else "started",
        eval=log.EvalSpec(
            created=created(run).isoformat(), task=run.name, eval_id=run.manifest.digest, run_id=run.manifest.digest,
            task_args={k: v for k, v in run.manifest.spec.items() if k in ("lengths", "depths", "samples", "reading")},
            dataset=log.EvalDataset(name="leadline", samples=run.totals.planned, sample_ids=[s.id for s in samples]),
            model=run.label, config=log.EvalConfig(),
            metadata={"counting": run.table.counting_rule, "failed": run.totals.failed},
        ),
        results=log.EvalResults(
            total_samples=run.totals.planned, completed_samples=len(samples), scores=[_eval_score(s) for s in scores]
        ),
        samples=samples,
    )  # fmt: skip
    try:
        log.write_eval_log(eval_log, str(path), format="eval")
    except OSError as error:
        raise StoreError(f"cannot write the log: {error.strerror or error}", where=str(path)) from None
    return path


def _eval_score(score: ExportedScore) -> Any:
    from inspect_ai.log import EvalMetric, EvalScore

    values = {"mean": score.mean, "interval_low": score.low, "interval_high": score.high}
    return EvalScore(
        name=score.name,
        scorer=score.metric or "score",
        scored_samples=score.tally.done,
        metrics={name: EvalMetric(name=name, value=value) for name, value in values.items()},
        metadata={"task": score.task, "length": score.length},
    )


def _sample(run: Run, record: Record, completion: Completion) -> Any:
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ModelOutput, ModelUsage
    from inspect_ai.scorer import Score

    prompt, question = kept_prompt(run, record), record.question
    output = ModelOutput.from_content(
        completion.model or run.label, completion.text, stop_reason=STOP_REASONS.get(completion.finish, "unknown")
    )
    cached, read_tokens = completion.cached_tokens or 0, record.receipt.read or record.prompt_tokens
    output.usage = ModelUsage(
        input_tokens=max(0, read_tokens - cached),
        input_tokens_cache_read=cached or None,
        output_tokens=completion.completion_tokens or 0,
        total_tokens=read_tokens + (completion.completion_tokens or 0),
        reasoning_tokens=completion.thinking_tokens,
    )
    output.time = record.seconds
    return EvalSample(
        id=record.cell.key,
        epoch=1,
        input=prompt if prompt is not None else question.text,
        target=list(question.targets),
        output=output,
        scores={
            name: Score(value=s.value, answer=s.answer or completion.text, explanation=s.explanation or None)
            for name, s in record.scores.items()
        },
        metadata={
            "task": record.cell.task, "length": record.cell.length, "depth": record.cell.depth,
            "sample": record.cell.sample, "document": record.document, "failure_class": record.failure_class,
            "match": question.match, "prompt_kept": prompt is not None,
        },
        total_time=record.seconds,
    )  # fmt: skip
