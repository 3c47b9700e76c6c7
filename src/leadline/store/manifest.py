"""The manifest of a run: spec, fingerprints, versions, machine and command lines, without secrets.

Two runs are the same run when their identities are equal.
"""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from leadline.core.errors import OtherRunError, StoreError
from leadline.core.files import decode_json, read_inside
from leadline.core.lengths import MAX_DEPTHS, MAX_LENGTH
from leadline.core.secrets import redact
from leadline.core.spec import MAX_SAMPLES

PACKAGES = (
    "leadline", "numpy", "scipy", "pydantic", "msgspec", "tokenizers", "tiktoken",
    "transformers", "torch", "safetensors", "accelerate", "ray",
)  # fmt: skip


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One process that wrote to a run. A resumed run has several."""

    started: str
    command: str
    leadline: str
    python: str
    platform: str
    cores: int
    packages: dict[str, str]
    ended: str = ""
    """When it had nothing left to ask; empty while it runs, and if it was stopped early."""


def session(argv: Sequence[str] | None = None) -> Session:
    """This process, now."""
    packages = installed(PACKAGES)
    return Session(
        started=now(),
        command=command_line(sys.argv if argv is None else argv),
        leadline=packages.pop("leadline", "?"),
        python=platform.python_version(),
        platform=platform.platform(),
        cores=os.cpu_count() or 1,
        packages=packages,
    )


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def installed(names: Sequence[str]) -> dict[str, str]:
    """Versions of those packages that are installed."""
    versions = {name: _version_of(name) for name in names}
    return {name: number for name, number in versions.items() if number is not None}


@cache
def _version_of(name: str) -> str | None:
    """Read once: a process keeps the packages it has imported."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def command_line(argv: Sequence[str]) -> str:
    """The command line, with the program's name instead of its path."""
    if not argv:
        return ""
    program, *words = argv
    return redact(shlex.join([os.path.basename(program), *words]))


