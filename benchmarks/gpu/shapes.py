"""Models of known shapes with random weights, and grids of probes over random documents: speed needs no training."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GptOssConfig,
    GraniteMoeHybridConfig,
    LlamaConfig,
    Qwen3NextConfig,
)

LENGTHS = tuple(1024 * 2**i for i in range(8))
DEPTHS = 11
CLOSING, NEW = 40, 16
"""Tokens of a question with its template, and of an answer."""

VOCABULARY = 100000
"""Token ids of documents are below this: every shape has that many."""

Ids = npt.NDArray[np.int32]


def config_8b() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, max_position_embeddings=131072, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        bos_token_id=128000, eos_token_id=128001, pad_token_id=128001,
    )  # fmt: skip


def config_gemma_4b() -> Gemma3TextConfig:
    """Gemma 3 4B: 5 of 6 layers with a window of 1,024."""
    return Gemma3TextConfig(
        vocab_size=262208, hidden_size=2560, intermediate_size=10240, num_hidden_layers=34, num_attention_heads=8,
        num_key_value_heads=4, head_dim=256, query_pre_attn_scalar=256, sliding_window=1024,
        max_position_embeddings=131072, tie_word_embeddings=True,
        layer_types=["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(34)],
    )  # fmt: skip


def config_gpt_oss_20b() -> GptOssConfig:
    """gpt-oss 20B: every other layer with a window of 128, attention sinks, 4 of 32 experts."""
    return GptOssConfig(
        vocab_size=201088, hidden_size=2880, intermediate_size=2880, num_hidden_layers=24, num_attention_heads=64,
        num_key_value_heads=8, head_dim=64, sliding_window=128, num_local_experts=32, num_experts_per_tok=4,
        max_position_embeddings=131072, tie_word_embeddings=False,
        layer_types=["full_attention" if i % 2 else "sliding_attention" for i in range(24)],
    )  # fmt: skip


def config_qwen3_next() -> Qwen3NextConfig:
    """Qwen 3 Next 80B-A3B with 12 of its 48 layers and 128 of its 512 experts: 3 of 4 layers are linear attention."""
    return Qwen3NextConfig(
        vocab_size=151936, hidden_size=2048, intermediate_size=5120, num_hidden_layers=12, num_attention_heads=16,
        num_key_value_heads=2, head_dim=256, num_experts=128, num_experts_per_tok=10, moe_intermediate_size=512,
        shared_expert_intermediate_size=512, max_position_embeddings=262144, tie_word_embeddings=False,
        linear_num_value_heads=32, linear_num_key_heads=16, linear_key_head_dim=128, linear_value_head_dim=128,
        layer_types=["full_attention" if i % 4 == 3 else "linear_attention" for i in range(12)],
    )  # fmt: skip


def config_granite_hybrid() -> GraniteMoeHybridConfig:
    """Granite 4.0 H Micro: 36 of 40 layers are Mamba 2."""
    return GraniteMoeHybridConfig(
        vocab_size=100352, hidden_size=2048, intermediate_size=8192, shared_intermediate_size=8192,
        num_hidden_layers=40, num_attention_heads=32, num_key_value_heads=8, num_local_experts=0,
        num_experts_per_tok=0, mamba_n_heads=64, mamba_d_head=64, mamba_d_state=128, mamba_n_groups=1,
        mamba_chunk_size=256, max_position_embeddings=131072, tie_word_embeddings=True, position_embedding_type=None,
        layer_types=["attention" if i in (5, 15, 25, 35) else "mamba" for i in range(40)],
    )  # fmt: skip


SHAPES = {
    "llama-8b": config_8b, "gemma-3-4b": config_gemma_4b, "gpt-oss-20b": config_gpt_oss_20b,
    "qwen3-next": config_qwen3_next, "granite-4-h": config_granite_hybrid,
}  # fmt: skip


_TINY: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "shared_intermediate_size": 96, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 64, "num_experts": 8,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "linear_num_value_heads": 4,
    "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "mamba_n_heads": 8,
    "mamba_d_head": 16, "mamba_d_state": 16, "vocab_size": 1000, "bos_token_id": 1, "eos_token_id": 1,
    "pad_token_id": 1,
}  # fmt: skip
"""Sizes for a trial of the benchmarks themselves, on a CPU."""


def config_of(shape: str, *, tiny: bool = False) -> Any:
    config = SHAPES[shape]()
    if not tiny:
        return config
    values = {key: value for key, value in config.to_dict().items() if key != "model_type"}
    values |= {key: value for key, value in _TINY.items() if values.get(key)}
    if values.get("layer_types"):
        values["layer_types"] = values["layer_types"][: _TINY["num_hidden_layers"]]
    if values.get("num_local_experts"):
        values["num_local_experts"] = 8
    if values.get("num_experts_per_tok"):
        values["num_experts_per_tok"] = 2
    return type(config)(**values)


def model_of(shape: str, device: str = "cuda", like: Any = None, *, tiny: bool = False) -> Any:
    """In bfloat16, or in float32 with the very weights of `like`."""
    torch.manual_seed(0)
    with torch.device(device):
        dtype = torch.bfloat16 if like is None else torch.float32
        model = AutoModelForCausalLM.from_config(config_of(shape, tiny=tiny), dtype=dtype).eval()
    if like is not None:
        model.load_state_dict(like.state_dict())
    return model


def document(seed: int, tokens: int = LENGTHS[-1]) -> Ids:
    return np.random.default_rng(seed).integers(10, VOCABULARY, tokens).astype(np.int32)


def closings(seed: int, count: int) -> list[Ids]:
    draw = np.random.default_rng(seed)
    return [draw.integers(10, VOCABULARY, CLOSING + int(draw.integers(-3, 4))).astype(np.int32) for _ in range(count)]


def cuts(lengths: tuple[int, ...], ends: list[Ids]) -> list[int]:
    """One cut per closing, lengths in turn, so that prompt and answer together are exactly the length."""
    per = len(ends) // len(lengths)
    return [lengths[i // per] - NEW - len(end) for i, end in enumerate(ends)]
