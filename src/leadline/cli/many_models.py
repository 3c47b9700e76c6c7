"""Runs of a list of models: reading the list, measuring each model, comparing them, and writing a submission file."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path
from typing import Annotated, Any

import typer

import leadline
from leadline.console.options import RunOptions, spec_of, suite_of, thinking_settings, with_thinking
from leadline.console.output import echo, print_json, print_table
from leadline.console.progress import ManyModelsListener, SanitisingConsole
from leadline.core import registry
from leadline.core.errors import FailedSamples, UnknownName, UsageError
from leadline.core.format import format_count, format_span
from leadline.core.seeds import digest
from leadline.core.spec import Logging, NamedModel, load_spec, parse_models, read_models
from leadline.results.summary import totals_values
from leadline.results.verdict import failures_fix
from leadline.run.events import ModelRun, ModelRunResult
from leadline.run.many_models import is_complete, measure_all, submission_entries
from leadline.run.measure import CheckModel
from leadline.stats.logprobs import metric_of
from leadline.stats.ruler_summary import ranks
from leadline.store.manifest import now
from leadline.store.runs import slug
from leadline.store.submissions import Submission, SubmissionEntry, merged, read_submission, write_submission
from leadline.tasks.standard import STANDARD

LISTED_SAMPLES = 8
"""Samples per cell of the suite `standard`, where no rule decides."""
ModelsOption = Annotated[
    Path | None,
    typer.Option(
        help='TOML or JSON file with a list such as models = ["hf:a", "hf:b"]; one run per model. A spec may have the '
        "list too.",
        metavar="FILE",
        show_default=False,
    ),
]
ShardOption = Annotated[
    str, typer.Option(help="Measure a part of the models: 2/4 is every fourth from the second on.", metavar="N/COUNT")
]

IncludeModelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--include-model", metavar="NAME", help="Only this model of the list, or all like `qwen*`. Repeatable."
    ),
]


def listed_models(
    flags: RunOptions, file: Path | None, shard: str = "", include: Sequence[str] | None = None
) -> list[NamedModel]:
    """The models of --models or of the spec file, reduced to those included and to the shard; empty for a run of one
    model."""
    number, count = parse_shard(shard)
    if flags.model is not None and file is not None:
        raise UsageError("--model and --models exclude each other", where="--models", fix="use one of them")
    models: list[NamedModel] = []
    if file is not None:
        models = read_models(file)
    elif flags.model is None and flags.what and flags.what.endswith(".toml"):
        values = load_spec(Path(flags.what))
        if "models" in values and "model" in values:
            raise UsageError("a spec has either model or models", where=flags.what, fix="remove one of them")
        models = parse_models(values["models"], where=flags.what) if "models" in values else []
    settings = thinking_settings(flags.thinking) if flags.thinking else []
    if len(settings) > 1:
        models = _thinking_sweep(models or [_only_model(flags)], settings)
    if shard and not models:
        raise UsageError("--shard needs a list of models", where="--shard", fix="add --models FILE")
    if include and not models:
        raise UsageError("--include-model needs a list of models", where="--include-model", fix="add --models FILE")
    part = _included(models, include or ())[number - 1 :: count]
    if models and not part:
        raise UsageError("this shard has no models", where="--shard", fix="use no more shards than models")
    return part


def _only_model(flags: RunOptions) -> NamedModel:
    model = flags.model
    if model is None and flags.what and flags.what.endswith(".toml"):
        model = load_spec(Path(flags.what)).get("model")
    if not model:
        raise UsageError("no model given", where="--thinking", fix="add --model openai:NAME?base_url=...")
    return NamedModel(model, model)


def _thinking_sweep(models: Sequence[NamedModel], settings: Sequence[str]) -> list[NamedModel]:
    """Each model with each thinking setting. A single model is named by the setting alone."""
    if fixed := next((named for named in models if "thinking=" in named.model.partition("?")[2]), None):
        raise UsageError(
            "the model's name says how it thinks, and --thinking does too",
            where=fixed.model,
            fix="leave out thinking= in the model's name",
        )
    return [
        NamedModel(
            f"thinking {setting}" if len(models) == 1 else f"{named.name}, thinking {setting}",
            with_thinking(named.model, setting),
        )
        for named in models
        for setting in settings
    ]


def _included(models: Sequence[NamedModel], patterns: Sequence[str]) -> list[NamedModel]:
    """The models whose name in the list, or whose model, is like one of the patterns; all without patterns."""
    chosen: set[str] = set()
    for pattern in patterns:
        matching = {
            named.name for named in models if any(fnmatchcase(text, pattern) for text in (named.name, named.model))
        }
        if not matching:
            raise UnknownName("model", pattern, [named.name for named in models], where="--include-model")
        chosen |= matching
    return [named for named in models if not patterns or named.name in chosen]


def parse_shard(text: str) -> tuple[int, int]:
    """`2/4` is the second of four."""
    if not text:
        return 1, 1
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"{text!r} is not a shard", where="--shard", fix="write 1/4 for the first of four")
    return int(match[1]), int(match[2])


def model_runs(
    flags: RunOptions, models: Sequence[NamedModel], until: str, logging: Logging | None = None
) -> tuple[Path, list[ModelRun]]:
    """The common folder and the run of each model. The folder's name depends on the spec and not on the models."""
    specs = [spec_of(replace(flags, model=named.model)) for named in models]
    if logging is not None:
        specs = [spec.model_copy(update={"log": logging}) for spec in specs]
    if suite_of(flags) == STANDARD.name:  # every model gets the same samples
        specs = [spec.model_copy(update={"until": "", "samples": flags.samples or LISTED_SAMPLES}) for spec in specs]
    for spec in specs:
        registry.provider(registry.ModelName.parse(spec.model))  # an unknown option, before anything is measured
    if specs[0].limits.time:
        raise UsageError("--time is for one model", where="--time", fix="remove it, or give one --model")
    if until or specs[0].until:
        raise UsageError(
            "--until cannot be used with a list of models, because each model would get different samples",
            where="--until",
            fix="remove it, or give one --model",
        )
    all_but_model = {k: v for k, v in specs[0].identity().items() if k != "model"}
    named = slug(suite_of(flags) or specs[0].tasks[0].title)
    folder = flags.out or Path("runs") / f"models-{named}-{digest(all_but_model, 8)}"
    return folder, [
        ModelRun(named.name, spec, folder / slug(named.name)) for named, spec in zip(models, specs, strict=True)
    ]


