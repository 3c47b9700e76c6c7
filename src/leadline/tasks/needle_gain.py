"""Needle gain: how much of what a fact alone would tell is left when it stands in a long text.

The needle task's documents and questions, but the planted value is not asked for: its surprise is measured after the
document, after the question alone, and after the fact alone. The gain from the document as a share of the gain from
the fact alone is 1 for a model that reads the fact as well as if nothing else were there. After the oracle-normalised
needle gain discussed for training runs (marin-community/marin 8701).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from leadline.core.contracts import Continuation, Origin, Tokenizer, TokenNLL
from leadline.core.errors import TokenizerError
from leadline.core.logprobs import CellNumbers, LogprobDocument, LogprobTask, Passage
from leadline.core.types import UNIT, Cell, Document, Frame, Measurement, Probe, ValueKind
from leadline.tasks.logprob_metrics import needle_numbers
from leadline.tasks.needle import Needle
from leadline.text.fitting.fitter import fit
from leadline.text.sources import Unit

if TYPE_CHECKING:
    from leadline.core.types import Ids

Metric = Literal["needle_gain", "needle_nll", "needle_chance"]
SHARE = "share of the gain from the fact alone"


class NeedleGain(LogprobTask):
    """Surprise at a planted value, as a share of what the fact alone in the context would take from it.

    Documents are those of niah, in the model's own template; so is length: prompt and answer together.
    """

    version: ClassVar[str] = "2"
    reads_once: ClassVar[bool] = False

    metrics: tuple[Metric, ...] = Field(
        ("needle_gain", "needle_nll", "needle_chance"), min_length=1, description="what counts, the score first"
    )
    haystack: str = Field("prose", description="noise, prose, code, needles, a path, or a mixture prose:0.5,code:0.5")
    unit: Unit = Field("sentence", description="what a path or mixture is cut into: sentence or paragraph")
    repeat: bool = Field(False, description="use the haystack more than once when it is too short")
    key_kind: ValueKind = Field("words", description="keys are words, numbers or uuids")
    value_kind: ValueKind = Field("numbers", description="values are words, numbers (7 digits) or uuids")
    keys: int = Field(1, ge=1, le=500, description="keys planted; those not asked for are distractors")
    answer_tokens: int = Field(64, ge=1, description="room for the value")

    def needle(self) -> Needle:
        same = self.model_dump(include={*Needle.model_fields} & {*type(self).model_fields})
        return Needle(**same)

    def sources(self) -> Sequence[Origin]:
        return self.needle().sources()

    def choices(self) -> dict[str, str]:
        return {
            "documents": "those of niah, in the model's own chat template",
            "answer": "the planted value after the answer prefix, scored without what may follow it",
            "without": "instructions, question and answer prefix with no text before them",
            "alone": "the same with the fact as the whole text",
            "averaging": "a ratio of sums over samples",
            "arithmetic": "softmax in float32, means in float64",
        }

    def sound(
        self, cells: Sequence[Cell], *, seed: int, tokenizer: Tokenizer, frame: Frame, plain: Frame
    ) -> LogprobDocument:
        draft = self.needle().write(cells, seed=seed)
        document = fit(draft, tokenizer, frame)
        continuations: list[Continuation] = []
        reckonings: dict[str, CellNumbers] = {}
        probes = tuple(self._labelled(probe) for probe in document.probes)
        for probe in probes:
            first = len(continuations)
            continuations += _asked(document, probe, draft.head, tokenizer)
            reckonings[probe.cell.key] = CellNumbers((0,), _numbers_from(first))
        known = {f.name: getattr(document, f.name) for f in dataclasses.fields(Document)} | {"probes": probes}
        return LogprobDocument(**known, passages=(Passage(document.ids, tuple(continuations)),), reckonings=reckonings)

    def _labelled(self, probe: Probe) -> Probe:
        return dataclasses.replace(probe, scorers=self.metrics, labels={**probe.labels, UNIT: SHARE})


def _numbers_from(first: int) -> Callable[[Sequence[TokenNLL]], Measurement]:
    def numbers(surprises: Sequence[TokenNLL]) -> Measurement:
        after, without, alone = surprises[0].continuations[first : first + 3]
        return Measurement(needle_numbers(after, without, alone))

    return numbers


def _asked(document: Document, probe: Probe, head: str, tokenizer: Tokenizer) -> list[Continuation]:
    """The value after the document, after no text, and after the fact alone."""
    frame = document.frame
    answer = f" {probe.targets[0]}"
    closing = probe.tail + frame.after + (probe.answer_prefix if frame.prefill else "")
    _, said = _split(tokenizer, closing, answer)
    fact = document.planted(probe)[0].text
    return [
        Continuation(probe.cut, np.concatenate([probe.closing_ids, said]), len(probe.closing_ids)),
        _beside(document, tokenizer, frame.before + head.rstrip() + closing, answer),
        _beside(document, tokenizer, frame.before + head + fact + closing, answer),
    ]


def _beside(document: Document, tokenizer: Tokenizer, prompt: str, answer: str) -> Continuation:
    """Another prompt as a continuation of what it has in common with the document."""
    before, said = _split(tokenizer, prompt, answer)
    ids = np.concatenate([before, said])
    size = min(len(before) - 1, len(document.ids))
    differ = np.flatnonzero(before[:size] != document.ids[:size])
    cut = int(differ[0]) if len(differ) else size
    return Continuation(cut, ids[cut:], len(before) - cut)


def _split(tokenizer: Tokenizer, prompt: str, answer: str) -> tuple[Ids, Ids]:
    """Tokens of a prompt and of the answer after it."""
    before, whole = tokenizer.encode(prompt), tokenizer.encode(prompt + answer)
    if not np.array_equal(whole[: len(before)], before):
        raise TokenizerError(
            f"this tokenizer joins {prompt[-12:]!r} and {answer!r}, so the answer cannot be scored by itself",
            where=tokenizer.fingerprint,
        )
    return before, whole[len(before) :]


CHANCE = NeedleGain(metrics=("needle_chance", "needle_nll", "needle_gain"))
"""The number that ranks models most nearly as accuracy does (studies/proxy)."""
