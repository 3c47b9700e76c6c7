"""`leadline judge`: grade recorded answers and correct the judges' bias. `leadline agreement`: compare raters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from leadline.console.model_names import resolve_model
from leadline.console.output import (
    BudgetOption,
    PricesOption,
    TierOption,
    echo,
    price_file,
    print_json,
    print_table,
    say,
    show_money,
    warn,
)
from leadline.console.progress import ProgressListener, SanitisingConsole
from leadline.console.serving import ServeOption, serving
from leadline.core.errors import MissingExtra, UsageError
from leadline.core.files import read_text, table_rows
from leadline.core.spec import Limits
from leadline.features.judges.admission import MIN_ACCURACY
from leadline.features.judges.after_run import failed_verdicts
from leadline.features.judges.agreement import Rating
from leadline.features.judges.agreement import agreement as agreement_of
from leadline.features.judges.asking import judge_run
from leadline.features.judges.correction import RaterQuality, rater_quality
from leadline.features.judges.report import judged_section, judged_values
from leadline.features.judges.results import read_judged
from leadline.features.judges.rubric import load_rubric
from leadline.features.judges.samples import JudgeResult, write_label_draw
from leadline.features.judges.verdicts import LABELS, VERDICTS
from leadline.report.terminal import show_section
from leadline.results.run import format_judge_money
from leadline.store.manifest import read_manifest
from leadline.store.prices import RunPrices

WITH_HELP = (
    "A judge: any model string, as for `run --model`. Repeatable; judges of several families are best. A judge of the "
    "tested model's own family is refused."
)


def judge(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run.")],
    with_: Annotated[list[str] | None, typer.Option("--with", metavar="MODEL", help=WITH_HELP)] = None,
    serve: ServeOption = "",
    rubric: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="answer, key_points, scale, or a TOML file of your own.")
    ] = "answer",
    label: Annotated[int | None, typer.Option(min=5, metavar="N", help="Draw N answers to label by hand.")] = None,
    page: Annotated[
        bool, typer.Option("--page", help="Label the drawn answers on a local web page. Needs leadline[view].")
    ] = False,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Labels to correct with. [default: RUN/labels.csv]")
    ] = None,
    own_family: Annotated[
        bool, typer.Option("--own-family", help="Allow a judge of the tested model's family; the report says so.")
    ] = False,
    min_accuracy: Annotated[
        float,
        typer.Option(min=0, max=1, help="Minimum accuracy on known cases, right and wrong ones."),
    ] = MIN_ACCURACY,
    workers: Annotated[int, typer.Option(min=1, max=1024, help="Concurrent requests to a server.")] = 16,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Seconds until a request times out.")
    ] = 600,
    prices: PricesOption = None,
    tier: TierOption = None,
    budget: BudgetOption = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="With --page: the port; 0 is any free port.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Grade the recorded answers of a run with judges; the tested model is not asked again.

    A judge sees the question, the targets, the evidence and the answer, never the document. It first grades twenty
    known cases. Rules decide what needs no judge. Run the same command again to continue: no verdict is asked twice.

    Judges are biased and share their biases. Label a few answers yourself and every judged mean is corrected:

    \b
      leadline judge RUN --with openai:A --with openai:B    grade
      leadline judge RUN --label 40 --page                  label forty answers, blind
      leadline judge RUN                                    show the corrected means
    """
    result, file = JudgeResult(), price_file(prices, tier)
    if budget and not (with_ or serve):
        raise UsageError("a budget has no effect without judges", where="--budget", fix="add --with MODEL")
    if with_ or serve:
        limits = Limits(workers=workers, timeout=timeout, prices=prices or "", tier=tier or "", budget=budget or "")
        with serving(serve, (with_ or [""])[0], run) as served, ProgressListener() as listener:
            result = judge_run(
                run,
                [resolve_model(name, say) for name in with_ or [served]],
                rubric=rubric,
                own_family=own_family,
                min_accuracy=min_accuracy,
                limits=limits,
                listen=listener,
            )
    if label is not None or page:
        _label(run, rubric, label, page=page, port=port)
    read_manifest(run)  # raises if the folder is not a run
    judged = read_judged(run, labels) if (run / VERDICTS).exists() else []
    if not judged:
        raise UsageError("no judge has graded this run yet", where=str(run), fix="add --with MODEL")
    money = RunPrices(run, file, tier or "")
    paid = money.judge_money()
    if json:
        results_as_json = [judged_values(results) for results in judged]
        values = {"folder": str(run), "judged": results_as_json, "failed": result.failed, "notes": result.notes}
        print_json(values | ({"judge_money": paid} if paid else {}))
    else:
        show_section(judged_section(judged), SanitisingConsole())
        echo()
        show_money("", format_judge_money(paid, money))
        echo(f"verdicts  {run / VERDICTS}")
        if labels or (run / LABELS).exists():
            echo(f"labels    {labels or run / LABELS}")
    if (failed := failed_verdicts(result.failed, run)) is not None:
        raise failed


