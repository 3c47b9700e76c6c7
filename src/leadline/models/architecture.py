"""Sizes of an architecture at which reading may change, in tokens, as a configuration of transformers states them.

Up to a sliding window every layer reads everything; beyond the positions of the training a RoPE extension takes over;
a sparse index reads a fixed number of tokens. Powers of two alone rarely show what happens on either side.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_SIZES = {
    "attention_window_size": "attention window",
    "attention_chunk_size": "attention chunk",
    "index_topk": "sparse index (index_topk)",
}
_ROPE_TABLES = ("rope_scaling", "rope_parameters", "dual_chunk_attention_config")
_STRETCHED = ("linear", "dynamic")
"""Scalings whose configurations keep the positions of the training as `max_position_embeddings`."""


def architecture_constants(config: Mapping[str, Any]) -> dict[str, int]:
    """By what they are: the sizes that this configuration states and uses."""
    inner = config.get("text_config")
    values = {**config, **(inner if isinstance(inner, Mapping) else {})}
    constants: dict[str, int] = {}
    for name, size in _sizes(values):
        if type(size) is int and size > 0:
            constants.setdefault(name, size)
    return constants


def read_constants(folder: Path) -> dict[str, int]:
    """The constants of the folder's config.json; none where it cannot be read."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return architecture_constants(config) if isinstance(config, dict) else {}


def _sizes(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if _uses_sliding_window(values):
        yield "sliding window", values.get("sliding_window")
    for key, name in _SIZES.items():
        yield name, values.get(key)
    positions = values.get("max_position_embeddings")
    for table in _rope_tables(values):
        original, factor = table.get("original_max_position_embeddings"), table.get("factor")
        stretched = table.get("rope_type", table.get("type")) in _STRETCHED and factor not in (None, 1, 1.0)
        if original is None and stretched:
            original = positions
        yield "positions before the RoPE extension", original
        yield "chunk of dual chunk attention", table.get("chunk_size")
    original = values.get("original_max_position_embeddings")  # Phi-3 has it outside the table
    yield "positions before the RoPE extension", original if original != positions else None


def _uses_sliding_window(values: Mapping[str, Any]) -> bool:
    """Qwen states a window and switches it off; others list the layers that have one."""
    if values.get("use_sliding_window") is False:
        return False
    layers = values.get("layer_types")
    return not isinstance(layers, (list, tuple)) or "sliding_attention" in layers


def _rope_tables(values: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Each table of position settings; Gemma 3 has one for every type of layer."""
    for name in _ROPE_TABLES:
        table = values.get(name)
        if isinstance(table, Mapping):
            yield table
            yield from (inner for inner in table.values() if isinstance(inner, Mapping))
