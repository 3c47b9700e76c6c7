"""Fake engines in place of the real ones, and a model's folder for them."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from support.rule_lm import VOCABULARY

TESTS = Path(__file__).parents[1]
PYTHONPATH = os.pathsep.join(map(str, (TESTS / "features" / "engines" / "fakes", TESTS)))
"""Where an engine's process finds the fakes, and what they import."""

CHAT = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def model_folder(folder: Path) -> Path:
    """A model's folder with everything but weights, which the fakes do not need."""
    words = {"<pad>": 0, "<s>": 1, "</s>": 2, "<|start|>": 3, "<|end|>": 4, "user": 5, "assistant": 6, "<unk>": 7}
    words |= {f"w{n}": n for n in range(8, VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<pad>", "<s>", "</s>", "<|start|>", "<|end|>"])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": CHAT}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "max_position_embeddings": 512}))
    return folder
