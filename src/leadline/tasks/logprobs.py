"""Grids that log-probability metrics are run with when nobody says otherwise, each under the name of its task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from leadline.core.contracts import Continuation, Origin, Tokenizer, TokenNLL
from leadline.core.logprobs import CellNumbers, LogprobDocument, LogprobTask, Passage
from leadline.core.seeds import rng
from leadline.core.spec import Suite
from leadline.core.types import UNIT, Cell, Frame, Measurement, Planted, Probe
from leadline.tasks.generated_reports import NAME, open_documents
from leadline.tasks.logprob_metrics import (
    Anchor,
    evaluator_marks,
    gain_numbers,
    key_numbers,
    key_tokens,
    loss_numbers,
    place_anchors,
)
from leadline.text.corpora import PlainText, open_text_cache

if TYPE_CHECKING:
    from leadline.core.contracts import Nats
    from leadline.core.types import Ids


# --- Log-probability metrics of plain documents: how much does having read a text lower the surprise at what it says?
#
# `retrieval_gain` repeats a stretch of the document after it, and compares the surprise at how the stretch goes on with
# the surprise where the stretch stands alone. `longppl` is LongPPL (Fang et al., arXiv 2410.23771). All metrics
# asked for
# come from one reading of each document. What their definitions leave open is in `choices` and in docs/log-probs.md.

Metric = Literal["retrieval_gain", "retrieval_nll", "mean_nll", "tail_loss", "tail_vs_head", "longppl"]
ANCHORED: frozenset[str] = frozenset({"retrieval_gain", "retrieval_nll"})
"""Metrics with a place in the document, one number for each depth; the others have one for each document."""
LOSSES: frozenset[str] = frozenset({"mean_nll", "tail_loss", "tail_vs_head"})


class LogProbs(LogprobTask):
    """Surprise at documents: retrieval gain, perplexity, loss at the end against the beginning, LongPPL.

    Length is the document's tokens. Depth is where the repeated stretch stands, of all the places it can have.
    """

    version: ClassVar[str] = "1"

    metrics: tuple[Metric, ...] = Field(("retrieval_gain",), min_length=1, description="what to measure, all at once")
    documents: str = Field(NAME, description="reports (invented), prose, code, a folder, or a .jsonl, .json, text file")
    field: str = Field("text", description="where objects of a JSON file have their text")
    least: int = Field(1024, ge=2, description="documents of fewer tokens are passed over")
    whole: bool = Field(False, description="pass over documents that do not fill the longest length")
    query: int = Field(24, ge=1, description="tokens that are repeated after the document")
    answer: int = Field(24, ge=1, description="tokens after those that are scored")
    separator: str = Field("", description="text between the document and the tokens repeated")
    tail: float = Field(0.25, gt=0, le=0.5, description="share of the document that is its end, and its beginning")
    short: int = Field(4096, ge=1, description="longppl: tokens of a short context")
    step: int = Field(1024, ge=1, description="longppl: tokens by which a short context may be longer")
    evaluator: str = Field("", description="longppl: a run of longppl whose key tokens are taken, not the model's own")

    @model_validator(mode="after")
    def _evaluator_has_work(self) -> LogProbs:
        if self.evaluator and "longppl" not in self.metrics:
            raise ValueError("an evaluator is for longppl")
        return self

    @property
    def has_depth(self) -> bool:
        return self.placement == "depth" and self.wants(ANCHORED)

    def wants(self, some: frozenset[str]) -> bool:
        return not some.isdisjoint(self.metrics)

    def sources(self) -> Sequence[Origin]:
        return (open_documents(self.documents, self.field),)

    def sound(
        self, cells: Sequence[Cell], *, seed: int, tokenizer: Tokenizer, frame: Frame, plain: Frame
    ) -> LogprobDocument:
        longest = max(c.length for c in cells)
        corpus = open_documents(self.documents, self.field)
        least = longest if self.whole else min(self.least, longest)
        shelf = open_text_cache(corpus, tokenizer, plain, least=least, most=longest, seed=seed)
        text = shelf.document(cells[0].sample)
        separator = tokenizer.encode(self.separator) if self.separator else text.ids[:0]
        return LogprobDraft(self, f"{corpus.name}/{text.number}", text, plain, separator, cells, seed).document()

    def choices(self) -> dict[str, str]:
        short = f"passed over below {self.least} tokens, used as they are between that and the length"
        made = {
            "documents": "token ids of the model's own tokenizer, cut at the end, never decoded and encoded again",
            "short documents": "passed over unless they fill the longest length" if self.whole else short,
            "order of documents": "drawn by the seed",
            "special tokens": "none but the beginning of text, in both conditions; no chat template, no end of text",
            "arithmetic": "softmax in float32, means in float64",
            "averaging": "flat over documents and anchors",
        }
        if self.wants(ANCHORED):
            made |= {
                "anchor_rule": "floor(depth * U), U = tokens - query - answer; moved on while the query stands in the "
                "document more than once, up to the next anchor (the last moves back), else marked ambiguous",
                "separator": repr(self.separator) if self.separator else "none: ids are joined",
            }
        if self.wants(LOSSES):
            made["end and beginning"] = f"the last and the first {self.tail:g} of the tokens scored"
        if "longppl" in self.metrics:
            by = f"the run {self.evaluator}" if self.evaluator else "the model itself"
            made["key tokens"] = (
                f"loss falls by more than 2 nats with the whole document against its last {self.short} to "
                f"{self.short + self.step} tokens, to below 2 nats, as read by {by}"
            )
        return made


GAIN = LogProbs(metrics=("retrieval_gain", "retrieval_nll"))
NLL = LogProbs(metrics=("retrieval_nll", "retrieval_gain"))
LOSS = LogProbs(metrics=("mean_nll",))
TAIL = LogProbs(metrics=("tail_loss",))
TAIL_VS_HEAD = LogProbs(metrics=("tail_vs_head",))
LONGPPL = LogProbs(metrics=("longppl", "mean_nll"))
PROXIES = LogProbs(metrics=("retrieval_gain", "retrieval_nll", "mean_nll", "tail_loss", "tail_vs_head", "longppl"))


# --- One document in the making: what is read of it for the metrics asked for, and what becomes of it for every cell.
#
# The document is the first passage, read once for all anchors, cuts and losses. LongPPL's short contexts are
# passages of
# their own, since they begin elsewhere.

NATS = "nats a token"
ANYWHERE = (0.1, 0.6)
"""Where an anchor is drawn when the grid has no depths: the range of the definition."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some of a cell's numbers, from the surprise at some passages by their number."""

    passages: tuple[int, ...]
    made: Callable[[Mapping[int, TokenNLL]], Measurement]


