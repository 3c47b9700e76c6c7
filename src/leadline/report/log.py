"""Writing saved runs into logbooks: which step a checkpoint is, which line it belongs to, and off it goes."""

from __future__ import annotations

import re
from pathlib import Path

from leadline.core import registry
from leadline.core.errors import UsageError
from leadline.core.logbook import Entry
from leadline.report.entry import entry_of
from leadline.report.load import Run, load_run

_NUMBER = re.compile(r"(?<!\d)(?<!\d\.)\d+(?!.*\d)", re.DOTALL)
"""The last whole number of a name."""
_DANGLING = re.compile(r"[-_./ =:]+$")


def log_run(folder: Path | str, to: str, *, step: int | str = 0, name: str = "", page: bool = False) -> str:
    """Writes one saved run to the logbook `to`, as in `mlflow:http://127.0.0.1:5000?experiment=ctx`; says where it is.

    `step` is a number, or "auto" for the last number in the model's name. `name` is the line of checkpoints that the
    step belongs to; by default what the model is called, without its step. `page` keeps the report beside the numbers.
    """
    run = load_run(folder)
    return write_entry(to, prepared(run, step, name, page=page))


def write_entry(to: str, entry: Entry) -> str:
    book, place = registry.logbook(to)
    return book.write(place, entry)


def prepared(run: Run, step: int | str, name: str = "", *, page: bool = False) -> Entry:
    """The entry of a run, drawn and named, that any number of logbooks may be given."""
    number = step_of(run.model, step)
    kept = None
    if page:
        from leadline.report.page import write_page

        kept = write_page([run], run.folder / "report.html")
    return entry_of(run, number, name or _line_of(run, number), kept)


def step_of(model: str, step: int | str) -> int:
    """A step as given; `auto` is the last whole number of the model's name, options left out."""
    if step != "auto":
        text = str(step)
        if not text.isdecimal():
            raise UsageError(f"{text!r} is not a step", where="--step", fix="write a whole number, or auto")
        return int(text)
    found = _NUMBER.search(model.partition("?")[0])
    if found is None:
        raise UsageError(
            f"the name of {model!r} holds no number", where="--step auto", fix="write the step, as in --step 12000"
        )
    return int(found[0])


def _line_of(run: Run, step: int) -> str:
    """From the name that a list of models gives it, unless there is nothing but the step in it."""
    called = line_name(run.manifest.name, step).strip(" -_./=:,;") if run.manifest.name else ""
    return called or line_name(run.model, step)


def line_name(model: str, step: int) -> str:
    """The model's name less its step: `hf:out/checkpoint` for hf:out/checkpoint-12000 at step 12000."""
    head, mark, options = model.partition("?")
    found = _NUMBER.search(head)
    if found is not None and int(found[0]) == step:
        head = _DANGLING.sub("", head[: found.start()]) + head[found.end() :]
    return head + mark + options
