"""Anthropic's message batches and Google's batches, beside the fakes of their models: states, counts, pages, results in
any order. The questions of a batch are put to the fake model with the key of the one who submitted them.

    with AnthropicBatchServer() as server: ...  # as support.batch_server.BatchServer
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from leadline.models.openai.http import HttpReply, HttpRequest
from support.batch_server import Fate, always_ok, ignore
from support.hosted_fakes import AnthropicFake, GeminiFake, HostedFake, Refused

Page = dict[str, Any]
LISTED_AT_ONCE = 2
"""Fewer than are asked for, so that every list has pages."""


class HostedBatchServer:
    """What both have in common. `looks` is how often a batch is looked at before it has ended."""

    provider = path = ""
    paths: tuple[str, ...] = ()
    """Parts of the paths that are about batches."""

    def __init__(self, model: HostedFake, fate: Callable[[Page, int], Fate] = always_ok, *, looks: int = 1) -> None:
        self.model, self.fate, self.looks = model, fate, looks
        self.batches: dict[str, Page] = {}
        self.asked: Counter[str] = Counter()
        """By question: how often the model was asked."""
        self.submitted: Counter[str] = Counter()
        self.before = self.after = ignore
        self.base_url = ""
        self._left: dict[str, int] = {}
        self._results: dict[str, list[Page]] = {}
        self._headers: Mapping[str, str] = {}
        self._guard = threading.Lock()
        self._contexts = ExitStack()

    def __enter__(self) -> Self:
        ask, self.model.reply = self.model.reply, self.handle  # type: ignore[method-assign]
        self._ask = ask
        self.base_url = self._contexts.enter_context(self.model.served())
        return self

    @property
    def model_name(self) -> str:
        return f"{self.provider}:{self.model.model}"

    def __exit__(self, *_: object) -> None:
        self._contexts.close()

    def handle(self, request: HttpRequest) -> HttpReply:
        path = urlsplit(request.path).path
        if not any(part in path for part in self.paths):
            return self._ask(request)
        self.before(request.method, path)
        with self._guard:
            reply = self._reply(request, path)
        self.after(request.method, path)
        return reply

    def _reply(self, request: HttpRequest, path: str) -> HttpReply:
        try:
            self.model.check_key({name.lower(): value for name, value in request.headers.items()})
            if request.method == "POST":
                self._headers = request.headers
                page: Page | bytes = self.create(json.loads(request.body or b""))
            else:
                page = self.look(path, parse_qs(urlsplit(request.path).query))
        except Refused as refused:
            return HttpReply(refused.status, json.dumps(self.model.error(refused)).encode(), "application/json")
        return HttpReply(200, page if isinstance(page, bytes) else json.dumps(page).encode(), "application/json")

    def create(self, body: Page) -> Page:
        raise NotImplementedError

    def look(self, path: str, query: dict[str, list[str]]) -> Page | bytes:
        raise NotImplementedError

    def add(self, id: str, batch: Page, questions: list[tuple[str, Page]]) -> Page:
        self.batches[id], self._left[id] = batch, self.looks
        self._questions = {**getattr(self, "_questions", {}), id: questions}
        self.submitted.update(json.dumps(body, sort_keys=True) for _, body in questions)
        return batch

    def advance(self, id: str) -> None:
        """A provider goes on by itself; here with every look."""
        if self._left[id]:
            self._left[id] -= 1
        elif id not in self._results:
            self.finish(id)

    def finish(self, id: str) -> None:
        self._results[id] = [
            entry for name, body in reversed(self._questions[id]) for entry in self._result(name, body)
        ]
        self.ended(self.batches[id], self._results[id])

    def _result(self, name: str, body: Page) -> Iterator[Page]:
        question = json.dumps(body, sort_keys=True)
        fate = self.fate({"custom_id": name, "body": body}, self.submitted[question])
        if fate in ("ok", "refused"):
            self.asked[question] += fate == "ok"
            asked = body if fate == "ok" else {**body, "unknown_field": 1}
            url = f"http://batch.invalid{self.question_path}"
            reply = self._ask(HttpRequest("POST", url, self._headers, json.dumps(asked).encode(), 60))
            yield self.result(name, reply.status, json.loads(reply.body))
        elif fate != "lost":
            yield self.result(name, 0 if fate == "expired" else 500, {})

    @property
    def question_path(self) -> str:
        raise NotImplementedError

    def result(self, name: str, status: int, page: Page) -> Page:
        """`status` is 0 for a question that expired."""
        raise NotImplementedError

    def ended(self, batch: Page, results: list[Page]) -> None:
        raise NotImplementedError

    def created_at(self) -> str:
        return (datetime.now(UTC) + timedelta(seconds=len(self.batches))).isoformat().replace("+00:00", "Z")


class AnthropicBatchServer(HostedBatchServer):
    provider = "anthropic"
    path = "/messages/batches"
    paths = (path,)
    question_path = "/v1/messages"

    def __init__(self, fate: Callable[[Page, int], Fate] = always_ok, *, looks: int = 1) -> None:
        super().__init__(AnthropicFake(), fate, looks=looks)

    def create(self, body: Page) -> Page:
        names = [request["custom_id"] for request in body["requests"]]
        if len({*names}) < len(names) or not all(0 < len(name) <= 64 for name in names):
            raise Refused(400, "invalid_request_error", "custom_id: must be unique, of 1 to 64 characters")
        id = f"msgbatch_{len(self.batches)}"
        counts = {"processing": len(names), "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
        batch = {
            "id": id, "type": "message_batch", "processing_status": "in_progress", "request_counts": counts,
            "created_at": self.created_at(), "archived_at": None, "results_url": None,
        }  # fmt: skip
        return self.add(id, batch, [(request["custom_id"], request["params"]) for request in body["requests"]])

    def look(self, path: str, query: dict[str, list[str]]) -> Page | bytes:
        id = path.partition(f"{self.path}/")[2].partition("/")[0]
        if not id:
            newest = [*reversed(self.batches.values())]
            after = query.get("after_id", [""])[0]
            start = next((i + 1 for i, batch in enumerate(newest) if batch["id"] == after), 0)
            page = newest[start : start + LISTED_AT_ONCE]
            for batch in page:
                self.advance(batch["id"])
            return {"data": page, "has_more": start + len(page) < len(newest)}
        if id not in self.batches:
            raise Refused(404, "not_found_error", f"batch {id} not found")
        if not path.endswith("/results"):
            self.advance(id)
            return self.batches[id]
        if id not in self._results:
            raise Refused(404, "not_found_error", f"batch {id} has no results yet")
        return b"".join(json.dumps(entry).encode() + b"\n" for entry in self._results[id])

    def result(self, name: str, status: int, page: Page) -> Page:
        if status == 200:
            return {"custom_id": name, "result": {"type": "succeeded", "message": page}}
        if not status:
            return {"custom_id": name, "result": {"type": "expired"}}
        error = page or {"type": "error", "error": {"type": "api_error", "message": "Internal server error"}}
        return {"custom_id": name, "result": {"type": "errored", "error": error}}

    def ended(self, batch: Page, results: list[Page]) -> None:
        kinds = Counter(entry["result"]["type"] for entry in results)
        total = sum(batch["request_counts"].values())
        batch["request_counts"] = {"processing": 0, "canceled": 0, "succeeded": 0, "errored": 0, "expired": 0, **kinds}
        batch["request_counts"]["errored"] += total - sum(kinds.values())
        batch["processing_status"] = "ended"

    def cancel(self, id: str) -> None:
        """By someone at the provider, before anything was asked."""
        self._results[id] = [{"custom_id": n, "result": {"type": "canceled"}} for n, _ in self._questions[id]]
        self.ended(self.batches[id], self._results[id])


class GeminiBatchServer(HostedBatchServer):
    provider = "gemini"
    paths = ("/batches", ":batchGenerateContent", "/files")

    def __init__(self, fate: Callable[[Page, int], Fate] = always_ok, *, looks: int = 1) -> None:
        super().__init__(GeminiFake(), fate, looks=looks)
        self.files: dict[str, bytes] = {}
        """By name, those that were uploaded and those with results."""
        self.inline_bytes = 20 << 20

    @property
    def question_path(self) -> str:
        return f"/v1beta/models/{self.model.model}:generateContent"

    def _reply(self, request: HttpRequest, path: str) -> HttpReply:
        if path == "/upload/v1beta/files" and request.method == "POST":
            try:
                self.model.check_key({name.lower(): value for name, value in request.headers.items()})
                page = self._keep_file(request)
            except Refused as refused:
                return HttpReply(refused.status, json.dumps(self.model.error(refused)).encode(), "application/json")
            return HttpReply(200, json.dumps(page).encode(), "application/json")
        return super()._reply(request, path)

    def _keep_file(self, request: HttpRequest) -> Page:
        """A file of two parts, what it is called and its bytes."""
        kind = {name.lower(): value for name, value in request.headers.items()}["content-type"]
        what, _, boundary = kind.partition("; boundary=")
        if what != "multipart/related" or parse_qs(urlsplit(request.path).query) != {"uploadType": ["multipart"]}:
            raise Refused(400, "INVALID_ARGUMENT", "Unsupported upload protocol.")
        _, about, content, end = (request.body or b"").split(f"--{boundary}".encode())
        described = json.loads(about.partition(b"\r\n\r\n")[2])["file"]
        if end.strip() != b"--" or described["mimeType"] != "application/jsonl":
            raise Refused(400, "INVALID_ARGUMENT", "Malformed multipart body.")
        name = f"files/f{len(self.files)}"
        self.files[name] = content.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
        return {"file": {"name": name, "displayName": described["displayName"], "state": "ACTIVE"}}

    def _requests(self, config: Page) -> list[tuple[str, Page]]:
        if "fileName" in config:
            if config["fileName"] not in self.files:
                raise Refused(404, "NOT_FOUND", f"{config['fileName']} is not found.")
            lines = [json.loads(line) for line in self.files[config["fileName"]].splitlines()]
            return [(line["key"], line["request"]) for line in lines]
        inline = config["requests"]["requests"]
        if len(json.dumps(config)) > self.inline_bytes:
            raise Refused(400, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes.")
        return [(entry["metadata"]["key"], entry["request"]) for entry in inline]

    def create(self, body: Page) -> Page:
        config = body["batch"]["inputConfig"]
        requests = self._requests(config)
        id = f"batches/b{len(self.batches)}"
        about = {
            "model": f"models/{self.model.model}", "displayName": body["batch"]["displayName"],
            "state": "BATCH_STATE_PENDING", "createTime": self.created_at(),
            "batchStats": {"requestCount": str(len(requests)), "pendingRequestCount": str(len(requests))},
        }  # fmt: skip
        batch = {"name": id, "metadata": about, "done": False, "of_file": "fileName" in config}
        return self.add(id, batch, requests)

    def look(self, path: str, query: dict[str, list[str]]) -> Page | bytes:
        id = path.removeprefix("/v1beta/")
        if id == "batches":
            newest = [*reversed(self.batches.values())]
            start = int(query.get("pageToken", ["0"])[0])
            page = newest[start : start + LISTED_AT_ONCE]
            for batch in page:
                self.advance(batch["name"])
            token = {"nextPageToken": str(start + len(page))} if start + len(page) < len(newest) else {}
            return {"operations": page, **token}
        if id.startswith("/download/v1beta/"):
            name = id.removeprefix("/download/v1beta/").removesuffix(":download")
            if name not in self.files or query.get("alt") != ["media"]:
                raise Refused(404, "NOT_FOUND", f"{name} is not found.")
            return self.files[name]
        if id not in self.batches:
            raise Refused(404, "NOT_FOUND", "Requested entity was not found.")
        self.advance(id)
        return self.batches[id]

    def result(self, name: str, status: int, page: Page) -> Page:
        if status == 200:
            return {"metadata": {"key": name}, "response": page}
        if not status:
            return {"metadata": {"key": name}, "error": {"code": 1, "message": "The operation was cancelled."}}
        code = 3 if status == 400 else 13
        message = page.get("error", {}).get("message", "An internal error has occurred.")
        return {"metadata": {"key": name}, "error": {"code": code, "message": message}}

    def ended(self, batch: Page, results: list[Page]) -> None:
        about = batch["metadata"]
        good = sum("response" in entry for entry in results)
        total = int(about["batchStats"]["requestCount"])
        about["state"] = "BATCH_STATE_SUCCEEDED"
        about["batchStats"] = {
            "requestCount": str(total), "successfulRequestCount": str(good), "failedRequestCount": str(total - good),
        }  # fmt: skip
        batch["done"] = True
        if not batch["of_file"]:
            batch["response"] = {"inlinedResponses": {"inlinedResponses": results}}
            return
        name = f"files/batch-{batch['name'].rpartition('/')[2]}"
        lines = [{"key": entry.pop("metadata")["key"], **entry} for entry in results]
        self.files[name] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        batch["response"] = {"responsesFile": name}


class GeminiFileServer(GeminiBatchServer):
    """Takes no question inline."""

    def __init__(self, fate: Callable[[Page, int], Fate] = always_ok, *, looks: int = 1) -> None:
        super().__init__(fate, looks=looks)
        self.inline_bytes = 0