class LogprobDraft:
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
        self._asides: list[Passage] = []
        self._parts: dict[str, list[Part]] = {c.key: [] for c in cells}
        self._anchors: dict[str, Anchor] = {}
        # Whatever is scored of the document itself is one span: its own tokens, less a first one with nothing before.
        self._first = max(text.before, 1)

    def document(self) -> LogprobDocument:
        task, longppl = self._task, "longppl" in self._task.metrics
        losses = not {"mean_nll", "tail_loss", "tail_vs_head"}.isdisjoint(task.metrics)
        if longppl and not task.evaluator:
            self._lay_short_contexts()
        for length in sorted({c.length for c in self._cells}):
            here = [c for c in self._cells if c.length == length]
            own = self._text.cut(length)
            if not {"retrieval_gain", "retrieval_nll"}.isdisjoint(task.metrics):
                self._add_gains(own, here)
            of_document = self._parts[here[0].key]  # numbers of the whole document stand with its first cell
            if losses:
                of_document.append(self._loss(own))
            if longppl:
                of_document.append(self._evaluated_keys(own, length) if task.evaluator else self._own_keys(own))
        spans = ((self._first, len(self._text.ids)),) if losses or longppl else ()
        passages = (Passage(self._text.ids, tuple(self._continuations), spans), *self._asides)
        return self._finished(passages)

    # --- gain ---

    def _add_gains(self, own: PlainText, cells: Sequence[Cell]) -> None:
        task = self._task
        draw = rng(self._seed, "anchor", self._name)
        depths = [draw.uniform(*ANYWHERE) if c.depth is None else c.depth for c in cells]
        for cell, anchor in zip(
            cells, place_anchors(own.own, depths, query=task.query, answer=task.answer), strict=True
        ):
            self._anchors[cell.key] = anchor
            self._parts[cell.key].append(self._gain(own, anchor))

    def _gain(self, own: PlainText, anchor: Anchor) -> Part:
        task, start = self._task, anchor.at + self._task.query
        repeated = own.own[anchor.at : start + task.answer]
        after = self._continue(len(own.ids), np.concatenate([self._separator, repeated]), len(self._separator))
        alone = self._continue(own.before, repeated, 0)
        place = {"distance": float(own.tokens - start), "ambiguous": float(anchor.ambiguous)}
        utf8 = own.utf8(start, start + task.answer)

        def made(found: Mapping[int, TokenNLL]) -> Measurement:
            nats = found[0].continuations
            return Measurement({**gain_numbers(nats[after], nats[alone], utf8), **place})

        return Part((0,), made)

    def _continue(self, cut: int, ids: Ids, separator: int) -> int:
        """A continuation whose answer is scored; says its number."""
        self._continuations.append(Continuation(cut, ids.astype(np.int32), separator + self._task.query))
        return len(self._continuations) - 1

    # --- losses ---

    def _loss(self, own: PlainText) -> Part:
        utf8, tail = own.utf8(self._first - own.before, own.tokens), self._task.tail
        return Part((0,), lambda found: Measurement(loss_numbers(self._scored(found, own), utf8, tail)))

    def _scored(self, found: Mapping[int, TokenNLL], own: PlainText) -> Nats:
        """Surprise at the document's tokens up to a cut, from the first that can be scored."""
        return found[0].spans[0][: len(own.ids) - self._first]

    # --- LongPPL ---

    def _lay_short_contexts(self) -> None:
        """Tokens from short + step on, `step` at a time, after no more than short + step tokens before them."""
        task, text = self._task, self._text
        for start in range(task.step, text.tokens - task.short, task.step):
            stop = min(start + task.short + task.step, text.tokens)
            ids = np.concatenate([text.ids[: text.before], text.own[start:stop]])
            self._asides.append(Passage(ids, spans=((text.before + task.short, len(ids)),)))

    def _own_keys(self, own: PlainText) -> Part:
        begin = self._task.short + self._task.step
        needed = [n for n in range(len(self._asides)) if begin + n * self._task.step < own.tokens]

        def made(found: Mapping[int, TokenNLL]) -> Measurement:
            whole = self._scored(found, own)[begin - (self._first - own.before) :]
            short = np.concatenate([found[n + 1].spans[0] for n in needed] or [whole[:0]])[: len(whole)]
            keys = key_tokens(whole[: len(short)], short)
            marks = tuple(own.characters(begin + k, begin + k + 1) for k in keys.tolist()) if own.ends else ()
            return Measurement(key_numbers(whole[keys]), marks)

        return Part((0, *(n + 1 for n in needed)), made)

    def _evaluated_keys(self, own: PlainText, length: int) -> Part:
        marks = evaluator_marks(Path(self._task.evaluator), self._name, length)
        scored = self._first - own.before
        keys = [t - scored for t in own.tokens_in(marks) if t >= scored]
        return Part((0,), lambda found: Measurement(key_numbers(self._scored(found, own)[keys]), marks))

    # --- the document ---

    def _finished(self, passages: tuple[Passage, ...]) -> LogprobDocument:
        nested = len({c.length for c in self._cells}) > 1
        return LogprobDocument(
            id=f"{self._name}/{'nested' if nested else self._cells[0].length}",
            cluster=self._name,
            frame=self._plain,
            text=self._plain.before + self._text.text,
            ids=self._text.ids,
            body_start=self._text.before,
            body_start_characters=len(self._plain.before),
            facts=tuple(self._planted(cell) for cell in self._cells if cell.key in self._anchors),
            probes=tuple(map(self._probe, self._cells)),
            passages=passages,
            reckonings={key: _together(parts) for key, parts in self._parts.items()},
        )

    def _planted(self, cell: Cell) -> Planted:
        anchor, task = self._anchors[cell.key], self._task
        end = anchor.at + task.query + task.answer
        return Planted(
            cell.key, self._text.words(anchor.at, end), anchor.at, end, anchor.depth_asked, round(anchor.depth, 6)
        )

    def _probe(self, cell: Cell) -> Probe:
        """What stood where, in the words of a question: the stretch repeated, and how it goes on."""
        own, anchor = self._text.cut(cell.length), self._anchors.get(cell.key)
        start = 0 if anchor is None else anchor.at
        asked = 0 if anchor is None else self._task.query
        answer = 0 if anchor is None else self._task.answer
        question = own.words(start, start + asked) if asked else ""
        labels = {UNIT: NATS, "document": str(self._text.number)}
        if own.tokens < cell.length:
            labels["short"] = "true"
        return Probe(
            cell=cell,
            cut=len(own.ids),
            cut_characters=len(self._plain.before) + len(own.text),
            tail=self._task.separator + question,
            closing_ids=own.own[start : start + asked],
            prompt_tokens=len(own.ids) + asked,
            question=question,
            answer_prefix="",
            targets=(own.words(start + asked, start + asked + answer),) if answer else (),
            distractors=(),
            facts=(cell.key,) if anchor else (),
            allowance=answer,
            scorers=self._task.metrics,
            labels=labels,
            body_tokens=own.tokens,
        )


