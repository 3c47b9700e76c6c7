"""The folder of a run: that of a run which it continues, or a new one.

A command with more samples, lengths or depths than before goes on in the folder of the run that it made then, and only
what is missing is asked. One with fewer shows the run that has them already. Where the documents themselves would
change (more lengths of one nested document), it is a new run, and a note says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any

from leadline.core.errors import StoreError
from leadline.core.spec import Spec, make_spec
from leadline.run.identity import folder_name
from leadline.run.plan import RUNS, Plan
from leadline.store.manifest import MANIFEST, Manifest, extends, read_manifest
from leadline.store.runs import count_done

GRID = ("lengths", "depths", "samples")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder where a plan is carried out, and a note about it for the user."""

    path: Path
    note: str = ""
    spec: Spec | None = None
    """The spec of the run there, where that is complete and has more than the plan asks for."""


def find_run_folder(plan: Plan, suite: str = "") -> RunFolder:
    """The run of `runs/` that this plan resumes or extends, or that already has all its samples; else a new folder."""
    name = folder_name(plan.spec, suite)
    if plan.model.card.plan_only:  # not everything is known about it that a run has recorded
        return RunFolder(RUNS / name)
    runs = list(_runs_like(name))
    for folder, manifest in runs:
        if manifest.identity() == plan.manifest.identity():
            return RunFolder(folder)
    for folder, manifest in runs:
        if extends(manifest, plan.manifest):
            done, _ = count_done(folder)
            return RunFolder(folder, f"continues {folder}: {done:,} of {plan.planned:,} samples are there")
    for folder, manifest in runs:
        if extends(plan.manifest, manifest) and count_done(folder)[0] >= manifest.planned:
            grid = {key: manifest.spec[key] for key in GRID}
            whole = make_spec({**plan.spec.identity(), **grid}).model_copy(update=_aside(plan.spec))
            return RunFolder(folder, f"{folder} has all of this, and more", whole)
    for folder, manifest in runs:
        if manifest.spec == plan.manifest.spec:
            return RunFolder(folder)  # another version, tokenizer or text: refused later, with the differences
    return RunFolder(_unused(RUNS / name), _why_new(runs, plan.manifest))


def _runs_like(name: str) -> Iterator[tuple[Path, Manifest]]:
    """The runs of the same tasks and model: those whose folders differ in the digest alone."""
    stem = name.rpartition("-")[0]
    for path in sorted(RUNS.glob(f"{escape(stem)}-*/{MANIFEST}")):
        try:
            yield path.parent, read_manifest(path.parent)
        except StoreError:
            continue  # reported when that folder is opened


def _aside(spec: Spec) -> dict[str, Any]:
    """The fields that are not part of a spec's identity."""
    return {"limits": spec.limits, "judges": spec.judges, "log": spec.log}


def _unused(folder: Path) -> Path:
    """The folder, or the first of `folder-2`, `folder-3` ... where another run was extended in it."""
    number, path = 1, folder
    while (path / MANIFEST).exists():
        number += 1
        path = folder.with_name(f"{folder.name}-{number}")
    return path


def _why_new(runs: list[tuple[Path, Manifest]], planned: Manifest) -> str:
    """The reason why a run that differs in its grid alone is not continued; empty if there is no such run."""
    comparable = _without_grid(planned)
    near = [folder for folder, manifest in runs if _without_grid(manifest) == comparable]
    if not near:
        return ""
    if planned.spec.get("until"):
        why = "its stopping rule chose the samples for its own grid"
    elif (reading := planned.spec.get("reading", "fresh")) != "fresh":
        why = f"documents of {reading} reading change with the grid"
    else:
        why = "neither grid holds the other"
    return f"a new run, not a continuation of {near[-1]}: {why}"


def _without_grid(manifest: Manifest) -> dict[str, Any]:
    return {"spec": {k: v for k, v in manifest.spec.items() if k not in GRID}, "fingerprints": manifest.fingerprints}
