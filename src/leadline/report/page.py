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
from leadline.core import format as formatting
from leadline.core.errors import StoreError
from leadline.core.format import (
    NO_NUMBER,
    format_count,
    format_duration,
    format_length,
    format_number,
    format_percent,
    format_percent_range,
    sanitise,
)
from leadline.report.charts.curves import curves, effective_length_bar, run_curves, thinking_curves
from leadline.report.charts.grid import class_bars, difference_map, task_grid
from leadline.report.charts.heatmap import can_smooth, heatmap
from leadline.report.charts.render import PageFigure
from leadline.report.charts.theme import Figure
from leadline.report.colours import CLASS_COLOURS
from leadline.report.comparison import differences_from_first, effective_cell, leaderboards, titles
from leadline.report.embedded_samples import COLUMNS, TEXT_COLUMNS, EmbeddedSamples, RunSamples, SamplePacker
from leadline.report.score_tables import (
    absent_table,
    stratum_table,
    suite_table,
    thinking_table,
    verdict_table,
    wording_table,
    wrong_answer_table,
)
from leadline.report.sections import (
    ReportSection,
    SectionFigure,
    SectionPart,
    SectionText,
    report_sections,
    sections_of,
)
from leadline.report.terminal import footnotes
from leadline.results.run import Run, format_interval_kind
from leadline.results.summary import cell_table
from leadline.results.table import FAILURE_CLASSES, format_class
from leadline.results.totals import format_seconds_saved, is_shown
from leadline.results.verdict import READING_WORDS, Verdict, verdict
from leadline.store.runs import read_records

Values = dict[str, Any]
NamedValues = list[tuple[str, str]]
SCRIPTS = ("theme.js", "samples.js", "figures.js", "page.js", "downloads.js")
FIGURE_HINT = (
    "Hover over a mark for its value; click it to see its samples. Keyboard: Tab to the figure, arrow keys to move, "
    "Enter to open."
)


@dataclass(frozen=True, slots=True)
class ServedPage:
    """What the dashboard adds to a report. Samples stay on the server until one is opened."""

    samples: str
    """Address of the samples."""
    live_panel: str = ""
    """HTML that shows the progress of a run in progress, with a live heatmap in place of the drawn one."""
    notes: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    """Address and title of further pages about the run."""
    status: str = ""
    """Address that says whether a stopped run was resumed."""
    style: str = ""
    script: str = ""


def write_page(runs: Sequence[Run], path: Path, samples: Sequence[RunSamples] = ()) -> Path:
    """Writes the report of one or several runs as one self-contained HTML file. `samples` are those of the runs, where
    they were kept when the runs were read."""
    text = page(runs, samples=samples)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise StoreError(f"cannot write the report: {error.strerror}", where=str(path)) from None
    return path


def page(runs: Sequence[Run], served: ServedPage | None = None, samples: Sequence[RunSamples] = ()) -> str:
    """Everything that came from a model or a spec is escaped by the template or by `data_block`."""
    style, script = page_style(served), page_script(served)
    alone, live = len(runs) == 1, served is not None and bool(served.live_panel)
    # Figures that need no verdict come first: they are drawn in another process while verdicts are computed here.
    names, sections = titles(runs), [sections_of(run) for run in runs]
    figures = [
        _figures(run, at, alone=alone, live=live) | {"sections": _section_values(sections[at], str(at))}
        for at, run in enumerate(runs)
    ]
    verdicts = [verdict(run) for run in runs]
    packed = pack_runs(runs, samples) if served is None else EmbeddedSamples([], [], "")
    return template("page.html").render(
        title=f"{names[0] if alone else f'{len(runs)} runs'} · Leadline",
        version=__version__,
        policy=policy(style, script),
        style=Markup(style),
        script=Markup(script),
        served=served,
        live_panel=Markup(served.live_panel) if served else "",
        hint=FIGURE_HINT,
        links=_links(runs, names, sections[0]),
        comparison=None if alone else _comparison(runs, verdicts, names),
        runs=[figures[at] | _run_values(run, verdicts[at], names[at], at) for at, run in enumerate(runs)],
        left_out=packed.left_out,
        index=data_block(_index(runs, names, packed) | ({"samples": served.samples} if served else {})),
        packs=[Markup(text) for text in packed.packs],
    )


