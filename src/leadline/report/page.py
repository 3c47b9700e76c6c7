"""The report as one HTML file: opens from disk, needs no network, runs nothing but its own script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

from leadline import __version__
from leadline.core import format as words
from leadline.core.errors import StoreError
from leadline.core.format import format_count, format_duration, format_number
from leadline.report.charts.curves import class_bars, class_words, curves, gauge, run_curves
from leadline.report.charts.grid import task_grid
from leadline.report.charts.heatmap import can_smooth, heatmap
from leadline.report.charts.logprobs import distance_curves, measure_curves
from leadline.report.charts.render import PageFigure
from leadline.report.charts.theme import Figure
from leadline.report.colours import CLASS_COLOURS
from leadline.report.comparison import against_first, boards, titles
from leadline.report.embedded_samples import COLUMNS, TEXTS, EmbeddedSamples, Excerpts, Samples
from leadline.report.terminal import small_print
from leadline.results.run import Run, format_interval_kind
from leadline.results.summary import cell_table
from leadline.results.table import FAILURE_CLASSES, detail_rows
from leadline.results.verdict import READING_WORDS, Verdict, effective_interval, effective_point, verdict
from leadline.store.runs import read_records

# --- What pages are made from: templates, styles and scripts of this package, and the policy that lets nothing else in.

SCRIPTS = ("theme.js", "samples.js", "figures.js", "page.js", "parquet.js", "downloads.js")


@dataclass(frozen=True, slots=True)
class Assets:
    """What a page must know of the server that shows it. Its samples stay there until somebody looks at one."""

    samples: str
    """Where they are."""
    events: str = ""
    """Where the page hears what is new, for a run that is not over: its map is then drawn cell by cell."""
    notes: tuple[str, ...] = ()
    tag: str = ""
    """Changes whenever the page would say something else."""
    status: str = ""
    """Where the page of a run that lacks answers asks whether it goes on."""


def policy(style: str, script: str) -> str:
    """Nothing may load, connect or run but the style and the script that are written into the page."""
    return (
        f"default-src 'none'; img-src data:; style-src '{fingerprint(style)}'; "
        f"script-src '{fingerprint(script)}'; base-uri 'none'; form-action 'none'"
    )


def fingerprint(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def page_style(served: Assets | None = None) -> str:
    return asset("page.css") + (asset("served.css") if served else "")


def joined_script(served: Assets | None = None) -> str:
    scripts = (*SCRIPTS, "resumed.js") if served else SCRIPTS
    return joined((*scripts, "live.js") if served and served.events else scripts)


def joined(scripts: Sequence[str]) -> str:
    """Scripts as one, in a scope of their own."""
    parts = "\n".join(map(asset, scripts))
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def data_block(value: Any) -> Markup:
    """JSON that may stand in a script element: no `<` is left that could end it."""
    return Markup(msgspec.json.encode(value).decode().replace("<", "\\u003c"))


def asset(name: str) -> str:
    return files("leadline.report").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def template(name: str) -> Template:
    environment = Environment(
        loader=FunctionLoader(asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["words"] = words
    return environment.get_template(name)


# --- Where a run's numbers came from, as pairs of words for a page.

Pairs = list[tuple[str, str]]


def provenance(run: Run) -> list[tuple[str, Pairs]]:
    """Sections of name and value, in the order a reader would ask for them."""
    manifest = run.manifest
    sections: list[tuple[str, Pairs]] = [
        ("Reproduce", [("command", s.command) for s in manifest.sessions[:1]]),
        ("Asked", list(_leaves(manifest.spec))),
        ("Cost", cost(run)),
        ("Receipts", receipts(run)),
        ("Model", list(_leaves(manifest.model)) + list(_leaves(manifest.frame, "frame"))),
        ("Fingerprints", sorted(manifest.fingerprints.items())),
    ]
    for number, session in enumerate(manifest.sessions, 1):
        title = "Machine" if len(manifest.sessions) == 1 else f"Machine, session {number}"
        about = {"started": session.started, "leadline": session.leadline, "python": session.python}
        about |= {"platform": session.platform, "cores": str(session.cores), **session.packages}
        sections.append((title, list(about.items())))
    return [(title, pairs) for title, pairs in sections if pairs]


def cost(run: Run) -> Pairs:
    totals = run.totals
    pairs = [
        ("tokens read", format_number(totals.prompt_tokens)),
        ("tokens written", format_number(totals.completion_tokens)),
        ("time from first to last answer", format_duration(max(0.0, totals.ended - totals.started))),
        ("attempts", f"{totals.attempts:,} for {format_count(totals.asked, 'sample')}"),
    ]
    if totals.cached_tokens:
        pairs.insert(1, ("of these from a cache", format_number(totals.cached_tokens)))
    return pairs


def receipts(run: Run) -> Pairs:
    """Did the model see as many tokens as were sent?"""
    totals = run.totals
    return [
        ("the model counted what we sent", format_count(totals.receipts.equal, "sample")),
        ("it counted something else", format_count(totals.receipts.different, "sample")),
        ("it did not say", format_count(totals.receipts.not_given, "sample")),
    ]


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)) and any(isinstance(v, Mapping) for v in value):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{number}]")
    elif isinstance(value, (list, tuple)):
        yield path, ", ".join(map(str, value))
    elif value not in (None, ""):
        yield path, str(value)


# --- The report as one HTML file: opens from disk, needs no network, runs nothing but its own script.

Values = dict[str, Any]


def write_page(runs: Sequence[Run], path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(runs), encoding="utf-8", errors="replace")
    except OSError as error:
        raise StoreError(f"cannot write the report: {error.strerror}", where=str(path)) from None
    return path


def page(runs: Sequence[Run], served: Assets | None = None) -> str:
    """The whole page. Everything that came from a model or a spec is escaped by the template or by `data_block`."""
    style, script = page_style(served), joined_script(served)
    live = served is not None and bool(served.events)
    alone = len(runs) == 1
    begun = [_answer_figures(run, at, alone=alone, live=live) for at, run in enumerate(runs)]  # verdicts take a while
    names, verdicts = titles(runs), [verdict(run) for run in runs]
    packed = pack_runs(runs) if served is None else EmbeddedSamples([], [], "")
    return template("page.html").render(
        title=f"{names[0] if len(runs) == 1 else f'{len(runs)} runs'} · Leadline",
        version=__version__,
        policy=policy(style, script),
        style=Markup(style),
        script=Markup(script),
        served=served,
        sections=_sections(runs),
        comparison=_comparison(runs, verdicts, names) if len(runs) > 1 else None,
        runs=[begun[at] | _run_values(run, verdicts[at], names[at], at) for at, run in enumerate(runs)],
        left_out=packed.left_out,
        index=data_block(_index(runs, names, packed) | ({"samples": served.samples} if served else {})),
        packs=[Markup(text) for text in packed.packs],
    )


def pack_runs(runs: Sequence[Run]) -> EmbeddedSamples:
    samples = Samples()
    for at, run in enumerate(runs):
        tasks = {task: number for number, task in enumerate(run.titles)}
        samples.add(at, tasks, read_records(run.folder), Excerpts(run.folder))
    return samples.packed()


def _index(runs: Sequence[Run], names: Sequence[str], packed: EmbeddedSamples) -> Values:
    """What the script must know before it unpacks anything."""
    return {
        "runs": [
            {
                "title": name,
                "name": run.name,
                "tasks": run.titles,
                "lengths": run.table.lengths,
                "depths": sorted({p.depth for p in run.table.cells if p.depth is not None}),
            }
            for run, name in zip(runs, names, strict=True)
        ],
        "classes": [
            {
                "name": name,
                "words": class_words(name),
                "colour": CLASS_COLOURS[name],
                "count": sum(run.table.whole.classes.get(name, 0) for run in runs),
            }
            for name in FAILURE_CLASSES
        ],
        "columns": COLUMNS,
        "texts": TEXTS,
        "packs": packed.index,
        "cells": cell_table(runs),
    }


def _sections(runs: Sequence[Run]) -> list[tuple[str, str]]:
    if len(runs) > 1:
        links = [("comparison", "Comparison")]
        links += [(f"run-{at}", words.sanitise(run.manifest.name or run.name, 24)) for at, run in enumerate(runs[:8])]
    else:
        links = [("run-0", "Verdict"), ("heatmap-0", "Heatmap")]
        links += [("grid-0", "Tasks")] if len(runs[0].table.tasks) > 1 else []
        links += [("curves-0", "Length"), ("outcomes-0", "Outcomes")]
        links += [("trap-0", "Log-probabilities")] if runs[0].logprobs else []
    return [*links, ("samples", "Samples")]


def _comparison(runs: Sequence[Run], verdicts: Sequence[Verdict], names: Sequence[str]) -> Values:
    against = against_first(runs, names)
    return {
        "boards": boards(runs, verdicts, names),
        "intervals": format_interval_kind(*runs),
        "curves": _figure(run_curves(runs, names), "run-curves"),
        "against": [
            {
                "name": item.name,
                "sentence": item.sentence,
                "warnings": item.warnings,
                "figure": _figure(item.figure, f"difference-{at}") if item.figure else None,
            }
            for at, item in enumerate(against)
        ],
    }


def _answer_figures(run: Run, at: int, *, alone: bool, live: bool) -> Values:
    """The figures that need no verdict."""
    answered, asked = run.table.whole.done + run.table.whole.failed > 0, bool(run.table.tasks)
    drawn = asked and not live  # the map of a run that is not over is drawn cell by cell, as cells come in
    return {
        "heatmap": _figure(heatmap(run, titled=False, at=at), f"heatmap-{at}") if drawn else None,
        "classes": _figure(class_bars(run, at=at), f"classes-{at}") if answered else None,
        "curves": _figure(curves(run, at=at), f"curves-{at}") if answered and alone else None,
        "smoothed": _figure(heatmap(run, titled=False, smoothed=True, at=at), f"smoothed-{at}")
        if drawn and any(can_smooth(run.table, task) for task in run.table.tasks)
        else None,
        "small": None if alone or not asked else _figure(heatmap(run, titled=False, narrow=True, at=at), f"small-{at}"),
        "trap": _figure(measure_curves(run), f"trap-{at}") if run.logprobs else None,
        "distances": _figure(distance_curves(run), f"distances-{at}") if run.logprobs.by_distance else None,
    }


def _run_values(run: Run, found: Verdict, title: str, at: int) -> Values:
    return {
        "run": run,
        "title": title,
        "aside": words.sanitise(run.model, 200) if run.manifest.name else "",
        "verdict": found,
        "facts": _facts(run, found),
        "gauge": _figure(gauge(run, found.effective), f"gauge-{at}") if found.effective else None,
        "grid": _figure(task_grid(run, found, at=at), f"grid-{at}") if len(run.table.tasks) > 1 else None,
        "details": detail_rows(run.table),
        "small_print": small_print(run),
        "provenance": provenance(run),
    }


def _facts(run: Run, found: Verdict) -> list[tuple[str, str, str]]:
    """Name, value and what stands small under it."""
    whole, totals = run.table.whole, run.totals
    reach = effective_point(found.effective) if found.effective else words.NO_NUMBER
    spread = effective_interval(found.effective) if found.effective else ""
    took = words.format_duration(max(0.0, totals.ended - totals.started))
    return [
        ("claimed window", words.format_length(run.window) if run.window else "not stated", "tokens"),
        ("effective length", reach, spread),
        (
            "accuracy overall",
            f"{words.format_percent(whole.mean)}%",
            f"95%: {words.format_percent_range(whole.interval)}%",
        ),
        ("samples", f"{whole.done:,}", f"of {whole.planned:,} planned, {whole.failed:,} failed"),
        ("cost", words.format_number(totals.prompt_tokens), f"tokens read in {took}"),
        ("reading", run.reading, READING_WORDS.get(run.reading, "")),
    ]


def _figure(figure: Figure, name: str) -> Values:
    return {"svg": PageFigure(figure, name)}
