"""As much of SGLang's offline engine as is used: its names, its shapes, and the missing first value."""

from __future__ import annotations

from typing import Any

from support.rule_lm import Cache, likely, nats

__version__ = "0.6.0"


class Engine:
    def __init__(self, model_path: str, random_seed: int, log_level: str, **options: Any) -> None:
        unknown = set(options) - {"tp_size", "context_length", "kv_cache_dtype", "dtype"}
        if unknown:
            raise TypeError(f"ServerArgs.__init__() got an unexpected keyword argument {sorted(unknown)[0]!r}")
        self.window, self.cache = options.get("context_length", 512), Cache(1)

    def get_server_info(self) -> dict[str, Any]:
        return {"context_length": self.window, "max_total_num_tokens": 1024, "page_size": 1, "dtype": "float32"}

    def generate(
        self,
        input_ids: list[list[int]],
        sampling_params: list[dict[str, Any]],
        return_logprob: bool = False,
        logprob_start_len: list[int] | None = None,
    ) -> list[dict[str, Any]]:
        found = []
        for number, (ids, asked) in enumerate(zip(input_ids, sampling_params, strict=True)):
            assert asked["temperature"] == 0.0
            cached, written = self.cache.read(ids), list[int]()
            while len(written) < asked["max_new_tokens"]:
                written.append(likely([*ids, *written]))
                if written[-1] == 2 or written[-1] in asked.get("stop_token_ids", ()):
                    break
            meta: dict[str, Any] = {"prompt_tokens": len(ids), "completion_tokens": len(written)}
            if return_logprob:
                assert logprob_start_len is not None
                start = logprob_start_len[number]
                cached = min(cached, start)
                rows: list[Any] = [(None, ids[start], None)]
                rows += [(-nats(ids[:n], ids[n]), ids[n], None) for n in range(start + 1, len(ids))]
                meta["input_token_logprobs"] = rows
            stop = written[-1] == 2 or written[-1] in asked.get("stop_token_ids", ())
            meta |= {"cached_tokens": cached, "finish_reason": {"type": "stop" if stop else "length"}}
            found.append({"text": "", "output_ids": written, "meta_info": meta})
        return found
