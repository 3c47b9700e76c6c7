"""One model while it is checked: asking it, counting what that costs, and what its replies say."""

from __future__ import annotations

import random
import re
import secrets
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from leadline.core.answers import Completion, Failure
from leadline.core.contracts import Model
from leadline.core.drafts import Draft, DraftQuestion
from leadline.core.spec import Limits
from leadline.core.types import Cell, Document, Probe
from leadline.core.workers import call_at_once
from leadline.models.openai.provider import OpenAIModel
from leadline.models.openai.replies import Exchange
from leadline.run.events import ignore
from leadline.run.interrupt import Stop
from leadline.run.retry import Retrier
from leadline.text.chat import TAGS
from leadline.text.fitting import Fitter

T = TypeVar("T")

LIMITS = Limits(attempts=4, timeout=20.0, rate_limit_wait=60.0)
"""A check waits less long for a server than a sample does. The timeout also bounds the waits that a server asks for."""
TINY_DIFFERENCE = 0.3
"""Nats: differences below this come from the order of floating-point sums and are not a fault."""
LARGE_DIFFERENCE = 1.0
"""Nats: more than this at a single token is a fault."""
TOP = 3
"""Alternatives asked for at every token."""
THOUGHT = re.compile("|".join(re.escape(tag) for pair in TAGS for tag in pair) + r"|<\|channel\|>\s*analysis")
"""Marks of thinking in an answer."""
IN_PROCESS = "in process: no server is involved"


class CannotCheck(Exception):
    """The check that is being made cannot be made; the text says why."""


class TokenChances(NamedTuple):
    """A generated token with its log-probability, and the alternatives that the server lists."""

    token: str
    logprob: float
    alternatives: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CheckReply:
    """One answered request."""

    completion: Completion
    content: str
    """The answer as the server sent it."""
    seconds: float
    id: str = ""
    logprobs: tuple[TokenChances, ...] = ()

    @property
    def text(self) -> str:
        """The answer, without thinking and prefix."""
        return self.completion.text

    @property
    def is_cut_off(self) -> bool:
        return self.completion.finish == "length"

    @property
    def thinks(self) -> bool:
        """Whether the model thought before it answered, or instead."""
        return bool(self.completion.thinking) or THOUGHT.search(self.content) is not None

    @property
    def whole(self) -> str:
        """All that was generated."""
        return self.completion.thinking + self.text


