"""Token counts under every name that servers give them, and what they say about their cache."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.core.contracts import PrefixCache
from leadline.models.openai.discovery import parse_vllm_metrics
from leadline.models.openai.replies import token_counts

# name of the server: reply, counts
SHAPES: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "OpenAI": (
        {
            "usage": {
                "prompt_tokens": 2006,
                "completion_tokens": 300,
                "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 128},
            }
        },
        {"prompt_tokens": 2006, "completion_tokens": 300, "cached_tokens": 1920, "thinking_tokens": 128},
    ),
    "OpenAI responses": (
        {"usage": {"input_tokens": 75, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 64}}},
        {"prompt_tokens": 75, "completion_tokens": 9, "cached_tokens": 64},
    ),
    "vLLM": (
        {"usage": {"prompt_tokens": 36, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 32}}},
        {"prompt_tokens": 36, "completion_tokens": 4, "cached_tokens": 32},
    ),
    "vLLM without its flag": (
        {"usage": {"prompt_tokens": 36, "completion_tokens": 4, "prompt_tokens_details": None}},
        {"prompt_tokens": 36, "completion_tokens": 4},
    ),
    "SGLang": (
        {
            "usage": {
                "prompt_tokens": 90,
                "completion_tokens": 7,
                "reasoning_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 88},
            }
        },
        {"prompt_tokens": 90, "completion_tokens": 7, "cached_tokens": 88, "thinking_tokens": 5},
    ),
    "llama.cpp": (
        {"usage": {"prompt_tokens": 50, "completion_tokens": 2}, "timings": {"cache_n": 41, "prompt_n": 9}},
        {"prompt_tokens": 50, "completion_tokens": 2, "cached_tokens": 41},
    ),
    "llama.cpp's own API": (
        {"usage": {"prompt_tokens": 50, "completion_tokens": 2}, "tokens_cached": 41},
        {"prompt_tokens": 50, "completion_tokens": 2, "cached_tokens": 41},
    ),
    "llama.cpp, the answer counted too": (
        {"usage": {"prompt_tokens": 50, "completion_tokens": 2}, "tokens_cached": 51},
        {"prompt_tokens": 50, "completion_tokens": 2},
    ),
    "Anthropic": (
        {
            "usage": {
                "input_tokens": 12,
                "output_tokens": 5,
                "cache_read_input_tokens": 2000,
                "cache_creation_input_tokens": 100,
            }
        },
        {"prompt_tokens": 2112, "completion_tokens": 5, "cached_tokens": 2000, "cache_write_tokens": 100},
    ),
    "Anthropic, by lifetime": (
        {
            "usage": {
                "prompt_tokens": 400,
                "completion_tokens": 5,
                "cache_read_input_tokens": 0,
                "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 40},
            }
        },
        {"prompt_tokens": 400, "completion_tokens": 5, "cached_tokens": 0, "cache_write_tokens": 140},
    ),
    "Gemini": (
        {
            "usageMetadata": {
                "promptTokenCount": 4000,
                "candidatesTokenCount": 10,
                "thoughtsTokenCount": 90,
                "cachedContentTokenCount": 3900,
            }
        },
        {"prompt_tokens": 4000, "completion_tokens": 100, "cached_tokens": 3900, "thinking_tokens": 90},
    ),
    "DeepSeek": (
        {"usage": {"prompt_tokens": 70, "completion_tokens": 3, "prompt_cache_hit_tokens": 64}},
        {"prompt_tokens": 70, "completion_tokens": 3, "cached_tokens": 64},
    ),
    "Moonshot": (
        {"usage": {"prompt_tokens": 70, "completion_tokens": 3, "cached_tokens": 64}},
        {"prompt_tokens": 70, "completion_tokens": 3, "cached_tokens": 64},
    ),
    "OpenRouter": (
        {
            "usage": {
                "prompt_tokens": 70,
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 64},
            }
        },
        {"prompt_tokens": 70, "completion_tokens": 3, "cached_tokens": 0, "cache_write_tokens": 64},
    ),
    "nothing": ({}, {}),
    "nonsense": (
        {"usage": {"prompt_tokens": "many", "completion_tokens": True, "cached_tokens": -1}, "timings": [1]},
        {},
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_name_of_a_count_is_read(name: str) -> None:
    reply, counts = SHAPES[name]
    assert token_counts(reply) == counts


def test_vllm_states_the_tokens_of_its_cache_and_of_several_engines_the_smallest_counts() -> None:
    line = 'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{}",cache_dtype="a\\"b",engine="{}"}} 1.0\n'
    text = "# HELP x\n" + line.format(661, 0) + line.format(600, 1) + "vllm:num_requests_running 0\n"
    assert parse_vllm_metrics(text) == PrefixCache(tokens=9600, block=16)
    assert parse_vllm_metrics("nothing here") == PrefixCache()
    assert parse_vllm_metrics('vllm:cache_config_info{num_gpu_blocks="None",enable_prefix_caching="False"} 1') == (
        PrefixCache(off=True)
    )
