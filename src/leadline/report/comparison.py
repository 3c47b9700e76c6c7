"""Several runs side by side: leaderboards, differences from the first run, and the result of a comparison or gate as
JUnit XML for a build server and Markdown tables for a pull request."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

from leadline.core.errors import UsageError
from leadline.core.format import (
    NO_NUMBER,
    distinct_names,
    escape_markdown,
    format_length,
    format_percent,
    format_percent_range,
    format_span,
    format_tokens,
    sanitise,
)
from leadline.report.text_table import TextCell, TextTable, markdown_table
from leadline.results.comparability import Obstacle, pair_runs
from leadline.results.run import Run, label_of, model_of
from leadline.results.sentences import format_comparison, format_few, format_pairs
from leadline.results.table import Tally
from leadline.results.verdict import Verdict, format_truncation
from leadline.stats.compare import Comparison, Difference, compare
from leadline.stats.effective import EffectiveLength
from leadline.stats.gate import GateCheck, GateResult
from leadline.store.manifest import Manifest

ROLES = ("base", "candidate")
CORRECTIONS = {"holm": "Holm", "bh": "Benjamini-Hochberg"}
STOPPED_BY_RULE = (
    "A run that stopped by a rule is compared as if its number of samples had been fixed: the intervals of differences "
    "are somewhat too narrow. `leadline run --until verdict` takes the repeated looks into account."
)


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One of two compared runs. `name` differs from that of the other."""

    name: str
    model: str
    run: str
    truncated: int = 0
    """Prompts that were not read as sent."""

    def __str__(self) -> str:
        """`stretched, hf:checkpoints/4000?rope=yarn:4, runs/zoo/stretched`."""
        cut = f"{self.truncated:,} prompts not read as sent, in no mean" if self.truncated else ""
        parts = (self.name, self.model if self.model not in self.name else "", self.run, cut)
        return ", ".join(part for part in parts if part)


def compared_runs(
    folders: tuple[Path, Path], manifests: tuple[Manifest, Manifest], truncated: Sequence[int] = (0, 0)
) -> list[ComparedRun]:
    """Base and candidate."""
    names = distinct_names([label_of(m) for m in manifests], folder_names(folders))
    return [
        ComparedRun(name, sanitise(model_of(manifest), 200), sanitise(str(folder), 200), cut)
        for name, manifest, folder, cut in zip(names, manifests, folders, truncated, strict=True)
    ]


def compared_runs_markdown(runs: Sequence[ComparedRun], obstacles: Sequence[Obstacle]) -> list[str]:
    """Which runs were compared, and everything that differs besides the model."""
    named = [f"- {role}: {escape_markdown(str(run))}" for role, run in zip(ROLES, runs, strict=True)]
    return [*named, *(f"- {escape_markdown(sanitise(str(obstacle), 300))}" for obstacle in obstacles)]


def titles(runs: Sequence[Run]) -> list[str]:
    """A distinct name for every run."""
    return distinct_names([run.label for run in runs], folder_names([run.folder for run in runs]))


def folder_names(folders: Sequence[Path]) -> list[str]:
    """The name of each folder; of `a/run` and `b/run` as much of the path as tells them apart."""
    paths = [folder.resolve().parts for folder in folders]
    parts = 1
    while len({path[-parts:] for path in paths}) < len(set(paths)):
        parts += 1
    return ["/".join(path[-parts:]) for path in paths]


# --- leaderboards -------------------------------------------------------------------------------


def leaderboards(runs: Sequence[Run], verdicts: Sequence[Verdict], names: Sequence[str]) -> list[TextTable]:
    """A table for each reading mode, which are never mixed in one; the longest effective length first."""
    order = sorted(range(len(runs)), key=lambda i: (runs[i].reading, *_rank(runs[i], verdicts[i])))
    boards = []
    for reading, group in groupby(order, key=lambda i: runs[i].reading):
        members = list(group)
        lengths = sorted({n for i in members for n in runs[i].table.lengths})
        rows: list[tuple[str | TextCell, ...]] = [
            (
                names[i],
                effective_cell(verdicts[i].effective),
                *(_accuracy_cell(runs[i].table.by_length.get(n)) for n in lengths),
                _accuracy_cell(runs[i].table.whole),
            )
            for i in members
        ]
        columns = (f"{reading} reading", "effective length", *map(format_length, lengths), "average")
        boards.append(TextTable("", columns, rows))
    return boards


