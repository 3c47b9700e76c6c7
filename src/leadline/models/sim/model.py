"""Simulated models: they answer from the probe, and err as published profiles do. No network, no weights.

A simulated model is given the targets of a probe and the depths of the facts behind them. Whether it names a target is
drawn from its seed and the cell alone, so a record is the same in any order, and two profiles with one seed err on the
same samples first.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, field_validator

from leadline.core.contracts import Continuation, ModelCard, ModelProvider, Tokenizer, TokenNLL
from leadline.core.digest import digest, digest_text
from leadline.core.errors import UnknownName
from leadline.core.seeds import rng
from leadline.core.spec import parse_length
from leadline.core.types import Answer, Completion, Document, Failure, Frame, Probe, Sent
from leadline.models.sim.answers import PREAMBLES, RAMBLES, REFUSALS, Finish, draw_answer, without
from leadline.models.sim.nll import continuation_nll, span_nll
from leadline.models.sim.profiles import ARCHETYPES, JUDGE, Profile, success_probability
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import open_tokenizer

if TYPE_CHECKING:
    from leadline.core.types import Ids

NOT_A_VERDICT = "The answer looks correct to me. GRADE: C"
HIGH_GRADES = (10,)


class Simulated(ModelProvider, Profile):
    """`sim:ARCHETYPE?window=8k&seed=1`: perfect, cliff, lost-in-the-middle, decay, floor, recency; refuses, empty,
    wanders, cuts-off; flaky; judge."""

    summary: ClassVar[str] = "simulated models with a known profile, for demos and for testing measurements"

    seed: int = Field(0, description="another seed errs on other samples")
    rate: float = Field(0.1, ge=0, le=1, description="share of requests that fail, for flaky")
    limit: int | None = Field(None, ge=1, description="refuse prompts that need more tokens, as servers do")
    tokenizer: str = Field("whitespace", description="whitespace, bytes, or a tokenizer.json or model folder")
    latency_seconds: float = Field(0.0, ge=0, description="how long an answer takes")

    sensitivity: float = Field(1.0, ge=0, le=1, description="for judge: share of right answers that it accepts")
    specificity: float = Field(1.0, ge=0, le=1, description="for judge: share of wrong answers that it rejects")
    garbled: float = Field(0.0, ge=0, le=1, description="for judge: share of replies that are no verdict")
    guesses_beyond: int | None = Field(None, ge=1, description="for judge: it guesses about longer samples than this")

    @field_validator("limit", "guesses_beyond", mode="before")
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
        self._failed_before: dict[str, int] = {}

    @property
    def card(self) -> ModelCard:
        judging = set() if self.archetype == JUDGE else {"sensitivity", "specificity", "garbled", "guesses_beyond"}
        options = self.options.model_dump(mode="json", exclude={"latency_seconds", "tokenizer", *judging})
        turns = self.archetype not in ("perfect", "flaky", JUDGE)
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
        return TokenNLL(
            tuple(continuation_nll(ids, c, self._chance) for c in continuations),
            tuple(span_nll(ids[:stop], range(start, stop), self._chance) for start, stop in spans),
        )

    def close(self) -> None:
        pass

    def _chance(self, length: int, depth: float | None) -> float:
        return success_probability(self.archetype, length, depth, self.options)

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
        tokens = probe.cut + len(probe.closing_ids)  # as sent, not as the probe claims
        outcome = self._failure(probe, tokens) or self._completion(document, probe, tokens)
        return Answer(sent=sent, outcome=outcome, seconds=time.perf_counter() - began)

    def _failure(self, probe: Probe, tokens: int) -> Failure | None:
        """A prompt beyond the limit is refused. A flaky model fails some requests; each attempt is drawn anew."""
        limit, needed = self.options.limit, tokens + probe.allowance
        if limit is not None and needed > limit:
            return Failure("context_length", f"this prompt needs {needed} tokens, the window holds {limit}")
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

    def _completion(self, document: Document, probe: Probe, tokens: int) -> Completion:
        text, finish = self._reply(document, probe, tokens + probe.allowance)
        ends = self.tokenizer.ends(text) or []
        if len(ends) > probe.allowance:
            text, finish = text[: ends[probe.allowance - 1]], "length"
        return Completion(
            text=text, finish=finish, prompt_tokens=tokens, completion_tokens=min(len(ends), probe.allowance)
        )

    def _reply(self, document: Document, probe: Probe, length: int) -> tuple[str, Finish]:
        draw = rng(self.options.seed, "sim", probe.cell.key)
        match self.archetype:
            case "empty":
                return "", "stop"
            case "judge":
                return self._verdict(probe, draw), "stop"
            case "refuses":
                return without(probe.targets, draw, REFUSALS), "stop"
            case "wanders":
                return without(probe.targets, draw, RAMBLES), "stop"
            case "cuts-off":
                return without(probe.targets, draw, PREAMBLES), "length"
        return draw_answer(document, probe, lambda depth: self._chance(length, depth), draw), "stop"

    def _verdict(self, probe: Probe, draw: Random) -> str:
        """The verdict that a judge's probe has as its target, with this judge's errors."""
        try:
            verdict = json.loads(probe.targets[0])
        except (ValueError, IndexError):
            return NOT_A_VERDICT
        options, guesses = self.options, self.options.guesses_beyond
        lost = draw.random() < options.garbled
        for key, value in verdict.items():
            if key in ("id", "reason"):
                continue
            keeps = options.sensitivity if value in ("yes", *HIGH_GRADES) else options.specificity
            if guesses is not None and probe.cell.length > guesses:
                keeps = 0.5
            if key in ("contradicts", "abstains"):
                keeps = 1.0
            if draw.random() >= keeps:
                verdict[key] = {"yes": "no", "no": "yes", 10: 1, 1: 10}.get(value, value)
        return NOT_A_VERDICT if lost else json.dumps(verdict)
