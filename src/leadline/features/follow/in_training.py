"""Measuring inside a training process, from the weights in memory: a callback for transformers' Trainer, and the
function behind it for any other loop. Nothing is downloaded, the model is left as it was, and no memory of it is
kept."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from leadline.core.errors import UsageError
from leadline.core.spec import Spec
from leadline.models.hf import HF
from leadline.models.hf.load import Loaded, window_of
from leadline.models.hf.model import HFModel
from leadline.results.run import Run
from leadline.run.measure import measure_spec

OPTIONS = HF(fused=False)
"""Fused kernels replace modules of a model, which would then be trained with them."""


def measure_in_memory(model: Any, tokenizer: Any, spec: Spec, out: Path | str, *, step: int) -> Run:
    """Measures a model as it is in memory. `tokenizer` is that of transformers; `step` names the weights."""
    with tempfile.TemporaryDirectory() as folder, _left_as_it_was(model):
        tokenizer.save_pretrained(folder)
        kind = str(next(model.parameters()).dtype).removeprefix("torch.")
        loaded = Loaded(model, Path(folder), window_of(model.config), f"step:{step}", kind)
        options = {"model": f"hf:step-{step}"}
        return measure_spec(
            spec.model_copy(update=options), out, open_model=lambda _: HFModel(f"step-{step}", OPTIONS, loaded)
        ).run


@contextmanager
def _left_as_it_was(model: Any) -> Iterator[None]:
    """Reads in evaluation mode and without gradients; puts back modes, attention, and the random state."""
    modes = {name: module.training for name, module in model.named_modules()}
    attention, cached = model.config._attn_implementation, model.config.use_cache
    devices = [parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"][:1]
    with torch.random.fork_rng(devices), torch.no_grad():
        model.eval()
        try:
            yield
        finally:
            for name, module in model.named_modules():
                module.training = modes.get(name, module.training)
            if model.config._attn_implementation != attention:
                model.set_attn_implementation(attention)
            model.config.use_cache = cached
            if devices:
                torch.cuda.empty_cache()


class LeadlineCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """Measures every `every` steps, into `out/step-N`, and gives the Trainer's log `leadline/...` values.

        trainer = Trainer(..., callbacks=[LeadlineCallback("needle_chance", every=500, lengths="1k,4k")])

    Other arguments are fields of `leadline.Spec`. With `share`, a measurement waits until the measurements so far have
    taken no more than this share of the training's time.
    """

    def __init__(
        self, tasks: str, *, every: int, out: Path | str = "followed/steps", share: float = 1.0, **spec: Any
    ) -> None:
        if every < 1 or not 0 < share <= 1:
            raise UsageError("every is at least 1, and share between 0 and 1", where="LeadlineCallback")
        self.spec = Spec(model="hf:step", tasks=tasks, **spec)
        self.every, self.out, self.share = every, Path(out), share
        self.seconds = 0.0
        """Spent on measurements so far."""
        self._began = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **arguments: Any) -> None:
        self._began = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **arguments: Any) -> None:
        if state.global_step % self.every or not state.is_world_process_zero or not self._has_time():
            return
        started = time.monotonic()
        run = measure_in_memory(
            arguments["model"], arguments["processing_class"], self.spec, self.out / f"step-{state.global_step}",
            step=state.global_step,
        )  # fmt: skip
        self.seconds += time.monotonic() - started
        state.log_history.append({"step": state.global_step, **logged_values(run)})

    def _has_time(self) -> bool:
        return self.seconds <= self.share * (time.monotonic() - self._began)


def logged_values(run: Run) -> Mapping[str, float]:
    """Means by task and length, of answers and of log-probabilities, under names for a log."""
    values = {
        f"leadline/{task}/{length}": tally.estimate.mean
        for (task, length), tally in run.table.by_task_and_length.items()
        if tally.estimate is not None
    }
    for metric, lengths in run.logprobs.estimates.items():
        values |= {f"leadline/{metric.task}/{metric.name}/{length}": e.mean for length, e in lengths.items()}
    return values
