"""`leadline plan`: what a run would cost. The model is opened and its tokens are counted, but no prompt of the run is
sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from leadline.cli.detection import detection, parse_points, show_detection
from leadline.cli.many_models import IncludeModelOption, ModelsOption, ShardOption, listed_models, model_runs
from leadline.console.options import RunOptions, UntilOption, spec_of, suite_of, with_flags, with_rule
from leadline.console.output import echo, print_json, print_table, warn
from leadline.console.progress import ProgressListener
from leadline.core.errors import UsageError
from leadline.core.format import format_count, format_duration
from leadline.core.money import Rates, Tariff, check_budget, format_money
from leadline.core.spec import Spec
from leadline.run.after_run import check_steps
from leadline.run.continuing import RunFolder, find_run_folder
from leadline.run.estimate import Cost
from leadline.run.money import money, side_by_side
from leadline.run.plan import Plan, prepare
from leadline.run.repeats import repeats_cost
from leadline.store.manifest import MANIFEST, read_manifest, refuse_other_run
from leadline.store.prices import BATCH, tariff_from_flags, tariff_of
from leadline.store.runs import count_done

COLUMNS = ("requests", "prompt_tokens", "tokens_read", "output_tokens")


@with_flags
def plan(
    flags: RunOptions,
    tokens_per_second: Annotated[
        float | None,
        typer.Option(
            min=0.001, metavar="RATE", help="Tokens per second that the model processes, to estimate the time."
        ),
    ] = None,
    price_in: Annotated[
        float | None, typer.Option(min=0, metavar="PRICE", help="Price of a million prompt tokens.")
    ] = None,
    price_out: Annotated[
        float | None, typer.Option(min=0, metavar="PRICE", help="Price of a million output tokens.")
    ] = None,
    price_cached: Annotated[
        float | None,
        typer.Option(min=0, metavar="PRICE", help="The same for prompt tokens from the provider's cache."),
    ] = None,
    price_write: Annotated[
        float | None, typer.Option(min=0, metavar="PRICE", help="The same for prompt tokens written to that cache.")
    ] = None,
    judge_price_in: Annotated[
        float | None, typer.Option(min=0, metavar="PRICE", help="The same for prompt tokens of --judges.")
    ] = None,
    judge_price_out: Annotated[
        float | None, typer.Option(min=0, metavar="PRICE", help="The same for output tokens of --judges.")
    ] = None,
    detect: Annotated[
        str,
        typer.Option(
            metavar="POINTS",
            help="Show how many samples let `leadline compare`, and the gate of --gate, detect a drop such as 5pt.",
        ),
    ] = "",
    noise_from: Annotated[
        Path | None, typer.Option(metavar="RUN", help="For --detect: an earlier run to estimate the noise from.")
    ] = None,
    gate: Annotated[str, typer.Option(metavar="BOUNDS", help="For --detect: the gate that will be applied.")] = "",
    until: UntilOption = "",
    models: ModelsOption = None,
    include_model: IncludeModelOption = None,
    shard: ShardOption = "",
) -> None:
    """Show what a run would cost: requests, tokens, time and money. No prompt of the run is sent.

    Takes the options of `leadline run` that say what is asked. For a list of models it shows each and the total.
    A server is asked for its tokenizer, template and window; with `tokenizer=` in the model's name it may be away.
    The compactor of a `compaction` task is asked for its first sessions, at the cost of asking it in a run.
    """
    listed = listed_models(flags, models, shard, include_model)
    planned: list[tuple[str, Spec, Path | None]] = [("", spec_of(flags), None)] if not listed else []
    if listed:
        planned = [(run.name, run.spec, run.folder) for run in model_runs(flags, listed, until)[1]]
    plans = []
    for name, spec, folder in planned:
        with (
            ProgressListener() as listener,
            prepare(with_rule(spec, until), listen=listener, planning=True) as prepared,
        ):
            run_folder = RunFolder(out) if (out := folder or flags.out) else find_run_folder(prepared, suite_of(flags))
            values = _plan_values(prepared, name, run_folder)
            tariff = prepared.tariff or _flag_tariff(prepared.spec, price_in, price_out, price_cached, price_write)
            values["seconds"] = prepared.cost.seconds(tokens_per_second) if tokens_per_second else None
            values |= _money_values(prepared, tariff)
            values["judges"] = _judge_values(prepared, judge_price_in, judge_price_out)
            values["repeats"] = _repeat_values(prepared, values["money"])
            values["detection"] = detection(prepared, parse_points(detect), noise_from, gate) if detect else None
        plans.append(values)
        if not flags.json_:
            if len(plans) > 1:
                echo()
            _show(values, prepared.forecast)
    total = _total(plans)
    if flags.json_:
        print_json({"models": plans, "total": total} if listed else plans[0])
    elif listed:
        _show_total(plans, total)


def _plan_values(plan: Plan, name: str, run_folder: RunFolder) -> dict[str, Any]:
    done, failed, folder = 0, 0, run_folder.path
    if (folder / MANIFEST).exists():
        # Of a model that cannot be asked not everything is known.
        if run_folder.spec is None and not plan.model.card.plan_only:
            refuse_other_run(read_manifest(folder), plan.manifest, folder)
        done, failed = count_done(folder)
    return {
        "folder": str(folder),
        "name": name or plan.spec.model,
        "model": plan.spec.model,
        "reading": plan.spec.reading,
        "until": plan.spec.until,
        "window": plan.model.card.window,
        "tasks": {title: asdict(cost) for title, cost in plan.costs.items()},
        "total": asdict(plan.cost),
        "already_done": done,
        "failed_before": failed,
        "notes": [*plan.notes, *([run_folder.note] if run_folder.note else [])],
        "window_origin": plan.model.card.window_origin,
        "constants": plan.model.card.constants,
        "lengths": list(plan.spec.lengths),
    }


def _flag_tariff(
    spec: Spec, price_in: float | None, price_out: float | None, cached: float | None, write: float | None
) -> Tariff | None:
    if price_in is None and price_out is None:
        if (cached, write) != (None, None) or spec.limits.tier:
            where = "--tier" if spec.limits.tier else "--price-cached, --price-write"
            raise UsageError("this has no effect without prices", where=where, fix="add --price-in, or --prices FILE")
        return None
    return tariff_from_flags(
        spec.model, price_in or 0.0, price_out or 0.0, cached=cached, write=write,
        tier=spec.limits.tier or (BATCH if spec.limits.batch else ""),
    )  # fmt: skip


def _money_values(plan: Plan, tariff: Tariff | None) -> dict[str, Any]:
    """The cost of the run as planned, and in the other reading modes."""
    if tariff is None:
        check_budget(plan.spec.limits.budget, tariff)
        return {"money": None, "currency": "", "prices": "", "money_by_reading": {}, "budget": None}
    spec = plan.spec
    budget = check_budget(spec.limits.budget, tariff)
    return {
        "money": money(plan, tariff, spec.reading),
        "currency": tariff.currency,
        "prices": tariff.origin,
        "money_by_reading": side_by_side(plan, tariff),
        "budget": budget,
    }


def _repeat_values(plan: Plan, money: float | None) -> dict[str, Any] | None:
    """The approximate cost of asking questions twice; None if the plan asks none twice."""
    cost = repeats_cost(plan)
    if not cost.requests:
        return None
    share = cost.requests / max(plan.cost.requests, 1)
    return asdict(cost) | {"money": None if money is None else share * money}


def _judge_values(plan: Plan, price_in: float | None, price_out: float | None) -> dict[str, Any]:
    """The cost of every judge, apart from the tested model, at the prices of the file or of the flags."""
    limits, has_prices = plan.spec.limits, price_in is not None or price_out is not None

    def paid(name: str, cost: Cost) -> float | None:
        if has_prices:
            return Rates(price_in or 0.0, price_out or 0.0).cost(cost.prompt_tokens, cost.output_tokens, 0, 0)
        if not limits.prices:
            return None
        tariff = tariff_of(Path(limits.prices), name, limits.tier)
        return tariff.rates.cost(cost.prompt_tokens, cost.output_tokens, 0, 0)

    costs = [step.cost(plan) for step in check_steps(plan.spec, has_prices=has_prices)]
    return {name: asdict(cost) | {"money": paid(name, cost)} for by_model in costs for name, cost in by_model.items()}


def _total(planned: Sequence[dict[str, Any]]) -> dict[str, Any]:
    sums: dict[str, Any] = {column: sum(values["total"][column] for values in planned) for column in COLUMNS}
    for name in ("seconds", "money"):
        sums[name] = None if planned[0][name] is None else sum(values[name] for values in planned)
    return sums | {name: sum(values[name] for values in planned) for name in ("already_done", "failed_before")}


def _show(values: dict[str, Any], forecast: Sequence[str]) -> None:
    named = values["name"] != values["model"]
    echo(f"{values['name']} ({values['model']})" if named else values["model"], bold=True)
    costs = dict(values["tasks"])
    _show_costs("task", costs | ({"total": values["total"]} if len(costs) > 1 else {}), values["reading"])
    _show_time_and_money(values)
    for line in forecast:
        label, _, rest = line.partition(" ")
        echo(f"{label:<7} {rest}" if label in ("memory", "time") else f"        {line}")
    if (repeats := values["repeats"]) is not None:
        paid = "" if repeats["money"] is None else f", {format_money(repeats['money'], values['currency'])}"
        echo(
            f"again   about {format_count(repeats['requests'], 'question')} asked twice, to see how answers differ: "
            f"{repeats['prompt_tokens']:,} prompt tokens{paid} more"
        )
    if judges := values["judges"]:
        _show_judges(judges, values["currency"])
    if values["until"]:
        echo(f"until   {values['until']}: these are the maximum costs; the run stops when the result is certain")
    _show_done(values)
    if values["detection"] is not None:
        show_detection(values["detection"])
    echo(f"folder  {values['folder']}")
    for note in values["notes"]:
        if note not in forecast:
            warn(note)


def _show_judges(judges: dict[str, dict[str, Any]], currency: str) -> None:
    """At most: rules decide many answers without a judge."""
    rows = [
        (name, *(f"{cost[c]:,}" for c in ("requests", "prompt_tokens", "output_tokens")))
        for name, cost in judges.items()
    ]
    header = ("judge, at most", "requests", "prompt tokens", "max output tokens")
    print_table(rows, header, right=frozenset({1, 2, 3}))
    if (paid := sum(cost["money"] or 0.0 for cost in judges.values())) > 0:
        echo(f"\nmoney   {format_money(paid, currency)} for judges, apart from the money above")
    echo()


def _show_total(planned: Sequence[dict[str, Any]], total: dict[str, Any]) -> None:
    echo(f"\nall {len(planned)} models" if len(planned) > 1 else "\nall", bold=True)
    _show_costs("model", {v["name"]: v["total"] for v in planned} | {"total": total}, planned[0]["reading"])
    _show_time_and_money(total | {"currency": planned[0]["currency"]}, ", one model after another")
    _show_done(total)


def _show_done(values: dict[str, Any]) -> None:
    """What the folder has already; failed samples are asked again."""
    done, failed = values["already_done"], values["failed_before"]
    if done or failed:
        again = f", {format_count(failed, 'sample')} failed and will be asked again" if failed else ""
        echo(f"done    {done:,} samples are already answered{again}")


def _show_costs(first: str, costs: dict[str, dict[str, Any]], reading: str) -> None:
    rows = [(title, *(f"{cost[column]:,}" for column in COLUMNS)) for title, cost in costs.items()]
    header = (first, "requests", "prompt tokens", f"tokens read ({reading})", "max output tokens")
    print_table(rows, header, right=frozenset({1, 2, 3, 4}))


def _show_time_and_money(values: dict[str, Any], suffix: str = "") -> None:
    echo()
    if values["seconds"] is not None:
        echo(f"time    {format_duration(values['seconds'])}{suffix}")
    if (amount := values["money"]) is not None:
        currency = values.get("currency", "")
        echo(f"money   {format_money(amount, currency)}{'' if currency else ' in the currency of the prices'}")
        for line in _money_lines(values):
            echo(f"        {line}")


def _money_lines(values: dict[str, Any]) -> Iterator[str]:
    """The same grid in every reading mode, where the prices are from, and how far a budget goes."""
    currency = values.get("currency", "")
    by_reading: dict[str, float | None] = values.get("money_by_reading", {})
    shown = [f"{name} {format_money(amount, currency)}" for name, amount in by_reading.items() if amount is not None]
    if len(shown) > 1:
        yield f"this grid read {', '.join(shown)}"
    if values.get("prices"):
        yield values["prices"]
    whole = values["money"] + sum(cost["money"] or 0.0 for cost in values.get("judges", {}).values())
    whole += (values.get("repeats") or {}).get("money") or 0.0
    if (budget := values.get("budget")) is not None and budget < whole:
        share = f"about {budget / whole:.0%}" if budget >= 0.01 * whole else "less than 1%"
        limit = f"the budget of {format_money(budget, currency)}"
        yield (
            f"{limit} pays for {share} of the most it may ask" if values["until"] else f"{limit} ends it after {share}"
        )
