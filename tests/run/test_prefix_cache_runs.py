"""Whole runs against a server whose prefix cache forgets: documents at once, receipts, summary and warning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leadline.results.run import load_run
from support.caching_server import CachingServer
from support.commands import CommandResult, Say
from support.fake_http import Response, json_response
from support.fake_server import Faults
from support.leadline_process import write_haystack


def run(
    say: Say, server: CachingServer, folder: Path, *words: str, reading: str = "shared", options: str = ""
) -> CommandResult:
    return say(
        "run", "niah", "--set", "keys=1",
        "--model", f"openai:fake?base_url={server.base_url}&tokenizer=bytes{options}",
        "--lengths", "1500,3000", "--depths", "5", "--samples", "4", "--reading", reading, "--no-figure", "--no-checks",
        "--set", f"haystack={write_haystack(folder.parent)}", "--out", str(folder), *words,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [4500, 9000, 100_000])
@pytest.mark.parametrize("reading", ["shared", "nested"])
def test_learning_the_size_from_receipts_keeps_over_85_percent_of_the_hits(
    say: Say, tmp_path: Path, reading: str, tokens: int
) -> None:
    with CachingServer(tokens, states_size=False, faults=Faults(delay_seconds=0.002)) as server:
        said = run(say, server, tmp_path / "run", "--samples", "10", reading=reading)
    assert said.code == 0, said.err
    use = load_run(tmp_path / "run").totals.cache
    assert use.hit_share is not None
    assert use.hit_share > 0.85


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("reading", ["shared", "nested"])
@pytest.mark.parametrize("stated", [True, False], ids=["size stated", "learned from receipts"])
def test_nearly_all_that_could_come_from_a_small_cache_does(
    say: Say, tmp_path: Path, reading: str, stated: bool
) -> None:
    # Two documents of 3,000 fit, and sixteen workers would ask for eight at once.
    with CachingServer(9000, states_size=stated, faults=Faults(delay_seconds=0.01)) as server:
        said = run(say, server, tmp_path / "run", reading=reading)
    assert said.code == 0, said.err
    use = load_run(tmp_path / "run").totals.cache
    assert use.following == (32 if reading == "shared" else 36)
    assert use.hit_share is not None
    assert use.hit_share > 0.95
    assert use.cached_tokens == server.cached
    assert "prompt tokens were read" in said.out
    assert "the first question of a document took" in said.out
    assert ("prefix cache holds 8,992 tokens" in said.err) is stated
    assert "could have come" not in said.err


def test_a_shared_run_without_hits_is_warned_of_with_what_would_help(say: Say, tmp_path: Path) -> None:
    with CachingServer(1, states_size=False) as server:
        said = run(say, server, tmp_path / "run", "--json")
    assert said.code == 0
    found = json.loads(said.out)["cache"]
    assert found["hit_share"] < 0.1
    with CachingServer(1, states_size=False) as server:
        said = run(say, server, tmp_path / "again")
    assert "the documents were shared, but only" in said.err
    assert "--enable-prefix-caching" in said.err


def test_a_server_without_receipts_of_its_cache_is_named_with_the_flag_for_them(say: Say, tmp_path: Path) -> None:
    with CachingServer(9000, states_hits=False) as server:
        said = run(say, server, tmp_path / "run")
    assert "--enable-prompt-tokens-details" in said.err
    assert "came from a cache" not in said.out
    assert load_run(tmp_path / "run").totals.cache.values()["cached_tokens"] is None


def test_fresh_runs_ask_nothing_about_the_cache_and_are_not_limited(say: Say, tmp_path: Path) -> None:
    with CachingServer(1, faults=Faults(delay_seconds=0.02)) as server:
        said = run(say, server, tmp_path / "run", reading="fresh")
        assert server.peak_in_flight > 8
    assert "could have come" not in said.err
    assert load_run(tmp_path / "run").totals.cache.cacheable_tokens == 0


@pytest.mark.slow
def test_what_a_server_read_before_a_kill_is_cacheable_when_the_run_is_resumed(say: Say, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with CachingServer(10**6) as server:
        assert run(say, server, folder).code == 0
        whole = {r.cell.key: r.receipt.cacheable for r in load_run(folder).records}
        firsts = {key for key, cacheable in whole.items() if not cacheable}
        lines = (folder / "records.jsonl").read_bytes().splitlines(keepends=True)
        (folder / "records.jsonl").write_bytes(b"".join(lines[: len(lines) // 2 + 1]))  # as after a kill
        assert run(say, server, folder).code == 0
    resumed = {r.cell.key: r.receipt.cacheable for r in load_run(folder).records}
    assert len(resumed) == len(whole)
    assert {key for key, cacheable in resumed.items() if not cacheable} == firsts
    assert resumed == whole


class RefusingServer(CachingServer):
    """Knows no prompt_cache_key."""

    def _completion(self, body: dict[str, Any], prompt: str, fault: str) -> Response | None:
        if "prompt_cache_key" in body:
            return json_response(400, {"error": {"message": "Unknown parameter: prompt_cache_key"}})
        return super()._completion(body, prompt, fault)


def test_a_server_that_refuses_the_cache_key_is_asked_without(say: Say, tmp_path: Path) -> None:
    with RefusingServer(10**6) as server:
        assert run(say, server, tmp_path / "run", options="&cache_key=yes").code == 0
    found = load_run(tmp_path / "run")
    assert (found.totals.done, found.totals.retried) == (40, 0)
    assert all("prompt_cache_key" not in record.sent.decoding for record in found.records)


def test_each_document_has_one_cache_key(say: Say, tmp_path: Path) -> None:
    with CachingServer(10**6, keep_bodies=True) as server:
        assert run(say, server, tmp_path / "run", options="&cache_key=yes").code == 0
        asked = [r.body for r in server.completions]
    keys = [body["prompt_cache_key"] for body in asked]
    assert len(set(keys)) == 8
    assert all(keys.count(key) == 5 for key in keys)
