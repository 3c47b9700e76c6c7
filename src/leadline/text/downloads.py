"""Public data files for tasks: fetched once by `leadline sources pull`, checked, and read offline afterwards.

Every file has one or more mirrors. Where the SHA-256 of a file is known it is pinned; otherwise the hash of the first
download is kept in lock.json and later downloads must match it. An interrupted download is resumed.
"""

from __future__ import annotations

import hashlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from leadline.core.errors import ServerError, SourceError, UnknownName
from leadline.core.files import cache_folder, say_damaged

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


_SQUAD = "https://rajpurkar.github.io/SQuAD-explorer/dataset/"
_HOTPOT = "http://curtis.ml.cmu.edu/datasets/hotpot/"
_MIRROR = "https://huggingface.co/datasets/"

_GRAPHWALKS_REVISION = "f338bb265735a56a79f4b0f5def722c9c3268ead"
_MRCR_REVISION = "f4c69fae7cf81f7ca26b9fee34b392a50f6b8a1d"
"""After the repair of 2025-12-05: before it, one row in twenty had a wrong answer."""
_INFINITEBENCH_HASHES = {"longbook_qa_eng": "7f53a3aabd5445fa29f168914f13569c348406cfc88a3e495f3f2c13a0966ca4"}

# Hashes as several independent projects publish them for these URLs. The last mirror of HotpotQA has the same questions
# written by another JSON writer, hence another hash. No hash is published for GovReport's archive and most
# files of InfiniteBench. Files without one are fixed by the first download.
DOWNLOADS: dict[str, Download] = {
    download.name: download
    for download in (
        Download(
            "squad", "squad_dev_v2.json", "SQuAD 2.0, development set, for qa_1", "CC BY-SA 4.0",
            (Mirror(f"{_SQUAD}dev-v2.0.json", "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8"),),
        ),
        Download(
            "squad_train", "squad_train_v2.json", "SQuAD 2.0, training set", "CC BY-SA 4.0",
            (Mirror(f"{_SQUAD}train-v2.0.json", "68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002"),),
        ),
        Download(
            "hotpotqa", "hotpot_dev_distractor_v1.json", "HotpotQA, distractor development set, for qa_2",
            "CC BY-SA 4.0",
            (
                Mirror(
                    f"{_HOTPOT}hotpot_dev_distractor_v1.json",
                    "4e9ecb5c8d3b719f624d66b60f8d56bf227f03914f5f0753d6fa1b359d7104ea",
                ),
                Mirror(
                    f"{_MIRROR}RAGLAB/data/resolve/c33b09b7fa5099b89830e84f9bdff78329268d9b/eval_datasets/HotPotQA/"
                    "hotpot_dev_distractor_v1.json",
                    "4e9ecb5c8d3b719f624d66b60f8d56bf227f03914f5f0753d6fa1b359d7104ea",
                ),
                Mirror(
                    f"{_MIRROR}namlh2004/hotpotqa/resolve/7e54db4656209750ff487f6fdf8e39a66dba136b/"
                    "hotpot_dev_distractor_v1.json",
                    "e3da074df24e8369009918aa5cdbdd254dadcde4c63f7569d36afd6f2268caa8",
                ),
            ),
        ),
        Download(
            "hotpotqa_train", "hotpot_train_v1.1.json", "HotpotQA, training set", "CC BY-SA 4.0",
            (
                Mirror(
                    f"{_HOTPOT}hotpot_train_v1.1.json",
                    "26650cf50234ef5fb2e664ed70bbecdfd87815e6bffc257e068efea5cf7cd316",
                ),
            ),
        ),
        Download(
            "govreport", "gov_report.zip", "GovReport as SCROLLS packs it (316 MB), for documents=govreport",
            "works of the US government",
            (
                Mirror("https://scrolls-tau.s3.us-east-2.amazonaws.com/gov_report.zip"),
                Mirror(f"{_MIRROR}tau/scrolls/resolve/main/gov_report.zip"),
            ),
        ),
        Download(
            "longbench", "longbench.zip", "LongBench and LongBench-E, all data sets, for longbench",
            "none stated; each source has its own (docs/longbench.md), SAMSum is non-commercial",
            (
                Mirror(
                    f"{_MIRROR}zai-org/LongBench/resolve/5e628be450b7e67fb7ae6e201bd6d8f7056f7672/data.zip",
                    "cb45b11a4133c6bc1d6a44b0f8e701335ff1e543195db1103472e575857f7f64",
                ),
            ),
            113_932_529,
        ),
        Download(
            "longbench-v2", "longbench_v2.json", "LongBench v2, 503 questions (465 MB), for longbench_v2", "Apache-2.0",
            (
                Mirror(
                    f"{_MIRROR}zai-org/LongBench-v2/resolve/2b48e494f2c7a2f0af81aae178e05c7e1dde0fe9/data.json",
                    "15d61c22d92c96900b3c4948b6aeea218d3214b676a65df48e7b8555604c7fe2",
                ),
            ),
        ),
        *(
            Download(
                f"graphwalks/{name}", f"graphwalks/{name}.parquet", f"GraphWalks {about}, for graphwalks_dataset",
                "MIT", (Mirror(f"{_MIRROR}openai/graphwalks/resolve/{_GRAPHWALKS_REVISION}/{name}.parquet", sha256),),
            )
            for name, about, sha256 in (
                (
                    "graphwalks_128k_and_shorter", "to 128k",
                    "54036036c91d8e04bb2a5fcd9e36f8e2a852cacece5dfc2b1ee40e3a6182b516",
                ),
                ("graphwalks_256k_to_1mil", "256k to 1M (300 MB)", ""),
            )
        ),
        *(
            Download(
                f"mrcr/{needles}needle_{part}", f"mrcr/{needles}needle_{part}.parquet",
                f"OpenAI MRCR, {needles} needles, part {part + 1} of 2, for mrcr_dataset", "MIT",
                (Mirror(f"{_MIRROR}openai/mrcr/resolve/{_MRCR_REVISION}/{needles}needle/{needles}needle_{part}.parquet"),),
            )
            for needles in (2, 4, 8)
            for part in (0, 1)
        ),
        *(
            Download(
                f"infinitebench/{name}", f"infinitebench/{name}.jsonl", f"InfiniteBench, {name}",
                "Apache-2.0 in the card's first versions",
                (
                    Mirror(
                        f"{_MIRROR}xinrongzhang2022/InfiniteBench/resolve/90f0394333616266d9fe85824ceaf505093cbaa5/"
                        f"{name}.jsonl",
                        _INFINITEBENCH_HASHES.get(name, ""),
                    ),
                ),
            )
            for name in (
                "passkey", "number_string", "kv_retrieval", "longbook_sum_eng", "longbook_qa_eng",
                "longbook_choice_eng", "longdialogue_qa_eng", "longbook_qa_chn", "code_debug", "code_run", "math_calc",
                "math_find",
            )
        ),
    )
}  # fmt: skip


