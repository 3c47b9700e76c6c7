"""A report for a pull request: a table and links to pictures, in Markdown that cannot be broken by a name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from leadline.core.errors import MissingExtra, StoreError, UsageError
from leadline.core.format import escape_markdown, format_length
from leadline.report.charts.curves import class_bars, curves, gauge, run_curves
from leadline.report.charts.grid import task_grid
from leadline.report.charts.heatmap import can_smooth, heatmap
from leadline.report.charts.logprobs import distance_curves, measure_curves
from leadline.report.charts.render import write_figure
from leadline.report.charts.theme import Figure
from leadline.report.comparison import against_first, boards, titles
from leadline.report.terminal import small_print
from leadline.results.run import Run, format_interval_kind
from leadline.results.verdict import verdict
from leadline.store.export import columns_of, rows, write_csv, write_jsonl
from leadline.store.runs import read_records, slug

# --- The samples of a run as a table for other programs: CSV, JSONL or Parquet, by the name of the file.

KINDS = ("csv", "jsonl", "parquet")


def write_data(run: Run, path: Path) -> Path:
    kind = path.suffix.removeprefix(".")
    if kind not in KINDS:
        raise UsageError(f"{path.name!r} is not a kind of table", where="--data", fix=f"end it in .{', .'.join(KINDS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "csv":
        write_csv(read_records(run.folder), path)
    elif kind == "jsonl":
        write_jsonl(read_records(run.folder), path)
    else:
        _write_parquet(run, path)
    return path


def _write_parquet(run: Run, path: Path) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "frames", where="--data") from None
    found = list(rows(read_records(run.folder)))
    table = pyarrow.table({name: [row.get(name) for row in found] for name in columns_of(found)})
    try:
        pyarrow.parquet.write_table(table, path, compression="zstd")
    except OSError as error:
        raise StoreError(f"cannot write {path.name}: {error.strerror or error}", where=str(path)) from None


# --- Every figure of a report as a file, for papers and slides.

FEW = 4
"""Panels that a column of a paper holds."""


def export_figures(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Png, svg and pdf of every figure, as wide as a column of a paper, or as two where there are many tasks; runs in
    folders of their own if several."""
    written = []
    for run in runs:
        place = folder if len(runs) == 1 else folder / slug(run.name)
        for name, figure in figures_of(run):
            written += write_figure(figure, place / name, column=True)
    if len(runs) > 1:
        names = titles(runs)
        written += write_figure(run_curves(runs, names, narrow=True), folder / "curves", column=True)
        narrow = all(in_column(run) for run in runs)
        for run, item in zip(runs[1:], against_first(runs, names, narrow=narrow, titled=True), strict=True):
            if item.figure is not None:
                written += write_figure(item.figure, folder / f"difference-{slug(run.name)}", column=True)
    return written


def in_column(run: Run) -> bool:
    """Whether a panel for each task fits one under the other into a column: a dozen would be longer than a page."""
    return len(run.table.tasks) <= FEW


def figures_of(run: Run) -> Iterator[tuple[str, Figure]]:
    """Each figure under the name of its file."""
    found, narrow = verdict(run), in_column(run)
    if run.table.tasks:
        yield "heatmap", heatmap(run, narrow=narrow)
        if any(can_smooth(run.table, task) for task in run.table.tasks):
            yield "heatmap-smoothed", heatmap(run, narrow=narrow, smoothed=True)
    if found.effective is not None:
        yield "effective-length", gauge(run, found.effective, narrow=True)
    if len(run.table.tasks) > 1:
        yield "tasks", task_grid(run, found, narrow=True)
    if run.logprobs:
        yield "log-probabilities", measure_curves(run, narrow=True)
    if run.logprobs.by_distance:
        yield "log-probabilities-by-distance", distance_curves(run, narrow=True)
    if run.table.whole.done + run.table.whole.failed:
        yield "curves", curves(run, narrow=True)
        yield "outcomes", class_bars(run, narrow=narrow)


# --- A report for a pull request: a table and links to pictures, in Markdown that cannot be broken by a n


def markdown(runs: Sequence[Run], pictures: Sequence[Path]) -> str:
    """Verdicts, a table a reading mode, differences against the first run, pictures, and the small print."""
    names, verdicts = titles(runs), [verdict(run) for run in runs]
    lines = ["### Leadline", ""]
    lines += [f"- {escape_markdown(found.headline)}" for found in verdicts]
    for board in boards(runs, verdicts, names):
        lengths = " | ".join(format_length(n) for n in board.lengths)
        lines += ["", f"| {board.reading} reading | effective length | {lengths} | average |"]
        lines.append("|---|---|" + "---:|" * (len(board.lengths) + 1))
        for row in board.rows:
            cells = [f"{c.mean} ({c.spread})" if c.spread else c.mean for c in (*row.cells, row.average)]
            lines.append(f"| {escape_markdown(row.name)} | {row.effective} | {' | '.join(cells)} |")
    lines += ["", f"Accuracy in percent with {format_interval_kind(*runs)}."]
    for item in against_first(runs, names):
        lines += ["", f"**{escape_markdown(item.name)}.** {escape_markdown(item.sentence)}"]
        lines += [f"> {escape_markdown(line)}" for line in item.warnings]
    for path, name in zip(pictures, names, strict=False):
        lines += ["", f"![Accuracy by length and depth, {escape_markdown(name)}](<{path.as_posix()}>)"]
    notes = list(dict.fromkeys(line for run in runs for line in small_print(run)))
    lines += ["", "<details><summary>How to read this</summary>", ""]
    lines += [f"- {escape_markdown(line)}" for line in notes]
    return "\n".join([*lines, "", "</details>", ""])
