"""Every checkpoint is measured once, when it is complete, whatever is killed on the way."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import leadline
from leadline.core.errors import Interrupted, SourceError, UsageError
from leadline.core.spec import make_spec
from leadline.features.follow import command
from leadline.features.follow.checkpoints import CheckpointFolder, checkpoints_in
from leadline.features.follow.history import History, check_gates, exit_code
from leadline.features.follow.loop import Follower, MeasuredCheckpoint, NothingDue, follow_checkpoints
from leadline.results.run import Run, load_run
from leadline.run.events import ModelRun, ModelRunResult
from leadline.run.many_models import is_complete, measure_all
from leadline.stats.gate import parse_gate
from leadline.tasks.niah import Needle
from support.commands import Say

OLD = time.time() - 3600


def write_checkpoint(folder: Path, *, shards: int = 0, present: int | None = None, fresh: bool = False) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    if shards:
        names = [f"model-{n:05d}.safetensors" for n in range(shards)]
        index = {"weight_map": {f"layer.{n}": name for n, name in enumerate(names)}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        for name in names[: shards if present is None else present]:
            (folder / name).write_bytes(b"w")
    else:
        (folder / "model.safetensors").write_bytes(b"w")
    if not fresh:
        age(folder)
    return folder


def age(folder: Path) -> None:
    for path in folder.iterdir():
        os.utime(path, (OLD, OLD))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A good and a bad run of the same questions."""
    folder = tmp_path_factory.mktemp("steps")
    spec = leadline.Spec(model="sim:perfect", tasks="niah", lengths="512,1k", depths=2, samples=20)
    for name, model in (("good", "sim:perfect"), ("bad", "sim:cliff?window=600")):
        leadline.measure(spec.model_copy(update={"model": model}), folder / name)
    return {name: load_run(folder / name) for name in ("good", "bad")}


def test_steps_are_the_last_number_and_come_in_order(tmp_path: Path) -> None:
    for name in ("v2-step_300", "checkpoint-20", "iter_0001000", "tmp-checkpoint-9", ".hidden-3", "logs"):
        (tmp_path / name).mkdir()
    assert [checkpoint.step for checkpoint in checkpoints_in(tmp_path)] == [20, 300, 1000]


def test_a_checkpoint_without_all_its_shards_is_not_complete(tmp_path: Path) -> None:
    half = CheckpointFolder(write_checkpoint(tmp_path / "checkpoint-1", shards=3, present=2), 1)
    assert half.missing() == "model-00002.safetensors"
    (half.folder / "model-00002.safetensors").write_bytes(b"w")
    assert half.missing() == ""
    (half.folder / "model.safetensors.index.json").write_text("{")
    assert "readable" in half.missing()
    (half.folder / "config.json").unlink()
    assert half.missing() == "config.json"


def test_the_newest_complete_one_is_first_and_half_written_ones_wait(tmp_path: Path, measured: dict[str, Run]) -> None:
    for step in (1, 2, 3):
        write_checkpoint(tmp_path / f"checkpoint-{step}")
    write_checkpoint(tmp_path / "checkpoint-4", shards=2, present=1)
    write_checkpoint(tmp_path / "checkpoint-5", fresh=True)
    follower = Follower(tmp_path, lambda checkpoint: measured["good"], settle=60)
    events = [follower.next() for _ in range(4)]
    steps = [event.checkpoint.step for event in events[:3] if isinstance(event, MeasuredCheckpoint)]
    assert steps == [3, 2, 1]
    assert events[3] == NothingDue("checkpoint-4 has no model-00001.safetensors yet")
    shutil.rmtree(tmp_path / "checkpoint-4")
    assert follower.next() == NothingDue("checkpoint-5 is still being written")
    age(tmp_path / "checkpoint-5")
    assert isinstance(follower.next(), MeasuredCheckpoint)


def test_a_checkpoint_that_cannot_be_measured_keeps_no_other_and_is_tried_again_when_it_changes(
    tmp_path: Path, measured: dict[str, Run]
) -> None:
    for step in (1, 2):
        write_checkpoint(tmp_path / f"checkpoint-{step}")
    broken = {2}

    def measure(checkpoint: CheckpointFolder) -> Run:
        if checkpoint.step in broken:
            raise SourceError("the weights are damaged", where=checkpoint.name)
        return measured["good"]

    follower = Follower(tmp_path, measure, settle=0)
    first, second = follower.next(), follower.next()
    assert isinstance(first, MeasuredCheckpoint)
    assert first.error is not None
    assert isinstance(second, MeasuredCheckpoint)
    assert second.run is not None
    assert isinstance(follower.next(), NothingDue), "it is not tried for ever"
    broken.clear()
    (tmp_path / "checkpoint-2" / "model.safetensors").write_bytes(b"whole")
    again = follower.next()
    assert isinstance(again, MeasuredCheckpoint)
    assert again.run is not None


