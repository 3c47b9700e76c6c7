"""How servers are started so that they read what is asked: the one place that knows their flags in words."""

from __future__ import annotations

from collections.abc import Mapping

_WINDOW_FLAGS: Mapping[str, tuple[str, str]] = {
    "vllm": ("vLLM", "--max-model-len"),
    "sglang": ("SGLang", "--context-length"),
    "llamacpp": ("llama.cpp", "--ctx-size"),
    "ollama": ("Ollama", "num_ctx"),
}
"""By kind of server: its name, and what sets the longest prompt that it accepts."""
STATE_HITS: Mapping[str, str] = {
    "vllm": "start vLLM with --enable-prompt-tokens-details",
    "sglang": "start SGLang with --enable-cache-report",
}
"""What makes a server say how many tokens came from its prefix cache."""
_GET_HITS: Mapping[str, str] = {
    "vllm": "start vLLM with --enable-prefix-caching and more memory for its cache (--gpu-memory-utilization, or "
    "VLLM_CPU_KVCACHE_SPACE)",
    "sglang": "start SGLang without --disable-radix-cache, or give its cache more memory (--mem-fraction-static)",
    "llamacpp": "start llama.cpp without --no-cache-prompt, and with --parallel 1 or a longer --ctx-size",
}
ENGINE_HITS = "give the engine more memory for keys and values (gpu_memory_utilization=), or ask with fewer --workers"
_HOSTED = "try cache_key=yes in the model's name; hosted servers cache no prompts below about 1,024 tokens"


def longer_context(kind: str, tokens: int) -> str:
    """`start the server with a longer context (--max-model-len 32768)`; no flag where the kind is not known."""
    flag = f" ({_WINDOW_FLAGS[kind][1]} {tokens})" if kind in _WINDOW_FLAGS else ""
    return f"start the server with a longer context{flag}"


def context_flags() -> str:
    """`vLLM --max-model-len, SGLang --context-length ...`, for a server whose kind is not known."""
    return ", ".join(f"{name} {flag}" for name, flag in _WINDOW_FLAGS.values())


def cache_advice(kind: str) -> str:
    """What makes a server keep the beginnings of prompts."""
    return _GET_HITS.get(kind, _HOSTED)
