"""Log-probabilities for real: SmolLM2 submitted and correlated, and what real servers say of their prompts."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from leadline.cli.main import run_command
from leadline.core.errors import UsageError
from leadline.core.registry import ModelName, provider
from leadline.core.spec import make_spec
from leadline.core.types import Continuation, TokenNLL
from leadline.models.hf import HF, smollm2
from leadline.models.openai.provider import OpenAIModel
from leadline.run.measure import measure
from leadline.store.runs import read_records
from leadline.store.submissions import read_submission

pytestmark = pytest.mark.real

ROPES = {"native": "", "yarn 2": "?rope=yarn:2", "linear 1.25": "?rope=linear:1.25", "linear 4": "?rope=linear:4"}


def test_variants_of_a_real_model_are_submitted_and_correlated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [{"name": name, "model": f"hf:smollm2{rope}"} for name, rope in ROPES.items()]
    (tmp_path / "models.json").write_text(json.dumps([*models, {"name": "missing", "model": "hf:/nowhere"}]))
    listed = ["--models", str(tmp_path / "models.json")]
    grid = ["--lengths", "256", "--depths", "0.1,0.6", "--samples", "1"]
    asked = ["--lengths", "300", "--depths", "0.2,0.8", "--samples", "1", "--reading", "shared"]
    gain, chance = tmp_path / "gain", tmp_path / "chance"
    for folder, words in ((gain, ["retrieval_gain", *grid, "--set", "least=64"]), (chance, ["needle_chance", *asked])):
        places = ["--out", str(folder), "--submission", str(folder / "submission.json")]
        assert run_command(["run", *words, *listed, *places, "--no-figure"]) == 1
    scores = {e.name: e.score for e in read_submission(gain / "submission.json").entries}
    assert scores.pop("missing") is None
    assert (scores["native"] or 0) > 2 > (scores["linear 4"] or 0)
    found = {e.name: e.score for e in read_submission(chance / "submission.json").entries}
    assert 1 > (found["native"] or 0) > 2 * (found["linear 4"] or 0)
    capsys.readouterr()
    files = [str(folder / "submission.json") for folder in (gain, chance)]
    assert run_command(["correlate", *files, "--resamples", "200", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [m["name"] for m in printed["models"]] == list(ROPES)
    assert printed["correlations"]["spearman"]["value"] > 0.5


def test_llama_cpp_scores_continuations_by_writing_them_and_refuses_perplexity(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    from support.llama_server import MODEL, LlamaServer, half_weights

    with LlamaServer(half_weights(), window=1024) as server:
        values = {
            "model": f"openai:{MODEL}?base_url={server.base_url}",
            "lengths": "256",
            "depths": (0.1,),
            "samples": 1,
        }
        measure(make_spec({**values, "tasks": [{"name": "retrieval_gain", "least": 64}]}), tmp_path / "gain")
        with pytest.raises(UsageError, match="perplexity"):
            measure(make_spec({**values, "tasks": [{"name": "mean_nll", "least": 64}]}), tmp_path / "perplexity")
    local = {
        **values,
        "model": "hf:smollm2?dtype=float32&device=cpu",
        "tasks": [{"name": "retrieval_gain", "least": 64}],
    }
    measure(make_spec(local), tmp_path / "here")
    (there,), (here,) = read_records(tmp_path / "gain"), read_records(tmp_path / "here")
    assert any("written by a bias" in note for note in there.sent.notes)
    # The same weights; llama.cpp computes with 16 bits.
    assert there.scores["retrieval_gain"].value == pytest.approx(here.scores["retrieval_gain"].value, abs=0.01)
    assert list(read_records(tmp_path / "perplexity")) == []


VLLM = os.environ.get("LEADLINE_VLLM") or shutil.which("vllm")
"""vLLM has an environment of its own: the path of its command."""


@pytest.fixture(scope="module")
def vllm_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if VLLM is None:
        pytest.skip("no vLLM here: give the path of its command in LEADLINE_VLLM")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    words = [VLLM, "serve", str(smollm2.ensure_folder()), "--served-model-name", "smollm2", "--dtype", "float32",
             "--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--max-model-len", "2048"]  # fmt: skip
    log = tmp_path_factory.mktemp("vllm") / "log"
    settings = {**os.environ, "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, env=settings)
        try:
            _wait_for(f"http://127.0.0.1:{port}/health", process, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            process.wait(30)


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 600
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(2)
    raise AssertionError(log.read_text()[-2000:])


def test_vllm_gives_the_numbers_of_the_same_weights_in_process(vllm_url: str) -> None:
    name = ModelName.parse(f"openai:smollm2?base_url={vllm_url}")
    there = provider(name).open(name.name)
    assert isinstance(there, OpenAIModel)
    here = HF(dtype="float32", device="cpu").open(str(smollm2.ensure_folder()))
    ids = here.tokenizer.encode(Path(__file__).read_text())[:600]
    repeated = ids[200:248]
    asked = [Continuation(len(ids), repeated, 24), Continuation(0, repeated, 24), Continuation(300, ids[10:40], 3)]
    ours, theirs = (model.nll(ids, asked, [(1, len(ids))]) for model in (here, there))
    assert isinstance(ours, TokenNLL)
    assert isinstance(theirs, TokenNLL)
    for one, other in zip((*ours.continuations, *ours.spans), (*theirs.continuations, *theirs.spans), strict=True):
        np.testing.assert_allclose(other, one, atol=1e-3)
