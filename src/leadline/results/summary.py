"""A run as plain values, for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leadline.results.breakdowns import AbsentRates, Stratum, TaskVerdict, WordingSpread
from leadline.results.repeats import Repeats
from leadline.results.run import Run
from leadline.results.sentences import effective_warning
from leadline.results.table import BESIDE_HEADLINE, GridPoint, Tally, means_by
from leadline.results.totals import is_shown, thinking_values
from leadline.results.verdict import effective_parts, format_truncation, verdict, verdict_by_task
from leadline.stats.effective import VERSION, EffectiveLength
from leadline.stats.intervals import Estimate
from leadline.stats.marginals import design_effect
from leadline.stats.ruler_summary import SuiteRow, SuiteSummary


def summary(run: Run) -> dict[str, Any]:
    """The whole table; sections have values of their own. A mean that does not exist is null, never zero."""
    table, totals, run_verdict = run.table, run.totals, verdict(run)
    beside = {scorer: means_by(table, scorer) for scorer in BESIDE_HEADLINE}
    return {
        "run": str(run.folder),
        "digest": run.manifest.digest,
        "name": run.label,
        "model": run.manifest.spec.get("model"),
        "warning": format_truncation(run).strip() or None,
        "window": run.window,
        "reading": run.reading,
        "created": run.manifest.created,
        "counting": table.counting_rule,
        "design_effect": _design_effect_values(run),
        "diagnosis": list(run_verdict.shapes),
        "effective_length": effective_values(run_verdict.effective),
        "effective_length_of_parts": {
            name: {part: effective_values(effective) for part, effective in parts.items()}
            for name, parts in effective_parts(run).items()
        },
        "unreadable_lines": [str(line) for line in run.unreadable],
        "suite": suite_values(run.suite, intervals=not run.rule) if run.suite else None,
        **tally_values(table.whole),
        "prompt_tokens": totals.prompt_tokens,
        "completion_tokens": totals.completion_tokens,
        **_money_values(run),
        **({"served_by": dict(totals.served_by)} if totals.served_by else {}),
        "receipts": _receipt_values(run),
        "lengths": [
            {
                "task": task,
                "length": length,
                **tally_values(tally),
                "details": dict(table.details.get((task, length), {})),
                **{scorer: means.get((task, length)) for scorer, means in beside.items()},
            }
            for (task, length), tally in table.by_task_and_length.items()
        ],
        "no_context": [
            {"task": task, "length": length, **tally_values(tally)}
            for (task, length), tally in run.no_context.by_task_and_length.items()
        ],
        **(
            {
                "strata": [stratum_values(stratum) for stratum in run.strata],
                "verdicts": [task_verdict_values(task_verdict) for task_verdict in verdict_by_task(run)],
            }
            if run.strata
            else {}
        ),
        **({"absent": [absent_values(rates) for rates in run.absent]} if run.absent else {}),
        **({"repeats": repeats_values(run.repeats)} if run.repeats is not None else {}),
        **({"wordings": [wording_values(spread) for spread in run.wordings]} if run.wordings else {}),
        "cells": [{**point._asdict(), **tally_values(tally)} for point, tally in table.cells.items()],
    }


def _design_effect_values(run: Run) -> dict[str, Any]:
    effect = design_effect(run.table.counted)
    return {
        "samples": effect.samples,
        "documents": effect.documents,
        "samples_per_document": effect.size,
        "intraclass_correlation": effect.correlation,
        "design_effect": effect.effect,
        "haystacks_lost_whole": effect.lost,
        "lost_whole_unseen": effect.unseen,
    }


def repeats_values(repeats: Repeats) -> dict[str, Any]:
    return {
        "questions": repeats.questions,
        "flipped": repeats.flipped,
        "other_text": repeats.other_text,
        "other_prompt": repeats.other_prompt,
        "flip_rate": estimate_values(repeats.rate),
    }


def wording_values(spread: WordingSpread) -> dict[str, Any]:
    return {
        "task": spread.task,
        "length": spread.length,
        "mean": estimate_values(spread.mean),
        "percent_by_wording": {number: 100 * mean for number, mean in spread.means.items()},
        "lowest_percent": 100 * spread.lowest[1],
        "highest_percent": 100 * spread.highest[1],
        "standard_deviation_percent": 100 * spread.deviation,
    }


def stratum_values(stratum: Stratum) -> dict[str, Any]:
    return {
        "task": stratum.task,
        stratum.label: stratum.value,
        "lengths": [{"length": n, **(estimate_values(estimate) or {})} for n, estimate in stratum.by_length.items()],
    }


def task_verdict_values(task_verdict: TaskVerdict) -> dict[str, Any]:
    return {
        "task": task_verdict.task,
        "effective_length": effective_values(task_verdict.effective) if task_verdict.effective else None,
        "longest": task_verdict.longest,
        "at_longest": estimate_values(task_verdict.mean),
        "weakest": task_verdict.weakest.value if task_verdict.weakest else None,
        "weakest_at_longest": estimate_values(task_verdict.weakest_mean),
        "mistake": task_verdict.mistake or None,
        "mistakes": task_verdict.mistakes,
    }


def absent_values(rates: AbsentRates) -> dict[str, Any]:
    return {
        "task": rates.task,
        "length": rates.length,
        "accuracy": estimate_values(rates.accuracy),
        "false_abstentions": estimate_values(rates.false_abstentions),
        "false_alarms": estimate_values(rates.false_alarms),
    }


def estimate_values(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {
        "percent": 100 * estimate.mean,
        "low": 100 * estimate.interval.low,
        "high": 100 * estimate.interval.high,
        "samples": estimate.n,
    }


def suite_values(suite: SuiteSummary, *, intervals: bool = True) -> dict[str, Any]:
    """RULER's summary in percent: averages over lengths, effective length by its rule, and means of categories. Without
    intervals where a stopping rule chose the number of samples."""

    def estimate(mean: Estimate | None) -> dict[str, Any] | None:
        values = estimate_values(mean)
        return values | ({} if intervals else {"low": None, "high": None}) if values else None

    def row(summary: SuiteRow) -> dict[str, Any]:
        averages = summary.averages
        return {
            "name": summary.name,
            "scores": {str(length): estimate(score) for length, score in summary.scores.items()},
            "average": estimate(averages.average) if averages else None,
            "wavg_inc": estimate(averages.increasing) if averages else None,
            "wavg_dec": estimate(averages.decreasing) if averages else None,
            "effective": str(summary.effective) if summary.effective else None,
            "effective_tokens": summary.effective.length if summary.effective else None,
            "effective_own": str(summary.effective_own) if summary.effective_own else None,
            "effective_own_tokens": summary.effective_own.length if summary.effective_own else None,
        }

    return {
        "threshold": suite.threshold,
        "whole": row(suite.whole),
        "published": row(suite.published) if suite.published else None,
        "categories": [row(category) for category in suite.categories],
        "tasks": [row(task) for task in suite.tasks],
    }


def _receipt_values(run: Run) -> dict[str, int]:
    """The model's own token counts beside ours, in the words of terminal and page."""
    return {
        "equal": run.receipts.equal,
        "different": run.receipts.different,
        "not_given": run.receipts.not_given,
        "largest_difference": run.receipts.largest_difference,
        **({"estimated": run.receipts.estimated} if run.receipts.estimated else {}),
    }


