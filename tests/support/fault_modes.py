"""Every kind of bad reply that we could think of, each given to one sample of a run.

    python tests/support/fault_modes.py              the kinds, and what became of them in four runs
    python tests/support/fault_modes.py --every 10   each tenth kind

A run gets all kinds, one for each second sample, either at the first attempt or at every attempt. It must end as usual,
with one record for every sample. A failure has no scores. An answer was in the reply. With only the first attempt bad,
every sample has an answer, unless the kind of failure says that asking again is of no use.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # the tests folder is on the path of pytest, not of a plain program
    sys.path.insert(0, str(Path(__file__).parents[1]))

from leadline.core import backoff
from leadline.core.answers import Completion, Failure
from leadline.core.records import Record
from leadline.core.seeds import digest_prompt
from leadline.core.spec import make_spec
from leadline.models.openai.http import HttpReply, HttpRequest, RequestFailed, served_by
from leadline.run.measure import measure
from leadline.store.runs import UnreadableLine, read_records
from support.leadline_process import write_haystack

ANSWER = "no number is known"
"""What a bad reply answers, if it answers: always wrong, so that it is told from the answer of a good one."""
SHORTEST_BODY = 900
Api = str
Bad = HttpReply | RequestFailed

STATUSES = (
    *range(201, 209), 226, *range(300, 309), *range(400, 419), *range(421, 430), 431, 444, 451, 460, 463, 494, 495, 497,
    498, 499, *range(500, 512), *range(520, 531), 561, 598, 599, 600, 999,
)  # fmt: skip
ODD: dict[str, Any] = {
    "null": None, "true": True, "0": 0, "-1": -1, "a fraction": 0.5, "2^70": 2**70, "an empty text": "", "a text": "x",
    "a long text": "x" * 5000, "an empty list": [], "a list": [1], "a nested list": [[[]]], "an empty object": {},
    "an object": {"a": 1},
}  # fmt: skip
FINISHES = (
    "content_filter", "safety", "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "error", "ERROR", "abort",
    "aborted", "cancelled", "canceled", "timeout", "failed", "incomplete", "insufficient_system_resource", "repetition",
    "tool_calls", "function_call", "MALFORMED_FUNCTION_CALL", "refusal", "eos", "unknown", "OTHER", "",
)  # fmt: skip
ENDS = ("the connection is closed", "the connection is reset", "no answer in time", "no HTTP")


def good_page(api: Api, text: str, tokens: int = 1100) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "logprobs": None}
    choice |= {"message": {"role": "assistant", "content": text}} if api == "chat" else {"text": text}
    usage = {"prompt_tokens": tokens, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 0}}
    return {"id": "1", "object": "completion", "model": "fake", "choices": [choice], "usage": usage}


def modes(api: Api) -> dict[str, Bad]:
    """Every kind of bad reply to one of the two forms of request, by name."""
    page = good_page(api, ANSWER)
    return dict([*_ends(), *_statuses(page), *_nodes(page), *_finishes(api), *_bodies(page)])


def _ends() -> Iterator[tuple[str, Bad]]:
    reasons = ("connection", "connection", "timeout", "malformed")
    yield from ((what, RequestFailed(why, what)) for what, why in zip(ENDS, reasons, strict=True))  # type: ignore[arg-type]


def _statuses(page: dict[str, Any]) -> Iterator[tuple[str, Bad]]:
    """A status with an error, with a web page and, as no server should, with a good answer."""
    error = json.dumps({"error": {"message": "something went wrong", "type": "some_error"}}).encode()
    for status in STATUSES:
        yield f"{status}, an error", HttpReply(status, error)
        yield f"{status}, a web page", HttpReply(status, b"<html><body>gateway</body></html>", "text/html")
        yield f"{status}, an answer", HttpReply(status, json.dumps(page).encode())


def _nodes(page: dict[str, Any]) -> Iterator[tuple[str, Bad]]:
    """The good reply with one of its values left out, or replaced by an odd one."""
    for path in _paths(page):
        name = ".".join(map(str, path))
        yield f"{name} left out", _json(_changed(page, path))
        for what, value in ODD.items():
            yield f"{name} is {what}", _json(_changed(page, path, value))


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from _paths(inner, (*path, key))


def _changed(page: dict[str, Any], path: tuple[Any, ...], *value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(page)
    parent: Any = changed
    for key in path[:-1]:
        parent = parent[key]
    if value:
        parent[path[-1]] = value[0]
    else:
        del parent[path[-1]]
    return changed


def _finishes(api: Api) -> Iterator[tuple[str, Bad]]:
    for finish, (what, text) in product(FINISHES, {"a text": ANSWER, "no text": "", "null": None}.items()):
        page = good_page(api, ANSWER)
        page["choices"][0]["finish_reason"] = finish
        if api == "chat":
            page["choices"][0]["message"]["content"] = text
        else:
            page["choices"][0]["text"] = text
        yield f"ended by {finish!r} with {what}", _json(page)
    for status in ("failed", "cancelled", "in_progress", "queued"):
        yield f"status {status}", _json({**good_page(api, ANSWER), "status": status})


def _bodies(page: dict[str, Any]) -> Iterator[tuple[str, Bad]]:
    """The bytes of a good reply, damaged."""
    text = json.dumps(page).encode()
    for tenth in range(10):
        yield f"{tenth} tenths of the body", HttpReply(200, text[: len(text) * tenth // 10])
    bodies = {
        "a byte order mark": b"\xef\xbb\xbf" + text, "UTF-16": text.decode().encode("utf-16"),
        "UTF-32": text.decode().encode("utf-32"), "a stream of events": b"data: " + text + b"\n\ndata: [DONE]\n\n",
        "two replies": text + text, "two lines": text + b"\n" + text, "something after it": text + b" oops",
        "something before it": b"oops " + text, "compressed": gzip.compress(text), "null bytes": b"\0" * 100,
        "in a list": b"[" + text + b"]", "in a text": json.dumps(text.decode()).encode(), "white space": b" \n ",
        "null": b"null", "true": b"true", "a number": b"1", "a text": b'"x"', "NaN": b"NaN", "an empty object": b"{}",
        "nested 100,000 deep": b"[" * 100_000, "a long number": b"9" * 10_000,
        "single quotes": text.replace(b'"', b"'"), "a comma too many": text[:-1] + b",}",
        "half a surrogate pair": text.replace(ANSWER.encode(), rb"\ud83d"),
        "a control character": text.replace(ANSWER.encode(), b"a\x01b"),
        "a broken escape": text.replace(ANSWER.encode(), rb"\x41"),
        "not UTF-8": text.replace(ANSWER.encode(), b"\xff\xfe"), "a key twice": b'{"choices": [],' + text[1:],
        "an error beside the answer": json.dumps({**page, "error": {"message": "late"}}).encode(),
        "a web page": b"<!DOCTYPE html><html></html>", "XML": b"<?xml version='1.0'?><error/>",
    }  # fmt: skip
    yield from ((what, HttpReply(200, body)) for what, body in bodies.items())


def _json(page: dict[str, Any]) -> HttpReply:
    return HttpReply(200, json.dumps(page).encode())


# --- runs


@dataclass
class FaultyServer:
    """Gives a kind of bad reply to every second sample, in the order in which they are first asked."""

    api: Api
    modes: dict[str, Bad]
    always: bool
    given: dict[str, str] = field(default_factory=dict)
    """By the digest of a request, the kind that it gets; empty for a good one."""
    _asked: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: HttpRequest) -> HttpReply:
        if request.path == "/v1/models":
            return HttpReply(200, json.dumps({"data": [{"id": "fake", "max_model_len": 100_000}]}).encode())
        if not request.path.endswith("completions"):
            return HttpReply(404, b"{}")
        body = request.body or b""
        if len(body) < SHORTEST_BODY:  # asked while the server is looked at
            return HttpReply(200, json.dumps(good_page(self.api, "yes", len(body))).encode())
        key = digest_prompt(body)
        with self._lock:
            names = list(self.modes)
            number = len(self.given)
            name = self.given.setdefault(key, names[number // 2] if number % 2 and number // 2 < len(names) else "")
            self._asked[key] += 1
            is_bad = bool(name) and (self.always or self._asked[key] == 1)
        if is_bad:
            bad = self.modes[name]
            if isinstance(bad, RequestFailed):
                raise RequestFailed(bad.reason, str(bad))
            return bad
        return HttpReply(200, json.dumps(good_page(self.api, f"right {key[:8]}")).encode())


@dataclass
class Given:
    """What became of the kinds in one run."""

    failures: Counter[str]
    answers: int
    wrong: list[str]


def run_with(api: Api, kinds: dict[str, Bad], folder: Path, *, always: bool) -> Given:
    """A run with all kinds, and every way in which a sample ended as it should not."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    server = FaultyServer(api, kinds, always)
    samples = 2 * len(kinds) + 2
    with served_by(server) as base_url:
        spec = make_spec(
            {
                "model": f"openai:fake?base_url={base_url}&tokenizer=bytes&api={api}",
                "tasks": {"name": "niah", "haystack": str(write_haystack(folder.parent))},
                "lengths": 1200,
                "depths": "0.5",
                "samples": samples,
                "limits": {"workers": 4, "attempts": 2, "rate_limit_wait": 0.05, "breaker": samples},
            }
        )
        totals = measure(spec, folder).totals
    unreadable: list[UnreadableLine] = []
    records = {record.sent.digest: record for record in read_records(folder, unreadable)}
    wrong = [str(line) for line in unreadable]
    if len(records) != samples or totals.done + totals.failed != samples:
        wrong.append(f"{len(records)} records, {totals.done} answered and {totals.failed} failed of {samples}")
    if missing := [name for name in kinds if name not in server.given.values()]:
        wrong.append(f"never given: {missing[:5]}")
    found = Given(Counter(), 0, wrong)
    for digest, record in records.items():
        _judge(record, server.given[digest], kinds, found, always=always)
    return found


