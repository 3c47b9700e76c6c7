"""`hf:` a causal language model in this process, through transformers: a folder, a GGUF file, or a hub name.

    hf:FOLDER?dtype=bfloat16&rope=yarn:4        hf:org/model?revision=main        hf:model.gguf

Each document is read once and all its probes are answered against it; see docs/in-process.md. This file is light:
torch comes in when a model is opened.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from leadline.core.contracts import ModelProvider
from leadline.core.spec import parse_length
from leadline.models.hf.load import DTYPES, Dtype, Wanted, load, parse_rope, refuse_missing, require_torch

if TYPE_CHECKING:
    from leadline.models.hf.model import HFModel


def _dtype(value: object) -> object:
    return DTYPES.get(str(value), value)


def _rope(value: str) -> str:
    if value:
        parse_rope(value)
    return value


class HF(ModelProvider):
    """Any causal model of transformers, in this process, on CPU or GPU."""

    summary: ClassVar[str] = "a model in this process, through transformers: a folder, a .gguf file or a hub name"

    in_process: ClassVar[bool] = True

    dtype: Annotated[Dtype, BeforeValidator(_dtype)] = Field(
        "auto", description="float32, bf16 or fp16; auto is float32 on CPU, and the checkpoint's own on a GPU"
    )
    device: str = Field("auto", description="cpu, cuda, cuda:1, mps; auto takes a GPU where there is one")
    device_map: str = Field("", description="auto spreads a model larger than one GPU over all of them")
    revision: str = Field("", description="of a hub name: a branch, tag or commit")
    rope: Annotated[str, AfterValidator(_rope)] = Field(
        "", description="stretch the position encoding: linear:2, dynamic:2 or yarn:4"
    )
    attn: str = Field("", description="attention of the plain path: sdpa, eager, flash_attention_2 ...")
    tokenizer: str = Field("", description="a folder with tokenizer.json, where the model has none")
    template: str = Field("", description="a file or folder with the chat template, instead of the model's own")
    form: Literal["auto", "chat", "completion"] = Field(
        "auto", description="with the chat template, or plain text; auto is chat where there is a template"
    )
    thinking: Literal["on", "off"] | None = Field(None, description="what a template with a thinking switch is told")
    max_tokens: int | None = Field(None, ge=1, description="output tokens in place of the task's (thinking takes more)")
    shared: bool = Field(True, description="read each document once; off: one prompt per probe")
    reuse: bool = Field(True, description="keep the last document for the next one that begins like it")
    chunk: Annotated[int, BeforeValidator(parse_length)] | None = Field(None, description="tokens read at once")
    fused: bool = Field(True, description="on a GPU with Triton: fused kernels between the matrix products")
    trust_remote_code: bool = Field(False, description="run the code that a checkpoint brings along")

    def open(self, name: str) -> HFModel:
        refuse_missing(name)
        require_torch(f"hf:{name}")
        from leadline.models.hf.model import HFModel

        wanted = Wanted(
            name=name,
            dtype=self.dtype,
            device=self.device,
            device_map=self.device_map,
            revision=self.revision,
            rope=self.rope,
            attn=self.attn,
            trust_remote_code=self.trust_remote_code,
        )
        return HFModel(self, name, load(wanted))

    @property
    def text_folder(self) -> Path | None:
        """Where the tokenizer is, when it is given."""
        return Path(self.tokenizer).expanduser() if self.tokenizer else None
