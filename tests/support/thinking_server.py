"""The fake server with a model that thinks: as much as it is told to, and right when that is enough for the length.

It thinks EFFORT tokens, up to a quarter more by the prompt, or its budget. The right answer takes a share of the
prompt's tokens of thinking. Tokens are bytes.
"""

from __future__ import annotations

import hashlib
from typing import Any

from support.fake_http import Response, json_response
from support.fake_kinds import Kind
from support.fake_server import FakeServer, Reply, numbers_in

EFFORT = {"low": 600, "medium": 1200, "high": 2400}
DEFAULT = 1200
NEEDED = 0.5
"""Tokens of thinking for a token of the prompt, that the right answer takes."""


class ThinkingServer(FakeServer):
    def __init__(self, *, kind: Kind = "vllm", window: int = 16384, counts_thinking: bool = True) -> None:
        super().__init__(kind=kind, window=window, keep_bodies=True)
        self._counts_thinking = counts_thinking

    def _completion(self, body: dict[str, Any], prompt: str, fault: str) -> Response | None:
        tokens, most = self.count(prompt), int(body["max_tokens"])
        if self.window and tokens + most > self.window:
            return super()._completion(body, prompt, fault)
        wanted = thinking_tokens(body, prompt)
        thought = "x" * min(wanted, most)
        right = wanted >= NEEDED * tokens
        answer = numbers_in(prompt) if right else "I do not know."
        said = answer.encode()[: max(0, most - wanted)].decode(errors="ignore")
        cut = wanted + len(answer) > most
        reply = Reply(said or None, "length" if cut else "stop", thought or None)
        good = self._success("messages" in body, reply, tokens)
        good["usage"]["completion_tokens"] = len(thought) + len(said)
        if self._counts_thinking:
            good["usage"]["completion_tokens_details"] = {"reasoning_tokens": len(thought)}
        return json_response(200, good)


def thinking_tokens(body: dict[str, Any], prompt: str) -> int:
    if body.get("chat_template_kwargs", {}).get("enable_thinking") is False or body.get("reasoning_effort") == "none":
        return 0
    if (budget := body.get("thinking_token_budget")) is not None:
        return int(budget)
    effort = EFFORT.get(str(body.get("reasoning_effort")), DEFAULT)
    spread = int(hashlib.blake2b(prompt.encode(), digest_size=2).hexdigest(), 16) / 65536
    return int(effort * (1 + spread / 4))
