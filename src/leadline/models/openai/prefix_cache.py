"""What a server says about its prefix cache: how much it holds, and whether it has one at all.

vLLM states the blocks of its cache in /metrics, SGLang its tokens in /get_server_info, llama.cpp its slots in /props.
Each slot of llama.cpp keeps the last prompt it has read, and a request goes to the slot that has most of its prompt.
Nobody else says anything.
"""

from __future__ import annotations

import re

from leadline.core.contracts import PrefixCache
from leadline.core.errors import ServerError
from leadline.models.openai.discovery import ServerInfo, send_with_retries
from leadline.models.openai.http import HttpClient
from leadline.models.openai.replies import decode_json

HOSTED_LEAST_TOKENS = 1024
"""Hosted servers cache no shorter prompts (OpenAI, Gemini Flash, most of Anthropic)."""
_CONFIG = re.compile(r"^vllm:cache_config_info\{(.*)\} ", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def ask_prefix_cache(client: HttpClient, server: ServerInfo) -> PrefixCache:
    """A server that does not answer this question has a cache of unknown size."""
    if server.kind == "llamacpp":
        slots = server.props.get("total_slots")
        return PrefixCache(slots=slots if type(slots) is int and slots > 0 else 1)
    try:
        if server.kind == "vllm":
            reply = send_with_retries(client, "GET", f"{client.root_url}/metrics")
            return parse_vllm_metrics(reply.body.decode("utf-8", "replace")) if reply.status == 200 else PrefixCache()
        if server.kind == "sglang":
            return _sglang(client)
    except ServerError:
        return PrefixCache()
    return PrefixCache(least=HOSTED_LEAST_TOKENS)


def parse_vllm_metrics(text: str) -> PrefixCache:
    """Several engines (data parallel) have a cache each, and any of them may get a document: the smallest counts."""
    found = []
    for line in _CONFIG.findall(text):
        labels = dict(_LABEL.findall(line))
        block = _count(labels.get("block_size", ""))
        stated = _count(labels.get("kv_cache_size_tokens", ""))
        tokens = stated or _count(labels.get("num_gpu_blocks", "")) * block
        off = labels.get("enable_prefix_caching", "").lower() == "false"
        found.append(PrefixCache(tokens=tokens or None, block=max(1, block), off=off))
    return min(found, key=lambda one: one.tokens or 0, default=PrefixCache())


def _sglang(client: HttpClient) -> PrefixCache:
    for name in ("get_server_info", "server_info"):
        reply = send_with_retries(client, "GET", f"{client.root_url}/{name}")
        page = decode_json(reply) if reply.status == 200 else None
        if page is not None:
            tokens = page.get("max_total_num_tokens")
            off = page.get("disable_radix_cache") is True
            return PrefixCache(tokens=tokens if type(tokens) is int and tokens > 0 else None, off=off)
    return PrefixCache()


def _count(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 16 else 0
