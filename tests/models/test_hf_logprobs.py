"""Log-probability metrics of transformers models: known probabilities, shared against separate passes, blindness."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from leadline.core.answers import Measurement  # noqa: E402
from leadline.core.spec import Spec, make_spec  # noqa: E402
from leadline.models.hf import HF  # noqa: E402
from leadline.models.hf.model import HFModel  # noqa: E402
from leadline.run.measure import measure  # noqa: E402
from leadline.stats.logprobs import estimate  # noqa: E402
from leadline.store.runs import read_records  # noqa: E402
from support.logprob_model import use  # noqa: E402
from support.tiny_models import WORDS, model_folder, random_ids  # noqa: E402


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Six documents of words that the tiny tokenizer knows."""
    file = tmp_path_factory.mktemp("texts") / "texts.json"
    file.write_text(json.dumps([" ".join(f"w{i}" for i in random_ids(seed, 300)) for seed in range(6)]))
    return str(file)


def spec(texts: str, task: str = "proxies", **values: Any) -> Spec:
    options = {"documents": texts, "least": 64, "short": 64, "step": 32}
    base = {"model": "hf:tiny", "lengths": "120,240", "depths": (0.1, 0.6), "samples": 3}
    return make_spec({**base, "tasks": [{"name": task, **options}], **values})


def numbers(folder: Path) -> dict[str, dict[str, float]]:
    return {r.cell.key: r.outcome.numbers for r in read_records(folder) if isinstance(r.outcome, Measurement)}


def assert_same(left: Path, right: Path, within: float) -> None:
    one, other = numbers(left), numbers(right)
    assert one.keys() == other.keys()
    for key in one:
        assert one[key] == pytest.approx(other[key], abs=within)


@pytest.mark.slow
def test_shared_separate_and_nested_passes_give_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: str
) -> None:
    folder = str(model_folder(tmp_path / "model", "llama", chat=False))
    use(monkeypatch, HF(chunk=64).open(folder))
    measure(spec(texts), tmp_path / "shared")
    measure(spec(texts, reading="nested"), tmp_path / "nested")
    use(monkeypatch, HF(shared=False).open(folder))
    measure(spec(texts), tmp_path / "separate")
    assert_same(tmp_path / "shared", tmp_path / "separate", 1e-4)
    assert_same(tmp_path / "shared", tmp_path / "nested", 1e-4)


def test_a_model_that_sees_less_than_the_query_gains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: str
) -> None:
    # Three layers of eight tokens each reach back no further than 24 tokens: the query hides the document.
    folder = model_folder(tmp_path / "model", "mistral_sliding", chat=False, sliding_window=8)
    use(monkeypatch, HF().open(str(folder)))
    measure(spec(texts, "retrieval_gain", samples=6), tmp_path / "run")
    found = estimate(read_records(tmp_path / "run"), "retrieval_gain")
    assert found.mean == pytest.approx(0, abs=1e-4)
    assert found.interval.holds(0) or abs(found.mean) < 1e-5


def test_known_probabilities_give_known_perplexity_and_no_gain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: str
) -> None:
    opened = HF(chunk=64).open(str(model_folder(tmp_path / "model", chat=False)))
    assert isinstance(opened, HFModel)
    head = opened.engine.model.get_output_embeddings()
    weights = np.arange(1, WORDS + 1, dtype=np.float64)
    chances = weights / weights.sum()
    with torch.no_grad():  # whatever was read, word i comes with chance (i + 1) / sum
        head.weight.zero_()
        head.bias = torch.nn.Parameter(torch.tensor(np.log(chances), dtype=torch.float32))
    use(monkeypatch, opened)
    measure(spec(texts, lengths="240", samples=1), tmp_path / "run")
    record = next(r for r in read_records(tmp_path / "run") if r.cell.depth == 0.1)
    assert isinstance(record.outcome, Measurement)
    found = record.outcome.numbers
    text = next(t for t in json.loads(Path(texts).read_text()) if record.question.targets[0].strip() in t)

    def by_hand(words: list[str]) -> float:
        return float(np.mean([-np.log(chances[int(word[1:])]) for word in words]))

    assert found["retrieval_nll"] == pytest.approx(by_hand(record.question.targets[0].split()), abs=1e-5)
    assert found["retrieval_gain"] == pytest.approx(0, abs=1e-6)
    assert found["mean_nll"] == pytest.approx(by_hand(text.split()[1:240]), abs=1e-5)
    assert found["key_tokens"] == 0


def test_a_chat_model_is_measured_without_its_template_and_with_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: str
) -> None:
    folder = model_folder(tmp_path / "model", chat=True)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"add_bos_token": True}))
    opened = HF(chunk=64).open(str(folder))
    assert isinstance(opened, HFModel)
    assert opened.frame.before != opened.plain.before == "<s>"
    use(monkeypatch, opened)
    measure(spec(texts, "mean_nll", lengths="120", samples=1), tmp_path / "run")
    (record,) = read_records(tmp_path / "run")
    assert isinstance(record.outcome, Measurement)
    assert (record.body_tokens, record.outcome.numbers["scored_tokens"]) == (120, 120)


def test_needle_gain_uses_the_template_and_finds_the_same_shared_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(model_folder(tmp_path / "model", chat=True))
    want = make_spec(
        {"model": "hf:tiny", "tasks": ["needle_gain"], "lengths": "300", "depths": 2, "samples": 2, "reading": "shared"}
    )
    for name, options in (("shared", HF(chunk=64)), ("separate", HF(shared=False))):
        use(monkeypatch, options.open(folder))
        measure(want, tmp_path / name)
    assert_same(tmp_path / "shared", tmp_path / "separate", 2e-3)
