"""A run folder, opened: its manifest, records, table, totals, progress and verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import parse_qsl, urlencode

from leadline.core.errors import NotMeasured, TruncatedPrompts
from leadline.core.format import format_count
from leadline.core.records import UNIT, Completion, Receipt, Record
from leadline.results.absent import AbsentRates, absent_rates
from leadline.results.cache_use import CacheUse
from leadline.results.progress import Progress, SampleCounter, finished_if_whole, status_of
from leadline.results.published import GroupScore, group_scores, scored_by
from leadline.results.strata import Stratum, StratumCounter
from leadline.results.table import Place, Table, planned_places, tabulate
from leadline.results.thinking import ThinkingByLength, ThinkingUse
from leadline.results.verdict import Verdict, verdict
from leadline.results.wording_spread import WordingSpread, wording_spreads
from leadline.stats.effective import Line
from leadline.stats.intervals import Estimate
from leadline.stats.logprobs import by_distance, by_length, metric_of
from leadline.stats.observations import Failures
from leadline.stats.ruler_summary import SuiteSummary, suite_summary
from leadline.store.manifest import Manifest, read_manifest
from leadline.store.prices import format_money, saved_prices
from leadline.store.runs import UnreadableLine, read_records

RecordKind = Literal["answer", "no_context", "logprob"]
UNANSWERED_SHARE = 0.5
"""Of the answers: with this many empty ones the server was measured and not the model."""
ADDRESS_OPTIONS = frozenset({"base_url", "tokenizer", "api_key_env", "timeout"})
"""Options of a model that say where it is, not what it is: left out of its name in titles."""


@dataclass(slots=True)
class Receipts:
    """How often the model's own prompt token count equals ours, differs from it, or was not reported.

    `truncated` and `more` are those of the different ones that differ by more than a template can.
    """

    equal: int = 0
    different: int = 0
    truncated: int = 0
    more: int = 0
    cached_left_out: int = 0
    """Counts that became equal or nearly so with the cached tokens, which the server leaves out."""
    not_given: int = 0
    largest_difference: int = 0
    """Tokens read minus tokens sent, where that is largest."""

    def add(self, receipt: Receipt) -> None:
        if receipt.read is None:
            self.not_given += 1
            return
        difference = receipt.read - receipt.ours
        self.truncated += receipt.short
        self.more += Receipt(receipt.read, receipt.ours).short
        self.cached_left_out += receipt.cached > 0
        self.equal += difference == 0
        self.different += difference != 0
        self.largest_difference = max(self.largest_difference, difference, key=abs)


@dataclass(slots=True)
class Totals:
    """Sums over the newest record of every cell. `planned` is what was asked where a rule stopped the run."""

    planned: int = 0
    done: int = 0
    failed: int = 0
    classes: Counter[str] = field(default_factory=Counter)
    """By failure class, `correct` among them."""
    failures: Counter[str] = field(default_factory=Counter)
    """Failed samples by kind, with one message of each in `messages`."""
    messages: dict[str, str] = field(default_factory=dict)
    receipts: Receipts = field(default_factory=Receipts)
    notes: Counter[str] = field(default_factory=Counter)
    """What models said about samples, and of how many."""
    served_by: Counter[str] = field(default_factory=Counter)
    """Answers by the model and configuration (system_fingerprint) that the server's reply named."""
    empty: int = 0
    """Answers without any text."""
    only_thinking: int = 0
    """Answers of thinking alone."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cache: CacheUse = field(default_factory=CacheUse)
    readings: Counter[str] = field(default_factory=Counter)
    """Tokens that a model in this process read, by document: the longest prompt where all its probes shared a reading,
    all prompts on the plain path. The further probes' own tokens are not counted."""
    model_seconds: float = 0.0
    """Of all answers of such a model."""
    thinking_tokens: int = 0
    thinking: ThinkingByLength = field(default_factory=dict)
    attempts: int = 0
    retried: int = 0
    """Samples that took more than one attempt."""
    started: float = 0.0
    ended: float = 0.0

    def add(self, record: Record) -> None:
        self.classes[record.failure_class] += 1
        self.prompt_tokens += record.prompt_tokens
        self.attempts += record.attempts
        self.retried += record.attempts > 1
        self.started = min(self.started or record.started, record.started)
        self.ended = max(self.ended, record.started + record.seconds)
        self.notes.update(record.sent.notes)
        if record.sent.form == "ids":
            self._add_reading(record)
        outcome = record.outcome
        self.failed += record.failed
        self.done += not record.failed
        if record.failed:
            why, message = record.why_failed
            self.failures[why] += 1
            self.messages[why] = message
        if isinstance(outcome, Completion):
            self.receipts.add(record.receipt)
            self.completion_tokens += outcome.completion_tokens or 0
            self.cache.add(record, outcome)
            self.thinking_tokens += outcome.thinking_tokens or 0
            self.thinking.setdefault(record.cell.length, ThinkingUse()).add(record, outcome)
            if not record.failed and not outcome.text.strip():
                self.only_thinking += bool(outcome.thinking)
                self.empty += not outcome.thinking
            if named := " ".join(filter(None, (outcome.model, outcome.system_fingerprint))):
                self.served_by[named] += 1

    def _add_reading(self, record: Record) -> None:
        before, own = self.readings[record.document], record.prompt_tokens
        plain = any(note.startswith("plain path") for note in record.sent.notes)
        self.readings[record.document] = before + own if plain else max(before, own)
        self.model_seconds += record.seconds

    @property
    def model_change(self) -> str:
        """That the server named more than one model or configuration during the run; empty if it did not."""
        if len(self.served_by) < 2:
            return ""
        shown = [f"{name} ({count:,})" for name, count in self.served_by.most_common(5)]
        more = " ..." if len(self.served_by) > 5 else ""
        return f"the server's model changed during the run: answers are from {', '.join(shown)}{more}"

    @property
    def server_problem(self) -> str:
        """What the server did for half of its answers or more, with the option that may help; empty if it answered.
        Such a run is no measurement of the model."""
        if self.only_thinking and self.only_thinking >= UNANSWERED_SHARE * self.done:
            did, count = "used the whole allowance for thinking", self.only_thinking
            fix = "allow more with --allowance auto and longer lengths, or switch thinking off with thinking=off"
        elif self.empty + self.only_thinking and self.empty + self.only_thinking >= UNANSWERED_SHARE * self.done:
            did, count = "returned an empty text", self.empty + self.only_thinking
            fix = "try max_tokens=4096 or thinking=off in the model's name, or api=completions; see the server's log"
        else:
            return ""
        return f"the server {did} in {count:,} of {format_count(self.done, 'answer')}; {fix}"

    @property
    def asked(self) -> int:
        return self.done + self.failed

    @property
    def truncated(self) -> int:
        """Answers to prompts that were not read as sent; they are among the failed samples."""
        return self.failures["input_truncated"]

    @property
    def missing(self) -> int:
        return max(0, self.planned - self.asked)

    @property
    def seconds(self) -> float:
        """From the first request to the last answer."""
        return max(0.0, self.ended - self.started)


