"""`leadline compare`: two runs of the same prompts, their differences, and whether a gate is met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from leadline.console.output import (
    DEFAULT_THRESHOLD,
    FailedSamplesOption,
    ThresholdOption,
    echo,
    print_json,
    print_table,
    threshold_share,
    warn,
)
from leadline.core.errors import UsageError
from leadline.core.format import format_count, sanitise
from leadline.report.comparison import (
    CORRECTIONS,
    ROLES,
    ComparedRun,
    compared_runs,
    compared_runs_markdown,
    comparison_markdown,
    difference_row,
    format_check,
    gate_markdown,
    junit_xml,
)
from leadline.results.comparability import Obstacle, pair_runs
from leadline.results.run import Run, load_run
from leadline.results.sentences import format_gate, format_pairs
from leadline.results.totals import refuse_unmeasured
from leadline.stats.compare import Comparison
from leadline.stats.compare import compare as compare_pairs
from leadline.stats.effective import Threshold
from leadline.stats.gate import GateResult, check_gate, parse_gate


def compare(
    base: Annotated[Path, typer.Argument(help="The run to compare with.", metavar="BASE")],
    candidate: Annotated[Path, typer.Argument(help="The run to judge.", metavar="CANDIDATE")],
    gate: Annotated[
        str,
        typer.Option(
            help='Smallest accepted changes in points: "overall >= -1; task:* >= -3; length:128k >= -5; '
            'effective >= -10%". Exit code 0: all met; 1: one is broken; 2: more samples are needed to decide; 65: '
            "prompts were truncated or answers are empty, so nothing can be decided."
        ),
    ] = "",
    correction: Annotated[
        Literal["holm", "bh"],
        typer.Option(help="Correction of p-values for multiple tests: Holm or Benjamini-Hochberg."),
    ] = "holm",
    failures: FailedSamplesOption = "excluded",
    threshold: ThresholdOption = DEFAULT_THRESHOLD,
    cells: Annotated[bool, typer.Option("--cells", help="Show every cell too.")] = False,
    junit: Annotated[Path | None, typer.Option(help="Write the gate's result to this file as JUnit XML.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="In JUnit XML an undecided check is an error instead of skipped.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table for a pull request.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Compare runs with different prompts or settings.")] = False,
) -> int:
    """Compare two runs prompt by prompt: differences with intervals, corrected tests, and a gate."""
    if not gate and (junit is not None or strict):
        flag = "--junit" if junit is not None else "--strict"
        raise UsageError(
            f"{flag} is about a gate, and there is none", where="compare", fix='add --gate "overall >= -1"'
        )
    if base.resolve() == candidate.resolve():
        warn(f"both runs are the folder {base}: nothing can differ")
    clauses, gate_threshold = parse_gate(gate) if gate else (), Threshold(threshold_share(threshold))
    old, new = _open(base), _open(candidate)
    pairs, obstacles = pair_runs(old, new, failures=failures)
    _check_comparable(obstacles, anyway)
    truncated = old.totals.truncated, new.totals.truncated
    sides = compared_runs((base, candidate), (old.manifest, new.manifest), truncated)
    for side, total in zip(sides, (old.totals, new.totals), strict=True):
        if clauses:
            refuse_unmeasured(side.run, total)
        if total.answer_problem:
            warn(f"{side.run} is no measurement of the model: {total.answer_problem}")
        if side.truncated:
            warn(f"{side.truncated:,} prompts of {side.run} were not read as sent; they are in no mean")
    comparison = compare_pairs(pairs, correction=correction)
    result = check_gate(pairs, clauses, threshold=gate_threshold) if clauses else None
    if junit is not None and result is not None:
        about = {role: str(side) for role, side in zip(ROLES, sides, strict=True)}
        about |= {sanitise(obstacle.what, 80): sanitise(str(obstacle), 300) for obstacle in obstacles}
        xml = junit_xml(result, suite=f"{sides[0].name} -> {sides[1].name}", about=about, strict=strict)
        junit.parent.mkdir(parents=True, exist_ok=True)
        junit.write_text(xml, encoding="utf-8")
    if json:
        print_json(_as_json(comparison, result, cells, sides, obstacles))
    elif markdown:
        about_lines = compared_runs_markdown(sides, obstacles)
        if result is None:
            echo(comparison_markdown(comparison, about_lines))
        else:
            echo(f"{gate_markdown(result, about_lines)}\n{comparison_markdown(comparison)}")
    else:
        _show(comparison, result, cells, sides)
    return result.exit_code if result else 0


def _open(folder: Path) -> Run:
    """A run. Names lines that cannot be read: comparing leaves them out."""
    run = load_run(folder)
    for unreadable in run.unreadable[:3]:
        warn(f"{folder}: {unreadable}")
    if run.unreadable:
        warn(f"{folder}: {format_count(len(run.unreadable), 'line')} left out")
    if len(run.no_context.requested):
        without = format_count(len(run.no_context.requested), "question")
        warn(f"{folder}: {without} without a document left out: compare their scores in the report")
    return run


def _check_comparable(obstacles: Sequence[Obstacle], anyway: bool) -> None:
    """Says which settings differ. Raises if a score difference could be due to them and not to the model."""
    refused = [o for o in obstacles if o.severity == "refuse"]
    if refused and not anyway:
        raise UsageError(
            "the runs are not comparable: " + "; ".join(map(str, refused)),
            where="compare",
            fix="run both with the same spec, or add --anyway",
        )
    for obstacle in obstacles:
        warn(str(obstacle))


def _show(comparison: Comparison, result: GateResult | None, cells: bool, sides: Sequence[ComparedRun]) -> None:
    for role, side in zip(ROLES, sides, strict=True):
        echo(f"{role:<9}  {side}")
    echo()
    header = ("part", "base", "candidate", "change", "95% interval", "lost", "gained", "p", "verdict")
    rows = [difference_row(d) for d in (*comparison.differences, *(comparison.cells if cells else ()))]
    print_table(rows, header, right=frozenset({1, 2, 3, 4, 5, 6, 7}))
    failed = f", {comparison.failed:,} without an answer excluded" if comparison.failed else ""
    alone = comparison.only_base + comparison.only_candidate
    only = f", {alone:,} in one run only" if alone else ""
    text = ", all with the same text" if comparison.same_text == comparison.pairs else ""
    echo(
        f"\n{format_pairs(comparison.pairs, comparison.documents)} in both runs{text}{failed}{only}. p-values are "
        f"corrected for multiple tests ({CORRECTIONS[comparison.correction]}), and the verdict is by them; each "
        f"interval is for its row alone. The score of {100 * comparison.discordance:.1f}% of the prompts changed."
    )
    if result is not None:
        echo()
        for check in result.checks:
            echo(format_check(check))
        colour = {"pass": "green", "fail": "red", "undecided": "yellow"}[result.verdict]
        echo(f"gate: {format_gate(result)}", colour=colour, bold=True)


def _as_json(
    comparison: Comparison,
    result: GateResult | None,
    cells: bool,
    sides: Sequence[ComparedRun],
    obstacles: Sequence[Obstacle],
) -> dict[str, Any]:
    values: dict[str, Any] = {role: asdict(side) for role, side in zip(ROLES, sides, strict=True)}
    values |= {"differing": [str(obstacle) for obstacle in obstacles], **asdict(comparison)}
    if not cells:
        values.pop("cells")
    return values | {"gate": asdict(result) if result else None}
