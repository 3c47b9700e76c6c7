"""Runs in the terminal: tables, heatmaps in coloured cells, leaderboards, and the screen of a growing run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid
from rich.text import Text

from leadline.core.format import (
    format_count,
    format_percent,
    format_time,
    sanitise,
)
from leadline.report.comparison import leaderboards
from leadline.report.heatmap_data import HeatmapCell, HeatmapData, heatmaps_of, short_name, tasks_heatmap
from leadline.report.score_tables import (
    SUITE_TASKS,
    absent_table,
    length_table,
    stratum_table,
    suite_table,
    thinking_table,
    verdict_table,
    wording_table,
    wrong_answer_table,
)
from leadline.report.sections import ReportSection, SectionText, report_sections, sections_of
from leadline.report.text_table import TextTable, draw
from leadline.results.breakdowns import FromMemory, from_memory
from leadline.results.comparability import mixed_variants
from leadline.results.growing_run import FailedSample
from leadline.results.progress import RunProgress
from leadline.results.run import Run, format_interval_kind
from leadline.results.table import COUNTING_RULE, wrong_answer_rows
from leadline.results.totals import Receipts
from leadline.results.verdict import (
    OWN_HAYSTACKS,
    format_design_effect,
    format_missing,
    format_moved,
    format_scorer_gaps,
    reading_warning,
    verdict,
)
from leadline.stats.logprobs import FEW_RARE
from leadline.store.runs import read_records

# --- one run ------------------------------------------------------------------------------------


def show_run(run: Run, console: Console) -> None:
    """What `leadline report` and the end of a run print."""
    colour = has_colours(console)
    console.print(heading(run))
    console.print(Text(verdict(run).claim, style="bold"))
    for sentence in filter(None, [format_missing(run), reading_warning(run), *verdict(run).shapes]):
        console.print(Text(sentence))
    sections = sections_of(run).values()
    has_scores = any(section.has_scores for section in sections)
    many = len(run.table.tasks) >= SUITE_TASKS
    for part in _suite(run, colour, scores=not has_scores) if many else _tasks(run, colour):
        console.print(part)
    for section in sections:
        if not section.page_only:
            show_section(section, console)
    _print_table(thinking_table([run], [run.label]), console)
    for table in (stratum_table(run), verdict_table(run), absent_table(run), wording_table(run)):
        _print_table(table, console)
    usual = usual_notes(run)
    for footnote in footnotes(run):
        if footnote not in usual:
            console.print(Text(footnote, style="dim"))


def show_section(section: ReportSection, console: Console) -> None:
    """The texts and tables of a section; its figures are on the page."""
    console.print(Text(f"\n{section.title}", style="bold"))
    for part in section.parts:
        if isinstance(part, SectionText):
            console.print(Text(part.text, style="bold" if part.kind == "heading" else ""))
        elif isinstance(part, TextTable):
            _print_table(part, console)


def _print_table(table: TextTable, console: Console) -> None:
    if table.rows:
        console.print(draw(table, plain=not has_colours(console)))


def _suite(run: Run, colour: bool, *, scores: bool) -> Iterator[RenderableType]:
    """Many tasks: one table of tasks and lengths, unless a section has the scores."""
    if run.suite and scores:
        table = suite_table(run)
        yield draw(table, plain=not colour)
        yield from (Text(note, style="dim") for note in table.notes)
    if run.table.wrong:
        yield Text(f"Wrong answers: {format_wrong_answers(run)}.", style="dim")
    tables = (run.no_context,) if run.suite else (run.table, run.no_context)
    if any(table.tasks for table in tables):
        yield draw(length_table(tables), plain=not colour)


def _tasks(run: Run, colour: bool) -> Iterator[RenderableType]:
    """Few tasks: their lengths, a heatmap of each, and what wrong answers had in common."""
    if run.table.tasks or run.no_context.tasks:
        yield draw(length_table((run.table, run.no_context)), plain=not colour)
    grids = (data for data in heatmaps_of(run.table) if data.task and len(data.rows) > 1)  # one depth: in the table
    yield from (heatmap(data, colour=colour) for data in grids)
    if run.table.wrong:
        yield draw(wrong_answer_table(run), plain=not colour)


def has_colours(console: Console) -> bool:
    """Whether coloured cells will be seen: not in a pipe, not in CI, not with NO_COLOR."""
    in_ci = os.environ.get("CI", "") not in ("", "0", "false") and not os.environ.get("FORCE_COLOR")
    seen = console.is_terminal and not console.no_color and not in_ci
    return seen and console.color_system in ("256", "truecolor")


def heading(run: Run) -> Text:
    facts = [f"{run.reading} reading", run.date, str(run.folder)]
    facts[:0] = [run.model] if run.manifest.name else []
    return Text.assemble((sanitise(run.label, 80), "bold"), " · ", (sanitise(" · ".join(facts), 200), "dim"))


WRONG_ANSWERS = 6
"""Kinds of wrong answers that a line names."""


def format_wrong_answers(run: Run) -> str:
    """`distractor: another planted value 884, not found 175, other 12`, over all tasks and lengths."""
    counts: Counter[str] = Counter()
    for row in wrong_answer_rows(run.table):
        counts[str(row.answer)] += sum(row.counts)
    shown = counts.most_common(WRONG_ANSWERS)
    if other := counts.total() - sum(count for _, count in shown):
        shown.append(("other", other))
    return ", ".join(f"{sanitise(answer, 80)} {count:,}" for answer, count in shown)


def heatmap(data: HeatmapData, *, colour: bool) -> RenderableType:
    title = f"{data.title or 'tasks'}: accuracy in percent, {data.rows_title} down, length across"
    return Group(Text(), Text(title, style="bold"), _cells(data, colour=colour))


def _cells(data: HeatmapData, *, colour: bool) -> Grid:
    grid = Grid(box=None, padding=(0, 0 if colour else 1), show_header=False, pad_edge=False)
    grid.add_column(justify="right", no_wrap=True)
    for _ in data.columns:
        grid.add_column(justify="left" if colour else "right", no_wrap=True)
    for name, cells in zip(data.rows, data.grid(), strict=True):
        grid.add_row(Text(f"{name} "), *(_cell(cell, colour=colour) for cell in cells))
    grid.add_row(Text(), *(Text(f"{name:^6}" if colour else name) for name in data.columns))
    return grid


def _cell(cell: HeatmapCell | None, *, colour: bool) -> Text:
    if cell is None or cell.mean is None:
        return Text(f"{'·':^6}" if colour else "·", style="dim")
    value = cell.value + ("*" if cell.note else "")
    return Text(f"{value:^6}", style=f"{cell.ink} on {cell.colour}") if colour else Text(value)


def receipt_notes(receipts: Receipts) -> list[str]:
    """What the server's own token counts say about the prompts, one sentence a kind of difference."""
    notes = []
    if receipts.truncated:
        notes.append(f"{format_count(receipts.truncated, 'prompt')} truncated: the server read fewer tokens than sent.")
    if receipts.more:
        notes.append(
            f"{format_count(receipts.more, 'prompt')} longer than sent: the server adds text, or counts with another "
            "tokenizer."
        )
    if other := receipts.different - receipts.truncated - receipts.more:
        notes.append(
            f"{format_count(other, 'prompt')} counted a little differently by the server, as other templates are."
        )
    if receipts.cached_left_out:
        notes.append(
            f"{format_count(receipts.cached_left_out, 'token count')} of the server left out cached tokens; they were "
            "added."
        )
    return notes


