"""The result of a gate or comparison as text: JUnit XML for a build server, Markdown tables for a pull request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

from leadline.core.format import format_tokens
from leadline.stats.compare import Comparison, Difference
from leadline.stats.gate import GateCheck, GateResult


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
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def format_check(check: GateCheck) -> str:
    """`task:vt: -4.2 (-6.0 to -2.4), bound -3.0: fail`, and what would help where it cannot be told."""
    unit = "%" if check.name == "effective" else ""
    low, high = 100 * check.interval.low, 100 * check.interval.high
    more = ""
    if check.times_more is not None:
        times = float(f"{check.times_more:.2g}")  # two digits, and no exponent
        more = (
            "; a few more samples would tell" if times < 1.1 else f"; about {times:,.6g} times the samples would tell"
        )
    return (
        f"{check.name}: {100 * check.difference:+.1f}{unit} ({low:+.1f} to {high:+.1f}), "
        f"bound {100 * check.bound:+.1f}{unit}: {check.verdict}{more}"
    )


def gate_markdown(result: GateResult, about: Sequence[str] = ()) -> str:
    """A heading with the verdict, lines about what was compared, and a row a check."""
    lines = [
        f"### Leadline gate: {result.verdict}",
        "",
        *([*about, ""] if about else ()),
        f"{result.pairs} paired prompts; intervals are {100 * (1 - result.alpha):g}%.",
        "",
        "| part | base | candidate | change | interval | bound | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_check_row(check) for check in result.checks)]) + "\n"


def comparison_markdown(comparison: Comparison, about: Sequence[str] = ()) -> str:
    """Lines about what was compared, and a row a tested part of the grid."""
    lines = [
        *([*about, ""] if about else ()),
        f"{comparison.pairs} paired prompts, {comparison.failed} left out as failed; p-values corrected "
        f"({'Holm' if comparison.correction == 'holm' else 'Benjamini-Hochberg'}).",
        "",
        "| part | base | candidate | change | interval | lost / gained | p | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_difference_row(d) for d in comparison.differences)]) + "\n"


def _check_row(check: GateCheck) -> str:
    if check.name == "effective":
        sides = f"{format_tokens(check.base)} | {format_tokens(check.candidate)}"
    else:
        sides = f"{100 * check.base:.1f} | {100 * check.candidate:.1f}"
    unit = "%" if check.name == "effective" else ""
    span = f"{100 * check.interval.low:+.1f} to {100 * check.interval.high:+.1f}"
    change, bound = f"{100 * check.difference:+.1f}{unit}", f"{100 * check.bound:+.1f}{unit}"
    return f"| {check.name} | {sides} | {change} | {span} | {bound} | {check.verdict} |"


def _difference_row(d: Difference) -> str:
    span = f"{100 * d.estimate.interval.low:+.1f} to {100 * d.estimate.interval.high:+.1f}"
    return (
        f"| {d.name} | {100 * d.base:.1f} | {100 * d.candidate:.1f} | {100 * d.estimate.mean:+.1f} | {span} "
        f"| {d.lost} / {d.gained} | {d.adjusted:.2g} | {d.verdict} |"
    )
