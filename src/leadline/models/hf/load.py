"""Loading a causal model through transformers: a folder, a GGUF file or a hub name, with its tokenizer and window."""

from __future__ import annotations

import io
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from leadline.core.cache import cache_folder
from leadline.core.digest import digest, digest_bytes
from leadline.core.errors import MissingExtra, SourceError, UsageError

if TYPE_CHECKING:
    import torch

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
DTYPES: dict[str, Dtype] = {
    "auto": "auto", "float32": "float32", "fp32": "float32", "bfloat16": "bfloat16", "bf16": "bfloat16",
    "float16": "float16", "fp16": "float16",
}  # fmt: skip
ROPES = ("linear", "dynamic", "yarn")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to load, and how."""

    name: str
    dtype: Dtype = "auto"
    device: str = "auto"
    device_map: str = ""
    revision: str = ""
    rope: str = ""
    attn: str = ""
    trust_remote_code: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model in memory. `folder` holds its tokenizer.json and chat template."""

    model: Any
    folder: Path
    window: int | None
    revision: str
    dtype: str


def require_torch(where: str) -> None:
    for package in ("torch", "transformers"):
        try:
            __import__(package)
        except ImportError:
            raise MissingExtra(package, "hf", where=where) from None


def load(wanted: Wanted) -> Loaded:
    """The model, ready to read. Every way this can go wrong is an error that says what to do."""
    where = f"hf:{wanted.name}"
    require_torch(where)
    folder, gguf, revision = _locate(wanted)
    source = {"gguf_file": gguf.name} if gguf else {}
    config = _configure(folder, wanted, source)
    device, dtype = _place(wanted, config, where)
    model = _read_weights(folder, wanted, config, device, dtype, source)
    tokenizer_folder = _with_tokenizer(folder, gguf, wanted.trust_remote_code)
    return Loaded(model, tokenizer_folder, window_of(config), revision, str(dtype).removeprefix("torch."))


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No bars and no chatter: what matters is said in our own words. (GGUF's bar goes straight to stderr.)"""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with redirect_stderr(io.StringIO()):
        yield


# --- where it is --------------------------------------------------------------------------------


def refuse_missing(name: str) -> None:
    """A name that can only be a place of this machine, and is none: said at once, before torch has come in."""
    path = Path(name).expanduser()
    if name == "smollm2" or path.is_dir():
        return
    if path.suffix == ".gguf":
        if not path.is_file():
            raise SourceError(f"there is no file {path}", where=f"hf:{name}")
    elif name.startswith(("/", ".", "~")) or name.count("/") != 1:
        raise SourceError(
            f"there is no model folder {path}",
            where=f"hf:{name}",
            fix="give a folder with config.json and safetensors, a .gguf file, or a hub name like org/model",
        )


def _locate(wanted: Wanted) -> tuple[Path, Path | None, str]:
    """The folder, the GGUF file in it if that is what was named, and what tells this checkpoint from another."""
    refuse_missing(wanted.name)
    if wanted.name == "smollm2":
        from leadline.models.hf import smollm2

        return smollm2.ensure_folder(), None, f"gguf:{smollm2.SHA256[:16]}"
    path = Path(wanted.name).expanduser()
    if path.suffix == ".gguf":
        return path.parent, path, f"gguf:{_sampled_digest([path])}"
    if path.is_dir():
        return path, None, folder_fingerprint(path)
    folder = _download(wanted)
    return folder, None, f"hub:{folder.name}"


def _download(wanted: Wanted) -> Path:
    from huggingface_hub import snapshot_download

    try:
        found = snapshot_download(
            wanted.name, revision=wanted.revision or None, ignore_patterns=["*.bin", "*.pth", "*.gguf", "original/*"]
        )
    except Exception as error:  # the hub library's errors have no common class
        raise SourceError(
            f"could not get {wanted.name} from the hub: {_first_line(error)}",
            where=f"hf:{wanted.name}",
            fix="give a folder that holds the model, or check the name, the network and HF_TOKEN",
        ) from None
    return Path(found)


def folder_fingerprint(folder: Path) -> str:
    """Tells checkpoints apart without reading all of their weights: configuration, and samples of every weight file."""
    weights = sorted(p for p in folder.iterdir() if p.suffix in (".safetensors", ".bin"))
    config = folder / "config.json"
    return digest([digest_bytes(config.read_bytes()) if config.is_file() else "", _sampled_digest(weights)])


def _sampled_digest(files: list[Path], *, places: int = 16, size: int = 1 << 14) -> str:
    parts = []
    for file in files:
        length = file.stat().st_size
        with file.open("rb") as opened:
            for i in range(places):
                opened.seek(max(0, (length - size) * i // (places - 1)))
                parts.append(digest_bytes(opened.read(size)))
        parts.append(f"{file.name}:{length}")
    return digest(parts)


# --- configuration ------------------------------------------------------------------------------


def _configure(folder: Path, wanted: Wanted, source: dict[str, str]) -> Any:
    from transformers import AutoConfig

    where = f"hf:{wanted.name}"
    if not source and not (folder / "config.json").is_file():
        files = sorted(p.name for p in folder.iterdir())[:6]
        raise SourceError(
            f"{folder} has no config.json",
            where=where,
            fix=f"give the folder that transformers saved; this one holds {', '.join(files) or 'nothing'}",
        )
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=wanted.trust_remote_code, **source)
    except (OSError, ValueError, KeyError) as error:
        hint = "add trust_remote_code=true if you trust its code" if "trust_remote_code" in str(error) else ""
        raise SourceError(f"its config.json is not usable: {_first_line(error)}", where=where, fix=hint) from None
    if wanted.rope:
        _stretch(config.get_text_config(), wanted.rope, where)
    return config


def parse_rope(text: str) -> tuple[str, float]:
    """`yarn:4` as ("yarn", 4.0)."""
    match = re.fullmatch(rf"({'|'.join(ROPES)}):(\d+(?:\.\d+)?)", text)
    if not match or float(match[2]) < 1:
        raise UsageError(f"rope={text!r} is not understood", where="model", fix="write linear:2, dynamic:2 or yarn:4")
    return match[1], float(match[2])


def _stretch(config: Any, rope: str, where: str) -> None:
    kind, factor = parse_rope(rope)
    old = dict(getattr(config, "rope_parameters", None) or {})
    if not old or any(isinstance(v, dict) for v in old.values()):
        raise UsageError("this model has no single rotary embedding to stretch", where=where, fix="leave rope= away")
    original = int(old.get("original_max_position_embeddings") or config.max_position_embeddings)
    new = {"rope_type": kind, "factor": factor, "rope_theta": old.get("rope_theta", 10000.0)}
    if "partial_rotary_factor" in old:
        new["partial_rotary_factor"] = old["partial_rotary_factor"]
    if kind == "yarn":
        new["original_max_position_embeddings"] = original
    config.max_position_embeddings = original  # what dynamic scaling compares the length with
    config.rope_parameters = new


def window_of(config: Any) -> int | None:
    """Tokens the model was made for, stretching counted in."""
    text = config.get_text_config()
    window = getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None)
    rope = getattr(text, "rope_parameters", None) or {}
    factor = rope.get("factor") if isinstance(rope, dict) else None
    if not window:
        return None
    original = rope.get("original_max_position_embeddings") or window
    if rope.get("rope_type") in ROPES and factor:
        return max(int(window), int(original * factor))
    return int(window)


# --- weights ------------------------------------------------------------------------------------


def _place(wanted: Wanted, config: Any, where: str) -> tuple[str, torch.dtype]:
    import torch

    device = wanted.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise UsageError(f"there is no device {device!r}", where=where, fix="write cpu, cuda or cuda:0") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise UsageError("this machine has no CUDA device that torch can use", where=where, fix="write device=cpu")
    dtype = getattr(torch, wanted.dtype, None)
    if dtype is None:
        own = getattr(config.get_text_config(), "dtype", None) or getattr(config, "dtype", None)
        half = own if own in (torch.bfloat16, torch.float16, torch.float32) else torch.bfloat16
        dtype = torch.float32 if kind == "cpu" else half
    if kind == "cuda" and dtype is torch.bfloat16 and not torch.cuda.is_bf16_supported():
        raise UsageError("this GPU has no bfloat16", where=where, fix="write dtype=float16 or dtype=float32")
    return device, dtype


def _read_weights(
    folder: Path, wanted: Wanted, config: Any, device: str, dtype: torch.dtype, source: dict[str, str]
) -> Any:
    from transformers import AutoModelForCausalLM

    where = f"hf:{wanted.name}"
    placing = {"device_map": wanted.device_map} if wanted.device_map else {}
    if wanted.attn:
        placing["attn_implementation"] = wanted.attn
    try:
        with quiet_transformers():
            model = AutoModelForCausalLM.from_pretrained(
                folder, config=config, dtype=dtype, trust_remote_code=wanted.trust_remote_code, **source, **placing
            )
    except ImportError as error:
        missing = "gguf" if source else "accelerate" if placing else "a package its code needs"
        raise MissingExtra(f"{missing} ({_first_line(error)})", "hf", where=where) from None
    except (OSError, ValueError, KeyError, RuntimeError, NotImplementedError) as error:
        _reraise_out_of_memory(error, where)
        fix = "check that the folder holds all *.safetensors files of one causal language model"
        raise SourceError(f"its weights could not be read: {_first_line(error)}", where=where, fix=fix) from None
    try:
        return (model if wanted.device_map else model.to(device)).eval()
    except RuntimeError as error:
        _reraise_out_of_memory(error, where)
        raise SourceError(f"it could not be put on {device}: {_first_line(error)}", where=where) from None


def _reraise_out_of_memory(error: Exception, where: str) -> None:
    import torch

    if isinstance(error, torch.OutOfMemoryError):
        raise SourceError(
            f"the weights do not fit on the device: {_first_line(error)}",
            where=where,
            fix="spread it with device_map=auto, or use a server model (openai:)",
        ) from None


# --- tokenizer ----------------------------------------------------------------------------------


def _with_tokenizer(folder: Path, gguf: Path | None, trust_remote_code: bool) -> Path:
    """A folder with tokenizer.json: the model's own, or one made of its older or embedded tokenizer and kept."""
    if gguf is None and (folder / "tokenizer.json").is_file():
        return folder
    from transformers import AutoTokenizer

    origin = _sampled_digest([gguf] if gguf else sorted(p for p in folder.iterdir() if "token" in p.name))
    kept = cache_folder() / "tokenizers" / f"{(gguf or folder).stem}-{origin}"
    if (kept / "tokenizer.json").is_file():
        return kept
    source = {"gguf_file": gguf.name} if gguf else {}
    kept.parent.mkdir(parents=True, exist_ok=True)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code, **source)
        with tempfile.TemporaryDirectory(dir=kept.parent) as made:
            tokenizer.save_pretrained(made)
            if not (Path(made) / "tokenizer.json").is_file():
                raise ValueError("transformers has no fast tokenizer for it")
            shutil.copytree(made, kept, dirs_exist_ok=True)
    except Exception as error:  # tokenizers come with every kind of file, and every kind of failure
        raise SourceError(
            f"it has no tokenizer that can be used: {_first_line(error)}",
            where=str(folder),
            fix="put a tokenizer.json beside the weights, or give tokenizer=FOLDER",
        ) from None
    return kept


def stop_tokens(model: Any, folder: Path) -> list[int]:
    """End-of-text ids that the model's own files name."""
    found: set[int] = set()
    for source in (model.generation_config, model.config, model.config.get_text_config()):
        ids = getattr(source, "eos_token_id", None)
        found |= {int(i) for i in ([ids] if isinstance(ids, int) else ids or [])}
    saved = folder / "generation_config.json"
    if saved.is_file():
        ids = json.loads(saved.read_text()).get("eos_token_id")
        found |= {int(i) for i in ([ids] if isinstance(ids, int) else ids or [])}
    return sorted(found)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
