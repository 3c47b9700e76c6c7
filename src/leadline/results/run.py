"""A run folder, opened for looking at: its manifest, its table, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, urlencode

from leadline.core.types import UNIT, Completion, Failure, Record
from leadline.results.table import Place, Table, planned_places, tabulate
from leadline.stats.intervals import Estimate
from leadline.stats.logprobs import by_distance, by_length, metric_of
from leadline.stats.observations import Failures
from leadline.store.manifest import Manifest, read_manifest
from leadline.store.runs import read_records

# --- Log-probability metrics by length: means with intervals over documents, in units of their own.


class Metric(NamedTuple):
    task: str
    name: str
    unit: str


@dataclass(frozen=True, slots=True)
class Measures:
    """Every metric of a run at every length; `failed` counts documents that gave no numbers."""

    estimates: Mapping[Metric, Mapping[int, Estimate]]
    by_distance: Mapping[Metric, Mapping[int, Estimate]]
    """Where answers stand at a known place: by tokens back to it, in octaves."""
    failed: int

    def __bool__(self) -> bool:
        return bool(self.estimates)


def measured(records: Iterable[Record]) -> Measures:
    """Each metric over all records of its task: where weights differ, one without a score of its own counts too."""
    tasks: dict[str, list[Record]] = {}
    metrics: dict[Metric, None] = {}
    failed = 0
    for record in records:
        failed += record.failed
        tasks.setdefault(record.cell.task, []).append(record)
        first = record.labels.get(UNIT, "")
        metrics |= dict.fromkeys(Metric(record.cell.task, n, metric_of(n).unit or first) for n in record.scores)
    distances = {m: by_distance(tasks[m.task], m.name) for m in sorted(metrics)}
    return Measures(
        estimates={m: by_length(tasks[m.task], m.name) for m in sorted(metrics)},
        by_distance={m: found for m, found in distances.items() if len(found) > 1},
        failed=failed,
    )


# --- A run folder, opened for looking at: its manifest, its table, and what it cost.

Kind = Literal["answer", "memory", "measure"]
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
        elif isinstance(outcome, Failure):
            self.failures[outcome.why] = self.failures.get(outcome.why, 0) + 1
        for note in record.sent.notes:
            self.notes[note] = self.notes.get(note, 0) + 1


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Run:
    """Everything a report says about one run, short of its single samples. No two are equal, so that what was found out
    about one can be kept for as long as it is there.

    `table` holds the answers to questions about a document, and nothing else enters an average. Questions asked
    without their document, which show what is answered from memory, and log-probabilities, which are no shares of
    anything, stand aside.
    """

    folder: Path
    manifest: Manifest
    table: Table
    memory: Table
    measures: Measures
    totals: Totals

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def model(self) -> str:
        return model_of(self.manifest)

    @property
    def label(self) -> str:
        return label_of(self.manifest)

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

    @property
    def titles(self) -> list[str]:
        """Every task of the run, those of the table first."""
        return list(dict.fromkeys([*self.table.tasks, *self.memory.tasks, *self.manifest.tasks]))

    @property
    def rule(self) -> str:
        """The stopping rule, where the run decided by itself how many samples a cell needs."""
        return str(self.manifest.spec.get("until") or "")

    def category(self, task: str) -> str:
        return str(self.manifest.tasks.get(task, {}).get("category", ""))


def interval_words(*runs: Run) -> str:
    """What kind of intervals stand in the figures."""
    plain, sequences = "95% intervals over documents", "95% confidence sequences, which hold however often a run looked"
    if not any(run.rule for run in runs):
        return plain
    return sequences if all(run.rule for run in runs) else f"{plain}; of runs that stopped by themselves {sequences}"


def load_run(folder: Path | str, failures: Failures = "excluded") -> Run:
    """Reads the whole run once. `failures` says how samples without an answer enter the means."""
    return run_of(Path(folder), read_manifest(Path(folder)), read_records(folder), failures)


def run_of(folder: Path, manifest: Manifest, records: Iterable[Record], failures: Failures = "excluded") -> Run:
    """The run that these records, the newest of every cell, make."""
    totals = Totals()
    memory: list[Record] = []
    measures: list[Record] = []
    aside = {"memory": memory, "measure": measures}
    stopped = bool(manifest.spec.get("until"))
    kinds = {title: kind_of(task) for title, task in manifest.tasks.items()}

    def answers() -> Iterator[Record]:
        for record in totals.watch(records):
            kind = kinds.get(record.cell.task, "answer")
            if kind == "answer":
                yield record
            else:
                aside[kind].append(record)

    return Run(
        folder=folder,
        manifest=manifest,
        table=tabulate(answers(), plan_of(manifest, "answer"), failures, stopped=stopped),
        memory=tabulate(memory, plan_of(manifest, "memory"), stopped=stopped),
        measures=measured(measures),
        totals=totals,
    )


def kind_of(task: Mapping[str, Any]) -> Kind:
    """What the records of a task are, from its entry in the manifest."""
    if task.get("kind") == "measure":
        return "measure"
    return "memory" if task.get("options", {}).get("no_context") else "answer"


def plan_of(manifest: Manifest, kind: Kind) -> dict[Place, int]:
    """The grid that the manifest asks for."""
    spec = manifest.spec
    tasks = {title: task for title, task in manifest.tasks.items() if kind_of(task) == kind}
    return planned_places(
        tasks,
        spec["lengths"],
        spec["depths"],
        0 if spec.get("until") else spec["samples"],  # a run that stops by itself plans no number for a cell
        depthless=[title for title, task in tasks.items() if not task.get("has_depth", True)],
    )


def label_of(manifest: Manifest) -> str:
    """What people are told a run is of: the name that a list of models gives it, else the model itself."""
    return manifest.name or model_of(manifest)


def model_of(manifest: Manifest) -> str:
    return model_words(str(manifest.spec.get("model", manifest.model.get("name", "?"))))


def model_words(name: str) -> str:
    """A model as titles call it: with the options that change it, without its address."""
    head, _, query = name.partition("?")
    options = [(k, v) for k, v in parse_qsl(query, keep_blank_values=True) if k not in ADDRESSES]
    return f"{head}?{urlencode(options, safe=':/,')}" if options else head
