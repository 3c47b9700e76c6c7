"""A measurement inside of a training leaves the training as it was."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments, default_data_collator

from leadline.core.answers import Failure
from leadline.core.errors import Interrupted, UnknownName, UsageError
from leadline.features.follow.in_training import LeadlineCallback
from leadline.models.hf.model import HFModel
from leadline.results.run import load_run
from support.tiny_models import model_folder, random_ids


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("tiny") / "model")


def _train(folder: Path, out: Path, callbacks: list[Any]) -> tuple[list[float], list[dict[str, Any]]]:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(folder, attention_dropout=0.1)
    texts = [torch.tensor(random_ids(number, 32)).long() for number in range(8)]
    rows = [{"input_ids": ids, "labels": ids} for ids in texts]
    arguments = TrainingArguments(
        output_dir=str(out), max_steps=4, per_device_train_batch_size=2, logging_steps=1, save_strategy="no",
        report_to=[], use_cpu=True, disable_tqdm=True, seed=1, dataloader_pin_memory=False,
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(folder)
    trainer = Trainer(
        model, arguments, train_dataset=rows, processing_class=tokenizer, callbacks=callbacks,
        data_collator=default_data_collator,
    )  # fmt: skip
    trainer.train()
    assert model.training
    return [row["loss"] for row in trainer.state.log_history if "loss" in row], trainer.state.log_history


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_losses_are_the_same_with_and_without_measurements(folder: Path, tmp_path: Path) -> None:
    plain, _ = _train(folder, tmp_path / "plain", [])
    callback = LeadlineCallback("needle_chance", every=2, out=tmp_path / "steps", lengths="256", samples=1)
    measured, log = _train(folder, tmp_path / "measured", [callback])
    assert measured == plain, "modes, attention and random state are as they were"
    rows = [row for row in log if any(name.startswith("leadline/needle_chance/") for name in row)]
    assert [row["step"] for row in rows] == [2, 4]
    runs = [load_run(tmp_path / "steps" / f"step-{step}") for step in (2, 4)]
    revisions = [run.manifest.fingerprints["model.revision"].partition(" ") for run in runs]
    assert [name for name, _, _ in revisions] == ["step:2", "step:4"]
    assert revisions[0][2] != revisions[1][2], "the weights of another step"
    assert callback.seconds > 0


def test_a_callback_without_a_rhythm_is_refused() -> None:
    with pytest.raises(UsageError):
        LeadlineCallback("niah", every=0)


def test_an_unknown_task_is_refused_before_the_training_begins() -> None:
    with pytest.raises(UnknownName, match="needle_chanse"):
        LeadlineCallback("needle_chanse", every=1)


class _Steps:
    """Steps of a training whose measurements are due, without the training."""

    def __init__(self, folder: Path, callback: LeadlineCallback) -> None:
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.callback = callback
        self.log: list[dict[str, Any]] = []

    def measure(self, step: int) -> list[str]:
        """The warnings of one step."""
        state = SimpleNamespace(global_step=step, is_world_process_zero=True, log_history=self.log)
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            self.callback.on_step_end(None, state, None, model=self.model, processing_class=self.tokenizer)
        return [str(warning.message) for warning in shown if "Leadline" in str(warning.message)]


def _steps(folder: Path, out: Path, tasks: str = "needle_chance", lengths: str = "256") -> _Steps:
    return _Steps(folder, LeadlineCallback(tasks, every=1, out=out, lengths=lengths, samples=1))


@pytest.mark.slow
def test_a_training_without_a_tokenizer_is_warned_once_and_goes_on(folder: Path, tmp_path: Path) -> None:
    steps = _steps(folder, tmp_path)
    steps.tokenizer, tokenizer = None, steps.tokenizer
    (shown,) = steps.measure(1)
    assert "could not measure step 1, and the training goes on: the Trainer has no tokenizer" in shown
    assert "fix: give it one: Trainer(..., processing_class=tokenizer)" in shown
    assert steps.measure(2) == []
    assert list(steps.callback.errors) == [1, 2]
    assert steps.log == []
    steps.tokenizer = tokenizer
    assert steps.measure(3) == []
    assert [row["step"] for row in steps.log] == [3], "what can be measured later is measured"


def test_a_length_that_holds_no_document_is_a_warning_with_its_fix(folder: Path, tmp_path: Path) -> None:
    (shown,) = _steps(folder, tmp_path, "niah", "16").measure(1)
    assert "16 tokens cannot hold this" in shown
    assert "fix: the shortest length that can hold it" in shown


def test_memory_that_runs_out_is_a_warning_and_the_model_is_left_as_it_was(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nll(model: HFModel, *arguments: Any, **options: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    monkeypatch.setattr(HFModel, "nll", nll)
    steps = _steps(folder, tmp_path)
    steps.model.train()
    (shown,) = steps.measure(1)
    assert "CUDA out of memory" in shown
    assert "fix: give LeadlineCallback shorter lengths" in shown
    assert steps.model.training


def test_samples_that_no_memory_is_left_for_are_counted_in_the_warning(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HFModel, "nll", lambda *arguments: Failure("out_of_memory", "out of memory with 256 tokens"))
    steps = _steps(folder, tmp_path)
    (shown,) = steps.measure(1)
    assert "5 of 5 samples have no answer (5 out_of_memory: out of memory with 256 tokens)" in shown
    assert "fix: give LeadlineCallback shorter lengths" in shown
    assert steps.log == [], "no row without a value"


@pytest.mark.slow
def test_measurements_of_another_training_are_kept_and_not_taken_for_this_one(folder: Path, tmp_path: Path) -> None:
    first, second = _steps(folder, tmp_path), _steps(folder, tmp_path)
    assert first.measure(1) == []
    records = (tmp_path / "step-1" / "records.jsonl").read_bytes()
    with torch.no_grad():
        second.model.get_input_embeddings().weight.mul_(1.5)
    (shown,) = second.measure(1)
    assert "another identity: fingerprints.model.revision" in shown
    assert "fix: give LeadlineCallback another folder with out=" in shown
    assert second.log == []
    assert (tmp_path / "step-1" / "records.jsonl").read_bytes() == records


def test_an_interruption_ends_the_training(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nll(model: HFModel, *arguments: Any, **options: Any) -> None:
        raise Interrupted("interrupted")

    monkeypatch.setattr(HFModel, "nll", nll)
    with pytest.raises(Interrupted):
        _steps(folder, tmp_path).measure(1)
