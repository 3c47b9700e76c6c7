"""Inspect and lm-evaluation-harness themselves, each in an environment of its own, on llama.cpp with SmolLM2: what they
send and what they score is what `leadline run` sends and scores."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

import leadline
from leadline.core.seeds import digest_prompt
from leadline.core.types import Frame
from leadline.results.run import load_run
from leadline.run.measure import measure
from leadline.store.runs import read_records
from support.commands import Say
from support.environments import environment
from support.llama_server import MODEL, LlamaServer, half_weights

pytestmark = pytest.mark.real

INSPECT = ("inspect_ai==0.3.285", "openai==3.51.0")
LM_EVAL = ("lm_eval[api]==0.4.13",)
TASKS = ("passkey", "niah_single_1")
GRID: dict[str, Any] = {"lengths": "256", "depths": 2, "samples": 1}
READ_LOGS = """
import glob, json, sys
from inspect_ai.log import read_eval_log
logs = [read_eval_log(path) for path in glob.glob(sys.argv[1] + "/*.eval")]
assert all(log.status == "success" for log in logs), [log.error for log in logs]
print(json.dumps([json.loads(sample.model_dump_json()) for log in logs for sample in log.samples]))
"""
LATER_VERSION = """
import glob, json, sys, zipfile, zipfile_zstd
with zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.eval")[0]) as log, zipfile.ZipFile(sys.argv[2], "w") as later:
    for name in log.namelist():
        content = log.read(name)
        if name in ("header.json", "_journal/start.json"):
            content = json.dumps({**json.loads(content), "version": 99}).encode()
        later.writestr(name, content)
"""


class Asked(NamedTuple):
    """What was sent for one sample, and what it scored."""

    messages: list[dict[str, Any]]
    text: str
    scores: dict[str, float]


def said_by(*command: str, base_url: str, folder: Path, stream: Literal["stdout", "stderr"] = "stdout") -> str:
    """What a program writes."""
    local = {"LOCAL_BASE_URL": base_url, "LOCAL_API_KEY": "none", "OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=folder, env={**os.environ, **local}, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout if stream == "stdout" else done.stderr


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with LlamaServer(half_weights(), window=1024) as server:
        yield server.base_url


@pytest.fixture(scope="module")
def run(base_url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = leadline.Spec(model=f"openai:{MODEL}?base_url={base_url}", tasks=TASKS, **GRID)
    return measure(spec, tmp_path_factory.mktemp("measured") / "run").folder


def agrees_with(run: Path, asked: dict[str, Asked]) -> None:
    """The same prompts by digest, the same answers and the same scores."""
    records = {record.cell.key: record for record in read_records(run)}
    frame = Frame.load(load_run(run).manifest.frame)
    assert asked.keys() == records.keys()
    for key, sample in asked.items():
        record, (user, begun) = records[key], [message["content"] for message in sample.messages]
        assert [message["role"] for message in sample.messages] == ["user", "assistant"]
        assert begun == record.question.answer_prefix
        assert digest_prompt(frame.before + user + frame.after + begun) == record.prompt_digest
        assert sample.text.removeprefix(begun).strip() == getattr(record.outcome, "text", "").strip()
        assert sample.scores == {name: score.value for name, score in record.scores.items()}


def test_inspect_sends_the_prompts_of_a_run_and_scores_alike(base_url: str, run: Path, tmp_path: Path) -> None:
    python = environment("inspect", *INSPECT)
    options = [word for name, value in GRID.items() for word in ("-T", f"{name}={value}")]
    tasks = [f"leadline/{name}" for name in TASKS]
    said_by(
        python, "-m", "inspect_ai", "eval", *tasks, "--model", f"openai-api/local/{MODEL}", *options,
        "--log-dir", "logs", "--display", "plain", base_url=base_url, folder=tmp_path,
    )  # fmt: skip
    samples = json.loads(said_by(python, "-c", READ_LOGS, "logs", base_url=base_url, folder=tmp_path))
    for sample in samples:
        usage = sample["output"]["usage"]
        read = usage["input_tokens"] + (usage["input_tokens_cache_read"] or 0)
        assert read == sample["metadata"]["prompt_tokens"], "the server's own count"
    agrees_with(
        run,
        {
            sample["id"]: Asked(
                sample["input"],
                sample["output"]["choices"][0]["message"]["content"],
                sample["scores"]["leadline"]["metadata"]["scores"],
            )
            for sample in samples
        },
    )
    _graded_again(python, base_url, tmp_path)


def _graded_again(python: str, base_url: str, folder: Path) -> None:
    """`leadline score` sees all samples of the log, those that came while it ran too; a later version is named."""
    program = ("-c", "from leadline.cli.main import main; main()")
    said = said_by(python, *program, "score", "logs", "--json", base_url=base_url, folder=folder)
    graded = {row["task"]: row["samples"] for row in json.loads(said)["tasks"]}
    assert graded == dict.fromkeys(TASKS, GRID["depths"])
    said_by(python, "-c", LATER_VERSION, "logs", "later.eval", base_url=base_url, folder=folder)
    said = said_by(python, *program, "score", "later.eval", base_url=base_url, folder=folder, stream="stderr")
    assert "later.eval is a log of version 99, and 2 is known here" in said
    assert "update leadline" in said


def test_lm_eval_sends_the_prompts_of_a_run_and_scores_alike(
    base_url: str, run: Path, say: Say, tmp_path: Path
) -> None:
    python = environment("lm-eval", *LM_EVAL)
    grid = [word for name, value in GRID.items() for word in (f"--{name}", str(value))]
    model = f"openai:{MODEL}?base_url={base_url}"
    made = say("build", ",".join(TASKS), "--as", "lm-eval", "--model", model, *grid, "-o", str(tmp_path / "tasks"))
    assert made.code == 0, made.err
    said_by(
        python, "-m", "lm_eval", "run", "--model", "local-chat-completions",
        "--model_args", f"model={MODEL},base_url={base_url}/chat/completions", "--apply_chat_template",
        "--include_path", "tasks", "--tasks", "leadline", "--output_path", "out", "--log_samples",
        base_url=base_url, folder=tmp_path,
    )  # fmt: skip
    lines = [
        json.loads(line) for p in (tmp_path / "out").rglob("samples_*.jsonl") for line in p.read_text().splitlines()
    ]
    agrees_with(
        run,
        {
            line["doc"]["key"]: Asked(
                json.loads(line["arguments"]["gen_args_0"]["arg_0"][0]),
                line["resps"][0][0],
                {name: line[name] for name in line["metrics"]},
            )
            for line in lines
        },
    )
    graded = say("score", str(tmp_path / "out"), "--json")
    assert graded.code == 0, graded.err
