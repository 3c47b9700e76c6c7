"""A run folder, opened for looking at: its manifest, its table, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from leadline.core.types import Completion, Record
from leadline.report.table import Place, Table, planned_places, tabulate
from leadline.store.manifest import Manifest, read_manifest
from leadline.store.runs import read_records

ADDRESSES = frozenset({"base_url", "tokenizer", "api_key_env", "timeout"})
"""Options of a model that say where it is, not what it is: left out of its name in titles."""


@dataclass(slots=True)
class Totals:
    """Sums over all records, kept while they stream by."""

    records: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    attempts: int = 0
    started: float = 0.0
    ended: float = 0.0
    receipts_right: int = 0
    receipts_wrong: int = 0
    receipts_silent: int = 0
    notes: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)

    def watch(self, records: Iterable[Record]) -> Iterator[Record]:
        """Passes records on, having counted them."""
        for record in records:
            self.add(record)
            yield record

    def add(self, record: Record) -> None:
        self.records += 1
        self.prompt_tokens += record.prompt_tokens
        self.attempts += record.attempts
        self.started = min(self.started or record.started, record.started)
        self.ended = max(self.ended, record.started + record.seconds)
        match record.receipt.ok:
            case True:
                self.receipts_right += 1
            case False:
                self.receipts_wrong += 1
            case None:
                self.receipts_silent += 1
        outcome = record.outcome
        if isinstance(outcome, Completion):
            self.completion_tokens += outcome.completion_tokens or 0
            self.cached_tokens += outcome.cached_tokens or 0
        else:
            self.failures[outcome.why] = self.failures.get(outcome.why, 0) + 1
        for note in record.sent.notes:
            self.notes[note] = self.notes.get(note, 0) + 1


@dataclass(frozen=True, slots=True)
class Run:
    """Everything a report says about one run, short of its single samples."""

    folder: Path
    manifest: Manifest
    table: Table
    totals: Totals

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def model(self) -> str:
        return model_words(str(self.manifest.spec.get("model", self.manifest.model.get("name", "?"))))

    @property
    def reading(self) -> str:
        return str(self.manifest.spec.get("reading", "fresh"))

    @property
    def window(self) -> int | None:
        """What the model claims to read."""
        window = self.manifest.model.get("window")
        return window if isinstance(window, int) else None

    @property
    def date(self) -> str:
        return datetime.fromisoformat(self.manifest.created).strftime("%Y-%m-%d")

    def category(self, task: str) -> str:
        return str(self.manifest.tasks.get(task, {}).get("category", ""))


def load_run(folder: Path | str) -> Run:
    """Reads the whole run once."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    totals = Totals()
    table = tabulate(totals.watch(read_records(folder)), plan_of(manifest))
    return Run(folder, manifest, table, totals)


def plan_of(manifest: Manifest) -> dict[Place, int]:
    """The grid that the manifest asks for."""
    spec = manifest.spec
    return planned_places(
        manifest.tasks,
        spec["lengths"],
        spec["depths"],
        spec["samples"],
        depthless=[title for title, task in manifest.tasks.items() if not task.get("has_depth", True)],
    )


def model_words(name: str) -> str:
    """A model as titles call it: with the options that change it, without its address."""
    head, _, query = name.partition("?")
    options = [(k, v) for k, v in parse_qsl(query, keep_blank_values=True) if k not in ADDRESSES]
    return f"{head}?{urlencode(options, safe=':/,')}" if options else head
