"""`hf:` a causal language model in this process, through transformers: a folder, a GGUF file, or a hub name.

    hf:FOLDER?dtype=bfloat16&rope=yarn:4        hf:org/model?revision=main        hf:model.gguf

Each document is read once and all its probes are answered against it; see docs/read-once.md. This module does not
import torch; opening a model does.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from leadline.core.contracts import ModelProvider
from leadline.core.errors import LeadlineError, MissingExtra, SourceError, UsageError
from leadline.core.files import expand_path
from leadline.core.lengths import parse_length

if TYPE_CHECKING:
    from leadline.models.hf.model import HFModel, UnloadedModel


Dtype = Literal["auto", "float32", "bfloat16", "float16"]
DTYPES: dict[str, Dtype] = {
    "auto": "auto", "float32": "float32", "fp32": "float32", "bfloat16": "bfloat16", "bf16": "bfloat16",
    "float16": "float16", "fp16": "float16",
}  # fmt: skip
ROPE_SCALINGS = ("linear", "dynamic", "yarn", "ntk", "theta")


def parse_rope(text: str) -> tuple[str, float]:
    """`yarn:4` as ("yarn", 4.0), `theta:1e6` as ("theta", 1000000.0)."""
    kind, _, number = text.partition(":")
    if kind in ROPE_SCALINGS and re.fullmatch(r"\d+(\.\d+)?([eE]\+?\d{1,2})?", number) and float(number) >= 1:
        return kind, float(number)
    raise UsageError(
        f"rope={text!r} is not known", where="model", fix="write linear:2, dynamic:2, yarn:4, ntk:2 or theta:1e6"
    )


def _rope(value: str) -> str:
    if value:
        parse_rope(value)
    return value


class HF(ModelProvider):
    """Any causal model of transformers, in this process, on CPU or GPU."""

    summary: ClassVar[str] = "a model in this process, through transformers: a folder, a .gguf file or a hub name"

    in_process: ClassVar[bool] = True

    dtype: Annotated[Dtype, BeforeValidator(lambda value: DTYPES.get(str(value), value))] = Field(
        "auto", description="float32, bf16 or fp16; auto is float32 on CPU, the checkpoint's dtype on a GPU"
    )
    device: str = Field("auto", description="cpu, cuda, cuda:1, mps; auto uses a GPU if there is one")
    device_map: str = Field("", description="auto spreads the layers over all GPUs, for a model larger than one")
    revision: str = Field("", description="branch, tag or commit of a hub name")
    rope: Annotated[str, AfterValidator(_rope)] = Field(
        "", description="position scaling (RoPE): linear:2, dynamic:2, yarn:4, ntk:2, or another base: theta:1e6"
    )
    attn: str = Field("", description="attention of the plain path: sdpa, eager, flash_attention_2 ...")
    tokenizer: str = Field("", description="a folder with tokenizer.json, if the model has none")
    template: str = Field("", description="a file or folder with the chat template, instead of the model's own")
    form: Literal["auto", "chat", "completion"] = Field(
        "auto", description="with the chat template, or plain text; auto is chat if there is a template"
    )
    thinking: Literal["on", "off"] | None = Field(None, description="the chat template's thinking switch")
    max_tokens: int | None = Field(None, ge=1, description="output tokens instead of the task's (thinking needs more)")
    shared: bool = Field(True, description="read each document once; off: one prompt per probe")
    reuse: bool = Field(True, description="keep the last document for the next one with the same beginning")
    chunk: Annotated[int, BeforeValidator(parse_length)] | None = Field(None, description="tokens read per pass")
    store: Literal["exact", "fp8"] = Field(
        "exact",
        description="fp8 rounds keys and values to 8 bits: half the memory, other answers; records say so",
    )
    resident: float | None = Field(
        None, ge=0, description="GiB of keys and values on each GPU, the rest in host memory; by default what is free"
    )
    fused: bool = Field(True, description="on a GPU with Triton: fused kernels between the matrix products")
    kernels: Literal["own", "installed"] = Field(
        "own",
        description="of recurrent layers: installed takes those of fla and mamba_ssm, which tune for a minute",
    )
    trust_remote_code: bool = Field(False, description="run Python code from the checkpoint")

    def open(self, name: str) -> HFModel | UnloadedModel:
        check_exists(name)
        require_torch(f"hf:{name}")
        from leadline.models.hf.load import load, read_config, without_weights
        from leadline.models.hf.model import HFModel, UnloadedModel

        try:
            if folder := without_weights(name):
                return UnloadedModel(name, self, folder, read_config(folder, name, self))
            return HFModel(name, self, load(name, self))
        except LeadlineError:
            raise
        except Exception as error:  # a damaged checkpoint raises anything in transformers
            raise SourceError(
                f"the model cannot be opened: {type(error).__name__}: {str(error)[:300]}",
                where=f"hf:{name}",
                fix="check its config.json, tokenizer and weights; --debug shows the traceback",
            ) from error


def check_exists(name: str) -> None:
    """Refuse a name that can only be a local path and does not exist, before torch is imported."""
    path = expand_path(name)
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


def require_torch(where: str) -> None:
    for package in ("torch", "transformers"):
        try:
            __import__(package)
        except ImportError:
            raise MissingExtra(package, "hf", where=where) from None


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars and log messages of transformers (the bar for GGUF files is written to stderr directly)."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with redirect_stderr(io.StringIO()):
        yield