class MetricName(NamedTuple):
    """A log-probability metric of a task, and its unit."""

    task: str
    name: str
    unit: str


@dataclass(frozen=True, slots=True)
class LogprobResults:
    """Every log-probability metric of a run at every length; `failed` counts documents without numbers."""

    estimates: Mapping[MetricName, Mapping[int, Estimate]]
    by_distance: Mapping[MetricName, Mapping[int, Estimate]]
    """Where the answer is at a known place: by distance to it in tokens, in octaves."""
    failed: int

    def __bool__(self) -> bool:
        return bool(self.estimates)


def logprob_results(records: Iterable[Record]) -> LogprobResults:
    """Means with intervals over documents. A record without a score of its own still counts where weights differ."""
    tasks: dict[str, list[Record]] = {}
    metrics: dict[MetricName, None] = {}
    failed = 0
    for record in records:
        failed += record.failed
        tasks.setdefault(record.cell.task, []).append(record)
        unit = record.labels.get(UNIT, "")
        metrics |= dict.fromkeys(MetricName(record.cell.task, n, metric_of(n).unit or unit) for n in record.scores)
    distances = {m: by_distance(tasks[m.task], m.name) for m in sorted(metrics)}
    return LogprobResults(
        estimates={m: by_length(tasks[m.task], m.name) for m in sorted(metrics)},
        by_distance={m: found for m, found in distances.items() if len(found) > 1},
        failed=failed,
    )