class Examiner:
    """Asks one model. Experiments that several checks need are made once (`once`)."""

    def __init__(
        self, model: Model, *, longest: int | None = None, cheap: bool = False, seed: int | None = None
    ) -> None:
        self.model = model
        self.server = model if isinstance(model, OpenAIModel) else None
        self.longest = longest
        self.cheap = cheap
        """Only a handful of small requests: before a run."""
        self.random = random.Random(secrets.randbits(64) if seed is None else seed)
        self.fitter = Fitter(model.tokenizer, model.frame)
        self.requests = 0
        self.prompt_tokens = 0
        self.served_by: Counter[tuple[str, str]] = Counter()
        """The number of replies that name each model and system_fingerprint."""
        self.limited: list[Failure] = []
        """Requests that were refused because there were too many."""
        self.headers: dict[str, str] = {}
        self.contents: list[str] = []
        """The answers of all requests, as the server sent them."""
        self.numbers: dict[str, float | int | None] = {}
        self.paces: list[tuple[int, float]] = []
        """Prompt tokens and seconds of every answered request that no cache shortened."""
        self._retrier = Retrier(model, LIMITS, Stop(), ignore)
        self._kept: dict[Any, Any] = {}

    def once(self, experiment: Callable[[Examiner], T]) -> T:
        """The result of an experiment, which is made when first needed. If it raised CannotCheck, that is raised
        again."""
        if experiment not in self._kept:
            try:
                self._kept[experiment] = experiment(self)
            except CannotCheck as why:
                self._kept[experiment] = why
        result = self._kept[experiment]
        if isinstance(result, CannotCheck):
            raise result
        return result  # type: ignore[no-any-return]

    def need_server(self) -> OpenAIModel:
        if self.server is None:
            raise CannotCheck(IN_PROCESS)
        return self.server

    # --- asking

    def ask(self, text: str, prefix: str = "", *, max_tokens: int = 16, **fields: Any) -> CheckReply:
        """The answer, after retries of transient failures. Raises CannotCheck if there is none."""
        outcome = self.try_to_ask(text, prefix, max_tokens=max_tokens, **fields)
        if isinstance(outcome, Failure):
            raise CannotCheck(f"no answer to the request of this check: {outcome.why}: {outcome.message}")
        return outcome

    def try_to_ask(
        self, text: str, prefix: str = "", *, max_tokens: int = 16, once: bool = False, **fields: Any
    ) -> CheckReply | Failure:
        """The answer, or the failure of the last attempt; with `once` there is a single attempt."""
        if self.server is None:
            if fields:
                raise CannotCheck(IN_PROCESS)
            return self._ask_in_process(text, prefix, max_tokens)
        send = partial(self._send, self.server, text, prefix, {"max_tokens": max_tokens, **fields})
        return send() if once else self._retrier.request(send)

    def _send(self, server: OpenAIModel, text: str, prefix: str, fields: Mapping[str, Any]) -> CheckReply | Failure:
        """One request. A server that let it time out is not asked again: a check would take too long."""
        reply = self.note(server.exchange(text, prefix, fields=fields))
        if isinstance(reply, Failure) and reply.why == "timeout":
            return msgspec.structs.replace(reply, transient=False)
        return reply

    def at_once(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """All calls at the same time, if a server answers them; else one after the other."""
        return call_at_once(calls, 1 if self.server is None else len(calls))

    def note(self, exchange: Exchange) -> CheckReply | Failure:
        """Keeps the counts, names and times of a reply."""
        self.requests += 1
        self.headers.update({name.lower(): value for name, value in exchange.headers.items()})
        outcome = exchange.outcome
        if isinstance(outcome, Failure):
            if outcome.why == "rate_limited":
                self.limited.append(outcome)
            return outcome
        self.prompt_tokens += outcome.prompt_tokens or 0
        if outcome.prompt_tokens and not outcome.cached_tokens:
            self.paces.append((outcome.prompt_tokens, exchange.seconds))
        self.served_by[outcome.model, outcome.system_fingerprint] += 1
        choice = exchange.page.get("choices", [{}])[0]
        message = choice.get("message")
        content = message.get("content") if isinstance(message, Mapping) else choice.get("text")
        answer_text = content if isinstance(content, str) else outcome.text
        self.contents.append(answer_text)
        identity = str(exchange.page.get("id") or "")
        return CheckReply(outcome, answer_text, exchange.seconds, identity, parse_logprobs(choice.get("logprobs")))

    def _ask_in_process(self, text: str, prefix: str, max_tokens: int) -> CheckReply | Failure:
        cell = Cell("doctor", 1 << 40, None, zlib.crc32(f"{text}{prefix}".encode()))
        question = DraftQuestion("", prefix, allowance=max_tokens, cell=cell, fixed_allowance=True, family="needle")
        document = self.fitter.fit(Draft(f"doctor/{cell.sample}", "doctor", text, None, (), (question,)))
        return self.ask_probe(document, document.probes[0])

    def ask_probe(self, document: Document, probe: Probe) -> CheckReply | Failure:
        """One question about a document, as a run asks it."""
        [response] = self._retrier.ask(document, [probe])
        self.requests += response.attempts
        outcome = response.answer.outcome
        if not isinstance(outcome, Completion):
            assert isinstance(outcome, Failure)
            return outcome
        self.prompt_tokens += outcome.prompt_tokens or 0
        return CheckReply(outcome, outcome.text, response.answer.seconds)

    # --- tokens and log-probabilities

    def count(self, text: str) -> int:
        return len(self.model.tokenizer.encode(text))

    def expected_tokens(self, text: str, prefix: str = "") -> int:
        """Tokens of the whole prompt, as a run counts them."""
        frame = self.model.frame
        return self.count(frame.before + text + frame.after + prefix) + frame.extra_tokens

    @cached_property
    def logprob_fields(self) -> dict[str, Any] | None:
        """The fields that make this server return log-probabilities of what it generates; None if it does not."""
        server = self.need_server()
        fields: dict[str, Any] = {"logprobs": True, "top_logprobs": TOP}
        if server.frame.form == "completion":
            fields = {"logprobs": TOP}
        reply = self.try_to_ask("Name a colour.", max_tokens=2, **fields)
        return fields if isinstance(reply, CheckReply) and reply.logprobs else None


def parse_logprobs(logprobs: Any) -> tuple[TokenChances, ...]:
    """Log-probabilities of generated tokens, in the format of chat or of completions; empty where there are none."""
    if not isinstance(logprobs, Mapping):
        return ()
    chances: list[TokenChances] = []
    try:
        if logprobs.get("content"):
            for entry in logprobs["content"]:
                tops = {str(top["token"]): float(top["logprob"]) for top in entry.get("top_logprobs") or ()}
                chances.append(TokenChances(str(entry["token"]), float(entry["logprob"]), tops))
        elif logprobs.get("token_logprobs"):
            tops_of = logprobs.get("top_logprobs") or [{}] * len(logprobs["token_logprobs"])
            for token, logprob, tops in zip(logprobs["tokens"], logprobs["token_logprobs"], tops_of, strict=True):
                chances.append(TokenChances(str(token), float(logprob), dict(tops or {})))
    except (KeyError, TypeError, ValueError):
        return ()
    return tuple(chances)


def logprob_difference(first: CheckReply, second: CheckReply) -> float | None:
    """The largest difference in nats between two answers, up to the first token that differs; None without any."""
    return max(logprob_differences(first, second), default=None)


def logprob_differences(first: CheckReply, second: CheckReply) -> list[float]:
    """Differences in nats of every token that one of two answers lists, up to the first token that differs.

    A token that the other answer does not list is less likely there than any listed one: that gives the least
    difference.
    """
    differences: list[float] = []
    for token, other_token in zip(first.logprobs, second.logprobs, strict=False):
        ours, others = _chances(token), _chances(other_token)
        for text in ours.keys() | others.keys():
            a, b = ours.get(text), others.get(text)
            if a is not None and b is not None:
                apart = abs(a - b)
            else:
                known, listed = (a, others) if a is not None else (b, ours)
                apart = max(0.0, (known or 0.0) - min(listed.values()))
            differences.append(apart)
        if token.token != other_token.token:
            break
    return differences


def is_unstable(differences: Sequence[float]) -> bool:
    """Whether log-probabilities of the same text differ by more than the order of floating-point sums explains: on
    average, or by much at one token. With quantised weights single tokens can be a third of a nat off when a prompt
    comes from the cache."""
    average = float(np.mean(differences)) if differences else 0.0
    return average > TINY_DIFFERENCE or max(differences, default=0.0) > LARGE_DIFFERENCE


def _chances(token: TokenChances) -> dict[str, float]:
    return {**token.alternatives, token.token: token.logprob}


def flip_margin(first: CheckReply, second: CheckReply) -> float | None:
    """The difference in nats between the two tokens at which two answers part; None if unknown."""
    for token, other_token in zip(first.logprobs, second.logprobs, strict=False):
        if token.token != other_token.token:
            other = token.alternatives.get(other_token.token)
            return None if other is None else abs(token.logprob - other)
    return None
