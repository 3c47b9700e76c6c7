"""Checks of the service around a model: signs of life, rate limits, and whether it is the model that was named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from leadline.core.errors import ServerAway
from leadline.core.findings import Finding, NotMade, Ok
from leadline.core.records import Failure
from leadline.doctor.examiner import CheckReply, Examiner

BURST = 16
"""The requests that a run has in flight by default."""
LIFE_SECONDS = 60.0
"""For one token of an answer to a request of a few words."""
REPLIES = 12
"""Replies whose names are compared, at least."""
LIMIT_HEADERS = ("x-ratelimit-limit-requests", "x-ratelimit-limit-tokens", "ratelimit-limit", "retry-after")


def require_life(examiner: Examiner) -> None:
    """Raises ServerAway if a tiny request is not answered within a minute. Waiting is said after some seconds."""
    server = examiner.server
    if server is None:
        return
    found = examiner.note(server.exchange("Hello.", seconds=LIFE_SECONDS, fields={"max_tokens": 1}))
    if isinstance(found, Failure) and found.why in ("timeout", "connection"):
        raise ServerAway(
            f"the server gives no sign of life: {found.message}",
            where=server.address,
            fix="look at the server's log and load; start it again if it hangs",
        )


def check_rate_limit(examiner: Examiner) -> Ok | Finding | NotMade:
    examiner.need_server()
    workers = 1 if examiner.cheap else BURST
    limits = "; ".join(f"{n}: {examiner.headers[n]}" for n in LIMIT_HEADERS if n in examiner.headers)
    if not examiner.cheap:
        ask = partial(examiner.try_to_ask, "Say yes.", max_tokens=1, attempts=1)
        replies = examiner.at_once([ask] * BURST)
        workers = sum(isinstance(reply, CheckReply) for reply in replies)
        busy = [r for r in replies if isinstance(r, Failure) and (r.why == "rate_limited" or r.status == 503)]
        examiner.limited += [failure for failure in busy if failure.why != "rate_limited"]
        lost = [r for r in replies if isinstance(r, Failure) and r not in busy]
        if lost:
            return _lost_requests(lost, workers)
    if examiner.limited:
        last = examiner.limited[-1]
        wait = "" if last.retry_after is None else f", to be asked again after {last.retry_after:g} s"
        return Finding(
            f"{len(examiner.limited)} requests were refused (status {last.status}: {last.message[:120]}{wait}); "
            f"{workers} of {BURST} at once were answered" + (f"; {limits}" if limits else ""),
            f"run with --workers {max(1, workers // 2)}; a run waits for the limit, up to --rate-limit-wait",
        )
    if examiner.cheap:
        return NotMade("only made by `leadline doctor`")
    return Ok(f"{workers} of {BURST} requests at once were answered" + (f"; {limits}" if limits else ""))


def _lost_requests(lost: Sequence[Failure], answered: int) -> Finding | NotMade:
    what = f"{len(lost)} of {BURST} requests at once got no answer ({lost[0].why}: {lost[0].message[:120]})"
    if not answered:
        return NotMade(what)
    return Finding(what, f"run with --workers {max(1, answered // 2)}, or look for the limit of connections on the way")


def check_model_name(examiner: Examiner) -> Ok | Finding | NotMade:
    server = examiner.need_server()
    asked = server.server.model
    fix = "name the model that the server has, and ask the operator of a router to keep to one model"
    while not examiner.cheap and sum(examiner.served_by.values()) < REPLIES:
        examiner.ask("Say yes.", max_tokens=1)
    unlisted = next((note for note in server.card.notes if "does not list a model" in note), "")
    if len(examiner.served_by) > 1:
        served = ", ".join(f"{name or 'no name'} ({count})" for name, count in examiner.served_by.items())
        return Finding(f"replies come from different models or configurations: {served}", fix)
    named = next(iter(examiner.served_by), "").split(" ")[0]
    if not named:
        return NotMade("the replies do not name a model")
    if not is_same_model(asked, named):
        return Finding(f"{asked!r} was asked for and {named!r} answers", fix)
    if unlisted:
        return Finding(f"{unlisted}, and yet {named!r} answers", fix)
    return Ok(f"{sum(examiner.served_by.values())} replies name {named!r}")


def is_same_model(asked: str, named: str) -> bool:
    """Whether a reply's name is that of the request: equal, or with a date, version or folder added."""
    one, two = (name.lower().rstrip("/").rpartition("/")[2] for name in (asked, named))
    one, two = (name.removesuffix(".gguf").removesuffix(":latest") for name in (one, two))
    rest = two.removeprefix(one)
    return bool(one) and (not rest or (rest != two and re.match(r"[-@:]v?\d", rest) is not None))
