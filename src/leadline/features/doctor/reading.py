"""Checks of what is read: silent truncation, a context shorter than claimed, a gateway that rewrites texts.

A document as long as the window has five facts at five depths, and every fact is asked for. A fact that is not found is
either not read or not understood. It is not read if the answer stays the same, to the last log-probability where the
server gives them, when the fact itself is changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from leadline.core.answers import Failure
from leadline.core.errors import LengthError
from leadline.core.format import format_list
from leadline.core.records import Receipt
from leadline.features.doctor.counting import CountPattern, pattern
from leadline.features.doctor.examiner import CannotCheck, CheckReply, Examiner, logprob_difference
from leadline.features.doctor.findings import Finding, Ok, Skipped
from leadline.features.doctor.texts import ALLOWANCE, LOCATIONS, DoorCodes, other_value, plant, short_length
from leadline.results.server_advice import context_flags

LONGEST = 131_072
"""Longer windows are checked up to this length, unless the user asks for more."""
UNKNOWN_WINDOW = 4096
"""The length that is read if a model states no window."""
MARGIN = 16
SLACK = 0.02
BISECTIONS = 8
REGIONS = dict(
    zip(LOCATIONS, ("the beginning", "the first quarter", "the middle", "the last quarter", "the end"), strict=True)
)
NOISE_FACTOR = 3.0
SMALLEST_CHANGE = 1e-3
"""Nats: less than this is not a change of the answer."""


def ask_location(
    examiner: Examiner, planted: DoorCodes, location: str, value: str = "", **fields: Any
) -> CheckReply | Failure:
    """The door code of a location, as a run asks for it; with another code in the text if one is given."""
    if examiner.server is None:
        return examiner.ask_probe(planted.document, planted.probe(location))
    return examiner.try_to_ask(planted.text(location, value), planted.prefix(location), max_tokens=ALLOWANCE, **fields)


def is_found(reply: CheckReply | Failure, value: str) -> bool:
    return isinstance(reply, CheckReply) and value in reply.text


# --- the experiments


def reads_short_text(examiner: Examiner) -> bool:
    """Whether the model finds all door codes but one in a short text."""
    planted = plant(examiner, short_length(examiner))
    replies = {location: ask_location(examiner, planted, location) for location in LOCATIONS}
    failures = [reply for reply in replies.values() if isinstance(reply, Failure)]
    if len(failures) == len(LOCATIONS):
        raise CannotCheck(f"no answer to a question about a short text: {failures[0].why}: {failures[0].message}")
    return sum(is_found(reply, planted.values[location]) for location, reply in replies.items()) >= len(LOCATIONS) - 1


@dataclass(frozen=True, slots=True)
class Accepted:
    """The longest prompt that is answered at all."""

    length: int
    """Tokens, answer included."""
    tried: int
    """The length that was sent first."""
    claimed: int | None
    refusal: Failure | None = None
    """Why the claimed length was not answered."""


def _claimed(examiner: Examiner) -> int | None:
    card = examiner.model.card
    return card.window if card.window_is_hard or examiner.server is not None else None


def longest_wanted(examiner: Examiner) -> int:
    """The length of the longest prompt that is tried."""
    return min(examiner.longest or LONGEST, _claimed(examiner) or examiner.longest or UNKNOWN_WINDOW)


def accepted(examiner: Examiner) -> Accepted:
    """Sends a prompt of the claimed length; if it is refused, bisects."""
    claimed, wanted = _claimed(examiner), longest_wanted(examiner)
    failure = _refusal(examiner, wanted)
    if failure is None:
        return Accepted(wanted, wanted, claimed)
    low, high = 0, wanted
    for guess in _limits_named(failure, wanted):
        if guess > low and guess < high:
            low, high = (guess, high) if _refusal(examiner, guess) is None else (low, guess)
    for _ in range(BISECTIONS):
        if high - low <= max(MARGIN, SLACK * wanted):
            break
        middle = (low + high) // 2
        low, high = (middle, high) if _refusal(examiner, middle) is None else (low, middle)
    if low == 0:
        raise CannotCheck(f"no prompt is answered: {failure.message}")
    return Accepted(low, wanted, claimed, failure)


def _refusal(examiner: Examiner, length: int) -> Failure | None:
    try:
        planted = plant(examiner, length)
    except LengthError as error:
        return Failure("context_length", error.what)
    reply = ask_location(examiner, planted, LOCATIONS[0])
    if isinstance(reply, Failure):
        return reply
    examiner.once(answered_documents)[length] = (planted, reply)
    return None


def answered_documents(examiner: Examiner) -> dict[int, tuple[DoorCodes, CheckReply]]:
    """Documents that were answered, by length, with the answer about their first fact. Empty at first."""
    return {}


def _limits_named(failure: Failure, below: int) -> list[int]:
    """Numbers in the server's message that may be its limit."""
    numbers = {int(n.replace(",", "")) for n in re.findall(r"\d[\d,]{2,}", failure.message)}
    return sorted(n for n in numbers if 64 <= n < below)