# --- labels


def _label(folder: Path, rubric: str, count: int | None, *, page: bool, port: int) -> None:
    """Writes the drawn samples to labels.csv and keeps the labels there. Then serves the page, if asked for."""
    path, loaded = folder / LABELS, load_rubric(rubric)
    judged = next((results for results in read_judged(folder) if results.rubric == loaded.title), None)
    if judged is not None and judged.answers and not judged.sent:
        warn(f"rules decided all {judged.answers:,} answers: there is nothing for a judge to label")
        return
    if count is not None:
        written = write_label_draw(folder, loaded, count)
        say(f"{written:,} answers to label in {path}: fill the column `label` with yes, no or partial")
    elif not path.exists():
        raise UsageError("no answers were drawn yet", where="--page", fix="add --label 40")
    if page:
        try:
            from leadline.features.judges.labelling import LabelServer  # needs starlette and uvicorn
        except ModuleNotFoundError as error:
            raise MissingExtra(str(error.name).partition(".")[0], "view", where="leadline judge --page") from None
        server = LabelServer(folder, port)
        echo(server.address)
        say("Label with the keys y, n and p. Press Ctrl-C when you are done; labels are saved as you go.")
        with suppress(KeyboardInterrupt):
            server.run()


# --- leadline agreement

RATINGS_FIX = "one row per item, one column per rater"
NOT_RATERS = frozenset({"id", "item", "sample", "key", "question", "answer", "text", "comment"})


