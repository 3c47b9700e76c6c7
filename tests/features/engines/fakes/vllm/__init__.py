"""As much of vLLM's offline engine as is used, with its defaults and its refusals.

FAKE_FAULT plants a fault. FAKE_LOG names a file that gets the number of prompts of each call, and the process.
FAKE_MARK names a file that keeps a fault from happening twice, FAKE_CORE one that gets the number of a second process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.rule_lm import BLOCK, Cache, likely, nats

__version__ = "0.32.0"
FAULT = os.environ.get("FAKE_FAULT", "")


class ValidationError(ValueError):
    """As pydantic's, with what it adds to a message."""

    def __init__(self, message: str) -> None:
        super().__init__(
            f"1 validation error for ModelConfig\n  {message} [type=value_error, input_value=ArgsKwargs((), {{'model': "
            "...nderer_num_workers': 1}), input_type=ArgsKwargs]\n    For further information visit "
            "https://errors.pydantic.dev/2.14/v/value_error"
        )


class LocalEntryNotFoundError(Exception):
    """As the hub's."""


NOT_STARTED = RuntimeError("Engine core initialization failed. See root cause above. Failed core proc(s): {}")
START_FAULTS: dict[str, tuple[str, Exception]] = {
    "memory": ("", ValueError("No available memory for the cache blocks. Try increasing `gpu_memory_utilization`")),
    "unknown_model": (
        "(MainProcess pid=7) ERROR 11-19 05:27:16 [repo_utils.py:126] Error parsing config for /m",
        ValidationError("Value error, The checkpoint you are trying to load has model type `newmodel` but Transformers "
                        "does not recognize this architecture.\n\nYou can update Transformers"),
    ),
    "core_fails": (
        "(EngineCore pid=7) ValueError: Free memory on device cuda:0 is less than desired", NOT_STARTED
    ),
    "little_cache": (
        """(MainProcess pid=7) INFO 11-19 05:27:16 [model.py:733] Resolved architecture: LlamaForCausalLM
(EngineCore pid=8) ERROR 11-19 05:31:02 [core.py:1179] EngineCore failed to start.
(EngineCore pid=8) ERROR 11-19 05:31:02 [core.py:1179] Traceback (most recent call last):
(EngineCore pid=8) ERROR 11-19 05:31:02 [core.py:1179]   File "/e/vllm/v1/core/kv_cache_utils.py", line 1030, in _check
(EngineCore pid=8) ERROR 11-19 05:31:02 [core.py:1179]     raise ValueError(
(EngineCore pid=8) ERROR 11-19 05:31:02 [core.py:1179] ValueError: To serve at least one request with the model's max \
seq len (65536), (2.81 GiB KV cache is needed, which is larger than the available KV cache memory (0.99 GiB). Based on \
the available memory, the estimated maximum model length is 23168. Try increasing `gpu_memory_utilization`
(EngineCore pid=8) Traceback (most recent call last):
(EngineCore pid=8)     raise ValueError(
(EngineCore pid=8)     ^^^^^^^^^^^^^^^^^
""",
        NOT_STARTED,
    ),
    "long_window": (
        "",
        ValidationError("Value error, User-specified max_model_len (16384) is greater than the derived max_model_len "
                        "(max_position_embeddings=8192.0 or model_max_length=None in model's config.json)."),
    ),
    "wrong_dtype": ("", ValidationError("dtype.literal['auto','half']\n  Input should be 'auto' or 'half'")),
    "heads": (
        "",
        ValidationError("Value error, Number of attention heads (9) must be divisible by tensor parallel size (4)"),
    ),
    "no_cuda": (
        "", RuntimeError("Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG`")
    ),
    "initialised": ("", RuntimeError("Cannot re-initialize CUDA in forked subprocess. To use CUDA")),
    "library": ("", ImportError("libcudart.so.12: cannot open shared object file: No such file or directory")),
    "before_traces": ("", TypeError("EngineArgs.__init__() got an unexpected keyword argument 'enable_trace_replay'")),
    "no_hub": (
        "",
        LocalEntryNotFoundError("Got: ConnectError: [Errno -2] Name or service not known\nAn error happened while "
                                "trying to locate the files on the Hub, and we cannot find the snapshot folder"),
    ),
}  # fmt: skip


