"""Measuring in place of asking: passages are read, and their surprise becomes the numbers of every cell."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from leadline.core.contracts import Model, Surprise, Surprised
from leadline.core.digest import digest_bytes
from leadline.core.soundings import Passage, Reckoning, Sounded
from leadline.core.types import Answer, Document, Failure, Outcome, Probe, Sent
from leadline.run.building import surprised


class Sounder:
    """Stands before a model: sounded documents are measured, all others are asked of the model as they are."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        if not isinstance(document, Sounded):
            return self._model.answer(document, probes)
        begin = time.monotonic()
        model = surprised(self._model, probes[0].cell.task)
        reckonings = [document.reckonings[p.cell.key] for p in probes]
        found = _read(model, document.passages, {i for r in reckonings for i in r.passages})
        seconds = (time.monotonic() - begin) / len(probes)  # all were measured together: each is charged its share
        return [
            Answer(_sent(document, reckoning, found), _reckoned(reckoning, found), seconds) for reckoning in reckonings
        ]


Found = dict[int, Surprise | Failure]


def _read(model: Surprised, passages: Sequence[Passage], wanted: set[int]) -> Found:
    return {i: model.nll(p.ids, p.continuations, p.spans) for i, p in enumerate(passages) if i in wanted}


def _reckoned(reckoning: Reckoning, found: Found) -> Outcome:
    """The numbers; a failure where a passage could not be read, or came back as something that is no number."""
    surprises = []
    for number in reckoning.passages:
        one = found[number]
        if isinstance(one, Failure):
            return one
        if not all(np.isfinite(nats).all() for nats in (*one.continuations, *one.spans)):
            return Failure("unsupported", "the model's log-probabilities are not finite; try dtype=float32")
        surprises.append(one)
    return reckoning.numbers(surprises)


def _sent(document: Sounded, reckoning: Reckoning, found: Found) -> Sent:
    ids = b"".join(document.passages[i].ids.astype("<i4").tobytes() for i in reckoning.passages)
    notes = [n for i in reckoning.passages for n in getattr(found[i], "notes", ())]
    return Sent(
        form="ids",
        prefix="none",
        digest=digest_bytes(ids),
        decoding={"method": "log-probabilities"},
        notes=tuple(dict.fromkeys(notes)),
    )
