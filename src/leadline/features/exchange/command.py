"""`leadline export`: a run in the format of another tool."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from leadline.console.output import echo, warn
from leadline.core.errors import StoreError, UsageError
from leadline.features.exchange.every_eval_ever import every_eval_ever
from leadline.features.exchange.exported import UNKNOWN, model_id
from leadline.features.exchange.hf_results import hf_results
from leadline.features.exchange.inspect_log import write_inspect_log
from leadline.features.exchange.lm_eval import lm_eval_files
from leadline.results.run import Run, load_run
from leadline.store.files import replace_file
from leadline.store.runs import slug

Format = Literal["every-eval-ever", "hf-eval-results", "inspect", "lm-eval"]


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as printed by `leadline run`.")],
    format: Annotated[Format, typer.Option("--as", help="The format to write.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder for the files.")] = Path("exported"),
    model: Annotated[
        str | None, typer.Option("--model-id", metavar="DEVELOPER/MODEL", help="The model's id on the hub.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option("--dataset", metavar="OWNER/NAME", help="hf-eval-results: the benchmark's data set on the hub."),
    ] = None,
) -> None:
    """Write the scores of a run, with their intervals, in the format of another tool.

    \b
      leadline export RUN --as every-eval-ever -o eee       Every Eval Ever, schema 0.3.0
      leadline export RUN --as hf-eval-results --dataset OWNER/NAME    .eval_results/ of a model's repository
      leadline export RUN --as inspect                      an .eval log for `inspect view`
      leadline export RUN --as lm-eval                      results and samples of lm-evaluation-harness

    Prompts are in it if the run was made with `--keep-prompts`; else the questions alone.
    """
    if dataset is not None and format != "hf-eval-results":
        raise UsageError(f"--dataset says nothing to {format}", where="--dataset", fix="leave it out")
    opened = load_run(run)
    if opened.table.whole.missing:
        warn(f"{opened.table.whole.missing:,} samples of this run are not asked yet; the export has the others")
    for path in _write(opened, format, out, model, dataset):
        echo(path)


def _write(run: Run, format: Format, out: Path, model: str | None, dataset: str | None) -> Iterable[Path]:
    if format == "inspect":
        return [write_inspect_log(run, out / f"{slug(run.name)}.eval")]
    return [_written(out / path, text) for path, text in _files(run, format, model, dataset)]


def _files(run: Run, format: Format, model: str | None, dataset: str | None) -> Iterator[tuple[Path, str]]:
    if format == "hf-eval-results":
        yield hf_results(run, _named(dataset))
        return
    named_model = model_id(run, model)
    if named_model.developer == UNKNOWN:
        warn(f"the run does not say who made {named_model.name}; name it with --model-id DEVELOPER/MODEL")
    if format == "lm-eval":
        yield from lm_eval_files(run, named_model)
    else:
        path, values = every_eval_ever(run, named_model)
        yield path, json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def _named(dataset: str | None) -> str:
    if dataset is None:
        raise UsageError(
            "a result on a model's page belongs to a data set",
            where="--as hf-eval-results",
            fix="name the benchmark's data set on the hub: --dataset OWNER/NAME",
        )
    return dataset


def _written(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make {path.parent.name}: {error.strerror}", where=str(path.parent)) from None
    replace_file(path, text.encode())
    return path
