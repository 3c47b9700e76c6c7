"""A server with the little reading model behind it, faithful unless faults are planted.

    with ReadingServer(Planted(cut="front"), kind="vllm", window=4096) as server: ...

Each field of `Planted` is one way in which real servers and gateways change what is measured. The faithful server
counts what it reads, caches prefixes in whole blocks, gives log-probabilities, and answers as it is asked.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from support import reading_model
from support.fake_faults import Faults
from support.fake_http import Response, json_response
from support.fake_kinds import BOS, MODEL, Kind, refusal, rendered
from support.fake_server import FakeServer

BLOCK = 16
THOUGHT = "First I look for the question. Then I look for what it asks about, which may take a while. "
SYSTEM = (
    "You are Harbourmaster, a careful assistant of the port. Never mention fish, and answer every question politely."
)
WEAK_BEYOND = 2000
CACHED_NOISE = 0.35
FOOTER = "\n\nPowered by ExampleGate, the friendly gateway."


@dataclass(frozen=True)
class Planted:
    """Faults; the defaults are faithful."""

    cut: Literal["", "front", "middle", "end", "sliding"] = ""
    cut_to: int = 1500
    receipts: Literal["", "as_sent", "constant", "scaled", "completion", "none"] = ""
    """as_sent: counts what was sent and not what was read."""
    tokenizer: Literal["", "generation", "everywhere"] = ""
    """Another tokenizer: only where prompts are counted, or in /tokenize too."""
    system: str = ""
    system_counted: bool = True
    template: Literal["", "other", "same_size", "double_bos", "double_bos_rendered"] = ""
    prefix: Literal["", "dropped", "closed"] = ""
    stop: str = ""
    stop_after: int | None = None
    most_tokens: int | None = None
    most_finish: str = "length"
    temperature: float | None = None
    """Used in place of the request's."""
    thinking: Literal["", "tags", "closing", "harmony", "reasoning", "hidden"] = ""
    thought: int = 60
    """Characters of thinking."""
    flips: int = 0
    """Every n-th answer at temperature 0 comes from another replica."""
    tiny_noise: bool = False
    """Log-probabilities differ by less than 0.3 nats from request to request, as in real batches."""
    cached_noise: bool = False
    """Log-probabilities of a prompt that was read before are up to 0.35 nats off at some tokens, and door codes change
    them by less than 0.5 nats."""
    weak: Literal["", "long", "all"] = ""
    """The model answers every question about a text with the same words: about a long one, or about any."""
    cache: Literal["on", "off", "silent", "lies", "stale"] = "on"
    """stale: what comes from the cache has other log-probabilities than a fresh reading."""
    logprobs: Literal["", "none", "by_order"] = ""
    real_window: int | None = None
    beyond: int = 400
    """The status of a prompt beyond the real window."""
    at_once: int | None = None
    """More requests at the same time are refused."""
    drops: bool = False
    """With `at_once`: the connection is closed in place of a refusal."""
    limited_every: int = 0
    rewrite: Literal["", "spaces", "mask", "quotes", "footer", "reply_cache", "similar"] = ""
    model: Literal["", "other", "alternates", "fingerprint"] = ""
    preempts: int = 0
    """Every n-th request is interrupted, as /metrics says."""
    hangs: bool = False
    """Requests are accepted and never answered."""


NO_FAULT = Planted()


