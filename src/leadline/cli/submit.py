"""`leadline submit`: many models by one metric on the same documents, as one file to correlate with."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leadline.cli.flags import Flags, spec_of, with_flags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.core.spec import Spec
    from leadline.store.submissions import Entry, Listed, Submission

SUBMISSION = "submission.json"


@with_flags
def submit(
    flags: Flags,
    models: Annotated[Path, typer.Option(help="A TOML or JSON file with a list of models.", show_default=False)],
    shard: Annotated[
        str, typer.Option(help="2/4 measures every fourth model from the second on; the last shard has all.")
    ] = "",
) -> None:
    """Score a list of models. Each keeps its records; the same command again measures only what is missing."""
    from leadline.core.errors import UsageError
    from leadline.store.submissions import read_models

    if flags.model is not None:
        raise UsageError("--model is for one model", where="submit", fix="put models into the file given by --models")
    listed = read_models(models)
    number, count = parse_shard(shard)
    mine = listed[number - 1 :: count]
    specs = {one.name: spec_of(replace(flags, model=one.model)) for one in mine}
    folder = flags.out or Path("runs") / folder_name(specs[mine[0].name])
    entries = [_measured(one, specs[one.name], folder) for one in mine]
    whole = _write(entries, specs[mine[0].name], folder, shard)
    _show(whole, folder / SUBMISSION, as_json=flags.json_)
    _fail_if_some_failed(whole)


def parse_shard(text: str) -> tuple[int, int]:
    """`2/4` is the second of four."""
    from leadline.core.errors import UsageError

    if not text:
        return 1, 1
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"{text!r} is no shard", where="--shard", fix="write 1/4 for the first of four")
    return int(match[1]), int(match[2])


def folder_name(spec: Spec) -> str:
    """The same for the same question, whatever the models."""
    from leadline.core.digest import digest
    from leadline.store.runs import slug

    asked = {k: v for k, v in spec.identity().items() if k != "model"}
    return f"submit-{slug(spec.tasks[0].title)}-{digest(asked, 8)}"


def _measured(listed: Listed, spec: Spec, folder: Path) -> Entry:
    """One model's entry. Whatever is wrong with it is written down, and the next model has its turn."""
    from leadline.cli.run import carry_out
    from leadline.cli.screen import say, show_error, warn
    from leadline.core.errors import Interrupted, LeadlineError
    from leadline.run.submission import entry_of, is_whole
    from leadline.store.runs import slug
    from leadline.store.submissions import Entry

    place = folder / slug(listed.name)
    say(f"model: {listed.name}")
    try:
        if is_whole(place, spec):
            say("measured already")
        else:
            carry_out(spec, place)
        return entry_of(listed, place)
    except Interrupted:
        raise
    except LeadlineError as error:
        show_error(error)
        return Entry(name=listed.name, model=listed.model, score=None, error=error.what, run=place.name)
    except Exception as error:  # a stranger's checkpoint may fail in any way, and the others should not suffer for it
        warn(f"{listed.name}: {type(error).__name__}: {error}")
        return Entry(name=listed.name, model=listed.model, score=None, error=f"{type(error).__name__}: {error}")


def _write(entries: Sequence[Entry], spec: Spec, folder: Path, shard: str) -> Submission:
    """This shard's file, and the submission of all shards whose files are there."""
    from leadline import __version__
    from leadline.stats.soundings import metric_of
    from leadline.store.provenance import now
    from leadline.store.submissions import Submission, merged, read_submission, write_submission

    metric = next((name for entry in entries for name in entry.scores), spec.tasks[0].title)
    asked = {k: v for k, v in spec.identity().items() if k != "model"}
    made = Submission(
        metric=metric, better=metric_of(metric).better, spec=asked, created=now(), leadline=__version__,
        entries=tuple(entries),
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    if shard:
        write_submission(made, folder / f"submission-{shard.replace('/', '-of-')}.json")
        made = merged([read_submission(path) for path in sorted(folder.glob("submission-*-of-*.json"))])
    write_submission(made, folder / SUBMISSION)
    return made


def _show(made: Submission, path: Path, *, as_json: bool) -> None:
    from leadline.cli.screen import print_json, print_table

    if as_json:
        print_json(made)
        return
    sign = -1 if made.better == "higher" else 1
    ranked = sorted(made.entries, key=lambda e: (e.score is None, sign * (e.score or 0.0)))
    rows = [(str(n), *_words(entry, made.metric)) for n, entry in enumerate(ranked, 1)]
    print_table(rows, ("rank", "model", made.metric, "95% interval", "documents"), right=frozenset({0, 2, 4}))
    typer.echo()
    typer.echo(f"{made.better} is better")
    typer.echo(path)


def _words(entry: Entry, metric: str) -> tuple[str, str, str, str]:
    if entry.score is None or metric not in entry.scores:
        return entry.name, "failed", entry.error, ""
    found = entry.scores[metric]
    spread = f"{found.low:.4f} to {found.high:.4f}" if found.low is not None and found.high is not None else ""
    return entry.name, f"{entry.score:.4f}", spread, str(found.documents)


def _fail_if_some_failed(made: Submission) -> None:
    from leadline.core.errors import FailedSamples

    failed = [entry for entry in made.entries if entry.score is None]
    if failed:
        raise FailedSamples(
            f"{len(failed)} of {len(made.entries)} models have no score: "
            + "; ".join(f"{entry.name} ({entry.error})" for entry in failed[:3]),
            where="submit",
            fix="run the same command again: only these are measured",
        )
