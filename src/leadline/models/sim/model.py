"""Simulated models: they answer from the probe, and err as published profiles do. No network, no weights.

A simulated model is given the targets of a probe and the depths of the facts behind them. Whether it names a target is
drawn from its seed and the cell alone, so a record is the same in any order, and two profiles with one seed err on the
same samples first. Each value is read or lost by itself, with the chance that the profile gives to the depth of its own
fact; a wrong answer is one of the mistakes that real models make, and never contains a right value by accident.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec
from pydantic import Field

from leadline.core.answers import Answer, Completion, Failure
from leadline.core.contracts import BatchUnit, ModelCard, ModelProvider, Tokenizer
from leadline.core.errors import UnknownName
from leadline.core.format import format_list
from leadline.core.seeds import digest, rng
from leadline.core.types import Continuation, Document, Frame, Probe, TokenNLL
from leadline.models.function import sent_text
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import open_tokenizer

if TYPE_CHECKING:
    from leadline.core.types import Ids
import math
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import BeforeValidator

from leadline.core.contracts import Options
from leadline.core.lengths import parse_length

if TYPE_CHECKING:
    from leadline.core.types import Continuation, Ids, Nats


# --- How often a simulated model reads right: pure functions of length and depth, after published profiles ---
#
# perfect             always
# cliff               up to `window` tokens, and not beyond: rotary positions never seen in training
# lost-in-the-middle  a dip over the depths between both ends, which opens over the four doublings up to `window`
#                     (Liu et al., arXiv 2307.03172)
# decay               half way down at `window`, smoothly: position interpolation (arXiv 2306.15595)
# floor               the same, but down to a floor that is kept: as YaRN-extended models do (arXiv 2309.00071)
# recency             only facts within `window` tokens of the end: sliding-window attention
#
# These functions are the known truth that a measurement of a simulated model must recover. NLL follows from them: every
# token has a base NLL drawn from itself and the two tokens before it, and a token that continues a passage seen earlier
# in the context is predicted with the chance that the profile gives to that depth at that length. With `cliff`,
# perplexity therefore stays level beyond the window while retrieval gain falls to zero: the perplexity trap.


Length = Annotated[int, BeforeValidator(parse_length)]
_DEPTH_STEPS = 64


class Profile(Options):
    """Parameters of a profile."""

    window: Length = Field(8192, ge=1, description="length at which accuracy falls")
    high: float = Field(1.0, ge=0, le=1, description="highest accuracy")
    low: float | None = Field(None, ge=0, le=1, description="lowest accuracy; 0, or 0.6 for floor")
    strength: float = Field(0.8, ge=0, le=1, description="depth of the dip in the middle, as a share")
    slope: float = Field(2.0, gt=0, description="steepness of a decay per doubling; 1 is gentle, 8 almost a cliff")
    noise: float = Field(0.0, ge=0, le=1, description="share of right answers lost at any length and depth")
    difficulty: Literal["same", "by_task"] = Field(
        "same", description="by_task: tracing falls at half the length of a needle, counting at a quarter"
    )


LENGTH_FACTORS = {"questions": 2, "tracing": 2, "counting": 4}
"""With difficulty=by_task, a task of this family is as hard as a needle in a text this many times as long: aggregation
falls first, as in published results (RULER, arXiv 2404.06654)."""


Shape = Callable[[int, float, Profile], float]
"""From length, depth and profile to a share between low (0) and high (1)."""


def _lost_in_the_middle(length: int, depth: float, profile: Profile) -> float:
    opened = min(max(math.log2(16 * length / profile.window) / 4, 0.0), 1.0)
    return 1.0 - profile.strength * opened * 4 * depth * (1 - depth)


def _decay(length: int, depth: float, profile: Profile) -> float:
    return float(1 / (1 + (length / profile.window) ** profile.slope))


SHAPES: dict[str, Shape] = {
    "perfect": lambda length, depth, profile: 1.0,
    "cliff": lambda length, depth, profile: float(length <= profile.window),
    "lost-in-the-middle": _lost_in_the_middle,
    "decay": _decay,
    "floor": _decay,
    "recency": lambda length, depth, profile: float((1 - depth) * length <= profile.window),
    "flaky": lambda length, depth, profile: 1.0,
}
NEVER_RIGHT = ("refuses", "empty", "wanders", "cuts-off")
JUDGE = "judge"
NAMES = {
    "perfect": "always right",
    "cliff": "right up to `window` tokens and not beyond",
    "lost-in-the-middle": "a dip over the middle depths that opens up to `window`",
    "decay": "falls smoothly, half way down at `window`",
    "floor": "falls smoothly to `low`, which it keeps",
    "recency": "finds only what is within `window` tokens of the end",
    "flaky": "right, but a share `rate` of requests fails",
    "refuses": "declines every question",
    "empty": "answers nothing",
    "wanders": "talks about something else",
    "cuts-off": "introduces its answer until its tokens are used up",
    "judge": "a judge of answers, with a known `sensitivity` and `specificity`",
}
ARCHETYPES = tuple(NAMES)
_LOW = {"floor": 0.6}


def success_probability(archetype: str, length: int, depth: float | None, options: Profile, family: str = "") -> float:
    """The chance that a piece of evidence at `depth` of a prompt of `length` tokens is read right.

    `length` includes the allowance for the answer. Without a depth: the mean over all depths. The task's `family`
    matters with difficulty=by_task only.
    """
    if archetype in (*NEVER_RIGHT, JUDGE):
        return 0.0
    if archetype not in SHAPES:
        raise UnknownName("simulated model", archetype, ARCHETYPES, where=f"model sim:{archetype}")
    if depth is None:
        middles = ((i + 0.5) / _DEPTH_STEPS for i in range(_DEPTH_STEPS))
        return sum(success_probability(archetype, length, d, options, family) for d in middles) / _DEPTH_STEPS
    if options.difficulty == "by_task":
        length *= LENGTH_FACTORS.get(family, 1)
    low = options.low if options.low is not None else _LOW.get(archetype, 0.0)
    share = SHAPES[archetype](length, min(max(depth, 0.0), 1.0), options)
    return (low + (options.high - low) * share) * (1 - options.noise)


# --- NLL ----------------------------------------------------------------------------------------

BASE_NATS, SPREAD_NATS = 3.0, 1.0  # mean and half the range of the NLL of a token that was not seen before
CERTAINTY = 0.95  # probability of the next token of a passage that is remembered
MATCHED_TOKENS = 8  # in a row must be equal for a passage to count as seen before
LengthChance = Callable[[int, float], float]
"""From the tokens in the context and a depth (0 first, 1 last) to the probability to read right there."""


def span_nll(ids: Ids, wanted: Sequence[int], chance: LengthChance) -> Nats:
    """NLL in nats of the tokens at the `wanted` positions of a text."""
    base = _base(ids)
    copies = _copies(ids, wanted)
    nats = base[np.asarray(wanted, np.int64)].copy()
    for number, (token, copy) in enumerate(zip(wanted, copies, strict=True)):
        if copy >= 0:
            known = chance(token + 1, copy / max(token - 1, 1))
            nats[number] = -np.log(known * CERTAINTY + (1 - known) * np.exp(-nats[number]))
    return nats


def continuation_nll(ids: Ids, continuation: Continuation, chance: LengthChance) -> Nats:
    text = np.concatenate([ids[: continuation.cut], continuation.ids])
    return span_nll(text, range(continuation.cut + continuation.start, len(text)), chance)


def _base(ids: Ids) -> Nats:
    """Uniform between BASE - SPREAD and BASE + SPREAD, from a hash of the token and the two before it."""
    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for back, odd in ((1, 0xC2B2AE3D27D4EB4F), (2, 0x165667B19E3779F9)):
        mixed[back:] ^= ids[:-back].astype(np.uint64) * np.uint64(odd)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    share = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53
    return BASE_NATS + SPREAD_NATS * (2 * share - 1)


def _copies(ids: Ids, wanted: Sequence[int]) -> list[int]:
    """For each wanted position, an earlier position where the same tokens led to the same token, or -1."""
    size = MATCHED_TOKENS + 1
    if len(ids) <= size or not len(wanted):
        return [-1] * len(wanted)
    windows = np.lib.stride_tricks.sliding_window_view(ids, size)
    hashes = windows.astype(np.uint64) @ (np.uint64(0x100000001B3) ** np.arange(size, dtype=np.uint64))
    order = np.argsort(hashes, kind="stable")
    ranked = hashes[order]
    earliest = np.empty(len(hashes), np.int64)
    earliest[order] = order[np.searchsorted(ranked, ranked, side="left")]
    copies = []
    for token in wanted:
        start = token - MATCHED_TOKENS
        copy = int(earliest[start]) if start >= 0 else start
        seen = 0 <= copy < start and np.array_equal(windows[copy], windows[start])
        copies.append(copy + MATCHED_TOKENS if seen else -1)
    return copies


# --- the model ---


NOT_FOUND = (
    " I could not find that in the text.",
    " The text does not mention it.",
    " There is no information about this in the text.",
)
REFUSALS = (
    " I'm sorry, but I can't help with that request.",
    " I cannot assist with this question.",
    " I must decline to answer this.",
)
RAMBLES = (
    " It depends on how one looks at it, and many things could be said about a passage as long as this.",
    " The passage goes on for a while, and then it turns to other matters altogether.",
    " First come a few remarks, then some more of them, and near the end the tone changes.",
    " Let us think about what was read. There was a lot of it, and much of it was alike.",
    " As was said before, the beginning leads to the middle and the middle leads to the end.",
)
PREAMBLES = (
    " Let me go through the text from its first sentence to its last before I say anything. It opens with",
    " To answer this properly I will first sum up every part of the text in turn, beginning with",
    " Okay, so the question asks for something from the text. Let me think about where it stood. I remember that",
)
NOT_A_VERDICT = "The answer looks correct to me. GRADE: C"
HIGH_GRADES = (10,)
_FALLBACK = " ..."
_WRONG_VALUE, _NOT_FOUND, _RAMBLE = 0.6, 0.85, 0.95
"""Cumulative shares of the wrong answers: another value, "not there", words without a value, and else a refusal."""
_NEARBY_CHARACTERS = 400

Finish = Literal["stop", "length"]
Chance = Callable[[float | None], float]
"""From the depth of a fact (None: unknown) to the probability that it is read right."""


class Simulated(ModelProvider, Profile):
    """`sim:ARCHETYPE?window=8k&seed=1`: perfect, cliff, lost-in-the-middle, decay, floor, recency; refuses, empty,
    wanders, cuts-off; flaky; judge."""

    summary: ClassVar[str] = "simulated models with a known profile, for demos and for testing measurements"
    names: ClassVar[Mapping[str, str]] = NAMES

    seed: int = Field(0, description="another seed errs on other samples")
    rate: float = Field(0.1, ge=0, le=1, description="share of requests that fail, for flaky")
    limit: Length | None = Field(None, ge=1, description="refuse prompts that need more tokens, as servers do")
    tokenizer: str = Field("whitespace", description="whitespace, bytes, or a tokenizer.json or model folder")
    invents: float = Field(0.0, ge=0, le=1, description="share of questions without an answer that it answers")
    latency_seconds: float = Field(0.0, ge=0, description="how long an answer takes")
    mistake: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of answers that show a mistake known for the task, such as half of a split needle",
    )
    sensitivity: float = Field(1.0, ge=0, le=1, description="for judge: share of right answers that it accepts")
    specificity: float = Field(1.0, ge=0, le=1, description="for judge: share of wrong answers that it rejects")
    garbled: float = Field(0.0, ge=0, le=1, description="for judge: share of replies that are no verdict")
    guesses_beyond: Length | None = Field(
        None, ge=1, description="for judge: it guesses about longer samples than this"
    )

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
        self.asked_per: BatchUnit = "probe"
        self._lock = threading.Lock()
        self._failed_before: dict[str, int] = {}

    @property
    def card(self) -> ModelCard:
        judging = set() if self.archetype == JUDGE else {"sensitivity", "specificity", "garbled", "guesses_beyond"}
        options = self.options.model_dump(mode="json", exclude={"latency_seconds", "tokenizer", *judging})
        for option, unset in (("difficulty", "same"), ("mistake", 0.0), ("invents", 0.0)):
            if options[option] == unset:  # fingerprints of runs made before the option stay valid
                del options[option]
        turns = self.archetype not in ("perfect", "flaky", JUDGE)
        return ModelCard(
            name=f"sim:{self.archetype}",
            window=self.options.limit or (self.options.window if turns else None),
            window_is_hard=self.options.limit is not None,
            window_origin="planted",
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

    def _chance(self, length: int, depth: float | None, family: str = "") -> float:
        return success_probability(self.archetype, length, depth, self.options, family)

    def _answer(self, document: Document, probe: Probe) -> Answer:
        began = time.perf_counter()
        if self.options.latency_seconds:
            time.sleep(self.options.latency_seconds)
        sent = sent_text(document, probe, document.prompt_text(probe), max_tokens=probe.question.allowance)
        tokens = probe.cut + len(probe.suffix_ids)  # as sent, not as the probe claims
        outcome = self._failure(probe, tokens) or self._completion(document, probe, tokens)
        return Answer(sent=sent, outcome=outcome, seconds=time.perf_counter() - began)

    def _failure(self, probe: Probe, tokens: int) -> Failure | None:
        """A prompt beyond the limit is refused. A flaky model fails some requests; each attempt is drawn anew."""
        limit, needed = self.options.limit, tokens + probe.question.allowance
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
        text, finish = self._reply(document, probe, tokens + probe.question.allowance)
        ends = self.tokenizer.ends(text) or []
        if len(ends) > probe.question.allowance:
            text, finish = text[: ends[probe.question.allowance - 1]], "length"
        return Completion(
            text=text, finish=finish, prompt_tokens=tokens, completion_tokens=min(len(ends), probe.question.allowance)
        )

    def _reply(self, document: Document, probe: Probe, length: int) -> tuple[str, Finish]:
        draw = rng(self.options.seed, "sim", probe.cell.key)
        if self.archetype == "empty":
            return "", "stop"
        if self.archetype == JUDGE:
            return self._verdict(probe, draw), "stop"
        if phrases := {"refuses": REFUSALS, "wanders": RAMBLES, "cuts-off": PREAMBLES}.get(self.archetype):
            return without(probe.question.targets, draw, phrases), "length" if phrases is PREAMBLES else "stop"
        if probe.question.absent:
            return self._unanswerable(document, probe, draw), "stop"
        known = [value for values in probe.question.mistakes.values() for value in values]
        if known and self.options.mistake and draw.random() < self.options.mistake:
            return _say(probe, [draw.choice(known)]), "stop"
        return draw_answer(
            document, probe, lambda depth: self._chance(length, depth, probe.question.family), draw
        ), "stop"

    def _unanswerable(self, document: Document, probe: Probe, draw: random.Random) -> str:
        """The document has no answer: says so, or invents one."""
        value = _invented_value(document, probe, draw) if draw.random() < self.options.invents else ""
        return (
            _say(probe, [value]) if value else draw.choice((*NOT_FOUND, f" {probe.question.targets[0].capitalize()}."))
        )

    def _verdict(self, probe: Probe, draw: random.Random) -> str:
        """The verdict that a judge's probe has as its target, with this judge's errors."""
        try:
            verdict = json.loads(probe.question.targets[0])
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


# --- answers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NeededValue:
    """A value that the answer has to name, and the depths of the facts that give it."""

    text: str
    depths: tuple[float | None, ...]


def needed_values(document: Document, probe: Probe) -> tuple[NeededValue, ...]:
    """The targets with the depths of their facts; none where the document is empty.

    As many facts as targets belong to them one by one; otherwise every target needs all facts. A task that plants no
    facts has its evidence around the cell's depth, or all over the document. Facts that are no longer in the document,
    such as those that a compactor lost, give no value.
    """
    if probe.cut_characters <= document.body_start_characters or not probe.question.targets:
        return ()
    planted = {fact.id: fact.depth for fact in document.facts}
    kept = tuple(planted[fact] for fact in probe.question.facts if fact in planted)
    if probe.question.facts and not kept:
        return ()
    depths = kept or (probe.cell.depth,)
    if probe.question.match == "any":
        return (NeededValue(probe.question.targets[0], depths),)
    if len(depths) == len(probe.question.targets):
        return tuple(
            NeededValue(target, (depth,)) for target, depth in zip(probe.question.targets, depths, strict=True)
        )
    return tuple(NeededValue(target, depths) for target in probe.question.targets)


def draw_answer(document: Document, probe: Probe, chance: Chance, draw: random.Random) -> str:
    """All needed values, some of them, or a wrong answer. Several facts of one value count by their mean chance."""
    needed = needed_values(document, probe)
    if not needed and probe.question.answer_form and probe.cut_characters > document.body_start_characters:
        return _say(probe, [] if draw.random() < chance(probe.cell.depth) else [_mistaken_value(document, probe, draw)])
    if not needed:
        return without(probe.question.targets, draw, NOT_FOUND)
    read = [v.text for v in needed if draw.random() < sum(map(chance, v.depths)) / len(v.depths)]
    if len(read) < len(needed):
        if not read:
            return _wrong(document, probe, draw)
        mistakes = [_mistaken_value(document, probe, draw) for _ in needed[len(read) :] if draw.random() < 0.5]
        read += [value for value in dict.fromkeys(mistakes) if value]
    return _say(probe, read)


def _say(probe: Probe, values: Sequence[str]) -> str:
    """The values in the form that the question asks for."""
    said = [
        value if value.startswith(probe.question.code_word) else f"{probe.question.code_word} {value}"
        for value in values
        if value
    ]
    if probe.question.answer_form:
        return " " + probe.question.answer_form.format(answer=", ".join(said))
    return f" {format_list(said)}."


def without(targets: Sequence[str], draw: random.Random, phrases: Sequence[str]) -> str:
    """One of the phrases that contains no target."""
    harmless = [phrase for phrase in phrases if not _contains_any(phrase, targets)]
    return draw.choice(harmless) if harmless else _FALLBACK


def _wrong(document: Document, probe: Probe, draw: random.Random) -> str:
    how = draw.random()
    value = _mistaken_value(document, probe, draw) if how < _WRONG_VALUE else ""
    if value:
        return _say(probe, [value])
    phrases = NOT_FOUND if how < _NOT_FOUND else RAMBLES if how < _RAMBLE else REFUSALS
    return without(probe.question.targets, draw, phrases)


def _mistaken_value(document: Document, probe: Probe, draw: random.Random) -> str:
    """A distractor, or what another known mistake would give; else a word of the text where words are counted; else a
    target with one digit misread."""
    mistakes = [value for values in probe.question.mistakes.values() for value in values]
    others = [
        value for value in (*probe.question.distractors, *mistakes) if not _contains_any(value, probe.question.targets)
    ]
    if not others and probe.question.family == "counting":
        start = draw.randrange(document.body_start_characters, probe.cut_characters)
        stop = min(start + _NEARBY_CHARACTERS, probe.cut_characters)
        nearby = re.findall(r"[^\W\d_]{4,}", document.text[start:stop])
        others = [word for word in nearby[1:-1] if not _contains_any(word, probe.question.targets)]
    if others:
        return draw.choice(others)
    target = draw.choice(probe.question.targets or ("",))
    digits = [position for position, character in enumerate(target) if character.isdecimal()]
    if not digits:
        return ""
    position = draw.choice(digits)
    misread = f"{target[:position]}{(int(target[position]) + draw.randrange(1, 10)) % 10}{target[position + 1 :]}"
    return "" if _contains_any(misread, probe.question.targets) else misread


def _invented_value(document: Document, probe: Probe, draw: random.Random) -> str:
    """Another planted value, or one of them misread."""
    if not probe.question.distractors:
        return ""
    value = draw.choice(probe.question.distractors)
    other = replace(probe, question=msgspec.structs.replace(probe.question, targets=(value,), distractors=()))
    return (_mistaken_value(document, other, draw) if draw.random() < 0.5 else "") or value


def _contains_any(text: str, targets: Sequence[str]) -> bool:
    folded = text.casefold()
    return any(target.casefold() in folded for target in targets)