@dataclass(frozen=True, slots=True)
class LongReading:
    """What is found in the longest accepted document."""

    length: int
    lost: tuple[str, ...]
    """Places whose codes are not found and make no difference to the answer."""
    unsure: tuple[str, ...]
    """Places whose codes are not found, and which may be read."""
    question_lost: bool
    receipt: int | None
    expected: int
    evidence: str = ""


def long_reading(examiner: Examiner) -> LongReading:
    able = examiner.once(reads_short_text)
    length = examiner.once(accepted).length
    planted, first = examiner.once(answered_documents)[length]
    replies: dict[str, CheckReply | Failure] = {LOCATIONS[0]: first}
    for location in LOCATIONS[1:]:
        replies[location] = ask_location(examiner, planted, location)
    answers = [reply.text for reply in replies.values() if isinstance(reply, CheckReply)]
    missing = [location for location in LOCATIONS if not is_found(replies[location], planted.values[location])]
    said_something = len(set(answers)) == 1 and bool(answers[0].strip())
    same = said_something and bool(missing) and examiner.server is not None
    question_lost = same and _question_is_unread(examiner, planted)
    lost, unsure, evidence = list[str](), list[str](), ""
    if question_lost:
        lost = missing
    elif same and not examiner.logprob_fields:
        unsure, evidence = missing, "every question gets the same answer, and there are no log-probabilities to look at"
    else:
        lost, evidence = _unread_locations(examiner, planted, missing, replies, able)
        unsure = [location for location in missing if location not in lost]
    return LongReading(
        length=length,
        lost=tuple(lost),
        unsure=tuple(unsure),
        question_lost=question_lost,
        receipt=first.completion.prompt_tokens,
        expected=planted.tokens(LOCATIONS[0]),
        evidence=evidence,
    )


def _question_is_unread(examiner: Examiner, planted: DoorCodes) -> bool:
    """Whether another question in place of the first makes no difference to the answer, after the same answer prefix.

    A weak model may say the same whatever is asked. Its log-probabilities still change with the question; where the
    server gives none, a question that has nothing to do with the text is answered differently.
    """
    location, other = LOCATIONS[0], LOCATIONS[-1]
    prefix = planted.prefix(location)
    if fields := examiner.logprob_fields or {}:
        texts = (planted.text(location), planted.text(location), planted.text(other))
    else:
        prefix = ""
        texts = (planted.text(location), planted.text(location), planted.unrelated(location))
    ask = partial(examiner.try_to_ask, prefix=prefix, max_tokens=ALLOWANCE, **fields)
    first, again, changed = (_read_before(partial(ask, text)) for text in texts)
    if not (isinstance(first, CheckReply) and isinstance(again, CheckReply) and isinstance(changed, CheckReply)):
        return False
    if not (first.logprobs and again.logprobs and changed.logprobs):
        return first.whole == again.whole == changed.whole
    return not _differs(first, again, changed)[0]


