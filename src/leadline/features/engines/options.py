"""The options of an engine, and the arguments that it is started with."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from leadline.core.contracts import ModelProvider
from leadline.core.lengths import parse_length
from leadline.features.engines.process import EngineName

Tokens = Annotated[int, BeforeValidator(parse_length)]


def _json_object(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


class EngineOptions(ModelProvider):
    """The options that both engines have, by vLLM's names."""

    engine: ClassVar[EngineName]
    in_process: ClassVar[bool] = True
    argument_names: ClassVar[dict[str, str]] = {}
    """Names of the engine's own, where they differ."""

    tensor_parallel_size: int = Field(1, ge=1, description="GPUs that share every layer")
    pipeline_parallel_size: int = Field(1, ge=1, description="groups of GPUs that share the layers")
    dtype: str = Field("auto", description="auto, float32, bfloat16 or float16")
    kv_cache_dtype: str = Field(
        "auto", description="of keys and values: auto, fp8, fp8_e4m3 ... as the engine names it"
    )
    quantization: str = Field("", description="as the engine names it; found in the checkpoint if not given")
    max_model_len: Tokens | None = Field(None, description="window, prompt and answer; the model's own if not given")
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1, description="share of a GPU that the engine takes")
    revision: str = Field("", description="branch, tag or commit of a hub name")
    trust_remote_code: bool = Field(False, description="run Python code from the checkpoint")
    extra: Annotated[dict[str, Any], BeforeValidator(_json_object)] = Field(
        {}, description='further arguments of the engine, as JSON: {"enforce_eager": true}'
    )
    python: str = Field("", description="the Python that has the engine, if not this one: VENV/bin/python")
    tokenizer: str = Field("", description="a folder with tokenizer.json, if the model has none")
    template: str = Field("", description="a file or folder with the chat template, instead of the model's own")
    form: Literal["auto", "chat", "completion"] = Field(
        "auto", description="with the chat template, or plain text; auto is chat if there is a template"
    )
    thinking: Literal["on", "off"] | None = Field(None, description="the chat template's thinking switch")
    max_tokens: int | None = Field(None, ge=1, description="output tokens instead of the task's (thinking needs more)")

    @property
    def devices(self) -> int:
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def scoring(self) -> tuple[str, ...]:
        """The ways in which continuations may be scored, the best first."""
        raise NotImplementedError

    def engine_arguments(self) -> dict[str, Any]:
        """The arguments of the engine, those at their default left out."""
        arguments = {
            "tensor_parallel_size": self.tensor_parallel_size, "pipeline_parallel_size": self.pipeline_parallel_size,
            "dtype": self.dtype, "kv_cache_dtype": self.kv_cache_dtype, "quantization": self.quantization,
            "max_model_len": self.max_model_len, "gpu_memory_utilization": self.gpu_memory_utilization,
            "revision": self.revision, "trust_remote_code": self.trust_remote_code,
        }  # fmt: skip
        chosen = {name: value for name, value in arguments.items() if value not in (None, "", "auto", False, 1)}
        return {**{self.argument_names.get(name, name): value for name, value in chosen.items()}, **self.extra}