MANY_CELLS = 20
"""Of this number, one is expected to lie outside its 95 % interval."""


def usual_notes(run: Run) -> set[str]:
    """Those footnotes that say the same after every run in which nothing failed: they are on the page."""
    counted = set() if run.table.whole.failed else {COUNTING_RULE}
    return counted | {OWN_HAYSTACKS, *_not_adjusted(run)}


def _not_adjusted(run: Run) -> Iterator[str]:
    cells = len(run.table.cells)
    if cells >= MANY_CELLS and not run.rule:  # intervals that hold at every look miss more seldom than that
        yield (
            "Intervals are not adjusted for multiple comparisons: the true value of about "
            f"{round(0.05 * cells):,} of {cells:,} cells is expected outside its interval."
        )


def footnotes(run: Run) -> list[str]:
    """How the numbers were counted, and what limits them."""
    whole, totals = run.table.whole, run.totals
    cells = list(run.table.cells.values())
    lines = [run.table.counting_rule]
    lines += filter(None, [format_design_effect(run)])
    if run.rule:
        lines.append(
            f"A rule chose the number of samples (until {sanitise(run.rule, 60)}). "
            f"Intervals are {format_interval_kind(run)}."
        )
    if whole.failed:
        kinds = ", ".join(f"{sanitise(kind)} {count}" for kind, count in sorted(totals.failures.items()))
        unreadable = f"{format_count(whole.failed, 'sample')} failed ({kinds})"
        if whole.done:
            worst = format_percent(whole.if_failed_wrong)
            unreadable += (
                f"; counted as wrong, overall accuracy would fall from {format_percent(whole.mean)}% to {worst}%"
            )
        lines.append(f"{unreadable}.")
    if run.repeats is not None:
        lines.append(f"Asked again: {run.repeats.describe()}. A smaller difference between two runs may be noise.")
    lines += format_moved(run.table)
    lines += format_scorer_gaps(run.table)
    lines += mixed_variants(run.metrics.items())
    if run.no_context.tasks:
        lines.extend(_from_memory(run))
    if run.logprobs.failed:
        lines.append(f"{format_count(run.logprobs.failed, 'document')} gave no log-probabilities.")
    lines += _not_adjusted(run)
    if (
        run.logprobs
        and min(e.n_clusters for by_length in run.logprobs.estimates.values() for e in by_length.values()) < FEW_RARE
    ):
        lines.append(
            f"Intervals of log-probability metrics over fewer than {FEW_RARE} documents cannot allow for rare "
            "documents of which none was seen."
        )
    if any(t.estimate is None for t in cells):
        lines.append("·: no data.")
    if any(t.estimate and t.done < t.planned for t in cells):
        lines.append("*: fewer answers than planned.")
    if totals.model_change:
        lines.append(f"Note: {sanitise(totals.model_change, None)}.")
    lines += receipt_notes(totals.receipts)
    if run.unreadable:
        named = "; ".join(sanitise(str(unreadable), 200) for unreadable in run.unreadable[:3])
        lines.append(f"{format_count(len(run.unreadable), 'line')} set aside: {named}.")
    lines += [f"Note on {format_count(n, 'sample')}: {sanitise(note)}" for note, n in sorted(totals.notes.items())]
    return lines