def pack_runs(runs: Sequence[Run], samples: Sequence[RunSamples] = ()) -> EmbeddedSamples:
    """`samples` are those of the runs; without them their records are read again."""
    packer = SamplePacker()
    for at, (run, kept) in enumerate(zip(runs, samples or map(samples_of, runs), strict=True)):
        packer.add(at, {task: number for number, task in enumerate(run.titles)}, kept)
    return packer.packed()


def samples_of(run: Run) -> RunSamples:
    samples = RunSamples(run.folder)
    samples.add(read_records(run.folder))
    return samples


# --- templates, styles and scripts --------------------------------------------------------------


def policy(style: str, script: str) -> str:
    """A Content-Security-Policy: nothing may load, connect or run except the page's own style and script."""
    return (
        f"default-src 'none'; img-src data:; style-src '{fingerprint(style)}'; "
        f"script-src '{fingerprint(script)}'; base-uri 'none'; form-action 'none'"
    )


def fingerprint(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def page_style(served: ServedPage | None = None) -> str:
    return asset("page.css") + (served.style if served else "")


def page_script(served: ServedPage | None = None) -> str:
    return join_scripts(*map(asset, SCRIPTS), served.script if served else "")


def join_scripts(*scripts: str) -> str:
    """One script with its own scope."""
    parts = "\n".join(scripts)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def data_block(value: Any) -> Markup:
    """JSON for a script element: without any `<`, it cannot end the element."""
    return Markup(msgspec.json.encode(value).decode().replace("<", "\\u003c"))


def asset(name: str, package: str = "leadline.report") -> str:
    return files(package).joinpath("templates", name).read_text(encoding="utf-8")


@cache
def template(name: str, package: str = "leadline.report") -> Template:
    environment = Environment(
        loader=FunctionLoader(lambda file: asset(file, package)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["fmt"] = formatting
    return environment.get_template(name)


# --- contents -----------------------------------------------------------------------------------


def _index(runs: Sequence[Run], names: Sequence[str], packed: EmbeddedSamples) -> Values:
    """What the script needs before it unpacks any sample."""
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
                "title": format_class(name),
                "colour": CLASS_COLOURS[name],
                "count": sum(run.table.whole.classes.get(name, 0) for run in runs),
            }
            for name in FAILURE_CLASSES
        ],
        "columns": COLUMNS,
        "texts": TEXT_COLUMNS,
        "packs": packed.index,
        "cells": cell_table(runs),
    }


def _has_heatmap(run: Run) -> bool:
    """Several tasks without depths are in the grid of tasks and lengths, which shows the same."""
    tasks = run.table.tasks
    return len(tasks) == 1 or any(run.table.has_depths(task) for task in tasks)


def _was_asked(run: Run) -> bool:
    return run.table.whole.done + run.table.whole.failed > 0


def _links(runs: Sequence[Run], names: Sequence[str], sections: Mapping[str, ReportSection]) -> list[tuple[str, str]]:
    """The links at the top of the page."""
    if len(runs) > 1:
        links = [("comparison", "Comparison")]
        links += [(f"run-{at}", sanitise(name, 24)) for at, name in enumerate(names[:8])]
    else:
        (run,) = runs
        links = [("run-0", "Verdict")]
        links += [("heatmap-0", "Heatmap")] if _has_heatmap(run) else []
        links += [("grid-0", "Tasks")] if len(run.table.tasks) > 1 else []
        links += [("curves-0", "Length"), ("outcomes-0", "Outcomes")] if _was_asked(run) else []
        links += [(f"{name}-0", section.link or section.title) for name, section in sections.items()]
    return [*links, ("samples", "Samples")]


