"""Many models in one command: the list they come from, their runs, and how they compare in the end."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leadline.cli.options import Flags, spec_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.core.errors import LeadlineError
    from leadline.core.spec import Listed, Spec
    from leadline.run.many_models import ModelRun, ModelRunResult

MODELS_HELP = "A TOML or JSON file with a list `models`, each measured in a run of its own; a spec may hold it too."
Models = Annotated[Path | None, typer.Option(help=MODELS_HELP, show_default=False)]
Shard = Annotated[str, typer.Option(help="2/4 measures every fourth model from the second on.", metavar="N/COUNT")]


def listed_models(flags: Flags, file: Path | None, shard: str = "") -> list[Listed]:
    """The models of --models, else those of the spec file; none where the command is about one model."""
    from leadline.core.errors import UsageError
    from leadline.core.spec import load_spec, parse_models, read_models

    number, count = parse_shard(shard)
    if flags.model is not None:
        if file is not None:
            raise UsageError("--model is for one model, --models for many", where="--models", fix="leave one out")
        return []
    if file is not None:
        return read_models(file)[number - 1 :: count]
    values = load_spec(Path(flags.what)) if flags.what and flags.what.endswith(".toml") else {}
    if "models" not in values:
        return []
    if "model" in values:
        raise UsageError("a spec has a model or a list of models", where=str(flags.what), fix="leave one out")
    return parse_models(values["models"], where=str(flags.what))[number - 1 :: count]


def parse_shard(text: str) -> tuple[int, int]:
    """`2/4` is the second of four."""
    from leadline.core.errors import UsageError

    if not text:
        return 1, 1
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"{text!r} is no shard", where="--shard", fix="write 1/4 for the first of four")
    return int(match[1]), int(match[2])


def entrants_of(flags: Flags, listed: Sequence[Listed], kind: str) -> tuple[Path, list[ModelRun]]:
    """The folder of all and the run of each, named by `kind` and the question: the same whatever the models."""
    from leadline.core.errors import UsageError
    from leadline.run.many_models import ModelRun
    from leadline.store.runs import plain_place, slug

    specs = [spec_of(replace(flags, model=one.model)) for one in listed]
    if not specs:
        raise UsageError("this shard has no models", where="--shard", fix="use no more shards than models")
    folder = flags.out or plain_place(Path("runs") / _folder_name(specs[0], kind))
    places = [plain_place(folder / slug(one.name)) for one in listed]
    return folder, [ModelRun(one.name, spec, at) for one, spec, at in zip(listed, specs, places, strict=True)]


def _folder_name(spec: Spec, kind: str) -> str:
    from leadline.core.digest import digest
    from leadline.store.runs import slug

    asked = {k: v for k, v in spec.identity().items() if k != "model"}
    return f"{kind}-{slug(spec.tasks[0].title)}-{digest(asked, 8)}"


def carry_out_all(entrants: Sequence[ModelRun], *, keep_prompts: bool = False) -> list[ModelRunResult]:
    """All runs, with their progress on the screen."""
    from leadline.cli.progress import ManyModelsWatcher
    from leadline.run.many_models import is_complete, measure_all

    missing = sum(not is_complete(e) for e in entrants)
    with ManyModelsWatcher(missing) as watcher:
        return measure_all(entrants, listen=watcher.hear, keep_prompts=keep_prompts)


def finish_all(outcomes: Sequence[ModelRunResult], folder: Path, *, as_json: bool, page: bool) -> None:
    """Models side by side, and a page of all of them; then fails if any of them did."""
    from leadline.cli.output import print_json

    measured = [o for o in outcomes if o.run is not None]
    runs = [o.run for o in outcomes if o.run is not None]
    written = None
    if page and runs:
        from leadline.report.page import write_page

        written = write_page(runs, folder / "report.html")
    if as_json:
        print_json({"folder": folder, "page": written, "models": [_as_json(o) for o in outcomes]})
    elif runs:
        from rich.console import Console

        from leadline.report.terminal import show_side_by_side

        show_side_by_side(runs, [o.entrant.name for o in measured], Console())
        typer.echo()
        typer.echo(f"records   {folder}")
        if written is not None:
            typer.echo(f"page      {written}")
        asked = [run.folder for run in runs if run.table.tasks]
        if len(asked) > 1:
            typer.echo(f"pairs     leadline compare {asked[0]} {asked[1]}")
    error = failed_models(outcomes, folder)
    if error is not None:
        raise error


def failed_models(outcomes: Sequence[ModelRunResult], folder: Path) -> LeadlineError | None:
    """What makes the command fail: models without a run, or samples without an answer."""
    from leadline.core.errors import FailedSamples

    lost = [o for o in outcomes if o.error is not None]
    short = [o for o in outcomes if o.run is not None and o.run.totals.failed]
    if not lost and not short:
        return None
    reasons = [f"{o.entrant.name} ({o.error.what})" for o in lost if o.error]
    count = len(lost) + len(short)
    reasons += [f"{o.entrant.name} ({o.run.totals.failed:,} samples without an answer)" for o in short if o.run]
    return FailedSamples(
        f"{count} of {len(outcomes)} models {'is' if count == 1 else 'are'} not measured whole: "
        + "; ".join(reasons[:3]),
        where=str(folder),
        fix="run the same command again: only what is missing is asked",
    )


def _as_json(outcome: ModelRunResult) -> dict[str, Any]:
    from leadline.results.summary import totals_values

    entrant = outcome.entrant
    found = {"name": entrant.name, "model": entrant.spec.model, "folder": str(entrant.folder)}
    error = outcome.error.what if outcome.error is not None else ""
    return {**found, "error": error, **(totals_values(outcome.run) if outcome.run is not None else {})}
