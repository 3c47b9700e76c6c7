"""Tiny float32 models of current architectures: what the contract of `hf:` models is tested with.

Windows are shorter than the test's documents, and layers are of several kinds where the architecture mixes them.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import torch
import transformers

from support.tiny_models import ABSENT, OWN_CACHE, STOP, WITH_STATES, WORDS

_SIZES: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": STOP, "tie_word_embeddings": False,
}  # fmt: skip
_EXPERTS = {"moe_intermediate_size": 16, "num_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2}
_SLIDING = {"sliding_window": 23, "layer_types": ["sliding_attention", "full_attention"]}

ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    # full attention
    "llama": ("LlamaConfig", {}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 16}),
    "qwen3_moe": ("Qwen3MoeConfig", {**_EXPERTS, "head_dim": 8}),
    "deepseek_v3": ("DeepseekV3Config", {
        **_EXPERTS, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8, "v_head_dim": 12, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}),
    "glm4": ("Glm4Config", {"head_dim": 8}),
    "glm4_moe": ("Glm4MoeConfig", {
        **_EXPERTS, "head_dim": 8, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}),
    "smollm3": ("SmolLM3Config", {"no_rope_layers": [1, 0]}),
    "phi3": ("Phi3Config", {}),
    "ernie4_5": ("Ernie4_5Config", {"head_dim": 8}),
    "seed_oss": ("SeedOssConfig", {"head_dim": 8}),
    "hunyuan": ("HunYuanDenseV1Config", {"head_dim": 8}),
    "gpt2": ("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 48, "n_positions": 512}),
    "opt": ("OPTConfig", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    # windows, capped scores, sinks, chunks
    "gemma3": ("Gemma3TextConfig", {**_SLIDING, "head_dim": 8}),
    "mistral": ("MistralConfig", {"sliding_window": 40}),
    "afmoe": ("AfmoeConfig", {**_EXPERTS, **_SLIDING, "head_dim": 8, "num_dense_layers": 1}),
    "olmo3": ("Olmo3Config", _SLIDING),
    "cohere2": ("Cohere2Config", _SLIDING),
    "exaone4": ("Exaone4Config", _SLIDING),
    "gemma2": ("Gemma2Config", {**_SLIDING, "head_dim": 8, "attn_logit_softcapping": 2.0}),
    "gpt_oss": ("GptOssConfig", {
        **_SLIDING, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
    "llama4": ("Llama4TextConfig", {
        "head_dim": 8, "attention_chunk_size": 40, "no_rope_layers": [1, 0], "intermediate_size_mlp": 48,
        "layer_types": ["chunked_attention", "full_attention"], "num_local_experts": 4, "floor_scale": 32,
        "interleave_moe_layer_step": 2}),
    # recurrent, convolutional and linear layers; attention of their own
    **WITH_STATES,
    **OWN_CACHE,
}  # fmt: skip


@cache
def architecture(name: str) -> Any:
    """One model per architecture and process, with weights large enough that its answers vary."""
    config_name, extra = ARCHITECTURES[name]
    return _model(config_name, {**_SIZES, **extra})


def in_bfloat16(name: str) -> Any:
    return copy.deepcopy(architecture(name)).to(torch.bfloat16)


def with_many_experts(name: str) -> Any:
    """Eight layers with 64 experts each, in bfloat16: rounding makes the routers choose other experts."""
    config_name, extra = {**ARCHITECTURES, "mixtral": ("MixtralConfig", {"num_local_experts": 64})}[name]
    options = {**_SIZES, **extra, "num_hidden_layers": 8, "hidden_size": 64, "num_experts_per_tok": 4}
    options |= {key: 64 for key in ("num_experts", "n_routed_experts", "num_local_experts") if key in extra}
    if "layer_types" in options:
        options["layer_types"] = list(options["layer_types"]) * 4
    return _model(config_name, options).to(torch.bfloat16)


def _model(config_name: str, options: dict[str, Any]) -> Any:
    options = {key: value for key, value in options.items() if value is not ABSENT}
    config = getattr(transformers, config_name)(**options)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.25)
            elif not parameter.any():
                parameter.normal_(0, 0.1)  # biases
    return model
