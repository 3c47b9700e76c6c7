"""`leadline compare`: two runs of the same prompts, what changed, and whether a gate lets it through."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.report.comparison import Side
    from leadline.stats.comparability import Obstacle
    from leadline.stats.compare import Comparison, Pairs
    from leadline.stats.gate import GateResult
    from leadline.store.manifest import Manifest


def compare(
    base: Annotated[Path, typer.Argument(help="The run to compare with.", metavar="BASE")],
    candidate: Annotated[Path, typer.Argument(help="The run that may be worse.", metavar="CANDIDATE")],
    gate: Annotated[
        str,
        typer.Option(
            help='Demands in points: "overall >= -1; task:* >= -3; length:128k >= -5; effective >= -10%". '
            "Exit 0 when all are met, 1 when one is broken, 2 when that cannot be told yet."
        ),
    ] = "",
    correction: Annotated[
        Literal["holm", "bh"], typer.Option(help="How p-values of several parts are corrected.")
    ] = "holm",
    failures: Annotated[
        Literal["excluded", "zero"], typer.Option(help="How samples without an answer enter a mean.")
    ] = "excluded",
    cells: Annotated[bool, typer.Option("--cells", help="Describe every cell too.")] = False,
    junit: Annotated[Path | None, typer.Option(help="Write the gate as JUnit XML here.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a table for a pull request instead.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON instead.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Compare runs that did not ask the same thing.")] = False,
) -> int:
    """Compare two runs prompt by prompt: differences with intervals, tests corrected together, and a gate."""
    from leadline.cli.output import print_json
    from leadline.report.comparison import sides_of
    from leadline.stats.compare import compare as compared
    from leadline.stats.compare import pair
    from leadline.stats.gate import judge, parse_gate
    from leadline.stats.observations import observations
    from leadline.store.manifest import read_manifest
    from leadline.store.runs import read_records

    clauses = parse_gate(gate) if gate else ()
    manifests = read_manifest(base), read_manifest(candidate)
    obstacles = _check_same_question(*manifests, anyway)
    named = sides_of((base, candidate), manifests)
    sides = [observations(read_records(run)) for run in (base, candidate)]
    pairs: Pairs = pair(*sides, failures=failures)
    found = compared(pairs, correction=correction)
    result = judge(pairs, clauses) if clauses else None
    if junit is not None and result is not None:
        _write_junit(junit, result, named, obstacles)
    if json:
        print_json(_as_json(found, result, cells, named, obstacles))
    elif markdown:
        typer.echo(_in_markdown(found, result, named, obstacles))
    else:
        _show(found, result, cells, named)
    return result.exit_code if result else 0


def _check_same_question(base: Manifest, candidate: Manifest, anyway: bool) -> list[Obstacle]:
    """Says and gives what differs; refuses when a difference would not be the model's, unless told to go on."""
    from leadline.cli.output import warn
    from leadline.core.errors import UsageError
    from leadline.stats.comparability import comparability

    obstacles = comparability(base.compared(), candidate.compared())
    refused = [o for o in obstacles if o.severity == "refuse"]
    if refused and not anyway:
        raise UsageError(
            "the runs did not ask the same thing: " + "; ".join(map(str, refused)),
            where="compare",
            fix="run both with the same spec, or add --anyway and mind the differences",
        )
    for obstacle in obstacles:
        warn(str(obstacle))
    return obstacles


def _write_junit(file: Path, result: GateResult, sides: Sequence[Side], obstacles: Sequence[Obstacle]) -> None:
    from leadline.core.format import sanitise
    from leadline.report.comparison import ROLES
    from leadline.report.gate_output import junit_xml

    about = {role: str(side) for role, side in zip(ROLES, sides, strict=True)}
    about |= {sanitise(obstacle.what, 80): sanitise(str(obstacle), 300) for obstacle in obstacles}
    file.write_text(junit_xml(result, suite=f"{sides[0].name} -> {sides[1].name}", about=about))


def _in_markdown(
    found: Comparison, result: GateResult | None, sides: Sequence[Side], obstacles: Sequence[Obstacle]
) -> str:
    from leadline.report.comparison import lines_in_markdown
    from leadline.report.gate_output import comparison_markdown, gate_markdown

    about = lines_in_markdown(sides, obstacles)
    if result is None:
        return comparison_markdown(found, about)
    return f"{gate_markdown(result, about)}\n{comparison_markdown(found)}"


def _show(found: Comparison, result: GateResult | None, cells: bool, sides: Sequence[Side]) -> None:
    from leadline.cli.output import print_table
    from leadline.report.comparison import ROLES
    from leadline.report.gate_output import format_check
    from leadline.results.decisions import format_gate

    for role, side in zip(ROLES, sides, strict=True):
        typer.echo(f"{role:<9}  {side}")
    typer.echo()
    header = ("part", "base", "candidate", "change", "95% interval", "lost", "gained", "p", "verdict")
    shown = [*found.differences, *(found.cells if cells else ())]
    rows = [
        (
            d.name,
            f"{100 * d.base:.1f}",
            f"{100 * d.candidate:.1f}",
            f"{100 * d.estimate.mean:+.1f}",
            f"{100 * d.estimate.interval.low:+.1f} to {100 * d.estimate.interval.high:+.1f}",
            str(d.lost),
            str(d.gained),
            "" if d.adjusted != d.adjusted else f"{d.adjusted:.2g}",
            d.verdict,
        )
        for d in shown
    ]
    print_table(rows, header, right=frozenset({1, 2, 3, 4, 5, 6, 7}))
    typer.echo(f"\n{_pairs_words(found)}")
    if result is not None:
        typer.echo()
        for check in result.checks:
            typer.echo(format_check(check))
        colour = {"pass": "green", "fail": "red", "undecided": "yellow"}[result.verdict]
        typer.secho(f"gate: {format_gate(result)}", fg=colour, bold=True)


def _pairs_words(found: Comparison) -> str:
    from leadline.report.gate_output import format_pairs

    correction = "Holm's" if found.correction == "holm" else "Benjamini and Hochberg's"
    left = f", {found.failed:,} left out for want of an answer" if found.failed else ""
    alone = found.only_base + found.only_candidate
    only = f", {alone:,} asked in one run only" if alone else ""
    pairs = format_pairs(found.pairs, found.documents)
    return (
        f"{pairs} in both runs{left}{only}. p-values are corrected together ({correction} way); "
        f"the score of {100 * found.discordance:.1f}% of the prompts changed."
    )


def _as_json(
    found: Comparison, result: GateResult | None, cells: bool, sides: Sequence[Side], obstacles: Sequence[Obstacle]
) -> dict[str, Any]:
    from dataclasses import asdict

    from leadline.report.comparison import ROLES

    words: dict[str, Any] = {role: asdict(side) for role, side in zip(ROLES, sides, strict=True)}
    words |= {"differing": [str(obstacle) for obstacle in obstacles], **asdict(found)}
    if not cells:
        words.pop("cells")
    return words | {"gate": asdict(result) if result else None}
