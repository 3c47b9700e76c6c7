"""Simulated models: they read the prompt they are given, and err as published profiles do. No network, no weights.

A simulated model knows the text of the prompt and where the document in it ends, and nothing of targets, facts or
depths. What it draws depends on its seed and on the cell alone, so that a record is the same in any order, and two
profiles with one seed err on the same samples first.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, field_validator

from leadline.core.contracts import Continuation, ModelCard, ModelProvider, Tokenizer, TokenNLL
from leadline.core.digest import digest, digest_text
from leadline.core.errors import UnknownName
from leadline.core.seeds import rng
from leadline.core.spec import parse_length
from leadline.core.types import Answer, Completion, Document, Failure, Frame, Probe, Sent
from leadline.models.sim import answers as wording
from leadline.models.sim.answers import Body, Evidence, read
from leadline.models.sim.nll import continuation_surprise, surprise_at
from leadline.models.sim.profiles import ARCHETYPES, Profile, success_probability
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import open_tokenizer

if TYPE_CHECKING:
    from leadline.core.types import Ids

_REMEMBERED_BODIES = 4


class Simulated(ModelProvider, Profile):
    """`sim:ARCHETYPE?window=8k&seed=1`: perfect, cliff, lost-in-the-middle, decay, floor, recency; refuses, empty,
    wanders, cuts-off; flaky."""

    summary: ClassVar[str] = "simulated models with a known profile, for demos and for testing measurements"

    seed: int = Field(0, description="another seed errs on other samples")
    rate: float = Field(0.1, ge=0, le=1, description="share of requests that fail, for flaky")
    limit: int | None = Field(None, ge=1, description="refuse prompts that need more tokens, as servers do")
    tokenizer: str = Field("whitespace", description="whitespace, bytes, or a tokenizer.json or model folder")
    latency_seconds: float = Field(0.0, ge=0, description="how long an answer takes")

    @field_validator("limit", mode="before")
    @classmethod
    def _limit(cls, value: Any) -> Any:
        return parse_length(value) if isinstance(value, str) else value

    def open(self, name: str) -> SimulatedModel:
        if name not in ARCHETYPES:
            raise UnknownName("simulated model", name, ARCHETYPES, where=f"model sim:{name}")
        return SimulatedModel(name, self)


class SimulatedModel:
    """One archetype with its options, ready to answer from many threads."""

    def __init__(self, archetype: str, options: Simulated) -> None:
        self.archetype = archetype
        self.options = options
        self.tokenizer: Tokenizer = open_tokenizer(options.tokenizer)
        self.frame: Frame = completion_frame()
        self.plain: Frame = self.frame
        self.grain: Literal["probe", "document"] = "probe"
        self._lock = threading.Lock()
        self._bodies: deque[tuple[Document, int, Body]] = deque(maxlen=_REMEMBERED_BODIES)
        self._failed_before: dict[str, int] = {}

    @property
    def card(self) -> ModelCard:
        options = self.options.model_dump(mode="json", exclude={"latency_seconds", "tokenizer"})
        turns = self.archetype not in ("perfect", "flaky")
        return ModelCard(
            name=f"sim:{self.archetype}",
            window=self.options.limit or (self.options.window if turns else None),
            window_is_hard=self.options.limit is not None,
            fingerprints={
                "tokenizer": self.tokenizer.fingerprint,
                "template": self.frame.fingerprint,
                "profile": digest([self.archetype, options]),
            },
            notes=("simulated: its profile is planted, not measured",),
        )

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        return [self._answer(document, probe) for probe in probes]

    def nll(
        self, ids: Ids, continuations: Sequence[Continuation] = (), spans: Sequence[tuple[int, int]] = ()
    ) -> TokenNLL | Failure:
        longest = max([stop for _, stop in spans] + [c.cut + len(c.ids) for c in continuations], default=0)
        if self.options.limit is not None and longest > self.options.limit:
            return Failure("context_length", f"this needs {longest} tokens, the window holds {self.options.limit}")

        def chance(length: int, place: float) -> float:
            return success_probability(self.archetype, length, place, self.options)

        return TokenNLL(
            tuple(continuation_surprise(ids, c, chance) for c in continuations),
            tuple(surprise_at(ids[:stop], range(start, stop), chance) for start, stop in spans),
        )

    def close(self) -> None:
        self._bodies.clear()

    def _answer(self, document: Document, probe: Probe) -> Answer:
        began = time.perf_counter()
        if self.options.latency_seconds:
            time.sleep(self.options.latency_seconds)
        prompt = document.prompt_text(probe)
        prefix: Literal["prefill", "appended"] = "prefill" if document.frame.prefill else "appended"
        sent = Sent(
            form="completion",
            prefix=prefix if probe.answer_prefix else "none",
            characters=len(prompt),
            digest=digest_text(prompt),
            decoding={"max_tokens": probe.allowance},
        )
        outcome = self._refused(document, probe) or self._failed(probe) or self._completed(document, probe)
        return Answer(sent=sent, outcome=outcome, seconds=time.perf_counter() - began)

    def _refused(self, document: Document, probe: Probe) -> Failure | None:
        needed = _prompt_tokens(probe) + probe.allowance
        if self.options.limit is None or needed <= self.options.limit:
            return None
        return Failure("context_length", f"this prompt needs {needed} tokens, the window holds {self.options.limit}")

    def _failed(self, probe: Probe) -> Failure | None:
        """A flaky model fails some first requests, and fewer second ones: each attempt is drawn anew."""
        if self.archetype != "flaky":
            return None
        key = probe.cell.key
        with self._lock:
            attempt = self._failed_before.get(key, 0)
            if rng(self.options.seed, "sim flaky", key, attempt).random() >= self.options.rate:
                self._failed_before.pop(key, None)
                return None
            self._failed_before[key] = attempt + 1
        return Failure("server", "simulated fault", transient=True, status=503)

    # --- reading and answering ---

    def _completed(self, document: Document, probe: Probe) -> Completion:
        body = self._body(document, probe)
        closing = probe.tail + document.frame.after + (probe.answer_prefix if document.frame.prefill else "")
        text, finish = self._reply(read(body, closing), probe)
        ends = self.tokenizer.ends(text) or []
        if len(ends) > probe.allowance:
            text, finish = text[: ends[probe.allowance - 1]], "length"
        return Completion(
            text=text,
            finish=finish,
            prompt_tokens=_prompt_tokens(probe),
            completion_tokens=min(len(ends), probe.allowance),
        )

    def _body(self, document: Document, probe: Probe) -> Body:
        """The document up to the cut; what was worked out about it is kept for its next probe."""
        with self._lock:
            for known, cut, body in self._bodies:
                if known is document and cut == probe.cut_characters:
                    return body
        body = Body(document.text[document.body_start_characters : probe.cut_characters])
        with self._lock:
            self._bodies.append((document, probe.cut_characters, body))
        return body

    def _reply(self, evidence: Evidence, probe: Probe) -> tuple[str, str]:
        draw = rng(self.options.seed, "sim", probe.cell.key)
        truth = [finding.value for finding in evidence.findings]
        if self.archetype == "empty":
            return "", "stop"
        if self.archetype == "refuses":
            return wording.without(truth, draw, wording.REFUSALS), "stop"
        if self.archetype == "wanders":
            return wording.without(truth, draw, wording.RAMBLES), "stop"
        if self.archetype == "cuts-off":
            return wording.without(truth, draw, wording.BEGINNINGS), "length"
        if not truth:
            return draw.choice(wording.NOT_FOUND), "stop"
        length = _prompt_tokens(probe) + probe.allowance
        kept = [f.value for f in evidence.findings if draw.random() < self._chance(length, f.places)]
        if len(kept) == len(truth):
            return wording.right(kept), "stop"
        if kept:
            return wording.mixed(draw, kept, truth, evidence.mistake), "stop"
        return wording.wrong(draw, truth, evidence.mistake), "stop"

    def _chance(self, length: int, places: Sequence[float]) -> float:
        """Evidence that stands in many places is seen as often as its places are, on average."""
        chances = [success_probability(self.archetype, length, place, self.options) for place in places]
        return sum(chances) / len(chances)


def _prompt_tokens(probe: Probe) -> int:
    """What was really sent, counted from the token ids and not from what the probe says of itself."""
    return probe.cut + len(probe.closing_ids)
