"""Where a run's numbers came from, as pairs of words for a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leadline.report.load import Run
from leadline.report.words import big_number, count_words, duration_words

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
        ("tokens read", big_number(totals.prompt_tokens)),
        ("tokens written", big_number(totals.completion_tokens)),
        ("time from first to last answer", duration_words(max(0.0, totals.ended - totals.started))),
        ("attempts", f"{totals.attempts:,} for {count_words(totals.records, 'sample')}"),
    ]
    if totals.cached_tokens:
        pairs.insert(1, ("of these from a cache", big_number(totals.cached_tokens)))
    return pairs


def receipts(run: Run) -> Pairs:
    """Did the model see as many tokens as were sent?"""
    totals = run.totals
    return [
        ("the model counted what we sent", count_words(totals.receipts_right, "sample")),
        ("it counted something else", count_words(totals.receipts_wrong, "sample")),
        ("it did not say", count_words(totals.receipts_silent, "sample")),
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
