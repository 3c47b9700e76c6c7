"""Log-probability metrics of plain documents: how much does reading a text lower the NLL of its content?

`retrieval_gain` repeats a stretch of the document after it, and compares the NLL of how the stretch continues with the
NLL without the document. `longppl` is LongPPL (Fang et al., arXiv 2410.23771). All metrics come from one reading of
each document. `choices` and docs/log-probs.md list the decisions that their definitions leave open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from leadline.core.answers import Measurement
from leadline.core.contracts import DocumentFitter, LogprobTask, TextOrigin
from leadline.core.records import UNIT
from leadline.core.seeds import rng
from leadline.core.types import (
    Cell,
    Continuation,
    Document,
    Frame,
    LogprobRequest,
    Passage,
    Planted,
    Probe,
    Question,
    TokenNLL,
)
from leadline.features.logprobs.metrics import (
    Anchor,
    evaluator_marks,
    gain_numbers,
    key_numbers,
    key_tokens,
    loss_numbers,
    place_anchors,
)
from leadline.tasks.generated_reports import NAME, open_documents
from leadline.text.corpora import PlainText
from leadline.text.fitting import Fitter

if TYPE_CHECKING:
    from leadline.core.types import Ids, Nats

TextMetric = Literal["retrieval_gain", "retrieval_nll", "mean_nll", "tail_loss", "tail_vs_head", "longppl"]
ANCHORED: frozenset[str] = frozenset({"retrieval_gain", "retrieval_nll"})
"""Metrics with a place in the document, one number for each depth; the others have one for each document."""
LOSSES: frozenset[str] = frozenset({"mean_nll", "tail_loss", "tail_vs_head"})
NATS = "nats a token"
ANYWHERE = (0.1, 0.6)
"""The range from which an anchor is drawn if the grid has no depths, as in the definition."""


class LogProbs(LogprobTask):
    """Log-probabilities of documents: retrieval gain, perplexity, loss at the end against the beginning, LongPPL.

    Length is the document's tokens. Depth is the position of the repeated stretch, among all that it can have.
    """

    version: ClassVar[str] = "1"

    metrics: tuple[TextMetric, ...] = Field(("retrieval_gain",), min_length=1, description="metrics, the score first")
    documents: str = Field(NAME, description="reports (invented), prose, code, a folder, or a .jsonl, .json, text file")
    field: str = Field("text", description="text field of the objects in a JSON file")
    least: int = Field(1024, ge=2, description="documents of fewer tokens are skipped")
    whole: bool = Field(False, description="skip documents that do not fill the longest length")
    query: int = Field(24, ge=1, description="tokens that are repeated after the document")
    answer: int = Field(24, ge=1, description="tokens after those that are scored")
    separator: str = Field("", description="text between the document and the repeated tokens")
    tail: float = Field(0.25, gt=0, le=0.5, description="share of the document that counts as its end or its beginning")
    short: int = Field(4096, ge=1, description="longppl: tokens of a short context")
    step: int = Field(1024, ge=1, description="longppl: tokens by which a short context may be longer")
    evaluator: str = Field("", description="longppl: a longppl run whose key tokens are used, not the model's own")

    @model_validator(mode="after")
    def _evaluator_needs_longppl(self) -> LogProbs:
        if self.evaluator and "longppl" not in self.metrics:
            raise ValueError("an evaluator is for longppl")
        return self

    @property
    def has_depth(self) -> bool:
        return self.placement == "depth" and self.wants(ANCHORED)

    def wants(self, some: frozenset[str]) -> bool:
        return not some.isdisjoint(self.metrics)

    def sources(self) -> Sequence[TextOrigin]:
        return (open_documents(self.documents, self.field),)

    def document(self, cells: Sequence[Cell], *, seed: int, fitter: DocumentFitter) -> Document:
        assert isinstance(fitter, Fitter)
        assert fitter.plain is not None  # the plan has checked that the model gives log-probabilities
        longest = max(c.length for c in cells)
        corpus = open_documents(self.documents, self.field)
        least = longest if self.whole else min(self.least, longest)
        text = fitter.corpus(corpus, least=least, most=longest, seed=seed).document(cells[0].sample)
        separator = fitter.tokenizer.encode(self.separator) if self.separator else text.ids[:0]
        return _Builder(self, f"{corpus.name}/{text.number}", text, fitter.plain, separator, cells, seed).document()

    def choices(self) -> dict[str, str]:
        short = f"passed over below {self.least} tokens, used as they are between that and the length"
        choices = {
            "documents": "token ids of the model's own tokenizer, cut at the end, never decoded and encoded again",
            "short documents": "passed over unless they fill the longest length" if self.whole else short,
            "order of documents": "drawn by the seed",
            "special tokens": "none but the beginning of text, in both conditions; no chat template, no end of text",
            "arithmetic": "softmax in float32, means in float64",
            "averaging": "flat over documents and anchors",
        }
        if self.wants(ANCHORED):
            choices |= {
                "anchor_rule": "floor(depth * U), U = tokens - query - answer; moved on while the query stands in the "
                "document more than once, up to the next anchor (the last moves back), else marked ambiguous",
                "separator": repr(self.separator) if self.separator else "none: ids are joined",
            }
        if self.wants(LOSSES):
            choices["end and beginning"] = f"the last and the first {self.tail:g} of the tokens scored"
        if "longppl" in self.metrics:
            by = f"the run {self.evaluator}" if self.evaluator else "the model itself"
            choices["key tokens"] = (
                f"loss falls by more than 2 nats with the whole document against its last {self.short} to "
                f"{self.short + self.step} tokens, to below 2 nats, as read by {by}"
            )
        return choices


GAIN = LogProbs(metrics=("retrieval_gain", "retrieval_nll"))
NLL = LogProbs(metrics=("retrieval_nll", "retrieval_gain"))
LOSS = LogProbs(metrics=("mean_nll",))
TAIL = LogProbs(metrics=("tail_loss",))
TAIL_VS_HEAD = LogProbs(metrics=("tail_vs_head",))
LONGPPL = LogProbs(metrics=("longppl", "mean_nll"))
PROXIES = LogProbs(metrics=("retrieval_gain", "retrieval_nll", "mean_nll", "tail_loss", "tail_vs_head", "longppl"))


# --- one document -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _PartialRequest:
    """Some of a cell's numbers, from the NLLs of some passages by their index."""

    passages: tuple[int, ...]
    numbers: Callable[[Mapping[int, TokenNLL]], Measurement]


