"""Every Eval Ever, schema 0.3.0 (evaleval/every_eval_ever, 2026-08): one aggregate file, each score with its interval.

Samples are left out, as that project advises for long prompts: a run folder has them. Every value of its free maps has
to be a string, and a score has to lie between the bounds that its metric states.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from pathlib import Path
from typing import Any

from leadline.features.exchange.exported import (
    CONFIDENCE,
    ExportedScore,
    ModelId,
    created,
    exported_scores,
    uncertainty_method,
)
from leadline.results.run import Run
from leadline.results.verdict import verdict

SCHEMA = "0.3.0"
COLLECTION = "leadline"
PROVIDERS = {"hf": "transformers", "openai": "an OpenAI-compatible server"}


def every_eval_ever(run: Run, model: ModelId) -> tuple[Path, dict[str, Any]]:
    """Where its store expects the file, and the file's values."""
    evaluation = f"{run.name}/{model}/{run.manifest.digest}"
    identity = uuid.UUID(bytes=hashlib.sha256(evaluation.encode()).digest()[:16], version=4)
    session = run.manifest.sessions[-1] if run.manifest.sessions else None
    values = {
        "schema_version": SCHEMA,
        "evaluation_id": evaluation,
        "evaluation_timestamp": created(run).isoformat(),
        "retrieved_timestamp": str(int(time.time())),
        "source_metadata": {
            "source_name": "Leadline",
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "leadline", "version": session.leadline if session else "unknown"},
        "model_info": _model(run, model),
        "evaluation_results": [
            *(_result(run, score) for score in exported_scores(run)),
            *_effective(run),
        ],
    }
    return Path("data", COLLECTION, model.developer, model.name, f"{identity}.json"), values


def _model(run: Run, model: ModelId) -> dict[str, Any]:
    provider = str(run.manifest.spec.get("model", "")).partition(":")[0]
    packages = run.manifest.sessions[-1].packages if run.manifest.sessions else {}
    details = {
        "deployment_type": "self_deployed" if provider == "hf" else "unknown",
        "model_availability": "open_weights" if provider == "hf" else "unknown",
        "context_window_claimed": str(run.window or "unknown"),
        "provider": PROVIDERS.get(provider, provider),
    }
    engine = {"name": "transformers", "version": packages.get("transformers", "unknown")}
    return {
        "name": run.label,
        "id": str(model),
        "developer": model.developer,
        **({"inference_engine": engine} if provider == "hf" else {}),
        "additional_details": details,
    }


def _result(run: Run, score: ExportedScore) -> dict[str, Any]:
    return {
        "evaluation_result_id": f"{run.manifest.digest}/{score.task}/{score.length}",
        "evaluation_name": score.name,
        "source_data": {"dataset_name": f"leadline/{score.task}", "source_type": "other"},
        "evaluation_timestamp": created(run).isoformat(),
        "metric_config": {
            "evaluation_description": f"{score.task} in prompts of {score.length:,} tokens, {run.reading} reading",
            "metric_id": f"leadline.{score.metric or 'score'}",
            "metric_name": score.metric or "score",
            "metric_kind": "accuracy",
            "metric_unit": "proportion",
            "metric_parameters": {"length": score.length, "level": "task and length", "reading": run.reading},
            "lower_is_better": False,
            "score_type": "continuous",
            "min_score": 0.0,
            "max_score": 1.0,
        },
        "score_details": {
            "score": score.mean,
            "details": {
                "planned": str(score.tally.planned),
                "answered": str(score.tally.done),
                "failed": str(score.tally.failed),
                "counting": run.table.counting_rule,
            },
            "uncertainty": {
                "confidence_interval": {
                    "lower": score.low, "upper": score.high, "confidence_level": CONFIDENCE,
                    "method": uncertainty_method(run),
                },
                "num_samples": score.tally.done,
            },
        },
        "generation_config": {"additional_details": _generation(run)},
    }  # fmt: skip


def _generation(run: Run) -> dict[str, str]:
    spec = run.manifest.spec
    return {
        name: str(spec.get(name)) for name in ("reading", "samples", "seed", "depths") if spec.get(name) is not None
    }


def _effective(run: Run) -> list[dict[str, Any]]:
    """The effective length, where it is decided; else nothing, because the schema has no score that is not known."""
    effective = verdict(run).effective
    if effective is None or not effective.decided or not effective.falls or effective.bound == "below":
        return []
    interval = {"lower": float(effective.low), "upper": float(effective.high), "confidence_level": effective.confidence}
    closed = not (effective.low_open or effective.high_open)
    return [
        {
            "evaluation_result_id": f"{run.manifest.digest}/effective_length",
            "evaluation_name": "effective_length",
            "source_data": {"dataset_name": f"leadline/{run.name}", "source_type": "other"},
            "metric_config": {
                "evaluation_description": "the longest measured length that still reaches the threshold",
                "metric_id": "leadline.effective_length",
                "metric_name": "effective context length",
                "metric_kind": "length",
                "metric_unit": "tokens",
                "metric_parameters": {"threshold": effective.threshold, "level": "whole run"},
                "lower_is_better": False,
                "score_type": "continuous",
                "min_score": 0.0,
                "max_score": "Infinity",
            },
            "score_details": {
                "score": float(effective.length),
                "details": {"text": str(effective)},
                **({"uncertainty": {"confidence_interval": interval}} if closed else {}),
            },
        }
    ]