@pytest.mark.parametrize("error", [UsageError("wrong spec"), Interrupted("stopped")])
def test_what_every_checkpoint_would_meet_ends_the_command(tmp_path: Path, error: Exception) -> None:
    write_checkpoint(tmp_path / "checkpoint-1")

    def measure(checkpoint: CheckpointFolder) -> Run:
        raise error

    with pytest.raises(type(error)):
        Follower(tmp_path, measure, settle=0).next()


def test_it_waits_with_patience_and_then_ends(tmp_path: Path, measured: dict[str, Run]) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        if now == 50:
            write_checkpoint(tmp_path / "checkpoint-7")

    follower = Follower(tmp_path, lambda checkpoint: measured["good"], settle=0)
    events = list(follow_checkpoints(follower, once=False, patience=100, poll=10, sleep=sleep, clock=lambda: now))
    assert [type(event) for event in events].count(MeasuredCheckpoint) == 1
    assert events[-1] == NothingDue("no new checkpoint for 1 min 40 s")
    assert now == 150, "the patience begins anew with every checkpoint"


def test_each_step_is_gated_with_the_one_before_it_and_with_the_baseline(
    tmp_path: Path, measured: dict[str, Run]
) -> None:
    pairs = [(CheckpointFolder(tmp_path / f"c{step}", step), measured[name])
             for step, name in ((30, "bad"), (10, "good"), (20, "good"))]  # fmt: skip
    results = History(parse_gate("overall >= -10"), measured["good"]).results(pairs)
    assert [result.checkpoint.step for result in results] == [10, 20, 30]
    assert [[gate.verdict for gate in result.gates] for result in results] == [
        ["pass"], ["pass", "pass"], ["fail", "fail"],
    ]  # fmt: skip
    assert exit_code(results, 0) == 1
    assert exit_code(results[:2], 0) == 0
    assert exit_code(results[:2], 1) == 1


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Callable[[CheckpointFolder, str], str]:
    """Checkpoints measured as simulated models, whose window grows with the step."""

    def model_string(checkpoint: CheckpointFolder, options: str) -> str:
        return f"sim:cliff?window={400 + 10 * checkpoint.step}"

    monkeypatch.setattr(command, "model_string", model_string)
    return model_string


WORDS = ("--spec", "niah", "--lengths", "512,1k", "--samples", "6", "--settle", "0", "--out", "out", "--once")


@pytest.mark.slow
@pytest.mark.usefixtures("simulated")
def test_twenty_checkpoints_and_two_kills_are_twenty_runs_and_one_page(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = tmp_path / "training"
    measured: list[str] = []
    kills = {4, 11}

    def measure(runs: Sequence[ModelRun], **options: Any) -> list[ModelRunResult]:
        if len(measured) in kills:
            kills.remove(len(measured))
            raise Interrupted("stopped")
        if not is_complete(runs[0]):
            measured.append(runs[0].name)
        return measure_all(runs, **options)

    monkeypatch.setattr(command, "measure_all", measure)
    for step in range(1, 21):
        write_checkpoint(training / f"checkpoint-{5 * step}")
    codes = [say("follow", str(training), *WORDS, "--gate", "overall >= -60").code for _ in range(3)]
    assert codes == [130, 130, 0]
    assert sorted(measured) == sorted(f"checkpoint-{5 * step}" for step in range(1, 21)), "each was measured once"
    page = (tmp_path / "out" / "index.html").read_text()
    assert all(f"steps/checkpoint-{5 * step}<" in page for step in range(1, 21))
    assert "pass against checkpoint-95" in page
    assert page.count("<svg ") == 2


@pytest.mark.slow
@pytest.mark.usefixtures("simulated")
def test_a_lost_step_ends_with_exit_code_1_and_is_named(say: Say, tmp_path: Path) -> None:
    training = tmp_path / "training"
    for step in (200, 100):
        write_checkpoint(training / f"checkpoint-{step}")
    write_checkpoint(training / "checkpoint-300", shards=2, present=1)
    (tmp_path / "base").mkdir()
    spec = leadline.Spec(model="sim:perfect", tasks="niah", lengths="512,1k,2k", samples=12)
    leadline.measure(spec, tmp_path / "base" / "run")
    words = ("--spec", "niah", "--lengths", "512,1k,2k", "--samples", "12", "--settle", "0", "--out", "out", "--once")
    said = say("follow", str(training), *words, "--base", str(tmp_path / "base" / "run"), "--gate", "overall >= -5",
               "--json")  # fmt: skip
    assert said.code == 1, said.err
    values = json.loads(said.out[said.out.index("{\n") :])
    assert [row["gates"][-1]["verdict"] for row in values["checkpoints"]] == ["fail", "pass"]
    assert "checkpoint-300: no model-00001.safetensors yet" in (tmp_path / "out" / "index.html").read_text()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("nowhere",), "no such folder"),
        (("empty", "--once"), "no complete checkpoint is there"),
        (("empty", "--base", "runs/x"), "a baseline needs a gate"),
        (("empty", "--gate", "overall > 3"), "overall > 3"),
        (("empty", "--patience", "soon"), "soon"),
    ],
)
def test_a_wrong_call_says_what_where_and_how(say: Say, tmp_path: Path, words: tuple[str, ...], what: str) -> None:
    (tmp_path / "empty").mkdir()
    said = say("follow", *words, "--spec", "niah", "--lengths", "512")
    assert said.code not in (0, 70)
    assert what in said.err
    assert "fix:" in said.err