def agreement(
    file: Annotated[Path, typer.Argument(metavar="FILE.csv", help="One row per item, one column per rater.")],
    raters: Annotated[
        str, typer.Option(metavar="A,B", help="The raters' columns. [default: all but id, question, answer ...]")
    ] = "",
    truth: Annotated[
        str, typer.Option(metavar="COLUMN", help="A column with the truth, such as labels by people; may have gaps.")
    ] = "",
    clusters: Annotated[str, typer.Option(metavar="COLUMN", help="A column that names the document of an item.")] = "",
    level: Annotated[
        Literal["nominal", "ordinal", "interval"], typer.Option(help="How far labels are apart, for alpha.")
    ] = "nominal",
    json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Compare raters: raw agreement, kappa, Krippendorff's alpha and Gwet's AC1 with intervals.

    With --truth, each rater beside the truth: agreement, kappa, mean and bias. Where the truth has gaps, the mean of
    each rater is corrected with the part that is known.
    """
    rows = _read_csv(file)
    columns = [c.strip() for c in raters.split(",") if c.strip()] or [
        c for c in rows[0] if c.casefold() not in NOT_RATERS and c not in (truth, clusters)
    ]
    for column in [*columns, *filter(None, (truth, clusters))]:
        if column not in rows[0]:
            raise UsageError(f"there is no column {column!r}", where=str(file), fix=f"it has: {', '.join(rows[0])}")
    if len(columns) < (1 if truth else 2):
        raise UsageError("agreement needs two raters", where=str(file), fix="one column per rater, or --truth COLUMN")
    ratings = _as_labels([[row[c] for c in (*columns, *([truth] if truth else []))] for row in rows])
    groups = [row[clusters] if clusters else str(n) for n, row in enumerate(rows)]
    judged = [row[: len(columns)] for row in ratings]
    among = agreement_of(judged, clusters=groups, level=level) if len(columns) > 1 else None
    beside = (
        {c: rater_quality([r[n] for r in ratings], [r[-1] for r in ratings], groups) for n, c in enumerate(columns)}
        if truth
        else {}
    )
    if json:
        print_json(_agreement_json(among, beside, columns))
        return
    if among is not None:
        _show_among(among, columns)
    if beside:
        _show_beside(beside)


def _read_csv(file: Path) -> list[dict[str, str]]:
    lines = list(table_rows(read_text(file, error=UsageError, fix=RATINGS_FIX), str(file)))
    if len(lines) < 2:
        raise UsageError("the file has no rows", where=str(file), fix=RATINGS_FIX)
    header = [name.strip() for name in lines[0][1]]
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"the column {twice!r} occurs twice", where=f"{file}:1", fix="give every rater a name")
    for number, row in lines[1:]:
        if len(row) > len(header):
            what = f"a row of {len(row)} cells under {len(header)} columns"
            raise UsageError(what, where=f"{file}:{number}", fix=RATINGS_FIX)
    return [dict(zip_longest(header, row, fillvalue="")) for _, row in lines[1:]]


def _as_labels(rows: Sequence[Sequence[str]]) -> list[list[Rating | None]]:
    """Numbers if all labels are; else words without regard to case and spaces. An empty cell, or nan, is no rating."""
    words = [["" if (word := cell.strip().casefold()) == "nan" else word for cell in row] for row in rows]
    try:
        numbers = [[float(cell) if cell else None for cell in row] for row in words]
    except ValueError:
        return [[cell or None for cell in row] for row in words]
    finite = all(math.isfinite(number) for row in numbers for number in row if number is not None)
    return [list(row) for row in numbers] if finite else [[cell or None for cell in row] for row in words]


def _show_among(result: Any, columns: Sequence[str]) -> None:
    measures = {
        "same label": result.raw, "Cohen's kappa": result.cohen, "quadratic kappa": result.quadratic,
        "Fleiss' kappa": result.fleiss, f"Krippendorff's alpha ({result.level})": result.krippendorff,
        "Gwet's AC1": result.gwet,
    }  # fmt: skip
    echo(f"{result.raters} raters, {result.items:,} items", bold=True)
    rows = [
        (name, f"{c.value:.3f}", f"{c.interval.low:.3f} to {c.interval.high:.3f}") for name, c in measures.items() if c
    ]
    print_table(rows, ("agreement", "value", "95% interval"), right=frozenset({1, 2}))
    echo()
    shares = [(str(label), *(f"{100 * share:.1f}%" for share in of)) for label, of in result.shares.items()]
    print_table(shares, ("label", *columns), right=frozenset(range(1, len(columns) + 1)))
    if result.nearly_one_label:
        echo("nearly all labels are alike: kappa and alpha are near zero, or not defined, whatever raters do; read AC1")


def _show_beside(beside: dict[str, RaterQuality]) -> None:
    echo("\nbeside the truth", bold=True)
    rows = []
    for name, quality in beside.items():
        with_truth, corrected = quality.agreement, quality.corrected
        rows.append(
            (
                name,
                f"{with_truth.items:,}",
                f"{with_truth.raw.value:.3f}",
                f"{with_truth.cohen.value:.3f}" if with_truth.cohen else "-",
                f"{with_truth.quadratic.value:.3f}" if with_truth.quadratic else "-",
                _mean(quality.naive.mean, quality.naive.interval) if quality.naive else "-",
                f"{100 * quality.bias:+.1f}" if quality.bias is not None else "-",
                _mean(corrected.mean, corrected.interval) if corrected else "-",
            )
        )
    header = ("rater", "items", "agrees", "kappa", "quadratic", "mean", "bias", "corrected mean")
    print_table(rows, header, right=frozenset(range(1, 8)))


def _mean(mean: float, interval: Any) -> str:
    return f"{100 * mean:.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def _agreement_json(among: Any, beside: dict[str, RaterQuality], columns: Sequence[str]) -> dict[str, Any]:
    def values(result: Any) -> dict[str, Any]:
        names = ("raw", "cohen", "quadratic", "fleiss", "krippendorff", "gwet")
        measures = {name: getattr(result, name) for name in names}
        return {"items": result.items} | {
            name: {"value": c.value, "low": c.interval.low, "high": c.interval.high} if c else None
            for name, c in measures.items()
        }

    def mean(estimate: Any) -> dict[str, float] | None:
        if estimate is None:
            return None
        return {"mean": estimate.mean, "low": estimate.interval.low, "high": estimate.interval.high}

    return {
        "raters": list(columns),
        "level": among.level if among else None,
        "agreement": values(among) if among else None,
        "shares": {str(label): list(shares) for label, shares in among.shares.items()} if among else None,
        "rater_quality": {
            name: values(quality.agreement)
            | {
                "naive": mean(quality.naive),
                "truth": quality.truth,
                "bias": quality.bias,
                "corrected": mean(quality.corrected),
            }
            for name, quality in beside.items()
        },
    }