class Run:
    """A run, finished or still growing, as of the moment it was opened. Compared by identity.

    `table` has the answers to questions about a document, and nothing else enters an average. Questions asked without
    their document are in `no_context`, log-probability metrics in `logprobs`.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        records: Iterable[Record],
        failures: Failures = "excluded",
        unreadable: Sequence[UnreadableLine] = (),
        line: Line | None = None,
    ) -> None:
        """`records` are the newest of every cell and are read once; `failures` says how failed samples enter the
        means; `line` is what a length must reach to be an effective one."""
        self.folder = folder
        self.manifest = manifest
        self.line = line or Line()
        self.totals = Totals()
        self.metrics: dict[str, str] = {}
        """By task, the metric behind its scores."""
        self.tariff = saved_prices(folder).get(str(manifest.spec.get("model", "")))
        """The prices that the run was made with, if any."""
        self.money = 0.0
        """What its records cost at these."""
        self._published: list[Record] = []
        self._absent: list[Record] = []
        self._strata = StratumCounter()
        counter = SampleCounter.of(manifest)
        status = status_of(folder, manifest)  # before reading, so that all records of a finished run are read
        aside: dict[RecordKind, list[Record]] = {"no_context": [], "logprob": []}
        kinds = {title: kind_of(task) for title, task in manifest.tasks.items()}

        def answers() -> Iterator[Record]:
            for record in records:
                self.totals.add(record)
                counter.add(record)
                if self.tariff is not None:
                    self.money += self.tariff.cost_of(record)
                kind = kinds.get(record.cell.task, "answer")
                if kind == "answer":
                    if record.scores:
                        self.metrics.setdefault(record.cell.task, scored_by(record))
                    if "sample_id" in record.labels:
                        self._published.append(record)
                    if "absent" in record.labels:
                        self._absent.append(record)
                    self._strata.add(record)
                    yield record
                else:
                    aside[kind].append(record)

        stopped = bool(self.rule)
        self.table: Table = tabulate(answers(), planned_grid(manifest, "answer"), failures, stopped=stopped)
        self.no_context: Table = tabulate(aside["no_context"], planned_grid(manifest, "no_context"), stopped=stopped)
        self._published_alone = [record for record in aside["no_context"] if "sample_id" in record.labels]
        self._logprob_records = aside["logprob"]
        self.totals.planned = self.totals.asked if stopped else manifest.planned
        self.progress: Progress = counter.progress(finished_if_whole(status, manifest, self.totals.asked))
        """Status, counts, speed and time left."""
        self.unreadable = tuple(unreadable)
        """Lines that are not records."""

    @classmethod
    def open(cls, folder: Path | str, failures: Failures = "excluded", line: Line | None = None) -> Self:
        unreadable: list[UnreadableLine] = []
        records = read_records(folder, unreadable)
        return cls(Path(folder), read_manifest(Path(folder)), records, failures, unreadable, line)

    @property
    def records(self) -> Iterator[Record]:
        """The newest record of every cell, texts included, read from the folder."""
        return read_records(self.folder)

    @property
    def receipts(self) -> Receipts:
        return self.totals.receipts

    @property
    def paid(self) -> str:
        """`1.23 usd (prices of 2026-11-01)`; empty if the run was made without prices."""
        if self.tariff is None:
            return ""
        estimated = "" if self.receipts.equal + self.receipts.different else ", by our own token counts"
        return f"{format_money(self.money, self.tariff.currency)} ({self.tariff.says}{estimated})"

    @cached_property
    def logprobs(self) -> LogprobResults:
        return logprob_results(self._logprob_records)

    @cached_property
    def verdict(self) -> Verdict:
        return verdict(self)

    @cached_property
    def suite(self) -> SuiteSummary | None:
        """Scores by task and length with RULER's averages, of the whole and of every category; None without answers."""
        table = self.table
        if not len(table.samples.counted(table.failures)):
            return None
        categories = {task: self.category(task) or task for task in table.tasks}
        return suite_summary(
            table.samples,
            categories,
            published=table.published,
            failures=table.failures,
            threshold=round(100 * self.line.threshold, 9),
        )

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
        """The context window that the model claims."""
        window = self.manifest.model.get("window")
        return window if isinstance(window, int) else None

    @property
    def date(self) -> str:
        return datetime.fromisoformat(self.manifest.created).strftime("%Y-%m-%d")

    @property
    def titles(self) -> list[str]:
        """Every task of the run, those of the table first."""
        return list(dict.fromkeys([*self.table.tasks, *self.no_context.tasks, *self.manifest.tasks]))

    @property
    def rule(self) -> str:
        """The stopping rule, where one decided how many samples a cell needs."""
        return str(self.manifest.spec.get("until") or "")

    @cached_property
    def published(self) -> list[GroupScore]:
        """Scores of published benchmarks by length bin, difficulty and domain; empty without such tasks."""
        return group_scores(self._published, self._published_alone)

    @cached_property
    def strata(self) -> list[Stratum]:
        """The samples of each task by operation or number of needles; empty where all were asked the same."""
        return self._strata.strata()

    @cached_property
    def absent(self) -> list[AbsentRates]:
        """False alarms and false abstentions by task and length; empty without questions that have no answer."""
        return absent_rates(self._absent)

    @cached_property
    def wordings(self) -> list[WordingSpread]:
        """The spread of scores over wordings; empty where no task was asked in several."""
        return wording_spreads(self.table)

    def category(self, task: str) -> str:
        return str(self.manifest.tasks.get(task, {}).get("category", ""))


