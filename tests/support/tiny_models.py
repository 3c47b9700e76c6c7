"""Tiny random models of common architectures, and model folders for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

WORDS = 160
STOP = 2
CHAT = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)

_SIZES: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 512, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": STOP,
    "tie_word_embeddings": False,
}  # fmt: skip

ABSENT = object()
"""An option that the configuration does not have."""

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"num_key_value_heads": 2}),
    "qwen2": ("Qwen2Config", {"num_key_value_heads": 2}),
    "qwen3": ("Qwen3Config", {"num_key_value_heads": 2, "head_dim": 16}),
    "mistral": ("MistralConfig", {"num_key_value_heads": 2, "sliding_window": None}),
    "gemma": ("GemmaConfig", {"num_key_value_heads": 1, "head_dim": 16}),
    "phi": ("PhiConfig", {}),
    "phi3": ("Phi3Config", {"num_key_value_heads": 4}),
    "gpt_neox": ("GPTNeoXConfig", {}),
    "granite": ("GraniteConfig", {"num_key_value_heads": 2, "logits_scaling": 3.0, "attention_multiplier": 0.2}),
    "mixtral": ("MixtralConfig", {"num_key_value_heads": 2, "num_local_experts": 4}),
    "yarn": ("LlamaConfig", {"rope_parameters": {
        "rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 128}}),
}  # fmt: skip

WINDOWED: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma2": ("Gemma2Config", {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 24}),
    "gemma3": ("Gemma3TextConfig", {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 24}),
    "mistral_sliding": ("MistralConfig", {"num_key_value_heads": 2, "sliding_window": 40}),
}  # fmt: skip

ELSEWHERE: dict[str, tuple[str, dict[str, Any]]] = {
    "dynamic": ("LlamaConfig", {"max_position_embeddings": 64, "rope_parameters": {
        "rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}}),
}  # fmt: skip
"""Families that need the plain path, for some lengths or for all."""

_MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 8, "mamba_chunk_size": 16}
_DELTA = {
    "head_dim": 8, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "num_key_value_heads": 2, "layer_types": ["linear_attention", "full_attention"] * 2,
    "num_hidden_layers": 4,
}  # fmt: skip
_EXPERTS = {
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16
}  # fmt: skip

WITH_STATES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3_next": ("Qwen3NextConfig", {**_DELTA, **_EXPERTS}),
    "qwen3_5": ("Qwen3_5TextConfig", _DELTA),
    "falcon_h1": ("FalconH1Config", {**_MAMBA2, "mamba_d_ssm": 64, "head_dim": 8, "num_key_value_heads": 2}),
    "granite_hybrid": ("GraniteMoeHybridConfig", {
        **_MAMBA2, "layer_types": ["mamba", "attention", "mamba"], "num_hidden_layers": 3, "num_local_experts": 0,
        "num_key_value_heads": 2,
        "shared_intermediate_size": 48}),
    "nemotron_h": ("NemotronHConfig", {
        "layers_block_type": ["mamba", "moe", "attention", "mamba"], "num_hidden_layers": 4, "mamba_num_heads": 8,
        "mamba_head_dim": 8, "ssm_state_size": 8, "n_groups": 2, "chunk_size": 16, "head_dim": 8,
        "num_key_value_heads": 2, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "moe_shared_expert_intermediate_size": 16}),
    "mamba2": ("Mamba2Config", {
        "state_size": 4, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 16, "num_attention_heads": ABSENT,
        "intermediate_size": ABSENT, "max_position_embeddings": ABSENT}),
    "minimax": ("MiniMaxConfig", {
        "head_dim": 8, "block_size": 16, "num_local_experts": 4, "num_key_value_heads": 2, "num_hidden_layers": 4,
        "layer_types": ["full_attention", "linear_attention"] * 2}),
    "lfm2": ("Lfm2Config", {
        "layer_types": ["conv", "full_attention", "conv"], "num_hidden_layers": 3, "num_key_value_heads": 2}),
}  # fmt: skip
"""Families with recurrent, convolutional or linear layers, alone or between attention layers."""

_OLD_NAMES = dict.fromkeys(("num_attention_heads", "intermediate_size", "num_hidden_layers"), ABSENT)

OWN_CACHE: dict[str, tuple[str, dict[str, Any]]] = {
    "bloom": ("BloomConfig", {**_OLD_NAMES, "n_head": 4, "n_layer": 3, "max_position_embeddings": ABSENT}),
    "gptj": ("GPTJConfig", {**_OLD_NAMES, "n_embd": 32, "n_head": 4, "n_layer": 3, "rotary_dim": 4}),
    "rwkv": ("RwkvConfig", {"context_length": 512, "num_attention_heads": ABSENT}),
    "mamba": ("MambaConfig", {"state_size": 4, "num_attention_heads": ABSENT}),
}  # fmt: skip
"""Families whose attention is their own code, or whose states go on in another way."""


def tiny(family: str, **more: Any) -> Any:
    """A model with weights large enough that its answers vary."""
    name, extra = (FAMILIES | WINDOWED | ELSEWHERE | WITH_STATES | OWN_CACHE)[family]
    options = {key: value for key, value in {**_SIZES, **extra, **more}.items() if value is not ABSENT}
    config = getattr(transformers, name)(**options)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.25)
    return model


def random_ids(seed: int, count: int) -> npt.NDArray[np.int32]:
    return np.random.default_rng(seed).integers(8, WORDS, count).astype(np.int32)


def model_folder(folder: Path, family: str = "llama", *, chat: bool = True, **more: Any) -> Path:
    """A folder as transformers saves it: weights, configuration, tokenizer of words `w8 w9 ...`, chat template."""
    tiny(family, **more).save_pretrained(folder)
    words = {"<pad>": 0, "<s>": 1, "</s>": STOP, "<|start|>": 3, "<|end|>": 4, "user": 5, "assistant": 6, "<unk>": 7}
    words |= {f"w{i}": i for i in range(8, WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<pad>", "<s>", "</s>", "<|start|>", "<|end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "</s>"} | ({"chat_template": CHAT} if chat else {})
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder
