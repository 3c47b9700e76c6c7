"""Sums over the records of a run: how samples came out, receipts, tokens, caches, thinking, and what the server did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from leadline.core.answers import Completion
from leadline.core.drafts import EXTRA_ALLOWANCE
from leadline.core.errors import NotMeasured, TruncatedPrompts
from leadline.core.format import format_count, format_duration
from leadline.core.records import Receipt, Record, added_up, batched
from leadline.results.server_advice import ENGINE_HITS, STATE_HITS, cache_advice

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

Answered = tuple[Record, Completion]


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

    def add(self, receipts: Sequence[Receipt]) -> None:
        others = [r for r in receipts if r.theirs != r.ours or r.cached or r.estimated]
        self.equal += len(receipts) - len(others)
        for receipt in others:
            self._add_other(receipt)

    def _add_other(self, receipt: Receipt) -> None:
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

    def add(self, answers: Sequence[Answered]) -> None:
        stated = [tokens for _, outcome in answers if (tokens := outcome.cached_tokens) is not None]
        self.answers += len(answers)
        self.prompt_tokens += sum([record.prompt_tokens for record, _ in answers])
        self.cached_tokens += sum(stated)
        self.stated += len(stated)
        self.written_tokens += sum([o.cache_write_tokens or 0 for _, o in answers])
        self.written_tokens += sum([o.primed_tokens or 0 for _, o in answers])
        first = [record.seconds for record, _ in answers if not record.receipt.cacheable]
        self.first_seconds = added_up(self.first_seconds, first)
        if len(first) < len(answers):
            self._add_following([answer for answer in answers if answer[0].receipt.cacheable])

    def _add_following(self, answers: Sequence[Answered]) -> None:
        self.following += len(answers)
        self.following_seconds = added_up(self.following_seconds, [record.seconds for record, _ in answers])
        for record, outcome in answers:
            cacheable = record.receipt.cacheable
            self.cacheable_tokens += cacheable
            if outcome.cached_tokens is not None:
                self.cacheable_stated += cacheable
                self.cacheable_cached += min(outcome.cached_tokens, cacheable)

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
    owner, advice = ("engine", ENGINE_HITS) if "model.engine" in fingerprints else ("server", cache_advice(kind))
    return (
        f"the documents were shared, but only {100 * use.hit_share:.0f}% of the tokens that could have come from the "
        f"{owner}'s prefix cache did: {advice}"
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

    def add(self, answers: Sequence[Answered]) -> None:
        """Adds those that have a score."""
        scores = [record.score for record, _ in answers]
        if None in scores:
            answers = [answer for answer, score in zip(answers, scores, strict=True) if score is not None]
        self.answers += len(answers)
        self.score = added_up(self.score, [score for score in scores if score is not None])
        self.cut_off += sum([outcome.finish == "length" for _, outcome in answers])
        thought = [
            outcome.thinking_tokens or 0 for _, outcome in answers if outcome.thinking_tokens or outcome.thinking
        ]
        self.thought += len(thought)
        self.tokens += sum(thought)
        self.most = max([self.most, *thought])
        for labels in [record.question.labels for record, _ in answers if record.question.labels]:
            if (allowed := labels.get(EXTRA_ALLOWANCE, "")) and allowed.isdecimal():
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

    def add(self, records: Sequence[Record]) -> None:
        self.classes.update([record.failure_class for record in records])
        self.prompt_tokens += sum([record.prompt_tokens for record in records])
        attempts = [record.attempts for record in records]
        self.attempts += sum(attempts)
        self.retried += sum([count > 1 for count in attempts])
        self._add_times(records)
        self.notes.update(chain.from_iterable([record.sent.notes for record in records if record.sent.notes]))
        if in_process := [record for record in records if record.sent.form == "ids"]:
            self._add_readings(in_process)
        failed = [record for record in records if record.failed]
        self.failed += len(failed)
        self.done += len(records) - len(failed)
        for record in failed:
            why, message = record.why_failed
            self.failures[why] += 1
            self.messages[why] = message
        if answers := [(record, outcome) for record in records if isinstance(outcome := record.outcome, Completion)]:
            self._add_answers(answers)

    def _add_times(self, records: Sequence[Record]) -> None:
        started = [record.started for record in records]
        if known := [moment for moment in (self.started, *started) if moment]:
            self.started = min(known)
        self.ended = max([self.ended, *[record.started + record.seconds for record in records]])

    def _add_readings(self, records: Sequence[Record]) -> None:
        readings = self.readings
        for record in records:
            document, own, notes = record.document, record.prompt_tokens, record.sent.notes
            if notes and any(note.startswith("plain path") for note in notes):
                readings[document] += own
            elif own >= readings.get(document, 0):
                readings[document] = own
        self.model_seconds = added_up(self.model_seconds, [record.seconds for record in records])

    def _add_answers(self, answers: Sequence[Answered]) -> None:
        self.receipts.add([record.receipt for record, _ in answers])
        self.cache.add(answers)
        self.completion_tokens += sum([outcome.completion_tokens or 0 for _, outcome in answers])
        self.thinking_tokens += sum([outcome.thinking_tokens or 0 for _, outcome in answers])
        by_length: dict[int, list[Answered]] = {}
        for answer in answers:
            by_length.setdefault(answer[0].cell.length, []).append(answer)
        for length, of_length in by_length.items():
            self.thinking.setdefault(length, ThinkingUse()).add(of_length)
        self.forms.update([record.sent.form for record, _ in answers])
        for record, outcome in answers:
            if not outcome.text.strip() and not record.failed:
                self.only_thinking += bool(outcome.thinking)
                self.empty += not outcome.thinking
            if outcome.model or outcome.system_fingerprint:
                self.served_by[" ".join(filter(None, (outcome.model, outcome.system_fingerprint)))] += 1

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
    for batch in batched(records):
        totals.add(batch)
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