def load_run(folder: Path | str, failures: Failures = "excluded", line: Line | None = None) -> Run:
    """Opens a run folder and reads it once. `failures` says how samples without an answer enter the means, `line` what
    a length must reach to be an effective one."""
    return Run.open(folder, failures, line)


def totals_of(records: Iterable[Record]) -> Totals:
    """Of records without their run."""
    totals = Totals()
    for record in records:
        totals.add(record)
    return totals


def refuse_unmeasured(folder: Path | str, totals: Totals) -> None:
    """A gate needs every prompt read as sent, and texts in answer: anything else says nothing about the model."""
    if totals.truncated:
        raise TruncatedPrompts(
            f"no gate can be applied: {totals.truncated:,} prompts of a run were not read as sent",
            where=str(folder),
            fix="give the server a longer context and run the same command again: only these are asked",
        )
    if problem := totals.server_problem:
        did, _, fix = problem.partition("; ")
        raise NotMeasured(f"no gate can be applied: {did}", where=str(folder), fix=fix)


def kind_of(task: Mapping[str, Any]) -> RecordKind:
    """What the records of a task are, from its entry in the manifest."""
    if task.get("kind") == "measure":
        return "logprob"
    return "no_context" if task.get("options", {}).get("no_context") else "answer"


def planned_grid(manifest: Manifest, kind: RecordKind) -> dict[Place, int]:
    """The samples that the manifest plans for every place; none for a run with a stopping rule."""
    spec = manifest.spec
    tasks = {title: task for title, task in manifest.tasks.items() if kind_of(task) == kind}
    return planned_places(
        tasks,
        spec["lengths"],
        spec["depths"],
        0 if spec.get("until") else spec["samples"],
        depthless=[title for title, task in tasks.items() if not task.get("has_depth", True)],
    )


def label_of(manifest: Manifest) -> str:
    """What a run is called in titles: the name that a list of models gives it, else the model."""
    return manifest.name or model_of(manifest)


def model_of(manifest: Manifest) -> str:
    return format_model(str(manifest.spec.get("model", manifest.model.get("name", "?"))))


def format_model(name: str) -> str:
    """A model for titles: with the options that change it, without its address."""
    head, _, query = name.partition("?")
    options = [(k, v) for k, v in parse_qsl(query, keep_blank_values=True) if k not in ADDRESS_OPTIONS]
    return f"{head}?{urlencode(options, safe=':/,')}" if options else head


def format_interval_kind(*runs: Run) -> str:
    """Which kind of intervals the figures of these runs show."""
    plain, sequences = "95% intervals over documents", "95% confidence sequences, which hold however often a run looked"
    if not any(run.rule for run in runs):
        return plain
    return sequences if all(run.rule for run in runs) else f"{plain}; of runs that stopped by themselves {sequences}"
