"""`vllm:` and `sglang:` in process: fake engines in a real process of their own, asked as the real ones are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leadline
from leadline.cli.main import run_command
from leadline.core.answers import Completion, Failure, Measurement
from leadline.core.errors import (
    Interrupted,
    LengthError,
    MissingExtra,
    RunStopped,
    ServerError,
    SourceError,
    UsageError,
)
from leadline.core.registry import ModelName, provider
from leadline.core.spec import make_spec
from leadline.core.types import Continuation, TokenNLL
from leadline.features.engines.model import CacheRoom, EngineModel, EngineWay
from leadline.features.engines.process import EngineRefused
from leadline.features.engines.provider import VLLM, EngineProvider, SGLang
from leadline.models.prefix_scoring import ScoredText
from leadline.results.verdict import failures_fix
from leadline.run import engine as run_engine
from leadline.run.events import Answered, Event
from support.fake_engines import PYTHONPATH, model_folder
from support.logprob_model import RuleLogprobModel
from support.rule_lm import VOCABULARY, nats
from support.served_process import is_alive, is_gone

DOCUMENT = np.random.default_rng(5).integers(8, VOCABULARY, 300).astype(np.int32)
REPEATED = [DOCUMENT[a : a + 16] for a in (20, 90, 200)]
ASKED = [*(Continuation(300, ids, 8) for ids in REPEATED), Continuation(0, REPEATED[0], 8)]
SPANS = [(1, 300)]


@pytest.fixture(autouse=True)
def _engines_are_fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "model")


@pytest.fixture(params=["vllm", "sglang"])
def model(request: pytest.FixtureRequest, folder: Path) -> Iterator[EngineModel]:
    options: EngineProvider = VLLM() if request.param == "vllm" else SGLang()
    opened = options.open(str(folder))
    yield opened
    opened.close()


def spec(name: str, folder: Path, task: dict[str, Any], **values: Any) -> Any:
    grid = {"lengths": "400", "depths": (0.1, 0.5, 0.9), "samples": 1, **values}
    return make_spec({"model": f"{name}:{folder}", "tasks": [task], **grid})


def test_log_probabilities_are_those_of_the_same_model_here(model: EngineModel) -> None:
    here = RuleLogprobModel(lambda before, token: nats(before, token)).nll(DOCUMENT, ASKED, SPANS)
    there = model.nll(DOCUMENT, ASKED, SPANS)
    assert isinstance(here, TokenNLL)
    assert isinstance(there, TokenNLL)
    for ours, theirs in zip((*here.continuations, *here.spans), (*there.continuations, *there.spans), strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-6)


def test_a_document_is_read_once_for_all_its_continuations(model: EngineModel) -> None:
    found = model.nll(DOCUMENT, ASKED)
    assert isinstance(found, TokenNLL)
    read = found.counts["prompt_tokens"] - found.counts["cached_tokens"]
    assert 300 < read < 0.65 * sum(c.cut + len(c.ids) for c in ASKED)


def test_forced_traces_give_the_same_numbers_in_fewer_requests(folder: Path) -> None:
    forced, traced = VLLM().open(str(folder)), VLLM(trace_replay=True).open(str(folder))
    try:
        one, other = forced.nll(DOCUMENT, ASKED), traced.nll(DOCUMENT, ASKED)
        assert isinstance(one, TokenNLL)
        assert isinstance(other, TokenNLL)
        for left, right in zip(one.continuations, other.continuations, strict=True):
            np.testing.assert_allclose(left, right, atol=1e-6)
        assert other.counts["requests"] == len(ASKED) < one.counts["requests"]
    finally:
        forced.close()
        traced.close()


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_nested_run_takes_what_it_has_read_from_the_cache(name: str, folder: Path, tmp_path: Path) -> None:
    wanted = spec(name, folder, {"name": "niah"}, lengths="300,400")
    nested = wanted.model_copy(update={"reading": "nested"})
    run = leadline.measure(nested, tmp_path / "run", checks=False)
    records = sorted(run.records, key=lambda r: -r.prompt_tokens)
    assert len(records) == 6
    assert all(isinstance(r.outcome, Completion) and r.receipt.ok and r.sent.form == "ids" for r in records)
    cached = [r.outcome.cached_tokens or 0 for r in records if isinstance(r.outcome, Completion)]
    assert cached.count(0) == 1  # the longest, which was asked first and alone
    assert sum(cached) >= 0.85 * sum(r.body_tokens for r in records[1:])
    assert [r.receipt.cacheable > 0 for r in records] == [count > 0 for count in cached]
    assert (run.totals.cache.hit_share or 0) >= 0.85


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_run_of_log_probabilities_has_its_metrics(name: str, folder: Path, texts: Path, tmp_path: Path) -> None:
    task = {"name": "retrieval_gain", "least": 64, "documents": str(texts)}
    run = leadline.measure(spec(name, folder, task), tmp_path / "run", checks=False)
    (records,) = [list(run.records)]
    assert len(records) == 3
    assert all(isinstance(r.outcome, Measurement) and r.outcome.numbers["retrieval_gain"] > 0 for r in records)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    words = np.random.default_rng(1).integers(8, VOCABULARY, 2000)
    listed = tmp_path / "texts.jsonl"
    listed.write_text(json.dumps({"text": " ".join(f"w{n}" for n in words)}) + "\n")
    return listed


def test_log_probabilities_at_the_window_are_refused_with_the_longest_length_that_has_room(
    folder: Path, texts: Path
) -> None:
    task = {"name": "retrieval_gain", "least": 64, "documents": str(texts)}
    with pytest.raises(LengthError, match=r"need 49 tokens after a document of 512, and .* takes 512") as raised:
        leadline.plan(spec("vllm", folder, task, lengths="512"))
    assert raised.value.fix == "the longest length is 463"
    with leadline.plan(spec("vllm", folder, task, lengths="463")) as plan:
        assert not any("will fail" in note for note in plan.notes)
    with leadline.plan(spec("vllm", folder, task, lengths="400,512")) as plan:
        assert any("at 512 tokens will fail: log-probabilities need 49" in note for note in plan.notes)
    with leadline.plan(spec("vllm", folder, task, lengths="auto")) as plan:
        assert plan.spec.lengths == (128, 256)
        assert any("512 is left out" in note for note in plan.notes)


def test_the_engine_says_what_it_is_and_what_it_holds(folder: Path) -> None:
    opened = VLLM(max_model_len=480, kv_cache_dtype="fp8").open(str(folder))
    try:
        assert opened.card.window == 480
        assert "vllm 0.32.0" in opened.card.notes[0]
        assert "fp8" in opened.card.fingerprints["dtype"]
        assert opened.prefix_cache.tokens == 1024
        assert opened.forecast([[(400, 20, 30)]]) == (
            "the engine's KV cache holds 1,024 tokens (fp8): 2 of the longest",
        )
        with pytest.raises(UsageError, match="holds 1,024 tokens, and the longest document needs 1,130"):
            opened.forecast([[(1100, 20, 30)]])
    finally:
        opened.close()


# --- bad input


@pytest.mark.parametrize(
    ("fault", "options", "what", "fix"),
    [
        (
            "dies",
            {},
            "the engine died while it started: exit code 3; .*CUDA driver version is insufficient",
            "check with nvidia-smi",
        ),
        ("memory", {}, "No available memory for the cache blocks", "gpu_memory_utilization="),
        ("core_fails", {}, "did not start: ValueError: Free memory on device cuda:0 is less", "max_model_len="),
        ("little_cache", {}, "did not start: ValueError: To serve at least one", "max_model_len=23168 is what fits"),
        ("long_window", {"max_model_len": 16384}, "did not start: User-specified max_model_len", "give 8192 or less"),
        ("unknown_model", {}, "model type `newmodel`", "a version of the engine that knows this model"),
        ("wrong_dtype", {"dtype": "float33"}, "Input should be 'auto' or 'half'", "correct the option"),
        ("heads", {"tensor_parallel_size": 4}, r"attention heads \(9\)", "that divides the number of attention heads"),
        ("no_hub", {}, "locate the files on the Hub", "a folder with the weights"),
        ("old_runner", {"trace_replay": True}, "trace replay requires Model Runner V2", "leave out trace_replay"),
        ("before_traces", {"trace_replay": True}, "argument 'enable_trace_replay'", "leave out trace_replay"),
        ("no_cuda", {}, "Failed to infer device type", "check with nvidia-smi"),
        ("library", {}, "ImportError: libcudart.so.12", "check with nvidia-smi"),
        ("initialised", {}, "Cannot re-initialize CUDA", "where nothing uses CUDA before it"),
        ("", {"extra": {"no_such": 1}}, "unexpected keyword argument 'no_such'", "leave out no_such: this version"),
    ],
)
def test_an_engine_that_does_not_start_says_why_and_what_to_do(
    fault: str, options: dict[str, Any], what: str, fix: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULT", fault)
    with pytest.raises(SourceError, match=what) as raised:
        VLLM(**options).open(str(folder))
    assert fix in raised.value.fix
    noise = ("pydantic", "input_value", "INFO", "Traceback", "^^^", "root cause", "\n", "kv_cache_utils")
    assert not any(part in raised.value.what for part in noise)


@pytest.mark.parametrize(
    ("options", "what", "fix"),
    [
        ({"data_parallel_size": 2}, "data_parallel_size makes several engines of one", "--ray N starts N engines"),
        ({"seed": 1}, "seed is set by every run", "leave it out"),
        ({"enable_trace_replay": True}, "enable_trace_replay has an option of its own", "write trace_replay=..."),
        ({"tensor_parallel_size": 2}, "an option of its own", "write tensor_parallel_size=..."),
    ],
)
def test_further_arguments_that_a_run_gives_itself_are_refused_before_an_engine_starts(
    options: dict[str, Any], what: str, fix: str
) -> None:
    with pytest.raises(UsageError, match=what) as raised:
        VLLM(extra=options)
    assert fix in raised.value.fix
    with pytest.raises(UsageError, match="tp_size has an option of its own") as raised:
        SGLang(extra={"tp_size": 2})
    assert "write tensor_parallel_size=..." in raised.value.fix


def test_a_missing_engine_prints_the_pip_line(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "empty" / "sglang").mkdir(parents=True)
    (tmp_path / "empty" / "sglang" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'sglang'\", name='sglang')"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "empty"))
    with pytest.raises(MissingExtra) as raised:
        SGLang().open(str(folder))
    assert 'pip install "leadline[sglang]"' in raised.value.fix


def test_a_python_that_is_not_there_and_a_folder_that_is_not_there_are_named(folder: Path) -> None:
    with pytest.raises(UsageError, match="no Python can be started"):
        VLLM(python="/nowhere/bin/python").open(str(folder))
    with pytest.raises(SourceError, match="there is no model folder"):
        VLLM().open("./nowhere")


def test_a_version_with_other_names_is_an_error_of_the_run_and_not_of_samples(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULT", "renamed")
    opened = VLLM().open(str(folder))
    try:
        with pytest.raises(ServerError, match=r"this version of vllm does not .*allowed_token_ids") as raised:
            opened.nll(DOCUMENT, ASKED)
        assert "another version of vllm" in raised.value.fix
    finally:
        opened.close()


def test_logits_that_are_not_numbers_are_failures_and_never_answers(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULT", "nan")
    run = leadline.measure(spec("vllm", folder, {"name": "niah"}), tmp_path / "run", checks=False)
    outcomes = [r.outcome for r in run.records]
    assert {(o.why, o.message) for o in outcomes if isinstance(o, Failure)} == {
        ("not_a_number", "the model's logits are not numbers (NaN); try dtype=float32 or bfloat16")
    }
    assert all(not r.scores for r in run.records)
    assert "try another dtype" in failures_fix(run)


def test_log_probabilities_that_are_not_numbers_are_a_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAULT", "nan")
    opened = VLLM().open(str(folder))
    try:
        scores = EngineWay(opened._process, "forced").score([ScoredText(DOCUMENT[:30], 20)])
    finally:
        opened.close()
    assert isinstance(scores, Failure)
    assert scores.why == "not_a_number"


def test_an_engine_whose_log_probabilities_are_no_numbers_is_not_said_to_have_none(
    folder: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULT", "nan")
    task = {"name": "retrieval_gain", "least": 64, "documents": str(texts)}
    run = leadline.measure(spec("vllm", folder, task), tmp_path / "run", checks=False)
    outcomes = [record.outcome for record in run.records]
    assert [o.why for o in outcomes if isinstance(o, Failure)] == ["not_a_number"] * 3


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("dies_later", "the engine died: exit code 9; torch.AcceleratorError: an illegal memory access"),
        ("core_dies", "the engine died: torch.OutOfMemoryError: CUDA out of memory"),
        ("core_killed", "the process in which it computes has ended.*Killed"),
    ],
)
def test_an_engine_that_dies_stops_the_run_with_its_last_lines_and_what_was_answered_is_kept(
    fault: str, words: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULT", fault)
    wanted = spec("vllm", folder, {"name": "niah"}, samples=2, limits={"workers": 1})
    with pytest.raises(RunStopped, match=words) as raised:
        leadline.measure(wanted, tmp_path / "run", checks=False)
    assert ("if it dies again, give it less to read" in raised.value.fix) == (fault == "core_dies")
    kept = len(list(leadline.load_run(tmp_path / "run").records))
    assert kept == 1
    monkeypatch.setenv("FAKE_FAULT", "")
    assert len(list(leadline.measure(wanted, tmp_path / "run", checks=False).records)) == 6


def test_an_interrupted_run_does_not_wait_for_ever_for_an_engine_that_hangs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULT", "hangs")
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setattr(run_engine, "INTERRUPTED_SECONDS", 0.3)

    def listen(event: Event) -> None:
        if isinstance(event, Answered):
            signal.raise_signal(signal.SIGTERM)

    wanted = spec("vllm", folder, {"name": "niah"}, samples=2, limits={"workers": 1})
    with pytest.raises(Interrupted):
        leadline.measure(wanted, tmp_path / "run", listen=listen, checks=False)
    assert len(list(leadline.load_run(tmp_path / "run").records)) == 1
    assert not is_alive(int((tmp_path / "log").read_text().split()[1]))


def test_an_engine_ends_when_the_process_that_started_it_is_killed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    program = (
        "import os, signal, sys\n"
        "from leadline.features.engines.provider import VLLM\n"
        f"opened = VLLM().open({str(folder)!r})\n"
        "opened._process.write([{'ids': [8, 9], 'max_tokens': 1, 'stop': []}])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    started = subprocess.run([sys.executable, "-c", program], check=False)
    assert started.returncode == -signal.SIGKILL
    engine = int((tmp_path / "log").read_text().split()[1])
    while is_alive(engine):  # or this test hangs
        time.sleep(0.05)


@pytest.mark.parametrize("is_killed", [True, False])
def test_what_an_engine_started_ends_with_it(
    is_killed: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_CORE", str(tmp_path / "core"))
    opened = VLLM().open(str(folder))
    core = int((tmp_path / "core").read_text())
    assert is_alive(core)
    if is_killed:
        os.kill(opened._process._process.pid, signal.SIGKILL)
        assert is_gone(core)
    opened.close()
    assert is_gone(core)


def test_an_engine_finds_neither_torch_nor_leadline_in_its_process(folder: Path) -> None:
    VLLM().open(str(folder)).close()  # the fake refuses where either is there


def test_log_probabilities_after_masking_are_noticed_and_the_whole_prompt_is_asked(folder: Path) -> None:
    opened = VLLM(extra={"logprobs_mode": "processed_logprobs"}).open(str(folder))
    try:
        here = RuleLogprobModel(lambda before, token: nats(before, token)).nll(DOCUMENT, ASKED, ())
        there = opened.nll(DOCUMENT, ASKED)
    finally:
        opened.close()
    assert isinstance(here, TokenNLL)
    assert isinstance(there, TokenNLL)
    for ours, theirs in zip(here.continuations, there.continuations, strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-6)
    assert any("not forced tokens" in note and "nats from those of a whole prompt" in note for note in there.notes)


def test_a_trace_that_the_window_cuts_short_is_a_failure_and_never_a_shorter_number(folder: Path) -> None:
    opened = VLLM(max_model_len=310, trace_replay=True).open(str(folder))
    try:
        assert isinstance(opened.nll(DOCUMENT[:200], [Continuation(200, REPEATED[0], 8)] * 2), TokenNLL)
        scores = EngineWay(opened._process, "trace").score([ScoredText(np.concatenate([DOCUMENT, REPEATED[0]]), 300)])
    finally:
        opened.close()
    assert isinstance(scores, Failure)
    assert scores.why == "context_length"
    assert "replayed 10 of 16 tokens of a trace" in scores.message


# --- documents in flight


def test_documents_in_flight_are_written_together_and_a_refused_prompt_takes_no_other_with_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    opened = VLLM(max_model_len=128).open(str(folder))
    process = opened._process
    try:
        lengths = [20, 127, 200, 64]
        with process._turn, ThreadPoolExecutor(4) as threads:  # as while the engine writes for another
            orders = [{"ids": DOCUMENT[:n].tolist(), "max_tokens": 1, "stop": []} for n in lengths]
            waiting = [threads.submit(process.write, [order]) for order in orders]
            while len(process._waiting) < 4:
                time.sleep(0.01)
            process._turn.release()
            replies = [future.result()[0] for future in waiting]
            process._turn.acquire()
    finally:
        opened.close()
    assert [isinstance(reply, EngineRefused) for reply in replies] == [False, False, True, False]
    assert [reply["prompt_tokens"] for reply in replies if not isinstance(reply, EngineRefused)] == [20, 127, 64]
    assert (tmp_path / "log").read_text().split()[0] == "4"


def test_no_more_documents_are_in_flight_than_the_engines_cache_holds() -> None:
    room, order = CacheRoom(100), list[str]()
    with ThreadPoolExecutor(1) as threads:
        with room.held(60), room.held(40):

            def third() -> None:
                with room.held(1):
                    order.append("third")

            waiting = threads.submit(third)
            order.append("first two")
        waiting.result()
    assert order == ["first two", "third"]
    with room.held(1000):  # larger than the cache: alone, and not never
        pass


@pytest.mark.slow
def test_the_same_coordinates_give_the_same_prompts_in_every_engine(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    digests = []
    for name in ("vllm", "sglang", "hf"):
        listed = tmp_path / f"{name}.jsonl"
        words = ["build", "niah", "--model", f"{name}:{folder}", "--lengths", "300,400", "--depths", "3", "--samples"]
        assert run_command([*words, "2", "--reading", "nested", "-o", str(listed)]) == 0
        digests.append([json.loads(line)["digest"] for line in listed.read_text().splitlines()])
    assert len(set(digests[0])) == 12
    assert digests[0] == digests[1] == digests[2]


def test_a_prompt_beyond_the_window_is_a_failure_of_its_sample(folder: Path) -> None:
    opened = VLLM(max_model_len=128).open(str(folder))
    try:
        found = opened.nll(DOCUMENT, ASKED)
        assert isinstance(found, Failure)
        assert found.why == "context_length"
    finally:
        opened.close()


def test_the_name_of_a_model_carries_the_engines_options() -> None:
    name = ModelName.parse("vllm:org/model?tensor_parallel_size=4&kv_cache_dtype=fp8&max_model_len=128k")
    options = provider(name)
    assert isinstance(options, VLLM)
    assert options.engine_arguments() == {"tensor_parallel_size": 4, "kv_cache_dtype": "fp8", "max_model_len": 131072}
    assert VLLM(gpu_memory_utilization=1.0).engine_arguments() == {"gpu_memory_utilization": 1.0}
    assert VLLM(trace_replay=True).engine_arguments() == {"enable_trace_replay": True}
    assert SGLang(tensor_parallel_size=4, max_model_len=1024).engine_arguments() == {
        "tp_size": 4,
        "context_length": 1024,
    }
