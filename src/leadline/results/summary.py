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
    table, totals, found = run.table, run.totals, verdict(run)
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
        "diagnosis": list(found.shapes),
        "effective_length": effective_values(found.effective),
        "effective_length_of_parts": {
            name: {part: effective_values(one) for part, one in parts.items()}
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
                "strata": [stratum_values(one) for one in run.strata],
                "verdicts": [task_verdict_values(one) for one in verdict_by_task(run)],
            }
            if run.strata
            else {}
        ),
        **({"absent": [absent_values(one) for one in run.absent]} if run.absent else {}),
        **({"repeats": repeats_values(run.repeats)} if run.repeats is not None else {}),
        **({"wordings": [wording_values(one) for one in run.wordings]} if run.wordings else {}),
        "cells": [{**place._asdict(), **tally_values(tally)} for place, tally in table.cells.items()],
    }


def _design_effect_values(run: Run) -> dict[str, Any]:
    found = design_effect(run.table.counted)
    return {
        "samples": found.samples,
        "documents": found.documents,
        "samples_per_document": found.size,
        "intraclass_correlation": found.correlation,
        "design_effect": found.effect,
        "haystacks_lost_whole": found.lost,
        "lost_whole_unseen": found.unseen,
    }


def repeats_values(repeats: Repeats) -> dict[str, Any]:
    return {
        "questions": repeats.questions,
        "flipped": repeats.flipped,
        "other_text": repeats.other_text,
        "other_prompt": repeats.other_prompt,
        "flip_rate": estimate_values(repeats.rate),
    }


def wording_values(one: WordingSpread) -> dict[str, Any]:
    return {
        "task": one.task,
        "length": one.length,
        "mean": estimate_values(one.mean),
        "percent_by_wording": {number: 100 * mean for number, mean in one.means.items()},
        "lowest_percent": 100 * one.lowest[1],
        "highest_percent": 100 * one.highest[1],
        "standard_deviation_percent": 100 * one.deviation,
    }


def stratum_values(one: Stratum) -> dict[str, Any]:
    return {
        "task": one.task,
        one.label: one.value,
        "lengths": [{"length": n, **(estimate_values(found) or {})} for n, found in one.by_length.items()],
    }


def task_verdict_values(one: TaskVerdict) -> dict[str, Any]:
    return {
        "task": one.task,
        "effective_length": effective_values(one.effective) if one.effective else None,
        "longest": one.longest,
        "at_longest": estimate_values(one.mean),
        "weakest": one.weakest.value if one.weakest else None,
        "weakest_at_longest": estimate_values(one.weakest_mean),
        "mistake": one.mistake or None,
        "mistakes": one.mistakes,
    }


def absent_values(one: AbsentRates) -> dict[str, Any]:
    return {
        "task": one.task,
        "length": one.length,
        "accuracy": estimate_values(one.accuracy),
        "false_abstentions": estimate_values(one.false_abstentions),
        "false_alarms": estimate_values(one.false_alarms),
    }


def estimate_values(found: Estimate | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "percent": 100 * found.mean,
        "low": 100 * found.interval.low,
        "high": 100 * found.interval.high,
        "samples": found.n,
    }


def suite_values(found: SuiteSummary, *, intervals: bool = True) -> dict[str, Any]:
    """RULER's summary in percent: averages over lengths, effective length by its rule, and means of categories. Without
    intervals where a stopping rule chose the number of samples."""

    def estimate(one: Estimate | None) -> dict[str, Any] | None:
        values = estimate_values(one)
        return values | ({} if intervals else {"low": None, "high": None}) if values else None

    def row(one: SuiteRow) -> dict[str, Any]:
        averages = one.averages
        return {
            "name": one.name,
            "scores": {str(length): estimate(score) for length, score in one.scores.items()},
            "average": estimate(averages.average) if averages else None,
            "wavg_inc": estimate(averages.increasing) if averages else None,
            "wavg_dec": estimate(averages.decreasing) if averages else None,
            "effective": str(one.effective) if one.effective else None,
            "effective_tokens": one.effective.length if one.effective else None,
            "effective_own": str(one.effective_own) if one.effective_own else None,
            "effective_own_tokens": one.effective_own.length if one.effective_own else None,
        }

    return {
        "threshold": found.threshold,
        "whole": row(found.whole),
        "published": row(found.published) if found.published else None,
        "categories": [row(one) for one in found.categories],
        "tasks": [row(one) for one in found.tasks],
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


def effective_values(found: EffectiveLength | None) -> dict[str, Any] | None:
    """Null where fewer than two lengths were answered. An open end lies outside what was measured. Where not every
    length is decided, `surely_reached` and `surely_failed` are what is sure all the same."""
    if found is None:
        return None
    return {
        "words": str(found),
        "decided": found.decided,
        "surely_reached": found.surely_reached,
        "surely_failed": found.surely_failed,
        "open_lengths": list(found.open_lengths),
        "bound": found.bound,
        "length": round(found.length),
        "low": None if found.low_open else round(found.low),
        "high": None if found.high_open else round(found.high),
        "threshold": found.threshold,
        "interpolated": None if found.interpolated is None else round(found.interpolated),
        "largest_measured": found.largest_measured,
        "falls": found.falls,
        "version": VERSION,
        "warning": effective_warning(found),
    }


def cell_table(runs: Sequence[Run]) -> dict[str, Any]:
    """The tidy table of cells of some runs: columns and rows."""
    names = ("planned", "done", "failed", "mean", "low", "high", "method")
    rows = []
    for run in runs:
        for place, tally in run.table.cells.items():
            values = tally_values(tally)
            rows.append([run.name, *place, *(values[name] for name in names)])
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
