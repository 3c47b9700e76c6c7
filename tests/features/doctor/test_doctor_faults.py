"""Nineteen faults of servers and gateways, planted one at a time and together: each is found, and a faithful server has
no findings."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from leadline.features.doctor.checks import CHECKS, examine
from leadline.features.doctor.examiner import Examiner
from leadline.features.doctor.findings import CheckReport
from leadline.features.doctor.serving import check_preemption
from leadline.models.openai.discovery import parse_preemptions
from support.fake_kinds import TEMPLATE, Kind
from support.openai_documents import open_model
from support.reading_server import SYSTEM, Planted, ReadingServer

WINDOW = 4096
EACH: dict[str, dict[str, Any]] = {
    "tokenizer": {"tokenizer": "everywhere"},
    "receipts": {"receipts": "scaled"},
    "template": {"template": "double_bos"},
    "system_prompt": {"system": SYSTEM},
    "prefix": {"prefix": "dropped"},
    "window": {"real_window": 2000},
    "truncation": {"cut": "front", "receipts": "as_sent"},
    "rewriting": {"rewrite": "spaces"},
    "early_stop": {"stop": "\n"},
    "max_tokens": {"most_tokens": 100},
    "reasoning_parser": {"thinking": "closing"},
    "thinking_budget": {"thinking": "reasoning", "thought": 300},
    "temperature": {"temperature": 0.0},
    "determinism": {"flips": 7},
    "logprobs": {"logprobs": "by_order"},
    "prefix_cache": {"cache": "off"},
    "cached_answers": {"cache": "stale"},
    "rate_limit": {"limited_every": 10},
    "preemption": {"preempts": 9},
    "model_name": {"model": "alternates"},
}
"""One form of every fault."""
OTHER_FORMS: list[tuple[str, Kind, dict[str, Any]]] = [
    ("truncation", "vllm", {"cut": "front"}),
    ("truncation", "llamacpp", {"cut": "middle"}),
    ("truncation", "plain", {"cut": "end"}),
    ("truncation", "vllm", {"cut": "sliding"}),
    ("truncation", "vllm", {"cut": "front", "cut_to": 3900}),
    ("truncation", "plain", {"cut": "middle", "receipts": "none", "logprobs": "none"}),
    ("truncation", "sglang", {"cut": "end", "receipts": "as_sent", "logprobs": "none"}),
    ("tokenizer", "plain", {"tokenizer": "generation"}),
    ("tokenizer", "vllm", {"tokenizer": "generation"}),
    ("system_prompt", "vllm", {"system": SYSTEM, "system_counted": False}),
    ("system_prompt", "plain", {"system": SYSTEM}),
    ("system_prompt", "plain", {"system": SYSTEM, "system_counted": False}),
    ("template", "llamacpp", {"template": "other"}),
    ("template", "vllm", {"template": "same_size"}),
    ("template", "llamacpp", {"template": "double_bos_rendered"}),
    ("prefix", "llamacpp", {"prefix": "closed"}),
    ("prefix", "sglang", {"prefix": "dropped"}),
    ("early_stop", "plain", {"stop": "###"}),
    ("early_stop", "vllm", {"stop": "."}),
    ("early_stop", "vllm", {"stop": "User:"}),
    ("early_stop", "plain", {"stop_after": 40}),
    ("max_tokens", "plain", {"most_tokens": 200}),
    ("temperature", "vllm", {"temperature": 1.0}),
    ("temperature", "plain", {"temperature": 1.0, "logprobs": "none"}),
    ("reasoning_parser", "plain", {"thinking": "tags"}),
    ("reasoning_parser", "vllm", {"thinking": "harmony"}),
    ("thinking_budget", "plain", {"thinking": "hidden", "thought": 300}),
    ("thinking_budget", "vllm", {"thinking": "tags", "thought": 300}),
    ("determinism", "plain", {"flips": 7, "logprobs": "none"}),
    ("prefix_cache", "plain", {"cache": "lies"}),
    ("cached_answers", "llamacpp", {"cache": "stale"}),
    ("logprobs", "llamacpp", {"logprobs": "by_order"}),
    ("receipts", "plain", {"receipts": "constant"}),
    ("receipts", "plain", {"receipts": "scaled"}),
    ("receipts", "vllm", {"receipts": "completion"}),
    ("window", "plain", {"real_window": 1200, "beyond": 413}),
    ("rate_limit", "vllm", {"at_once": 8}),
    ("rate_limit", "plain", {"at_once": 8, "drops": True}),
    ("rewriting", "plain", {"rewrite": "mask"}),
    ("rewriting", "vllm", {"rewrite": "quotes"}),
    ("rewriting", "plain", {"rewrite": "footer"}),
    ("rewriting", "vllm", {"rewrite": "reply_cache"}),
    ("rewriting", "plain", {"rewrite": "similar"}),
    ("model_name", "plain", {"model": "other"}),
    ("model_name", "vllm", {"model": "fingerprint"}),
]


FAITHFUL = Planted()


def checked(
    planted: Planted = FAITHFUL, kind: Kind = "vllm", *, only: tuple[str, ...] = (), **options: Any
) -> CheckReport:
    if kind == "plain":
        options["window"] = WINDOW
    with ReadingServer(planted, kind=kind, window=WINDOW) as server:
        model = open_model(server.base_url, allow_tokenizer_mismatch="true", **options)
        try:
            return examine(model, only=only, seed=1)
        finally:
            model.close()


def ids(found: CheckReport) -> set[str]:
    return {result.check for result in found.findings}


def test_there_is_a_fault_for_every_check() -> None:
    assert list(EACH) == [check.id for check in CHECKS]
    assert len(CHECKS) == 20


@pytest.mark.parametrize("check", EACH)
def test_a_planted_fault_is_found_and_nothing_else(check: str) -> None:
    found = checked(Planted(**EACH[check]))
    assert ids(found) == {check}, [(r.check, r.evidence) for r in found.findings]
    (result,) = found.findings
    assert result.evidence
    assert result.effect
    assert result.fix


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize(("check", "kind", "fault"), OTHER_FORMS)
def test_other_forms_of_the_faults_are_found(check: str, kind: Kind, fault: dict[str, Any]) -> None:
    assert check in ids(checked(Planted(**fault), kind, only=(check,)))


def test_interrupted_requests_are_counted_from_the_first_check_on() -> None:
    found = checked(Planted(preempts=1), "sglang", only=("prefix_cache", "preemption"))
    (result,) = found.findings
    assert result.check == "preemption"
    assert "interrupted during these checks" in result.evidence


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('vllm:num_preemptions_total{engine="0"} 4.0\nvllm:num_preemptions_total{engine="1"} 3.0\n', 7),
        ("sglang:num_retracted_reqs 12\n", 12), ("vllm:num_requests_running 3.0\n", None), ("", None),
        ('# HELP vllm:num_preemptions_total 9\nvllm:num_preemptions_total{model_name="m"} 1e+02\n', 100),
        ("vllm:num_preemptions_total 1e999\n", None), ("vllm:num_preemptions_total 1.2.3\n", None),
    ],
)  # fmt: skip
def test_the_metrics_of_two_engines_are_read(text: str, count: int | None) -> None:
    assert parse_preemptions(text) == count


@pytest.mark.parametrize(
    ("paces", "status"),
    [
        ([(4000, 2.0)] * 6 + [(4000, 30.0)], "Finding"), ([(4000, 2.0)] * 6 + [(4000, 4.0)], "Ok"),
        ([(4000, 0.02)] * 6 + [(4000, 0.9)], "Ok"), ([(4000, 2.0), (100, 30.0)], "Skipped"),
        ([(4000, 2.0)] * 6 + [(200, 3.0)], "Ok"),
    ],
)  # fmt: skip
def test_without_metrics_a_request_that_took_ten_times_as_long_is_seen(
    paces: list[tuple[int, float]], status: str
) -> None:
    with ReadingServer(kind="plain", window=WINDOW) as server:
        model = open_model(server.base_url, allow_tokenizer_mismatch="true", window=WINDOW)
        try:
            examiner = Examiner(model, seed=1)
            examiner.paces = paces
            assert type(check_preemption(examiner)).__name__ == status
        finally:
            model.close()


@pytest.mark.parametrize("kind", ["vllm", "llamacpp", "sglang", "plain"])
def test_a_faithful_server_has_no_findings(kind: Kind) -> None:
    found = checked(kind=kind)
    assert not found.findings, [(r.check, r.evidence) for r in found.findings]
    statuses = {r.check: r.status for r in found.results}
    skipped = {check for check, status in statuses.items() if status == "not_made"}
    unseen = {
        "plain": {"template", "prefix", "preemption", "cached_answers"},
        "sglang": {"template"},
        "llamacpp": {"preemption"},
    }
    assert skipped == unseen.get(kind, set())
    assert found.numbers["flip_rate"] == 0


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "less",
    [
        {"tiny_noise": True},
        {"cache": "silent"},
        {"receipts": "none"},
        {"logprobs": "none"},
        {"thinking": "reasoning", "thought": 20},
    ],
)
def test_noise_below_a_third_of_a_nat_and_a_server_that_says_less_are_no_findings(less: dict[str, Any]) -> None:
    for kind in ("vllm", "plain"):
        found = checked(Planted(**less), kind)
        assert not found.findings, [(r.check, r.evidence) for r in found.findings]
        assert all(r.evidence for r in found.results)


@pytest.mark.parametrize("weak", ["long", "all"])
@pytest.mark.parametrize("logprobs", ["", "none"])
@pytest.mark.parametrize("kind", ["vllm", "plain"])
def test_a_model_that_says_the_same_whatever_is_asked_of_a_long_text_is_no_finding(
    weak: Any, logprobs: Any, kind: Kind
) -> None:
    found = checked(Planted(weak=weak, logprobs=logprobs), kind, only=("truncation", "rewriting"))
    assert not found.findings, [(r.check, r.evidence) for r in found.findings]


@pytest.mark.parametrize("kind", ["vllm", "llamacpp", "plain"])
def test_log_probabilities_that_a_cache_moves_by_a_third_of_a_nat_are_no_finding(kind: Kind) -> None:
    found = checked(Planted(cached_noise=True, weak="long"), kind)
    assert not found.findings, [(r.check, r.evidence) for r in found.findings]
    cut = Planted(cached_noise=True, weak="long", cut="front", receipts="as_sent")
    assert ids(checked(cut, kind, only=("truncation",))) == {"truncation"}


@pytest.mark.parametrize(("kind", "logprobs"), [("vllm", ""), ("sglang", ""), ("plain", "none")])
def test_a_cut_end_is_found_although_the_model_is_weak(kind: Kind, logprobs: Any) -> None:
    planted = Planted(weak="long", cut="end", receipts="as_sent", logprobs=logprobs, cut_to=3000)
    assert ids(checked(planted, kind, only=("truncation",))) == {"truncation"}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "checks",
    [
        ("truncation", "prefix_cache", "model_name", "max_tokens"),
        ("system_prompt", "early_stop", "rate_limit"),
        ("rewriting", "temperature", "window"),
        ("receipts", "reasoning_parser", "logprobs"),
    ],
)
def test_faults_that_come_together_are_all_found(checks: tuple[str, ...]) -> None:
    faults: dict[str, Any] = {}
    for check in checks:
        faults |= EACH[check]
    found = checked(Planted(**faults))
    assert ids(found) >= set(checks), [(r.check, r.evidence) for r in found.results if r.check in checks]


def test_a_template_file_shows_a_doubled_beginning_on_a_server_that_shows_nothing(tmp_path: Path) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text(TEMPLATE.replace("{{ bos_token }}", "<s>"))
    for planted, wanted in ((Planted(), "ok"), (Planted(template="double_bos"), "finding")):
        found = checked(planted, "plain", only=("template",), template=template)
        assert [r.status for r in found.results] == [wanted], found.results


@pytest.mark.slow
def test_the_real_limit_is_bisected_and_the_tokens_read_whole_are_measured() -> None:
    found = checked(Planted(real_window=2000, beyond=500), only=("window",))
    assert 1900 <= (found.numbers["accepted_tokens"] or 0) <= 2000
    found = checked(Planted(cut="front", cut_to=2000), only=("truncation",))
    assert 1600 <= (found.numbers["tokens_read_whole"] or 0) <= 2100


def test_a_refused_length_is_said_as_it_was_tried_where_no_window_is_claimed() -> None:
    with ReadingServer(Planted(real_window=2000), kind="plain", window=None) as server:
        model = open_model(server.base_url)
        (found,) = examine(model, only=("window",), longest=6000, seed=1).findings
        model.close()
    assert "a prompt of 6,000 is refused" in found.evidence


def test_room_for_thinking_that_was_given_is_used_by_the_check() -> None:
    for room, status in (("", "finding"), ("2000", "ok")):
        found = checked(Planted(thinking="reasoning", thought=300), only=("thinking_budget",), max_tokens=room)
        assert [r.status for r in found.results] == [status], found.results


def test_refused_requests_before_a_run_say_nothing_about_requests_at_once() -> None:
    with ReadingServer(Planted(limited_every=4), kind="plain", window=WINDOW) as server:
        model = open_model(server.base_url, window=WINDOW)
        found = {r.check: r for r in examine(model, cheap=True, seed=1).findings}
        model.close()
    assert "at once" not in found["rate_limit"].evidence
    assert "--workers 1" not in found["rate_limit"].fix


def test_an_address_that_comes_back_is_not_masked_whatever_is_around_it() -> None:
    class Marking(ReadingServer):
        """Puts a mark before every answer, and changes nothing else."""

        def _generated(self, body: dict[str, Any], prompt: str, number: int) -> tuple[str | None, str, str]:
            text, finish, reasoning = super()._generated(body, prompt, number)
            return f"[ANSWER] {text}" if "Write it exactly" in prompt else text, finish, reasoning

    with Marking(kind="plain", window=WINDOW) as server:
        model = open_model(server.base_url, window=WINDOW)
        assert not examine(model, only=("rewriting",), seed=1).findings
        model.close()


def test_replies_that_name_a_configuration_and_no_model_say_nothing_about_the_model() -> None:
    class Nameless(ReadingServer):
        def _page(self, body: dict[str, Any], prompt: str, sent: int, number: int) -> dict[str, Any]:
            return {**super()._page(body, prompt, sent, number), "model": None, "system_fingerprint": "fp_1"}

    with Nameless(kind="plain", window=WINDOW) as server:
        model = open_model(server.base_url, window=WINDOW)
        (result,) = examine(model, only=("model_name",), seed=1).results
        model.close()
    assert (result.status, result.evidence) == ("not_made", "the replies do not name a model")


def test_every_field_of_the_planted_faults_is_used() -> None:
    used = {name for fault in EACH.values() for name in fault} | {name for *_, fault in OTHER_FORMS for name in fault}
    assert used | {"tiny_noise", "cached_noise", "weak", "most_finish", "beyond", "hangs"} == {
        f.name for f in dataclasses.fields(Planted)
    }
