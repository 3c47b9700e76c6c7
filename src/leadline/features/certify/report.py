"""What a certification says: sentences, a page with one table and one picture, Markdown, JUnit XML and JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from markupsafe import Markup

from leadline import __version__
from leadline.core.format import escape_markdown, format_count, sanitise
from leadline.core.secrets import redact
from leadline.features.certify.decide import TIE_NATS, QuotedFigure, quoted_figures
from leadline.features.certify.rounds import Certification
from leadline.report.charts.grid import difference_map
from leadline.report.charts.render import PageFigure
from leadline.report.comparison import comparison_markdown, difference_row, junit_xml
from leadline.report.page import asset, page_style, policy, template
from leadline.results.run import Run
from leadline.results.summary import repeats_values
from leadline.stats.drift import DriftMean

PACKAGE = "leadline.features.certify"
HEADER = ("part", "base", "candidate", "change", "95% interval", "lost", "gained", "p", "verdict")


def headline(certification: Certification) -> str:
    """One sentence: the verdict, and where."""
    overall, margin = certification.decision.comparison.overall, -100 * certification.decision.gate.checks[0].bound
    change = f"{100 * overall.estimate.mean:+.1f} points"
    interval = overall.estimate.interval
    span = f"95%: {100 * interval.low:+.1f} to {100 * interval.high:+.1f}"
    size = f"{format_count(certification.decision.comparison.pairs, 'prompt')}, {certification.samples} samples a cell"
    if certification.decision.outcome == "kept":
        return f"Kept: {change} overall ({span}); a loss of {margin:g} points or more is ruled out. {size}."
    if certification.decision.outcome == "lost":
        blamed = certification.decision.blamed
        where = "; ".join(f"{d.name} {100 * d.estimate.mean:+.1f} points" for d in blamed)
        where = where or f"{change} overall, but no one part has all of the loss, and not every part has some"
        return f"Lost: {sanitise(where, 300)}. {size}."
    more = [check.times_more for check in certification.decision.gate.checks if check.times_more is not None]
    need = f" About {max(more) * certification.samples:.0f} samples a cell would decide." if more else ""
    return f"Undecided: {change} overall ({span}), neither a loss of {margin:g} points nor none. {size}.{need}"


def noise_lines(certification: Certification) -> list[str]:
    """The flips of each side against itself."""
    lines = [f"{flips.role} asked again: {flips.repeats.describe()}" for flips in certification.self_flips]
    flip = next(figure for figure in figures(certification) if figure.name == "flip rate")
    assert flip.value is not None
    lines.append(f"between the sides: {format_figure(flip)} scored otherwise{_tie_words(certification)}")
    for cache in certification.caches:
        summary = cache.summary
        reused = "" if cache.cached_tokens is None else f" ({cache.cached_tokens:,} tokens reused)"
        lines.append(
            f"{cache.role} from its cache{reused} against itself read afresh: mean KL {summary.kl.value:.2g} nats, "
            f"largest difference {summary.largest:.2g} nats, same first token at {_percent(summary.same_top)}"
        )
    lines += [f"{role}, deterministic mode: {mode}" for role, mode in certification.determinism]
    return lines


def _tie_words(certification: Certification) -> str:
    ties = certification.ties
    if not ties.known:
        return ""
    return f"; {ties.ties} of {ties.known} flips with a known margin are ties (below {TIE_NATS:g} nats)"


def _percent(mean: DriftMean) -> str:
    return "nothing" if mean.value is None else f"{100 * mean.value:.1f}%"


DRIFT_HEADER = ("position", "places", "mean KL", "95% interval", "same top-1", "change in NLL", "95% interval")


def drift_rows(certification: Certification) -> list[tuple[str, ...]]:
    """The whole and each bucket of positions; none where log-probabilities were not compared."""
    if certification.drift.problem:
        return []
    return [
        (
            summary.name,
            str(summary.kl.positions),
            f"{summary.kl.value:.2g}",
            _span(summary.kl),
            _percent(summary.same_top),
            "-" if summary.nll.value is None else f"{summary.nll.value:+.2g}",
            _span(summary.nll),
        )
        for summary in (certification.drift.overall, *certification.drift.buckets)
    ]


def _span(mean: DriftMean) -> str:
    return "-" if mean.interval is None else f"{mean.interval.low:.2g} to {mean.interval.high:.2g}"


def figures(certification: Certification) -> tuple[QuotedFigure, ...]:
    return quoted_figures(certification.pairs, certification.decision, certification.drift)


def format_figure(figure: QuotedFigure) -> str:
    if figure.value is None:
        return f"not measured: {figure.note}"
    if figure.name.startswith("p "):
        return f"{figure.value:.2g}"
    if figure.name == "mean KLD":
        span = "" if figure.interval is None else f" ({figure.interval.low:.2g} to {figure.interval.high:.2g})"
        return f"{figure.value:.2g} nats{span}"
    value = f"{100 * figure.value:.1f}%"
    if figure.interval is None:
        return value
    return f"{value} ({100 * figure.interval.low:.1f} to {100 * figure.interval.high:.1f})"


def values(certification: Certification) -> dict[str, Any]:
    """For programs."""
    return {
        "outcome": certification.decision.outcome,
        "headline": headline(certification),
        "base": str(certification.base.folder),
        "candidate": str(certification.candidate.folder),
        "samples_a_cell": certification.samples,
        "most_samples_a_cell": certification.max_samples,
        "alpha_of_this_look": certification.decision.alpha,
        "blamed": [d.name for d in certification.decision.blamed],
        "figures": {figure.name: asdict(figure) for figure in figures(certification)},
        "candidate_over_base": {figure.name: asdict(figure) for figure in certification.speeds},
        "drift": asdict(certification.drift),
        "cached_against_fresh": [asdict(cache) for cache in certification.caches],
        "ties": asdict(certification.ties),
        "deterministic_mode": dict(certification.determinism),
        "asked_again": [{"role": flips.role, **repeats_values(flips.repeats)} for flips in certification.self_flips],
        "checks": [asdict(check) for check in certification.decision.gate.checks],
        "parts": [asdict(d) for d in certification.decision.comparison.differences],
        "differing": list(certification.warnings),
    }


def markdown(certification: Certification) -> str:
    """For a pull request."""
    rows = [f"- {figure.name}: {escape_markdown(format_figure(figure))}" for figure in figures(certification)]
    rows += [f"- {escape_markdown(line)}" for line in noise_lines(certification)]
    rows += [
        f"- {figure.name}, candidate over base: {escape_markdown(format_figure(figure))}"
        for figure in certification.speeds
    ]
    table = comparison_markdown(certification.decision.comparison)
    return "\n".join([f"**{escape_markdown(headline(certification))}**", "", *rows, "", table])


def junit(certification: Certification) -> str:
    return junit_xml(
        certification.decision.gate,
        suite=f"{certification.base.name} -> {certification.candidate.name}",
        about={"verdict": headline(certification)},
    )


def _asked_model(run: Run) -> str:
    """With its address and all options: they may be all that differs."""
    return redact(sanitise(str(run.manifest.spec.get("model", run.model)), 200))


def write_page(certification: Certification, path: Path, servers: list[tuple[str, str]]) -> Path:
    """One table and one picture."""
    style = page_style() + asset("certify.css", PACKAGE)
    names = certification.base.name, certification.candidate.name
    text = template("certify.html", PACKAGE).render(
        title=f"{certification.decision.outcome}: {names[0]} -> {names[1]} · Leadline",
        policy=policy(style, ""),
        style=Markup(style),
        outcome=certification.decision.outcome,
        headline=headline(certification),
        sides=[
            ("base", _asked_model(certification.base)),
            ("candidate", _asked_model(certification.candidate)),
            *servers,
        ],
        header=HEADER,
        rows=[difference_row(d) for d in certification.decision.comparison.differences],
        checks=[(c.name, f"{100 * c.bound:+g}", c.verdict) for c in certification.decision.gate.checks],
        picture=PageFigure(difference_map(certification.decision.comparison, names, titled=True), "difference"),
        figures=[(figure.name, format_figure(figure)) for figure in figures(certification)],
        speeds=[(figure.name, format_figure(figure)) for figure in certification.speeds],
        drift_header=DRIFT_HEADER,
        drift=drift_rows(certification),
        noise=noise_lines(certification),
        warnings=certification.warnings,
        version=__version__,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="replace")
    return path