def data_folder() -> Path:
    return cache_folder() / "data"


def group_of(name: str) -> list[str]:
    """The names of all files that belong to a data set of several: `infinitebench` has twelve."""
    return [one for one in DOWNLOADS if one.startswith(f"{name}/")]


def find_data(name: str, *, folders: bool = False) -> Path:
    """The local file of a name in DOWNLOADS, or of a path; with `folders` also a folder. Uses no network."""
    group = group_of(name)
    known = name in DOWNLOADS or bool(group)
    path = data_folder() / (name if group else DOWNLOADS[name].file) if known else Path(name).expanduser()
    if path.is_file() or (folders and path.is_dir()):
        for one in [name] if name in DOWNLOADS else group:
            _refuse_damaged(DOWNLOADS[one])
        return path if known else path.resolve()
    if known:
        raise SourceError(
            f"the data {name!r} is not on this machine",
            where=str(path),
            fix=f"run `leadline sources pull {name}`, or give a file of your own: --set data=FILE",
        )
    raise SourceError(
        f"there is no data file {name!r}",
        where="data",
        fix=f"give a file, or one of {', '.join(n for n in DOWNLOADS if '/' not in n)} (see `leadline sources pull`)",
    )


def _refuse_damaged(download: Download) -> None:
    """Raises if a file that was fetched is no longer what it was then."""
    file, locked = data_folder() / download.file, _lock_of(data_folder(), download.name)
    if not locked.get("sha256") or not file.is_file():
        return
    if _known_sha256(file, file.stat().st_size, file.stat().st_mtime_ns) != locked["sha256"]:
        raise SourceError(
            f"the data {download.name!r} is damaged: it is not what was downloaded",
            where=str(file),
            fix=f"run `leadline sources pull {download.name}`, which fetches it again",
        )


@dataclass(frozen=True, slots=True)
class Pulled:
    """A local file whose hash was checked: against a pinned hash, against lock.json, or for the first time."""

    name: str
    path: Path
    sha256: str
    size_bytes: int
    url: str
    checked: Literal["pinned", "locked", "trusted on first use"]
    fetched: bool


Progress = Callable[[int, int | None], None]
"""Called with the bytes so far and the total, None where the server does not state it."""


