"""The memory and cost model, and what happens when memory really runs out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from leadline.cli.main import run_command
from leadline.core import memory as core_memory
from leadline.core.errors import SourceError, UsageError
from leadline.models.hf import forecast, host_memory, memory
from leadline.models.hf.forecast import DocumentReading, Speed, cost, format_gpus
from leadline.models.hf.memory import GIB, DecoderShape, check_fits, longest_that_fits
from support.tiny_models import model_folder

LLAMA_8B = DecoderShape.of(
    {
        "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "model_type": "llama",
    }
)  # fmt: skip


def test_an_8b_model_has_the_published_sizes() -> None:
    assert LLAMA_8B.parameters == pytest.approx(8.03e9, rel=0.001)
    assert LLAMA_8B.kv_bytes("bfloat16") == 128 * 1024
    assert LLAMA_8B.flops_read(131072) == pytest.approx(6.33e15, rel=0.01)


@pytest.mark.parametrize(
    ("name", "values", "layers", "key_heads"),
    [
        ("Jamba", {"num_hidden_layers": 32}, 4, 8),
        ("Bamba", {"num_hidden_layers": 32, "attn_layer_indices": [9, 18, 27]}, 3, 8),
        ("RecurrentGemma", {"num_hidden_layers": 26}, 0, 10),
        ("Falcon", {}, 32, 1),
        ("Falcon", {"new_decoder_architecture": True, "num_kv_heads": 8}, 32, 8),
    ],
)
def test_layers_and_heads_that_keep_keys_are_found_whatever_the_configuration_calls_them(
    name: str, values: dict[str, Any], layers: int, key_heads: int
) -> None:
    transformers = pytest.importorskip("transformers")
    shape = DecoderShape.of_config(getattr(transformers, f"{name}Config")(**values))
    assert (shape.full, shape.key_heads) == (layers, key_heads)


def test_a_hybrid_layer_with_a_window_keeps_no_more_than_its_window() -> None:
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100, "sliding_window": 32}
    shape = DecoderShape.of({**sizes, "layer_types": ["hybrid_sliding"] * 3 + ["hybrid"]})
    assert (shape.layers, shape.full, shape.local) == (4, 1, 3)


def test_reading_the_rest_of_a_document_costs_the_difference() -> None:
    whole, half = LLAMA_8B.flops_read(8192), LLAMA_8B.flops_read(4096)
    assert LLAMA_8B.flops_read(8192, start=4096) == pytest.approx(whole - half)


def test_files_that_were_read_count_as_free_in_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {
        "memory.max": f"{1 << 24}\n",
        "memory.current": f"{15 << 20}\n",
        "memory.stat": f"anon {3 << 20}\nfile {12 << 20}\ninactive_file {11 << 20}\n",
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(core_memory, "CONTROL_GROUP", tmp_path)
    assert core_memory.free_host_memory() == 12 << 20
    assert host_memory.device_memory(torch.device("cpu")) == 1 << 24
    (tmp_path / "memory.max").write_text("max\n")
    assert (core_memory.free_host_memory() or 0) > 1 << 24  # of the machine


def test_a_nested_heatmap_costs_a_fraction_of_a_fresh_one() -> None:
    lengths = [1024 * 2**i for i in range(8)]
    fresh = [DocumentReading(((n - 56, 40, 16),)) for n in lengths for _ in range(33)]
    nested = [DocumentReading(tuple((n - 56, 40, 16) for n in lengths for _ in range(11)))] * 3
    weights = LLAMA_8B.parameters * 2
    slow = cost(LLAMA_8B, fresh, dtype="bfloat16", weights=weights, chunk=8192)
    quick = cost(LLAMA_8B, nested, dtype="bfloat16", weights=weights, chunk=8192)
    assert slow.flops == pytest.approx(33 * (13.96e9 * 255 * 1024 + 0.524e6 * 1.1453e10), rel=0.01)
    assert slow.flops / quick.flops > 15
    assert quick.cache == (131072 - 56) * 128 * 1024
    assert quick.memory > weights + quick.cache
    speed = Speed(products=4e14, attention=4e14, decoding=4e12)
    assert sum(quick.seconds(speed)) < sum(slow.seconds(speed))


def test_time_has_a_part_for_products_one_for_attention_and_one_for_answers() -> None:
    weights, n = LLAMA_8B.parameters * 2, 65536
    found = cost(LLAMA_8B, [DocumentReading(((n, 0, 10),))], dtype="bfloat16", weights=weights, chunk=8192)
    products, pairs = 2 * 6.98e9 * n, 32 * 4 * 4096 * n * n / 2
    reading, answers = found.seconds(Speed(products=products / 3, attention=pairs / 50, decoding=weights + n * 131072))
    assert reading == pytest.approx(53, rel=0.01)
    assert answers == pytest.approx(10)
    half = cost(LLAMA_8B, [DocumentReading(((n, 0, 10),), n // 2)], dtype="bfloat16", weights=weights, chunk=8192)
    rest, _ = half.seconds(Speed(products=products / 3, attention=pairs / 50, decoding=1))
    assert rest == pytest.approx(1.5 + 37.5, rel=0.01)


def test_speed_is_that_of_the_model_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that goes on by the tokens of every pass, so that the test needs no time of its own."""
    pytest.importorskip("torch")
    from leadline.models.hf import engine as module
    from support.tiny_models import tiny

    engine, ticks = module.Engine(tiny("llama", max_position_embeddings=4096), [3], chunk=1024), [0.0]
    run = engine.reader.run

    def counted(step: Any, ids: Any, positions: Any) -> Any:
        ticks[0] += ids.numel() / 256
        return run(step, ids, positions)

    monkeypatch.setattr(engine.reader, "run", counted)
    monkeypatch.setattr(engine, "_attention_flops_per_second", lambda shape, longest: 1e15)
    monkeypatch.setattr("leadline.models.hf.engine.time.perf_counter", lambda: ticks[0])
    speed = engine.measure_speed(8192)
    shape = DecoderShape.of(engine.model.config.to_dict())
    per_token = shape.flops_read(1) - shape.flops_attention(1)
    assert speed.products == pytest.approx(256 * per_token, rel=0.01)
    weights = sum(p.numel() * p.element_size() for p in engine.model.parameters())
    assert speed.decoding == pytest.approx(256 * (weights + 1024 * engine.kv_bytes), rel=0.01)
    assert engine.stops == (3,)
    assert engine.reader.kv_cache is None


