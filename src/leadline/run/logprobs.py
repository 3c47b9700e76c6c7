"""The one place where probes for log-probabilities differ from probes for answers: how a model is asked."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from leadline.core.contracts import LogprobModel, Model
from leadline.core.digest import digest_bytes
from leadline.core.errors import UsageError
from leadline.core.types import Answer, Document, Failure, LogprobRequest, Outcome, Probe, Sent, TokenNLL


def logprob_model(model: Model, task: str) -> LogprobModel:
    """The model as one that gives log-probabilities, or an error that names one that does."""
    if isinstance(model, LogprobModel):
        return model
    raise UsageError(
        f"{model.card.name} gives no log-probabilities, which {task} needs",
        where=f"task {task}",
        fix="measure the model in process (hf:FOLDER)",
    )


NOTHING_SENT = Sent("completion", "none")


class LogprobAdapter:
    """Gives a model's answers to probes of either kind: passages are scored here, questions go to the model."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        if any(probe.not_asked for probe in probes):
            sent = [probe for probe in probes if not probe.not_asked]
            answers = iter(self.answer(document, sent) if sent else ())
            return [Answer(NOTHING_SENT, p.not_asked, 0.0) if p.not_asked else next(answers) for p in probes]
        requests = [probe.logprobs for probe in probes if probe.logprobs is not None]
        if not requests:
            return self._model.answer(document, probes)
        begin = time.monotonic()
        model = logprob_model(self._model, probes[0].cell.task)
        wanted = sorted({index for request in requests for index in request.passages})
        passages = {index: document.passages[index] for index in wanted}
        found = {index: model.nll(p.ids, p.continuations, p.spans) for index, p in passages.items()}
        seconds = (time.monotonic() - begin) / len(probes)  # measured together: each is charged its share
        return [Answer(_sent(document, request, found), _outcome(request, found), seconds) for request in requests]


def _outcome(request: LogprobRequest, found: dict[int, TokenNLL | Failure]) -> Outcome:
    """The numbers; a failure if a passage could not be read or has values that are not finite."""
    nlls = []
    for index in request.passages:
        one = found[index]
        if isinstance(one, Failure):
            return one
        if not all(np.isfinite(nats).all() for nats in (*one.continuations, *one.spans)):
            return Failure("unsupported", "the model's log-probabilities are not finite; try dtype=float32")
        nlls.append(one)
    return request.numbers(nlls)


def _sent(document: Document, request: LogprobRequest, found: dict[int, TokenNLL | Failure]) -> Sent:
    ids = b"".join(document.passages[index].ids.astype("<i4").tobytes() for index in request.passages)
    nlls = [found[index] for index in request.passages]
    notes = dict.fromkeys(note for one in nlls if isinstance(one, TokenNLL) for note in one.notes)
    return Sent(
        form="ids",
        prefix="none",
        digest=digest_bytes(ids),
        decoding={"method": "log-probabilities"},
        notes=tuple(notes),
    )
