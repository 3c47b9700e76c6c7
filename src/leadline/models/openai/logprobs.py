"""Log-probabilities from a server, in the cheapest way that it turns out to have.

    server      way                                                              requests
    vLLM        a forced trace through /inference/v1/generate                    one for each continuation
                forced tokens: completions with one allowed token each           one for each scored token
    SGLang      /generate with logprob_start_len                                 one for each continuation
    llama.cpp   forced tokens: /completion with n_probs and a bias               one for each scored token
    any         log-probabilities of a whole prompt: vLLM's prompt_logprobs,     one for each continuation,
                SGLang's from 0, or completions with echo                        which is read again each time

All but the last read a document once and take it from the prefix cache for every continuation. Which of them a server
has is found by asking it a few tokens, and each is compared with the log-probabilities of a whole prompt: a server may
ignore a field, lack a flag, or return log-probabilities after masking, which are 0 for a forced token. Prompts are sent
as token ids, so that they are not tokenised again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.records import Failure
from leadline.core.types import Continuation, TokenNLL
from leadline.models.openai.discovery import ServerInfo
from leadline.models.openai.scoring import (
    Endpoint,
    ForcedTokens,
    ForcedTrace,
    TailOfPrompt,
    WholePrompt,
    WholeSGLang,
    WrittenTokens,
)
from leadline.models.prefix_scoring import ScoredText, Scores, ScoringWay, ScoringWays

if TYPE_CHECKING:
    from leadline.core.types import Ids

TRIAL_CONTEXT, TRIAL_TOKENS = 8, 4
TRIAL_NATS = 0.25
"""Two ways that differ by more do not give the same thing; rounding in 16 bits stays far below it."""
CERTAIN = 1e-4
"""A token that nobody would write has more nats than this, unless all others were masked."""


class ServerLogprobs:
    """The log-probabilities of one server. The way is found at the first question, by one thread."""

    def __init__(self, endpoint: Endpoint, server: ServerInfo, block: Callable[[], int]) -> None:
        """`block` asks how many tokens the server's prefix cache keeps together."""
        self._block = block
        tails: dict[str, tuple[ScoringWay, ...]] = {
            "vllm": (ForcedTrace(endpoint), ForcedTokens(endpoint)),
            "sglang": (TailOfPrompt(endpoint),),
            "llamacpp": (WrittenTokens(endpoint, at_once=1),),
        }
        self._tails = tails.get(server.kind, ())
        own = (WholeSGLang(endpoint, at_once=1),) if server.kind == "sglang" else ()
        self._wholes: tuple[ScoringWay, ...] = (*own, WholePrompt(endpoint, at_once=1))
        self._guard = threading.Lock()
        self._ways: ScoringWays | None = None

    def nll(
        self, ids: Ids, continuations: Sequence[Continuation], spans: Sequence[tuple[int, int]]
    ) -> TokenNLL | Failure:
        sample = np.concatenate([ids[: TRIAL_CONTEXT + TRIAL_TOKENS], *(c.ids for c in continuations[:1])])
        ways = self.ways(sample)
        return ways if isinstance(ways, Failure) else ways.nll(ids, continuations, spans)

    def ways(self, sample: Ids) -> ScoringWays | Failure:
        """What the server has, tried with some tokens; a failure that may pass is not the last word."""
        with self._guard:
            if self._ways is None:
                found = self._try_ways(sample)
                if isinstance(found, Failure):
                    return found
                self._ways = found
            return self._ways

    def _try_ways(self, sample: Ids) -> ScoringWays | Failure:
        trial, reasons = _trial(sample), list[str]()
        whole, reference = self._try_wholes(trial)
        if isinstance(reference, Failure) and not _is_final(reference):
            return reference
        for way in self._tails:
            scores = way.score([trial])
            if isinstance(scores, Failure) and not _is_final(scores):
                return scores
            reason = _difference(scores, reference)
            if not reason:
                return ScoringWays(way, whole, max(1, self._block()), tuple(reasons))
            reasons.append(f"not {way.title}: {reason}")
        if isinstance(reference, Failure):
            return Failure("unsupported", "; ".join([reference.message, *reasons]), status=reference.status)
        return ScoringWays(None, whole, notes=tuple(reasons))

    def _try_wholes(self, trial: ScoredText) -> tuple[ScoringWay | None, list[Scores] | Failure]:
        """The first way that gives a whole prompt's log-probabilities, with those of the trial; else the failure."""
        scores: list[Scores] | Failure = []
        for way in self._wholes:
            scores = way.score([trial])
            if not isinstance(scores, Failure):
                return way, scores
            if not _is_final(scores):
                break
        return None, scores


def _trial(sample: Ids) -> ScoredText:
    """A few tokens, and after them tokens that nobody would write there."""
    context = np.resize(sample, TRIAL_CONTEXT)
    return ScoredText(np.concatenate([context, context[:TRIAL_TOKENS][::-1]]), TRIAL_CONTEXT)


def _is_final(failure: Failure) -> bool:
    """Whether the server has this way not at all; it may be busy or away otherwise."""
    return not failure.transient or failure.status in (500, 501)


def _difference(scores: list[Scores] | Failure, reference: list[Scores] | Failure) -> str:
    """Why these are not the log-probabilities that were asked for; empty if they are."""
    if isinstance(scores, Failure):
        return f"{scores.message} (status {scores.status})" if scores.status else scores.message
    nats = scores[0].nats
    if not isinstance(reference, Failure):
        apart = float(np.max(np.abs(nats - reference[0].nats)))
        return f"its numbers are {apart:.2g} nats from those of a whole prompt" if apart > TRIAL_NATS else ""
    return "" if np.all(nats > CERTAIN) else "its log-probabilities are those after masking: 0 for a forced token"
