"""Which proxy ranks the zoo as retrieval accuracy does? Reads records, writes results.json, a table and figures.

    python studies/proxy/analyse.py studies/proxy/results

Every number is an average over the lengths that all its variants have. A proxy that is better when lower is turned
round. Cost is in tokens put through the model, of a whole measurement and of the part that a proxy needs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from leadline.report.figures import write_figure
from leadline.report.scatter import scatter
from leadline.report.two_axes import trap_figure
from leadline.stats.correlate import correlation_difference, correlations, spearman
from leadline.stats.intervals import Estimate, mean_interval
from leadline.stats.soundings import metric_of, ratio_interval

PUBLISHED = {"spearman": (0.723, 0.350, 0.885), "pearson": (0.600,), "skipped spearman": (0.578,)}
"""Of retrieval gain against a downstream benchmark, over 17 models of many makers."""
Scores = dict[str, float]


@dataclass
class Records:
    """What was measured: by variant and length, numbers of proxies, and scores of answers by task."""

    numbers: dict[tuple[str, int], list[Mapping[str, float]]] = field(default_factory=lambda: defaultdict(list))
    gains: dict[tuple[str, int], dict[str, list[float]]] = field(default_factory=lambda: defaultdict(dict))
    """Retrieval gain by document."""
    documents: dict[tuple[str, int], list[str]] = field(default_factory=lambda: defaultdict(list))
    """Of `numbers`, one by one."""
    scores: dict[tuple[str, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    clusters: dict[tuple[str, int], list[str]] = field(default_factory=lambda: defaultdict(list))
    """The documents of `scores`, one by one."""
    tokens: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    """By what was measured and length, of the native model."""

    @classmethod
    def read(cls, file: Path) -> Records:
        made = cls()
        with gzip.open(file, "rt") as lines:
            for line in lines:
                made.add(json.loads(line))
        return made

    def add(self, row: Sequence[Any]) -> None:
        if row[1] == "cost":
            if row[0] == "native":
                self.tokens[row[2]["what"], row[2]["length"]] += row[2]["tokens"]
            return
        variant, run, _, length, _, _, document, value, *_ = row
        if isinstance(value, dict):
            evaluated = run.startswith("evaluated")
            renamed = {f"{k} evaluated" if evaluated else k: v for k, v in value.items()}
            self.numbers[variant, length].append(renamed)
            self.documents[variant, length].append(document)
            if "retrieval_gain" in value:
                self.gains[variant, length].setdefault(document, []).append(value["retrieval_gain"])
        elif value is not None:
            self.scores[variant, length].append(value)
            self.clusters[variant, length].append(document)

    def of(self, variant: str, length: int, name: str) -> tuple[list[float], list[str]]:
        """A number wherever it is, and the document it is of."""
        pairs = zip(self.numbers[variant, length], self.documents[variant, length], strict=True)
        found = [(row[name], document) for row, document in pairs if name in row]
        return [value for value, _ in found], [document for _, document in found]

    @property
    def lengths(self) -> list[int]:
        return sorted({length for _, length in self.scores})

    def accuracy(self, length: int) -> Scores:
        return {v: float(np.mean(found)) for (v, n), found in self.scores.items() if n == length}

    def proxy(self, name: str, length: int) -> Scores:
        """A proxy of every variant that has it, turned so that higher is better."""
        found = {}
        for (variant, n), rows in self.numbers.items():
            value = _value(rows, name) if n == length else math.nan
            if math.isfinite(value):
                found[variant] = value if metric_of(name.removesuffix(" evaluated")).better == "higher" else -value
        return found


def _value(rows: Iterable[Mapping[str, float]], name: str) -> float:
    """A mean, or the ratio of sums where records count differently."""
    plain, suffix = name.removesuffix(" evaluated"), " evaluated" if name.endswith(" evaluated") else ""
    metric = metric_of(plain)
    pairs = []
    for row in rows:
        if not metric.weight:
            pairs += [(row[name], 1.0)] if name in row else []
        elif metric.weight + suffix in row:
            weight = row[metric.weight + suffix]
            top = row[metric.top] if metric.top else row.get(name, 0.0) * weight
            pairs.append((top, weight))
    total = math.fsum(weight for _, weight in pairs)
    return math.fsum(top for top, _ in pairs) / total if total else math.nan


def averaged(parts: Sequence[Scores]) -> Scores:
    """Over lengths, of the variants that have all of them."""
    both = set.intersection(*(set(part) for part in parts)) if parts else set()
    return {v: float(np.mean([part[v] for part in parts])) for v in parts[0] if v in both}


PROXIES = (
    "retrieval_gain", "retrieval_nll", "mean_nll", "tail_loss", "tail_vs_head", "needle_gain", "needle_nll",
    "longppl", "longppl evaluated",
)  # fmt: skip


def compare(records: Records, lengths: Sequence[int], folder: Path, name: str) -> dict[str, Any]:
    """All proxies against accuracy at some lengths: correlations, the scatter plot of each, and what each costs."""
    target = averaged([records.accuracy(n) for n in lengths])
    if len(target) < 4:
        return {"lengths": list(lengths), "models": len(target), "proxies": {}}
    asked = sum(records.tokens["accuracy", n] for n in lengths)
    rows: dict[str, Any] = {}
    for proxy in PROXIES:
        having = [n for n in lengths if len(records.proxy(proxy, n)) >= 4]
        found = averaged([records.proxy(proxy, n) for n in having]) if having else {}
        models = [v for v in target if v in found]
        if len(models) < 4 or len({found[m] for m in models}) < 2:
            continue
        xs, ys = [found[m] for m in models], [target[m] for m in models]
        made = correlations(xs, ys)
        rows[proxy] = {
            "models": len(models),
            "lengths": having,
            "tokens": _cost(records, proxy, having),
            "tokens_of_accuracy": asked,
            "outliers": [models[i] for i in made["skipped spearman"].outliers],
            **{m: [round(v, 3) for v in (c.value, c.interval.low, c.interval.high)] for m, c in made.items()},
        }
        picture = scatter(models, xs, ys, made, proxy_name=_title(proxy), target_name="retrieval accuracy", narrow=True)
        if proxy in ("retrieval_gain", "mean_nll", "needle_gain"):
            write_figure(picture, folder / f"{name}-{proxy}", ["png", "svg"])
    return {
        "lengths": list(lengths),
        "models": len(target),
        "accuracy": {v: round(a, 4) for v, a in target.items()},
        "proxies": rows,
        "better_than_perplexity": _against_perplexity(records, lengths, target),
    }


def _title(proxy: str) -> str:
    turned = metric_of(proxy.removesuffix(" evaluated")).better == "lower"
    return f"{proxy}, turned round" if turned else proxy


def _cost(records: Records, proxy: str, lengths: Sequence[int]) -> int:
    """Tokens read for it: documents for most, with short contexts for LongPPL, prompts for needles."""
    if proxy.startswith("needle"):
        return sum(records.tokens["needle_gain", n] for n in lengths)
    if proxy == "longppl":
        return sum(records.tokens["proxies", n] for n in lengths)
    return sum(len(records.gains["native", n]) * n for n in lengths)


def _against_perplexity(records: Records, lengths: Sequence[int], target: Scores) -> dict[str, list[float]]:
    """By how much a proxy's Spearman exceeds that of mean_nll, over the same variants."""
    base = averaged([records.proxy("mean_nll", n) for n in lengths])
    found = {}
    for proxy in ("retrieval_gain", "needle_gain", "needle_nll"):
        other = averaged([records.proxy(proxy, n) for n in lengths])
        models = [v for v in target if v in base and v in other]
        if len(models) >= 4:
            gap, interval = correlation_difference(
                [other[m] for m in models], [base[m] for m in models], [target[m] for m in models]
            )
            found[proxy] = [round(v, 3) for v in (gap, interval.low, interval.high)]
    return found


