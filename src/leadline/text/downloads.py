"""Public data files for tasks: fetched once by `leadline sources pull`, checked, and read offline afterwards.

downloads.toml lists the files, each with one or more mirrors. Where the SHA-256 of a file is known it is pinned;
otherwise the hash of the first download is kept in lock.json and later downloads must match it. An interrupted download
is resumed.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Literal

import msgspec

from leadline.core.errors import LockedError, ServerError, SourceError, UnknownName
from leadline.core.files import cache_folder, exclusive, expand_path, warn_damaged

CHUNK_BYTES = 1 << 18
TIMEOUT_SECONDS = 60.0
LOCK = "lock.json"


@dataclass(frozen=True, slots=True)
class Mirror:
    """A URL and the SHA-256 of its file; empty where no hash is published."""

    url: str
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Download:
    name: str
    file: str
    summary: str
    licence: str
    mirrors: tuple[Mirror, ...]
    size_bytes: int | None = None
    """None where no size is published."""

    @property
    def pinned(self) -> set[str]:
        return {mirror.sha256 for mirror in self.mirrors} - {""}


def _listed() -> Iterator[Download]:
    """The files of downloads.toml. Of a data set with parts, one for each."""
    for name, entry in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items():
        parts = entry.get("parts", [""])
        for part in parts:
            names = {"part": part, "about": parts[part] if isinstance(parts, dict) else ""}
            file, summary = entry["file"].format(**names), entry["summary"].format(**names)
            pinned = entry.get("hashes", {}).get(part, "")
            mirrors = tuple(Mirror(m["url"].format(**names), m.get("sha256", pinned)) for m in entry["mirrors"])
            title = f"{name}/{part}" if part else name
            yield Download(title, file, summary, entry["licence"], mirrors, entry.get("size_bytes"))


DOWNLOADS = {download.name: download for download in _listed()}


def data_folder() -> Path:
    return cache_folder() / "data"


def group_of(name: str) -> list[str]:
    """The names of all files that belong to a data set of several: `infinitebench` has twelve."""
    return [file for file in DOWNLOADS if file.startswith(f"{name}/")]


def find_data(name: str, *, option: str = "data", folders: bool = False) -> Path:
    """The local file of a name in DOWNLOADS, or of a path; with `folders` also a folder. Uses no network. `option` is
    what the user sets to another file."""
    group = group_of(name)
    known = group or [name] if group or name in DOWNLOADS else []
    path = data_folder() / (name if group else DOWNLOADS[name].file) if known else expand_path(name)
    if os.path.isfile(path) or (folders and os.path.isdir(path)):
        for member in known:
            _refuse_damaged(DOWNLOADS[member])
        return path if known else path.resolve()
    if known:
        raise SourceError(
            f"the data {name!r} is not on this machine",
            where=str(path),
            fix=f"run `leadline sources pull {name}`, or give a file of your own: --set {option}=FILE",
        )
    raise SourceError(
        f"there is no data file {name!r}",
        where=option,
        fix=f"give a file, or one of {', '.join(n for n in DOWNLOADS if '/' not in n)} (see `leadline sources pull`)",
    )


def _refuse_damaged(download: Download) -> None:
    """Raises if a fetched file has changed since."""
    file, sha256 = data_folder() / download.file, _locked(data_folder(), download.name).get("sha256")
    if not sha256 or not file.is_file():
        return
    if _known_sha256(file, file.stat().st_size, file.stat().st_mtime_ns) != sha256:
        raise SourceError(
            f"the data {download.name!r} is damaged: it is not what was downloaded",
            where=str(file),
            fix=f"run `leadline sources pull {download.name}`, which fetches it again",
        )


HashCheck = Literal["pinned", "locked", "trusted on first use"]


@dataclass(frozen=True, slots=True)
class Pulled:
    """A local file whose hash was checked: against a pinned hash, against lock.json, or for the first time."""

    name: str
    path: Path
    sha256: str
    size_bytes: int
    url: str
    checked: HashCheck
    fetched: bool


DownloadProgress = Callable[[int, int | None], None]
"""Called with the bytes so far and the total, None where the server does not state it."""


def pull(
    name: str, *, progress: DownloadProgress = lambda done, total: None, again: bool = False, source: str = ""
) -> Pulled:
    """Fetch a file of DOWNLOADS, unless it is here already. `source` is a folder or a URL with the same file names."""
    if name not in DOWNLOADS:
        raise UnknownName("data", name, [*DOWNLOADS, *{n.partition("/")[0] for n in DOWNLOADS if "/" in n}])
    download = DOWNLOADS[name]
    if source:
        base = source if "://" in source else expand_path(source).resolve().as_uri()
        mirrors = [replace(m, url=f"{base.rstrip('/')}/{m.url.rpartition('/')[2]}") for m in download.mirrors]
        download = replace(download, mirrors=tuple(mirrors))
    return fetch(download, data_folder(), progress=progress, again=again)


def fetch(download: Download, folder: Path, *, progress: DownloadProgress, again: bool = False) -> Pulled:
    """The file in `folder`, fetched unless it is there with the expected hash. Its hash is kept in lock.json."""
    target, locked = folder / download.file, _locked(folder, download.name)
    checked: HashCheck = "pinned" if download.pinned else "locked" if locked.get("sha256") else "trusted on first use"
    expected = download.pinned or set(filter(None, [locked.get("sha256")]))
    url, sha256 = locked.get("url", ""), sha256_of(target) if target.is_file() and not again else ""
    if sha256 and expected and sha256 not in expected:
        warn_damaged(target, "its SHA-256 is not the one expected")
        sha256 = ""
    fetched = not sha256
    if fetched:
        url, sha256 = _fetch_into(target, download, expected, progress)
    entry = {"file": download.file, "sha256": sha256, "url": url}
    with exclusive(folder):  # another process may be adding an entry of its own
        _write_entries(folder / LOCK, _read_entries(folder / LOCK) | {download.name: entry})
    return Pulled(download.name, target, sha256, target.stat().st_size, url, checked, fetched)


def _fetch_into(target: Path, download: Download, expected: set[str], progress: DownloadProgress) -> tuple[str, str]:
    """Downloads and checks the file; returns the URL it is from and its hash."""
    part = target.with_name(f"{target.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    part.touch()
    with exclusive(part, wait=False) as alone:
        if not alone:
            raise LockedError(
                f"another process is downloading {download.name}",
                where=str(part),
                fix="wait for it, then run the same command again",
            )
        url = _download_first(download, part, progress)
        sha256 = sha256_of(part)
        if expected and sha256 not in expected:
            part.unlink()
            raise SourceError(
                f"{download.name} has an unexpected SHA-256: {sha256}",
                where=url,
                fix=f"expected {' or '.join(sorted(expected))}: try again, or get it from elsewhere with --from",
            )
        os.replace(part, target)
    return url, sha256


def _download_first(download: Download, part: Path, progress: DownloadProgress) -> str:
    """The URL of the first mirror that has the file, which is then in `part`."""
    problems = []
    for url in dict.fromkeys(mirror.url for mirror in download.mirrors):
        try:
            _download(url, part, progress)
        except (OSError, EOFError, HTTPException) as error:
            problems.append(f"{url}: {error}")
            if isinstance(error, urllib.error.HTTPError):
                error.close()
                if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    part.unlink(missing_ok=True)  # nothing is left to resume: the next try begins anew
        else:
            return url
    raise ServerError(
        f"{download.name} could not be fetched: {'; '.join(problems)}",
        where=str(part.parent),
        fix="try again later: a partial download is kept and resumed. "
        f"Or put the file at {part.with_suffix('')} yourself",
    )


def _download(url: str, part: Path, progress: DownloadProgress) -> None:
    """Into `part`, after the bytes that are there already if the server still has the same file (by its ETag)."""
    state = part.with_name(f"{part.name}.json")
    validator = _read_entries(state).get(url, {}).get("validator", "")
    done = part.stat().st_size if validator and part.is_file() else 0
    headers = {"User-Agent": "leadline", "Accept-Encoding": "identity"}
    if done:
        headers |= {"Range": f"bytes={done}-", "If-Range": validator}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS) as reply:
        if reply.status != 206:  # the whole file
            done = 0
        length = reply.headers.get("Content-Length")
        total = done + int(length) if length else None
        validator = reply.headers.get("ETag") or reply.headers.get("Last-Modified") or ""
        _write_entries(state, {url: {"validator": "" if validator.startswith("W/") else validator}})
        with part.open("ab" if done else "wb") as file:
            while chunk := reply.read(CHUNK_BYTES):
                file.write(chunk)
                done += len(chunk)
                progress(done, total)
    if total is not None and done < total:
        raise EOFError(f"the connection ended after {done:,} of {total:,} bytes")
    state.unlink()


def sha256_of(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


@lru_cache(maxsize=64)
def _known_sha256(file: Path, size: int, mtime_ns: int) -> str:
    """Once for a file that does not change."""
    return sha256_of(file)


def _locked(folder: Path, name: str) -> dict[str, str]:
    """The entry of a download in lock.json; empty if there is none."""
    return _read_entries(folder / LOCK).get(name, {})


def _read_entries(path: Path) -> dict[str, dict[str, str]]:
    """Empty if the file is absent or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, str]])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _write_entries(path: Path, entries: dict[str, dict[str, str]]) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(entries, indent=2, sort_keys=True) + "\n")
    os.replace(draft, path)
