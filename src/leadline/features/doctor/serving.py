"""Checks of what is before a model: that a server answers, rate limits, which model answers, a gateway's changes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from os.path import commonprefix

from leadline.core.answers import Failure
from leadline.core.errors import ServerAway
from leadline.features.doctor.counting import rewritten_texts
from leadline.features.doctor.examiner import CheckReply, Examiner
from leadline.features.doctor.findings import Finding, Ok, Skipped
from leadline.features.doctor.reading import ask_location, is_found
from leadline.features.doctor.texts import LOCATIONS, other_value, plant, short_length

BURST = 16
"""The requests that a run has in flight by default."""
ANSWER_SECONDS = 60.0
"""The longest wait for one token of an answer to a request of a few words."""
REPLIES = 12
"""Replies whose names are compared, at least."""
LIMIT_HEADERS = ("x-ratelimit-limit-requests", "x-ratelimit-limit-tokens", "ratelimit-limit", "retry-after")
GATEWAY_HEADERS = ("via", "x-cache", "x-served-by")
FOOTER = 12
"""Characters at the end of answers to different requests."""
MASKS = re.compile(r"\[[A-Z_ ]{4,}\]|<[A-Z_]{4,}>|\*{4,}|REDACTED|█")
PRIVATE = (
    (
        "The harbour master's address is mara.lindquist@example.org.",
        "What is the harbour master's address?",
        "lindquist@",
    ),
    ("The number of the harbour office is +44 20 7946 0958.", "What is the number of the harbour office?", "7946"),
)


def require_answer(examiner: Examiner) -> None:
    """Raises ServerAway if a tiny request is not answered within a minute."""
    server = examiner.server
    if server is None:
        return
    outcome = examiner.note(server.exchange("Hello.", seconds=ANSWER_SECONDS, fields={"max_tokens": 1}))
    if isinstance(outcome, Failure) and outcome.why in ("timeout", "connection"):
        raise ServerAway(
            f"the server does not answer a small request: {outcome.message}",
            where=server.address,
            fix="look at the server's log and load; start it again if it hangs",
        )


def check_rate_limit(examiner: Examiner) -> Ok | Finding | Skipped:
    examiner.need_server()
    answered, fewer = "", "fewer --workers"
    limits = [f"{name}: {examiner.headers[name]}" for name in LIMIT_HEADERS if name in examiner.headers]
    if not examiner.cheap:
        ask = partial(examiner.try_to_ask, "Say yes.", max_tokens=1, once=True)
        replies = examiner.at_once([ask] * BURST)
        workers = sum(isinstance(reply, CheckReply) for reply in replies)
        answered, fewer = f"{workers} of {BURST} requests at once were answered", f"--workers {max(1, workers // 2)}"
        busy = [r for r in replies if isinstance(r, Failure) and (r.why == "rate_limited" or r.status == 503)]
        examiner.limited += [failure for failure in busy if failure.why != "rate_limited"]
        lost = [r for r in replies if isinstance(r, Failure) and r not in busy]
        if lost:
            return _lost_requests(lost, workers)
    if examiner.limited:
        last = examiner.limited[-1]
        wait = "" if last.retry_after is None else f", to be asked again after {last.retry_after:g} s"
        refused = f"{len(examiner.limited)} requests were refused (status {last.status}: {last.message[:120]}{wait})"
        return Finding(
            "; ".join(filter(None, [refused, answered, *limits])),
            f"run with {fewer}; a run waits for the limit, up to --rate-limit-wait",
        )
    if examiner.cheap:
        return Skipped("only made by `leadline doctor`")
    return Ok("; ".join([answered, *limits]))


def _lost_requests(lost: Sequence[Failure], answered: int) -> Finding | Skipped:
    what = f"{len(lost)} of {BURST} requests at once got no answer ({lost[0].why}: {lost[0].message[:120]})"
    if not answered:
        return Skipped(what)
    return Finding(what, f"run with --workers {max(1, answered // 2)}, or look for the limit of connections on the way")


SAME_SIZE = 0.8
"""Prompts of at least this share of the longest are compared by their time per token."""
JUMP = 10
FEWEST_COMPARED = 4
LEAST_SECONDS = 5.0
"""A request that took less time does not count as interrupted."""


def preemptions(examiner: Examiner) -> int | None:
    server = examiner.server
    return None if server is None else server.preemptions()


def check_preemption(examiner: Examiner) -> Ok | Finding | Skipped:
    """Whether requests were interrupted because the KV cache was full: by the server's metrics, else by a request that
    took ten times as long per token as others of its length."""
    examiner.need_server()
    fix = "run with fewer --workers, or give the server a larger KV cache or a shorter context"
    before, now = examiner.once(preemptions), preemptions(examiner)
    if before is not None and now is not None:
        if now > before:
            what = f"{now - before} requests were interrupted during these checks because the KV cache was full"
            return Finding(f"{what} ({now} since the server was started)", fix)
        return Ok(f"no request was interrupted during these checks, {now} since the server was started")
    longest = max((tokens for tokens, _ in examiner.paces), default=0)
    paces = sorted(seconds / tokens for tokens, seconds in examiner.paces if tokens >= SAME_SIZE * longest)
    if len(paces) < FEWEST_COMPARED:
        return Skipped("the server has no metrics of it, and too few requests were alike to compare their time")
    usual, slowest = paces[len(paces) // 2], paces[-1]
    if slowest > JUMP * usual and slowest * longest > LEAST_SECONDS:
        what = f"one of {len(paces)} requests of about {longest:,} tokens took {slowest / usual:.0f} times as long"
        return Finding(f"{what} as the others: the server may have swapped or recomputed its KV cache", fix)
    return Ok(f"{len(paces)} requests of about {longest:,} tokens took alike; the server has no metrics of it")


def check_model_name(examiner: Examiner) -> Ok | Finding | Skipped:
    server = examiner.need_server()
    requested = server.server.model
    fix = "name the model that the server has, and ask the operator of a router to keep to one model"
    while not examiner.cheap and sum(examiner.served_by.values()) < REPLIES:
        examiner.ask("Say yes.", max_tokens=1)
    unlisted = next((note for note in server.card.notes if "does not list a model" in note), "")
    if len(examiner.served_by) > 1:
        names = ((" ".join(filter(None, name)) or "no name", count) for name, count in examiner.served_by.items())
        served = ", ".join(f"{name} ({count})" for name, count in names)
        return Finding(f"replies come from different models or configurations: {served}", fix)
    named = next(iter(examiner.served_by), ("", ""))[0]
    if not named:
        return Skipped("the replies do not name a model")
    if not is_same_model(requested, named):
        return Finding(f"{requested!r} was asked for and {named!r} answers", fix)
    if unlisted:
        return Finding(f"{unlisted}, and yet {named!r} answers", fix)
    return Ok(f"{sum(examiner.served_by.values())} replies name {named!r}")


def is_same_model(requested: str, named: str) -> bool:
    """Whether a reply's name is that of the request: equal, or with a date, version or folder added."""
    ours, theirs = (name.lower().rstrip("/").rpartition("/")[2] for name in (requested, named))
    ours, theirs = (name.removesuffix(".gguf").removesuffix(":latest") for name in (ours, theirs))
    rest = theirs.removeprefix(ours)
    return bool(ours) and (not rest or (rest != theirs and re.match(r"[-@:]v?\d", rest) is not None))


