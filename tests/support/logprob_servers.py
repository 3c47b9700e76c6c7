"""vLLM, SGLang and llama.cpp as functions in the place of a server, with one language model by rule behind them.

Tokens are bytes. Each does what the real one does with a request for log-probabilities: what it ignores, what it
refuses, which values are missing, and which tokens come from its prefix cache.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from leadline.models.openai.http import HttpReply, HttpRequest

MODEL = "rule"
BLOCK = 16


def rule(before: Sequence[int], token: int) -> float:
    """Nats of a token: few after three tokens that it has followed before, else between 0.4 and 10."""
    last = [int(one) for one in before[-3:]]
    seen = len(last) == 3 and bytes([*last, int(token)]) in np.asarray(before, np.uint8).tobytes()
    return 0.01 if seen else 0.4 + (sum(last) * 31 + int(token) * 17 + len(before)) % 97 / 10


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class LogprobServer:
    """What the three have in common: one prefix cache, and a list of the requests."""

    window: int = 4096
    states_cache: bool = True
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    read: int = 0
    """Tokens that were read, those from the cache not counted."""

    def __post_init__(self) -> None:
        self._guard = threading.Lock()
        self._blocks: set[tuple[int, ...]] = set()

    def __call__(self, request: HttpRequest) -> HttpReply:
        body = json.loads(request.body) if request.body else {}
        with self._guard:
            if request.method == "POST":
                self.asked.append((request.path, body))
            try:
                page = self.page(request.path, body)
            except Refused as error:
                refusal = {"error": {"message": str(error), "code": error.status}}
                return HttpReply(error.status, json.dumps(refusal).encode())
        if isinstance(page, str):
            return HttpReply(200, page.encode(), content_type="text/plain")
        return HttpReply(200, json.dumps(page).encode())

    def page(self, path: str, body: dict[str, Any]) -> Any:
        raise NotImplementedError

    def paths(self) -> set[str]:
        return {path for path, _ in self.asked}

    def read_prompt(self, ids: Sequence[int], *, from_cache: bool = True, block: int = BLOCK) -> int:
        """Reads a prompt; returns how many of its tokens came from the cache, never its last one."""
        if len(ids) >= self.window:
            raise Refused(400, f"This model's maximum context length is {self.window} tokens.")
        ends = range(block, len(ids) + 1, block)
        cached = 0
        for end in ends if from_cache else ():
            if tuple(ids[:end]) not in self._blocks or end >= len(ids):
                break
            cached = end
        self._blocks.update(tuple(ids[:end]) for end in ends)
        self.read += len(ids) - cached
        return cached

    def usage(self, ids: Sequence[int], cached: int) -> dict[str, Any]:
        details = {"cached_tokens": cached} if self.states_cache else None
        return {"prompt_tokens": len(ids), "completion_tokens": 1, "prompt_tokens_details": details}


def _likely(ids: Sequence[int]) -> int:
    return min(range(97, 123), key=lambda token: rule(ids, token))


@dataclass
class FakeVllm(LogprobServer):
    """vLLM. `trace`: started with --enable-scale-out and --enable-trace-replay on the V2 runner."""

    scale_out: bool = True
    trace: bool = False
    masked: bool = False
    """--logprobs-mode processed_logprobs: a forced token has the log-probability 0."""
    ignores_allowed: bool = False
    prompt_logprobs_status: int = 200

    def page(self, path: str, body: dict[str, Any]) -> Any:
        if path == "/v1/models":
            return {"data": [{"id": MODEL, "owned_by": "vllm", "max_model_len": self.window}]}
        if path == "/version":
            return {"version": "0.32.0"}
        if path == "/metrics":
            blocks = 100_000 // BLOCK
            return f'vllm:cache_config_info{{block_size="{BLOCK}",num_gpu_blocks="{blocks}"}} 1.0\n'
        if path == "/tokenize":
            return {"tokens": list(str(body["prompt"]).encode()), "count": len(str(body["prompt"]).encode())}
        if path == "/inference/v1/generate":
            return self._generate(body)
        if path == "/v1/completions":
            return self._completion(body)
        raise Refused(404, f"Not Found: {path}")

    def _completion(self, body: dict[str, Any]) -> Any:
        ids = body["prompt"] if isinstance(body["prompt"], list) else list(body["prompt"].encode())
        wants_prompt = body.get("prompt_logprobs") is not None
        if wants_prompt and self.prompt_logprobs_status != 200:
            raise Refused(self.prompt_logprobs_status, "EngineCore encountered an issue.")
        cached = self.read_prompt(ids, from_cache=not wants_prompt)
        allowed = None if self.ignores_allowed else body.get("allowed_token_ids")
        written = allowed[0] if allowed else _likely(ids)
        choice: dict[str, Any] = {"index": 0, "text": chr(written), "finish_reason": "length"}
        if body.get("logprobs") is not None:
            nats = 0.0 if self.masked and allowed else rule(ids, written)
            name = f"token_id:{written}" if body.get("return_tokens_as_token_ids") else chr(written)
            choice["logprobs"] = {"tokens": [name], "token_logprobs": [-nats], "text_offset": [0]}
        if wants_prompt:
            places = range(1, len(ids))
            choice["prompt_logprobs"] = [
                None, *({str(ids[n]): {"logprob": -rule(ids[:n], ids[n]), "rank": 3}} for n in places)
            ]  # fmt: skip
        return {"model": MODEL, "choices": [choice], "usage": self.usage(ids, cached)}

    def _generate(self, body: dict[str, Any]) -> Any:
        if not self.scale_out:
            raise Refused(403, "Forbidden: start the server with --enable-scale-out")
        sampling, ids = body["sampling_params"], body["token_ids"]
        trace = sampling.get("trace_decode_token_ids")
        if trace and not self.trace:
            raise Refused(400, "trace_decode_token_ids is set but trace replay is not enabled.")
        room = min(sampling.get("max_tokens", 16), self.window - len(ids))
        written = trace[:room] if trace else [_likely(ids)]
        cached = self.read_prompt(ids)
        content = []
        for place, token in enumerate(written):
            content.append({"token": f"token_id:{token}", "logprob": -rule([*ids, *written[:place]], token)})
        choice = {"index": 0, "token_ids": written, "logprobs": {"content": content}, "finish_reason": "length"}
        return {"model": MODEL, "choices": [choice], "usage": self.usage(ids, cached)}


@dataclass
class FakeSGLang(LogprobServer):
    """SGLang: a prompt's log-probabilities from `logprob_start_len` on, of which the first is missing."""

    native: bool = True
    """Whether /generate can be reached."""

    def page(self, path: str, body: dict[str, Any]) -> Any:
        if path == "/v1/models":
            return {"data": [{"id": MODEL, "owned_by": "sglang", "max_model_len": self.window}]}
        if path == "/get_server_info":
            return {"context_length": self.window, "max_total_num_tokens": 100_000, "tp_size": 1, "version": "0.6"}
        if path == "/get_model_info":
            return {"model_path": "/nowhere/rule", "tokenizer_path": "/nowhere/rule"}
        if path in ("/tokenize", "/v1/tokenize"):
            return {"tokens": list(str(body["prompt"]).encode()), "count": len(str(body["prompt"]).encode())}
        if path == "/generate" and self.native:
            return self._generate(body)
        raise Refused(404, f"Not Found: {path}")

    def _generate(self, body: dict[str, Any]) -> Any:
        ids, start = body["input_ids"], body["logprob_start_len"]
        cached = self.read_prompt(ids, block=1)
        if body.get("return_logprob"):
            surplus = max(0, cached - min(len(ids) - 1, start))  # the prefix may be reused up to the start at most
            cached, self.read = cached - surplus, self.read + surplus
        rows: list[list[Any]] = [[None, ids[start], None]]
        rows += [[-rule(ids[:n], ids[n]), ids[n], None] for n in range(start + 1, len(ids))]
        meta = {
            "prompt_tokens": len(ids), "completion_tokens": 1, "cached_tokens": cached,
            "finish_reason": {"type": "length", "length": 1}, "input_token_logprobs": rows,
        }  # fmt: skip
        return {"text": "x", "output_ids": [120], "meta_info": meta}