def _rank(run: Run, run_verdict: Verdict) -> tuple[float, float]:
    return -(run_verdict.effective.length if run_verdict.effective else 0.0), -(run.table.whole.mean or 0.0)


def effective_cell(effective: EffectiveLength | None) -> TextCell:
    """`43k` and `35k to 52k`."""
    return TextCell(effective.point, effective.ends) if effective else TextCell(NO_NUMBER)


def _accuracy_cell(tally: Tally | None) -> TextCell:
    if tally is None or tally.mean is None:
        return TextCell(NO_NUMBER)
    return TextCell(format_percent(tally.mean), format_percent_range(tally.interval))


def unmeasured_note(name: str, run: Run) -> str:
    """A warning before any difference with this run; empty if all prompts were read as sent, and answered."""
    totals = run.totals
    said = format_truncation(run).strip() if totals.truncated else f"not measured: {totals.answer_problem}"
    return f"{sanitise(name, 80)}: {said}" if totals.truncated or totals.answer_problem else ""


# --- differences --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunDifference:
    """A run compared with the first one; without a comparison where the two must not be compared."""

    names: tuple[str, str]
    sentence: str
    comparison: Comparison | None
    warnings: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.names[1]} compared with {self.names[0]}"


def differences_from_first(runs: Sequence[Run], names: Sequence[str]) -> list[RunDifference]:
    return [_difference((runs[0], run), (names[0], name)) for run, name in zip(runs[1:], names[1:], strict=True)]


def _difference(runs: tuple[Run, Run], names: tuple[str, str]) -> RunDifference:
    base, candidate = runs
    pairs, obstacles = pair_runs(base, candidate)
    refusals = [sanitise(str(o), 300) for o in obstacles if o.severity == "refuse"]
    warnings = tuple(sanitise(str(o), 300) for o in obstacles if o.severity == "warn")
    warnings = tuple(filter(None, map(unmeasured_note, names, runs))) + warnings
    if base.rule or candidate.rule:
        warnings += (STOPPED_BY_RULE,)
    if refusals:
        return RunDifference(names, f"Not compared: {'; '.join(refusals)}.", None, warnings)
    try:
        comparison = compare(pairs)
    except UsageError as error:
        return RunDifference(names, f"Not compared: {error.what}.", None, warnings)
    return RunDifference(names, format_comparison(comparison), comparison, warnings)


# --- a comparison or gate as text ---------------------------------------------------------------


def junit_xml(
    result: GateResult, *, suite: str = "leadline", about: Mapping[str, str] | None = None, strict: bool = False
) -> str:
    """One test case a check. An undecided check is skipped, since nothing is known to be worse; `strict`: an error.

    `about` becomes the properties of the suite. Case names depend on the gate alone, so they are stable across builds.
    """
    failures = sum(check.verdict == "fail" for check in result.checks)
    undecided = str(sum(check.verdict == "undecided" for check in result.checks))
    errors, skipped = (undecided, "0") if strict else ("0", undecided)
    root = ElementTree.Element(
        "testsuite", name=suite, tests=str(len(result.checks)), failures=str(failures), errors=errors, skipped=skipped
    )
    if about:
        properties = ElementTree.SubElement(root, "properties")
        for name, value in about.items():
            ElementTree.SubElement(properties, "property", name=name, value=value)
    for check in result.checks:
        case = ElementTree.SubElement(
            root, "testcase", classname="leadline.gate", name=f"{check.name} ({check.clause})"
        )
        if check.verdict == "fail":
            ElementTree.SubElement(case, "failure", message=format_check(check))
        elif check.verdict == "undecided":
            tag = "error" if strict else "skipped"
            ElementTree.SubElement(case, tag, message=format_check(check), type="undecided")
    return "<?xml version='1.0' encoding='utf-8'?>\n" + ElementTree.tostring(root, encoding="unicode")