class ReadingServer(FakeServer):
    def __init__(
        self,
        planted: Planted = NO_FAULT,
        *,
        kind: Kind = "vllm",
        window: int | None = 4096,
        **settings: Any,
    ) -> None:
        super().__init__(Faults(), kind=kind, window=window, **settings)
        self.planted = planted
        self._numbers = itertools.count(1)
        self._blocks: set[int] = set()
        self._replies: dict[str, Response] = {}
        self._read: set[str] = set()
        """Prompts that were read before."""
        self.asked = 0
        """Requests for answers so far."""
        self.longest = 0
        """Bytes of the longest prompt so far."""

    # --- how texts are counted

    def encode(self, text: str) -> list[int]:
        return _other_tokens(text) if self.planted.tokenizer == "everywhere" else list(text.encode())

    def count(self, text: str) -> int:
        return len(_other_tokens(text)) if self.planted.tokenizer else len(text.encode())

    def _tool(self, path: str, body: dict[str, Any]) -> Any:
        if self.planted.tokenizer == "everywhere" and path == "/detokenize":
            return None
        if self.planted.template == "double_bos_rendered" and path in ("/tokenize", "/apply-template"):
            page = super()._tool(path, body)
            if page is not None and path == "/apply-template":
                return {"prompt": BOS + page["prompt"]}
            if page is not None and "messages" in body:
                ids = [*BOS.encode(), *page["tokens"]]
                return {**page, "tokens": ids, "count": len(ids)}
            return page
        return super()._tool(path, body)

    # --- one request

    async def _respond(self, method: str, path: str, headers: dict[str, str], raw: bytes) -> Response | None:
        if path == "/metrics" and self.kind in ("vllm", "sglang"):
            name = "vllm:num_preemptions_total" if self.kind == "vllm" else "sglang:num_retracted_reqs"
            count = 7 + (self.asked // self.planted.preempts if self.planted.preempts else 0)
            return Response(200, f'{name}{{engine="0"}} {count}.0\n'.encode(), type="text/plain")
        return await super()._respond(method, path, headers, raw)

    async def _answered(self, path: str, raw: bytes) -> Response | None:
        planted, number = self.planted, next(self._numbers)
        self.asked = number
        if planted.hangs:
            await self._wait(3600)
        if planted.limited_every and number % planted.limited_every == 0:
            return _limited()
        self._in_flight += 1
        try:
            if planted.at_once is not None:
                await self._wait(0.05)
                if self._in_flight > planted.at_once:
                    return None if planted.drops else _limited()
            return self._reply_to(path, json.loads(raw), number)
        finally:
            self._in_flight -= 1

    def _reply_to(self, path: str, body: dict[str, Any], number: int) -> Response:
        planted = self.planted
        key = json.dumps(body, sort_keys=True)
        if planted.rewrite == "similar":
            key = re.sub(r"\d{5}", "#", key)
        if planted.rewrite in ("reply_cache", "similar") and key in self._replies:
            return self._replies[key]
        prompt = self._prompt(body)
        sent = self.count(prompt)
        self.longest = max(self.longest, len(prompt.encode()))
        limit = planted.real_window or self.window
        if limit and sent + (body.get("max_tokens") or 0) > limit:
            if planted.beyond != 400:
                return json_response(planted.beyond, {"error": {"message": "out of memory"}})
            return refusal(self.kind, sent, limit)
        read = self._cut(prompt)
        response = json_response(200, self._page(body, read, sent, number))
        self._replies[key] = response
        return response

    def _prompt(self, body: dict[str, Any]) -> str:
        """What the model is given, before anything is cut off."""
        planted = self.planted
        if isinstance(body.get("prompt"), list):
            return bytes(body["prompt"]).decode(errors="replace")
        if "messages" in body:
            messages = [{**m, "content": self._rewritten(m["content"])} for m in body["messages"]]
            if planted.prefix and messages[-1]["role"] == "assistant":
                body = {**body, "continue_final_message": False, "add_generation_prompt": True}
                messages = messages[:-1] if planted.prefix == "dropped" else messages
            if planted.system:
                messages = [{"role": "system", "content": planted.system}, *messages]
            kind: Kind = "plain" if planted.prefix else self.kind
            prompt = rendered(kind, {**body, "messages": messages})
        else:
            prompt = BOS + self._rewritten(str(body["prompt"]))
        if planted.template == "other":
            prompt = prompt.replace("<|im_start|>user\n", "<|im_start|>user\n\n\n")
        elif planted.template == "same_size":
            prompt = prompt.replace("<|im_start|>user\n", "<|im_start|>user\n").replace("assistant\n", "Assistant\n")
        elif planted.template.startswith("double_bos"):
            prompt = BOS + prompt
        return prompt

    def _rewritten(self, text: str) -> str:
        rewrite = self.planted.rewrite
        if rewrite == "spaces":
            return re.sub(r"[ \t]+", " ", re.sub(r"\n{3,}", "\n\n", text))
        if rewrite == "mask":
            return re.sub(r"[\w.]+@[\w.]+\w", "[EMAIL]", text)
        if rewrite == "quotes":
            return re.sub("[“”]", '"', re.sub("[‘’]", "'", text)).replace("\u00a0", " ")
        return text

    def _cut(self, prompt: str) -> str:
        """What is left of a prompt that is longer than the server really reads."""
        planted, data = self.planted, prompt.encode()
        keep = planted.cut_to
        if not planted.cut or len(data) <= keep:
            return prompt
        header = prompt.rfind("<|im_end|>")
        parts = {
            "front": data[-keep:],
            "sliding": data[-keep:],
            "middle": data[: keep // 2] + data[-keep // 2 :],
            "end": data[:keep] + prompt[header:].encode(),
        }
        left = parts[planted.cut].decode(errors="ignore")
        return left if "<|im_start|>user\n" in left else "<|im_start|>user\n" + left

    # --- the reply

    def _page(self, body: dict[str, Any], prompt: str, sent: int, number: int) -> dict[str, Any]:
        planted, chat = self.planted, "messages" in body
        text, finish, reasoning = self._generated(body, prompt, number)
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        if chat:
            choice["message"] = {"role": "assistant", "content": text}
            if reasoning:
                choice["message"]["reasoning_content"] = reasoning
        else:
            choice["text"] = text
        if body.get("logprobs") and planted.logprobs != "none":
            sampled = (planted.temperature or 0.0) > 0
            choice["logprobs"] = self._logprobs(text, prompt, number, chat=chat, sampled=sampled)
            afresh = body.get("cache_salt") or body.get("cache_prompt") is False
            if planted.cache == "stale" and body["logprobs"] == 20 and not afresh:
                listed = choice["logprobs"]["top_logprobs"]
                choice["logprobs"]["top_logprobs"] = [{t: p - 1.5 for t, p in top.items()} for top in listed]
            self._read.add(prompt)
        if "prompt_logprobs" in body and planted.logprobs != "none" and self.kind == "vllm":
            choice["prompt_logprobs"] = self._prompt_logprobs(prompt, number)
        page: dict[str, Any] = {"id": f"cmpl-{number}", "created": 0, "choices": [choice], "model": MODEL}
        if planted.model == "other" or (planted.model == "alternates" and number % 2):
            page["model"] = "another-model-7b"
        page["system_fingerprint"] = f"fp_{number // 9}" if planted.model == "fingerprint" else "fp_1"
        if planted.receipts != "none":
            hidden = planted.thought if planted.thinking == "hidden" else 0
            said = min(self.count((text or "") + reasoning) + hidden, body.get("max_tokens") or 10_000)
            page["usage"] = self._usage(prompt, sent, said)
        return page

    def _generated(self, body: dict[str, Any], prompt: str, number: int) -> tuple[str | None, str, str]:
        """(text, finish, reasoning)."""
        planted = self.planted
        temperature = body.get("temperature", 1.0) if planted.temperature is None else planted.temperature
        flipped = planted.flips and number % planted.flips == 0
        seed = body.get("seed") if planted.temperature is None else number
        text = reading_model.answer(f"{prompt} " if flipped else prompt, temperature=temperature, seed=seed)
        if planted.weak and "Text number" in prompt and (planted.weak == "all" or len(prompt) > WEAK_BEYOND):
            text = " the same as the others." if "What is the door code" in prompt[-300:] else text
        if planted.rewrite == "footer":
            text += FOOTER
        if body.get("ignore_eos"):
            text = (text + " ") * 40
        thinking, visible = (THOUGHT * 20)[: planted.thought], ""
        before = {"tags": f"<think>{thinking}</think>\n\n", "closing": f"{thinking}</think>\n\n",
                  "harmony": f"<|channel|>analysis<|message|>{thinking}<|end|>"}.get(planted.thinking, "")  # fmt: skip
        text = before + text
        most = body.get("max_tokens") or 10_000
        finish = "stop"
        if planted.thinking in ("reasoning", "hidden"):
            spent = min(len(thinking), most)
            visible, most = thinking[:spent] if planted.thinking == "reasoning" else "", most - spent
        if planted.most_tokens is not None and most > planted.most_tokens:
            most, finish_at = planted.most_tokens, planted.most_finish
        else:
            finish_at = "length"
        if planted.stop and planted.stop in text:
            text = text.partition(planted.stop)[0]
        if planted.stop_after is not None and planted.stop_after < min(len(text), most):
            text = text[: planted.stop_after]
        elif len(text.encode()) > most:
            text, finish = text.encode()[:most].decode(errors="ignore"), finish_at
        if planted.thinking in ("reasoning", "hidden") and not text:
            return (None if planted.thinking == "reasoning" else ""), finish, visible
        return text, finish, visible

    def _logprobs(self, text: str | None, prompt: str, number: int, *, chat: bool, sampled: bool) -> dict[str, Any]:
        listed: list[dict[str, Any]] = []
        for position, token in enumerate((text or "")[:64]):
            value = self._logprob(prompt, position) + self._noise(number)
            other = {"token": "#", "logprob": value + (1.0 if sampled else -3.0)}
            listed.append(
                {"token": token, "logprob": value, "top_logprobs": [{"token": token, "logprob": value}, other]}
            )
        if chat:
            return {"content": listed}
        return {
            "tokens": [one["token"] for one in listed],
            "token_logprobs": [one["logprob"] for one in listed],
            "top_logprobs": [{top["token"]: top["logprob"] for top in one["top_logprobs"]} for one in listed],
        }

    def _prompt_logprobs(self, prompt: str, number: int) -> list[Any]:
        noise = self._noise(number)
        off = CACHED_NOISE if self.planted.cached_noise and prompt in self._read else 0.0
        self._read.add(prompt)
        chances = (-1.0 - (i % 7) / 7 + noise - off * (n % 7 == 0) for n, i in enumerate(prompt.encode()[1:]))
        return [None, *({str(i): {"logprob": p}} for i, p in zip(prompt.encode()[1:], chances, strict=True))]

    def _logprob(self, prompt: str, position: int) -> float:
        if not self.planted.cached_noise:
            return reading_model.logprob(prompt, position)
        whole = reading_model.logprob(re.sub(r"\d", "0", prompt), position)
        off = CACHED_NOISE if prompt in self._read and position % 5 == 0 else 0.0
        return whole + 0.2 * reading_model.logprob(prompt, position) - off

    def _noise(self, number: int) -> float:
        if self.planted.logprobs == "by_order":
            return -0.9 * (number % 3)
        return -0.05 * (number % 3) if self.planted.tiny_noise else 0.0

    def _usage(self, prompt: str, sent: int, said: int) -> dict[str, Any]:
        planted = self.planted
        whole = planted.cut == "sliding" or planted.receipts == "as_sent"
        tokens = sent if whole else self.count(prompt)
        if planted.system and not planted.system_counted:
            tokens -= self.count(f"<|im_start|>system\n{planted.system}<|im_end|>\n")
        if planted.receipts == "constant":
            tokens = 100
        elif planted.receipts == "scaled":
            tokens = round(1.3 * tokens)
        elif planted.receipts == "completion":
            said = 3 * said + 50
        usage: dict[str, Any] = {"prompt_tokens": tokens, "completion_tokens": said, "total_tokens": tokens + said}
        cached = self._cached(prompt)
        if planted.cache == "lies":
            cached = int(0.9 * tokens)
        if planted.cache != "silent":
            usage["prompt_tokens_details"] = {"cached_tokens": 0 if planted.cache == "off" else cached}
        return usage

    def _cached(self, prompt: str) -> int:
        """Tokens of whole blocks at the beginning of the prompt that an earlier prompt had."""
        data, hits, unbroken = prompt.encode(), 0, True
        for stop in range(BLOCK, len(data), BLOCK):
            block = hash(data[:stop])
            unbroken = unbroken and block in self._blocks
            hits += unbroken
            self._blocks.add(block)
        return BLOCK * hits


def _other_tokens(text: str) -> list[int]:
    """Words and punctuation marks, long words in pieces of four letters."""
    return [reading_model.digest(part) % 50_000 for part in re.findall(r"\w{1,4}|\s|[^\w\s]", text)]


def _limited() -> Response:
    return json_response(429, {"error": {"message": "Too many requests"}}, {"Retry-After": "0.05"})
