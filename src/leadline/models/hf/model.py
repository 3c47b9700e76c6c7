"""An opened `hf:` model: takes documents and probes, and returns answers with what was really sent."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from leadline.core.answers import Answer, Completion, Failure, Sent
from leadline.core.contracts import ModelCard
from leadline.core.errors import RunStopped, SourceError
from leadline.core.seeds import digest_prompt
from leadline.core.types import AnswerTime, Continuation, Document, Frame, NextToken, Probe, TokenNLL
from leadline.models.architecture import architecture_constants
from leadline.models.folder_texts import FolderTexts
from leadline.models.hf import HF
from leadline.models.hf.decode import Generated
from leadline.models.hf.engine import Engine, EngineAnswer, EngineRequest
from leadline.models.hf.forecast import DocumentReading, forecast
from leadline.models.hf.load import Loaded, stop_tokens, window_of
from leadline.models.hf.memory import BYTES, GIB, DecoderShape
from leadline.text.chat import (
    NOT_PREFILLED,
    opens_thinking,
    split_thinking,
)

if TYPE_CHECKING:
    from leadline.core.types import Ids

T = TypeVar("T")
PLANNED_CHUNK = 2048
"""Tokens read per pass in the plan for a model that is not loaded."""
CONFIGURED = "config.json"


class HFModel(FolderTexts):
    """One model in this process. Not thread-safe: one worker, one document at a time."""

    def __init__(self, name: str, options: HF, loaded: Loaded) -> None:
        super().__init__(options, loaded.folder)
        self._options = options
        stops = {*stop_tokens(loaded.model, self._folder), *self.end_of_turn()}
        self.engine = Engine(
            loaded.model,
            sorted(stops),
            chunk=options.chunk or 0,
            shared=options.shared,
            reuse=options.reuse,
            fused=options.fused,
            resident=None if options.resident is None else int(options.resident * GIB),
            fp8=options.store == "fp8",
            installed=options.kernels == "installed",
        )
        self._margins = False
        self._window_note = loaded.window_note
        self.card: ModelCard = self._describe(name, loaded)

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        begin = time.monotonic()
        self._check_ids(document.ids, *(p.suffix_ids for p in probes))
        requests = [
            EngineRequest(p.cut, p.suffix_ids, self._options.max_tokens or p.question.allowance) for p in probes
        ]
        answers = self._guarded(lambda: self.engine.answer(document.ids, requests))
        # All probes were answered together: each gets an equal share of the time.
        seconds = (time.monotonic() - begin) / max(1, len(probes))
        return [
            Answer(
                sent=self._sent(document, probe, request, answered),
                outcome=self._completion(document.frame, request, answered.answer)
                if answered.answer
                else self._too_long(request.tokens),
                seconds=seconds,
            )
            for probe, request, answered in zip(probes, requests, answers, strict=True)
        ]

    def nll(
        self, ids: Ids, continuations: Sequence[Continuation] = (), spans: Sequence[tuple[int, int]] = ()
    ) -> TokenNLL | Failure:
        _check_scorable(len(ids), continuations, spans)
        self._check_ids(ids, *(c.ids for c in continuations))
        scores = self._guarded(lambda: self.engine.nll(ids, continuations, spans))
        longest = max([stop for _, stop in spans] + [c.cut + len(c.ids) for c in continuations], default=0)
        return self._too_long(longest) if scores is None else replace(scores, notes=self._notes(longest))

    def next_tokens(
        self, ids: Ids, cuts: Sequence[int], count: int, *, fresh: bool = False
    ) -> list[NextToken] | Failure:
        self._check_ids(ids)
        likeliest = self._guarded(lambda: self.engine.likeliest_tokens(ids, cuts, count, fresh=fresh))
        if likeliest is None:
            return self._too_long(max(cuts))
        decode = self.tokenizer.decode
        return [
            NextToken.of(((decode([n]), p) for n, p in zip(after.ids, after.logprobs, strict=True)), after.actual)
            for after in likeliest
        ]

    def keep_margins(self) -> None:
        self._margins = True

    def time_answer(self, ids: Ids, tokens: int) -> AnswerTime | Failure:
        """A reading with one token, then more tokens after what was read."""
        self._check_ids(ids)
        self.engine.reader.forget()
        seconds, written = [], []
        for allowance in (1, 1, tokens):
            begin = time.monotonic()
            request = EngineRequest(len(ids), ids[:0], allowance)
            [answered] = self._guarded(partial(self.engine.answer, ids, [request]))
            if answered.answer is None:
                return self._too_long(len(ids) + allowance)
            seconds.append(time.monotonic() - begin)
            written.append(len(answered.answer.ids))
        rate = (written[2] - written[1]) / max(1e-6, seconds[2] - seconds[1])
        return AnswerTime(seconds[0], rate if written[2] > written[1] and rate > 0 else None)

    def forecast(
        self, documents: Iterable[Sequence[tuple[int, int, int]]], kept: Iterable[int] = ()
    ) -> tuple[str, ...]:
        """Memory and time of a run on this device, as text; an error when it cannot fit."""
        model, engine = self.engine.model, self.engine
        readings = list(self._readings(documents, kept if self._options.reuse else ()))
        others = {p.device for p in model.parameters() if p.device.type != "meta"} - {engine.reader.device}
        return forecast(
            DecoderShape.of_config(model.config),
            readings,
            lambda: self._guarded(lambda: engine.measure_speed(max((r.longest for r in readings), default=0))),
            dtype=str(model.dtype).removeprefix("torch."),
            weights=sum(p.numel() * p.element_size() for p in model.parameters()),
            chunk=engine.chunk,
            devices=[engine.reader.device, *others],
            where=self.card.name,
            fp8=engine.fp8,
            resident=engine.resident,
        )

    def _readings(
        self, documents: Iterable[Sequence[tuple[int, int, int]]], kept: Iterable[int]
    ) -> Iterator[DocumentReading]:
        """One for a document that is read once; one for every probe on the plain path."""
        for document, start in zip(documents, chain(kept, repeat(0)), strict=False):
            probes = tuple((prompt - own, own, new) for prompt, own, new in document)
            plain = [probe for probe in probes if self.engine.support.refusal(sum(probe))]
            yield from (DocumentReading((probe,)) for probe in plain)
            if shared := tuple(probe for probe in probes if probe not in plain):
                yield DocumentReading(shared, start)

    def close(self) -> None:
        self.engine.close()

    def _completion(self, frame: Frame, request: EngineRequest, answer: Generated) -> Completion:
        thinking, text = split_thinking(self.tokenizer.decode(answer.ids), opened=opens_thinking(frame.after))
        return Completion(
            text=text,
            finish="stop" if answer.stopped else "length",
            thinking=thinking,
            prompt_tokens=request.cut + len(request.closing),
            completion_tokens=len(answer.ids) + answer.stopped,
            thinking_tokens=self._tokens_before(text, answer.ids) if thinking else None,
            margin=answer.margin if self._margins and not thinking else None,
        )

    def _tokens_before(self, text: str, ids: Sequence[int]) -> int:
        """The number of tokens before their last part, the text."""
        decode, size = self.tokenizer.decode, len(text)
        return bisect_left(range(len(ids)), True, key=lambda n: len(decode(ids[n:]).lstrip()) <= size)

    def _check_ids(self, *texts: Ids) -> None:
        highest, known = max((int(ids.max()) for ids in texts if len(ids)), default=0), self.engine.vocabulary
        if highest >= known:
            raise SourceError(
                f"the tokenizer gives token {highest}, and the model has embeddings for {known}",
                where=self.card.name,
                fix="give the tokenizer that belongs to this checkpoint with tokenizer=FOLDER",
            )

    def _too_long(self, tokens: int) -> Failure:
        each, free = self.engine.kv_bytes, self.engine.free_bytes()
        message = f"out of memory with {tokens} tokens"
        if each:
            message += f", whose KV cache needs {tokens * each / GIB:.1f} GiB"
        if free is not None:
            message += f"; {free / GIB:.1f} GiB are free"
            message += f", enough for about {max(0, free - GIB) // each} tokens" if each else ""
        return Failure("out_of_memory", message)

    def _guarded(self, work: Callable[[], T]) -> T:
        """Stop the run when the GPU fails. Records are kept, and the run can be resumed."""
        try:
            return work()
        except RuntimeError as error:
            if "CUDA error" not in str(error) and "device-side assert" not in str(error):
                raise
            raise RunStopped(
                f"the GPU stopped working: {str(error).splitlines()[0]}",
                where=self.card.name,
                fix="run the same command again: it continues with what is missing",
            ) from error

    def _sent(self, document: Document, probe: Probe, request: EngineRequest, answered: EngineAnswer) -> Sent:
        prompt = np.concatenate([document.ids[: request.cut], request.closing]).astype("<i4")
        notes = (*self._notes(request.tokens), *answered.notes)
        if answered.plain_reason:
            notes += (f"plain path: {answered.plain_reason}",)
        return Sent(
            form="ids",
            prefix=document.prefix_place(probe),
            digest=digest_prompt(prompt.tobytes()),
            decoding={"method": "greedy", "max_tokens": request.allowance, "min_tokens": 1},
            notes=notes,
        )

    def _notes(self, tokens: int) -> tuple[str, ...]:
        window = self.card.window
        beyond = (f"beyond the window of {window} tokens",) if window and tokens > window else ()
        return (*beyond, *((self._window_note,) if self._window_note else ()))

    def _describe(self, name: str, loaded: Loaded) -> ModelCard:
        support, options = self.engine.support, self._options
        notes = [f"{loaded.dtype} on {self.engine.reader.device}"]
        if self.engine.fused:
            notes.append(f"fused kernels: {', '.join(self.engine.fused)}")
        if self.frame.form == "completion":
            notes.append("completion form: no chat template")
        elif not self.frame.prefill:
            notes.append(NOT_PREFILLED)
        if loaded.window_note:
            notes.append(loaded.window_note)
        if support.way:
            notes.append(support.way)
        if support.reason:
            beyond = f" beyond {int(support.max_tokens)} tokens" if support.max_tokens else ""
            notes.append(f"plain path{beyond}: {support.reason}")
        return ModelCard(
            name=f"hf:{name}",
            window=loaded.window,
            window_is_hard=False,
            window_origin=loaded.window_note or CONFIGURED,
            constants=architecture_constants(loaded.model.config.to_dict()),
            fingerprints={
                "tokenizer": self.tokenizer.fingerprint,
                "template": self.frame.fingerprint,
                "revision": loaded.revision,
                "dtype": loaded.dtype,
                "rope": options.rope,
                "decoding": f"greedy, stop at {','.join(map(str, self.engine.stops))}",
                **({"store": options.store} if options.store != "exact" else {}),
            },
            notes=tuple(notes),
            nested_problem=support.nested_problem,
        )


class UnloadedModel(FolderTexts):
    """A folder with configuration and tokenizer and without weights: a run can be planned for it, and not made."""

    def __init__(self, name: str, options: HF, folder: Path, config: Any) -> None:
        super().__init__(options, folder)
        self._options = options
        self._shape = DecoderShape.of_config(config)
        own = str(getattr(config.get_text_config(), "dtype", None) or "").removeprefix("torch.")
        self._dtype = options.dtype if options.dtype != "auto" else own if own in BYTES else "bfloat16"
        missing = f"{folder} has a config.json and no weights"
        size = f"{self._shape.parameters:.3g}".replace("e+", "e")
        self.card: ModelCard = ModelCard(
            name=f"hf:{name}",
            window=window_of(config),
            window_is_hard=False,
            window_origin=CONFIGURED,
            constants=architecture_constants(config.to_dict()),
            fingerprints={"tokenizer": self.tokenizer.fingerprint, "template": self.frame.fingerprint},
            notes=(f"{missing}: planned for about {size} parameters in {self._dtype}",),
            plan_only=missing,
        )

    def forecast(
        self, documents: Iterable[Sequence[tuple[int, int, int]]], kept: Iterable[int] = ()
    ) -> tuple[str, ...]:
        """Memory and operations from the configuration alone, whatever this machine has."""
        starts = chain(kept if self._options.reuse else (), repeat(0))
        return forecast(
            self._shape,
            [
                DocumentReading(tuple((prompt - own, own, new) for prompt, own, new in document), start)
                for document, start in zip(documents, starts, strict=False)
            ],
            None,
            dtype=self._dtype,
            weights=self._shape.parameters * BYTES[self._dtype],
            chunk=self._options.chunk or PLANNED_CHUNK,
            devices=[],
            where=self.card.name,
            fp8=self._options.store == "fp8",
        )

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        raise SourceError(self.card.plan_only, where=self.card.name)

    def nll(
        self, ids: Ids, continuations: Sequence[Continuation] = (), spans: Sequence[tuple[int, int]] = ()
    ) -> TokenNLL | Failure:
        raise SourceError(self.card.plan_only, where=self.card.name)


def _check_scorable(tokens: int, continuations: Sequence[Continuation], spans: Sequence[tuple[int, int]]) -> None:
    for c in continuations:
        if not (0 <= c.cut <= tokens and 0 <= c.start < len(c.ids)):
            raise ValueError(
                f"a continuation at cut {c.cut} scored from {c.start} is not within a text of {tokens} tokens"
            )
        if c.cut + c.start == 0:
            raise ValueError("the first token of a text has nothing before it and cannot be scored")
    for start, stop in spans:
        if not 1 <= start < stop <= tokens:
            raise ValueError(f"span {start}:{stop} is not inside 1:{tokens}")