MANIFEST = "manifest.json"
VERSION = 1


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a run that is not a record. `spec` is without limits, which cannot change a number."""

    version: int = VERSION
    name: str = ""
    """The name of the model in a list of models, if it has one; not part of the identity."""
    digest: str
    """Of the spec alone; names the folder."""
    spec: dict[str, Any]
    planned: int
    """How many cells the run asks for."""
    fingerprints: dict[str, str]
    """Everything beyond the spec that can change an answer: task versions and options, haystacks, tokenizer,
    template, decoding, revision. Compared one by one when a run is resumed."""
    model: dict[str, Any]
    """The model's card: name, window, notes."""
    frame: dict[str, Any] = {}
    """How the model wraps a turn, as the prompt was counted: form, prefill, system text, extra tokens."""
    tasks: dict[str, dict[str, Any]] = {}
    """By title: name, version, category, has_depth, options."""
    added_depths: tuple[float, ...] = ()
    """Depths that the run did not begin with, in the order in which they were added. Documents over a text of limited
    length depend on it."""
    created: str
    sessions: tuple[Session, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What the model's card says to every reader; none where a damaged file has something else."""
        notes = self.model.get("notes")
        return tuple(map(str, notes)) if isinstance(notes, list) else ()

    def identity(self) -> dict[str, Any]:
        return {"spec": self.spec, "fingerprints": self.fingerprints}

    def extended_from(self, there: Manifest) -> Manifest:
        """This manifest, for a folder that holds the run so far: when that began, and which depths are new."""
        known = there.spec.get("depths", ())
        added = (*there.added_depths, *(depth for depth in self.spec.get("depths", ()) if depth not in known))
        return msgspec.structs.replace(
            self, created=there.created, sessions=(*there.sessions, *self.sessions), added_depths=added
        )

    def compared(self) -> dict[str, Any]:
        """What is compared with another run: the identity, and how a turn was wrapped."""
        known = {name: value for name, value in self.frame.items() if name not in ("turns", "no_turns")}
        return self.identity() | {"frame": known}


def read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    if not os.path.lexists(path):
        raise StoreError(f"{folder} holds no run", where=str(path), fix=_where_runs_are(folder))
    try:
        data = read_inside(path)
    except OSError as problem:
        raise StoreError(f"cannot read the manifest: {problem.strerror}", where=str(path)) from None
    manifest = decode_json(data, Manifest, str(path), what=_DAMAGED, error=StoreError, fix=_DAMAGED_FIX)
    if manifest.version > VERSION:
        raise StoreError(
            f"this run was written by a newer Leadline (format {manifest.version}, known up to {VERSION})",
            where=str(path),
            fix="pip install --upgrade leadline",
        )
    _check_values(manifest, str(path))
    return manifest


_DAMAGED = "the manifest is damaged"
_DAMAGED_FIX = "restore the file from a copy; the records beside it are not affected"
_Length = Annotated[int, msgspec.Meta(ge=0, le=MAX_LENGTH)]
_Depth = Annotated[float, msgspec.Meta(ge=0, le=1)]


class _NamedTask(msgspec.Struct):
    """A task of a spec."""

    name: str
    options: dict[str, Any] = {}
    label: str = ""


class _SpecValues(msgspec.Struct):
    """What readers of a manifest need to find in its spec."""

    lengths: Annotated[list[_Length], msgspec.Meta(min_length=1, max_length=100_000)]
    depths: Annotated[list[_Depth], msgspec.Meta(max_length=MAX_DEPTHS)]
    samples: Annotated[int, msgspec.Meta(ge=1, le=MAX_SAMPLES)]
    model: str = ""
    reading: str = "fresh"
    until: str | None = ""
    tasks: list[_NamedTask] = []


class _TaskValues(msgspec.Struct):
    """And about a task."""

    kind: str = ""
    category: str = ""
    has_depth: bool = True
    options: dict[str, Any] = {}


class _FrameValues(msgspec.Struct):
    """How the model wraps a turn."""

    before: str = ""
    after: str = ""
    form: Literal["chat", "completion"] = "chat"
    prefill: bool = False
    fingerprint: str = ""
    system: str = ""
    extra_tokens: int = 0
    turns: dict[str, Any] | None = None
    no_turns: str = ""


def _check_values(manifest: Manifest, where: str) -> None:
    """Raises unless the values that readers rely on have their types: a reader never has to check them again."""
    try:
        msgspec.convert(manifest.spec, _SpecValues)
        msgspec.convert(manifest.frame, _FrameValues)
        for task in manifest.tasks.values():
            msgspec.convert(task, _TaskValues)
        if datetime.fromisoformat(manifest.created).year < 1970:
            raise ValueError(f"it was created {manifest.created}")
    except (msgspec.ValidationError, ValueError) as error:
        raise StoreError(f"{_DAMAGED}: {error}", where=where, fix=_DAMAGED_FIX) from None


def _where_runs_are(folder: Path) -> str:
    """For a folder of runs, as a list of models has: the runs in it."""
    inside = sorted(str(path.parent) for path in folder.glob(f"*/{MANIFEST}"))
    if not inside:
        return "give the folder that `leadline run` wrote"
    return f"it is a folder of runs; give {', '.join(inside[:3])}{' ...' if len(inside) > 3 else ''}"


def extends(there: Manifest, here: Manifest) -> bool:
    """Whether `here` asks everything that `there` asked, and more: samples, lengths or depths.

    A document depends on nothing but the coordinates of the cells it answers, so the records stay valid unless the
    document of such a cell would now answer others too: further depths in shared reading, lengths in nested reading, or
    samples that fill up the last document of a task that asks several of one (its option `per_document`).
    """
    old, new = dict(there.spec), dict(here.spec)
    samples = old.pop("samples", 0), new.pop("samples", 0)
    grown = {name: (old.pop(name, ()), new.pop(name, ())) for name in ("lengths", "depths")}
    if old != new or there.fingerprints != here.fingerprints or old.get("until") or samples[0] > samples[1]:
        return False
    more = {name for name in grown if sorted(grown[name][0]) != sorted(grown[name][1])}
    if not all(set(grown[name][0]) < set(grown[name][1]) for name in more):
        return False
    reading = new.get("reading", "fresh")
    if reading != "fresh" and samples[0] != samples[1]:
        sizes = [task.get("options", {}).get("per_document") or 1 for task in here.tasks.values()]
        if any(samples[0] % size for size in sizes):
            return False
    shares_depths = reading != "fresh" or any(task.get("kind") == "measure" for task in here.tasks.values())
    return not (("depths" in more and shares_depths) or ("lengths" in more and reading == "nested"))


def refuse_other_run(there: Manifest, here: Manifest, folder: Path) -> None:
    """Raises unless the run in the folder may be resumed or extended: its answers are those that `here` would get."""
    differences = list(differences_between(there.identity(), here.identity()))
    if not differences or extends(there, here):
        return
    shown = "; ".join(differences[:4])
    more = f"; and {len(differences) - 4} more" if len(differences) > 4 else ""
    fix = "choose another folder with --out, or move this one away"
    changed = {d.split(".")[1] for d in differences if d.startswith("fingerprints.")}
    if changed == {"scorer"}:
        own = " --trust" if any(".code " in d for d in differences) else ""  # a scorer in a file of the user's
        fix = f"grade the saved answers again with `leadline rescore {folder}{own}`, or choose another --out"
    raise OtherRunError(f"the folder holds a run with another identity: {shown}{more}", where=str(folder), fix=fix)


def differences_between(there: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    """`spec.samples is 3 there and 5 here`, for every leaf that differs."""
    old, new = dict(_leaves(there)), dict(_leaves(here))
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new or old[name] != new[name]:
            there_is, here_is = (_short(values[name]) if name in values else "absent" for values in (old, new))
            yield f"{name} is {there_is} there and {here_is} here"


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)) and any(isinstance(v, Mapping) for v in value):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{number}]")
    else:
        yield path, list(value) if isinstance(value, tuple) else value


def _short(value: Any, characters: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= characters else text[: characters - 4] + " ..."
