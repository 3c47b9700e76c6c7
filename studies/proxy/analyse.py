"""Which proxy ranks the zoo as retrieval accuracy does, and at what cost? Reads records, writes numbers and figures.

    python studies/proxy/analyse.py studies/proxy/results

Accuracy is the mean over lengths and tasks of the questions that every variant was asked. A proxy is its mean over
lengths, turned round where lower is better. Cost is tokens put through the model. `targets.jsonl.gz` has accuracy on
tasks of another kind.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cost_curve import Curve, cost_curves
from cost_figure import cost_figure
from records import Proxy, Question, Records, Scores
from zoo import ZOO

from leadline.features.correlate.charts import scatter
from leadline.features.correlate.correlation import correlation_difference, correlations, spearman
from leadline.features.logprobs.charts import perplexity_figure
from leadline.report.charts.render import write_figure
from leadline.stats.intervals import Estimate, mean_interval
from leadline.stats.logprobs import ratio_interval

PUBLISHED = {"spearman": [0.723, 0.350, 0.885], "pearson": [0.600], "skipped spearman": [0.578], "models": 17}
"""Of retrieval gain against a downstream benchmark, over 17 models of many makers."""
DEFINITION = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
"""Anchors in the range that retrieval gain is defined on."""
WITH_AND_WITHOUT = 96
"""Tokens of an anchor: 24 repeated and 24 scored, after the document and alone."""
QUESTION = 100
"""Tokens of a question with its template and value, about."""

CHANCE = Proxy("needle_chance", "needle_gain", "needle_nll", of=lambda nats: math.exp(-nats), anchor_tokens=QUESTION)
PERPLEXITY = Proxy("mean_nll", "proxies", "mean_nll", -1)
GAIN = Proxy("retrieval_gain", "proxies", "retrieval_gain", depths=DEFINITION, anchor_tokens=WITH_AND_WITHOUT)
NEEDLE_NLL = Proxy("needle_nll", "needle_gain", "needle_nll", -1, anchor_tokens=QUESTION)
PROXIES = (
    CHANCE,
    NEEDLE_NLL,
    Proxy("needle_gain", "needle_gain", "needle_gain_nats", 1, "needle_gain_alone_nats", True, (), float, 3 * QUESTION),
    GAIN,
    Proxy("retrieval_gain, all depths", "proxies", "retrieval_gain", anchor_tokens=WITH_AND_WITHOUT),
    Proxy("retrieval_nll", "proxies", "retrieval_nll", -1, depths=DEFINITION, anchor_tokens=WITH_AND_WITHOUT // 2),
    PERPLEXITY,
    Proxy("tail_loss", "proxies", "tail_loss", -1),
    Proxy("tail_vs_head", "proxies", "tail_vs_head", -1),
    Proxy("longppl, own key tokens", "proxies", "longppl", -1, weight="key_tokens"),
    Proxy("longppl, native's key tokens", "evaluated", "longppl", -1, weight="key_tokens"),
)
DRAWN = (CHANCE, GAIN, PERPLEXITY)


def lengths_of(proxy: Proxy, records: Records) -> list[int]:
    return [n for n in records.lengths if records.documents(proxy.task, n) and proxy.scores(records, [n])]


def paired(proxy: Scores, target: Scores) -> tuple[list[str], list[float], list[float]]:
    both = [v for v in target if v in proxy]
    return both, [proxy[v] for v in both], [target[v] for v in both]


def compare(records: Records, target: Scores, folder: Path) -> dict[str, Any]:
    """Each proxy over all its lengths against accuracy over all lengths."""
    rows: dict[str, Any] = {}
    for proxy in PROXIES:
        lengths = lengths_of(proxy, records)
        models, xs, ys = paired(proxy.scores(records, lengths), target)
        found = correlations(xs, ys)
        counts = {n: len(records.documents(proxy.task, n)) for n in lengths}
        rows[proxy.name] = {
            "models": len(models),
            "lengths": lengths,
            "tokens": proxy.tokens(records, counts),
            "outliers": [models[i] for i in found["skipped spearman"].outliers],
            **{m: [round(v, 3) for v in (c.value, c.interval.low, c.interval.high)] for m, c in found.items()},
            "families": [round(v, 3) for v in by_family(models, xs, ys)],
        }
        if proxy in DRAWN:
            title = f"{proxy.name}, turned round" if proxy.sign < 0 else proxy.name
            picture = scatter(models, xs, ys, found, proxy_name=title, target_name="retrieval accuracy")
            write_figure(picture, folder / "figures" / proxy.name, ["png"])
    return rows


def by_family(models: Sequence[str], xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """Spearman's interval when whole families are drawn: variants of one are alike."""
    family = {v.name: v.family for v in ZOO}
    groups: dict[str, list[int]] = {}
    for place, model in enumerate(models):
        groups.setdefault(family[model], []).append(place)
    draw, names, values = np.random.default_rng(0), list(groups), []
    for _ in range(5000):
        places = [p for name in draw.choice(names, len(names)) for p in groups[name]]
        values.append(spearman([xs[p] for p in places], [ys[p] for p in places]))
    low, high = np.nanquantile(values, [0.025, 0.975])
    return float(low), float(high)


