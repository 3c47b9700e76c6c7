"""The fake server with a prefix cache that forgets: the least recently used prompts go when it is full.

It states what came from the cache (`states_hits`) and, as vLLM does, how much it holds (/metrics).
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import takewhile
from typing import Any

from support.fake_http import Response, json_response
from support.fake_kinds import Kind
from support.fake_server import FakeServer


class PromptCache:
    """Blocks of prompts, each known by everything up to its end, the most recently used last."""

    def __init__(self, tokens: int, block: int = 16) -> None:
        self.tokens, self.block = tokens, block
        self._held: dict[int, None] = {}

    def read(self, prompt: str) -> int:
        """Tokens of the prompt that were held; it is held from now on."""
        blocks = [hash(prompt[: end + self.block]) for end in range(0, len(prompt) - self.block + 1, self.block)]
        hits = sum(1 for _ in takewhile(self._held.__contains__, blocks))
        for one in reversed(blocks):  # the end of a prompt is dropped before its beginning
            self._held.pop(one, None)
            self._held[one] = None
        for one in list(self._held)[: max(0, len(self._held) - self.tokens // self.block)]:
            del self._held[one]
        return hits * self.block


class CachingServer(FakeServer):
    """Tokens are bytes. With `slots`, a llama.cpp that keeps one prompt in each."""

    def __init__(
        self,
        tokens: int,
        *,
        kind: Kind = "vllm",
        window: int = 8192,
        states_hits: bool = True,
        states_size: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(kind=kind, window=window, **options)
        self.cache = PromptCache(tokens)
        self._states_hits, self._states_size = states_hits, states_size
        self.cached = 0

    async def _respond(self, method: str, path: str, headers: dict[str, str], raw: bytes) -> Response | None:
        if path == "/metrics" and self._states_size:
            blocks = self.cache.tokens // self.cache.block
            text = f'vllm:cache_config_info{{block_size="{self.cache.block}",num_gpu_blocks="{blocks}"}} 1.0\n'
            return Response(200, text.encode(), type="text/plain")
        return await super()._respond(method, path, headers, raw)

    def _completion(self, body: dict[str, Any], prompt: str, fault: str) -> Response | None:
        cached = self.cache.read(prompt)
        self.cached += cached
        made = super()._completion(body, prompt, fault)
        if made is None or made.status != 200:
            return made
        reply = json.loads(made.body)
        reply["usage"]["prompt_tokens_details"] = {"cached_tokens": cached} if self._states_hits else None
        return replace(made, body=json_response(200, reply).body)
