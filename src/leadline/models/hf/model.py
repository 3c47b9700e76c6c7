"""An opened `hf:` model: documents and probes in, answers with what was really sent out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
import tokenizers

from leadline.core.contracts import Continuation, ModelCard, Tokenizer, TokenNLL
from leadline.core.digest import digest_bytes
from leadline.core.errors import RunStopped, TokenizerError, UsageError
from leadline.core.types import Answer, Completion, Document, Failure, Frame, Probe, Sent
from leadline.models.hf.engine import Ask, Engine, Told
from leadline.models.hf.greedy import Generated
from leadline.models.hf.load import Loaded, stop_tokens
from leadline.models.hf.memory import GIB, Shape, forecast
from leadline.models.hf.nll import Scored
from leadline.text.chat import ChatTemplate, adds_bos, completion_frame, opens_thinking, special_token, split_thinking
from leadline.text.tokenizers import find_tokenizer_file, open_tokenizer

if TYPE_CHECKING:
    from leadline.core.types import Ids
    from leadline.models.hf.provider import HF

T = TypeVar("T")
_ANSWER = "\u2063answer\u2063"


class HFModel:
    """One model, one worker, a document at a time."""

    def __init__(self, options: HF, name: str, loaded: Loaded) -> None:
        folder = options.text_folder or loaded.folder
        template = ChatTemplate.load(Path(options.template).expanduser() if options.template else folder)
        self._tokenizer = open_tokenizer(str(folder))
        self._decoder = tokenizers.Tokenizer.from_file(str(find_tokenizer_file(folder)))
        self._plain = completion_frame(special_token(folder, "bos_token") if adds_bos(folder) else "")
        self._frame = _frame(options, template, folder, self._plain)
        stops = {*stop_tokens(loaded.model, folder), *_end_of_turn(template, self._decoder)}
        self.engine = Engine(
            loaded.model,
            sorted(stops),
            chunk=options.chunk or 0,
            shared=options.shared,
            reuse=options.reuse,
            fused=options.fused,
        )
        self._options = options
        self._card = self._describe(name, loaded)

    @property
    def card(self) -> ModelCard:
        return self._card

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    @property
    def frame(self) -> Frame:
        return self._frame

    @property
    def plain(self) -> Frame:
        return self._plain

    @property
    def grain(self) -> Literal["probe", "document"]:
        return "document"

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        begin = time.monotonic()
        asks = [Ask(p.cut, p.closing_ids, self._options.max_tokens or p.allowance) for p in probes]
        told = self._guarded(lambda: self.engine.ask(document.ids, asks))
        # All were answered together: each is charged its share.
        seconds = (time.monotonic() - begin) / max(1, len(probes))
        return [
            Answer(
                sent=self._sent(document, ask, one),
                outcome=self._completion(ask, one.answer) if one.answer else self._too_long(ask.tokens),
                seconds=seconds,
            )
            for ask, one in zip(asks, told, strict=True)
        ]

    def nll(
        self, ids: Ids, continuations: Sequence[Continuation] = (), spans: Sequence[tuple[int, int]] = ()
    ) -> TokenNLL | Failure:
        _check_scorable(len(ids), continuations, spans)
        scored = [Scored(c.cut, c.ids, c.start) for c in continuations]
        nats = self._guarded(lambda: self.engine.nll(ids, scored, spans))
        longest = max([stop for _, stop in spans] + [c.cut + len(c.ids) for c in continuations], default=0)
        if nats is None:
            return self._too_long(longest)
        return TokenNLL(tuple(nats.rows), tuple(nats.spans), notes=self._notes(longest))

    def forecast(self, documents: Iterable[Sequence[tuple[int, int, int]]]) -> tuple[str, ...]:
        """Memory and time of a run on this device, in words; an error when it cannot fit."""
        model = self.engine.model
        weights = sum(p.numel() * p.element_size() for p in model.parameters())
        others = {p.device for p in model.parameters() if p.device.type != "meta"} - {self.engine.reader.device}
        _, words = forecast(
            Shape.of(model.config.to_dict()),
            documents,
            dtype=str(model.dtype).removeprefix("torch."),
            weights=weights,
            chunk=self.engine.chunk,
            devices=[self.engine.reader.device, *others],
            where=self._card.name,
        )
        return words

    def close(self) -> None:
        self.engine.close()

    # --- what came back -------------------------------------------------------------------------

    def _completion(self, ask: Ask, answer: Generated) -> Completion:
        thinking, text = split_thinking(self.text_of(answer), opened=opens_thinking(self._frame.after))
        return Completion(
            text=text,
            finish="stop" if answer.stopped else "length",
            thinking=thinking,
            prompt_tokens=ask.cut + len(ask.closing),
            completion_tokens=len(answer.ids) + answer.stopped,
        )

    def text_of(self, answer: Generated) -> str:
        """New tokens as text, markers left out."""
        said: str = self._decoder.decode(answer.ids, skip_special_tokens=True)
        return said

    def _too_long(self, tokens: int) -> Failure:
        each, free = self.engine.kv_bytes, self.engine.free_bytes()
        message = f"out of memory with {tokens} tokens, whose keys and values take {tokens * each / GIB:.1f} GiB"
        if free is not None:
            message += f"; {free / GIB:.1f} GiB are free, so some {max(0, free - GIB) // each} tokens would fit"
        return Failure("out_of_memory", message)

    def _guarded(self, work: Callable[[], T]) -> T:
        """A device that is lost takes the run with it; what was recorded stays, and the run can be resumed."""
        try:
            return work()
        except RuntimeError as error:
            if "CUDA error" not in str(error) and "device-side assert" not in str(error):
                raise
            raise RunStopped(
                f"the GPU stopped working: {str(error).splitlines()[0]}",
                where=self._card.name,
                fix="run the same command again: it goes on with what is missing",
            ) from error

    # --- what was sent --------------------------------------------------------------------------

    def _sent(self, document: Document, ask: Ask, told: Told) -> Sent:
        prompt = np.concatenate([document.ids[: ask.cut], ask.closing]).astype("<i4")
        notes = self._notes(ask.tokens)
        if told.plain:
            notes += (f"plain path: {told.plain}",)
        return Sent(
            form="ids",
            prefix="prefill" if self._frame.prefill else "appended",
            digest=digest_bytes(prompt.tobytes()),
            decoding={"method": "greedy", "max_tokens": ask.allowance, "min_tokens": 1},
            notes=notes,
        )

    def _notes(self, tokens: int) -> tuple[str, ...]:
        window = self._card.window
        return (f"beyond the window of {window} tokens",) if window and tokens > window else ()

    # --- what it is -----------------------------------------------------------------------------

    def _describe(self, name: str, loaded: Loaded) -> ModelCard:
        support, options = self.engine.support, self._options
        notes = [f"{loaded.dtype} on {self.engine.reader.device}"]
        if self.engine.fused:
            notes.append(f"fused kernels: {', '.join(self.engine.fused)}")
        if self._frame.form == "completion":
            notes.append("completion form: no chat template")
        if support.reason:
            upto = f" beyond {int(support.reach)} tokens" if support.reach else ""
            notes.append(f"plain path{upto}: {support.reason}")
        return ModelCard(
            name=f"hf:{name}",
            window=loaded.window,
            window_is_hard=False,
            fingerprints={
                "tokenizer": self._tokenizer.fingerprint,
                "template": self._frame.fingerprint,
                "revision": loaded.revision,
                "dtype": loaded.dtype,
                "rope": options.rope,
                "decoding": f"greedy, stop at {','.join(map(str, self.engine.stops))}",
            },
            notes=tuple(notes),
            nested_problem=support.nested_problem,
        )


def _frame(options: HF, template: ChatTemplate | None, folder: Path, plain: Frame) -> Frame:
    if options.form == "chat" and template is None:
        raise UsageError(
            "this model has no chat template", where=str(folder), fix="give template=FILE or form=completion"
        )
    if template is None or options.form == "completion":
        return plain
    thinking = None if options.thinking is None else options.thinking == "on"
    return template.frame(thinking=thinking, prefill=True)


def _end_of_turn(template: ChatTemplate | None, decoder: tokenizers.Tokenizer) -> list[int]:
    """The marker that a template puts after an assistant's answer, where that is a token of its own."""
    if template is None:
        return []
    turn = {"role": "user", "content": "?"}
    try:
        whole = template.render([turn, {"role": "assistant", "content": _ANSWER}, turn])
    except TokenizerError:
        return []  # a template for one turn only
    first = decoder.encode(whole.partition(_ANSWER)[2].lstrip(), add_special_tokens=False).ids[:1]
    return [token for token in first if token in decoder.get_added_tokens_decoder()]


def _check_scorable(tokens: int, continuations: Sequence[Continuation], spans: Sequence[tuple[int, int]]) -> None:
    for c in continuations:
        if not (0 <= c.cut <= tokens and 0 <= c.start < len(c.ids)):
            raise ValueError(f"a continuation at cut {c.cut} scored from {c.start} does not fit a text of {tokens}")
        if c.cut + c.start == 0:
            raise ValueError("the first token of a text has nothing before it and cannot be scored")
    for start, stop in spans:
        if not 1 <= start < stop <= tokens:
            raise ValueError(f"span {start}:{stop} is not inside 1:{tokens}")
