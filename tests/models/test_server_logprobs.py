"""Log-probabilities through vLLM, SGLang and llama.cpp: the numbers of the same model in process, whatever the way, and
the document read once where the server keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leadline
from leadline.core.answers import Failure, Measurement
from leadline.core.errors import UsageError
from leadline.core.records import Record
from leadline.core.spec import make_spec
from leadline.core.types import Continuation, TokenNLL
from leadline.models.openai.http import HttpReply, HttpRequest, RequestFailed, served_by
from leadline.models.openai.provider import OpenAI, OpenAIModel
from support.logprob_model import RuleLogprobModel, use
from support.logprob_servers import MODEL, FakeLlama, FakeSGLang, FakeVllm, LogprobServer, rule

DOCUMENT = np.random.default_rng(3).integers(97, 123, 700).astype(np.int32)
ANCHORS = (40, 300, 520)
REPEATED = [DOCUMENT[a : a + 24] for a in ANCHORS]
ASKED = [*(Continuation(700, ids, 12) for ids in REPEATED), *(Continuation(0, ids, 12) for ids in REPEATED[:2])]
SPANS = [(1, 700), (40, 60)]


@contextmanager
def opened(server: Any, **options: Any) -> Iterator[OpenAIModel]:
    with served_by(server) as base_url:
        model = OpenAI(base_url=base_url, tokenizer="bytes", api="completions", **options).open_server(MODEL)
        yield model
        model.close()


def in_process(spans: list[tuple[int, int]] = SPANS) -> TokenNLL:
    found = RuleLogprobModel(lambda before, token: rule(before, token)).nll(DOCUMENT, ASKED, spans)
    assert isinstance(found, TokenNLL)
    return found


def assert_equal_numbers(found: TokenNLL | Failure, wanted: TokenNLL) -> TokenNLL:
    assert isinstance(found, TokenNLL), found
    for theirs, ours in zip((*found.continuations, *found.spans), (*wanted.continuations, *wanted.spans), strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-6)
    return found


@pytest.mark.parametrize(
    ("server", "way"),
    [
        (FakeVllm(trace=True), "forced trace"),
        (FakeVllm(), "forced tokens"),
        (FakeVllm(scale_out=False), "forced tokens"),
        (FakeVllm(masked=True), "every token of the prompt"),
        (FakeVllm(ignores_allowed=True), "every token of the prompt"),
        (FakeSGLang(), "end of the prompt"),
        (FakeLlama(), "tokens written by a bias"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, LogprobServer) else "",
)
def test_every_way_gives_the_numbers_of_the_same_model_in_process(server: LogprobServer, way: str) -> None:
    spans = [] if isinstance(server, FakeLlama) else SPANS
    with opened(server) as model:
        found = assert_equal_numbers(model.nll(DOCUMENT, ASKED, spans), in_process(spans))
        assert any(way in note for note in found.notes), found.notes
        again = assert_equal_numbers(model.nll(DOCUMENT, ASKED, spans), in_process(spans))
    assert again.notes == found.notes


@pytest.mark.parametrize(
    ("server", "most"),
    [(FakeVllm(trace=True), 0.45), (FakeVllm(), 0.65), (FakeSGLang(), 0.45), (FakeLlama(), 0.45)],
    ids=lambda value: type(value).__name__ if isinstance(value, LogprobServer) else "",
)
def test_a_document_is_read_once_for_all_its_continuations(server: LogprobServer, most: float) -> None:
    whole = sum(c.cut + len(c.ids) for c in ASKED)
    with opened(server) as model:
        before = server.read
        found = model.nll(DOCUMENT, ASKED)
        assert isinstance(found, TokenNLL)
        assert len(DOCUMENT) < server.read - before <= most * whole
        stated = found.counts["prompt_tokens"] - found.counts["cached_tokens"]
    assert stated <= server.read - before  # the trial is not counted


def test_a_text_is_asked_whole_where_that_reads_less() -> None:
    server = FakeVllm()
    with opened(server) as model:
        one = model.nll(DOCUMENT, ASKED[:1])
    assert isinstance(one, TokenNLL)
    assert one.counts["requests"] == 1
    assert "every token of the prompt" in one.notes[0]


def test_the_longest_cut_is_asked_first_and_alone() -> None:
    server = FakeSGLang()
    cuts = [Continuation(cut, REPEATED[0], 12) for cut in (300, 700, 500)]
    with opened(server) as model:
        assert isinstance(model.nll(DOCUMENT, cuts), TokenNLL)
    sizes = [len(body["input_ids"]) for path, body in server.asked if path == "/generate"]
    assert sizes[-3] == max(sizes) == 724
    starts = [body["logprob_start_len"] for path, body in server.asked if path == "/generate"]
    assert starts[-3] == 700 + 12 - 1  # the value at the start itself is missing


def test_the_record_says_which_way_was_used_and_why_no_better_one() -> None:
    with opened(FakeVllm(scale_out=False)) as model:
        found = model.nll(DOCUMENT, ASKED)
    assert isinstance(found, TokenNLL)
    assert any("--enable-scale-out" in note and "status 403" in note for note in found.notes)
    with opened(FakeVllm(masked=True)) as model:
        found = model.nll(DOCUMENT, ASKED)
    assert isinstance(found, TokenNLL)
    assert any("nats from those of a whole prompt" in note for note in found.notes)


def test_masked_log_probabilities_are_noticed_without_a_whole_prompt_to_compare_with() -> None:
    with opened(FakeVllm(masked=True, prompt_logprobs_status=400)) as model:
        found = model.nll(DOCUMENT, ASKED)
    assert isinstance(found, Failure)
    assert found.why == "unsupported"
    assert "after masking" in found.message


def test_a_server_that_fails_at_whole_prompts_still_scores_continuations() -> None:
    with opened(FakeVllm(prompt_logprobs_status=500)) as model:
        assert_equal_numbers(model.nll(DOCUMENT, ASKED), in_process([]))
        failed = model.nll(DOCUMENT, [], SPANS)
    assert isinstance(failed, Failure)
    assert "perplexity" in failed.message


def test_a_trace_that_does_not_fit_the_window_is_a_failure_and_never_a_shorter_number() -> None:
    server = FakeVllm(trace=True, window=720, prompt_logprobs_status=501)
    with opened(server) as model:
        found = model.nll(DOCUMENT, [Continuation(700, REPEATED[0], 12)])
    assert isinstance(found, Failure)
    assert found.why == "context_length"
    assert "replayed 8 of 12 tokens" in found.message


def test_a_server_that_is_busy_at_the_trial_is_asked_again_and_not_written_off() -> None:
    server, refusals = FakeVllm(trace=True), [503, 503]

    def busy(request: HttpRequest) -> HttpReply:
        if request.path == "/inference/v1/generate" and refusals:
            return HttpReply(refusals.pop(), b'{"error": {"message": "busy"}}')
        return server(request)

    with opened(busy) as model:
        first = model.nll(DOCUMENT, ASKED)
        assert isinstance(first, Failure)
        assert first.transient
        assert isinstance(model.nll(DOCUMENT, ASKED), Failure)
        found = model.nll(DOCUMENT, ASKED)
    assert isinstance(found, TokenNLL)
    assert "forced trace" in found.notes[0]


def test_a_server_that_goes_away_gives_a_failure_that_may_pass() -> None:
    server, gone = FakeVllm(), list[bool]()

    def leaving(request: HttpRequest) -> HttpReply:
        if gone:
            raise RequestFailed("connection", "no server")
        return server(request)

    with opened(leaving) as model:
        assert isinstance(model.nll(DOCUMENT, ASKED), TokenNLL)
        gone.append(True)
        found = model.nll(DOCUMENT, ASKED)
    assert isinstance(found, Failure)
    assert found.transient


def test_an_sglang_whose_native_endpoint_is_closed_says_so() -> None:
    with opened(FakeSGLang(native=False)) as model:
        found = model.nll(DOCUMENT, ASKED)
    assert isinstance(found, Failure)
    assert "Not Found" in found.message


# --- runs


def gain_spec(base_url: str, **values: Any) -> Any:
    return make_spec(
        {
            "model": f"openai:{MODEL}?base_url={base_url}&tokenizer=bytes&api=completions", "lengths": "600",
            "depths": (0.1, 0.3, 0.6), "samples": 2, "tasks": [{"name": "retrieval_gain", "least": 64}], **values,
        }
    )  # fmt: skip


def numbers_of(records: list[Record]) -> dict[str, dict[str, float]]:
    assert all(isinstance(r.outcome, Measurement) for r in records), records
    return {r.cell.key: r.outcome.numbers for r in records if isinstance(r.outcome, Measurement)}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "server", [FakeVllm(trace=True), FakeVllm(), FakeSGLang(), FakeLlama()], ids=lambda s: type(s).__name__
)
def test_a_run_through_a_server_has_the_numbers_of_a_run_in_process(
    server: LogprobServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_by(server) as base_url:
        there = leadline.measure(gain_spec(base_url), tmp_path / "there", checks=False)
    use(monkeypatch, RuleLogprobModel(lambda before, token: rule(before, token), tokenizer="bytes"))
    here = leadline.measure(gain_spec("http://127.0.0.1:1/v1"), tmp_path / "here", checks=False)
    ours, theirs = numbers_of(list(here.records)), numbers_of(list(there.records))
    assert ours.keys() == theirs.keys()
    for key, numbers in ours.items():
        assert theirs[key] == pytest.approx(numbers, abs=1e-6)
    sent = next(iter(there.records)).sent
    assert sent.decoding["method"] == "log-probabilities"
    assert int(sent.decoding["document_requests"] or 0) > 0
    assert any(note.startswith("log-probabilities: ") for note in sent.notes)


def test_perplexity_is_refused_where_a_request_for_it_is_ignored(tmp_path: Path) -> None:
    server = FakeLlama()
    with served_by(server) as base_url:
        spec = gain_spec(base_url, tasks=[{"name": "mean_nll", "least": 64}])
        with pytest.raises(UsageError) as error:
            leadline.measure(spec, tmp_path / "run", checks=False)
    assert "gives no log-probabilities of a prompt's own tokens" in error.value.what
    assert "hf:" in error.value.fix
    assert "/completion" in server.paths()


def test_a_llama_cpp_too_old_to_name_what_it_wrote_is_refused(tmp_path: Path) -> None:
    with served_by(FakeLlama(old=True)) as base_url, pytest.raises(UsageError, match="does not write token"):
        leadline.measure(gain_spec(base_url), tmp_path / "run", checks=False)
