"""Documents whose text is given and not ours to fit: prompts made elsewhere, questions without a document.

Their length is what it is. It is counted as everywhere else, so that the model's receipt can be compared with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from leadline.core.contracts import Tokenizer
from leadline.core.types import Document, Draft, Frame, Probe, Question
from leadline.text.closing import closing_of

if TYPE_CHECKING:
    from leadline.core.types import Ids


def as_given(draft: Draft, tokenizer: Tokenizer, frame: Frame) -> Document:
    """A draft without filler as it stands: its head is the whole text."""
    text = frame.before + draft.head
    ids = tokenizer.encode(text)
    start = len(tokenizer.encode(frame.before))
    return Document(
        id=draft.id,
        cluster=draft.cluster,
        frame=frame,
        text=text,
        ids=ids,
        body_start=min(start, len(ids)),
        body_start_characters=len(frame.before),
        facts=(),
        probes=tuple(_probe(q, text, ids, start, tokenizer, frame) for q in draft.questions),
    )


def _probe(question: Question, text: str, ids: Ids, start: int, tokenizer: Tokenizer, frame: Frame) -> Probe:
    tail, closing = closing_of(question, frame)
    prompt = tokenizer.encode(text + closing)
    cut = min(_common(ids, prompt), len(prompt) - 1)
    targets = question.targets
    return Probe(
        cell=question.cell,
        cut=cut,
        cut_characters=len(text),
        tail=tail,
        closing_ids=prompt[cut:],
        prompt_tokens=len(prompt) + frame.extra_tokens,
        question=question.text.strip(),
        answer_prefix=question.answer_prefix,
        targets=targets(text[len(frame.before) :]) if callable(targets) else targets,
        distractors=question.distractors,
        facts=(),
        allowance=question.allowance,
        scorers=question.scorers,
        labels=question.labels,
        body_tokens=max(len(ids) - start, 0),
    )


def _common(left: Ids, right: Ids) -> int:
    """How many tokens two texts begin with in common."""
    size = min(len(left), len(right))
    same = left[:size] == right[:size]
    return size if bool(np.all(same)) else int(same.argmin())
