"""`leadline submit`: many models by one metric on the same documents, as one file to correlate with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from leadline.cli.many_models import Models, Shard, carry_out_all, entrants_of, listed_models
from leadline.cli.options import Flags, with_flags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.core.spec import Spec
    from leadline.store.submissions import Submission, SubmissionEntry

SUBMISSION = "submission.json"


@with_flags
def submit(flags: Flags, models: Models = None, shard: Shard = "") -> None:
    """Score a list of models. Each keeps its records; the same command again measures only what is missing.

    Models are measured one after another; with --ray side by side, one on each GPU of this machine or of a cluster.
    With --shard machines that share a folder take a part each, and the last has all.
    """
    from leadline.core.errors import UsageError
    from leadline.run.many_models import submission_entries

    listed = listed_models(flags, models, shard)
    if not listed and not shard:
        raise UsageError("no list of models given", where="submit", fix="add --models FILE, or `models` to the spec")
    folder, entrants = entrants_of(flags, listed, "submit")
    entries = submission_entries(carry_out_all(entrants))
    whole = _write(entries, entrants[0].spec, folder, shard)
    _show(whole, folder / SUBMISSION, as_json=flags.json_)
    _fail_if_some_failed(whole)


def _write(entries: Sequence[SubmissionEntry], spec: Spec, folder: Path, shard: str) -> Submission:
    """This shard's file, and the submission of all shards whose files are there."""
    from leadline import __version__
    from leadline.stats.logprobs import metric_of
    from leadline.store.manifest import now
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
    from leadline.cli.output import print_json, print_table

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


def _words(entry: SubmissionEntry, metric: str) -> tuple[str, str, str, str]:
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
