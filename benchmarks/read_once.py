"""Reading once against one `generate` per probe, on a CPU, for small models of several architectures.

    PYTHONPATH=src python benchmarks/read_once.py                  every shape (some minutes on two busy cores)
    PYTHONPATH=src python benchmarks/read_once.py gemma3 gpt_oss   some of them

Random weights in float32; a nested grid of 4 lengths to 4k x 5 depths, 8 new tokens a probe. The plain loop is timed
once per length and multiplied by the 5 probes of that length; reading once is whole. Times are CPU seconds of one
thread, which other programs on the machine change little. "tokens" is the number of token positions that the model
computes. Answers of the plain loop's own probes are compared.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import torch
import transformers

from leadline.models.hf.decode import Generated, generate_plain
from leadline.models.hf.engine import Engine, EngineRequest

LENGTHS, DEPTHS, NEW, CLOSING = (512, 1024, 2048, 4096), 5, 8, 32
_SIZES: dict[str, Any] = {
    "vocab_size": 2048, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 8192, "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
_FIVE_OF_SIX = ["full_attention" if i == 5 else "sliding_attention" for i in range(6)]
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "gemma3": ("Gemma3TextConfig", {"sliding_window": 512, "layer_types": _FIVE_OF_SIX}),
    "gpt_oss": ("GptOssConfig", {
        "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 3, "num_local_experts": 8,
        "num_experts_per_tok": 2, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
    "llama4": ("Llama4TextConfig", {
        "attention_chunk_size": 1024, "intermediate_size_mlp": 768, "num_local_experts": 4,
        "interleave_moe_layer_step": 7}),
    "qwen3_next": ("Qwen3NextConfig", {
        "layer_types": ["linear_attention", "linear_attention", "full_attention"] * 2, "num_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 256, "shared_expert_intermediate_size": 256,
        "linear_num_value_heads": 8, "linear_num_key_heads": 4, "linear_key_head_dim": 32,
        "linear_value_head_dim": 32}),
    "granite_hybrid": ("GraniteMoeHybridConfig", {
        "layer_types": ["mamba", "mamba", "attention"] * 2, "num_local_experts": 0, "shared_intermediate_size": 768,
        "mamba_n_heads": 16, "mamba_d_head": 32, "mamba_n_groups": 1, "mamba_d_state": 32, "mamba_chunk_size": 128}),
    "bloom": ("BloomConfig", {"n_head": 8, "n_layer": 6}),
}  # fmt: skip


def model_of(name: str) -> Any:
    torch.manual_seed(0)
    config_name, extra = SHAPES[name]
    config = getattr(transformers, config_name)(**{**_SIZES, **extra})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.06)  # so that answers vary
    return model


def measure(name: str) -> str:
    draw = np.random.default_rng(0)
    document = draw.integers(8, 2048, LENGTHS[-1]).astype(np.int32)
    closings = [draw.integers(8, 2048, CLOSING).astype(np.int32) for _ in range(len(LENGTHS) * DEPTHS)]
    requests = [EngineRequest(LENGTHS[i // DEPTHS] - NEW - CLOSING, closing, NEW) for i, closing in enumerate(closings)]
    engine = Engine(model_of(name), [])
    engine.answer(document[:200], [EngineRequest(200, closings[0], 2)])  # warms up
    engine.close()
    plain, seconds, answers = 0.0, 0.0, []
    for length in range(len(LENGTHS)):
        request = requests[length * DEPTHS]
        spent, answer = clock(engine.model, np.concatenate([document[: request.cut], request.closing]))
        plain += spent * DEPTHS
        answers.append(answer)
        if length == len(LENGTHS) // 2:
            begin = time.process_time()
            told = engine.answer(document, requests)
            seconds = time.process_time() - begin
            engine.close()
    same = sum(told[i * DEPTHS].answer == answer for i, answer in enumerate(answers))
    shared_tokens = max(request.cut for request in requests) + len(requests) * (CLOSING + NEW)
    plain_tokens = sum(request.tokens for request in requests)
    way = engine.support.way or engine.support.reason or "the reader's attention"
    return (
        f"| {name} | {plain:.1f} CPU s | {seconds:.1f} CPU s | {plain / seconds:.1f} | "
        f"{plain_tokens / shared_tokens:.1f} | {same} of {len(answers)} | {way} |"
    )


def clock(model: Any, prompt: Any) -> tuple[float, Generated]:
    begin = time.process_time()
    answer = generate_plain(model, prompt, NEW, [])
    return time.process_time() - begin, answer


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("| shape | plain loop | read once | times faster | times fewer tokens | same answers | read by |")
    print("|---|---|---|---|---|---|---|")
    for shape in sys.argv[1:] or SHAPES:
        print(measure(shape), flush=True)