def at_each_length(records: Records) -> dict[str, dict[str, float]]:
    """Spearman of each proxy at one length with accuracy at that length."""
    found: dict[str, dict[str, float]] = {}
    for proxy in PROXIES:
        for n in lengths_of(proxy, records):
            _, xs, ys = paired(proxy.scores(records, [n]), records.accuracy(records.common, [n]))
            found.setdefault(proxy.name, {})[f"{n // 1024}k"] = round(spearman(xs, ys), 3)
    return found


def reliability(records: Records) -> dict[str, float]:
    """How well accuracy agrees with itself. No proxy can be expected to agree better than the root of it."""
    return _split_half(records, records.common)


def _split_half(records: Records, questions: Sequence[Question]) -> dict[str, float]:
    """One half of the documents against the other, 200 times, and what that says of all of them (Spearman and
    Brown)."""
    draw, halves = np.random.default_rng(0), []
    documents = sorted({q.document for q in questions})
    for _ in range(200):
        chosen = set(draw.choice(documents, len(documents) // 2, replace=False))
        one = records.accuracy([q for q in questions if q.document in chosen])
        other = records.accuracy([q for q in questions if q.document not in chosen])
        halves.append(spearman(list(one.values()), list(other.values())))
    half = float(np.median(halves))
    whole = 2 * half / (1 + half)
    return {"half": round(half, 3), "whole": round(whole, 3), "best_expected": round(math.sqrt(max(whole, 0)), 3)}


def against_perplexity(records: Records, target: Scores) -> dict[str, list[float]]:
    """By how much a proxy's Spearman exceeds that of perplexity, over the same variants."""
    base, found = PERPLEXITY.scores(records, records.lengths), {}
    for proxy in (CHANCE, NEEDLE_NLL, GAIN):
        scores = proxy.scores(records, records.lengths)
        models = [v for v in target if v in scores and v in base]
        gap, interval = correlation_difference(
            [scores[m] for m in models], [base[m] for m in models], [target[m] for m in models]
        )
        found[proxy.name] = [round(v, 3) for v in (gap, interval.low, interval.high)]
    return found


def validity(records: Records, target: Scores, others: Records) -> dict[str, Any]:
    """Tasks of another kind: how well accuracy on needles and each proxy rank the variants by them.

    A task that the model hardly ever gets right ranks nothing; its reliability says so.
    """
    found: dict[str, Any] = {}
    predictors = {"needle accuracy": target, **{p.name: p.scores(records, lengths_of(p, records)) for p in PROXIES}}
    for task in dict.fromkeys(q.task for q in others.common):
        questions = [q for q in others.common if q.task == task]
        scores = others.accuracy(questions)
        rows = {}
        for name, predictor in predictors.items():
            models, xs, ys = paired(predictor, scores)
            low, high = by_family(models, xs, ys)
            rows[name] = [round(v, 3) for v in (spearman(xs, ys), low, high)]
        found[task] = {
            "questions": len(questions),
            "accuracy": [round(v, 3) for v in np.quantile(list(scores.values()), [0, 0.5, 1]).tolist()],
            "reliability": _split_half(others, questions)["whole"],
            "spearman": rows,
        }
    return found


def validity_table(found: Mapping[str, Any]) -> str:
    tasks = list(found)
    lines = [
        "| | " + " | ".join(f"`{task}`" for task in tasks) + " |",
        "|---|" + "---|" * len(tasks),
        "| accuracy: lowest, median, highest | "
        + " | ".join(", ".join(f"{v:.2f}" for v in found[task]["accuracy"]) for task in tasks)
        + " |",
        "| reliability | " + " | ".join(f"{found[task]['reliability']:.2f}" for task in tasks) + " |",
    ]
    for name in found[tasks[0]]["spearman"]:
        cells = (_cell(found[task]["spearman"][name]) for task in tasks)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def with_all_questions(records: Records) -> dict[str, float]:
    """Spearman with accuracy over everything that was asked, of some variants more than of others."""
    target, found = records.accuracy(records.everything), {}
    for proxy in PROXIES:
        _, xs, ys = paired(proxy.scores(records, lengths_of(proxy, records)), target)
        found[proxy.name] = round(spearman(xs, ys), 3)
    return found


def trap(records: Records, variant: str, stem: Path) -> dict[str, Any]:
    """Perplexity against retrieval of one variant over the lengths, as `leadline run trap` draws it."""
    losses = {n: _estimate(records, variant, n, PERPLEXITY) for n in records.lengths}
    gains = {n: _estimate(records, variant, n, GAIN) for n in records.lengths}
    answers = {}
    for n in records.lengths:
        asked = {q: a for q, a in records.answers[variant].items() if q.length == n}
        answers[n] = mean_interval(list(asked.values()), [q.document for q in asked])
    write_figure(perplexity_figure(losses, answers, gains), stem, ["png"])
    return {
        f"{n // 1024}k": {
            "perplexity": round(math.exp(losses[n].mean), 2),
            "accuracy": round(answers[n].mean, 3),
            "gain": round(gains[n].mean, 2),
            "questions": answers[n].n,
        }
        for n in records.lengths
    }


def _estimate(records: Records, variant: str, length: int, proxy: Proxy) -> Estimate:
    rows = [r for r in records.rows[variant, proxy.task, length] if proxy.number in r.numbers]
    rows = [r for r in rows if not proxy.depths or r.depth in proxy.depths]
    return ratio_interval([r.numbers[proxy.number] for r in rows], [1.0] * len(rows), [r.document for r in rows])


def table(rows: Mapping[str, Any]) -> str:
    """Proxies by Spearman, in Markdown."""
    lines = [
        "| proxy | models | Spearman | by families | Pearson | skipped Spearman | Kendall | tokens |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in sorted(rows.items(), key=lambda item: -item[1]["spearman"][0]):
        cells = [_cell(row[m]) for m in ("spearman", "pearson", "skipped spearman", "kendall")]
        low, high = row["families"]
        cells.insert(1, f"[{low:.2f}, {high:.2f}]")
        lines.append(f"| `{name}` | {row['models']} | {' | '.join(cells)} | {row['tokens'] / 1000:.0f}k |")
    return "\n".join(lines)


def _cell(found: Sequence[float]) -> str:
    value, low, high = found
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def curve_table(curves: Sequence[Curve]) -> str:
    lines = ["| what is read | tokens | Spearman: median, 5 to 95 % of draws |", "|---|---|---|"]
    for curve in curves:
        for point in curve.points:
            cell = f"{point.median:.2f}, {point.low:.2f} to {point.high:.2f}"
            lines.append(f"| {curve.name}, {point.words} | {point.tokens / 1000:.0f}k | {cell} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    records = Records.read(folder / "records.jsonl.gz")
    others = Records.read(folder / "targets.jsonl.gz")
    target = records.accuracy(records.common)
    curves = cost_curves(records, target, CHANCE, [NEEDLE_NLL, GAIN, PERPLEXITY])
    write_figure(cost_figure(curves, records), folder / "figures" / "cost", ["png"])
    results: dict[str, Any] = {
        "variants": len(target),
        "lengths": records.lengths,
        "questions": len(records.common),
        "tokens_of_accuracy": records.tokens_asked(records.common),
        "tokens_of_accuracy_fresh": records.tokens_asked(records.common, fresh=True),
        "accuracy": {v: round(a, 4) for v, a in sorted(target.items(), key=lambda item: -item[1])},
        "reliability": reliability(records),
        "proxies": compare(records, target, folder),
        "validity": validity(records, target, others),
        "better_than_perplexity": against_perplexity(records, target),
        "at_each_length": at_each_length(records),
        "with_all_questions": with_all_questions(records),
        "cost": {c.name: [p.as_json() for p in c.points] for c in curves},
        "trap": trap(records, "dynamic 2", folder / "figures" / "trap"),
        "published": PUBLISHED,
    }
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    print(table(results["proxies"]), validity_table(results["validity"]), curve_table(curves), sep="\n\n")
    print(json.dumps({k: v for k, v in results.items() if k not in ("proxies", "cost", "validity")}, indent=1))


if __name__ == "__main__":
    main()
