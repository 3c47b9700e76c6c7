"""A small OpenAI-compatible server with faults that can be switched on: a function in the place of a server, or with
`sockets` a real one on a loopback socket, for tests of connections and of other processes.

    with FakeServer(faults=Faults(rate_429=0.1, drop=0.05), kind="vllm", window=8192) as server:
        ... openai:fake?base_url={server.base_url}&tokenizer=bytes ...
        server.completions                # every request for an answer: path, tokens, attempt, fault, time
        server.faults = Faults()          # switched while it runs

`FakeServer` answers in this process; `FakeServerProcess` runs in a separate process, for measurements of the
client's CPU time and for tests that kill processes.

Whether a request gets a fault depends on the bytes of its body and on how often they were sent before, never on time or
order: a body drawn for a fault gets it `Faults.attempts` times and is then answered. Tokens are bytes (or words) of the
prompt, so that a test can count them. The default answer is every number of five digits or more in the prompt, which is
right for any number needle that was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import hashlib
import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from leadline.models.openai.http import HttpReply, HttpRequest, RequestFailed, parse_retry_after, served_by
from support.fake_faults import Faults, drawn, faulty
from support.fake_http import Connection, Response, json_response
from support.fake_kinds import BOS, MODEL, Kind, pages, refusal, rendered, text_of_tokens, text_to_tokenize
from support.scripted_judge import verdict_in

__all__ = ["FakeServer", "FakeServerProcess", "Faults", "Kind", "Reply", "Request", "numbers_in"]


@dataclass(frozen=True)
class Reply:
    """The answer of the model behind the server."""

    text: str | None
    finish: str = "stop"
    reasoning: str | None = None


@dataclass(frozen=True)
class Request:
    """One request as it arrived. `attempt` counts equal bodies from 1; `fault` is '' if it was answered."""

    path: str
    digest: str = ""
    tokens: int = 0
    attempt: int = 1
    fault: str = ""
    at: float = 0.0
    body: dict[str, Any] = field(default_factory=dict)


def numbers_in(prompt: str) -> str:
    return " ".join(re.findall(r"\d{5,}", prompt)) or "there is no number"


class FakeServer:
    """The server in a thread. `answer` gets the whole prompt, template included, and returns text or a Reply."""

    def __init__(
        self,
        faults: Faults = Faults(),  # noqa: B008 (frozen)
        answer: Callable[[str], str | Reply] = numbers_in,
        *,
        kind: Kind = "plain",
        window: int | None = None,
        tokens: Literal["bytes", "whitespace"] = "bytes",
        keep_bodies: bool = False,
        api_key: str = "",
        port: int = 0,
        sockets: bool = False,
    ) -> None:
        self.faults = faults
        self._sockets = sockets
        self._guard = threading.Lock()
        self._contexts = ExitStack()
        self._request = threading.local()
        self.answer = answer
        self.kind: Kind = kind
        self.window = window
        self.api_key = api_key
        self.keep_bodies = keep_bodies
        self.requests: list[Request] = []
        self.connections = 0
        self.limited = 0
        """Requests refused for `Faults.limited_first`."""
        self.peak_in_flight = 0
        self._in_flight = 0
        self._words = tokens == "whitespace"
        self._port = port
        self._seen: Counter[str] = Counter()
        self._open: set[asyncio.Transport] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._url = ""

    @property
    def base_url(self) -> str:
        return self._url or f"http://127.0.0.1:{self._port}/v1"

    @property
    def completions(self) -> list[Request]:
        """The requests for completions, without those for server information."""
        return [r for r in self.requests if r.path.endswith("completions")]

    def __enter__(self) -> Self:
        if not self._sockets:
            self._url = self._contexts.enter_context(served_by(self.handle))
            return self
        self._thread.start()
        self._ready.wait(120)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if not self._sockets:
            self._contexts.close()
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(120)

    def handle(self, request: HttpRequest) -> HttpReply:
        """The reply without a socket, in the thread that asks."""
        self._request.timeout = request.timeout
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            self._respond(request.method, request.path, headers, request.body or b"").send(None)
        except StopIteration as ended:
            response: Response | None = ended.value
        if response is None:
            raise RequestFailed("connection", "RemoteDisconnected: Remote end closed connection without response")
        if response.announced is not None:
            raise RequestFailed("connection", "the connection closed in the middle of the reply")
        named = {"Content-Type": response.type, **response.headers}
        retry_after = parse_retry_after(named.get("Retry-After"))
        return HttpReply(response.status, response.body, response.type, retry_after, named.get("Location", ""), named)

    async def _wait(self, seconds: float) -> None:
        """Sleeps, without a socket until the client would give up."""
        if self._sockets:
            await asyncio.sleep(seconds)
        elif seconds < self._request.timeout:
            time.sleep(seconds)
        else:
            time.sleep(self._request.timeout)
            raise RequestFailed("timeout", f"no answer within {self._request.timeout:g} seconds")

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await self._loop.create_server(self._connected, "127.0.0.1", self._port, backlog=1024)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for transport in list(self._open):
            transport.abort()
        await asyncio.sleep(0)  # lets them close

    def _connected(self) -> Connection:
        self.connections += 1
        return Connection(self._respond, self._open)

    def encode(self, text: str) -> list[int]:
        if self._words:
            return [int.from_bytes(hashlib.blake2b(w.encode(), digest_size=3).digest(), "big") for w in text.split()]
        return list(text.encode())

    def count(self, text: str) -> int:
        return len(text.split()) if self._words else len(text.encode())

    async def _respond(self, method: str, path: str, headers: dict[str, str], raw: bytes) -> Response | None:
        if path.startswith("/_"):
            return self._control(path, raw)
        if self.api_key and headers.get("authorization") != f"Bearer {self.api_key}":
            return json_response(401, {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}})
        with self._guard:
            is_limited = self.limited < self.faults.limited_first
            self.limited += is_limited
        if is_limited:
            return faulty("rate_429", self.faults, {})
        if path.endswith("completions") and method == "POST":
            return await self._answered(path, raw)
        self.requests.append(Request(path, at=time.time()))
        if path == "/tokenize":
            await self._wait(self.faults.tokenize_seconds)
            if self.faults.tokenize_status != 200:
                return json_response(self.faults.tokenize_status, {"error": {"message": "loading the model"}})
        page = self._tool(path, json.loads(raw)) if method == "POST" else pages(self.kind, self.window).get(path)
        return json_response(404, {"detail": "Not Found"}) if page is None else json_response(200, page)

    def _tool(self, path: str, body: dict[str, Any]) -> Any:
        """/tokenize and similar endpoints of this kind of server; None if it has none."""
        if self.kind == "plain":
            return None
        if path == "/tokenize":
            ids = self.encode(text_to_tokenize(self.kind, body))
            return {"tokens": ids, "count": len(ids), "max_model_len": self.window}
        if path == "/detokenize" and not self._words:
            return text_of_tokens(self.kind, body)
        if path == "/apply-template" and self.kind == "llamacpp":
            return {"prompt": rendered(self.kind, body).removeprefix(BOS)}
        return None

    async def _answered(self, path: str, raw: bytes) -> Response | None:
        digest = hashlib.blake2b(raw, digest_size=12).hexdigest()
        with self._guard:
            self._seen[digest] += 1
            attempt = self._seen[digest]
        body = json.loads(raw)
        prompt = rendered(self.kind, body)
        fault = drawn(self.faults, path, digest, attempt)
        kept = body if self.keep_bodies else {}
        self.requests.append(Request(path, digest, self.count(prompt), attempt, fault, time.time(), kept))
        with self._guard:
            self._in_flight += 1
            self.peak_in_flight = max(self.peak_in_flight, self._in_flight)
        try:
            await self._wait(3600 if fault == "hang" else self.faults.delay_seconds)
            response = self._completion(body, prompt, fault)
        finally:
            with self._guard:
                self._in_flight -= 1
        closes = response is not None and self.faults.close_after_response
        return dataclasses.replace(response, then_close=True) if response is not None and closes else response

    def _completion(self, body: dict[str, Any], prompt: str, fault: str) -> Response | None:
        tokens = self.count(prompt)
        if self.faults.refuse_schemas and "response_format" in body:
            return json_response(400, {"error": {"message": "Unknown field: response_format"}})
        if fault == "context_length" or (self.window and tokens + (body.get("max_tokens") or 0) > self.window):
            return refusal(self.kind, tokens, self.window)
        if self.faults.truncate_to is not None and tokens > self.faults.truncate_to:
            half = self.faults.truncate_to // 2
            data = prompt.encode()
            prompt = (data[:half] + data[-half:]).decode(errors="ignore")
            tokens = self.count(prompt)
        reply = self.answer(prompt)
        good = self._success("messages" in body, Reply(reply) if isinstance(reply, str) else reply, tokens)
        return faulty(fault, self.faults, good) if fault else json_response(200, good)

    def _success(self, chat: bool, reply: Reply, tokens: int) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": reply.finish}
        if chat:
            choice["message"] = {"role": "assistant", "content": reply.text}
            if reply.reasoning is not None:
                choice["message"]["reasoning_content"] = reply.reasoning
        else:
            choice["text"] = reply.text
        answer: dict[str, Any] = {"id": "x", "created": 0, "model": MODEL, "choices": [choice]}
        answer["object"] = "chat.completion" if chat else "text_completion"
        if not self.faults.without_usage:
            said = self.count(reply.text or "")
            answer["usage"] = {
                "prompt_tokens": tokens + self.faults.adds_tokens - self.faults.cached_left_out,
                "completion_tokens": said,
                "total_tokens": tokens + said,
                "prompt_tokens_details": {"cached_tokens": self.faults.cached_left_out},
            }
        return answer

    def _control(self, path: str, raw: bytes) -> Response:
        """Endpoints for FakeServerProcess: /_requests and /_faults."""
        if path == "/_faults":
            self.faults = Faults(**json.loads(raw))
            return json_response(200, {})
        return json_response(200, [dataclasses.asdict(r) for r in self.requests])


ANSWERS: dict[str, Callable[[str], str | Reply]] = {"numbers": numbers_in, "verdicts": verdict_in}


class FakeServerProcess:
    """The same server in a separate process, with the default answers or those of a judge."""

    def __init__(
        self,
        faults: Faults = Faults(),  # noqa: B008 (frozen)
        *,
        kind: Kind = "plain",
        window: int | None = None,
        port: int = 0,
        answers: str = "numbers",
    ) -> None:
        settings: dict[str, Any] = {"faults": dataclasses.asdict(faults), "kind": kind, "window": window, "port": port}
        settings["answers"] = answers
        self._command = [sys.executable, "-m", "support.fake_server", "--settings", json.dumps(settings)]
        self.base_url = ""

    def __enter__(self) -> FakeServerProcess:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
        )
        assert self._process.stdout is not None
        self.base_url = self._process.stdout.readline().strip()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.communicate()  # closes its standard input, which ends it

    @property
    def requests(self) -> list[Request]:
        return [Request(**r) for r in self._ask("/_requests", None)]

    @property
    def completions(self) -> list[Request]:
        return [r for r in self.requests if r.path.endswith("completions")]

    def set_faults(self, faults: Faults) -> None:
        self._ask("/_faults", json.dumps(dataclasses.asdict(faults)).encode())

    def _ask(self, path: str, data: bytes | None) -> Any:
        with urllib.request.urlopen(self.base_url.removesuffix("/v1") + path, data) as response:
            return json.load(response)


def main() -> None:
    parser = argparse.ArgumentParser(description="The fake server until standard input ends; prints its base URL.")
    parser.add_argument("--settings", default="{}", help="JSON: faults, kind, window, tokens, port")
    settings: dict[str, Any] = json.loads(parser.parse_args().settings)
    faults = Faults(**settings.pop("faults", {}))
    with FakeServer(faults, ANSWERS[settings.pop("answers", "numbers")], sockets=True, **settings) as server:
        print(server.base_url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
