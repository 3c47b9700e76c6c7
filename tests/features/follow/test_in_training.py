"""A measurement inside of a training leaves the training as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments, default_data_collator

from leadline.core.errors import UsageError
from leadline.features.follow.in_training import LeadlineCallback
from leadline.results.run import load_run
from support.tiny_models import model_folder, random_ids

pytestmark = pytest.mark.slow


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


@pytest.mark.filterwarnings("ignore")
def test_losses_are_the_same_with_and_without_measurements(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model")
    plain, _ = _train(folder, tmp_path / "plain", [])
    callback = LeadlineCallback("needle_chance", every=2, out=tmp_path / "steps", lengths="256", samples=1)
    measured, log = _train(folder, tmp_path / "measured", [callback])
    assert measured == plain, "modes, attention and random state are as they were"
    rows = [row for row in log if any(name.startswith("leadline/needle_chance/") for name in row)]
    assert [row["step"] for row in rows] == [2, 4]
    runs = [load_run(tmp_path / "steps" / f"step-{step}") for step in (2, 4)]
    assert [run.manifest.fingerprints["model.revision"] for run in runs] == ["step:2", "step:4"]
    assert callback.seconds > 0


def test_a_callback_without_a_rhythm_is_refused() -> None:
    with pytest.raises(UsageError):
        LeadlineCallback("niah", every=0)
