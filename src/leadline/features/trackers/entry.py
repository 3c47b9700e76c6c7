"""A run as an entry for an experiment tracker: numbers by name, the main figures, the step of its checkpoint.

leadline/effective_length, _low, _high, _bound     tokens; bound is 1 for at least, 0 for a crossing, -1 for below
leadline/effective_length_decided                  1 where the interval decides it, else 0: an estimate
leadline/accuracy, _low, _high                     over all tasks and lengths
leadline/answered, failed, missing, receipts_wrong, prompt_tokens
leadline_length/4k                                 accuracy at a length, with equal weight for tasks
leadline_task/niah                                 accuracy of a task; leadline_task_effective_length/niah
leadline_task_length/niah/4k
leadline_outcome/distractor                        share of samples with this outcome, zeros included
leadline_measure/TASK/METRIC/4k                    log-probability metrics in their own units
leadline_memory/qa_1/4k                            accuracy without the document

A value that does not exist is left out, never written as zero: a mean without answers, an open end of an interval.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

from leadline.core import registry
from leadline.core.contracts import TrackerEntry
from leadline.core.errors import LeadlineError, TrackerError, UsageError
from leadline.core.format import format_length, sanitise
from leadline.report.charts.grid import task_grid
from leadline.report.charts.heatmap import heatmap
from leadline.report.charts.render import render
from leadline.report.page import write_page
from leadline.report.sections import sections_of
from leadline.results.run import Run, load_run
from leadline.results.table import FAILURE_CLASSES, Tally
from leadline.results.verdict import Verdict, verdict
from leadline.stats.effective import EffectiveLength

NamedNumbers = Iterator[tuple[str, float]]
BOUNDS = {"below": -1.0, "crossing": 0.0, "at least": 1.0}


def tracker_entry(run: Run, step: int | str, name: str = "", *, page: bool = False) -> TrackerEntry:
    """Everything that a tracker stores of a run, which can be written to any number of trackers. See `log_run`."""
    number, result = step_of(run.model, step), verdict(run)
    return TrackerEntry(
        name=name or _series_of(run, number),
        step=number,
        at=run.totals.ended,
        numbers=_distinct(numbers_of(run, result)),
        figures=dict(_figures(run, result)),
        facts={
            "model": sanitise(run.model, 400),
            **({"name": sanitise(run.manifest.name, 200)} if run.manifest.name else {}),
            "run": sanitise(run.name, 200),
            "digest": run.manifest.digest,
            "reading": run.reading,
            "version": run.manifest.sessions[-1].leadline if run.manifest.sessions else "",
        },
        verdict=result.headline,
        page=write_page([run], run.folder / "report.html") if page else None,
    )


def numbers_of(run: Run, result: Verdict) -> NamedNumbers:
    table, whole = run.table, run.table.whole
    yield from _effective("leadline/effective_length", result.effective)
    yield from _tally("leadline/accuracy", whole, ends=True)
    yield "leadline/answered", float(whole.done)
    yield "leadline/failed", float(whole.failed + run.no_context.whole.failed + run.logprobs.failed)
    yield "leadline/missing", float(whole.missing)
    yield "leadline/receipts_wrong", float(run.totals.receipts.different)
    yield "leadline/prompt_tokens", float(run.totals.prompt_tokens)
    for length, tally in sorted(table.by_length.items()):
        yield from _tally(f"leadline_length/{format_length(length)}", tally)
    for task, tally in table.by_task.items():
        yield from _tally(f"leadline_task/{task}", tally)
        yield from _effective(f"leadline_task_effective_length/{task}", result.by_task.get(task))
    for (task, length), tally in table.by_task_and_length.items():
        yield from _tally(f"leadline_task_length/{task}/{format_length(length)}", tally)
    for (task, length), tally in run.no_context.by_task_and_length.items():
        yield from _tally(f"leadline_memory/{task}/{format_length(length)}", tally)
    for metric, lengths in run.logprobs.estimates.items():
        for length, estimate in lengths.items():
            yield f"leadline_measure/{metric.task}/{metric.name}/{format_length(length)}", estimate.mean
    samples = whole.done + whole.failed
    for outcome in FAILURE_CLASSES if samples else ():
        if outcome != "measured":
            yield f"leadline_outcome/{outcome}", whole.classes.get(outcome, 0) / samples


def _tally(name: str, tally: Tally, *, ends: bool = False) -> NamedNumbers:
    if tally.mean is None:
        return
    yield name, tally.mean
    if ends and tally.interval is not None:
        yield f"{name}_low", tally.interval.low
        yield f"{name}_high", tally.interval.high


def _effective(name: str, effective: EffectiveLength | None) -> NamedNumbers:
    """The length and its interval. An open end lies outside the measured lengths and has no number."""
    if effective is None:
        return
    yield name, round(effective.length)
    yield f"{name}_bound", BOUNDS[effective.bound]
    yield f"{name}_decided", int(effective.decided)
    if effective.interpolated is not None:
        yield f"{name}_interpolated", round(effective.interpolated)
    if not effective.low_open:
        yield f"{name}_low", round(effective.low)
    if not effective.high_open:
        yield f"{name}_high", round(effective.high)


def _figures(run: Run, result: Verdict) -> Iterator[tuple[str, bytes]]:
    if run.table.tasks:
        yield "heatmap", render(heatmap(run), "png")
    if len(run.table.tasks) > 1:
        yield "tasks", render(task_grid(run, result), "png")
    for section in sections_of(run).values():
        yield from ((figure.name, render(figure.draw(False), "png")) for figure in section.figures)


def _distinct(numbers: NamedNumbers) -> dict[str, float]:
    """Names that every tracker accepts, with a number where two names would become the same."""
    values: dict[str, float] = {}
    for name, value in numbers:
        if not math.isfinite(value):
            continue
        plain = name = "/".join(re.sub(r"[^\w. :-]+", "_", part, flags=re.ASCII).strip("_") for part in name.split("/"))
        count = 1
        while name in values:
            count += 1
            name = f"{plain}-{count}"
        values[name] = float(value)
    return values


# --- writing ------------------------------------------------------------------------------------

_STEP = re.compile(
    r"(?<![a-z])(?:global_?)?(?:steps?|checkpoints?|ckpts?|chkpt|iter(?:ation)?s?|epochs?|it|ba)"
    r"[-_. =]*(\d+)(?![\d.]*[a-z\d])"
    r"|(?<=[/:])(\d+)(?=/|$)|^(\d+)$"
    r"|(?<=[-_.=])(?!20\d{6}(?!\d))(\d{5,})(?=[-_./]|$)",
    re.IGNORECASE,
)
"""A step is a number after a word for steps (`checkpoint-12000`, `step400`), a folder that is a number (`out/3000`), or
a number of five digits and more that is no date (`run-12000`). A number in a name (`smollm2`, `phi-4`) is none."""
_TRAILING_SEPARATORS = re.compile(r"[-_./ =:]+$")


def log_run(folder: Path | str, to: str, *, step: int | str = 0, name: str = "", page: bool = False) -> str:
    """Writes a saved run to the tracker `to`, as in `mlflow:http://127.0.0.1:5000?experiment=ctx`; returns where it is.

    `step` is a number, or "auto" for the one in the model's name. `name` is the series of checkpoints that the
    step belongs to, by default the model's name without its step. `page` stores the report with the numbers.
    """
    return write_entry(to, tracker_entry(load_run(folder), step, name, page=page))


def write_entry(to: str, entry: TrackerEntry) -> str:
    """Writes one entry and returns where it is. Any exception of the tracker's own package becomes a TrackerError."""
    tracker, destination = registry.tracker(to)
    try:
        return tracker.write(destination, entry)
    except LeadlineError:
        raise
    except Exception as error:
        raise TrackerError(
            f"{type(error).__name__}: {error}",
            where=to,
            fix="the run itself is complete; try `leadline log RUN --to ...` again",
        ) from error


