"""The process of an engine: vLLM's LLM or SGLang's Engine, asked through its standard input, answering on its output.

Run as a file by the Python that has the engine, which need not have Leadline: this module imports the standard library
alone until it knows which engine to start. Messages are JSON objects, each after its size in eight bytes. What the
engine prints goes to the standard error, so that it cannot come between the answers. It ends, with all processes that
the engine started, when the process that started it is gone.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import threading
import time
from importlib import import_module
from typing import Any, BinaryIO

SIZE = struct.Struct(">Q")
LOOK_SECONDS = 0.5
DEAD = ("EngineDeadError",)
"""Exceptions, by name, after which an engine answers nothing: the process in which it computes has ended."""
DEAD_LOOKS = 4
"""After this many looks in a row at a dead engine this process reports it. Until then the engine may report it
itself."""
CORE_ENDED = "the process in which it computes has ended (a kill, or too little host memory)"


class VllmEngine:
    def __init__(self, model: str, options: dict[str, Any]) -> None:
        import vllm  # type: ignore[import-not-found,unused-ignore]

        self.sampling = vllm.SamplingParams
        self.version = str(getattr(vllm, "__version__", ""))
        self.llm = vllm.LLM(model=model, seed=0, enable_prefix_caching=True, disable_log_stats=False, **options)

    def describe(self) -> dict[str, Any]:
        config = self.llm.llm_engine.vllm_config
        cache = config.cache_config
        block, blocks = getattr(cache, "block_size", None) or 1, getattr(cache, "num_gpu_blocks", None)
        held = getattr(cache, "kv_cache_size_tokens", None)  # blocks x size is wrong for hybrid models
        return {
            "version": self.version,
            "window": int(config.model_config.max_model_len),
            "dtype": str(config.model_config.dtype).replace("torch.", ""),
            "kv_dtype": str(getattr(cache, "cache_dtype", "auto")),
            "block": int(block),
            "kv_tokens": int(held) if held else int(blocks) * int(block) if blocks else None,
        }

    def is_dead(self) -> bool:
        """Whether the process in which it computes has ended. Where it was killed, `generate` waits for it for ever."""
        core = getattr(self.llm.llm_engine, "engine_core", None)
        return bool(getattr(getattr(core, "resources", None), "engine_dead", False))

    def write(self, prompts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        params = [
            self.sampling(
                temperature=0.0, max_tokens=p["max_tokens"], min_tokens=1, stop_token_ids=p["stop"], detokenize=False
            )
            for p in prompts
        ]  # fmt: skip
        answers = []
        for output in self._generate([p["ids"] for p in prompts], params):
            written = output.outputs[0]
            ids = list(written.token_ids)
            stopped = written.finish_reason == "stop"
            answers.append(
                {
                    "ids": ids[:-1] if stopped and ids else ids, "finish": written.finish_reason, "stopped": stopped,
                    "prompt_tokens": len(output.prompt_token_ids), "cached_tokens": output.num_cached_tokens,
                    "corrupted": bool(getattr(output.metrics, "is_corrupted", False)),
                }
            )  # fmt: skip
        return answers

    def score(self, texts: list[dict[str, Any]], way: str) -> list[dict[str, Any]]:
        if way == "whole":
            return self._score_whole(texts)
        return self._score_traces(texts) if way == "trace" else self._score_forced(texts)

    def _score_whole(self, texts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        params = [self.sampling(temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False) for _ in texts]
        scores = []
        for text, output in zip(texts, self._generate([t["ids"] for t in texts], params), strict=True):
            ids, listed = text["ids"], output.prompt_logprobs
            values = [listed[position][ids[position]].logprob for position in range(text["start"], len(ids))]
            scores.append(_scored(values, [output]))
        return scores

    def _score_traces(self, texts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        params = []
        for text in texts:
            trace = text["ids"][text["start"] :]
            params.append(
                self.sampling(
                    temperature=0.0, max_tokens=len(trace), logprobs=0, detokenize=False, trace_decode_token_ids=trace
                )
            )  # fmt: skip
        scores = []
        outputs = self._generate([t["ids"][: t["start"]] for t in texts], params)
        for text, output in zip(texts, outputs, strict=True):
            trace, written = text["ids"][text["start"] :], output.outputs[0]
            if list(written.token_ids) != trace:
                count = len(written.token_ids)
                raise ValueError(
                    f"the engine replayed {count} of {len(trace)} tokens of a trace: the rest does not fit its maximum "
                    "model length"
                    if list(written.token_ids) == trace[:count]
                    else "the engine wrote other tokens than the trace it was given"
                )
            values = [chances[token].logprob for token, chances in zip(trace, written.logprobs, strict=True)]
            scores.append(_scored(values, [output]))
        return scores

    def _score_forced(self, texts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        outputs: dict[tuple[int, int], Any] = {}
        first = [(number, text["start"]) for number, text in enumerate(texts)]
        rest = [
            (number, position)
            for number, text in enumerate(texts)
            for position in range(text["start"] + 1, len(text["ids"]))
        ]
        for wave in (first, rest):  # the first token of every text, then the others, which find it in the cache
            prompts = [texts[number]["ids"][:position] for number, position in wave]
            params = [
                self.sampling(
                    temperature=0.0, max_tokens=1, logprobs=1, allowed_token_ids=[texts[number]["ids"][position]],
                    ignore_eos=True, detokenize=False,
                )
                for number, position in wave
            ]  # fmt: skip
            outputs |= dict(zip(wave, self._generate(prompts, params), strict=True))
        scores = []
        for number, text in enumerate(texts):
            own = [outputs[number, position] for position in _positions(text)]
            tokens = text["ids"][text["start"] :]
            values = [out.outputs[0].logprobs[0][token].logprob for out, token in zip(own, tokens, strict=True)]
            scores.append(_scored(values, own))
        return scores

    def _generate(self, prompts: list[list[int]], params: list[Any]) -> list[Any]:
        if not prompts:
            return []
        return list(self.llm.generate([{"prompt_token_ids": ids} for ids in prompts], params, use_tqdm=False))


class SGLangEngine:
    def __init__(self, model: str, options: dict[str, Any]) -> None:
        import sglang  # type: ignore[import-not-found,unused-ignore]

        self.version = str(getattr(sglang, "__version__", ""))
        self.engine = sglang.Engine(model_path=model, random_seed=0, log_level="error", **options)

    def describe(self) -> dict[str, Any]:
        info = self.engine.get_server_info()
        window = info.get("context_length") or self.engine.tokenizer_manager.model_config.context_len
        return {
            "version": self.version, "window": int(window), "dtype": str(info.get("dtype") or "auto"),
            "kv_dtype": str(info.get("kv_cache_dtype") or "auto"), "block": int(info.get("page_size") or 1),
            "kv_tokens": info.get("max_total_num_tokens"),
        }  # fmt: skip

    def is_dead(self) -> bool:
        return False  # its own handler of signals ends this process

    def write(self, prompts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        params = [
            {"temperature": 0.0, "max_new_tokens": p["max_tokens"], "min_new_tokens": 1, "stop_token_ids": p["stop"]}
            for p in prompts
        ]
        answers = []
        for output in self.engine.generate(input_ids=[p["ids"] for p in prompts], sampling_params=params):
            meta, ids = output["meta_info"], list(output["output_ids"])
            finish = (meta.get("finish_reason") or {}).get("type", "")
            stopped = finish == "stop"
            answers.append(
                {
                    "ids": ids[:-1] if stopped and ids else ids, "finish": finish, "stopped": stopped,
                    "prompt_tokens": meta["prompt_tokens"], "cached_tokens": meta.get("cached_tokens"),
                    "corrupted": False,
                }
            )  # fmt: skip
        return answers

    def score(self, texts: list[dict[str, Any]], way: str) -> list[dict[str, Any]]:
        starts = [0 if way == "whole" else text["start"] - 1 for text in texts]  # the value at the start is missing
        params = [{"temperature": 0.0, "max_new_tokens": 1} for _ in texts]
        outputs = self.engine.generate(
            input_ids=[t["ids"] for t in texts], sampling_params=params, return_logprob=True, logprob_start_len=starts
        )
        scores = []
        for text, output in zip(texts, outputs, strict=True):
            meta, wanted = output["meta_info"], text["ids"][text["start"] :]
            rows = meta["input_token_logprobs"][-len(wanted) :]
            # It reports the last token of the vocabulary as 0, which it uses for positions of images too.
            if len(rows) != len(wanted) or any(
                row[1] not in (token, 0) for row, token in zip(rows, wanted, strict=True)
            ):
                raise ValueError("the engine's log-probabilities are not those of the tokens that it was given")
            cached = meta.get("cached_tokens")
            scores.append(
                {
                    "logprobs": [row[0] for row in rows], "requests": 1, "prompt_tokens": meta["prompt_tokens"],
                    "cached_tokens": cached,
                }
            )  # fmt: skip
        return scores


def _positions(text: dict[str, Any]) -> range:
    return range(text["start"], len(text["ids"]))


def _scored(values: list[float], outputs: list[Any]) -> dict[str, Any]:
    cached = [output.num_cached_tokens for output in outputs]
    return {
        "logprobs": values, "requests": len(outputs),
        "prompt_tokens": sum(len(output.prompt_token_ids) for output in outputs),
        "cached_tokens": None if None in cached else sum(cached),
    }  # fmt: skip


def folder_of(model: str, revision: str) -> str:
    """The folder with the tokenizer and configuration of a model, downloaded if it is a hub name."""
    if os.path.isdir(model):
        return model
    from huggingface_hub import snapshot_download  # engines need this package themselves

    patterns = ["*.json", "*.jinja", "tokenizer*", "*.model"]
    return str(snapshot_download(model, revision=revision or None, allow_patterns=patterns))


class Worker:
    """Answers messages, one after the other."""

    def __init__(self, answers: BinaryIO) -> None:
        self.engine: VllmEngine | SGLangEngine | None = None
        self._answers = answers
        self._turn = threading.Lock()
        """Held while a reply is written."""
        self._is_asked = False

    def serve(self, questions: BinaryIO) -> None:
        threading.Thread(target=self._end_with_engine, daemon=True).start()
        while (message := read_message(questions)) is not None:
            self._is_asked = True
            try:
                reply = {"ok": self.answer(message)}
            except Exception as error:
                kinds = {kind.__name__ for kind in type(error).__mro__}
                reply = {
                    "error": str(error)[:2000], "type": type(error).__name__, "module": getattr(error, "name", None),
                    "dead": not kinds.isdisjoint(DEAD),
                }  # fmt: skip
            with self._turn:
                self._is_asked = False
                write_message(self._answers, reply)

    def _end_with_engine(self) -> None:
        """Says that the engine is dead where it does not say so itself, and ends this process."""
        looks = 0
        while looks < DEAD_LOOKS:
            time.sleep(LOOK_SECONDS)
            looks = looks + 1 if self._is_asked and self.engine is not None and self.engine.is_dead() else 0
        with self._turn:
            if self._is_asked:
                error = {"error": CORE_ENDED, "type": DEAD[0], "module": None, "dead": True}
                write_message(self._answers, error)
            os._exit(1)

    def answer(self, message: dict[str, Any]) -> Any:
        if message["do"] == "start":
            import_module(message["engine"])  # a missing one is said before anything is downloaded
            folder = folder_of(message["model"], message["revision"])
            make: type[VllmEngine] | type[SGLangEngine]
            make = VllmEngine if message["engine"] == "vllm" else SGLangEngine
            engine = make(message["model"], message["options"])
            self.engine = engine
            return {**engine.describe(), "folder": folder}
        assert self.engine is not None
        if message["do"] == "write":
            return self.engine.write(message["prompts"])
        return self.engine.score(message["texts"], message["way"])


def read_message(stream: BinaryIO) -> Any:
    """The next message; None at the end of the stream."""
    head = stream.read(SIZE.size)
    if len(head) < SIZE.size:
        return None
    (size,) = SIZE.unpack(head)
    body = stream.read(size)
    return json.loads(body) if len(body) == size else None


def write_message(stream: BinaryIO, message: Any) -> None:
    body = json.dumps(message).encode()
    stream.write(SIZE.pack(len(body)) + body)
    stream.flush()


def end_with(parent: int) -> None:
    """Ends this process group when the process that started it is gone, so that no engine keeps a GPU's memory."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os.killpg(os.getpid(), signal.SIGKILL)


def end_group_with_this() -> None:
    """Starts a process that ends the group when this one is gone. What an engine started does not notice that this one
    was killed, as Ray kills the children of an actor."""
    worker = os.getpid()
    if os.fork():
        return
    os.close(0)
    os.close(1)
    while os.getppid() == worker:
        time.sleep(LOOK_SECONDS)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main() -> None:
    if len(sys.argv) > 1:
        end_group_with_this()
        threading.Thread(target=end_with, args=(int(sys.argv[1]),), daemon=True).start()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    Worker(answers).serve(sys.stdin.buffer)


if __name__ == "__main__":
    main()
