"""`leadline plan`: what a run would cost. Nothing is sent to the model beyond opening it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leadline.cli.many_models import Models, Shard, entrants_of, listed_models
from leadline.cli.options import UNTIL_HELP, Flags, spec_of, with_flags, with_rule
from leadline.cli.run import refuse_rule
from leadline.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.core.spec import Spec
    from leadline.run.plan import Cost, Plan


# --- What a run could see: the samples that a drop of so many points needs, for `leadline plan --detect`.


def detection(drop: str, like: Path | None, prompts: int, samples: int) -> dict[str, Any]:
    """How many prompts, and how many samples a cell of this grid, would see such a drop at 80 % power."""
    from leadline.stats.power import DEFAULT_DISCORDANCE, detectable_drop, paired_sample_size

    discordance, design_effect = DEFAULT_DISCORDANCE, 1.0
    if like is not None:
        from leadline.stats.observations import observations
        from leadline.stats.power import seen_variance
        from leadline.store.manifest import read_manifest
        from leadline.store.runs import read_records

        read_manifest(like)  # says so if this is no run
        seen = seen_variance(observations(read_records(like)))
        discordance, design_effect = seen.discordance, seen.design_effect
    needed = paired_sample_size(parse_points(drop), discordance, design_effect=design_effect)
    smallest = detectable_drop(prompts, discordance, design_effect=design_effect)
    return {
        "sentence": str(needed),
        "prompts": needed.prompts,
        "samples_a_cell": math.ceil(needed.prompts / (prompts / samples)),
        "this_run_sees": smallest,
        "from": str(like) if like else f"no earlier run: {100 * DEFAULT_DISCORDANCE:g} % of answers taken to flip",
    }


def parse_points(text: str) -> float:
    """`5pt`, `5 points`, `5` or `0.05`: five points out of a hundred."""
    found = re.fullmatch(r"\s*(\d*\.?\d+)\s*(pts?|points?)?\s*", text)
    value = float(found[1]) if found else 0.0
    points = value / 100 if found and (found[2] or value >= 1) else value
    if not 0 < points <= 1:
        raise UsageError(f"{text!r} is not a drop in points", where="--detect", fix="write 5pt for five of a hundred")
    return points


# --- `leadline plan`: what a run would cost. Nothing is sent to the model beyond opening it.

Free = Annotated[list[str] | None, typer.Option(hidden=True)]
"""A word of `leadline run` that costs nothing: taken, so that a run's own line can be planned."""

COLUMNS = ("requests", "prompt_tokens", "tokens_read", "output_tokens")


@with_flags
def plan(
    flags: Flags,
    tokens_per_second: Annotated[
        float | None, typer.Option(min=0.001, help="The speed the model reads at, to say how long it takes.")
    ] = None,
    price_in: Annotated[
        float | None, typer.Option(min=0, help="Price of a million prompt tokens, in any currency.")
    ] = None,
    price_out: Annotated[
        float | None, typer.Option(min=0, help="Price of a million output tokens, in the same.")
    ] = None,
    detect: Annotated[
        str, typer.Option(metavar="POINTS", help="5pt: say how many samples would see a drop of five points.")
    ] = "",
    like: Annotated[
        Path | None, typer.Option(metavar="RUN", help="For --detect: an earlier run to take the noise from.")
    ] = None,
    until: Annotated[str, typer.Option(help=UNTIL_HELP)] = "",
    models: Models = None,
    shard: Shard = "",
    base: Free = None,
    gate: Free = None,
    log_to: Free = None,
    step: Free = None,
    run_name: Free = None,
    keep_prompts: Annotated[bool, typer.Option("--keep-prompts", hidden=True)] = False,
    figure: Annotated[bool, typer.Option(hidden=True)] = True,
) -> None:
    """Say what a run would cost: requests, tokens, time and money; of a list of models, each and all. Sends nothing.

    Takes the words of `leadline run`: put `plan` in the place of `run`.
    """
    from leadline.cli.output import print_json
    from leadline.run.plan import prepare

    listed = listed_models(flags, models, shard)
    asked: list[tuple[str, Spec, Path | None]] = (
        [(e.name, e.spec, e.folder) for e in entrants_of(flags, listed, "models")[1]] if listed else []
    )
    for _, spec, _ in asked:
        refuse_rule(until or spec.until)
    rates = Rates(tokens_per_second, price_in, price_out)
    found = []
    for name, spec, place in asked or [("", spec_of(flags), flags.out)]:
        with prepare(with_rule(spec, until)) as made:
            words = _words(made, name, place or made.folder, rates)
            words["detection"] = detection(detect, like, made.planned, made.spec.samples) if detect else None
        found.append(words)
        if not flags.json_:
            _show(words, first=len(found) == 1)
    total = _total(found)
    if flags.json_:
        print_json({"models": found, "total": total} if listed else found[0])
    elif listed:
        _show_total(found, total)


