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

_ABSENT = object()
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
    "mamba": ("MambaConfig", {"state_size": 4, "num_attention_heads": _ABSENT}),
    "mamba2": ("Mamba2Config", {
        "state_size": 4, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 16, "num_attention_heads": _ABSENT,
        "intermediate_size": _ABSENT, "max_position_embeddings": _ABSENT}),
    "rwkv": ("RwkvConfig", {"context_length": 512, "num_attention_heads": _ABSENT}),
}  # fmt: skip
"""Families that need the plain path, for some lengths or for all."""


def tiny(family: str, **more: Any) -> Any:
    """A model with weights large enough that its answers vary."""
    name, extra = (FAMILIES | WINDOWED | ELSEWHERE)[family]
    options = {key: value for key, value in {**_SIZES, **extra, **more}.items() if value is not _ABSENT}
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