def _judge(record: Record, name: str, kinds: dict[str, Bad], found: Given, *, always: bool) -> None:
    outcome, where = record.outcome, f"{name or 'a good reply'} ({'always' if always else 'once'})"
    if isinstance(outcome, Failure):
        found.failures[outcome.why] += 1
        if record.scores:
            found.wrong.append(f"{where}: a failure with scores")
        if not name or (not always and outcome.transient):
            found.wrong.append(f"{where}: not asked again: {outcome}")
        return
    assert isinstance(outcome, Completion)
    found.answers += 1
    if not record.scores:
        found.wrong.append(f"{where}: an answer without scores")
    is_good = outcome.text.startswith("right ")
    if is_good and name and always:
        found.wrong.append(f"{where}: the answer {outcome.text!r} was never given")
    if not is_good:
        reply = kinds.get(name)
        if not isinstance(reply, HttpReply) or reply.status != 200:
            found.wrong.append(f"{where}: scored as an answer")


def count_modes(every: int, folder: Path) -> Given:
    """Runs with each `every`-th kind, in both forms of request, at the first attempt and at every attempt."""
    total = Given(Counter(), 0, [])
    for api, always in product(("chat", "completions"), (False, True)):
        kinds = dict(list(modes(api).items())[::every])
        found = run_with(api, kinds, folder / f"{api}-{always}" / "run", always=always)
        total.answers += found.answers
        total.failures += found.failures
        total.wrong += found.wrong
        print(f"{api}, {'always' if always else 'once'}: {len(kinds)} kinds, {len(found.wrong)} wrong", flush=True)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    backoff.FIRST_WAIT_SECONDS, backoff.LONGEST_WAIT_SECONDS = 0.001, 0.002
    with tempfile.TemporaryDirectory() as folder:
        total = count_modes(given.every, Path(folder))
    print(*total.wrong, sep="\n")
    print(f"{total.answers:,} answers, failures {dict(total.failures)}, {len(total.wrong)} wrong")
    return 1 if total.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
