"""OpenAI's files and batches, faithfully: uploads, states, counts, results in any order, errors and limits.

    with BatchServer(fate=lambda line, times: "expired" if times == 1 else "ok") as server:
        ... openai:fake?base_url={server.base_url}&tokenizer=bytes, with --batch ...
        server.asked          # how often each question was put to the model
        server.batches        # as GET /batches/ID gives them

Each question of a batch has a fate: ok, expired (never put to the model), server (a 500 in its place), refused (a
400), without credit (a 429 with OpenAI's code), lost (no line in any file). `before` and `after` are called around
every request with its method and path, for tests that end a program at that point; `on_socket` serves other processes.
"""

from __future__ import annotations

import email
import email.policy
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self
from urllib.parse import parse_qs, urlsplit

from leadline.models.openai.http import Handler, HttpReply, HttpRequest, served_by
from support.fake_server import FakeServer

Fate = Literal["ok", "expired", "server", "refused", "without credit", "lost"]
REFUSALS: dict[Fate, tuple[int, str, str]] = {
    "server": (500, "it went wrong", "server_error"),
    "refused": (400, "it went wrong", "server_error"),
    "without credit": (429, "You exceeded your current quota.", "insufficient_quota"),
}
"""Status, message and type."""
Watcher = Callable[[str, str], None]
CREATED = 1_763_500_000
BATCHED = "http://batch.invalid"
"""Before the path of a question that a batch puts to the model."""


def always_ok(line: dict[str, Any], times: int) -> Fate:
    return "ok"


def ignore(method: str, path: str) -> None:
    pass