def _comparison(runs: Sequence[Run], verdicts: Sequence[Verdict], names: Sequence[str]) -> Values:
    return {
        "leaderboards": leaderboards(runs, verdicts, names),
        "intervals": format_interval_kind(*runs),
        "curves": PageFigure(run_curves(runs, names), "run-curves"),
        "phone_curves": PageFigure(run_curves(runs, names, narrow=True), "phone-run-curves"),
        "thinking": _thinking_figures(runs, names),
        "sections": _section_values(report_sections(runs, names), "all"),
        "differences": [
            {
                "name": item.name,
                "sentence": item.sentence,
                "warnings": item.warnings,
                "figure": PageFigure(difference_map(item.comparison, item.names), f"difference-{at}")
                if item.comparison
                else None,
            }
            for at, item in enumerate(differences_from_first(runs, names))
        ],
    }


def _thinking_figures(runs: Sequence[Run], names: Sequence[str]) -> tuple[PageFigure, PageFigure] | None:
    """Wide and narrow; None where no model has thought."""
    if not any(is_shown(run.totals.thinking) for run in runs):
        return None
    wide, narrow = thinking_curves(runs, names), thinking_curves(runs, names, narrow=True)
    return PageFigure(wide, "thinking"), PageFigure(narrow, "phone-thinking")


def _figures(run: Run, at: int, *, alone: bool, live: bool) -> Values:
    """The figures that need no verdict. A live page draws its own heatmap."""
    table = run.table
    figures: dict[str, Figure] = {}
    if _has_heatmap(run) and not live:
        figures["heatmap"] = heatmap(run, titled=False, at=at)
        if any(can_smooth(table, task) for task in table.tasks):
            figures["smoothed"] = heatmap(run, titled=False, smoothed=True, at=at)
    if table.tasks and not alone:
        figures["small"] = heatmap(run, titled=False, narrow=True, at=at)
    if _was_asked(run):
        figures["classes"] = class_bars(run, at=at)
        if alone:
            figures["phone_classes"] = class_bars(run, narrow=True, at=at)
            figures |= {"curves": curves(run, at=at), "phone_curves": curves(run, narrow=True, at=at)}
    names = ("heatmap", "smoothed", "small", "classes", "phone_classes", "curves", "phone_curves")
    return {name: PageFigure(figures[name], f"{name}-{at}") if name in figures else None for name in names}


def _section_values(sections: Mapping[str, ReportSection], suffix: str) -> list[Values]:
    """What the template shows of every section: its id, its title, and its parts by kind."""
    return [
        {
            "id": f"{name}-{suffix}",
            "title": section.title,
            "parts": [_part_value(part, f"{name}-{suffix}") for part in section.parts],
        }
        for name, section in sections.items()
    ]


def _part_value(part: SectionPart, suffix: str) -> tuple[str, Any]:
    if isinstance(part, SectionText):
        return part.kind, part.text
    if isinstance(part, SectionFigure):
        name = f"{part.name}-{suffix}"
        return "figure", (PageFigure(part.draw(False), name), PageFigure(part.draw(True), f"phone-{name}"))
    return "table", part


def _run_values(run: Run, run_verdict: Verdict, title: str, at: int) -> Values:
    effective = effective_length_bar(run, run_verdict.effective) if run_verdict.effective else None
    grid = task_grid(run, run_verdict, at=at) if len(run.table.tasks) > 1 else None
    return {
        "run": run,
        "title": title,
        "model": sanitise(run.model, 200) if run.manifest.name else "",
        "verdict": run_verdict,
        "facts": _facts(run, run_verdict),
        "effective": PageFigure(effective, f"effective-{at}") if effective else None,
        "grid": PageFigure(grid, f"grid-{at}") if grid else None,
        "suite": suite_table(run) if grid and run.suite else None,
        "wrong_answers": wrong_answer_table(run),
        "verdicts": verdict_table(run),
        "strata": stratum_table(run),
        "absent": absent_table(run),
        "wordings": wording_table(run),
        "thinking": thinking_table([run], [title]),
        "footnotes": footnotes(run),
        "provenance": provenance(run),
    }


