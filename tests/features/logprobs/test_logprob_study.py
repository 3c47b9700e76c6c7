"""The proxy study: its page says what its records say, and its variants still change what they are meant to change."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leadline.core.types import Continuation, TokenNLL
from leadline.features.correlate.correlation import spearman
from support.tiny_models import model_folder, random_ids

FOLDER = Path(__file__).parents[3] / "studies" / "proxy"
RESULTS = json.loads((FOLDER / "results" / "results.json").read_text())
PAGE = (FOLDER / "README.md").read_text()
LENGTH = 2200


@pytest.fixture(scope="module", autouse=True)
def _findable() -> Iterator[None]:
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def own(model: str) -> TokenNLL:
    return nll_of("native", model)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(model_folder(tmp_path_factory.mktemp("model"), "llama", chat=False))


def test_the_records_give_the_published_rank_correlation() -> None:
    records = import_module("records").Records.read(FOLDER / "results" / "records.jsonl.gz")
    target = records.accuracy(records.common)
    assert len(target) == RESULTS["variants"] >= 17
    assert len(records.common) == RESULTS["questions"]
    assert records.tokens_asked(records.common) == RESULTS["tokens_of_accuracy"]
    for name in ("needle_chance", "retrieval_gain", "mean_nll"):
        proxy = next(p for p in import_module("analyse").PROXIES if p.name == name)
        scores = proxy.scores(records, records.lengths)
        found = spearman([scores[v] for v in target], list(target.values()))
        assert round(found, 3) == RESULTS["proxies"][name]["spearman"][0]


def test_the_page_has_the_numbers_of_the_results() -> None:
    for name in ("needle_chance", "needle_nll", "needle_gain", "retrieval_nll", "tail_loss", "tail_vs_head"):
        value, low, high = RESULTS["proxies"][name]["spearman"]
        row = re.search(rf"^\| `{name}` \| 29 \| (\S+ \[[^]]+\])", PAGE, re.MULTILINE)
        assert row is not None
        assert row[1].replace("*", "") == f"{value:.2f} [{low:.2f}, {high:.2f}]"
    (point,) = [p for p in RESULTS["cost"]["needle_chance"] if p["read"].startswith("1 of")]
    assert f"{point['tokens'] / 1000:.0f}k tokens, has a median of\n{point['spearman'][0]:.2f}" in PAGE
    assert f"by {RESULTS['reliability']['whole']}" in PAGE


def nll_of(name: str, folder: str, **changes: Any) -> TokenNLL:
    """Of a variant at what follows a long text, and at the end of the text itself."""
    views, zoo = import_module("views"), import_module("zoo")
    variant = zoo.Variant(name, **changes)
    try:
        opened = views.open_variant(variant, folder, dtype="float32", device="cpu")
        found = opened.nll(
            random_ids(0, LENGTH), [Continuation(LENGTH, random_ids(1, 20), 4)], [(1, 500), (2080, 2180)]
        )
    finally:
        views.restore()
    assert isinstance(found, TokenNLL)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{"window": 512}, {"bits": 2}, {"kept": 0.5}, {"scramble": 32}, {"rope": "linear:2"}],
)
def test_a_variant_reads_the_near_as_the_native_model_does_and_the_far_otherwise(
    model: str, own: TokenNLL, changes: dict[str, Any]
) -> None:
    other = nll_of("changed", model, **changes)
    near = np.abs(own.spans[0] - other.spans[0]).max()
    assert (near < 1e-4) == ("rope" not in changes)  # positions are stretched everywhere, the view only far back
    assert np.abs(own.spans[1] - other.spans[1]).max() > 1e-3
    assert np.abs(own.continuations[0] - other.continuations[0]).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"window": LENGTH}, {"bits": 16}])
def test_a_variant_that_loses_nothing_is_the_native_model(model: str, own: TokenNLL, changes: dict[str, Any]) -> None:
    other = nll_of("whole", model, **changes)
    np.testing.assert_allclose(other.continuations[0], own.continuations[0], atol=2e-3)
    np.testing.assert_allclose(other.spans[1], own.spans[1], atol=2e-3)