def test_what_fits_is_said_when_a_length_does_not() -> None:
    weights = LLAMA_8B.parameters * 2
    fits = longest_that_fits(LLAMA_8B, dtype="bfloat16", weights=weights, memory=24 * GIB)
    assert 50_000 < fits < 70_000
    with pytest.raises(UsageError, match=r"131072 tokens need 3\d\.\d GiB") as caught:
        check_fits(LLAMA_8B, [4096, 32768, 131072], dtype="bfloat16", weights=weights, memory=24 * GIB, where="model")
    assert "--lengths 4096,32768" in caught.value.fix
    check_fits(LLAMA_8B, [32768], dtype="bfloat16", weights=weights, memory=24 * GIB, where="model")


def test_weights_that_do_not_fit_at_all_are_sent_elsewhere() -> None:
    with pytest.raises(UsageError) as caught:
        check_fits(LLAMA_8B, [4096], dtype="float32", weights=32 * GIB, memory=24 * GIB, where="model")
    assert "device_map" in caught.value.fix


def test_a_million_tokens_spill_to_host_memory_and_the_plan_says_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(forecast, "device_memory", lambda device: 139 * GIB)
    monkeypatch.setattr(forecast, "free_host_memory", lambda: 120 * GIB)
    lengths = [4096 * 2**i for i in range(9)]
    nested = [DocumentReading(tuple((n - 56, 40, 16) for n in lengths for _ in range(11)))]
    speed = Speed(products=6e14, attention=6e14, decoding=3e12, host=51 * GIB)

    def words(**more: Any) -> tuple[str, ...]:
        return forecast.forecast(
            LLAMA_8B, nested, lambda: speed, dtype="bfloat16", weights=LLAMA_8B.parameters * 2, chunk=8192,
            devices=[torch.device("cuda")], where="8B", **more,
        )  # fmt: skip

    needed, time = words()
    assert "cache 128.0 (128 KiB a token)" in needed
    assert "120.0 of the cache stay on the device, 8.0 go to host memory" in needed
    assert "time about 8 min 26 s for reading" in time
    assert "host memory" not in words(fp8=True)[0]
    assert "64.0 of the cache stay on the device" in words(resident=64 * GIB)[0]
    monkeypatch.setattr(forecast, "free_host_memory", lambda: 6 * GIB)
    with pytest.raises(UsageError, match=r"beside 2\.0 GiB of host memory") as caught:
        words()
    assert "store=fp8" in caught.value.fix
    assert "lengths up to" in caught.value.fix