def measure_models(
    runs: Sequence[ModelRun], *, keep_prompts: bool = False, check: CheckModel | None = None
) -> list[ModelRunResult]:
    """Measures all models, with their progress in the terminal."""
    with ManyModelsListener(sum(not is_complete(run) for run in runs)) as listener:
        return measure_all(runs, listen=listener.hear, keep_prompts=keep_prompts, check=check)


def finish_models(
    results: Sequence[ModelRunResult],
    folder: Path,
    *,
    as_json: bool,
    page: bool,
    submission: Path | None,
    shard: str = "",
) -> None:
    """Shows the models side by side, writes a page and the submission; raises if a model or sample failed."""
    names = [result.model_run.name for result in results if result.run is not None]
    runs = [result.run for result in results if result.run is not None]
    written = None
    if page and runs:
        from leadline.report.page import write_page  # imports altair

        written = write_page(runs, folder / "report.html")
    submitted = _submit(results, submission, shard) if submission is not None else None
    if as_json:
        models = [_as_json(result) for result in results]
        print_json({"folder": folder, "page": written, "submission": submission, "models": models})
    elif runs:
        from leadline.report.terminal import show_side_by_side  # imports altair

        show_side_by_side(runs, names, SanitisingConsole())
        echo()
        if submitted is not None:
            _show_ranking(submitted)
            echo(f"submission {submission}")
        echo(f"records   {folder}")
        if written is not None:
            echo(f"page      {written}")
        answered = [run.folder for run in runs if run.table.tasks]
        if len(answered) > 1:
            echo(f"pairs     leadline compare {answered[0]} {answered[1]}")
    _raise_failures(results, folder)


def _raise_failures(results: Sequence[ModelRunResult], folder: Path) -> None:
    reasons = [f"{r.model_run.name} ({r.error.what})" for r in results if r.error is not None]
    reasons += [
        f"{r.model_run.name} ({format_count(r.run.totals.failed, 'failed sample')})"
        for r in results
        if r.run is not None and r.run.totals.failed
    ]
    if reasons:
        failed = next((r.run for r in results if r.run is not None and r.run.totals.failed), None)
        raise FailedSamples(
            f"{len(reasons)} of {format_count(len(results), 'model')} incomplete: {'; '.join(reasons[:3])}",
            where=str(folder),
            fix=failures_fix(failed) if failed else "run the same command again: it measures only what is missing",
        )


def _as_json(result: ModelRunResult) -> dict[str, Any]:
    return {
        "name": result.model_run.name,
        "model": result.model_run.spec.model,
        "folder": str(result.model_run.folder),
        "error": result.error.what if result.error is not None else "",
        **(totals_values(result.run) if result.run is not None else {}),
    }


# --- submission files


def _submit(results: Sequence[ModelRunResult], path: Path, shard: str) -> Submission:
    """Writes the scores of all models. Each shard writes its own file beside it and merges those that are there."""
    entries = tuple(submission_entries(results))
    spec = results[0].model_run.spec
    metric = next((name for entry in entries for name in entry.scores), spec.tasks[0].title)
    submission = Submission(
        metric=metric,
        better=metric_of(metric).better,
        spec={k: v for k, v in spec.identity().items() if k != "model"},
        created=now(),
        leadline=leadline.__version__,
        entries=entries,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    if shard:
        write_submission(submission, path.with_name(f"{path.stem}-{shard.replace('/', '-of-')}{path.suffix}"))
        shards = sorted(path.parent.glob(f"{escape(path.stem)}-*-of-*{escape(path.suffix)}"))
        submission = merged([read_submission(file) for file in shards])
    write_submission(submission, path)
    return submission


def _show_ranking(submission: Submission) -> None:
    sign = -1 if submission.better == "higher" else 1
    ranked = sorted(submission.entries, key=lambda e: (e.score is None, sign * (e.score or 0.0)))
    places = ranks([-math.inf if e.score is None else -sign * e.score for e in ranked])
    rows = [(str(rank), *_ranking_cells(e, submission.metric)) for rank, e in zip(places, ranked, strict=True)]
    print_table(rows, ("rank", "model", submission.metric, "95% interval", "documents"), right=frozenset({0, 2, 4}))
    echo(f"\n{submission.better} is better")


def _ranking_cells(entry: SubmissionEntry, metric: str) -> tuple[str, str, str, str]:
    if entry.score is None or metric not in entry.scores:
        return entry.name, "failed", entry.error, ""
    score = entry.scores[metric]
    interval = format_span(score.low, score.high, ".4f") if score.low is not None and score.high is not None else ""
    return entry.name, f"{entry.score:.4f}", interval, str(score.documents)