@pytest.fixture(scope="module")
def baselines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("baselines")
    values: dict[str, dict[str, Any]] = {
        "passkey": {"tasks": "passkey"}, "both": {"tasks": ["niah", "passkey"]}, "long": {"lengths": "2k"},
        "shared": {"reading": "shared"},
    }  # fmt: skip
    for name, further in values.items():
        spec = make_spec({"model": "sim:perfect", "tasks": "niah", "lengths": "512", "samples": 2, **further})
        leadline.measure(spec, folder / name)
    return {name: folder / name for name in values}


@pytest.mark.parametrize(
    ("words", "what", "fix"),
    [
        (("--spec", "needle_chance", "--gate", "overall >= -2"),
         "no task of the spec can be gated: needle_chance", "add a task that asks questions"),
        (("--gate", "overall >= -2", "--base", "passkey"),
         "the baseline has none of the tasks of the spec: it has passkey, and the spec has niah", "by the same spec"),
        (("--gate", "overall >= -2", "--base", "long"),
         "the baseline has none of the lengths of the spec: it has 2k, and the spec has 512", "by the same spec"),
        (("--gate", "overall >= -2", "--base", "shared"), "reading mode differs (shared / fresh)", "by the same spec"),
        (("--gate", "task:vt >= -2"), "nothing is called 'vt'", "there is task:niah"),
        (("--gate", "length:128k >= -2"), "nothing is called '128k'", "there is length:512"),
        (("--model", "dtipe=bf16"), "unknown key 'dtipe'", "did you mean 'dtype'"),
        (("--log-to", "tensorbord:logs"), "unknown tracker 'tensorbord'", "did you mean 'tensorboard'"),
    ],
)  # fmt: skip
def test_what_no_checkpoint_could_meet_is_said_before_the_first_is_measured(
    say: Say, tmp_path: Path, baselines: dict[str, Path], words: tuple[str, ...], what: str, fix: str
) -> None:
    """The folder is empty: a training that has just begun."""
    (tmp_path / "training").mkdir()
    given = [str(baselines.get(word, word)) if words[n - 1] == "--base" else word for n, word in enumerate(words)]
    said = say("follow", "training", "--spec", "niah", "--lengths", "512", "--samples", "2", "-o", "out", *given)
    assert said.code == 64, said.err
    assert what in said.err
    assert fix in said.err.partition("fix:")[2]
    assert not (tmp_path / "out").exists()


def test_a_task_that_the_baseline_lacks_is_named_and_the_others_are_gated(baselines: dict[str, Path]) -> None:
    spec = make_spec({"model": "hf:x", "tasks": ["niah", "passkey", "vt"], "lengths": "512"})
    notes = check_gates(spec, parse_gate("overall >= -2"), load_run(baselines["both"]))
    assert notes == ["the baseline has no vt: it is not in the gates against the baseline"]


@pytest.mark.slow
@pytest.mark.usefixtures("simulated")
def test_runs_that_do_not_compare_are_shown_with_the_reason(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only the opened models show, here as tasks of another version."""
    write_checkpoint(tmp_path / "training" / "checkpoint-1")
    leadline.measure(leadline.Spec(model="sim:perfect", tasks="niah", lengths="512,1k", samples=6), tmp_path / "base")
    monkeypatch.setattr(Needle, "version", "another")
    said = say("follow", "training", *WORDS, "--base", "base", "--gate", "overall >= -2")
    assert said.code == 2, said.err
    assert "not compared against the baseline: task.niah.version differs" in said.out
