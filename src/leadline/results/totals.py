"""Sums over the records of a run: how samples came out, tokens, receipts, caches, and what the server did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from leadline.core.errors import NotMeasured, TruncatedPrompts
from leadline.core.format import format_count
from leadline.core.records import Completion, Receipt, Record
from leadline.results.token_use import CacheUse, ThinkingByLength, ThinkingUse

UNANSWERED_SHARE = 0.5
"""Of the answers: with this many empty ones the server was measured and not the model."""


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