def test_windows_and_states_do_not_grow_with_the_document() -> None:
    sizes = {
        "num_hidden_layers": 34, "hidden_size": 2560, "intermediate_size": 10240, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208, "sliding_window": 1024,
        "layer_types": ["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(34)],
    }  # fmt: skip
    gemma = DecoderShape.of(sizes)
    assert (gemma.full, gemma.local) == (5, 29)
    assert gemma.kv_bytes("bfloat16") == 5 * 4096
    assert gemma.window_bytes("bfloat16", 1 << 20, range(4096, 40000, 4096)) == 29 * 4096 * 1024 * 11
    assert gemma.window_bytes("bfloat16", 4096, [100, 4000]) == 29 * 4096 * 4096  # windows would be as much
    assert gemma.window_bytes("bfloat16", 5000, [100, 4000]) == 29 * 4096 * (100 + 3 * 1024)
    every = DecoderShape.of({**sizes, "layer_types": None, "sliding_window": None})
    assert gemma.flops_attention(1 << 20) < 0.16 * every.flops_attention(1 << 20)
    assert gemma.flops_attention(1000) == every.flops_attention(1000)
    hybrid = DecoderShape.of({**sizes, "layer_types": ["mamba"] * 30 + ["attention"] * 4, "sliding_window": None})
    assert (hybrid.full, hybrid.local) == (4, 0)


def test_a_million_tokens_of_gemma_are_planned_with_the_windows_that_rows_share() -> None:
    """9 lengths x 11 depths, whose questions differ by a few tokens: 9 windows are kept and not 99."""
    gemma = DecoderShape(
        layers=34, hidden=2560, intermediate=10240, heads=8, key_heads=4, width=256, vocabulary=262208, full=5,
        local=29, window=1024,
    )  # fmt: skip
    probes = tuple(((4096 << i) - 56 - depth % 7, 40, 16) for i in range(9) for depth in range(11))
    found = cost(gemma, [DocumentReading(probes)], dtype="bfloat16", weights=0, chunk=4096)
    assert found.cache / GIB == pytest.approx(20 + 29 * 11 * 4 / 1024, abs=0.01)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("name", ["gemma3", "gpt_oss", "mistral", "llama", "deepseek_v3"])
def test_the_planned_cache_is_the_real_one(name: str, fp8: bool) -> None:
    pytest.importorskip("transformers")
    from leadline.models.hf.engine import Engine, EngineRequest
    from support.architectures import architecture
    from support.tiny_models import random_ids

    engine = Engine(architecture(name), [], chunk=64, fp8=fp8)
    shape = DecoderShape.of(engine.model.config.to_dict())
    for tokens, cuts in ((900, (30, 33, 200, 205, 210, 900)), (120, (10, 60, 120))):
        asks = [EngineRequest(cut, random_ids(cut, 5), 2) for cut in cuts]
        engine.answer(random_ids(1, tokens), asks)
        reading = DocumentReading(tuple((ask.cut, 5, 2) for ask in asks))
        planned = cost(shape, [reading], dtype="float32", weights=0, chunk=64, fp8=fp8).cache
        assert engine.reader.kv_cache is not None
        spare = 2 * shape.window_bytes("float32", shape.window, fp8=fp8)  # around the chunk being read
        assert planned - spare - 200 * shape.local <= engine.reader.kv_cache.bytes <= planned
        engine.close()


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("name", ["llama", "gemma3"])
@pytest.mark.parametrize("cuts", [(30, 200, 900), tuple(range(100, 901, 50))])
def test_the_plan_and_the_engine_put_the_same_layers_into_host_memory(
    name: str, fp8: bool, cuts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a pretended GPU, from too small for any layer to large enough for all; some tensors are there already."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from leadline.models.hf import engine as module
    from support.architectures import architecture
    from support.tiny_models import random_ids

    engine = module.Engine(architecture(name), [], chunk=64, fp8=fp8)
    shape = DecoderShape.of(engine.model.config.to_dict())
    weights, document = 12_345_678, random_ids(1, cuts[-1])
    asks = [module.EngineRequest(cut, random_ids(cut, 5), 2) for cut in cuts]
    reading = DocumentReading(tuple((cut, 5, 2) for cut in cuts))
    layers, each, windows = shape.whole_layers("float32", cuts[-1], reading.bases, fp8=fp8)
    fixed = memory.OVERHEAD + memory.STAGING_BYTES + memory.ROWS_BYTES + shape.activation_bytes(64, "float32")
    spilled = []
    for more in (0, each - 1, each, 2 * each - 1, layers * each):
        has = fixed + weights + windows + more
        monkeypatch.setattr(module, "gpu_memory", lambda device, has=has: (has, weights))
        monkeypatch.setattr(forecast, "device_memory", lambda device, has=has: has)
        monkeypatch.setattr(forecast, "free_host_memory", lambda: 120 * GIB)
        monkeypatch.setattr(forecast, "GIB", each)  # so that the plan counts in layers
        [needed, _] = forecast.forecast(
            shape, [reading], None, dtype="float32", weights=weights, chunk=64, devices=[torch.device("cuda")],
            where=name, fp8=fp8,
        )  # fmt: skip
        engine.answer(document, asks)
        assert engine.reader.kv_cache is not None
        spilled.append(len(engine.reader.kv_cache.spilled_layers))
        assert (f", {spilled[-1]}.0 go to host memory" in needed) == (spilled[-1] > 0)
        assert ("host memory" in needed) == (spilled[-1] > 0)
        engine.close()
    assert spilled == [layers, layers, layers - 1, layers - 1, 0]


def test_a_configuration_without_its_sizes_is_refused() -> None:
    with pytest.raises(SourceError, match="num_hidden_layers"):
        DecoderShape.of({"hidden_size": 8, "num_attention_heads": 2})


def test_weights_agree_with_the_shape() -> None:
    pytest.importorskip("transformers")
    from support.tiny_models import tiny

    model = tiny("llama")
    shape = DecoderShape.of(model.config.to_dict())
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(shape.parameters, rel=0.01)


class Shortage:
    """A reader whose passes fail when they bring more tokens than the pretended memory holds."""

    def __init__(self, engine: Any, *, chunk: int, capacity: int) -> None:
        self.run, self.chunk, self.capacity = engine.reader.run, chunk, capacity
        self.seen: list[int] = []
        engine.reader.run = self

    def __call__(self, step: Any, ids: Any, positions: Any) -> Any:
        import torch

        self.seen.append(ids.numel())
        if ids.numel() > self.chunk or int(positions.max()) >= self.capacity:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate more than there is")
        return self.run(step, ids, positions)


def test_a_shortage_is_met_with_smaller_chunks_and_the_same_answers() -> None:
    pytest.importorskip("torch")
    from leadline.models.hf.engine import Engine, EngineRequest
    from support.tiny_models import random_ids, tiny

    document = random_ids(0, 3000)
    requests = [EngineRequest(cut, random_ids(cut, 5), 4) for cut in (400, 1500, 2990)]
    plenty = Engine(tiny("llama", max_position_embeddings=4096), [], chunk=2048)
    want = plenty.answer(document, requests)
    engine = Engine(plenty.model, [], chunk=2048)
    short = Shortage(engine, chunk=512, capacity=5000)
    assert engine.answer(document, requests) == want
    assert max(short.seen) == 2048
    assert engine.reader.chunk == 2048


def test_what_never_fits_fails_alone_and_the_rest_is_answered() -> None:
    pytest.importorskip("torch")
    from leadline.models.hf.engine import Engine, EngineRequest
    from support.tiny_models import random_ids, tiny

    document = random_ids(0, 3000)
    requests = [EngineRequest(cut, random_ids(cut, 5), 4) for cut in (2990, 400, 1500, 2990)]
    plenty = Engine(tiny("llama", max_position_embeddings=4096), [], chunk=1024)
    want = plenty.answer(document, requests)
    engine = Engine(plenty.model, [], chunk=1024)
    Shortage(engine, chunk=1024, capacity=2000)
    got = engine.answer(document, requests)
    assert [one.answer for one in got] == [None, want[1].answer, want[2].answer, None]


# --- a folder without weights


@pytest.fixture
def unloaded(tmp_path: Path) -> Path:
    """A configuration of 8 billion parameters and a tokenizer, and nothing else."""
    folder = model_folder(tmp_path / "small")
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "dtype": "bfloat16",
        "head_dim": 128,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    for path in folder.glob("*.safetensors"):
        path.unlink()
    return folder


def test_a_run_is_planned_from_the_configuration_alone(unloaded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "niah", "--model", f"hf:{unloaded}", "--lengths", "2k,8k", "--depths", "2", "--samples", "1"]
    assert run_command([*words, "--set", "haystack=noise", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["window"] == 8192
    assert found["total"]["requests"] == 4
    notes = " ".join(found["notes"])
    assert "no weights: planned for about 8.03e09 parameters in bfloat16" in notes
    assert "weights 15.0, cache 1.0 (128 KiB a token)" in notes
    assert "operations for reading" in notes
    assert run_command([*words, "--json", "--set", "haystack=noise"]) == 0


def test_a_model_without_weights_cannot_be_run(
    unloaded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "niah", "--model", f"hf:{unloaded}", "--lengths", "2k", "--out", str(tmp_path / "out")]
    assert run_command(words) == 66
    said = capsys.readouterr().err
    assert "has a config.json and no weights" in said
    assert "leadline plan" in said
    assert not (tmp_path / "out").exists()


def test_scaled_positions_widen_the_window_of_a_plan(unloaded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "niah", "--lengths", "2k", "--depths", "1", "--samples", "1", "--json", "--set", "haystack=noise"]
    for rope, window in (("yarn:4", 32768), ("ntk:2", 16384), ("theta:1e6", 8192)):
        assert run_command([*words, "--model", f"hf:{unloaded}?rope={rope}"]) == 0
        assert json.loads(capsys.readouterr().out)["window"] == window


@pytest.mark.parametrize(
    ("gib", "words"),
    [
        (33, "GPUs: 1 of 80 GB or 1 of 141 GB"),
        (144, "GPUs: 3 of 80 GB or 2 of 141 GB; with 4 of 80 GB, vllm: reads on all of them at once "
              "(tensor_parallel_size=4)"),
        (821, "GPUs: 12 of 80 GB or 7 of 141 GB; with 16 of 80 GB, vllm: reads on all of them at once "
              "(tensor_parallel_size=8&pipeline_parallel_size=2)"),
    ],
)  # fmt: skip
def test_a_plan_without_a_device_counts_the_gpus_that_hold_it(gib: int, words: str) -> None:
    assert format_gpus(gib << 30) == words


def test_a_gpu_is_asked_for_its_memory_once_a_document_and_not_for_every_weight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from leadline.models.hf import engine as module
    from support.tiny_models import random_ids, tiny

    engine = module.Engine(tiny("llama"), [], chunk=64)
    asked: list[object] = []
    monkeypatch.setattr(module, "gpu_memory", asked.append)
    engine.reader.new_kv_cache()
    assert asked == [engine.reader.device]
    assert len(list(engine.model.parameters())) > 1
    assert engine.nll(random_ids(1, 20), [], [(5, 20)]) is not None
