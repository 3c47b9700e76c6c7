"""SmolLM2-135M-Instruct as an ordinary model folder, made once from its GGUF file.

Weights are the file's own, dequantised to float32, so that no second rounding comes on top of the quantisation. The
tokenizer is written from the file's vocabulary and merges with the model's own pre-tokenizer: every digit is a token,
then GPT-2's byte-level pattern (the file names it `smollm`). The chat template is the one in the file: ChatML, with a
default system prompt.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from leadline.core.errors import MissingExtra
from leadline.models.in_process.load import quiet_transformers, require_torch

_CONTROL = 3
"""GGUF's mark of a token that stands for a marker, not for text."""


def convert(gguf: Path, folder: Path) -> Path:
    """The folder, whole or not at all."""
    require_torch("SmolLM2-135M-Instruct")
    try:
        from gguf import GGUFReader
    except ImportError:
        raise MissingExtra("gguf", "hf", where="SmolLM2-135M-Instruct") from None
    fields = GGUFReader(gguf).fields
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        _write_tokenizer(fields, made)
        _write_weights(gguf, made)
        made.rename(folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return folder


def _write_tokenizer(fields: dict[str, Any], folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = fields["tokenizer.ggml.tokens"].contents()
    kinds: list[int] = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    markers = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(marker, special=True, normalized=False) for marker in markers])
    tokenizer.save(str(folder / "tokenizer.json"))
    roles = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    named = {name: tokens[fields[f"tokenizer.ggml.{key}_token_id"].contents()] for name, key in roles.items()}
    settings = {
        **named,
        "add_bos_token": False,
        "chat_template": fields["tokenizer.chat_template"].contents(),
        # Not GPT2Tokenizer, which would put its own way of splitting text in place of the file's.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": fields["llama.context_length"].contents(),
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def _write_weights(gguf: Path, folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    with quiet_transformers():
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # Not save_pretrained: it refuses a model that came from a quantised file, though its weights are plain by now.
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    left_out = ("quantization_config", "_name_or_path", "_model_name_or_path")
    config = {key: value for key, value in model.config.to_dict().items() if key not in left_out}
    config |= {"architectures": ["LlamaForCausalLM"], "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config, indent=1, default=str))