class EngineDeadError(Exception):
    """As vLLM's: the process in which the engine computes has ended, and nothing is answered any more."""


def _happens(fault: str) -> bool:
    """Whether a fault that happens once happens now."""
    if fault != FAULT or Path(os.environ["FAKE_MARK"]).exists():
        return False
    Path(os.environ["FAKE_MARK"]).touch()
    return True


class SamplingParams:
    def __init__(
        self,
        temperature: float = 1.0,
        max_tokens: int = 16,
        min_tokens: int = 0,
        stop_token_ids: list[int] | None = None,
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        allowed_token_ids: list[int] | None = None,
        ignore_eos: bool = False,
        detokenize: bool = True,
        **further: Any,
    ) -> None:
        if set(further) - {"trace_decode_token_ids"}:
            raise TypeError(f"Unexpected keyword argument {sorted(further)[0]!r}")
        if FAULT == "renamed" and allowed_token_ids is not None:
            raise TypeError("Unexpected keyword argument 'allowed_token_ids'")
        assert temperature == 0.0, "greedy runs name their temperature"
        self.max_tokens, self.stop, self.ignore_eos = max_tokens, set(stop_token_ids or ()) | {2}, ignore_eos
        self.logprobs, self.prompt_logprobs, self.allowed = logprobs, prompt_logprobs, allowed_token_ids
        self.trace = further.get("trace_decode_token_ids")


