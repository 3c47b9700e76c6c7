"""A run as plain values, for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from leadline.features.judges.agreement import Agreement, Coefficient
from leadline.features.judges.results import JudgeScore, RubricResults, read_judged
from leadline.features.published.results import GroupScore
from leadline.results.breakdowns import AbsentRates, Stratum, TaskVerdict, WordingSpread
from leadline.results.run import Run
from leadline.results.sentences import effective_warning, judged_notes
from leadline.results.table import PUBLISHED, Place, Tally, published_means
from leadline.results.totals import is_shown, thinking_values
from leadline.results.verdict import effective_parts, format_truncation, verdict, verdict_by_task
from leadline.stats.effective import VERSION, EffectiveLength
from leadline.stats.intervals import Estimate, Interval
from leadline.stats.marginals import design_effect
from leadline.stats.ruler_summary import SuiteRow, SuiteSummary


def summary(run: Run) -> dict[str, Any]:
    """The whole table. A mean that does not exist is null, never zero."""
    table, totals, found = run.table, run.totals, verdict(run)
    published = published_means(table)
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
        "receipts": {
            "equal": totals.receipts.equal,
            "different": totals.receipts.different,
            "not_given": totals.receipts.not_given,
        },
        "lengths": [
            {
                "task": task,
                "length": length,
                **tally_values(tally),
                "details": dict(table.details.get((task, length), {})),
                PUBLISHED: published.get((task, length)),
            }
            for (task, length), tally in table.by_task_and_length.items()
        ],
        "no_context": [
            {"task": task, "length": length, **tally_values(tally)}
            for (task, length), tally in run.no_context.by_task_and_length.items()
        ],
        **({"judged": judged} if (judged := [judged_values(one) for one in read_judged(run.folder)]) else {}),
        **(
            {
                "strata": [stratum_values(one) for one in run.strata],
                "verdicts": [task_verdict_values(one) for one in verdict_by_task(run)],
            }
            if run.strata
            else {}
        ),
        **({"absent": [absent_values(one) for one in run.absent]} if run.absent else {}),
        **({"wordings": [wording_values(one) for one in run.wordings]} if run.wordings else {}),
        **({"published": [published_values(one) for one in run.published]} if run.published else {}),
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


def published_values(one: GroupScore) -> dict[str, Any]:
    """Scores in percent, as the benchmarks print them."""
    return {
        "task": one.task,
        "length": one.length,
        "group": one.group,
        "metric": one.metric,
        "score": estimate_values(one.score),
        "cut": one.cut,
        "not_sent": one.not_sent,
        "score_of_whole": estimate_values(one.whole),
        "score_without_text": estimate_values(one.memory),
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


def _money_values(run: Run) -> dict[str, Any]:
    """Nothing without prices."""
    model = {"money": run.money, "currency": run.tariff.currency, "prices": run.tariff.origin} if run.tariff else {}
    return {**model, **({"judge_money": run.judge_money} if run.judge_money else {})}


def totals_values(run: Run) -> dict[str, Any]:
    """The counts of a run as plain values."""
    totals, receipts = run.totals, run.receipts
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
        "receipts": {
            "ok": receipts.equal,
            "wrong": receipts.different,
            "absent": receipts.not_given,
            "worst": receipts.largest_difference,
        },
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
    """Null where fewer than two lengths were answered. An open end lies outside what was measured."""
    if found is None:
        return None
    return {
        "words": str(found),
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
    return {"columns": ["run", *Place._fields, *names], "rows": rows}


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


# --- judged answers -----------------------------------------------------------------------------


def judged_values(judged: RubricResults) -> dict[str, Any]:
    """For JSON. Numbers that do not exist are null."""
    return {
        "rubric": judged.rubric,
        "answers": judged.answers,
        "decided_by_rule": dict(judged.by_rule),
        "sent": judged.sent,
        "corrected": judged.is_corrected,
        "labels": judged.labels,
        "label_mean": _mean_values(judged.human),
        "judges": [_score_values(score) for score in judged.judges],
        "panel": _score_values(judged.panel) if judged.panel else None,
        "agreement": _agreement_values(judged.agreement),
        "agreement_by_length": {str(at): _agreement_values(found) for at, found in judged.by_length.items()},
        "agreement_by_depth": {f"{at:g}": _agreement_values(found) for at, found in judged.by_depth.items()},
        "agreement_per_doubling": judged.trend.slope if judged.trend else None,
        "agreement_falls_with_length": bool(judged.trend and judged.trend.falls),
        "disagreement": [
            {"length": length, "depth": depth, "samples": found.samples, "differ": found.differ}
            for (length, depth), found in sorted(judged.disagreement.items(), key=lambda item: str(item[0]))
        ],
        "notes": judged_notes(judged),
    }


def _score_values(score: JudgeScore) -> dict[str, Any]:
    corrected, rogan = score.corrected, score.rogan_gladen
    return {
        "judge": score.name,
        "families": list(score.families),
        "own_family": score.own_family,
        "graded": score.graded,
        "unparsed": score.unparsed,
        "failed": score.failed,
        "yes_rate": _number(score.yes_rate),
        "naive": _mean_values(score.naive),
        "corrected": None
        if corrected is None
        else {"mean": corrected.mean, **_interval_values(corrected.interval), "labels": corrected.labels,
              "documents": corrected.documents, "worth": _number(corrected.worth)},
        "rogan_gladen": None
        if rogan is None
        else {"mean": rogan.mean, **_interval_values(rogan.interval), "sensitivity": rogan.sensitivity,
              "specificity": rogan.specificity, "labels": rogan.labels},
        "known_cases": None
        if score.known is None
        else {"sensitivity": _number(score.known.sensitivity), "specificity": _number(score.known.specificity),
              "unparsed": score.known.unparsed,
              "by_kind": {kind: list(found) for kind, found in score.known.by_kind.items()}},
        "requests": score.requests,
        "prompt_tokens": score.prompt_tokens,
        "completion_tokens": score.completion_tokens,
        "cached_tokens": score.cached_tokens,
        "seconds": score.seconds,
        **({"by_length": _part_values(score.by_length)} if score.by_length else {}),
        **({"by_depth": _part_values(score.by_depth)} if score.by_depth else {}),
    }  # fmt: skip


def _part_values(parts: Mapping[int, JudgeScore] | Mapping[float, JudgeScore]) -> dict[str, Any]:
    return {f"{at:g}" if isinstance(at, float) else str(at): _score_values(part) for at, part in parts.items()}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _mean_values(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else {"mean": estimate.mean, **_interval_values(estimate.interval)}


def _interval_values(interval: Interval) -> dict[str, Any]:
    return {"low": _number(interval.low), "high": _number(interval.high), "method": interval.method}


def _agreement_values(found: Agreement | None) -> dict[str, Any] | None:
    if found is None:
        return None
    named = {"raw": found.raw, "krippendorff": found.krippendorff, "gwet": found.gwet}
    return {"samples": found.items, **{name: _coefficient_values(c) for name, c in named.items()}}


def _coefficient_values(found: Coefficient) -> dict[str, Any]:
    return {"value": _number(found.value), "low": _number(found.interval.low), "high": _number(found.interval.high)}