def _unread_locations(
    examiner: Examiner,
    planted: DoorCodes,
    missing: Sequence[str],
    replies: Mapping[str, CheckReply | Failure],
    able: bool,
) -> tuple[list[str], str]:
    """The locations that are not read, of those whose codes were not found, and how that was seen.

    The first, the middle and the last of them are checked, and all if one is not read. Every check reads the text anew
    from the fact on, so the deepest comes first.
    """
    some = {missing[0], missing[len(missing) // 2], missing[-1]} if missing else set()
    looks: dict[str, tuple[bool, str]] = {}
    for chosen in (some, missing):
        for location in reversed(missing):
            if location in chosen and location not in looks:
                looks[location] = _is_unread(examiner, planted, location, replies[location], able)
        if not any(unread for unread, _ in looks.values()):
            break
    lost = [location for location in missing if location in looks and looks[location][0]]
    shown = lost or [location for location in missing if location in looks]
    return lost, looks[shown[0]][1] if shown else ""


def _is_unread(
    examiner: Examiner, planted: DoorCodes, location: str, before: CheckReply | Failure, able: bool
) -> tuple[bool, str]:
    """Whether a fact that was not found makes no difference to the answer, and how that was seen."""
    if examiner.server is None or isinstance(before, Failure):
        return False, "the model did not find it"
    fields = examiner.logprob_fields or {}
    other_code = other_value(examiner, planted, location)
    ask = partial(ask_location, examiner, planted, location, **fields)
    first, again, changed = _read_before(ask), ask(), _read_before(partial(ask, other_code))
    if not (isinstance(first, CheckReply) and isinstance(again, CheckReply) and isinstance(changed, CheckReply)):
        return False, "it was not answered"
    if fields:
        read, evidence = _differs(first, again, changed)
        return not read, f"with another code there the answer changes by {evidence}"
    same = first.text == changed.text
    return same and able, f"with another code there the answer is {'the same' if same else 'another'}"


def _read_before(ask: Callable[[], CheckReply | Failure]) -> CheckReply | Failure:
    """The answer to a prompt that was sent just before. Answers from a cache may be computed a little differently, so
    only answers to cached prompts are compared."""
    first = ask()
    return first if isinstance(first, Failure) else ask()


def _differs(first: CheckReply, again: CheckReply, other: CheckReply) -> tuple[bool, str]:
    """Whether an answer differs from the first by more than the repetition does."""
    noise = logprob_difference(first, again) or 0.0
    change = logprob_difference(first, other) or 0.0
    if first.logprobs and other.logprobs and first.logprobs[0].token != other.logprobs[0].token:
        change = max(change, 1.0)
    return change > max(NOISE_FACTOR * noise, SMALLEST_CHANGE), f"{change:.2g} nats (repeated: {noise:.2g})"


# --- the checks


def check_truncation(examiner: Examiner) -> Ok | Finding | Skipped:
    reading, able = examiner.once(long_reading), examiner.once(reads_short_text)
    if examiner.server is None:
        seen = len(LOCATIONS) - len(reading.unsure)
        return Ok(f"in process nothing is cut; {seen} of {len(LOCATIONS)} facts in {reading.length:,} tokens are found")
    short = (
        _pattern(examiner).is_true and reading.receipt is not None and Receipt(reading.expected, reading.receipt).short
    )
    fix = f"start the server with a context of at least the lengths you measure ({context_flags()}) "
    fix += "and without truncate_prompt_tokens or context shift, or measure shorter lengths"
    counted = (
        "" if reading.receipt is None else f"; the receipt says {reading.receipt:,} of {reading.expected:,} tokens"
    )
    if reading.question_lost:
        same = f"at {reading.length:,} tokens every question gets the same answer"
        return Finding(f"{same}: the end of the prompt is cut off{counted}", fix)
    if reading.lost:
        whole = _read_whole(examiner, reading)
        lost = format_list([REGIONS[location] for location in reading.lost])
        kind = "" if short or reading.receipt is None else ", as a sliding window or a cut after counting does"
        what = f"at {reading.length:,} tokens {lost} of the text is not read: {reading.evidence}{counted}{kind}"
        return Finding(f"{what}; about {whole:,} tokens are read whole", fix)
    if short:
        return Finding(f"a prompt of {reading.expected:,} tokens is counted as {reading.receipt:,}", fix)
    if reading.unsure:
        named = format_list([REGIONS[location] for location in reading.unsure])
        known = "though its text is read" if examiner.logprob_fields else "and whether its text is read is not known"
        what = f"at {reading.length:,} tokens the code in {named} is not found, {known}: {reading.evidence}"
        return Ok(what if able else f"{what}; the model hardly finds one in a short text either")
    return Ok(f"facts at five depths of {reading.length:,} tokens are found{counted}")


def _pattern(examiner: Examiner) -> CountPattern:
    """How receipts differ from our counts; unknown for a server without counts."""
    try:
        return examiner.once(pattern)
    except CannotCheck:
        return CountPattern(has_receipts=False)


def _read_whole(examiner: Examiner, reading: LongReading) -> int:
    """The approximate length of the longest document whose lost facts are found, by bisection."""
    ends = [location for location in (LOCATIONS[0], LOCATIONS[-1]) if location in reading.lost]
    location = ends[0] if ends else reading.lost[len(reading.lost) // 2]
    low, high = short_length(examiner), reading.length
    for _ in range(BISECTIONS):
        if high - low <= max(MARGIN, 4 * SLACK * reading.length):
            break
        middle = (low + high) // 2
        planted = plant(examiner, middle)
        read = is_found(ask_location(examiner, planted, location), planted.values[location])
        low, high = (middle, high) if read else (low, middle)
    examiner.numbers["tokens_read_whole"] = low
    return low


def check_window(examiner: Examiner) -> Ok | Finding | Skipped:
    longest, seen = examiner.once(accepted), _pattern(examiner)
    added = seen.addition if seen.is_true else 0
    nearly = longest.claimed is not None and longest.length >= (1 - 2 * SLACK) * (longest.claimed - max(0, added))
    if longest.refusal is not None and nearly:
        claimed = f"about {longest.length:,} of the claimed {longest.claimed:,} tokens"
        return Ok(f"{claimed} are accepted beside what the server adds")
    if longest.refusal is not None and (seen.odd or seen.tokenizes_differently):
        return Skipped("the tokenizer is not the server's, so the length of a prompt is not known")
    if longest.refusal is not None:
        examiner.numbers["accepted_tokens"] = longest.length
        claim = f"{longest.claimed:,} tokens are claimed" if longest.claimed else "no window is claimed"
        why = f"{longest.refusal.why}: {longest.refusal.message[:160]}"
        return Finding(
            f"{claim}, and a prompt of {longest.tried:,} is refused ({why}); about {longest.length:,} are accepted",
            f"measure up to {longest.length:,} tokens, or start the server with a larger context",
        )
    if examiner.server is None and longest.claimed is None:
        return Ok(f"in process no length is refused; {longest.length:,} tokens were read")
    if longest.claimed is None:
        return Skipped(f"no window is claimed; {longest.length:,} tokens are accepted. Give window= to check one")
    if longest.length < longest.claimed:
        return Ok(f"{longest.length:,} of the claimed {longest.claimed:,} tokens are accepted; --longest checks more")
    return Ok(f"a prompt of all {longest.claimed:,} claimed tokens is accepted")
