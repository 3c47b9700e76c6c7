"""Layers on several devices, as far as one CPU can show it: weights that come and go, a KV cache for each device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
accelerate = pytest.importorskip("accelerate")

from leadline.cli.main import run_command  # noqa: E402
from leadline.core.types import Continuation  # noqa: E402
from leadline.models.hf.decode import generate_plain  # noqa: E402
from leadline.models.hf.engine import Engine, EngineRequest  # noqa: E402
from leadline.models.hf.kv_cache import KVCache  # noqa: E402
from leadline.report.page import cost  # noqa: E402
from leadline.results.run import load_run  # noqa: E402
from support.tiny_models import STOP, model_folder, random_ids, tiny  # noqa: E402

DOCUMENT = random_ids(0, 150)
ASKS = [EngineRequest(cut, random_ids(cut, 6), 5) for cut in (0, 70, 110, 150)]


def spread(family: str, folder: Path) -> Any:
    """Half of the layers on the CPU, the others on disk: their weights are there only while a layer runs."""
    model = tiny(family)
    layers = {f"model.layers.{i}": "disk" if i % 2 else "cpu" for i in range(model.config.num_hidden_layers)}
    rest = {name: "cpu" for name, _ in model.named_children() if name != "model"}
    rest |= {f"model.{name}": "cpu" for name, _ in model.model.named_children() if name != "layers"}
    return accelerate.dispatch_model(model, {**rest, **layers}, main_device="cpu", offload_dir=folder)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("family", ["llama", "gemma3", "lfm2"])
def test_a_model_spread_over_places_is_read_once_with_the_answers_of_the_whole_one(family: str, tmp_path: Path) -> None:
    model = spread(family, tmp_path)
    assert any(parameter.device.type == "meta" for parameter in model.parameters())
    engine = Engine(model, [STOP], chunk=32)
    assert not engine.support.reason
    assert not engine.support.way
    found = engine.answer(DOCUMENT, ASKS)
    whole = tiny(family)
    for ask, one in zip(ASKS, found, strict=True):
        assert one.answer == generate_plain(whole, np.concatenate([DOCUMENT[: ask.cut], ask.closing]), 5, [STOP])
    assert engine.nll(DOCUMENT, [Continuation(100, random_ids(1, 9), 2)], [(5, 40)]) is not None


def test_every_device_has_its_part_of_the_store_and_its_own_limit() -> None:
    asked: list[tuple[str, int]] = []

    def room(cache: KVCache, device: Any, used: int) -> int:
        asked.append((device.type, used))
        return 10_000

    kv_cache = KVCache(room)
    kv_cache.prepare(10, 0, [10])
    for layer, device in enumerate(["cpu", "cpu", "meta", "meta"]):
        numbers = torch.ones(1, 2, 10, 4, device=device)
        kv_cache.write(layer, numbers, numbers, None)
    each = 2 * 2 * 10 * 4 * 4
    assert asked == [("cpu", 0), ("cpu", each), ("meta", 0), ("meta", each)]
    assert [next(kv_cache.blocks(layer, [(0, 10)]))[0].device.type for layer in range(4)] == ["cpu"] * 2 + ["meta"] * 2


@pytest.mark.slow
def test_the_page_says_what_the_reading_cost(tmp_path: Path) -> None:
    model = f"hf:{model_folder(tmp_path / 'model', max_position_embeddings=4096)}"
    words = ["--lengths", "600,1200", "--depths", "2", "--samples", "1", "--set", "haystack=noise", "--no-figure"]
    shown = []
    for name, option in (("once", "?resident=0"), ("plain", "?shared=false")):
        out = ["--reading", "nested", "--out", str(tmp_path / name), "--set", "answer_tokens=4"]
        assert run_command(["run", "niah", "--model", model + option, *words, *out]) == 0
        shown.append(dict(cost(load_run(tmp_path / name))))
    assert shown[0]["how it was read"] == "keys and values of 3 of 3 layers in host memory (4)"
    once, plain = (int(pairs["read by the model, about"].partition(" tokens")[0].replace(",", "")) for pairs in shown)
    assert once < 1200 < plain
