"""Loading a causal model through transformers: a folder, a GGUF file or a hub name, with its tokenizer and window."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from leadline.core.errors import MissingExtra, SourceError, UsageError
from leadline.core.files import cache_folder, expand_path, warn_damaged
from leadline.core.seeds import digest, digest_bytes
from leadline.models.hf import HF, parse_rope, quiet_transformers, smollm2


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model in memory. `folder` holds its tokenizer.json and chat template."""

    model: Any
    folder: Path
    window: int | None
    revision: str
    dtype: str
    window_note: str = ""  # where the window is not the checkpoint's own


def load(name: str, options: HF) -> Loaded:
    """Load the model, ready to read. Every failure is an error with a fix."""
    folder, gguf, revision = _locate(name, options)
    source = {"gguf_file": gguf.name} if gguf else {}
    config = read_config(folder, name, options, source)
    device, dtype = _device_and_dtype(options, config, where=f"hf:{name}")
    model = _load_weights(folder, name, options, config, device, dtype, source)
    tokenizer_folder = _tokenizer_folder(folder, gguf, options.trust_remote_code)
    window, kind = window_of(config), str(dtype).removeprefix("torch.")
    note = "" if gguf else unnamed_window(folder, window)
    return Loaded(model, tokenizer_folder, window, revision, kind, note)


# --- files --------------------------------------------------------------------------------------


def _locate(name: str, options: HF) -> tuple[Path, Path | None, str]:
    """The model's folder, the GGUF file in it if one was named, and the revision that identifies the checkpoint."""
    if name == "smollm2":
        return smollm2.ensure_folder(), None, f"gguf:{smollm2.SHA256[:16]}"
    path = expand_path(name)
    if path.suffix == ".gguf":
        return path.parent, path, f"gguf:{_sampled_digest([path])}"
    if path.is_dir():
        return path, None, folder_fingerprint(path)
    unused = ["*.bin", "*.pth", "*.gguf", "original/*"]
    try:
        folder = Path(snapshot_download(name, revision=options.revision or None, ignore_patterns=unused))
    except Exception as error:  # the hub library's errors have no common class
        fix = "give a folder that holds the model, or check the name, the network and HF_TOKEN"
        what = f"could not download {name} from the hub: {_in_one_line(error)}"
        raise SourceError(what, where=f"hf:{name}", fix=fix) from None
    return folder, None, f"hub:{folder.name}"


def folder_fingerprint(folder: Path) -> str:
    """Identifies a checkpoint without reading all weights: its configuration, and samples of every weight file."""
    weights = sorted(p for p in folder.iterdir() if p.suffix in (".safetensors", ".bin"))
    config = folder / "config.json"
    return digest([digest_bytes(config.read_bytes()) if config.is_file() else "", _sampled_digest(weights)])


