"""`leadline plan`: what a run would cost. Nothing is sent to the model beyond opening it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leadline.cli.flags import Flags, spec_of, with_flags
from leadline.cli.matrix import Models, entrants_of, listed_models
from leadline.cli.power import detection

if TYPE_CHECKING:
    from leadline.core.spec import Spec
    from leadline.run.plan import Plan


@with_flags
def plan(
    flags: Flags,
    tokens_per_second: Annotated[
        float | None, typer.Option(min=0.001, help="The speed the model reads at, to say how long it takes.")
    ] = None,
    price_in: Annotated[float | None, typer.Option(min=0, help="Price of a million prompt tokens.")] = None,
    price_out: Annotated[float | None, typer.Option(min=0, help="Price of a million output tokens.")] = None,
    detect: Annotated[
        str, typer.Option(metavar="POINTS", help="5pt: say how many samples would see a drop of five points.")
    ] = "",
    like: Annotated[
        Path | None, typer.Option(metavar="RUN", help="For --detect: an earlier run to take the noise from.")
    ] = None,
    models: Models = None,
) -> None:
    """Say what a run would cost: requests, tokens, time and money; of a list of models, each. Sends nothing."""
    from leadline.cli.screen import print_json
    from leadline.run.plan import prepare

    listed = listed_models(flags, models)
    places: list[tuple[Spec, Path | None]] = (
        [(e.spec, e.folder) for e in entrants_of(flags, listed, "models")[1]] if listed else []
    )
    found = []
    for spec, place in places or [(spec_of(flags), flags.out)]:
        with prepare(spec) as made:
            words = _words(made, place or made.folder, tokens_per_second, price_in, price_out)
            words["detection"] = detection(detect, like, made.planned, made.spec.samples) if detect else None
        found.append(words)
        if not flags.json_:
            _show(words)
    if flags.json_:
        print_json(found if listed else found[0])


def _words(
    made: Plan, folder: Path, tokens_per_second: float | None, price_in: float | None, price_out: float | None
) -> dict[str, Any]:
    from dataclasses import asdict

    done, failed = _already(made, folder)
    total = made.cost
    priced = price_in is not None or price_out is not None
    return {
        "folder": str(folder),
        "model": made.spec.model,
        "reading": made.spec.reading,
        "window": made.model.card.window,
        "tasks": {title: asdict(cost) for title, cost in made.costs.items()},
        "total": asdict(total),
        "already_done": done,
        "failed_before": failed,
        "seconds": total.seconds(tokens_per_second) if tokens_per_second else None,
        "money": total.money(price_in or 0.0, price_out or 0.0) if priced else None,
        "notes": list(made.notes),
    }


def _already(made: Plan, folder: Path) -> tuple[int, int]:
    """What a run in this folder has; another run there is an error now rather than later."""
    from leadline.store.manifest import MANIFEST, read_manifest, refuse_other_run
    from leadline.store.runs import count_done

    if not (folder / MANIFEST).exists():
        return 0, 0
    refuse_other_run(read_manifest(folder), made.manifest, folder)
    return count_done(folder)


def _show(words: dict[str, Any]) -> None:
    from leadline.cli.screen import print_table, seconds_words, warn

    typer.secho(words["model"], bold=True)
    columns = ("requests", "prompt_tokens", "tokens_read", "output_tokens")
    rows = [(title, *(f"{cost[c]:,}" for c in columns)) for title, cost in words["tasks"].items()]
    if len(rows) > 1:
        rows.append(("all", *(f"{words['total'][c]:,}" for c in columns)))
    header = ("task", "requests", "prompt tokens", f"read ({words['reading']})", "output tokens, at most")
    print_table(rows, header, right=frozenset({1, 2, 3, 4}))
    typer.echo()
    if words["seconds"] is not None:
        typer.echo(f"time    {seconds_words(words['seconds'])}")
    if words["money"] is not None:
        typer.echo(f"money   {words['money']:,.2f}")
    if words["already_done"] or words["failed_before"]:
        typer.echo(f"there   {words['already_done']:,} samples have an answer already")
    if words["detection"] is not None:
        _show_detection(words["detection"])
    typer.echo(f"folder  {words['folder']}")
    for note in words["notes"]:
        warn(note)


def _show_detection(found: dict[str, Any]) -> None:
    sees = found["this_run_sees"]
    able = "no drop for certain" if sees is None else f"a drop of {100 * sees:.1f} points"
    typer.echo(f"detect  {found['sentence']}")
    typer.echo(f"        that is {found['samples_a_cell']:,} samples a cell; this plan would see {able}")
