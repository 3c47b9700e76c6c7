"""Needle gain: how much a fact inside a long text lowers the NLL of its value, against the fact alone.

Documents and questions are those of the needle task. The NLL of the planted value is measured after the document, after
the question alone, and after the fact alone. The gain from the document as a share of the gain from the fact alone is 1
for a model that uses the fact as well as without the other text. After the oracle-normalised needle gain discussed for
training runs (marin-community/marin 8701).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec
import numpy as np
from pydantic import Field

from leadline.core.answers import Measurement
from leadline.core.contracts import DocumentFitter, LogprobTask, TextOrigin, Tokenizer
from leadline.core.errors import TokenizerError
from leadline.core.records import UNIT
from leadline.core.types import Cell, Continuation, Document, LogprobRequest, Passage, Probe, TokenNLL, ValueKind
from leadline.features.logprobs.metrics import needle_numbers
from leadline.tasks.niah import Needle
from leadline.text.sources import Unit

if TYPE_CHECKING:
    from leadline.core.types import Ids

NeedleMetric = Literal["needle_gain", "needle_nll", "needle_chance"]
SHARE = "share of the gain from the fact alone"


class NeedleGain(LogprobTask):
    """The gain in NLL of a planted value from the document, as a share of the gain from the fact alone.

    Documents are those of niah, in the model's own template. Length is prompt and answer together, as there.
    """

    version: ClassVar[str] = "4"
    depth_independent: ClassVar[bool] = False

    metrics: tuple[NeedleMetric, ...] = Field(
        ("needle_gain", "needle_nll", "needle_chance"), min_length=1, description="metrics, the score first"
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

    def sources(self) -> Sequence[TextOrigin]:
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

    def document(self, cells: Sequence[Cell], *, seed: int, fitter: DocumentFitter) -> Document:
        draft = self.needle().write(cells, seed=seed)
        document = fitter.fit(draft)
        continuations: list[Continuation] = []
        probes = []
        for probe in document.probes:
            request = LogprobRequest((0,), _numbers_from(len(continuations)))
            labels = {**probe.question.labels, UNIT: SHARE}
            question = msgspec.structs.replace(probe.question, scorers=self.metrics, labels=labels)
            probes.append(dataclasses.replace(probe, question=question, logprobs=request))
            continuations += _continuations(document, probe, draft.head, fitter.tokenizer)
        passage = Passage(document.ids, tuple(continuations))
        return dataclasses.replace(document, probes=tuple(probes), passages=(passage,))


def _numbers_from(first: int) -> Callable[[Sequence[TokenNLL]], Measurement]:
    """The rule of a probe whose three continuations begin with number `first`."""

    def numbers(nlls: Sequence[TokenNLL]) -> Measurement:
        after, without, alone = nlls[0].continuations[first : first + 3]
        return Measurement(needle_numbers(after, without, alone))

    return numbers


def _continuations(document: Document, probe: Probe, head: str, tokenizer: Tokenizer) -> list[Continuation]:
    """The value after the document, after no text, and after the fact alone."""
    frame = document.frame
    answer = f" {probe.question.targets[0]}"
    closing = probe.user_suffix + frame.after + (probe.question.answer_prefix if frame.prefill else "")
    _, answer_ids = _split(tokenizer, closing, answer)
    fact = document.planted(probe)[0].text
    return [
        Continuation(probe.cut, np.concatenate([probe.suffix_ids, answer_ids]), len(probe.suffix_ids)),
        _other_prompt(document, tokenizer, frame.before + head.rstrip() + closing, answer),
        _other_prompt(document, tokenizer, frame.before + head + fact + closing, answer),
    ]


def _other_prompt(document: Document, tokenizer: Tokenizer, prompt: str, answer: str) -> Continuation:
    """Another prompt, as a continuation of its common beginning with the document."""
    before, answer_ids = _split(tokenizer, prompt, answer)
    ids = np.concatenate([before, answer_ids])
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
"""The metric whose ranking of models is closest to that of accuracy (studies/proxy)."""