def _money_values(run: Run) -> dict[str, Any]:
    """Nothing without prices."""
    model = {"money": run.money, "currency": run.tariff.currency, "prices": run.tariff.origin} if run.tariff else {}
    return {**model, **({"judge_money": run.judge_money} if run.judge_money else {})}


def totals_values(run: Run) -> dict[str, Any]:
    """The counts of a run as plain values."""
    totals = run.totals
    return {
        "folder": str(run.folder),
        "planned": totals.planned,
        "done": totals.done,
        "failed": totals.failed,
        "truncated": totals.truncated,
        "missing": totals.missing,
        "retried": totals.retried,
        "classes": dict(totals.classes),
        "failures": dict(totals.failures),
        "messages": totals.messages,
        "receipts": _receipt_values(run),
        "prompt_tokens": totals.prompt_tokens,
        "completion_tokens": totals.completion_tokens,
        "cache": totals.cache.values(),
        **(
            {"thinking_tokens": totals.thinking_tokens, "thinking": thinking_values(totals.thinking)}
            if is_shown(totals.thinking)
            else {}
        ),
        **_money_values(run),
    }


def effective_values(effective: EffectiveLength | None) -> dict[str, Any] | None:
    """Null where fewer than two lengths were answered. An open end lies outside what was measured. Where not every
    length is decided, `surely_reached` and `surely_failed` are what is sure all the same."""
    if effective is None:
        return None
    return {
        "words": str(effective),
        "decided": effective.decided,
        "surely_reached": effective.surely_reached,
        "surely_failed": effective.surely_failed,
        "open_lengths": list(effective.open_lengths),
        "bound": effective.bound,
        "length": round(effective.length),
        "low": None if effective.low_open else round(effective.low),
        "high": None if effective.high_open else round(effective.high),
        "threshold": effective.threshold,
        "interpolated": None if effective.interpolated is None else round(effective.interpolated),
        "largest_measured": effective.largest_measured,
        "falls": effective.falls,
        "version": VERSION,
        "warning": effective_warning(effective),
    }


def cell_table(runs: Sequence[Run]) -> dict[str, Any]:
    """The tidy table of cells of some runs: columns and rows."""
    names = ("planned", "done", "failed", "mean", "low", "high", "method")
    rows = []
    for run in runs:
        for point, tally in run.table.cells.items():
            values = tally_values(tally)
            rows.append([run.name, *point, *(values[name] for name in names)])
    return {"columns": ["run", *GridPoint._fields, *names], "rows": rows}


def tally_values(tally: Tally) -> dict[str, Any]:
    interval = tally.interval
    return {
        "planned": tally.planned,
        "done": tally.done,
        "failed": tally.failed,
        "mean": tally.mean,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "method": interval.method if interval else None,
        "mean_if_failed_were_wrong": tally.if_failed_wrong,
        "classes": dict(tally.classes),
    }