class BatchServer:
    """The provider. `looks` is how often a batch is looked at before it has ended; `room` the questions that its queue
    takes at once."""

    def __init__(
        self,
        fate: Callable[[dict[str, Any], int], Fate] = always_ok,
        *,
        looks: int = 1,
        requests: int = 50_000,
        room: int | None = None,
        model: FakeServer | None = None,
    ) -> None:
        self.fate = fate
        self.looks = looks
        self.most_requests = requests
        self.room = room
        self.model = model or FakeServer()
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.asked: Counter[str] = Counter()
        """By question: how often the model was asked."""
        self.submitted: Counter[str] = Counter()
        """By question: in how many batches it was."""
        self.before: Watcher = ignore
        self.after: Watcher = ignore
        self.down = False
        """Whether every request about batches fails."""
        self.base_url = ""
        self._left: dict[str, int] = {}
        self._guard = threading.Lock()
        self._contexts = ExitStack()

    def __enter__(self) -> Self:
        self.base_url = self._contexts.enter_context(served_by(self.handle))
        return self

    def __exit__(self, *_: object) -> None:
        self._contexts.close()

    def handle(self, request: HttpRequest) -> HttpReply:
        path = urlsplit(request.path).path
        if not path.startswith(("/v1/files", "/v1/batches")):
            return self.model.handle(request)
        self.before(request.method, path)
        with self._guard:
            reply = self._reply(request, path)
        self.after(request.method, path)
        return reply

    def _reply(self, request: HttpRequest, path: str) -> HttpReply:
        if self.down:
            return _error(503, "the service is overloaded")
        parts = path.removeprefix("/v1/").split("/")
        if parts == ["files"] and request.method == "POST":
            return self._upload(request)
        if parts[0] == "files" and parts[2:] == ["content"]:
            content = self.files.get(parts[1])
            return _error(404, f"No such File object: {parts[1]}") if content is None else HttpReply(200, content)
        if parts == ["batches"] and request.method == "POST":
            return self._create(json.loads(request.body or b""))
        if parts == ["batches"]:
            return self._list(parse_qs(urlsplit(request.path).query))
        batch = self.batches.get(parts[1])
        if batch is None:
            return _error(404, f"No batch found with id '{parts[1]}'.")
        self._advance(batch)
        return _page(batch)

    def _upload(self, request: HttpRequest) -> HttpReply:
        kind = next(value for name, value in request.headers.items() if name.lower() == "content-type")
        message = email.message_from_bytes(
            f"Content-Type: {kind}\r\n\r\n".encode() + (request.body or b""), policy=email.policy.HTTP
        )
        fields = {part.get_param("name", header="content-disposition"): part for part in message.iter_parts()}
        if fields["purpose"].get_content().strip() != "batch":
            return _error(400, "purpose must be batch")
        id = f"file-{len(self.files)}"
        content = fields["file"].get_payload(decode=True)
        assert isinstance(content, bytes)
        self.files[id] = content
        return _page({"id": id, "object": "file", "bytes": len(self.files[id]), "purpose": "batch"})

    def _create(self, body: dict[str, Any]) -> HttpReply:
        if body["completion_window"] != "24h" or body["input_file_id"] not in self.files:
            return _error(400, "Invalid batch")
        if not all(isinstance(text, str) and len(text) <= 512 for text in body.get("metadata", {}).values()):
            return _error(400, "Invalid metadata")
        lines = [json.loads(line) for line in self.files[body["input_file_id"]].splitlines()]
        id = f"batch_{len(self.batches)}"
        wrong = self._problem(lines, body["endpoint"])
        self.batches[id] = {
            "id": id, "object": "batch", "endpoint": body["endpoint"], "input_file_id": body["input_file_id"],
            "status": "failed" if wrong else "validating", "created_at": CREATED + len(self.batches),
            "errors": {"object": "list", "data": [wrong]} if wrong else None, "metadata": body.get("metadata"),
            "output_file_id": None, "error_file_id": None,
            "request_counts": {"total": len(lines), "completed": 0, "failed": 0},
        }  # fmt: skip
        self._left[id] = self.looks
        if not wrong:
            self.submitted.update(_question(line) for line in lines)
        return _page(self.batches[id])

    def _problem(self, lines: list[dict[str, Any]], endpoint: str) -> dict[str, Any] | None:
        names = [line["custom_id"] for line in lines]
        if len({*names}) != len(names):
            return {"code": "duplicate_custom_id", "message": "The custom_id is not unique"}
        if any(line["url"] != endpoint or line["method"] != "POST" for line in lines):
            return {"code": "mismatched_endpoint", "message": "The url does not match the endpoint"}
        if len(lines) > self.most_requests:
            return {"code": "too_many_requests", "message": f"The file has more than {self.most_requests} requests"}
        queued = sum(b["request_counts"]["total"] for b in self.batches.values() if b["status"] == "validating")
        if self.room is not None and queued + len(lines) > self.room:
            what = f"Enqueued token limit reached for fake. Limit: {self.room} enqueued questions."
            return {"code": "token_limit_exceeded", "message": what}
        return None

    def _list(self, query: dict[str, list[str]]) -> HttpReply:
        newest = [*reversed(self.batches.values())]
        after = query.get("after", [""])[0]
        start = next((i + 1 for i, batch in enumerate(newest) if batch["id"] == after), 0)
        page = newest[start : start + int(query.get("limit", ["20"])[0])]
        return _page({"object": "list", "data": page, "has_more": start + len(page) < len(newest)})

    def _advance(self, batch: dict[str, Any]) -> None:
        if batch["status"] != "validating":
            return
        if self._left[batch["id"]]:
            self._left[batch["id"]] -= 1
            return
        self.finish(batch)

    def finish(self, batch: dict[str, Any], status: str = "completed") -> None:
        """Asks the model what the fates allow, and writes the files; in reverse order, since any order is allowed."""
        output: list[dict[str, Any]] = []
        errors: list[dict[str, Any]] = []
        for line in reversed([json.loads(line) for line in self.files[batch["input_file_id"]].splitlines()]):
            question = _question(line)
            fate = self.fate(line, self.submitted[question])
            entry: dict[str, Any] = {"id": f"req-{line['custom_id']}", "custom_id": line["custom_id"], "error": None}
            if fate == "expired":
                expired = {"code": "batch_expired", "message": "This request could not be executed before the ..."}
                errors.append({**entry, "response": None, "error": expired})
                status = "expired" if status == "completed" else status
            elif fate in REFUSALS:
                code, message, kind = REFUSALS[fate]
                body = {"error": {"message": message, "type": kind}}
                errors.append({**entry, "response": {"status_code": code, "request_id": "r", "body": body}})
            elif fate == "ok":
                self.asked[question] += 1
                request = HttpRequest("POST", f"{BATCHED}{line['url']}", {}, json.dumps(line["body"]).encode(), 60)
                reply = self.model.handle(request)
                response = {"status_code": reply.status, "request_id": "r", "body": json.loads(reply.body)}
                (output if reply.status == 200 else errors).append({**entry, "response": response})
        batch["status"] = status
        batch["request_counts"] |= {"completed": len(output), "failed": len(errors)}
        for name, lines in (("output_file_id", output), ("error_file_id", errors)):
            if lines:
                id = f"file-{name}-{batch['id']}"
                self.files[id] = "".join(json.dumps(line) + "\n" for line in lines).encode()
                batch[name] = id

    @contextmanager
    def on_socket(self) -> Iterator[str]:
        """A base URL on a loopback socket, for other processes."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _bridge(self.handle))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            server.server_close()


def _question(line: dict[str, Any]) -> str:
    """What a line asks, the same in every batch."""
    return json.dumps(line["body"], sort_keys=True)


def _page(page: dict[str, Any]) -> HttpReply:
    return HttpReply(200, json.dumps(page).encode(), "application/json")


def _error(status: int, message: str) -> HttpReply:
    return HttpReply(status, json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode())


def _bridge(handler: Handler) -> type[BaseHTTPRequestHandler]:
    class Bridge(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
            url = f"http://{self.headers['Host']}{self.path}"
            reply = handler(HttpRequest(self.command, url, dict(self.headers), body, 60))
            try:
                self.send_response(reply.status)
                self.send_header("Content-Type", reply.content_type or "application/json")
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)
            except OSError:  # the program on the other side was killed
                self.close_connection = True

        do_GET = do_POST = _serve

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Bridge