class LLM:
    def __init__(self, model: str, **options: Any) -> None:
        if FAULT == "dies":
            print("EngineCore failed to start: CUDA driver version is insufficient", file=sys.stderr, flush=True)
            os._exit(3)
        if FAULT in START_FAULTS:
            printed, error = START_FAULTS[FAULT]
            print(printed, file=sys.stderr, flush=True)
            raise error
        if FAULT == "old_runner" and options.get("enable_trace_replay"):
            raise ValidationError("Value error, trace replay requires Model Runner V2")
        if "torch" in sys.modules or "leadline" in sys.modules:
            raise RuntimeError("CUDA may have been initialised in this process before the engine")
        unknown = set(options) - {
            "seed", "enable_prefix_caching", "disable_log_stats", "max_model_len", "dtype", "tensor_parallel_size",
            "kv_cache_dtype", "enable_trace_replay", "logprobs_mode",
        }  # fmt: skip
        if unknown:
            raise TypeError(f"EngineArgs.__init__() got an unexpected keyword argument {sorted(unknown)[0]!r}")
        if "FAKE_CORE" in os.environ:  # the process in which it computes
            process = subprocess.Popen(["sleep", "3600"])
            Path(os.environ["FAKE_CORE"]).write_text(str(process.pid))
        print("INFO loading", model)  # engines print to their standard output
        self.window, self.cache = options.get("max_model_len", 512), Cache(BLOCK)
        self.masked = options.get("logprobs_mode", "").startswith("processed")
        self.trace_replay = options.get("enable_trace_replay", False)
        cache_config = SimpleNamespace(
            block_size=BLOCK, num_gpu_blocks=64, cache_dtype=options.get("kv_cache_dtype", "auto")
        )
        model_config = SimpleNamespace(max_model_len=self.window, dtype="torch.float32")
        config = SimpleNamespace(cache_config=cache_config, model_config=model_config)
        core = SimpleNamespace(resources=SimpleNamespace(engine_dead=False))
        self.llm_engine = SimpleNamespace(vllm_config=config, engine_core=core)
        self.calls = 0

    def generate(self, prompts: list[dict[str, list[int]]], params: list[SamplingParams], use_tqdm: bool) -> list[Any]:
        assert not use_tqdm
        self.calls += 1
        if "FAKE_LOG" in os.environ:
            with Path(os.environ["FAKE_LOG"]).open("a") as log:
                log.write(f"{len(prompts)} {os.getpid()}\n")
        if self.calls > 1 and _happens("kills_its_parent"):
            os.kill(os.getppid(), signal.SIGKILL)
        if (FAULT == "core_dies" and self.calls > 1) or (self.calls > 1 and _happens("core_dies_once")):
            print("(EngineCore pid=7) torch.OutOfMemoryError: CUDA out of memory", file=sys.stderr, flush=True)
            raise EngineDeadError("EngineCore encountered an issue. See stack trace (above) for the root cause.")
        if (FAULT == "core_killed" and self.calls > 1) or (self.calls > 1 and _happens("core_killed_once")):
            print("(EngineCore pid=7) Killed", file=sys.stderr, flush=True)
            self.llm_engine.engine_core.resources.engine_dead = True
            time.sleep(3600)  # as 0.32.0 does: it waits for an answer that nobody writes
        if FAULT == "hangs" and self.calls > 1:
            time.sleep(3600)
        if FAULT == "dies_later" and self.calls > 1:
            print("torch.AcceleratorError: an illegal memory access was encountered", file=sys.stderr, flush=True)
            os._exit(9)
        # Requests of one call do not find each other's blocks: they are admitted in one step.
        hits = []
        for prompt, asked in zip(prompts, params, strict=True):
            copy = Cache(BLOCK)
            copy.held = set(self.cache.held)
            hits.append(0 if asked.prompt_logprobs is not None else copy.read(prompt["prompt_token_ids"]))
        for prompt in prompts:
            self.cache.read(prompt["prompt_token_ids"])
        return [self._output(p["prompt_token_ids"], s, hit) for p, s, hit in zip(prompts, params, hits, strict=True)]

    def _output(self, ids: list[int], asked: SamplingParams, cached: int) -> Any:
        if len(ids) >= self.window:
            raise ValueError(f"The prompt (length {len(ids)}) is longer than the maximum model length of {self.window}")
        if asked.trace is not None and not self.trace_replay:
            raise ValueError("trace replay is not enabled")
        written: list[int] = []
        if asked.trace is not None:
            asked.trace = asked.trace[: max(self.window - len(ids), 1)]  # without a word
        chances: list[dict[int, Any]] = []
        while len(written) < min(asked.max_tokens, len(asked.trace or [0] * asked.max_tokens)):
            before = [*ids, *written]
            token = asked.trace[len(written)] if asked.trace else asked.allowed[0] if asked.allowed else likely(before)
            value = 0.0 if self.masked and asked.allowed else -nats(before, token)
            chances.append({token: SimpleNamespace(logprob=float("nan") if FAULT == "nan" else value)})
            written.append(token)
            if token in asked.stop and not asked.ignore_eos and not asked.trace:
                break
        stopped = bool(written) and written[-1] in asked.stop and not asked.ignore_eos and not asked.trace
        listed = None
        if asked.prompt_logprobs is not None:
            values = [float("nan") if FAULT == "nan" else -nats(ids[:n], ids[n]) for n in range(1, len(ids))]
            listed = [None, *({ids[n]: SimpleNamespace(logprob=value)} for n, value in enumerate(values, 1))]
        output = SimpleNamespace(
            token_ids=written,
            finish_reason="stop" if stopped else "length",
            logprobs=chances if asked.logprobs is not None else None,
        )
        return SimpleNamespace(
            outputs=[output], prompt_token_ids=ids, num_cached_tokens=cached, prompt_logprobs=listed,
            metrics=SimpleNamespace(is_corrupted=FAULT == "nan"),
        )  # fmt: skip
