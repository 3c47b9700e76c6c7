"""Public data that tasks can use, fetched once by `leadline sources pull` and read offline ever after.

Each file has a table of places it can be had from. Where its SHA-256 is known it is pinned; where it is not, the hash
of the first download is written to a lock file and every later download must match it. A download that was broken off
goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from leadline.core.cache import cache_folder
from leadline.core.errors import ServerError, SourceError, UnknownName

CHUNK_BYTES = 1 << 18
TIMEOUT_SECONDS = 60.0
LOCK = "lock.json"


@dataclass(frozen=True, slots=True)
class Place:
    """An address, and the SHA-256 of what lies there, or nothing when nobody vouches for one."""

    url: str
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Download:
    name: str
    file: str
    summary: str
    licence: str
    places: tuple[Place, ...]


_SQUAD = "https://rajpurkar.github.io/SQuAD-explorer/dataset/"
_HOTPOT = "http://curtis.ml.cmu.edu/datasets/hotpot/"
_MIRROR = "https://huggingface.co/datasets/"

# Hashes as several independent projects publish them for these addresses. The second mirror of HotpotQA holds the same
# questions written by another JSON writer, hence another hash. Nobody publishes one for GovReport's archive.
DOWNLOADS: Mapping[str, Download] = {
    download.name: download
    for download in (
        Download(
            "squad", "squad_dev_v2.json", "SQuAD 2.0, development set, for qa_1", "CC BY-SA 4.0",
            (Place(f"{_SQUAD}dev-v2.0.json", "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8"),),
        ),
        Download(
            "squad_train", "squad_train_v2.json", "SQuAD 2.0, training set", "CC BY-SA 4.0",
            (Place(f"{_SQUAD}train-v2.0.json", "68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002"),),
        ),
        Download(
            "hotpotqa", "hotpot_dev_distractor_v1.json", "HotpotQA, distractor development set, for qa_2",
            "CC BY-SA 4.0",
            (
                Place(
                    f"{_HOTPOT}hotpot_dev_distractor_v1.json",
                    "4e9ecb5c8d3b719f624d66b60f8d56bf227f03914f5f0753d6fa1b359d7104ea",
                ),
                Place(
                    f"{_MIRROR}RAGLAB/data/resolve/c33b09b7fa5099b89830e84f9bdff78329268d9b/eval_datasets/HotPotQA/"
                    "hotpot_dev_distractor_v1.json",
                    "4e9ecb5c8d3b719f624d66b60f8d56bf227f03914f5f0753d6fa1b359d7104ea",
                ),
                Place(
                    f"{_MIRROR}namlh2004/hotpotqa/resolve/7e54db4656209750ff487f6fdf8e39a66dba136b/"
                    "hotpot_dev_distractor_v1.json",
                    "e3da074df24e8369009918aa5cdbdd254dadcde4c63f7569d36afd6f2268caa8",
                ),
            ),
        ),
        Download(
            "hotpotqa_train", "hotpot_train_v1.1.json", "HotpotQA, training set", "CC BY-SA 4.0",
            (
                Place(
                    f"{_HOTPOT}hotpot_train_v1.1.json",
                    "26650cf50234ef5fb2e664ed70bbecdfd87815e6bffc257e068efea5cf7cd316",
                ),
            ),
        ),
        Download(
            "govreport", "gov_report.zip", "GovReport as SCROLLS packs it (316 MB), for documents=govreport",
            "works of the US government",
            (
                Place("https://scrolls-tau.s3.us-east-2.amazonaws.com/gov_report.zip"),
                Place(f"{_MIRROR}tau/scrolls/resolve/main/gov_report.zip"),
            ),
        ),
    )
}  # fmt: skip


def data_folder() -> Path:
    return cache_folder() / "data"


def find_data(name: str) -> Path:
    """The file that a name of the table or a path means. Touches no network."""
    if name in DOWNLOADS:
        path = data_folder() / DOWNLOADS[name].file
        if path.is_file():
            return path
        raise SourceError(
            f"the data {name!r} is not on this machine",
            where=str(path),
            fix=f"run `leadline sources pull {name}`, or give a file of your own: --set data=FILE",
        )
    path = Path(name).expanduser()
    if path.is_file():
        return path.resolve()
    raise SourceError(
        f"there is no data file {name!r}",
        where="data",
        fix=f"give a file, or one of {', '.join(DOWNLOADS)} (see `leadline sources pull`)",
    )


# --- pulling ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pulled:
    """A file that is here and was checked: against a pinned hash, the lock file, or (trusted) nothing yet."""

    name: str
    path: Path
    sha256: str
    size_bytes: int
    url: str
    checked: Literal["pinned", "locked", "trusted on first use"]
    fetched: bool


Progress = Callable[[int, int | None], None]
"""Called with the bytes so far and, where the server says, the bytes in all."""


def pull(name: str, *, progress: Progress = lambda done, total: None, again: bool = False) -> Pulled:
    """Fetches a file of the table, unless it is here already."""
    if name not in DOWNLOADS:
        raise UnknownName("data", name, DOWNLOADS, where="sources pull")
    return fetch(DOWNLOADS[name], data_folder(), progress=progress, again=again)


def fetch(download: Download, folder: Path, *, progress: Progress, again: bool = False) -> Pulled:
    """The file in `folder`, from the first place that answers with the right bytes."""
    target = folder / download.file
    lock = _Lock(folder / LOCK)
    if target.is_file() and not again:
        known = lock.read(download.name)
        return _checked(download, target, known.get("url", ""), known.get("sha256", ""), lock, fetched=False)
    folder.mkdir(parents=True, exist_ok=True)
    problems = []
    for place in download.places:
        part = folder / f"{download.file}.part"
        try:
            _download(place.url, part, progress)
        except urllib.error.HTTPError as error:
            error.close()
            problems.append(f"{place.url}: {error}")
            continue
        except (OSError, EOFError) as error:
            problems.append(f"{place.url}: {getattr(error, 'reason', None) or error}")
            continue
        pulled = _checked(download, part, place.url, lock.read(download.name).get("sha256", ""), lock, fetched=True)
        os.replace(part, target)
        _note(part).unlink(missing_ok=True)
        return replace(pulled, path=target)
    raise ServerError(
        f"{download.name} could not be fetched: {'; '.join(problems)}",
        where=str(folder),
        fix=f"try again later: what came so far is kept. Or put the file at {target} yourself",
    )


def _checked(download: Download, file: Path, url: str, expected: str, lock: _Lock, *, fetched: bool) -> Pulled:
    """The hash of a file against what it must be. A file that is wrong is not kept."""
    found = sha256_of(file)
    pinned = {place.sha256 for place in download.places if place.sha256}
    if found in pinned:
        checked: Literal["pinned", "locked", "trusted on first use"] = "pinned"
    elif expected and found == expected and not pinned:
        checked = "locked"
    elif pinned or expected:
        if fetched:
            file.unlink()
            _note(file).unlink(missing_ok=True)
        raise SourceError(
            f"{download.name} is not the file it should be: its SHA-256 is {found}",
            where=url or str(file),
            fix=f"expected {' or '.join(sorted(pinned) or [expected])}. "
            + ("Try again" if fetched else f"Remove {file} and pull again"),
        )
    else:
        checked = "trusted on first use"
    lock.write(download.name, {"file": download.file, "sha256": found, "url": url})
    return Pulled(download.name, file, found, file.stat().st_size, url, checked, fetched)


def _download(url: str, part: Path, progress: Progress) -> None:
    """Into `part`, going on after what is there already if the server's file is still the same one."""
    note = _read_note(part)
    begun = part.stat().st_size if part.is_file() and note.get("url") == url and note.get("validator") else 0
    headers = {"User-Agent": "leadline", "Accept-Encoding": "identity"}
    if begun:
        headers |= {"Range": f"bytes={begun}-", "If-Range": note["validator"]}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS) as reply:
        if reply.status != 206:  # the whole file, from its beginning
            begun = 0
        length = reply.headers.get("Content-Length")
        total = begun + int(length) if length else None
        validator = reply.headers.get("ETag") or reply.headers.get("Last-Modified") or ""
        _note(part).write_text(json.dumps({"url": url, "validator": "" if validator.startswith("W/") else validator}))
        with part.open("ab" if begun else "wb") as file:
            while chunk := reply.read(CHUNK_BYTES):
                file.write(chunk)
                begun += len(chunk)
                progress(begun, total)
    if total is not None and begun < total:
        raise EOFError(f"the connection ended after {begun:,} of {total:,} bytes")


def sha256_of(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _note(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _read_note(part: Path) -> dict[str, str]:
    try:
        note = json.loads(_note(part).read_text())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


@dataclass(frozen=True, slots=True)
class _Lock:
    """What was fetched, from where, and its hash: one JSON file beside the data."""

    path: Path

    def _everything(self) -> dict[str, Any]:
        try:
            known = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def read(self, name: str) -> dict[str, str]:
        known = self._everything().get(name)
        return known if isinstance(known, dict) else {}

    def write(self, name: str, entry: dict[str, str]) -> None:
        known = self._everything() | {name: self.read(name) | {k: v for k, v in entry.items() if v}}
        draft = self.path.with_suffix(".new")
        draft.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
        os.replace(draft, self.path)
