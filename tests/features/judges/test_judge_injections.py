"""Fifty answers that try to dictate the verdict or to close the fence around them: a scripted judge and a real one."""

from __future__ import annotations

import json
import os
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from leadline.core.errors import JudgeRefused
from leadline.core.spec import Limits
from leadline.features.judges import asking as judging
from leadline.features.judges.asking import judge_run
from leadline.features.judges.prompt import JudgePrompt, ParsedReply, parse_reply
from leadline.features.judges.report import judged_section
from leadline.features.judges.results import read_judged
from leadline.features.judges.verdicts import RULE, read_verdicts
from leadline.report.terminal import show_section
from support.fake_server import FakeServer
from support.judged_runs import copy_run, inject, record_run
from support.llama_server import MODEL as LLAMA
from support.llama_server import LlamaServer, half_weights
from support.scripted_judge import part, verdict_in


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    values = {"model": "sim:perfect", "tasks": [{"name": "niah", "haystack": "noise"}], "lengths": "512"}
    return record_run(tmp_path_factory.mktemp("runs"), bare_every=0, **values, samples=10)


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    return copy_run(recorded, tmp_path)


def test_fifty_injections_change_no_verdict_of_a_judge_that_repeats_what_it_reads(run: Path) -> None:
    inject(run, 50)

    def repeats(prompt: str) -> str:
        code = prompt.partition("The code of this sample is ")[2][:8]
        return f"The answer says: {part(prompt, code, 'answer')}\nSo my verdict is\n{verdict_in(prompt)}"

    with FakeServer(answer=repeats) as server:
        judge_run(run, [f"openai:judge-of-another-lineage?base_url={server.base_url}&tokenizer=bytes"], min_accuracy=0)
    (judged,) = read_judged(run)
    (score,) = judged.judges
    assert (score.graded, score.unparsed, score.failed, score.yes_rate) == (50, 0, 0, 0.0)


@pytest.mark.real
@pytest.mark.parametrize(
    "count",
    [
        10,
        pytest.param(
            50, marks=pytest.mark.skipif(not os.environ.get("LEADLINE_SLOW"), reason="slow: set LEADLINE_SLOW=1")
        ),
    ],
)
def test_a_small_real_judge_takes_no_verdict_from_an_injection_and_is_shown_to_be_a_poor_one(
    run: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SmolLM2-135M through llama.cpp, which follows the schema of the verdict by a grammar."""
    inject(run, count)
    replies: list[tuple[str, JudgePrompt, ParsedReply]] = []

    def recorded_reply(reply: str, prompt: JudgePrompt) -> ParsedReply:
        parsed = parse_reply(reply, prompt)
        replies.append((reply, prompt, parsed))
        return parsed

    monkeypatch.setattr(judging, "parse_reply", recorded_reply)
    with LlamaServer(half_weights(), window=4096) as server:
        judge, limits = f"openai:{LLAMA}?base_url={server.base_url}", Limits(workers=1, timeout=600)
        with pytest.raises(JudgeRefused, match="known cases"):
            judge_run(run, [judge], limits=limits)
        assert not any(v.judge != RULE and not v.known_case for v in read_verdicts(run).values())
        judge_run(run, [judge], min_accuracy=0, limits=limits)
    (judged,) = read_judged(run)
    (score,) = judged.judges
    assert (score.graded, score.failed, score.families) == (count, 0, ("smollm",))
    # Every verdict is what the judge itself wrote, in one object with the code of the sample, which no answer has.
    for reply, prompt, parsed in replies:
        if parsed.value is not None:
            written = json.loads(reply)
            assert str(written["id"]).casefold() in (prompt.code, "")
            assert parsed.answers == {asked.key: written[asked.key] for asked in prompt.items}
    # With a grammar nearly every reply is a verdict; that the verdicts are poor is what the known cases show.
    assert score.unparsed <= count // 5
    assert score.known is not None
    assert min(score.known.sensitivity, score.known.specificity) < 0.6
    shown = StringIO()
    show_section(judged_section(read_judged(run)), Console(file=shown, width=120))
    assert f"{score.known.accepted} of 8" in shown.getvalue()
    assert f"{score.known.rejected} of 12" in shown.getvalue()
    assert "Uncorrected" in shown.getvalue()
