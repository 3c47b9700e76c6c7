"""What an engine says when it does not start or dies: its message in a line, the lines of its log that say why, and
what to do about it."""

from __future__ import annotations

import re
from collections.abc import Sequence

LAST_LINES = 6
LAST_ERRORS = 3
LOOKED_AT = 60
"""Lines at the end of a log among which an error counts as the cause."""
MOST_CHARACTERS = 500

_LOG_PREFIX = re.compile(r"^(\([^)]*\)\s?)?((DEBUG|INFO|WARNING|ERROR|CRITICAL) [\d-]+ [\d:]+ \[[^\]]*\]\s?)?")
_CHATTER = ("DEBUG", "INFO", "WARNING")
_NO_CAUSE = re.compile(r"^(\s|Traceback |During handling |The above exception |\[W\d|Loading )|Warning: ")
"""Frames and code, which are indented, warnings and progress."""
_ERROR = re.compile(r"^[\w.]*(Error|Exception)\b.*:")
_VALIDATION = (
    re.compile(r"\bValidationError: \d+ validation errors? for \w+\s+(Value error, )?"),
    re.compile(r"\s*\[type=\w+, input_value=.*?, input_type=\w+\]", re.DOTALL),
    re.compile(r"\s*For further information visit \S+"),
)

MEMORY = (
    "give it less to read (max_model_len=), more memory (gpu_memory_utilization=, tensor_parallel_size=), or smaller "
    "keys and values (kv_cache_dtype=fp8)"
)
_ADVICE: Sequence[tuple[str, str]] = (
    (r"trace.replay", "leave out trace_replay: log-probabilities are then those of forced tokens, one request a token"),
    (r"data.parallel", "leave out the data parallel option; --ray N starts N engines, each with its own GPUs"),
    (
        r"cannot re-?initialize CUDA",
        "start the engine in an environment where nothing uses CUDA before it (python=VENV/bin/python): a .pth file or "
        "sitecustomize may import torch",
    ),
    (
        r"driver version is insufficient|no CUDA(-capable)? (GPUs?|devices?)|failed to infer device|no kernel image|"
        r"cannot open shared object|undefined symbol",
        "check with nvidia-smi that this machine has a GPU, that CUDA_VISIBLE_DEVICES does not hide it, and that the "
        "engine was built for its driver and for the torch beside it (another environment: python=VENV/bin/python)",
    ),
    (r"estimated maximum model length is (\d+)", "max_model_len={} is what fits; else " + MEMORY),
    (
        r"greater than the derived max_model_len \(\w+=(\d+)",
        "leave out max_model_len, or give {} or less; VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 in the environment allows more "
        "than the model was made for",
    ),
    (r"unexpected keyword argument '(\w+)'", "leave out {}: this version of the engine has no such argument"),
    (r"divisible by tensor parallel size", "give a tensor_parallel_size that divides the number of attention heads"),
    (r"World size \(\d+\) is larger than the number of .*?GPUs \((\d+)\)", "this machine has {} GPUs: give fewer"),
    (
        r"out of memory|no available memory|available memory|kv cache|free memory|gpu_memory_utilization",
        MEMORY,
    ),
    (
        r"(are|is) not supported|does not recognize this architecture|unrecognized",
        "use a version of the engine that knows this model (python=VENV/bin/python), or hf: where that does",
    ),
    (
        r"on the Hub|huggingface\.co|Repository Not Found|repository ID",
        "check the name, the network and HF_TOKEN, or give a folder with the weights",
    ),
    (r"Input should be", "correct the option that it names"),
)


def plain(message: str) -> str:
    """An engine's message in one line, without what the library that checks its options adds to it."""
    for pattern in _VALIDATION:
        message = pattern.sub("", message)
    return _shortened(" ".join(message.split()))


def causes(log: str) -> list[str]:
    """The lines at the end of an engine's log that say why it ended: errors if there are any, else the last."""
    errors, others = dict[str, None](), dict[str, None]()
    for raw in log.splitlines()[-LOOKED_AT:]:
        prefix = _LOG_PREFIX.match(raw)
        assert prefix is not None  # it may be empty
        line = raw[prefix.end() :]
        if line.strip() and prefix[3] not in _CHATTER and not _NO_CAUSE.search(line):
            (errors if _ERROR.match(line) else others)[_shortened(line.strip())] = None
    return [*errors][-LAST_ERRORS:] or [*others][-LAST_LINES:]


def advice(text: str) -> str:
    """What to do about an engine that said this while it started."""
    for pattern, fix in _ADVICE:
        if found := re.search(pattern, text, re.IGNORECASE | re.DOTALL):
            return fix.format(*found.groups())
    return "try the same model and options with the engine's own command, which shows all that it prints"


def advice_after_death(text: str) -> str:
    """What to do about an engine that said this while it answered: what was recorded is kept."""
    again = "run the same command again: it continues with what is missing"
    known = advice(text) if re.search("out of memory", text, re.IGNORECASE) else ""
    return f"{again}; if it dies again, {known}" if known else again


def _shortened(line: str) -> str:
    return line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]} ..."