def table(results: Mapping[str, Any]) -> str:
    """Proxies by Spearman, in Markdown."""
    lines = [
        "| proxy | models | Spearman | Pearson | skipped Spearman | Kendall | tokens, of accuracy's |",
        "|---|---|---|---|---|---|---|",
    ]
    ranked = sorted(results["proxies"].items(), key=lambda item: -item[1]["spearman"][0])
    for name, row in ranked:
        share = row["tokens"] / row["tokens_of_accuracy"] if row["tokens_of_accuracy"] else math.nan
        cells = [_cell(row[m]) for m in ("spearman", "pearson", "skipped spearman", "kendall")]
        lines.append(f"| `{name}` | {row['models']} | {' | '.join(cells)} | {share:.0%} |")
    return "\n".join(lines)


def _cell(found: Sequence[float]) -> str:
    value, low, high = found
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def fewer_documents(records: Records, lengths: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Spearman of retrieval gain when each variant reads only so many documents of each length: 200 draws of them."""
    target = averaged([records.accuracy(n) for n in lengths])
    kept = [v for v in target if all(records.gains.get((v, n)) for n in lengths)]
    shelves = {n: sorted(set.intersection(*(set(records.gains[v, n]) for v in kept))) for n in lengths}
    asked = sum(records.tokens["accuracy", n] for n in lengths)
    draw, found = np.random.default_rng(0), {}
    for count in (c for c in (1, 2, 4, 8, 16) if c <= min(map(len, shelves.values()))):
        values = []
        for _ in range(200):
            chosen = {n: draw.choice(shelf, count, replace=False) for n, shelf in shelves.items()}
            scores = [
                float(np.mean([np.mean(records.gains[v, n][d]) for n in lengths for d in chosen[n]])) for v in kept
            ]
            values.append(spearman(scores, [target[v] for v in kept]))
        median, low, high = (round(float(q), 3) for q in np.quantile(values, [0.5, 0.05, 0.95]))
        share = count * sum(lengths) / asked if asked else math.nan
        found[count] = {"spearman": [median, low, high], "tokens_of_accuracy": round(share, 4)}
    return found


def draw_trap(records: Records, variant: str, stem: Path) -> None:
    """Perplexity against retrieval of one variant over the lengths, as `leadline run trap` draws it."""

    def by_length(made: Callable[[int], tuple[list[float], list[str]]]) -> dict[int, Estimate]:
        return {n: found for n in records.lengths if (found := _mean(*made(n))) is not None}

    losses = by_length(lambda n: records.of(variant, n, "mean_nll"))
    gains = by_length(lambda n: records.of(variant, n, "retrieval_gain"))
    answers = {
        n: mean_interval(records.scores[variant, n], records.clusters[variant, n])
        for n in records.lengths
        if records.scores.get((variant, n))
    }
    write_figure(trap_figure(losses, answers, gains), stem, ["png"])


def _mean(values: list[float], documents: list[str]) -> Estimate | None:
    return ratio_interval(values, [1.0] * len(values), documents) if values else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    records = Records.read(folder / "records.jsonl.gz")
    views = {"all": records.lengths} | {f"{n // 1024}k": [n] for n in records.lengths}
    results = {name: compare(records, lengths, folder / "figures", name) for name, lengths in views.items()}
    results["published"] = {name: list(values) for name, values in PUBLISHED.items()}
    results["documents"] = {
        name: fewer_documents(records, lengths) for name, lengths in views.items() if results[name]["proxies"]
    }
    draw_trap(records, "dynamic 2", folder / "figures" / "trap")
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    for name in views:
        print(f"\n{name}: {results[name]['models']} variants\n\n{table(results[name])}")
    print(json.dumps(results["documents"]))


if __name__ == "__main__":
    main()
