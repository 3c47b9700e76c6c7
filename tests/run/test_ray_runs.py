"""Real models through Ray, from the command line: what is recorded is what is recorded without it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("transformers")

from leadline.cli.main import run_command  # noqa: E402
from leadline.store.runs import read_records  # noqa: E402
from leadline.store.submissions import read_submission  # noqa: E402
from support.tiny_models import model_folder  # noqa: E402

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("default")]

GRID = ["--lengths", "600,1k", "--depths", "2", "--samples", "2", "--no-figure"]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and a list of it, of itself read the plain way, of one that is not there, and of one that
    needs no replicas."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "tiny").mkdir()
    model_folder(folder / "tiny", max_position_embeddings=4096)
    listed = [
        {"name": "shared", "model": f"hf:{folder}/tiny"},
        {"name": "plain", "model": f"hf:{folder}/tiny?shared=false"},
        {"name": "gone", "model": f"hf:{folder}/gone"},
        {"name": "simulated", "model": "sim:cliff?window=700&tokenizer=bytes"},
    ]
    (folder / "models.json").write_text(json.dumps(listed))
    draw = random.Random(1)
    texts = [" ".join(f"w{draw.randrange(8, 160)}" for _ in range(2000)) for _ in range(4)]
    (folder / "texts.json").write_text(json.dumps(texts))
    (folder / "text.txt").write_text("\n\n".join(texts))
    return folder


def recorded(folder: Path) -> dict[str, Any]:
    return {r.cell.key: (r.document, r.sent, r.outcome, r.scores) for r in read_records(folder)}


def test_a_run_over_two_replicas_has_the_records_of_a_run_in_this_process(models: Path, tmp_path: Path) -> None:
    texts = ["--set", f"haystack={models}/text.txt", "--set", f"documents={models}/texts.json"]
    words = ["run", "niah", "--task", "mean_nll", "--model", f"hf:{models}/tiny", "--set", "answer_tokens=4", *texts]
    assert run_command([*words, *GRID, "--out", str(tmp_path / "one")]) == 0
    assert run_command([*words, *GRID, "--out", str(tmp_path / "two"), "--ray", "2"]) == 0
    assert len({json.dumps(told, default=str) for told in recorded(tmp_path / "one").values()}) == 12
    assert recorded(tmp_path / "one") == recorded(tmp_path / "two")
    assert "2 replicas through Ray" in (tmp_path / "two" / "manifest.json").read_text()


def test_models_side_by_side_are_scored_as_one_by_one_and_the_missing_one_is_named(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["--set", f"documents={models}/texts.json"]
    words = ["run", "mean_nll", *texts, "--models", str(models / "models.json"), *GRID]
    for name, more in (("one", []), ("two", ["--ray", "2"])):
        places = ["--out", str(tmp_path / name), "--submission", str(tmp_path / name / "submission.json")]
        assert run_command([*words, *places, *more]) == 1
    assert "gone: not measured: there is no model folder" in capsys.readouterr().err
    one, two = (read_submission(tmp_path / name / "submission.json") for name in ("one", "two"))
    assert [(e.name, e.score) for e in one.entries] == [(e.name, e.score) for e in two.entries]
    assert [e.name for e in two.entries if e.score is None] == ["gone"]
    for name in ("shared", "plain", "simulated"):
        assert recorded(tmp_path / "one" / name) == recorded(tmp_path / "two" / name)