# --- a gateway that changes texts


def check_rewriting(examiner: Examiner) -> Ok | Finding | Skipped:
    """A gateway that changes texts on their way, in either direction, or answers from a store of old replies."""
    examiner.need_server()
    fix = "ask the server without the gateway, or switch its cleaning, masking and caching of replies off"
    problems = [p for p in (rewritten_texts(examiner), _masked(examiner), _footer(examiner), _stale(examiner)) if p]
    named = [f"{name}: {examiner.headers[name]}" for name in GATEWAY_HEADERS if name in examiner.headers]
    passed = f" (headers: {', '.join(named)[:120]})" if named else ""
    if problems:
        return Finding("; ".join(problems) + passed, fix)
    return Ok(f"texts with odd spaces, addresses and markup arrive as they are{passed}")


def _masked(examiner: Examiner) -> str:
    """Whether private data comes back masked."""
    for fact, question, wanted in PRIVATE:
        reply = examiner.ask(f"{fact}\n\n{question} Write it exactly as it stands in the text.", max_tokens=48)
        mask = MASKS.search(reply.content)
        if mask and wanted not in reply.content:
            return f"{fact.rpartition(' is ')[2]!r} comes back as {mask[0]!r}"
    return ""


def _footer(examiner: Examiner) -> str:
    """The same words at the end of answers to different requests that ended by themselves."""
    ended = [reply.content for reply in examiner.once(short_answers) if reply.completion.finish == "stop"]
    if len(ended) < 3:
        return ""
    common = commonprefix([text[::-1] for text in ended])[::-1].strip()  # noqa: RUF071 (texts, not paths)
    return f"every answer ends with {common[:80]!r}" if len(common) >= FOOTER else ""


def short_answers(examiner: Examiner) -> list[CheckReply]:
    texts = ("Say hello.", "Name one colour.", "What is two plus two?", "Name a day of the week.")
    return [examiner.ask(text, max_tokens=128) for text in texts]


def _stale(examiner: Examiner) -> str:
    """Whether a question about a changed text gets the answer to the text before the change, or an old reply."""
    planted = plant(examiner, short_length(examiner))
    location = LOCATIONS[2]
    value, new = planted.values[location], other_value(examiner, planted, location)
    first, second = ask_location(examiner, planted, location), ask_location(examiner, planted, location, new)
    if is_found(first, value) and is_found(second, value) and isinstance(second, CheckReply) and new not in second.text:
        return f"with {new} in place of {value} in the text the answer is still {value}"
    ids = [reply.id for reply in examiner.once(short_answers)]
    if isinstance(first, CheckReply) and first.id:
        again = ask_location(examiner, planted, location)
        if isinstance(again, CheckReply) and again.id == first.id and first.id not in ids:
            return f"a repeated request gets the same reply, with the same id {first.id[:40]!r}"
    return ""
