"""A run folder, opened: its manifest, records, table, totals and progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import parse_qsl, urlencode

from leadline.core.money import format_money
from leadline.core.records import UNIT, Record, batched
from leadline.results.breakdowns import (
    AbsentRates,
    NeedsCounter,
    Stratum,
    StratumCounter,
    WordingSpread,
    absent_rates,
    wording_spreads,
)
from leadline.results.progress import RunProgress, SampleCounter, finished_if_whole, status_of
from leadline.results.repeats import Repeats, repeats_of
from leadline.results.table import GridPoint, Table, planned_points, tabulate
from leadline.results.totals import Receipts, Totals
from leadline.stats.effective import Threshold
from leadline.stats.intervals import Estimate
from leadline.stats.logprobs import by_distance, by_length, metric_of
from leadline.stats.observations import Failures
from leadline.stats.ruler_summary import SuiteSummary, suite_summary
from leadline.store.manifest import Manifest, read_manifest
from leadline.store.prices import RunPrices
from leadline.store.runs import UnreadableLine, read_records

RecordKind = Literal["answer", "no_context", "logprob"]
ADDRESS_OPTIONS = frozenset({"base_url", "base_url_env", "headers_env", "tokenizer", "api_key_env", "timeout"})
"""Options of a model that say where it is, not what it is: left out of its name in titles."""


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
        unit = record.question.labels.get(UNIT, "")
        metrics |= dict.fromkeys(MetricName(record.cell.task, n, metric_of(n).unit or unit) for n in record.scores)
    distances = {m: by_distance(tasks[m.task], m.name) for m in sorted(metrics)}
    return LogprobResults(
        estimates={m: by_length(tasks[m.task], m.name) for m in sorted(metrics)},
        by_distance={m: curves for m, curves in distances.items() if len(curves) > 1},
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
        threshold: Threshold | None = None,
        prices: RunPrices | None = None,
        also: Callable[[Sequence[Record]], None] | None = None,
    ) -> None:
        """`records` are the newest of every cell and are read once; `failures` says how failed samples are counted,
        `threshold` what a length must reach to be an effective one; `prices` replace those it was made with. `also` is
        given the records too, some at a time: a large run is read once for everything."""
        self.folder = folder
        self.manifest = manifest
        self.threshold = threshold or Threshold()
        self.totals = Totals()
        self.metrics: dict[str, str] = {}
        """By task, the metric behind its scores."""
        self._prices = prices or RunPrices(folder)
        self.tariff = self._prices.of(str(manifest.spec.get("model", "")))
        """The prices of the tested model, if any."""
        self.money = self._prices.model_money(self.tariff)
        """What its records cost at these, those that newer ones replaced too."""
        self.alone: list[Record] = []
        """Questions at length 0, without a document: what longer ones are compared with. In no mean."""
        self.data_set_records: list[Record] = []
        """Of tasks whose samples come from a data set and have an id there."""
        self._absent: list[Record] = []
        self._strata = StratumCounter(failures)
        self.needs = NeedsCounter(failures)
        """What every question of the table needs of its document, where that is known."""
        counter = SampleCounter.of(manifest)
        status = status_of(folder, manifest)  # before reading, so that all records of a finished run are read
        aside: dict[RecordKind, list[Record]] = {"no_context": [], "logprob": []}
        kinds = {title: kind_of(task) for title, task in manifest.tasks.items()}

        def answers() -> Iterator[Record]:
            for batch in batched(records):
                self.totals.add(batch)
                counter.add_all(batch)
                if also is not None:
                    also(batch)
                self.alone += [record for record in batch if not record.cell.length]
                of_kind: dict[RecordKind, list[Record]] = {"answer": [], **aside}
                for record in batch:
                    if record.cell.length:
                        of_kind[kinds.get(record.cell.task, "answer")].append(record)
                self._add_answers(of_kind["answer"])
                yield from of_kind["answer"]

        stopped = bool(self.rule)
        self.table: Table = tabulate(answers(), planned_grid(manifest, "answer"), failures, stopped=stopped)
        alone = planned_grid(manifest, "no_context")
        self.no_context: Table = tabulate(aside["no_context"], alone, failures, stopped=stopped)
        self.data_set_records_without_text = [r for r in aside["no_context"] if "sample_id" in r.question.labels]
        self._logprob_records = aside["logprob"]
        self.totals.planned = self.totals.asked if stopped else manifest.planned
        self.progress: RunProgress = counter.progress(finished_if_whole(status, manifest, self.totals.asked))
        """Status, counts, speed and time left."""
        self.unreadable = tuple(unreadable)
        """Lines that are not records."""

    def _add_answers(self, records: Sequence[Record]) -> None:
        """Keeps what the table has no place for."""
        for record in records:
            if record.cell.task not in self.metrics and record.scores:
                self.metrics[record.cell.task] = record.metric
        if labelled := [record for record in records if record.question.labels]:
            self.data_set_records += [record for record in labelled if "sample_id" in record.question.labels]
            self._strata.add(labelled)
        self._absent += [record for record in records if record.question.absent is not None]
        self.needs.add([record for record in records if record.needs is not None])

    @classmethod
    def open(
        cls,
        folder: Path | str,
        failures: Failures = "excluded",
        threshold: Threshold | None = None,
        prices: RunPrices | None = None,
        also: Callable[[Sequence[Record]], None] | None = None,
    ) -> Self:
        unreadable: list[UnreadableLine] = []
        records = read_records(folder, unreadable)
        return cls(Path(folder), read_manifest(Path(folder)), records, failures, unreadable, threshold, prices, also)

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
        estimated = (
            ""
            if self.receipts.equal + self.receipts.different + self.receipts.estimated
            else ", by our own token counts"
        )
        return f"{format_money(self.money, self.tariff.currency)} ({self.tariff.origin}{estimated})"

    @cached_property
    def judge_money(self) -> dict[str, float]:
        """By judge, what its verdicts cost: apart from the money of the model. Judges without prices are left out."""
        return self._prices.judge_money()

    @property
    def paid_to_judges(self) -> str:
        """`0.12 usd for judges (some-judge 0.12 usd)`; empty without judges that have prices."""
        return format_judge_money(self.judge_money, self._prices)

    @cached_property
    def logprobs(self) -> LogprobResults:
        return logprob_results(self._logprob_records)

    @cached_property
    def suite(self) -> SuiteSummary | None:
        """Scores by task and length with RULER's averages, of the whole and of every category; None without answers."""
        table = self.table
        if not len(table.counted.counted()):
            return None
        categories = {task: self.category(task) or task for task in table.tasks}
        return suite_summary(
            table.counted,
            categories,
            published=table.published,
            threshold=round(100 * self.threshold.value, 9),
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
    def repeats(self) -> Repeats | None:
        """What differed where questions were asked a second time; None where none were."""
        return repeats_of(self.folder)

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


def load_run(
    folder: Path | str,
    failures: Failures = "excluded",
    threshold: Threshold | None = None,
    prices: RunPrices | None = None,
    also: Callable[[Sequence[Record]], None] | None = None,
) -> Run:
    """Opens a run folder and reads it once. `failures` says how samples without an answer are counted, `threshold` what
    a length must reach to be an effective one, `prices` what to count its money with, `also` what else needs the
    records."""
    return Run.open(folder, failures, threshold, prices, also)


def format_judge_money(paid: Mapping[str, float], prices: RunPrices) -> str:
    """`0.12 usd for judges (some-judge 0.12 usd)`; empty without any."""
    if not paid:
        return ""
    tariff = prices.of(next(iter(paid)))
    currency = tariff.currency if tariff is not None else ""
    each = ", ".join(f"{format_model(name)} {format_money(amount, currency)}" for name, amount in paid.items())
    estimated = ", by our own token counts" if prices.judges_estimated() else ""
    return f"{format_money(sum(paid.values()), currency)} for judges ({each}{estimated})"


def kind_of(task: Mapping[str, Any]) -> RecordKind:
    """What the records of a task are, from its entry in the manifest."""
    if task.get("kind") == "measure":
        return "logprob"
    return "no_context" if task.get("options", {}).get("no_context") else "answer"


def planned_grid(manifest: Manifest, kind: RecordKind) -> dict[GridPoint, int]:
    """The samples that the manifest plans for every place; none for a run with a stopping rule."""
    spec = manifest.spec
    tasks = {title: task for title, task in manifest.tasks.items() if kind_of(task) == kind}
    return planned_points(
        tasks,
        [length for length in spec["lengths"] if length],
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
