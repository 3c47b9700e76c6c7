"""Measuring inside a training process, from the weights in memory: a callback for transformers' Trainer, and the
function behind it for any other loop. Nothing is downloaded, the model is left as it was, and no memory of it is
kept."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from leadline.core import registry
from leadline.core.errors import FailedSamples, Interrupted, LeadlineError, OtherRunError, TokenizerError, UsageError
from leadline.core.seeds import digest
from leadline.core.spec import Spec
from leadline.models.hf import HF
from leadline.models.hf.engine import out_of_memory
from leadline.models.hf.load import Loaded, window_of
from leadline.models.hf.model import HFModel
from leadline.results.run import Run
from leadline.run.measure import measure_spec

OPTIONS = HF(fused=False)
"""Fused kernels replace modules of a model, which would then be trained with them."""
SAMPLED_WEIGHTS = 64
"""The values of each parameter that tell the weights of one training from those of another."""


def measure_in_memory(model: Any, tokenizer: Any, spec: Spec, out: Path | str, *, step: int) -> Run:
    """Measures a model as it is in memory. `tokenizer` is that of transformers; `step` names the weights. A folder with
    a run of other weights is refused."""
    with tempfile.TemporaryDirectory() as folder, _left_as_it_was(model):
        tokenizer.save_pretrained(folder)
        kind = str(next(model.parameters()).dtype).removeprefix("torch.")
        loaded = Loaded(model, Path(folder), window_of(model.config), f"step:{step} {_digest_weights(model)}", kind)
        options = {"model": f"hf:step-{step}"}
        return measure_spec(
            spec.model_copy(update=options), out, open_model=lambda _: HFModel(f"step-{step}", OPTIONS, loaded)
        ).run


def _digest_weights(model: Any) -> str:
    values = []
    for name, parameter in model.named_parameters():
        flat = parameter.detach().flatten()
        sampled = flat[:: max(1, len(flat) // SAMPLED_WEIGHTS)]
        values.append([name, len(flat), *sampled.float().cpu().tolist()])
    return digest(values)


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
    taken no more than this share of the training's time. A measurement that fails never ends the training: it is a
    warning, once for each kind of error, and a line in `errors`; the next is tried at its step.
    """

    def __init__(
        self, tasks: str, *, every: int, out: Path | str = "followed/steps", share: float = 1.0, **spec: Any
    ) -> None:
        if every < 1 or not 0 < share <= 1:
            raise UsageError("every is at least 1, and share between 0 and 1", where="LeadlineCallback")
        self.spec = Spec(model="hf:step", tasks=tasks, **spec)
        for task in self.spec.tasks:
            registry.task(task)  # an unknown task or option is an error before the training begins
        self.every, self.out, self.share = every, Path(out), share
        self.seconds = 0.0
        """Spent on measurements so far."""
        self.errors: dict[int, str] = {}
        """By step: why it was not measured, or which samples have no answer."""
        self._warned: set[type[Exception]] = set()
        self._began = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **arguments: Any) -> None:
        self._began = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **arguments: Any) -> None:
        if state.global_step % self.every or not state.is_world_process_zero or not self._has_time():
            return
        started = time.monotonic()
        try:
            run = self._measure(arguments, state.global_step)
            if values := logged_values(run):
                state.log_history.append({"step": state.global_step, **values})
            if run.totals.failed:
                self._warn(state.global_step, _failed_samples(run))
        except Interrupted:  # by Ctrl-C or a signal, which is meant for the training
            raise
        except Exception as error:  # whatever it is, the training is worth more than a measurement
            self._warn(state.global_step, error)
        finally:
            self.seconds += time.monotonic() - started

    def _measure(self, arguments: Mapping[str, Any], step: int) -> Run:
        tokenizer = arguments.get("processing_class")
        if tokenizer is None:
            what, fix = "the Trainer has no tokenizer", "give it one: Trainer(..., processing_class=tokenizer)"
            raise TokenizerError(what, where="processing_class", fix=fix)
        return measure_in_memory(arguments["model"], tokenizer, self.spec, self.out / f"step-{step}", step=step)

    def _warn(self, step: int, error: Exception) -> None:
        what = error.what if isinstance(error, LeadlineError) else f"{type(error).__name__}: {error}".splitlines()[0]
        self.errors[step] = what
        if type(error) in self._warned:
            return
        self._warned.add(type(error))
        warnings.warn(
            f"Leadline could not measure step {step}, and the training goes on: {what}\nfix: {_advice(error)}\n"
            f"The next measurement is at step {step + self.every}. Errors of this kind are not shown again; "
            "the callback's `errors` has all of them.",
            stacklevel=3,
        )

    def _has_time(self) -> bool:
        return self.seconds <= self.share * (time.monotonic() - self._began)


def _failed_samples(run: Run) -> FailedSamples:
    totals = run.totals
    kinds = "; ".join(f"{count} {why}: {totals.messages[why]}" for why, count in totals.failures.most_common(3))
    fix = f"see {run.folder}"
    if totals.failures["out_of_memory"] or totals.failures["context_length"]:
        fix = SHORTER
    return FailedSamples(f"{totals.failed:,} of {totals.planned:,} samples have no answer ({kinds})", fix=fix)


SHORTER = 'give LeadlineCallback shorter lengths, such as lengths="1k,4k", or a batch size that leaves it memory'


def _advice(error: Exception) -> str:
    if isinstance(error, OtherRunError):
        return "give LeadlineCallback another folder with out=: this one has measurements of another training"
    if out_of_memory(error):
        return SHORTER
    if isinstance(error, LeadlineError) and error.fix:
        return error.fix
    return "measure the saved checkpoints instead: leadline follow OUTPUT_DIR"


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
