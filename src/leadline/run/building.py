"""From cells to a document: fitted to its length where it is asked, cut from real text where it is measured."""

from __future__ import annotations

from collections.abc import Sequence

from leadline.core.contracts import Model, Surprised, Task
from leadline.core.errors import UsageError
from leadline.core.soundings import Measure
from leadline.core.types import Cell, Document
from leadline.text.fit import fit


def build(task: Task, cells: Sequence[Cell], model: Model, *, seed: int) -> Document:
    """The document of some cells, in the model's own tokens."""
    if not isinstance(task, Measure):
        return fit(task.write(cells, seed=seed), model.tokenizer, model.frame)
    plain = surprised(model, cells[0].task).plain
    return task.sound(cells, seed=seed, tokenizer=model.tokenizer, frame=model.frame, plain=plain)


def surprised(model: Model, title: str) -> Surprised:
    """The model as one that gives log-probabilities, or an error that says who does."""
    if isinstance(model, Surprised):
        return model
    raise UsageError(
        f"{model.card.name} gives no log-probabilities, and {title} is made of them",
        where=f"task {title}",
        fix="measure the model in process (hf:FOLDER)",
    )