def _together(parts: Sequence[Part]) -> CellNumbers:
    """All parts of a cell's numbers as one rule. A cell may have none of its own, and then has no numbers."""
    passages = tuple(sorted({n for part in parts for n in part.passages}))

    def numbers(surprises: Sequence[TokenNLL]) -> Measurement:
        found = dict(zip(passages, surprises, strict=True))
        made = [part.made(found) for part in parts]
        return Measurement(
            {name: number for one in made for name, number in one.numbers.items()},
            tuple(mark for one in made for mark in one.marks),
        )

    return CellNumbers(passages, numbers)


# --- Grids that log-probability metrics are run with when nobody says otherwise, each under the name of i

ANCHORS = (0.1, 0.6)
"""The two anchors of the definition, as shares of the places an anchor can have."""


def _suite(name: str, summary: str, **grid: Any) -> Suite:
    return Suite(name=name, summary=summary, values={"tasks": [name], "samples": 50, **grid})


RETRIEVAL_GAIN_SUITE = _suite(
    "retrieval_gain", "as defined: 50 documents of 8,192 tokens, two anchors", lengths="8k", depths=ANCHORS
)
RETRIEVAL_NLL_SUITE = _suite(
    "retrieval_nll", "the same without the comparison: 50 documents of 8,192 tokens", lengths="8k", depths=ANCHORS
)
MEAN_NLL_SUITE = _suite("mean_nll", "perplexity of 20 documents at each length", lengths="1k,2k,4k,8k", samples=20)
TAIL_LOSS_SUITE = _suite("tail_loss", "loss over the last quarter of 50 documents", lengths="8k")
TAIL_VS_HEAD_SUITE = _suite("tail_vs_head", "loss over the last quarter less that over the first", lengths="8k")
LONGPPL_SUITE = _suite("longppl", "perplexity of tokens that need the far context, in 50 documents", lengths="16k")
NEEDLE_GAIN_SUITE = _suite(
    "needle_gain", "planted facts against the fact alone, 20 documents a cell", lengths="2k,4k,8k", samples=20
)
NEEDLE_CHANCE_SUITE = _suite(
    "needle_chance", "the chance of planted values, eight in each of two documents at each length",
    lengths="2k,4k,8k,16k", depths="0.05..0.95:8", samples=2, reading="shared",
)  # fmt: skip
PROXIES_SUITE = _suite(
    "proxies", "every metric of plain documents from one reading of each", lengths="8k", depths=ANCHORS
)
TRAP_SUITE = Suite(
    name="trap",
    summary="perplexity, retrieval and gain over the same lengths: what perplexity does not show",
    values={
        "tasks": ["niah", {"name": "mean_nll"}, {"name": "retrieval_gain"}],
        "lengths": "1k,2k,4k,8k,16k",
        "depths": (0.1, 0.35, 0.6),
        "samples": 10,
    },
)