@dataclass(frozen=True, slots=True)
class Rates:
    """What people say of a model's speed and price. None: they do not."""

    tokens_per_second: float | None
    price_in: float | None
    price_out: float | None

    def of(self, cost: Cost) -> dict[str, float | None]:
        priced = self.price_in is not None or self.price_out is not None
        return {
            "seconds": cost.seconds(self.tokens_per_second) if self.tokens_per_second else None,
            "money": cost.money(self.price_in or 0.0, self.price_out or 0.0) if priced else None,
        }


def _words(made: Plan, name: str, folder: Path, rates: Rates) -> dict[str, Any]:
    from dataclasses import asdict

    done, failed = _already(made, folder)
    total = made.cost
    return {
        "folder": str(folder),
        "name": name or made.spec.model,
        "model": made.spec.model,
        "reading": made.spec.reading,
        "until": made.spec.until,
        "window": made.model.card.window,
        "tasks": {title: asdict(cost) for title, cost in made.costs.items()},
        "total": asdict(total),
        "already_done": done,
        "failed_before": failed,
        **rates.of(total),
        "notes": list(made.notes),
    }


def _total(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Over all models, one after another."""
    sums: dict[str, Any] = {c: sum(words["total"][c] for words in found) for c in COLUMNS}
    for name in ("seconds", "money"):
        sums[name] = None if found[0][name] is None else sum(words[name] for words in found)
    return sums | {name: sum(words[name] for words in found) for name in ("already_done", "failed_before")}


def _already(made: Plan, folder: Path) -> tuple[int, int]:
    """What a run in this folder has; another run there is an error now rather than later."""
    from leadline.store.manifest import MANIFEST, read_manifest, refuse_other_run
    from leadline.store.runs import count_done

    if not (folder / MANIFEST).exists():
        return 0, 0
    refuse_other_run(read_manifest(folder), made.manifest, folder)
    return count_done(folder)


def _show(words: dict[str, Any], *, first: bool) -> None:
    from leadline.cli.output import print_table, warn

    if not first:
        typer.echo()

    named = words["name"] != words["model"]
    typer.secho(f"{words['name']} ({words['model']})" if named else words["model"], bold=True)
    rows = [_row(title, cost) for title, cost in words["tasks"].items()]
    if len(rows) > 1:
        rows.append(_row("all", words["total"]))
    print_table(rows, _header("task", words), right=frozenset({1, 2, 3, 4}))
    _show_time_and_money(words)
    if words["until"]:
        typer.echo(f"until   {words['until']}: this is the most it may cost; it stops when the answer is known")
    if words["already_done"] or words["failed_before"]:
        typer.echo(f"there   {words['already_done']:,} samples have an answer already")
    if words["detection"] is not None:
        _show_detection(words["detection"])
    typer.echo(f"folder  {words['folder']}")
    for note in words["notes"]:
        warn(note)


def _show_total(found: Sequence[dict[str, Any]], total: dict[str, Any]) -> None:
    from leadline.cli.output import print_table

    typer.secho(f"\nall {len(found)} models", bold=True)
    rows = [*(_row(words["name"], words["total"]) for words in found), _row("all", total)]
    print_table(rows, _header("model", found[0]), right=frozenset({1, 2, 3, 4}))
    _show_time_and_money(total, ", one after another")
    if total["already_done"]:
        typer.echo(f"there   {total['already_done']:,} samples have an answer already")


def _row(title: str, cost: dict[str, Any]) -> tuple[str, ...]:
    return (title, *(f"{cost[c]:,}" for c in COLUMNS))


def _header(first: str, words: dict[str, Any]) -> tuple[str, ...]:
    return (first, "requests", "prompt tokens", f"read ({words['reading']})", "output tokens, at most")


def _show_time_and_money(words: dict[str, Any], how: str = "") -> None:
    from leadline.core.format import format_duration

    typer.echo()
    if words["seconds"] is not None:
        typer.echo(f"time    {format_duration(words['seconds'])}{how}")
    if words["money"] is not None:
        money = words["money"]
        shown = f"{money:,.2f}" if money >= 0.01 or not money else f"{money:.2g}"  # little is not nothing
        typer.echo(f"money   {shown} in the currency of the prices")


def _show_detection(found: dict[str, Any]) -> None:
    sees = found["this_run_sees"]
    able = "no drop for certain" if sees is None else f"a drop of {100 * sees:.1f} points"
    typer.echo(f"detect  {found['sentence']}")
    typer.echo(f"        that is {found['samples_a_cell']:,} samples a cell; this plan would see {able}")
