"""Log-probability tasks on servers that give no log-probabilities of a prompt, and runs without a single answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import leadline
from leadline.features.dashboard.live import headline_of
from support.commands import Say
from support.fake_server import FakeServer
from support.logprob_model import RuleLogprobModel, remembers, use

GRID = ("--lengths", "1k", "--depths", "2", "--samples", "1", "--set", "haystack=noise")


def model_on(server: FakeServer) -> tuple[str, str]:
    return "--model", f"openai:fake?base_url={server.base_url}&tokenizer=bytes"


def test_a_llama_cpp_that_cannot_score_continuations_is_refused_before_anything_is_read(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with FakeServer(kind="llamacpp") as server:
        words = ("--lengths", "1k", "--depths", "2", "--samples", "1", "--no-checks")
        done = say("run", "needle_gain", *model_on(server), *words)
    assert done.code == 64, done.err
    assert "tokens written by a bias" in done.err
    assert "hf:" in done.err
    assert not (tmp_path / "runs").exists()


def test_a_server_without_log_probabilities_is_refused_after_one_small_request(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with FakeServer(kind="plain", window=8192) as server:
        words = ("--lengths", "1k", "--depths", "2", "--samples", "1", "--no-checks")
        done = say("run", "needle_gain", *model_on(server), *words)
        asked = [request.tokens for request in server.completions]
    assert done.code == 64, done.err
    assert "gives no log-probabilities" in done.err
    assert max(asked) < 500
    assert not (tmp_path / "runs").exists()


def failing_answers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    (folder / "mine.py").write_text("def generate(prompt):\n    raise ValueError('no answer today')\n")
    return ("niah", "--model", "./mine.py:generate", *GRID)


def failing_logprobs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    use(monkeypatch, RuleLogprobModel(remembers, fails=lambda tokens: True))
    return ("needle_gain", "--model", "sim:perfect", "--lengths", "512", "--depths", "2", "--samples", "1")


@pytest.mark.parametrize("failing", [failing_answers, failing_logprobs])
def test_a_run_without_a_single_answer_has_a_page_a_row_and_a_table_of_samples_that_say_so(
    failing: Callable[[Path, pytest.MonkeyPatch], tuple[str, ...]],
    say: Say,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = say("run", *failing(tmp_path, monkeypatch), "--out", "runs/empty")
    assert done.code == 1, done.err
    assert "None of 2 prompts got an answer" in done.out
    assert "others" not in done.out
    shown = say("report", "runs/empty")
    assert shown.code == 0, shown.err
    assert "nothing was measured" in (tmp_path / "runs/empty/report.html").read_text()
    assert say("report", "runs/empty", "--json").code == 0
    assert say("watch", "runs/empty").code == 1
    run = leadline.load_run(tmp_path / "runs/empty")
    assert len(run.to_pandas()) == 2
    assert "nothing was measured" in run.verdict.headline
    assert headline_of(run).done == 0
