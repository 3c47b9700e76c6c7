"""An opened `vllm:` or `sglang:` model: documents in, answers and log-probabilities out.

The longest probe of a document is asked first and alone, then all others at once, so that the engine has the document
in its prefix cache. What came from there is on every record (`cached_tokens`). Several documents are in flight, as many
as the engine's cache holds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.core.answers import Answer, Completion, Failure, Sent
from leadline.core.contracts import ModelCard, PrefixCache
from leadline.core.errors import UsageError
from leadline.core.seeds import digest, digest_prompt
from leadline.core.types import Continuation, Document, Probe, TokenNLL
from leadline.features.engines.options import EngineOptions
from leadline.features.engines.process import EngineProcess, EngineRefused
from leadline.models.architecture import read_constants
from leadline.models.folder_texts import FolderTexts
from leadline.models.openai.replies import is_context_refusal
from leadline.models.prefix_scoring import FoundWays, ScoredText, Scores, tail_reads
from leadline.text.chat import NOT_PREFILLED, opens_thinking, split_thinking

if TYPE_CHECKING:
    from leadline.core.types import Ids

MOST_DOCUMENTS = 256
"""Documents in flight: engines answer as many requests at once by default."""
NOT_A_NUMBER = "the model's logits are not numbers (NaN); try dtype=float32 or bfloat16"


class EngineModel(FolderTexts):
    """One engine in a process of its own."""

    def __init__(self, name: str, options: EngineOptions, process: EngineProcess, info: dict[str, Any]) -> None:
        super().__init__(options, Path(info["folder"]))
        self._options = options
        self._process = process
        self._info = info
        self._stops = self.end_of_turn()
        self._room = CacheRoom(info["kv_tokens"])
        self._ways = FoundWays(
            [EngineWay(process, way) for way in options.scoring],
            [EngineWay(process, "whole")],
            lambda: max(1, int(info["block"])),
        )
        self.card: ModelCard = self._describe(name)

    @property
    def prefix_cache(self) -> PrefixCache:
        return PrefixCache(tokens=self._info["kv_tokens"], block=max(1, int(self._info["block"])))

    def documents_at_once(self, workers: int) -> int:
        return min(workers, MOST_DOCUMENTS)

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        order = sorted(range(len(probes)), key=lambda n: -probes[n].cut)
        needed = probes[order[0]].cut + sum(p.prompt_tokens - p.cut + self._allowance(p) for p in probes)
        answers: dict[int, Answer] = {}
        with self._room.held(needed):
            for numbers in (order[:1], order[1:]):
                if numbers:
                    answers |= dict(zip(numbers, self._ask(document, [probes[n] for n in numbers]), strict=True))
        return [answers[n] for n in range(len(probes))]

    def nll(
        self, ids: Ids, continuations: Sequence[Continuation] = (), spans: Sequence[tuple[int, int]] = ()
    ) -> TokenNLL | Failure:
        longest = max((len(c.ids) for c in continuations), default=0)
        with self._room.held(len(ids) + longest):
            return self._ways.nll(ids, continuations, spans)

    def forecast(
        self, documents: Iterable[Sequence[tuple[int, int, int]]], kept: Iterable[int] = ()
    ) -> tuple[str, ...]:
        """A note on the tokens that the engine's KV cache holds. Raises if the longest document has more."""
        longest = max((prompt + new for probes in documents for prompt, _, new in probes), default=0)
        held = self._info["kv_tokens"]
        if held is None or not longest:
            return ()
        if longest > held:
            raise UsageError(
                f"the engine's KV cache holds {held:,} tokens, and the longest document needs {longest:,}",
                where=self.card.name,
                fix="shorter --lengths, tensor_parallel_size= over more GPUs, or kv_cache_dtype=fp8",
            )
        return (
            f"the engine's KV cache holds {held:,} tokens ({self._info['kv_dtype']}): {held // longest} of the longest",
        )

    def close(self) -> None:
        self._process.close()

    def _allowance(self, probe: Probe) -> int:
        return self._options.max_tokens or probe.question.allowance

    def _ask(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        """The answers of probes that are asked at once."""
        began = time.monotonic()
        prompts = [
            {"ids": document.prompt_ids(p).tolist(), "max_tokens": self._allowance(p), "stop": self._stops}
            for p in probes
        ]
        written = self._process.write(prompts)
        seconds = (time.monotonic() - began) / len(probes)
        return [
            Answer(self._sent(document, probe), self._outcome(document, reply), seconds)
            for probe, reply in zip(probes, written, strict=True)
        ]

    def _outcome(self, document: Document, reply: dict[str, Any] | EngineRefused) -> Completion | Failure:
        if isinstance(reply, EngineRefused):
            return refusal(str(reply))
        if reply["corrupted"]:
            return Failure("not_a_number", NOT_A_NUMBER)
        if reply["finish"] not in ("stop", "length"):
            return Failure("aborted", f"the engine ended the answer ({reply['finish']})", transient=True)
        thinking, text = split_thinking(
            self.tokenizer.decode(reply["ids"]), opened=opens_thinking(document.frame.after)
        )
        return Completion(
            text=text,
            finish=reply["finish"],
            thinking=thinking,
            prompt_tokens=reply["prompt_tokens"],
            completion_tokens=len(reply["ids"]) + reply["stopped"],
            cached_tokens=reply["cached_tokens"],
        )

    def _sent(self, document: Document, probe: Probe) -> Sent:
        return Sent(
            form="ids",
            prefix=document.prefix_place(probe),
            digest=digest_prompt(document.prompt_ids(probe).astype("<i4").tobytes()),
            decoding={"method": "greedy", "max_tokens": self._allowance(probe), "min_tokens": 1},
        )

    def _describe(self, name: str) -> ModelCard:
        info, engine = self._info, self._options.engine
        notes = [f"{engine} {info['version']}, {info['dtype']}, KV cache {info['kv_dtype']}"]
        if info["kv_tokens"]:
            notes.append(f"its KV cache holds {info['kv_tokens']:,} tokens in blocks of {info['block']}")
        if self.frame.form == "completion":
            notes.append("completion form: no chat template")
        elif not self.frame.prefill:
            notes.append(NOT_PREFILLED)
        return ModelCard(
            name=f"{engine}:{name}",
            window=info["window"],
            window_origin=f"stated by {engine}",
            constants=read_constants(Path(info["folder"])),
            fingerprints={
                "tokenizer": self.tokenizer.fingerprint,
                "template": self.frame.fingerprint,
                "weights": weights_digest(name, Path(info["folder"])),
                "engine": f"{engine} {info['version']}",
                "dtype": f"{info['dtype']}, KV {info['kv_dtype']}",
                "decoding": f"greedy, stop at {','.join(map(str, self._stops))}",
                "options": digest(self._options.engine_arguments()),
            },
            notes=tuple(notes),
        )


def refusal(message: str) -> Failure:
    """The failure for an engine's error message."""
    low = message.lower()
    if "out of memory" in low:
        return Failure("out_of_memory", message)
    if is_context_refusal(message) or "max_model_len" in low:
        return Failure("context_length", message)
    return Failure("refused_request", message)


def weights_digest(name: str, folder: Path) -> str:
    """A digest of the configuration, and of the names and sizes of weights in the folder."""
    config = folder / "config.json"
    sizes = {path.name: path.stat().st_size for path in sorted(folder.glob("*.safetensors"))}
    return digest([Path(name).name, config.read_text() if config.is_file() else "", sizes])


@dataclass(frozen=True, slots=True)
class EngineWay:
    """A way to have texts scored by the engine: forced, trace, tail or whole."""

    process: EngineProcess
    way: str

    @property
    def title(self) -> str:
        return {
            "forced": "forced tokens after a cached prefix, in the engine",
            "trace": "forced trace after a cached prefix, in the engine",
            "tail": "end of the prompt after a cached prefix, in the engine",
            "whole": "every token of the prompt, in the engine",
        }[self.way]

    def reads(self, text: ScoredText, block: int) -> int:
        return tail_reads(text, block, each_token=self.way == "forced")

    def score(self, texts: Sequence[ScoredText]) -> list[Scores] | Failure:
        texts_as_json = [{"ids": text.ids.tolist(), "start": text.start} for text in texts]
        try:
            replies = self.process.ask({"do": "score", "texts": texts_as_json, "way": self.way})
        except EngineRefused as error:
            return refusal(str(error))
        if any(value is not None and np.isnan(value) for reply in replies for value in reply["logprobs"]):
            return Failure("not_a_number", NOT_A_NUMBER)
        return [
            Scores(
                -np.array([np.nan if value is None else value for value in reply["logprobs"]], np.float64),
                reply["requests"], reply["prompt_tokens"], reply["cached_tokens"],
            )
            for reply in replies
        ]  # fmt: skip


class CacheRoom:
    """The tokens of an engine's cache, which documents in flight hold. More documents would evict each other's tokens
    before they are used. One document is always admitted."""

    def __init__(self, tokens: int | None) -> None:
        self._tokens = tokens
        self._held = 0
        self._changed = threading.Condition()

    @contextmanager
    def held(self, tokens: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._admits(tokens))
            self._held += tokens
        try:
            yield
        finally:
            with self._changed:
                self._held -= tokens
                self._changed.notify_all()

    def _admits(self, tokens: int) -> bool:
        return not self._held or self._tokens is None or self._held + tokens <= self._tokens