class _Builder:
    """Collects the passages of one document for all metrics, and the way from them to the numbers of every cell.

    The document is the first passage, read once for all anchors, cuts and losses. LongPPL's short contexts are
    passages of their own, since they begin elsewhere.
    """

    def __init__(
        self, task: LogProbs, name: str, text: PlainText, plain: Frame, separator: Ids, cells: Sequence[Cell], seed: int
    ) -> None:
        self._task = task
        self._name = name
        self._text = text
        self._plain = plain
        self._separator = separator
        self._cells = cells
        self._seed = seed
        self._continuations: list[Continuation] = []
        self._short_contexts: list[Passage] = []
        self._requests: dict[str, list[_PartialRequest]] = {c.key: [] for c in cells}
        self._anchors: dict[str, Anchor] = {}
        self._first = max(text.before, 1)
        """The first token that is scored: the first of the text, or its second if nothing precedes it."""

    def document(self) -> Document:
        task, longppl = self._task, "longppl" in self._task.metrics
        if longppl and not task.evaluator:
            self._add_short_contexts()
        for length in sorted({c.length for c in self._cells}):
            cells = [c for c in self._cells if c.length == length]
            own = self._text.cut(length)
            if task.wants(ANCHORED):
                self._add_gains(own, cells)
            of_document = self._requests[cells[0].key]  # numbers of the whole document are with its first cell
            if task.wants(LOSSES):
                of_document.append(self._loss(own))
            if longppl:
                of_document.append(self._evaluated_keys(own, length) if task.evaluator else self._own_keys(own))
        spans = ((self._first, len(self._text.ids)),) if task.wants(LOSSES) or longppl else ()
        passages = (Passage(self._text.ids, tuple(self._continuations), spans), *self._short_contexts)
        nested = len({c.length for c in self._cells}) > 1
        return Document(
            id=f"{self._name}/{'nested' if nested else self._cells[0].length}",
            cluster=self._name,
            frame=self._plain,
            text=self._plain.before + self._text.text,
            tokens=self._text.ids,
            body_start=self._text.before,
            body_start_characters=len(self._plain.before),
            facts=tuple(self._planted(cell) for cell in self._cells if cell.key in self._anchors),
            probes=tuple(map(self._probe, self._cells)),
            passages=passages,
        )

    # --- gain ---

    def _add_gains(self, own: PlainText, cells: Sequence[Cell]) -> None:
        task = self._task
        draw = rng(self._seed, "anchor", self._name)
        depths = [draw.uniform(*ANYWHERE) if c.depth is None else c.depth for c in cells]
        anchors = place_anchors(own.own, depths, query=task.query, answer=task.answer)
        for cell, anchor in zip(cells, anchors, strict=True):
            self._anchors[cell.key] = anchor
            self._requests[cell.key].append(self._gain(own, anchor))

    def _gain(self, own: PlainText, anchor: Anchor) -> _PartialRequest:
        task, start = self._task, anchor.at + self._task.query
        repeated = own.own[anchor.at : start + task.answer]
        after = self._continue(len(own.ids), np.concatenate([self._separator, repeated]), len(self._separator))
        alone = self._continue(own.before, repeated, 0)
        position = {"distance": float(own.tokens - start), "ambiguous": float(anchor.ambiguous)}
        utf8 = own.utf8(start, start + task.answer)

        def numbers(nlls: Mapping[int, TokenNLL]) -> Measurement:
            nats = nlls[0].continuations
            return Measurement({**gain_numbers(nats[after], nats[alone], utf8), **position})

        return _PartialRequest((0,), numbers)

    def _continue(self, cut: int, ids: Ids, separator: int) -> int:
        """Adds a continuation whose answer is scored; returns its index."""
        self._continuations.append(Continuation(cut, ids.astype(np.int32), separator + self._task.query))
        return len(self._continuations) - 1

    # --- losses ---

    def _loss(self, own: PlainText) -> _PartialRequest:
        utf8, tail = own.utf8(self._first - own.before, own.tokens), self._task.tail
        return _PartialRequest((0,), lambda nlls: Measurement(loss_numbers(self._scored(nlls, own), utf8, tail)))

    def _scored(self, nlls: Mapping[int, TokenNLL], own: PlainText) -> Nats:
        """NLLs of the document's tokens up to a cut, from the first that is scored."""
        return nlls[0].spans[0][: len(own.ids) - self._first]

    # --- LongPPL ---

    def _add_short_contexts(self) -> None:
        """Passages for the tokens from short + step on, `step` of them in each, after short + step tokens at most."""
        task, text = self._task, self._text
        for start in range(task.step, text.tokens - task.short, task.step):
            stop = min(start + task.short + task.step, text.tokens)
            ids = np.concatenate([text.ids[: text.before], text.own[start:stop]])
            self._short_contexts.append(Passage(ids, spans=((text.before + task.short, len(ids)),)))

    def _own_keys(self, own: PlainText) -> _PartialRequest:
        begin = self._task.short + self._task.step
        needed = [n for n in range(len(self._short_contexts)) if begin + n * self._task.step < own.tokens]

        def numbers(nlls: Mapping[int, TokenNLL]) -> Measurement:
            whole = self._scored(nlls, own)[begin - (self._first - own.before) :]
            short = np.concatenate([nlls[n + 1].spans[0] for n in needed] or [whole[:0]])[: len(whole)]
            keys = key_tokens(whole[: len(short)], short)
            marks = tuple(own.characters(begin + k, begin + k + 1) for k in keys.tolist()) if own.ends else ()
            return Measurement(key_numbers(whole[keys]), marks)

        return _PartialRequest((0, *(n + 1 for n in needed)), numbers)

    def _evaluated_keys(self, own: PlainText, length: int) -> _PartialRequest:
        marks = evaluator_marks(Path(self._task.evaluator), self._name, length)
        scored = self._first - own.before
        keys = [t - scored for t in own.tokens_in(marks) if t >= scored]
        return _PartialRequest((0,), lambda nlls: Measurement(key_numbers(self._scored(nlls, own)[keys]), marks))

    # --- facts and probes ---

    def _planted(self, cell: Cell) -> Planted:
        anchor, task = self._anchors[cell.key], self._task
        end = anchor.at + task.query + task.answer
        words = self._text.words(anchor.at, end)
        return Planted(cell.key, words, anchor.at, end, anchor.depth_asked, round(anchor.depth, 6))

    def _probe(self, cell: Cell) -> Probe:
        """The repeated stretch as the question, and its continuation as the target."""
        own, anchor = self._text.cut(cell.length), self._anchors.get(cell.key)
        start, query, answer = (anchor.at, self._task.query, self._task.answer) if anchor else (0, 0, 0)
        question = own.words(start, start + query) if query else ""
        labels = {UNIT: NATS, "document": str(self._text.number)}
        if own.tokens < cell.length:
            labels["short"] = "true"
        return Probe(
            cell=cell,
            cut=len(own.ids),
            cut_characters=len(self._plain.before) + len(own.text),
            user_suffix=self._task.separator + question,
            suffix_ids=own.own[start : start + query],
            prompt_tokens=len(own.ids) + query,
            question=Question(
                question,
                targets=(own.words(start + query, start + query + answer),) if answer else (),
                facts=(cell.key,) if anchor else (),
                allowance=answer,
                scorers=self._task.metrics,
                labels=labels,
            ),
            body_tokens=own.tokens,
            logprobs=_combined(self._requests[cell.key]),
        )


def _combined(parts: Sequence[_PartialRequest]) -> LogprobRequest:
    """All requests of a cell as one. A cell may have none, and then has no numbers."""
    passages = tuple(sorted({n for part in parts for n in part.passages}))

    def numbers(nlls: Sequence[TokenNLL]) -> Measurement:
        nlls_by_index = dict(zip(passages, nlls, strict=True))
        each = [part.numbers(nlls_by_index) for part in parts]
        return Measurement(
            {name: number for part in each for name, number in part.numbers.items()},
            tuple(mark for part in each for mark in part.char_spans),
        )

    return LogprobRequest(passages, numbers)