def _sampled_digest(files: list[Path]) -> str:
    """Of 16 samples of 16 KiB from each file, and its length."""
    samples, size = 16, 1 << 14
    parts = []
    for file in files:
        length = file.stat().st_size
        with file.open("rb") as opened:
            for i in range(samples):
                opened.seek(max(0, (length - size) * i // (samples - 1)))
                parts.append(digest_bytes(opened.read(size)))
        parts.append(f"{file.name}:{length}")
    return digest(parts)


# --- configuration ------------------------------------------------------------------------------


def without_weights(name: str) -> Path | None:
    """The folder, if it has a configuration and no file of weights."""
    folder = expand_path(name)
    if not (folder / "config.json").is_file():
        return None
    weights = {".safetensors", ".bin", ".gguf", ".pt", ".pth"}
    return None if any(weights & set(path.suffixes) for path in folder.iterdir()) else folder


def read_config(folder: Path, name: str, options: HF, source: Mapping[str, str] | None = None) -> Any:
    """The model's configuration, with the scaling of positions that the options ask for."""
    where, source = f"hf:{name}", source or {}
    if not source and not (folder / "config.json").is_file():
        files = ", ".join(sorted(p.name for p in folder.iterdir())[:6]) or "nothing"
        fix = f"give the folder that transformers saved; this one holds {files}"
        raise SourceError(f"{folder} has no config.json", where=where, fix=fix)
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=options.trust_remote_code, **source)
    except Exception as error:  # transformers checks little of what it reads
        fix = "repair config.json, or get the checkpoint again"
        if "trust_remote_code" in str(error):
            fix = "add trust_remote_code=true if you trust its code"
        elif "does not recognize this architecture" in str(error):
            fix = "upgrade transformers, or serve the model with an engine that knows it and use openai:"
        raise SourceError(f"its config.json is not usable: {_in_one_line(error)}", where=where, fix=fix) from None
    if options.rope:
        _scale_positions(config.get_text_config(), options.rope, where)
    return config


def _scale_positions(config: Any, rope: str, where: str) -> None:
    """Write the scaling into the configuration. `ntk` raises the base so that the lowest frequency is interpolated by
    the factor and the highest is kept; `theta` sets the base. The window grows with the factor, not with the base."""
    kind, value = parse_rope(rope)
    old = dict(getattr(config, "rope_parameters", None) or {})
    if not old or any(isinstance(v, dict) for v in old.values()):
        raise UsageError("this model has no single rotary embedding to scale", where=where, fix="leave out rope=")
    original = int(old.get("original_max_position_embeddings") or config.max_position_embeddings)
    partial, theta = old.get("partial_rotary_factor"), float(old.get("rope_theta", 10000.0))
    new = {"rope_type": kind, "factor": value, "rope_theta": theta}
    if kind == "yarn":
        new["original_max_position_embeddings"] = original
    if kind in ("ntk", "theta"):
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        rotated = int(width * (partial or 1.0))
        base = value if kind == "theta" else theta * value ** (rotated / (rotated - 2))
        new = {"rope_type": "default", "rope_theta": base}
    if partial is not None:
        new["partial_rotary_factor"] = partial
    config.max_position_embeddings = original  # dynamic scaling compares the length with this
    if kind == "ntk":
        config.max_position_embeddings = int(original * value)
    config.rope_parameters = new


_WINDOW_NAMES = (
    "max_position_embeddings", "n_positions", "context_length", "max_sequence_length", "seq_length", "max_seq_len"
)  # fmt: skip


def unnamed_window(folder: Path, window: int | None) -> str:
    """A note where config.json does not name the window and transformers' default is used; empty elsewhere."""
    try:
        values = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return ""
    named = {**values, **(values.get("text_config") or {})}
    if window is None or any(named.get(name) for name in _WINDOW_NAMES):
        return ""
    return f"config.json names no window: transformers' default of {window} tokens"


def window_of(config: Any) -> int | None:
    """The context window, position scaling included."""
    text = config.get_text_config()
    window = next((int(size) for name in _WINDOW_NAMES if (size := getattr(text, name, None))), None)
    rope = getattr(text, "rope_parameters", None) or {}
    if window and rope.get("rope_type") in ("linear", "dynamic", "yarn") and rope.get("factor"):
        return max(window, int((rope.get("original_max_position_embeddings") or window) * rope["factor"]))
    return window


# --- weights ------------------------------------------------------------------------------------


def _device_and_dtype(options: HF, config: Any, where: str) -> tuple[str, torch.dtype]:
    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise UsageError(f"there is no device {device!r}", where=where, fix="write cpu, cuda or cuda:0") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise UsageError("this machine has no CUDA device that torch can use", where=where, fix="write device=cpu")
    dtype = getattr(torch, options.dtype, None)
    if dtype is None:
        own = getattr(config.get_text_config(), "dtype", None) or getattr(config, "dtype", None)
        half = own if own in (torch.bfloat16, torch.float16, torch.float32) else torch.bfloat16
        dtype = torch.float32 if kind == "cpu" else half
    if kind == "cuda" and dtype is torch.bfloat16 and not torch.cuda.is_bf16_supported():
        raise UsageError("this GPU has no bfloat16", where=where, fix="write dtype=float16 or dtype=float32")
    return device, dtype


def _load_weights(
    folder: Path, name: str, options: HF, config: Any, device: str, dtype: torch.dtype, source: dict[str, str]
) -> Any:
    where = f"hf:{name}"
    placement = {"device_map": options.device_map} if options.device_map else {}
    if options.attn:
        placement["attn_implementation"] = options.attn
    try:
        with quiet_transformers():
            model, loaded = AutoModelForCausalLM.from_pretrained(
                folder, config=config, dtype=dtype, trust_remote_code=options.trust_remote_code,
                output_loading_info=True, **source, **placement,
            )  # fmt: skip
    except ImportError as error:
        missing = "gguf" if source else "accelerate" if placement else "a package its code needs"
        raise MissingExtra(f"{missing} ({_in_one_line(error)})", "hf", where=where) from None
    except Exception as error:  # damaged files raise many kinds of exception
        _reraise_out_of_memory(error, where)
        fix = "check that the folder holds all *.safetensors files of one causal language model"
        raise SourceError(f"its weights could not be read: {_in_one_line(error)}", where=where, fix=fix) from None
    if absent := sorted(loaded["missing_keys"]):  # transformers would answer with random numbers in their place
        what = f"{len(absent)} tensors of the model are not in its weights, such as {absent[0]}"
        raise SourceError(
            what, where=where, fix="check that config.json belongs to these weights, and all files are there"
        )
    try:
        return (model if options.device_map else model.to(device)).eval()
    except RuntimeError as error:
        _reraise_out_of_memory(error, where)
        raise SourceError(f"it could not be put on {device}: {_in_one_line(error)}", where=where) from None


def _reraise_out_of_memory(error: Exception, where: str) -> None:
    if isinstance(error, torch.OutOfMemoryError):
        fix = "spread it with device_map=auto, or use a server model (openai:)"
        raise SourceError(
            f"the weights do not fit on the device: {_in_one_line(error)}", where=where, fix=fix
        ) from None


# --- tokenizer ----------------------------------------------------------------------------------


def _tokenizer_folder(folder: Path, gguf: Path | None, trust_remote_code: bool) -> Path:
    """A folder with tokenizer.json: the model's own, or one converted from its slow or GGUF tokenizer and cached."""
    if gguf is None and (folder / "tokenizer.json").is_file():
        return folder
    origin = _sampled_digest([gguf] if gguf else sorted(p for p in folder.iterdir() if "token" in p.name))
    kept = cache_folder() / "tokenizers" / f"{(gguf or folder).stem}-{origin}"
    problem = smollm2.damage_in(kept, ("tokenizer.json",))
    if not problem:
        return kept
    if kept.exists():
        warn_damaged(kept, problem)
    source = {"gguf_file": gguf.name} if gguf else {}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code, **source)
        with smollm2.written_whole(kept, ("tokenizer.json",)) as folder_in_work:
            tokenizer.save_pretrained(folder_in_work)
            if not (folder_in_work / "tokenizer.json").is_file():
                raise ValueError("transformers has no fast tokenizer for it")
    except Exception as error:  # conversion fails with many kinds of exception
        fix = "put a tokenizer.json beside the weights, or give tokenizer=FOLDER"
        raise SourceError(f"it has no usable tokenizer: {_in_one_line(error)}", where=str(folder), fix=fix) from None
    return kept


def stop_tokens(model: Any, folder: Path) -> list[int]:
    """End-of-text ids from the model's configuration files."""
    configs = (model.generation_config, model.config, model.config.get_text_config())
    ends = [getattr(config, "eos_token_id", None) for config in configs]
    saved = folder / "generation_config.json"
    try:
        if saved.is_file():
            ends.append(json.loads(saved.read_text()).get("eos_token_id"))
        return sorted({int(i) for ids in ends for i in ([ids] if isinstance(ids, int) else ids or [])})
    except (ValueError, TypeError, AttributeError, OSError) as error:
        what = f"its end-of-text tokens could not be read: {_in_one_line(error)}"
        raise SourceError(what, where=str(saved), fix="repair eos_token_id in it, or delete the file") from None


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
