"""Checks of how answers are generated: prefix, early stop, max_tokens, thinking, temperature, repeated requests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.core.answers import Failure
from leadline.core.contracts import LogprobModel
from leadline.core.types import TokenNLL
from leadline.features.doctor.examiner import (
    THOUGHT,
    TINY_DIFFERENCE,
    CannotCheck,
    CheckReply,
    Examiner,
    flip_margin,
    is_unstable,
    logprob_differences,
)
from leadline.features.doctor.findings import Finding, Ok, Skipped
from leadline.features.doctor.texts import (
    CONTINUED,
    COPY,
    INVENT,
    LONG_ANSWERS,
    LONG_OUTPUT,
    PROSE,
    REPEATED,
    STOP_CANDIDATES,
    THINK,
    copy_line,
)
from leadline.stats.intervals import wilson

if TYPE_CHECKING:
    from leadline.core.types import Nats

FIRST_LINE = 8
"""Tokens of the first line of a list, at most."""
REPEATS = 3
AT_ONCE = 8
"""Requests at the same time, so that a server puts them into one batch."""
SAMPLES = 4
SAMPLED = 24
"""Tokens of an answer that is sampled."""
ALLOWANCE = 64
"""Tokens for a short answer, as tasks give."""
SHORT_QUESTION = "Which colour is the door of the chapel?"
THINKING = 2048
SAMPLING_SHARE, ALWAYS = 0.5, 0.9
"""If at least this share of repeated answers differs, answers are drawn at random: without and with
log-probabilities."""
IGNORE_END = ("vllm", "sglang", "llamacpp")
"""Servers that generate on after the end of an answer if they are asked to (ignore_eos)."""


# --- answer prefix


def check_prefix(examiner: Examiner) -> Ok | Finding | Skipped:
    server = examiner.need_server()
    if not server.frame.prefill or server.frame.form != "chat":
        form = "completions continue their text" if server.frame.form != "chat" else "it ends the user's turn"
        return Skipped(f"the answer prefix is not prefilled on this server: {form}")
    fix = "add prefill=no to the model's options: the prefix then ends the question"
    continued, missing, counted, shown = 0, 0, 0, ""
    for text, prefix, going_on in CONTINUED:
        reply = examiner.ask(text, prefix, max_tokens=8)
        if (
            reply.thinks
            or (reply.is_cut_off and not reply.text)
            or (not examiner.cheap and examiner.once(thought).thinks)
        ):
            return Skipped("the model thinks before it answers: a prefix would skip the thinking; use prefill=no")
        goes_on = reply.text.lstrip(" ,\n").startswith(going_on)
        continued += goes_on
        shown = shown if goes_on else f"{prefix!r} is followed by {reply.text[:40]!r}"
        receipt, without, added = reply.completion.prompt_tokens, examiner.expected_tokens(text), examiner.count(prefix)
        if receipt is not None:
            missing += added > 3 and receipt <= without + added // 3
            counted += receipt == examiner.expected_tokens(text, prefix)
    if missing == len(CONTINUED) and continued < len(CONTINUED):
        return Finding(f"the receipts do not count the prefix; {shown}", fix)
    if counted == len(CONTINUED):
        return Ok(f"{continued} of {len(CONTINUED)} answers continue their prefix, and its tokens are counted")
    if continued == 0:
        return Finding(f"the answer does not continue its prefix: {shown}", fix)
    return Ok(f"{continued} of {len(CONTINUED)} answers continue their prefix")


# --- where answers end


def long_answers(examiner: Examiner) -> dict[str, CheckReply]:
    """Answers to requests for long texts."""
    return {name: examiner.ask(text, max_tokens=LONG_OUTPUT) for name, text in LONG_ANSWERS.items()}


def check_early_stop(examiner: Examiner) -> Ok | Finding | Skipped:
    examiner.need_server()
    fix = "remove default stop strings and limits from the server or gateway; answers would be cut and graded as wrong"
    answers = examiner.once(long_answers)
    lines = answers["lines"]
    single = all("\n" not in reply.content.strip() for reply in answers.values())
    if single and not lines.is_cut_off and not lines.thinks and examiner.count(lines.content) <= FIRST_LINE:
        return Finding(f"no answer has a second line; asked for lines it ends after {lines.content[-30:]!r}", fix)
    ended = [examiner.count(reply.content) for reply in answers.values() if reply.completion.finish != "length"]
    if len(ended) == len(answers) and max(ended) - min(ended) <= 1 and max(ended) < LONG_OUTPUT - 2:
        return Finding(f"{len(ended)} answers to different requests all end after {max(ended)} tokens, with "
                       f"finish_reason {lines.completion.finish!r}", fix)  # fmt: skip
    stop = _stop_string(examiner)
    if stop:
        return Finding(f"copied lines end before {stop!r}, in whichever order they have it", fix)
    copied = "no stop string ends a copied line" if stop is not None else "the model copies no line to try stop strings"
    return Ok(f"answers have several lines and end at different lengths; {copied}")


def _stop_string(examiner: Examiner) -> str | None:
    """A text before which two different copied lines end; empty if there is none, None if lines are not copied."""
    ends = []
    for candidates in (STOP_CANDIDATES, (*STOP_CANDIDATES[5:], *STOP_CANDIDATES[:5])):
        line = copy_line(candidates)
        reply = examiner.ask(COPY.format(line=line), max_tokens=LONG_OUTPUT)
        copied = reply.content.strip().strip("`\"'").rstrip()
        rest = line[len(copied) :].lstrip()
        if not copied or not line.startswith(copied):
            return None
        if reply.is_cut_off or not rest:
            return ""
        ends.append(next((mark for mark in candidates if rest.startswith(mark)), ""))
    return ends[0] if ends[0] == ends[1] else ""


def check_max_tokens(examiner: Examiner) -> Ok | Finding | Skipped:
    server = examiner.need_server()
    fix = "raise the server's or gateway's limit of output tokens; thinking models and long answers are cut off"
    answers = [*examiner.once(long_answers).values()]
    if server.server.kind in IGNORE_END:
        answers.append(examiner.ask(LONG_ANSWERS["words"], max_tokens=LONG_OUTPUT, ignore_eos=True))
    for reply in answers:
        counted = reply.completion.completion_tokens
        ours = examiner.count(reply.content) + examiner.count(reply.completion.thinking)
        had = ours if counted is None or counted > LONG_OUTPUT else max(counted, ours)
        if reply.is_cut_off and had < LONG_OUTPUT - 4 and ours < 0.9 * LONG_OUTPUT:
            return Finding(f"of {LONG_OUTPUT} tokens asked for, an answer has {had} and finish_reason 'length'", fix)
    if any(reply.is_cut_off for reply in answers):
        return Ok(f"answers have all {LONG_OUTPUT} tokens that were allowed")
    return Skipped(f"no answer was long enough to reach {LONG_OUTPUT} tokens")


# --- thinking


def thought(examiner: Examiner) -> CheckReply:
    return examiner.ask(THINK, max_tokens=LONG_OUTPUT)


def check_reasoning_parser(examiner: Examiner) -> Ok | Finding | Skipped:
    examiner.need_server()
    if not examiner.cheap:
        examiner.once(thought)
    mark = next(filter(None, map(THOUGHT.search, examiner.contents)), None)
    if mark is not None:
        around = mark.string[max(0, mark.start() - 10) : mark.end() + 50]
        return Finding(
            f"thinking is part of the answer: {around!r}",
            "start the server with the reasoning parser of this model (vLLM and SGLang --reasoning-parser, llama.cpp "
            "--reasoning-format), or switch thinking off with thinking=off",
        )
    return Ok("no answer has thinking in it")


def short_answer(examiner: Examiner) -> CheckReply:
    """With as many tokens as a run would allow."""
    room = examiner.need_server().max_tokens or ALLOWANCE
    return examiner.ask(f"{PROSE}\n\n{SHORT_QUESTION} Answer with one word.", max_tokens=room)


def check_thinking_budget(examiner: Examiner) -> Ok | Finding | Skipped:
    server = examiner.need_server()
    reply = examiner.once(short_answer)
    completion = reply.completion
    if reply.text.strip() or not reply.is_cut_off:
        among = f", {examiner.count(completion.thinking)} of thinking among them" if completion.thinking else ""
        return Ok(f"a short answer fits into {server.max_tokens or ALLOWANCE} tokens{among}")
    spent = completion.completion_tokens or examiner.count(completion.thinking)
    needed = ""
    if not examiner.cheap:
        again = examiner.try_to_ask(f"{PROSE}\n\n{SHORT_QUESTION}", max_tokens=THINKING)
        if isinstance(again, CheckReply) and again.text.strip() and again.completion.completion_tokens:
            needed = f"; with {THINKING} allowed it takes {again.completion.completion_tokens}"
    return Finding(
        f"all {spent} tokens went into thinking and the answer is empty{needed}",
        "give max_tokens room for thinking, such as max_tokens=4096 in the model's options, or thinking=off",
    )


# --- temperature and repeated requests


def sampled(examiner: Examiner) -> list[CheckReply]:
    """The same request at temperature 1, with different seeds where the server knows them."""
    examiner.need_server()
    replies = []
    for number in range(SAMPLES):
        fields: dict[str, Any] = {"temperature": 1.0, "seed": number + 1}
        reply = examiner.try_to_ask(INVENT, max_tokens=SAMPLED, **fields)
        if isinstance(reply, Failure) and reply.status in (400, 422):
            reply = examiner.try_to_ask(INVENT, max_tokens=SAMPLED, temperature=1.0)
        if isinstance(reply, Failure):
            raise CannotCheck(f"the server does not sample at temperature 1: {reply.message}")
        replies.append(reply)
    return replies


@dataclass(frozen=True, slots=True)
class Repetition:
    """Repeated requests at temperature 0, one after the other and several at once, against the first of each."""

    repeats: int
    flips: int
    clear: int
    """Flips at a token that was not nearly tied with the other."""
    not_greedy: int
    """Answers whose tokens were not the most likely ones by a clear margin."""
    largest: float | None
    """The largest difference of log-probabilities in nats; None where the server gives none."""
    unstable: bool = False
    """Whether the log-probabilities of a repeated answer differ by more than rounding explains."""
    shown: str = ""


def repetition(examiner: Examiner) -> Repetition:
    fields = (examiner.logprob_fields or {}) if examiner.server is not None else {}
    texts = REPEATED if examiner.server is not None else REPEATED[:2]
    repeats = flips = clear = odd = 0
    largest: float | None = None
    unstable, shown = False, ""
    for text in texts:
        ask = partial(examiner.ask, text, max_tokens=SAMPLED, **fields)
        first = ask()
        again = [ask() for _ in range(REPEATS)] if examiner.server is not None else [ask()]
        together = examiner.at_once([ask] * AT_ONCE) if examiner.server is not None else []
        for reply in (*again, *together):
            repeats += 1
            apart = logprob_differences(first, reply)
            largest = max(largest or 0.0, *apart) if apart else largest
            unstable = unstable or is_unstable(apart)
            odd += _is_sampled(reply)
            if reply.whole != first.whole:
                flips += 1
                margin = flip_margin(first, reply)
                if margin is None or margin > 2 * TINY_DIFFERENCE:  # both tokens may have moved
                    clear += 1
                    shown = shown or f"{first.whole[:50]!r} and {reply.whole[:50]!r}"
    rate = wilson(flips, repeats)
    examiner.numbers |= {"repeats": repeats, "flips": flips, "flip_rate": flips / repeats}
    examiner.numbers |= {"flip_rate_low": rate.low, "flip_rate_high": rate.high}
    return Repetition(repeats, flips, clear, odd, largest, unstable, shown)


def _is_sampled(reply: CheckReply) -> bool:
    """Whether some token was clearly less likely than another."""
    return any(max(t.alternatives.values(), default=t.logprob) - t.logprob > TINY_DIFFERENCE for t in reply.logprobs)


def _samples_always(repeated: Repetition) -> bool:
    """Whether repeated answers look drawn at random rather than chosen with small differences."""
    share = SAMPLING_SHARE if repeated.largest is None else ALWAYS
    return repeated.flips >= share * repeated.repeats or (repeated.not_greedy > 0 and repeated.flips > 0)


def check_temperature(examiner: Examiner) -> Ok | Finding | Skipped:
    server = examiner.need_server()
    refused = next((note for note in server.card.notes if "accepts no temperature" in note), "")
    if refused:
        return Finding(refused, "nothing can be set here: ask more samples, and say so with the results")
    fix = "remove sampling settings that override the request (generation_config, gateway defaults)"
    repeated = examiner.once(repetition)
    if _samples_always(repeated):
        return Finding(
            f"at temperature 0 {repeated.flips} of {repeated.repeats} repeated answers differ: {repeated.shown}", fix
        )
    first = examiner.once(sampled)
    texts = {reply.whole for reply in first}
    if len(texts) > 1:
        return Ok(f"temperature 1 gives {len(texts)} answers in {SAMPLES}, temperature 0 the most likely one")
    room = THINKING if examiner.once(thought).thinks or not any(reply.text for reply in first) else 2 * SAMPLED
    more = [examiner.try_to_ask(INVENT, max_tokens=room, temperature=1.5, seed=9 + n) for n in range(SAMPLES)]
    texts = {reply.whole for reply in more if isinstance(reply, CheckReply)}
    if len(texts) == 1:
        return Finding(f"at temperature 1 and 1.5, {2 * SAMPLES} requests with different seeds get one answer", fix)
    return Ok(f"temperature 1.5 gives {len(texts)} answers in {SAMPLES}")


def check_determinism(examiner: Examiner) -> Ok | Finding | Skipped:
    repeated = examiner.once(repetition)
    rate = f"{repeated.flips} of {repeated.repeats} repeated answers differ at temperature 0"
    low, high = examiner.numbers["flip_rate_low"] or 0.0, examiner.numbers["flip_rate_high"] or 0.0
    rate += f" (flip rate {100 * repeated.flips / repeated.repeats:.0f} %, {100 * low:.0f} to {100 * high:.0f})"
    if examiner.server is not None and _samples_always(repeated):
        return Skipped("answers are sampled at temperature 0; see the temperature")
    if repeated.clear:
        return Finding(
            f"{rate}: {repeated.shown}",
            "send requests to one replica, with batch-invariant kernels (vLLM VLLM_BATCH_INVARIANT=1) or --workers 1; "
            "differences between runs below this rate are noise",
        )
    tied = "; all at tokens that were nearly tied" if repeated.flips else ""
    return Ok(rate + tied)


def check_logprobs(examiner: Examiner) -> Ok | Finding | Skipped:
    """Log-probabilities of one text, before and after another, and at the same time as others."""
    fix = "switch prefix caching off for log-probability tasks, send --workers 1, or measure in process with hf:"
    apart: float | None
    ignored = ""
    try:
        apart, unstable = _prompt_difference(examiner)
        what = "of a prompt's tokens"
    except CannotCheck as why:
        if examiner.server is None:
            raise
        apart, unstable = examiner.once(repetition).largest, examiner.once(repetition).unstable
        what = "of generated tokens"
        ignored = f"; those of a prompt are not given: {why}"
        if apart is None:
            raise CannotCheck(f"the server gives no log-probabilities ({why})") from None
    if unstable:
        return Finding(f"log-probabilities {what} differ by up to {apart:.2g} nats with the order and batch", fix)
    return Ok(f"log-probabilities {what} differ by at most {apart:.2g} nats with the order and batch{ignored}")


def _prompt_difference(examiner: Examiner) -> tuple[float, bool]:
    """The largest difference of a token's log-probability, and whether that is more than rounding explains."""
    model = examiner.model
    if not isinstance(model, LogprobModel):
        raise CannotCheck("the model gives no log-probabilities")
    before = model.plain.before
    first_ids, second_ids = (model.tokenizer.encode(before + text) for text in (PROSE, " ".join(REPEATED)))

    def nll(ids: Any) -> Nats:
        examiner.requests += 1
        outcome = model.nll(ids, spans=[(1, len(ids))])
        if not isinstance(outcome, TokenNLL):
            raise CannotCheck(outcome.message)
        return outcome.spans[0]

    first, _, again = nll(first_ids), nll(second_ids), nll(first_ids)
    rows = [again, *examiner.at_once([partial(nll, first_ids), partial(nll, second_ids), partial(nll, first_ids)] * 2)]
    same = [row for row in rows if len(row) == len(first)]
    if len(first_ids) == len(second_ids) or len(same) != 1 + 4:
        raise CannotCheck("the two test texts have the same length in this tokenizer")
    apart = [np.abs(row - first) for row in same]
    return float(max(map(np.max, apart))), any(is_unstable(differences.tolist()) for differences in apart)
