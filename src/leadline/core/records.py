"""The record of a question and its answer on disk.

    Score     what a scorer makes of a completion
    Needs     the part of the document that answers the question
    Receipt   whether the model read as many tokens as were sent
    Record    a question and its answer, with all that grading it again needs: one line of records.jsonl

What was sent and what came back is in `leadline.core.answers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import islice
from operator import add
from typing import Literal

import msgspec

from leadline.core.answers import Failure, Outcome, Sent
from leadline.core.types import Cell, Question, Reading


class Score(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """0..1, with the part of the answer it is based on; for a log-probability metric any number, mostly nats."""

    value: float
    answer: str = ""
    explanation: str = ""
    metric: str = ""
    """The metric that a scorer chose, if it has one for each data set."""


FailureClass = Literal[
    "correct", "partial", "distractor", "not_found", "false_abstention", "false_alarm", "wrong", "empty", "refused",
    "cut_off", "wrong_format", "input_truncated", "error", "measured",
]  # fmt: skip


SLACK_TOKENS = 64
SLACK_SHARE = 0.02
"""Templates with another system text differ by a few dozen tokens, a truncated prompt by far more."""


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Did the model see as many tokens as we sent? `theirs` is None when it does not say."""

    ours: int
    theirs: int | None
    cached: int = 0
    """Cached prompt tokens that `theirs` leaves out, as some servers report it."""
    cacheable: int = 0
    """First tokens of the prompt that the server had read before, for another probe of the document."""
    estimated: bool = False
    """Whether `ours` is an estimate, with which nothing can be compared."""

    @property
    def read(self) -> int | None:
        """Prompt tokens that the model read, cached or not."""
        return None if self.theirs is None else self.theirs + self.cached

    @property
    def ok(self) -> bool | None:
        return None if self.theirs is None or self.estimated else self.read == self.ours

    @property
    def short(self) -> bool:
        """Whether the model read fewer tokens than were sent, by more than templates can differ."""
        slack = max(SLACK_TOKENS, SLACK_SHARE * self.ours)
        return not self.estimated and self.read is not None and self.ours - self.read > slack


class PlantedRecord(msgspec.Struct, frozen=True, gc=False):
    """Position of a needed fact in body tokens, with the depth asked for and the actual depth."""

    id: str
    start: int
    end: int
    depth_asked: float
    depth: float


class Needs(msgspec.Struct, frozen=True, gc=False):
    """The pieces of the document that answer a question, and their distance."""

    pieces: int
    span: int
    """Tokens from the first token of evidence to the last."""
    tokens: int
    """Tokens of the pieces together: the smallest part of the document that answers the question."""


UNIT = "unit"
"""The label with the unit of a log-probability metric. Only records of such metrics have it, failed ones too."""


BATCH = 32
"""Records that are handled together: few enough to stay in a processor's cache while their columns are read."""


def batched(records: Iterable[Record]) -> Iterator[list[Record]]:
    """The records in batches. What is done for each record of a large run costs least column by column."""
    remaining = iter(records)
    while batch := list(islice(remaining, BATCH)):
        yield batch


def added_up(start: float, amounts: Iterable[float]) -> float:
    """The sum, added from left to right in every version of Python: the same for any division into batches."""
    return reduce(add, amounts, start)


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One question and its answer: a line of records.jsonl. It can be graded again without its document."""

    version: int = 2
    cell: Cell
    reading: Reading
    document: str
    cluster: str
    model: str
    question: Question
    facts: tuple[PlantedRecord, ...]
    evidence: tuple[str, ...] = ()
    """The facts that the question needs, each with some of the text around it, for judges and readers."""
    needs: Needs | None = None
    """The part of the document that answers the question; None if that is not known, or without a document."""
    body_tokens: int
    """Tokens of the document up to the cut, without what precedes the body."""
    prompt_tokens: int
    sent: Sent
    outcome: Outcome
    receipt: Receipt
    scores: dict[str, Score]
    failure_class: FailureClass
    detail: str = ""
    """A finer class, such as 'copied the demonstration'."""
    other_value: str = ""
    """A value in the answer that is none of the targets, and that another line of the document has."""
    prompt_digest: str = ""
    """The digest of the prompt's text, template included as far as it is known; empty in older runs."""
    preparation_seconds: float = 0.0
    """The time of preparing the text before it was asked about, such as compacting it."""
    attempts: int
    started: float
    seconds: float

    @property
    def truncated(self) -> bool:
        """Whether it was answered, but its receipt shows that the prompt was not read as sent."""
        return self.failure_class == "input_truncated" and not isinstance(self.outcome, Failure)

    @property
    def failed(self) -> bool:
        """Whether the sample is no measurement of the model: no answer came, or the prompt was not read as sent."""
        return self.failure_class == "input_truncated" or isinstance(self.outcome, Failure)

    @property
    def is_final(self) -> bool:
        """Whether it need not be asked again: it was answered, or left out on purpose."""
        return not self.failed or (isinstance(self.outcome, Failure) and self.outcome.why == "left_out")

    @property
    def why_failed(self) -> tuple[str, str]:
        """The kind of failure and a message, of a sample that failed."""
        if isinstance(self.outcome, Failure):
            return self.outcome.why, self.outcome.message
        return "input_truncated", f"the server read {self.receipt.read:,} of the {self.receipt.ours:,} tokens sent"

    @property
    def wants_logprobs(self) -> bool:
        """Whether the probe asked for log-probabilities, so that its score is not a share of right answers."""
        return UNIT in self.question.labels

    @property
    def metric(self) -> str:
        """The metric behind the score of an answered sample: its first scorer, or what that chose for its data set."""
        name, first = next(iter(self.scores.items()))
        return first.metric or name

    @property
    def score(self) -> float | None:
        """The first scorer's value; None for a failed sample."""
        if self.failure_class == "input_truncated" or isinstance(self.outcome, Failure):
            return None
        for score in self.scores.values():  # read for every record, several times: a generator costs twice as much
            return score.value
        return None