def pull(name: str, *, progress: Progress = lambda done, total: None, again: bool = False, source: str = "") -> Pulled:
    """Fetch a file of DOWNLOADS, unless it is here already. `source` is a folder or a URL with the same file names."""
    if name not in DOWNLOADS:
        raise UnknownName("data", name, [*DOWNLOADS, *{n.partition("/")[0] for n in DOWNLOADS if "/" in n}])
    download = DOWNLOADS[name]
    if source:
        base = source if "://" in source else Path(source).expanduser().resolve().as_uri()
        files = {mirror.url.rpartition("/")[2]: mirror.sha256 for mirror in download.mirrors}
        mirrors = tuple(Mirror(f"{base.rstrip('/')}/{file}", sha256) for file, sha256 in files.items())
        download = replace(download, mirrors=mirrors)
    return fetch(download, data_folder(), progress=progress, again=again)


def fetch(download: Download, folder: Path, *, progress: Progress, again: bool = False) -> Pulled:
    """The file in `folder`, from the first mirror that has it."""
    target, part = folder / download.file, folder / f"{download.file}.part"
    locked = _lock_of(folder, download.name)
    if target.is_file() and not again:
        if (found := sha256_of(target)) in (_pinned(download) or {locked.get("sha256") or found}):
            return _check(download, target, folder, locked.get("url", ""), fetched=False)
        say_damaged(target, "its SHA-256 is not the one expected")
    target.parent.mkdir(parents=True, exist_ok=True)
    problems = []
    for mirror in download.mirrors:
        try:
            _download(mirror.url, part, progress)
        except (OSError, EOFError) as error:
            problems.append(f"{mirror.url}: {error}")
            if isinstance(error, urllib.error.HTTPError):
                error.close()
        else:
            return _check(download, part, folder, mirror.url, fetched=True)
    raise ServerError(
        f"{download.name} could not be fetched: {'; '.join(problems)}",
        where=str(folder),
        fix=f"try again later: a partial download is kept and resumed. Or put the file at {target} yourself",
    )


def _check(download: Download, file: Path, folder: Path, url: str, *, fetched: bool) -> Pulled:
    """Compare the file's hash, then move a new file to its place and write lock.json. A wrong new file is deleted."""
    target, found = folder / download.file, sha256_of(file)
    locks = _read_json(folder / LOCK)
    locked, pinned = _lock_of(folder, download.name), _pinned(download)
    expected = pinned or {locked.get("sha256") or found}
    if fetched:
        _validator_file(file).unlink(missing_ok=True)
    if found not in expected:
        if fetched:
            file.unlink()
        raise SourceError(
            f"{download.name} has an unexpected SHA-256: {found}",
            where=url or str(file),
            fix=f"expected {' or '.join(sorted(expected))}: try again, or get it from elsewhere with --from",
        )
    os.replace(file, target)
    entry = {"file": download.file, "sha256": found, "url": url}
    _write_json(folder / LOCK, locks | {download.name: entry})
    checked: Literal["pinned", "locked", "trusted on first use"]
    checked = "pinned" if pinned else "locked" if locked.get("sha256") else "trusted on first use"
    return Pulled(download.name, target, found, target.stat().st_size, url, checked, fetched)


def _download(url: str, part: Path, progress: Progress) -> None:
    """Into `part`, after the bytes that are there already if the server still has the same file (by its ETag)."""
    known = _read_json(_validator_file(part))
    validator = known.get("validator")
    known_part = part.is_file() and known.get("url") == url and isinstance(validator, str) and validator
    done = part.stat().st_size if known_part else 0
    headers = {"User-Agent": "leadline", "Accept-Encoding": "identity"}
    if done:
        headers |= {"Range": f"bytes={done}-", "If-Range": str(known["validator"])}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS) as reply:
        if reply.status != 206:  # the whole file
            done = 0
        length = reply.headers.get("Content-Length")
        total = done + int(length) if length else None
        validator = reply.headers.get("ETag") or reply.headers.get("Last-Modified") or ""
        _write_json(_validator_file(part), {"url": url, "validator": "" if validator.startswith("W/") else validator})
        with part.open("ab" if done else "wb") as file:
            while chunk := reply.read(CHUNK_BYTES):
                file.write(chunk)
                done += len(chunk)
                progress(done, total)
    if total is not None and done < total:
        raise EOFError(f"the connection ended after {done:,} of {total:,} bytes")


def sha256_of(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


@lru_cache(maxsize=64)
def _known_sha256(file: Path, size: int, mtime_ns: int) -> str:
    """Once for a file that does not change."""
    return sha256_of(file)


def _lock_of(folder: Path, name: str) -> dict[str, str]:
    """What lock.json says of a download; empty if it says nothing that can be used."""
    entry = _read_json(folder / LOCK).get(name)
    return {k: v for k, v in entry.items() if isinstance(v, str)} if isinstance(entry, dict) else {}


def _pinned(download: Download) -> set[str]:
    return {mirror.sha256 for mirror in download.mirrors} - {""}


def _validator_file(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    draft = path.with_name(path.name + ".new")
    draft.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    os.replace(draft, path)
