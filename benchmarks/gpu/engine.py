"""The in-process engine on a GPU: each figure beside its baseline, measured in the same run.

    PYTHONPATH=src python benchmarks/gpu/engine.py                     everything (about eight minutes on an H200)
    PYTHONPATH=src python benchmarks/gpu/engine.py baseline nested     some parts
    PYTHONPATH=src python benchmarks/gpu/engine.py unfused nested      without fused kernels
    PYTHONPATH=src python benchmarks/gpu/engine.py qwen3-next installed reading        with fla's kernels, if installed
    PYTHONPATH=src python benchmarks/gpu/engine.py gemma-3-4b baseline nested reading       another shape

A Llama of 8B shape, or another of shapes.py, with random weights in bfloat16; 8 lengths to 128k, 11 depths, 3 samples,
16 new tokens a probe. The baseline is one `generate` per probe, timed once per length (twice below 32k, the second
kept) and multiplied by the 33 probes of that length; `fresh` is one sample of three, times three. All else is whole,
cold kernels included. A length that the baseline cannot hold in memory is left out of the factor, and said so. For
gpt-oss the baseline uses flex_attention: transformers' own choice (eager) holds all scores at once.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import shapes
import torch
from shapes import DEPTHS, LENGTHS, NEW, Ids

from leadline.core.types import Continuation
from leadline.models.hf.decode import generate_plain
from leadline.models.hf.engine import Engine, EngineRequest
from leadline.models.hf.memory import GIB, DecoderShape
from leadline.models.hf.reader import rows_of

SAMPLES = 3
FUSED = "unfused" not in sys.argv
INSTALLED = "installed" in sys.argv
ROWS: list[tuple[str, str, str]] = []


GPU = torch.cuda.is_available()


def clock(work: Callable[[], Any]) -> tuple[float, Any]:
    synchronize()
    begin = time.perf_counter()
    got = work()
    synchronize()
    return time.perf_counter() - begin, got


def synchronize() -> None:
    if GPU:
        torch.cuda.synchronize()


def peak_bytes(*, reset: bool = False) -> int:
    """The most that was allocated on the GPU since the last reset; 0 on a CPU."""
    if GPU and reset:
        torch.cuda.reset_peak_memory_stats()
    return int(torch.cuda.max_memory_allocated()) if GPU else 0


def row(work: str, figure: str, against: str) -> None:
    ROWS.append((work, figure, against))
    print(f"| {work} | {figure} | {against} |", flush=True)


def asks_of(cuts: list[int], ends: list[Ids]) -> list[EngineRequest]:
    return [EngineRequest(cut, end, NEW) for cut, end in zip(cuts, ends, strict=True)]


class Bench:
    def __init__(self, shape: str, *, lengths: tuple[int, ...] = LENGTHS, tiny: bool = False) -> None:
        self.shape = shape
        seconds, self.model = clock(lambda: shapes.model_of(shape, "cuda" if GPU else "cpu", tiny=tiny))
        print(f"{shape}, made in {seconds:.1f} s", flush=True)
        self.weights = torch.cuda.memory_allocated() if GPU else 0
        self.lengths = lengths  # those that the baseline can do
        self.plain = float("nan")
        self.prefill = float("nan")
        self.figures: dict[str, Any] = {"shape": shape, "layers": self.model.config.num_hidden_layers}

    @cached_property
    def engine(self) -> Engine:
        """Made after the baseline, which must run the model as transformers gives it."""
        engine: Engine
        seconds, engine = clock(lambda: Engine(self.model, [], fused=FUSED, installed=INSTALLED))
        assert not engine.support.reason, engine.support
        kinds = Counter(engine.reader.windows.values())
        print(f"engine made in {seconds:.1f} s, fused: {', '.join(engine.fused)}, windows: {dict(kinds)}", flush=True)
        return engine

    # --- baselines ------------------------------------------------------------------------------

    def rate(self) -> float:
        size = 8192 if GPU else 256
        a = torch.randn(size, size, device=self.model.device, dtype=torch.bfloat16)
        for _ in range(3):
            a @ a
        seconds, _ = clock(lambda: [a @ a for _ in range(10)])
        return 10 * 2 * size**3 / seconds

    def baseline(self) -> None:
        """One prompt per probe through transformers' own generate."""
        assert "engine" not in self.__dict__
        if self.shape == "gpt-oss-20b":
            self._use_flex_attention()
        times: list[float] = []
        peak_bytes(reset=True)
        for length in self.lengths:
            prompt = shapes.document(5, length - NEW)
            try:
                for _ in range(2 if length < 32768 else 1):
                    seconds, _ = clock(lambda prompt=prompt: generate_plain(self.model, prompt, NEW, []))  # type: ignore[misc]
            except RuntimeError as error:
                print(f"plain at {length}: {str(error).splitlines()[0][:200]}", flush=True)
                break
            times.append(seconds)
            print(f"plain at {length}: {seconds:.2f} s", flush=True)
        if self.shape == "gpt-oss-20b":
            self.model.set_attn_implementation("eager")
        self.lengths = self.lengths[: len(times)]
        self.plain = sum(times) * DEPTHS * SAMPLES
        self.figures["plain"] = {"seconds": self.plain, "lengths": self.lengths, "probe_seconds": times,
                                 "peak_gib": peak_bytes() / GIB}  # fmt: skip
        shown = " / ".join(f"{t:.1f}" for t in times)
        row(f"plain loop, {len(times)} x 11 x 3", f"{self.plain:.0f} s", f"{shown} s a probe at 1k ... "
            f"{self.lengths[-1] // 1024}k, x 33; {peak_bytes() / GIB:.0f} GiB")  # fmt: skip
        if GPU:
            torch.cuda.empty_cache()

    def _use_flex_attention(self) -> None:
        if not GPU:  # compiling takes a minute
            return
        try:
            self.model.set_attn_implementation("flex_attention")
            generate_plain(self.model, shapes.document(5, 512), 2, [])
        except Exception as error:  # whatever a compiler raises
            print(f"flex_attention: {type(error).__name__} {str(error)[:200]}", flush=True)
            self.model.set_attn_implementation("eager")

    # --- sweeps ---------------------------------------------------------------------------------

    def nested(self) -> None:
        self.engine.close()
        times = []
        for sample in range(SAMPLES):
            ends = shapes.closings(sample, len(self.lengths) * DEPTHS)
            asks = asks_of(shapes.cuts(self.lengths, ends), ends)
            document = shapes.document(sample, self.lengths[-1])
            peak_bytes(reset=True)
            seconds, _ = clock(lambda d=document, a=asks: self.engine.answer(d, a))  # type: ignore[misc]
            times.append(seconds)
        self.figures["nested"] = {"seconds": sum(times), "of_samples": times, "extra_gib": self._extra(),
                                  "times_faster": self.plain / sum(times), "lengths": self.lengths}  # fmt: skip
        shown = " + ".join(f"{t:.1f}" for t in times)
        row(f"nested, {len(self.lengths)} x 11 x 3", f"{sum(times):.1f} s ({shown}), {self._extra():.2f} GiB extra",
            f"{self.plain / sum(times):.1f}x the plain loop; graphs: {self.engine.reader.records}")  # fmt: skip

    def shared(self) -> None:
        self.engine.close()
        times = []
        for sample in range(SAMPLES):
            total = 0.0
            for length in reversed(self.lengths):
                ends = shapes.closings(sample, DEPTHS)
                asks = asks_of(shapes.cuts((length,), ends), ends)
                document = shapes.document(sample * 100 + length, length)
                seconds, _ = clock(lambda d=document, a=asks: self.engine.answer(d, a))  # type: ignore[misc]
                total += seconds
            times.append(total)
        shown = " + ".join(f"{t:.1f}" for t in times)
        row(
            f"shared, {len(self.lengths)} x 11 x 3",
            f"{sum(times):.1f} s ({shown})",
            f"{self.plain / sum(times):.1f}x the plain loop",
        )

    def fresh(self) -> None:
        """One needle a document, deepest first, as a run orders them; the haystack of a length is the same."""
        self.engine.close()
        total, by_length = 0.0, []
        for length in reversed(self.lengths):
            haystack, spent = shapes.document(length, length), 0.0
            for depth in np.linspace(1, 0, DEPTHS):
                (end,) = shapes.closings(int(depth * 100), 1)
                needle = shapes.document(int(depth * 100), 20)
                cut = length - NEW - len(end)
                place = int(depth * (cut - len(needle)))
                document = np.concatenate([haystack[:place], needle, haystack[place:]])[:cut]
                seconds, _ = clock(lambda d=document, e=end: self.engine.answer(d, [EngineRequest(len(d), e, NEW)]))  # type: ignore[misc]
                spent += seconds
            by_length.append(spent / DEPTHS)
            total += spent
        shown = " / ".join(f"{t:.2f}" for t in reversed(by_length))
        against = f"{self.plain / (total * SAMPLES):.1f}x the plain loop; {shown} s a probe at 1k ... 128k"
        row("fresh with prefix reuse, 8 x 11 x 3", f"{total * SAMPLES:.0f} s (one sample x 3)", against)

    # --- reading, probing, scoring --------------------------------------------------------------

    def reading(self) -> None:
        self._read_and_ask(self.lengths, "")

    def long_reading(self) -> None:
        """To 128k, where the plain loop has no memory for it."""
        self._read_and_ask(LENGTHS if GPU else self.lengths, "long_")

    def _read_and_ask(self, lengths: tuple[int, ...], label: str) -> None:
        self.engine.close()
        reader, document = self.engine.reader, shapes.document(7, lengths[-1])
        ends = shapes.closings(7, len(lengths) * DEPTHS)
        asks = asks_of(shapes.cuts(lengths, ends), ends)
        # As in a run, where states and windows are kept at the cuts.
        bases = sorted({row.base for row in rows_of(document, [ask.cut for ask in asks], ends)})
        peak_bytes(reset=True)
        for name in ("first", "again"):
            reader.forget()
            self.prefill, _ = clock(lambda: reader.read(document[: bases[-1]], cuts=bases))
            print(f"reading {len(document)} tokens, {name}: {self.prefill:.2f} s", flush=True)
        extra = self._extra()
        rate = self.rate()
        floor = self._flops(len(document)) / rate
        self.figures[f"{label}reading"] = {"tokens": len(document), "seconds": self.prefill, "extra_gib": extra,
                                   "of_floor": floor / self.prefill, "floor_tflops": rate / 1e12}  # fmt: skip
        row(
            f"prefill {len(document) // 1024}k",
            f"{self.prefill:.2f} s, {extra:.2f} GiB extra",
            f"{floor / self.prefill:.2f} of the floor ({floor:.1f} s at {rate / 1e12:.0f} TFLOP/s)",
        )
        for name in ("first", "again"):
            peak_bytes(reset=True)
            seconds, _ = clock(lambda: self.engine.answer(document, asks))
            extra = self._extra()
            self.figures[f"{label}probes_{name}"] = {"seconds": seconds, "probes": len(asks), "extra_gib": extra}
            row(f"{len(asks)} probes of mixed cuts, {name}", f"{seconds:.2f} s, {extra:.2f} GiB extra",
                f"{seconds / self.prefill:.2f} of the prefill")  # fmt: skip

    def profile(self) -> None:
        """The kernels that a reading spends its time in."""
        reader, document = self.engine.reader, shapes.document(7)
        self.engine.close()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            clock(lambda: reader.read(document))
        for event in sorted(profiler.key_averages(), key=lambda e: -e.self_device_time_total)[:16]:
            print(f"{event.self_device_time_total / 1e6:7.3f} s {event.count:6} x {event.key[:110]}", flush=True)

    def _flops(self, tokens: int) -> float:
        """Operations of a reading; a layer with a window attends to that many keys."""
        shape = DecoderShape.of(self.model.config.to_dict())
        full = shape.flops_attention(tokens) / shape.layers
        each = 4.0 * shape.heads * shape.width * tokens
        saved = sum(full - each * local.size for local in self.engine.reader.windows.values())
        return shape.flops_read(tokens) - saved

    def nll(self) -> None:
        document = shapes.document(7)
        spans = [(a, a + 24) for a in np.linspace(1000, 130000, 32).astype(int).tolist()]
        tails = [Continuation(len(document), shapes.document(a, 48), 24) for a in range(32)]
        many = [Continuation(len(document) - 1000 * (a % 100), shapes.document(a, 48), 24) for a in range(600)]
        for name, rows, parts in (
            ("32 spans of one 128k document", [], spans),
            ("32 continuations of one 128k document", tails, []),
            ("600 continuations of 100 cuts of one 128k document", many, []),
            ("all tokens of one 128k document", [], [(1, len(document))]),
        ):
            self.engine.close()
            peak_bytes(reset=True)
            seconds, nats = clock(lambda r=rows, p=parts: self.engine.nll(document, r, p))  # type: ignore[misc]
            assert nats is not None
            ratio = f"{seconds / self.prefill:.2f} of a prefill"
            row(f"NLL of {name}", f"{seconds:.2f} s, {self._extra():.2f} GiB extra", ratio)
        # LongPPL's short contexts come after the whole document, whose KV cache they take over.
        starts = range(1024, 17 * 1024, 1024)
        peak_bytes(reset=True)
        seconds, _ = clock(lambda: [self.engine.nll(document[a : a + 5120], [], [(4096, 5120)]) for a in starts])
        figure = f"{seconds / len(starts):.3f} s each, {self._extra():.2f} GiB extra"
        row("LongPPL's short contexts, after all tokens of 128k", figure, f"{len(starts)} of 123 measured")

    def _extra(self) -> float:
        """GiB at the peak beyond weights and KV cache."""
        kv_cache, keeper = self.engine.reader.kv_cache, self.engine.reader.keeper
        held = (0 if kv_cache is None else kv_cache.bytes) + (0 if keeper is None else keeper.bytes)
        return (peak_bytes() - self.weights - held) / GIB if GPU else 0.0

    def gain(self) -> None:
        """Retrieval gain's two conditions on documents of 8k: 2 anchors and 32, and the usual full-logit passes."""
        for length in (16384, 8192):
            documents, before = [shapes.document(50 + i, length) for i in range(8)], 0.0
            for count in (2, 32):
                anchors = np.linspace(800, 4900, count).astype(int).tolist()
                for _ in range(2):  # the first is a warm-up
                    self.engine.close()
                    seconds, _ = clock(lambda a=anchors, d=documents: [self._gain(x, a) for x in d])  # type: ignore[misc]
                against = f"{seconds / before:.2f} of 2 anchors" if before else ""
                row(f"retrieval gain, {length // 1024}k, {count} anchors", f"{seconds / 8:.3f} s a document", against)
                before = seconds
        self.engine.reader.use_own_attention()
        anchors = [800, 4900]
        clock(lambda: self._usual(documents[0], anchors[0]))
        seconds, usual = clock(lambda: [self._usual(d, a) for d in documents for a in anchors])
        ours = [g for d in documents for g in self._gain(d, anchors)]
        row("retrieval gain, 8k, 2 anchors, full logits", f"{seconds / 8:.3f} s a document", _apart(usual, ours))
        self.engine.close()
        mine = self.engine
        self.__dict__["engine"] = Engine(shapes.model_of(self.shape, like=self.model), [])
        truth = [g for d in documents[:2] for g in self._gain(d, anchors)]
        self.__dict__["engine"] = mine
        row(
            "gain in bfloat16 against float32",
            f"read once: {_apart(ours, truth)}",
            f"full logits: {_apart(usual, truth)}",
        )

    def _gain(self, document: Ids, anchors: list[int]) -> list[float]:
        cuts = [len(document)] * len(anchors) + [0] * len(anchors)
        tails = [Continuation(cut, document[a : a + 48], 24) for cut, a in zip(cuts, anchors * 2, strict=True)]
        nats = self.engine.nll(document, tails, [])
        assert nats is not None
        n = len(anchors)
        return [float(nats.continuations[n + i].mean() - nats.continuations[i].mean()) for i in range(n)]

    def _usual(self, document: Ids, anchor: int) -> float:
        """Chunks of 1,024 through the model with all their logits, document and query together."""
        from transformers import DynamicCache

        def answer_nll(ids: Ids) -> float:
            cache, tokens, losses = DynamicCache(), torch.from_numpy(ids.astype(np.int64)).cuda()[None], []
            with torch.inference_mode():
                for start in range(0, len(ids), 1024):
                    part = tokens[:, start : start + 1024]
                    logits = self.model(input_ids=part, past_key_values=cache, use_cache=True).logits[0].float()
                    goal = tokens[0, start + 1 : start + 1 + part.shape[1]]
                    losses.append(torch.nn.functional.cross_entropy(logits[: len(goal)], goal, reduction="none"))
            return float(torch.cat(losses)[-24:].mean())

        tail = document[anchor : anchor + 48]
        return answer_nll(tail) - answer_nll(np.concatenate([document, tail]))

    # --- equality -------------------------------------------------------------------------------

    def equality(self) -> None:
        """The same answers in float32, and how far bfloat16 logits are from the plain path's."""
        from transformers import AutoModelForCausalLM, LlamaConfig

        torch.manual_seed(3)
        small = LlamaConfig(vocab_size=512, hidden_size=512, intermediate_size=1024, num_hidden_layers=4,
                            num_attention_heads=8, num_key_value_heads=2, max_position_embeddings=32768)  # fmt: skip
        with torch.device("cuda" if GPU else "cpu"):
            model = AutoModelForCausalLM.from_config(small, dtype=torch.float32).eval()
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.data.normal_(0, 0.06)
        tokens, count = (20000, 24) if GPU else (600, 4)
        document = shapes.document(1, tokens) % 512
        ends = [e % 512 for e in shapes.closings(2, count)]
        asks = [EngineRequest(int(c), e, NEW) for c, e in zip(np.linspace(0, tokens, count), ends, strict=True)]
        prompts = [np.concatenate([document[: ask.cut], ask.closing]) for ask in asks]
        plain = [generate_plain(model, prompt, NEW, [3]) for prompt in prompts]
        engine = Engine(model, [3], fused=FUSED)
        together = engine.answer(document, asks)
        alone = [engine.answer(document, [ask])[0] for ask in asks]
        for name, told in (("in one batch", together), ("one by one", alone)):
            same = sum(one.answer == want for one, want in zip(told, plain, strict=True))
            self.figures.setdefault("equality", {})[name] = [same, len(asks)]
            row(f"float32 answers equal to the plain path's, {name}", f"{same} of {len(asks)}",
                f"graphs: {engine.reader.records}, fused: {', '.join(engine.fused)}")  # fmt: skip


def _apart(a: list[float], b: list[float]) -> str:
    """Of as many as both have: the largest difference and the mean one."""
    apart = [abs(x - y) for x, y in zip(a, b, strict=False)]
    return f"{max(apart):.1e} nats apart at most, {sum(apart) / len(apart):.1e} on average"


def main(parts: list[str]) -> None:
    everything = ["baseline", "equality", "nested", "shared", "fresh", "reading", "nll", "gain"]
    named = [part for part in parts if part in shapes.SHAPES]
    bench = Bench(*(named or ["llama-8b"]))
    for part in [p for p in parts if p not in ("unfused", "installed", *named)] or everything:
        getattr(bench, part)()
    print("\n| work | measured | against |\n|---|---|---|")
    for line in ROWS:
        print(f"| {' | '.join(line)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
