"""Log-probability metrics of plain documents: how much does having read a text lower the surprise at what it says?

`retrieval_gain` repeats a stretch of the document after it, and compares the surprise at how the stretch goes on with
the surprise where the stretch stands alone. `longppl` is LongPPL (Fang et al., arXiv 2410.23771). All metrics asked for
come from one reading of each document. What their definitions leave open is in `choices` and in docs/log-probs.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from leadline.core.contracts import Origin, Tokenizer
from leadline.core.soundings import Measure, Sounded
from leadline.core.types import Cell, Frame
from leadline.tasks.invented_reports import NAME, open_documents
from leadline.tasks.sounding_parts import Sounding
from leadline.text.plain import open_shelf

Metric = Literal["retrieval_gain", "retrieval_nll", "mean_nll", "tail_loss", "tail_vs_head", "longppl"]
ANCHORED: frozenset[str] = frozenset({"retrieval_gain", "retrieval_nll"})
"""Metrics with a place in the document, one number for each depth; the others have one for each document."""
LOSSES: frozenset[str] = frozenset({"mean_nll", "tail_loss", "tail_vs_head"})


class LogProbs(Measure):
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

    def sound(self, cells: Sequence[Cell], *, seed: int, tokenizer: Tokenizer, frame: Frame, plain: Frame) -> Sounded:
        longest = max(c.length for c in cells)
        corpus = open_documents(self.documents, self.field)
        least = longest if self.whole else min(self.least, longest)
        shelf = open_shelf(corpus, tokenizer, plain, least=least, most=longest, seed=seed)
        text = shelf.document(cells[0].sample)
        separator = tokenizer.encode(self.separator) if self.separator else text.ids[:0]
        return Sounding(self, f"{corpus.name}/{text.number}", text, plain, separator, cells, seed).document()

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