def step_of(model: str, step: int | str) -> int:
    """The given step; for `auto`, the last number in the model's name, without its options, that is a step."""
    if step != "auto":
        text = str(step)
        if not text.isdecimal():
            raise UsageError(f"{text!r} is not a step", where="--step", fix="give an integer, or auto")
        return int(text)
    last_step = _find_step(model.partition("?")[0])
    if last_step is None:
        raise UsageError(
            f"the name {model!r} contains no step",
            where="--step auto",
            fix="give the step, as in --step 12000; auto reads names like checkpoint-12000, step_400 or out/3000",
        )
    return last_step[0]


def _find_step(name: str) -> tuple[int, int, int] | None:
    """The last step in a name, and where its digits start and stop."""
    steps = [(int(m[m.lastindex]), *m.span(m.lastindex)) for m in _STEP.finditer(name) if m.lastindex]
    return steps[-1] if steps else None


def _series_of(run: Run, step: int) -> str:
    """From the run's label, unless the label is nothing but the step."""
    label = re.sub(rf"(?<!\d){step}(?!\d)", "", series_name(run.manifest.name, step)).strip(" -_./=:,;")
    return label or series_name(run.model, step)


def series_name(model: str, step: int) -> str:
    """The model's name without its step: `hf:out/checkpoint` for hf:out/checkpoint-12000 at step 12000."""
    head, mark, options = model.partition("?")
    last_step = _find_step(head)
    if last_step is not None and last_step[0] == step:
        head = _TRAILING_SEPARATORS.sub("", head[: last_step[1]]) + head[last_step[2] :]
    return head + mark + options
