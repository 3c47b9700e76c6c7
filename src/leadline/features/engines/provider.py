"""`vllm:` and `sglang:` models on this machine's GPUs, tensor parallel, in a process of their own.

    vllm:FOLDER?tensor_parallel_size=4&kv_cache_dtype=fp8        sglang:org/model?tensor_parallel_size=2

Documents are sent as token ids. `python=VENV/bin/python` starts the engine in another environment than Leadline's,
which engines that pin their own torch often need.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from leadline.core.errors import SourceError, UsageError
from leadline.core.files import expand_path
from leadline.features.engines.model import EngineModel
from leadline.features.engines.options import EngineOptions
from leadline.features.engines.process import EngineName, EngineProcess


class EngineProvider(EngineOptions):
    """Starts the engine."""

    def open(self, name: str) -> EngineModel:
        where = f"{self.engine}:{name}"
        path = expand_path(name)
        if not name:
            raise UsageError(
                "no model is named", where=where, fix=f"write {self.engine}:FOLDER or {self.engine}:org/model"
            )
        if not path.is_dir() and (name.startswith(("/", ".", "~")) or name.count("/") != 1):
            fix = "give a folder with config.json and safetensors, or a hub name like org/model"
            raise SourceError(f"there is no model folder {path}", where=where, fix=fix)
        python = str(expand_path(self.python)) if self.python else ""
        process = EngineProcess(self.engine, python, where)
        try:
            info = process.start(str(path) if path.is_dir() else name, self.revision, self.engine_arguments())
            return EngineModel(name, self, process, info)
        except BaseException:
            process.close()
            raise


class VLLM(EngineProvider):
    """vLLM's offline engine."""

    summary: ClassVar[str] = "a model in vLLM's engine on this machine, over several GPUs: a folder or a hub name"
    engine: ClassVar[EngineName] = "vllm"
    arguments: ClassVar[tuple[str, ...]] = (*EngineOptions.arguments, "trace_replay")
    argument_names: ClassVar[dict[str, str]] = {"trace_replay": "enable_trace_replay"}
    fixed_arguments: ClassVar[tuple[str, ...]] = ("model", "seed", "enable_prefix_caching", "disable_log_stats")

    trace_replay: bool = Field(
        False, description="log-probabilities by forced traces: needs the V2 runner; one request a continuation"
    )

    @property
    def scoring(self) -> tuple[str, ...]:
        return ("trace", "forced") if self.trace_replay else ("forced",)


class SGLang(EngineProvider):
    """SGLang's offline engine."""

    summary: ClassVar[str] = "a model in SGLang's engine on this machine, over several GPUs: a folder or a hub name"
    engine: ClassVar[EngineName] = "sglang"
    fixed_arguments: ClassVar[tuple[str, ...]] = ("model_path", "random_seed", "log_level")
    argument_names: ClassVar[dict[str, str]] = {
        "tensor_parallel_size": "tp_size", "pipeline_parallel_size": "pp_size", "max_model_len": "context_length",
        "gpu_memory_utilization": "mem_fraction_static",
    }  # fmt: skip

    @property
    def scoring(self) -> tuple[str, ...]:
        return ("tail",)