def _facts(run: Run, run_verdict: Verdict) -> list[tuple[str, str, str]]:
    """Name, value, and a note below the value."""
    whole, totals, effective = run.table.whole, run.totals, effective_cell(run_verdict.effective)
    accuracy = (NO_NUMBER, "")
    if whole.mean is not None:
        accuracy = (f"{format_percent(whole.mean)}%", f"95%: {format_percent_range(whole.interval)}%")
    duration = format_duration(totals.seconds)
    return [
        ("claimed window", *((format_length(run.window), "tokens") if run.window else ("not stated", ""))),
        ("effective length", effective.text, f"95%: {effective.below}" if effective.below else ""),
        ("overall accuracy", *accuracy),
        ("samples", f"{totals.done:,}", f"of {totals.planned:,} planned, {totals.failed:,} failed"),
        ("cost", format_number(totals.prompt_tokens), f"prompt tokens in {duration}"),
        ("reading", run.reading, READING_WORDS.get(run.reading, "")),
    ]


# --- provenance ---------------------------------------------------------------------------------


def provenance(run: Run) -> list[tuple[str, NamedValues]]:
    """Where the numbers come from: sections of names and values."""
    manifest = run.manifest
    sections: list[tuple[str, NamedValues]] = [
        ("Reproduce", [("command", s.command) for s in manifest.sessions[:1]]),
        ("Spec", list(_leaves(manifest.spec))),
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
    shown = [(title, [(sanitise(k, None), sanitise(v, None)) for k, v in pairs]) for title, pairs in sections]
    return [(title, pairs) for title, pairs in shown if pairs]


def cost(run: Run) -> NamedValues:
    totals = run.totals
    pairs = [
        ("prompt tokens", format_number(totals.prompt_tokens)),
        ("completion tokens", format_number(totals.completion_tokens)),
        ("time from first to last answer", format_duration(totals.seconds)),
        ("attempts", f"{totals.attempts:,} for {format_count(totals.asked, 'sample')}"),
    ]
    if totals.thinking_tokens:
        pairs.insert(2, ("of these, thinking", format_number(totals.thinking_tokens)))
    if totals.cache.stated:
        pairs.insert(1, ("of these, from a cache", format_number(totals.cache.cached_tokens)))
    if totals.cache.hit_share is not None:
        pairs.insert(2, ("of what a cache could have", f"{100 * totals.cache.hit_share:.0f}%"))
    if totals.readings:
        spent = format_duration(totals.model_seconds)
        pairs.append(("read by the model, about", f"{format_number(totals.readings.total())} tokens in {spent}"))
        kept = [note for note in totals.notes if note.startswith(("keys and values", "host memory", "read into"))]
        pairs.extend(("how it was read", f"{sanitise(note)} ({totals.notes[note]:,})") for note in sorted(kept))
    if run.paid:
        pairs.append(("money", run.paid))
    if run.paid_to_judges:
        pairs.append(("money of judges, apart", run.paid_to_judges))
    if saved := format_seconds_saved(totals.cache):
        pairs.append(("time by question", saved))
    return pairs


def receipts(run: Run) -> NamedValues:
    """Whether the model counted as many prompt tokens as were sent."""
    totals = run.totals
    return [
        ("equal token count", format_count(totals.receipts.equal, "sample")),
        ("different token count", format_count(totals.receipts.different, "sample")),
        ("of these, truncated", format_count(totals.receipts.truncated, "sample")),
        ("of these, more tokens than sent", format_count(totals.receipts.more, "sample")),
        ("token count not given", format_count(totals.receipts.not_given, "sample")),
        *(
            [("length estimated", format_count(totals.receipts.estimated, "sample"))]
            if totals.receipts.estimated
            else []
        ),
        *((f"answered by {sanitise(name)}", format_count(n, "sample")) for name, n in totals.served_by.most_common(20)),
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