def _from_memory(run: Run) -> Iterator[str]:
    """For every task, how many questions were answered correctly without the document."""
    tasks: dict[str, list[FromMemory]] = {}
    for recalled in from_memory(read_records(run.folder)):
        tasks.setdefault(recalled.task, []).append(recalled)
    for task, lengths in tasks.items():
        both, right, wrong, same = (
            sum(getattr(recalled, name) for recalled in lengths)
            for name in ("both", "right_without", "wrong", "wrong_from_memory")
        )
        yield (
            f"{short_name(task)}: {right:,} of {both:,} questions are answered correctly without the document; "
            f"{same:,} of {wrong:,} wrong answers repeat the answer given without it."
        )


# --- several runs -------------------------------------------------------------------------------


def show_side_by_side(runs: Sequence[Run], names: Sequence[str], console: Console) -> None:
    """A leaderboard of accuracy by length, and a table for every metric."""
    with_answers = [(run, name) for run, name in zip(runs, names, strict=True) if run.table.tasks]
    if with_answers:
        verdicts = [verdict(run) for run, _ in with_answers]
        for board in leaderboards(
            [run for run, _ in with_answers], verdicts, [sanitise(name, 60) for _, name in with_answers]
        ):
            _print_table(board, console)
        console.print(Text("Accuracy in percent, with its 95% interval over documents below.", style="dim"))
    _print_table(thinking_table(runs, names), console)
    for section in report_sections(runs, names).values():
        show_section(section, console)
    for line in dict.fromkeys(footnote for run in runs for footnote in footnotes(run)):
        console.print(Text(line, style="dim"))


# --- a growing run ------------------------------------------------------------------------------

SHOWN_FAILURES = 4
_OTHER_LINES = 8
"""Lines of the screen for the heading, the bar, the hint and the space around them."""


def run_screen(
    run: Run, progress: RunProgress, failures: Sequence[FailedSample], console: Console, hint: str = ""
) -> Group:
    """Never taller than the terminal: what scrolls out of it cannot be redrawn."""
    latest = list(failures)[-SHOWN_FAILURES:]
    room = console.height - _OTHER_LINES - (len(latest) + 2 if latest else 0)
    parts: list[RenderableType] = [heading(run), _progress_bar(progress)]
    if run.table.whole.done:
        parts += _fitting_heatmaps(run, room, colour=has_colours(console))
    if latest:
        parts += [Text(), Text("latest failures", style="bold")]
        parts += [Text(failure_line(failure), style="red", no_wrap=True, overflow="ellipsis") for failure in latest]
    if hint:
        parts += [Text(), Text(hint, style="dim")]
    return Group(*parts)


def _progress_bar(progress: RunProgress) -> RenderableType:
    text = Text(progress.describe(), no_wrap=True, overflow="ellipsis")
    if progress.planned is None:
        return text
    grid = Grid.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=1)
    grid.add_column(justify="right")
    grid.add_row(ProgressBar(total=max(1, progress.planned), completed=progress.asked), text)
    return grid


def _fitting_heatmaps(run: Run, room: int, *, colour: bool) -> list[RenderableType]:
    """The heatmap of every task where they fit; else a row for each task."""
    table = run.table
    maps = heatmaps_of(table)
    if all(data.task for data in maps) and sum(len(data.rows) + 3 for data in maps) <= room:
        return [heatmap(data, colour=colour) for data in maps]
    shown = table.tasks[: max(3, room - 4)]
    parts = [heatmap(tasks_heatmap(table, shown), colour=colour)]
    if len(table.tasks) > len(shown):
        parts.append(Text(f"and {len(table.tasks) - len(shown)} more tasks", style="dim"))
    return parts


def failure_line(failed: FailedSample) -> str:
    return f"{format_time(failed.at)}  {failed}"