def format_check(check: GateCheck) -> str:
    """`task:vt: -4.2 (-6.0 to -2.4), bound -3.0: fail`, and what would help where it is undecided."""
    unit = crossings = ""
    if check.name == "effective":
        unit, crossings = "%", f", {format_tokens(check.base)} to {format_tokens(check.candidate)} by interpolation"
    span = format_span(100 * check.interval.low, 100 * check.interval.high, "+.1f")
    more = ""
    if check.times_more is not None:
        times = float(f"{check.times_more:.2g}")  # two digits, and no exponent
        more = (
            "; a few more samples would tell" if times < 1.1 else f"; about {times:,.6g} times the samples would tell"
        )
    return (
        f"{check.name}: {100 * check.difference:+.1f}{unit} ({span}){crossings}, "
        f"bound {100 * check.bound:+.1f}{unit}: {check.verdict}{more}{format_few(check.documents)}"
    )


def gate_markdown(result: GateResult, about: Sequence[str] = ()) -> str:
    """A heading with the verdict, lines about what was compared, and a row a check."""
    lines = [
        f"### Leadline gate: {result.verdict}",
        "",
        *([*about, ""] if about else ()),
        f"{format_pairs(result.pairs, result.documents)}; intervals are {100 * (1 - result.alpha):g}%.",
        "",
    ]
    header = ("part", "base", "candidate", "change", "interval", "bound", "verdict")
    return "\n".join([*lines, *markdown_table(header, map(_check_row, result.checks), len(header))]) + "\n"


def comparison_markdown(comparison: Comparison, about: Sequence[str] = ()) -> str:
    """Lines about what was compared, and a row a tested part of the grid."""
    lines = [
        *([*about, ""] if about else ()),
        f"{format_pairs(comparison.pairs, comparison.documents)}, {comparison.failed} left out as failed; "
        f"p-values corrected ({CORRECTIONS[comparison.correction]}).",
        "",
    ]
    header = ("part", "base", "candidate", "change", "interval", "lost / gained", "p", "verdict")
    rows = []
    for d in comparison.differences:
        name, *numbers, lost, gained, p, outcome = difference_row(d)
        rows.append((escape_markdown(name), *numbers, f"{lost} / {gained}", p, outcome))
    return "\n".join([*lines, *markdown_table(header, rows, len(header))]) + "\n"


def _check_row(check: GateCheck) -> tuple[str, ...]:
    is_length = check.name == "effective"
    sides = (format_tokens(side) if is_length else f"{100 * side:.1f}" for side in (check.base, check.candidate))
    unit = "%" if is_length else ""
    return (
        escape_markdown(check.name),
        *sides,
        f"{100 * check.difference:+.1f}{unit}",
        format_span(100 * check.interval.low, 100 * check.interval.high, "+.1f"),
        f"{100 * check.bound:+.1f}{unit}",
        f"{check.verdict}{format_few(check.documents)}",
    )


def difference_row(d: Difference) -> tuple[str, ...]:
    """Name, both means, change, interval, prompts lost and gained, corrected p and verdict."""
    return (
        d.name,
        f"{100 * d.base:.1f}",
        f"{100 * d.candidate:.1f}",
        f"{100 * d.estimate.mean:+.1f}",
        format_span(100 * d.estimate.interval.low, 100 * d.estimate.interval.high, "+.1f"),
        str(d.lost),
        str(d.gained),
        "" if math.isnan(d.adjusted) else f"{d.adjusted:.2g}",  # cells are not tested
        f"{d.verdict}{format_few(d.estimate.n_clusters) if d.scope != 'cell' else ''}",
    )
