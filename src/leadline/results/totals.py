"""Sums over the records of a run: how samples came out, receipts, tokens, caches, thinking, and what the server did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from leadline.core.answers import Completion
from leadline.core.drafts import EXTRA_ALLOWANCE
from leadline.core.errors import NotMeasured, TruncatedPrompts
from leadline.core.format import format_count, format_duration
from leadline.core.records import Receipt, Record
from leadline.results.server_advice import STATE_HITS, cache_advice

FEW_HITS = 0.1
"""Share of the tokens that could have come from a cache; with fewer, the cache was not in effect."""
LEAST_FOLLOWING = 4
"""Answers that must have had something to find in a cache, before its absence is warned of."""

UNANSWERED_SHARE = 0.5
"""Of the answers: with this many empty ones the run is no measurement of the model."""
EMPTY_FIXES = {
    "chat": "try max_tokens=4096 or thinking=off in the model's name, or api=completions; see the server's log",
    "ids": "try max_tokens=4096, thinking=off or another form= in the model's name",
    "completion": "give the model one of the prompts by hand (--keep-prompts saves them); for a server, try "
    "max_tokens=4096 or api=chat in the model's name",
}
"""Where answers are empty, what may help, by the form of the prompts."""


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
    estimated: int = 0
    """Counts that cannot be compared, since ours are estimates, with the sums of both."""
    estimated_tokens: int = 0
    counted_tokens: int = 0
    largest_difference: int = 0
    """Tokens read minus tokens sent, where that is largest."""

    @property
    def tokens_per_estimated(self) -> float | None:
        """Tokens that were read for each of those that we estimated; None without estimates."""
        return self.counted_tokens / self.estimated_tokens if self.estimated_tokens else None

    def add(self, receipt: Receipt) -> None:
        if receipt.read is None:
            self.not_given += 1
            return
        if receipt.estimated:
            self.estimated += 1
            self.estimated_tokens += receipt.ours
            self.counted_tokens += receipt.read
            return
        self.cached_left_out += receipt.cached > 0
        difference = receipt.read - receipt.ours
        if not difference:
            self.equal += 1
            return
        self.truncated += receipt.short
        self.more += Receipt(receipt.read, receipt.ours).short
        self.different += 1
        self.largest_difference = max(self.largest_difference, difference, key=abs)


# --- prompt tokens from a cache, and tokens of thinking -----------------------------------------
#
# Receipts say what came from a server's prefix cache. What could have come from it is on the records: the beginning of
# every prompt that had been asked before, for another probe of its document.


@dataclass(slots=True)
class CacheUse:
    """Sums over the answers of a run."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    cacheable_tokens: int = 0
    cacheable_cached: int = 0
    """Of the cacheable tokens of answers whose receipt says so, those that came from a cache."""
    cacheable_stated: int = 0
    """Cacheable tokens of answers whose receipt says how many came from a cache."""
    following: int = 0
    """Answers to prompts whose beginning had been asked before."""
    stated: int = 0
    """Answers whose receipt says how many tokens came from a cache, if only that there were none."""
    answers: int = 0
    first_seconds: float = 0.0
    following_seconds: float = 0.0

    def add(self, record: Record, outcome: Completion) -> None:
        self.answers += 1
        self.prompt_tokens += record.prompt_tokens
        if outcome.cached_tokens is not None:
            self.cached_tokens += outcome.cached_tokens
            self.stated += 1
        self.written_tokens += (outcome.cache_write_tokens or 0) + (outcome.primed_tokens or 0)
        cacheable = record.receipt.cacheable
        self.cacheable_tokens += cacheable
        if cacheable:
            self.following += 1
            self.following_seconds += record.seconds
            if outcome.cached_tokens is not None:
                self.cacheable_stated += cacheable
                self.cacheable_cached += min(outcome.cached_tokens, cacheable)
        else:
            self.first_seconds += record.seconds

    @property
    def hit_share(self) -> float | None:
        """Of the tokens that could have come from the cache; None where the server does not say."""
        return self.cacheable_cached / self.cacheable_stated if self.cacheable_stated else None

    def values(self) -> dict[str, float | int | None]:
        """For JSON."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens if self.stated else None,
            "written_tokens": self.written_tokens,
            "cacheable_tokens": self.cacheable_tokens,
            "hit_share": self.hit_share,
        }


def format_cache_use(use: CacheUse) -> str:
    """`31,020 of 120,400 prompt tokens were read, 89,380 (74 %) came from a cache: 92 % of those that could`."""
    if not use.stated:
        return ""
    read = use.prompt_tokens - use.cached_tokens
    share = 100 * use.cached_tokens / max(1, use.prompt_tokens)
    sentence = (
        f"{read:,} of {use.prompt_tokens:,} prompt tokens were read, {use.cached_tokens:,} ({share:.0f}%) came from "
    )
    sentence += "a cache"
    if use.hit_share is not None:
        sentence += f": {100 * use.hit_share:.0f}% of those that could"
    if use.stated < use.answers:
        sentence += f"; {format_count(use.answers - use.stated, 'answer')} did not say"
    return sentence


def format_seconds_saved(use: CacheUse) -> str:
    """Tokens from a cache are not yet time saved: what first and further questions of a document took."""
    first = use.answers - use.following
    if not use.following or not first:
        return ""
    first_mean, following_mean = use.first_seconds / first, use.following_seconds / use.following
    return f"the first question of a document took {format_duration(first_mean)} on average, a further one " + (
        format_duration(following_mean)
    )


def cache_warning(use: CacheUse, fingerprints: Mapping[str, str]) -> str:
    """That a cache was not in effect although documents were shared, with what would help; else empty."""
    if use.following < LEAST_FOLLOWING:
        return ""
    kind = fingerprints.get("model.server", "").partition(" ")[0]
    if use.hit_share is None:
        if kind not in STATE_HITS:
            return ""
        return (
            "the server does not say how many tokens came from its prefix cache, so that it is not known whether "
            f"sharing documents saved anything: {STATE_HITS[kind]}"
        )
    if use.hit_share >= FEW_HITS:
        return ""
    return (
        f"the documents were shared, but only {100 * use.hit_share:.0f}% of the tokens that could have come from the "
        f"server's prefix cache did: {cache_advice(kind)}"
    )


@dataclass(slots=True)
class ThinkingUse:
    """Sums over the answers of a length, or of a run."""

    answers: int = 0
    thought: int = 0
    """Answers with thinking."""
    tokens: int = 0
    most: int = 0
    cut_off: int = 0
    """Answers that ended because the allowance did."""
    score: float = 0.0
    allowed: int = 0
    """The largest allowance beyond that of the answer."""

    def add(self, record: Record, outcome: Completion) -> None:
        score = record.score
        if score is None:
            return
        self.answers += 1
        self.score += score
        self.cut_off += outcome.finish == "length"
        if outcome.thinking_tokens or outcome.thinking:
            tokens = outcome.thinking_tokens or 0
            self.thought += 1
            self.tokens += tokens
            self.most = max(self.most, tokens)
        if (allowed := record.question.labels.get(EXTRA_ALLOWANCE, "")) and allowed.isdecimal():
            self.allowed = max(self.allowed, int(allowed))

    @property
    def mean_tokens(self) -> float:
        return self.tokens / self.answers if self.answers else 0.0

    @property
    def accuracy(self) -> float | None:
        return self.score / self.answers if self.answers else None

    @property
    def cut_share(self) -> float:
        return self.cut_off / self.answers if self.answers else 0.0


ThinkingByLength = dict[int, ThinkingUse]


def is_shown(by_length: ThinkingByLength) -> bool:
    """Whether the model thought at all, or had room to."""
    return any(use.thought or use.allowed for use in by_length.values())


def thinking_values(by_length: ThinkingByLength) -> list[dict[str, float | int | None]]:
    """For JSON."""
    return [
        {
            "length": length,
            "answers": use.answers,
            "mean_thinking_tokens": use.mean_tokens,
            "most_thinking_tokens": use.most,
            "cut_off": use.cut_share,
            "accuracy": use.accuracy,
            "allowance": use.allowed,
        }
        for length, use in sorted(by_length.items())
    ]


# --- all sums -----------------------------------------------------------------------------------


class AnswerProblem(NamedTuple):
    """`fix` is an option that may help."""

    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}; {self.fix}"


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
    forms: Counter[str] = field(default_factory=Counter)
    """Answers by the form in which their prompts were sent."""
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
        started = record.started
        if started < self.started or not self.started:
            self.started = started
        if (ended := started + record.seconds) > self.ended:
            self.ended = ended
        if record.sent.notes:
            self.notes.update(record.sent.notes)
        if record.sent.form == "ids":
            self._add_reading(record)
        outcome, failed = record.outcome, record.failed
        self.failed += failed
        self.done += not failed
        if failed:
            why, message = record.why_failed
            self.failures[why] += 1
            self.messages[why] = message
        if isinstance(outcome, Completion):
            self.receipts.add(record.receipt)
            self.completion_tokens += outcome.completion_tokens or 0
            self.cache.add(record, outcome)
            self.thinking_tokens += outcome.thinking_tokens or 0
            length = record.cell.length
            if length not in self.thinking:
                self.thinking[length] = ThinkingUse()
            self.thinking[length].add(record, outcome)
            self.forms[record.sent.form] += 1
            if not failed and not outcome.text.strip():
                self.only_thinking += bool(outcome.thinking)
                self.empty += not outcome.thinking
            if outcome.model or outcome.system_fingerprint:
                self.served_by[" ".join(filter(None, (outcome.model, outcome.system_fingerprint)))] += 1

    def _add_reading(self, record: Record) -> None:
        before, own, notes = self.readings.get(record.document, 0), record.prompt_tokens, record.sent.notes
        plain = bool(notes) and any(note.startswith("plain path") for note in notes)
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
    def answer_problem(self) -> AnswerProblem | None:
        """What half of the answers or more lack; None if they are texts. Such a run is no measurement of the model."""
        if self.only_thinking and self.only_thinking >= UNANSWERED_SHARE * self.done:
            what, count = "the whole allowance was used for thinking", self.only_thinking
            fix = "allow more with --allowance auto and longer lengths, or switch thinking off with thinking=off"
        elif self.empty + self.only_thinking and self.empty + self.only_thinking >= UNANSWERED_SHARE * self.done:
            what, count = "the text is empty", self.empty + self.only_thinking
            fix = EMPTY_FIXES[self.forms.most_common(1)[0][0]]
        else:
            return None
        return AnswerProblem(f"{what} in {count:,} of {format_count(self.done, 'answer')}", fix)

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
    if problem := totals.answer_problem:
        raise NotMeasured(f"no gate can be applied: {problem.what}", where=str(folder), fix=problem.fix)
