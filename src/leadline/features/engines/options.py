"""The options of an engine, and the arguments that it is started with."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from leadline.core.contracts import ModelProvider
from leadline.core.errors import UsageError
from leadline.core.lengths import parse_length
from leadline.features.engines.process import EngineName

PARALLEL_DATA = ("data_parallel_size", "dp_size")
"""The engines' own data parallelism, by the names of both."""
Tokens = Annotated[int, BeforeValidator(parse_length)]


def _json_object(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


class EngineOptions(ModelProvider):
    """The options that both engines have, by vLLM's names."""

    engine: ClassVar[EngineName]
    in_process: ClassVar[bool] = True
    arguments: ClassVar[tuple[str, ...]] = (
        "tensor_parallel_size", "pipeline_parallel_size", "dtype", "kv_cache_dtype", "quantization", "max_model_len",
        "gpu_memory_utilization", "revision", "trust_remote_code",
    )  # fmt: skip
    """The options that are arguments of the engine."""
    argument_names: ClassVar[dict[str, str]] = {}
    """Names of the engine's own, where they differ."""
    fixed_arguments: ClassVar[tuple[str, ...]] = ()
    """Arguments of the engine that every run gives it."""

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

    @model_validator(mode="after")
    def _extra_is_further(self) -> EngineOptions:
        """Refuses arguments that have an option or that every run sets: they would be given twice."""
        options = {self.argument_names.get(name, name): name for name in self.arguments}
        for name in self.extra:
            if name in PARALLEL_DATA:
                what = f"{name} makes several engines of one, which do not share the document that they have read"
                fix = "leave it out: --ray N starts N engines, each on its own GPUs"
                raise UsageError(what, where="extra", fix=fix)
            if name in self.fixed_arguments:
                raise UsageError(f"{name} is set by every run", where="extra", fix="leave it out")
            if name in options:
                fix = f"write {options[name]}=... in the model's name, outside of extra"
                raise UsageError(f"{name} has an option of its own", where="extra", fix=fix)
        return self

    @property
    def devices(self) -> int:
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def scoring(self) -> tuple[str, ...]:
        """The ways in which continuations may be scored, the best first."""
        raise NotImplementedError

    def engine_arguments(self) -> dict[str, Any]:
        """The arguments of the engine, those at their default left out."""
        fields = type(self).model_fields
        chosen = {name: getattr(self, name) for name in self.arguments if getattr(self, name) != fields[name].default}
        return {**{self.argument_names.get(name, name): value for name, value in chosen.items()}, **self.extra}