@dataclass
class FakeLlama(LogprobServer):
    """llama.cpp with one slot. It ignores `echo` and returns log-probabilities of what it writes."""

    old: bool = False
    """A version whose /completion does not say which token it wrote."""

    def page(self, path: str, body: dict[str, Any]) -> Any:
        if path == "/v1/models":
            return {"data": [{"id": MODEL, "owned_by": "llamacpp", "meta": {"n_ctx_train": self.window}}]}
        if path == "/props":
            settings = {"n_ctx": self.window, "params": {}}
            return {"default_generation_settings": settings, "total_slots": 1, "model_path": "/nowhere/rule.gguf"}
        if path == "/tokenize":
            return {"tokens": list(str(body["content"]).encode())}
        if path == "/v1/completions":
            ids = body["prompt"] if isinstance(body["prompt"], list) else list(body["prompt"].encode())
            written = [{"token": chr(_likely(ids)), "logprob": -rule(ids, _likely(ids))}]
            choice = {"text": "x", "index": 0, "finish_reason": "length", "logprobs": {"content": written}}
            return {"choices": [choice], "usage": self.usage(ids, self.read_prompt(ids, block=1))}
        if path == "/completion":
            return self._native(body)
        raise Refused(404, f"File Not Found: {path}")

    def _native(self, body: dict[str, Any]) -> Any:
        ids = body["prompt"]
        cached = self.read_prompt(ids, block=1)
        bias: Mapping[int, float] = {int(token): value for token, value in body.get("logit_bias", ())}
        written = max(range(256), key=lambda token: bias.get(token, 0.0) - rule(ids, token))
        shown = {"token": chr(written), "logprob": -rule(ids, written), "top_logprobs": []}
        probabilities = [shown if self.old else {"id": written, **shown}]
        return {
            "content": chr(written), "tokens_evaluated": len(ids), "tokens_cached": len(ids),
            "timings": {"cache_n": cached, "prompt_n": len(ids) - cached}, "completion_probabilities": probabilities,
        }  # fmt: skip
