"""Corpora: whole documents to be read as they are, one by one.

FOLDER or GLOB     every text file in it is a document
FILE.jsonl, .json  a line, or an item of the list, is a document: a text, or an object with a text field
FILE               one document
FILE.zip           the lines of the .jsonl files in it; of several splits those for validation
govreport          the same, of what `leadline sources pull govreport` fetched
prose, code ...    a built-in haystack cut into documents that have nothing in common
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol

from leadline.core.digest import digest
from leadline.core.errors import SourceError
from leadline.core.registry import names
from leadline.core.seeds import bulk_rng
from leadline.text.downloads import DOWNLOADS, find_data
from leadline.text.sources import TextSource, find_files, open_source, read_text

CHARACTERS_PER_TOKEN = 6
"""More than tokenizers of models make of prose and code; one that counts words may find a document short."""


USUAL = ("text", "input", "document", "content")
"""Fields that hold the text in most files, tried in this order unless another is named."""


class Corpus(Protocol):
    """Documents by number. Which text has which number depends on the seed alone."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str: ...

    def text(self, number: int, *, tokens: int, seed: int) -> str | None:
        """A document that has so many tokens where the corpus can make it so; None when there are no more."""
        ...


@dataclass(frozen=True)
class Listed:
    """Documents that are there, each as long as it is."""

    name: str
    texts: Sequence[str]

    @cached_property
    def digest(self) -> str:
        return digest(list(self.texts))

    def text(self, number: int, *, tokens: int, seed: int) -> str | None:
        order = _order(seed, self.digest, len(self.texts))
        return self.texts[order[number]] if number < len(order) else None


@dataclass(frozen=True)
class Cut:
    """A long text cut into documents of the length that is wanted, which do not overlap."""

    name: str
    source: TextSource

    @property
    def digest(self) -> str:
        return self.source.digest

    def text(self, number: int, *, tokens: int, seed: int) -> str | None:
        stretches = self._stretches(tokens * CHARACTERS_PER_TOKEN)
        order = _order(seed, self.digest, len(stretches))
        if number >= len(order):
            return None
        first, last = stretches[order[number]]
        return "".join(self.source.bank.pieces[first:last]).rstrip()

    def _stretches(self, characters: int) -> list[tuple[int, int]]:
        """Pieces in a row that have at least so many characters, each piece in one stretch; the rest is left over."""
        found, first, size = [], 0, 0
        for number, piece in enumerate(self.source.bank.pieces):
            size += len(piece)
            if size >= characters:
                found.append((first, number + 1))
                first, size = number + 1, 0
        return found


@cache
def _order(seed: int, corpus: str, count: int) -> tuple[int, ...]:
    return tuple(bulk_rng(seed, "corpus", corpus).permutation(count).tolist())


@cache
def open_corpus(name: str, field: str = "text") -> Corpus:
    """The corpus a name means. `field` is where an object of a JSON file keeps its text."""
    if name in names("sources"):
        source = open_source(name)
        if not isinstance(source, TextSource) or source.repeat:
            raise SourceError(f"{name!r} cannot be cut into documents", where="documents", fix="use prose or code")
        return Cut(name, source)
    files = [find_data(name)] if name in DOWNLOADS else find_files(name)
    if not files:
        raise SourceError(
            f"there are no documents {name!r}",
            where="documents",
            fix="give a folder, a glob, a .jsonl or .json file, or prose, code, reports or govreport",
        )
    texts = [text for file in files for text in _texts(file, field)]
    kept = [text for text in texts if text.strip()]
    if not kept:
        raise SourceError("these documents hold no text", where=name)
    return Listed(name, kept)


def _texts(file: Path, field: str) -> Iterator[str]:
    if file.suffix == ".jsonl":
        yield from _lines(read_text(file), field, str(file))
    elif file.suffix == ".zip":
        for member, text in _unpacked(file):
            yield from _lines(text, field, f"{file}/{member}")
    elif file.suffix == ".json":
        items = _decoded(read_text(file), str(file))
        if isinstance(items, dict):  # such as {"data": [...]}
            items = next((v for v in items.values() if isinstance(v, list)), [items])
        for number, item in enumerate(items):
            yield _text(item, field, f"{file}, item {number}")
    else:
        yield read_text(file)


def _lines(text: str, field: str, where: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield _text(_decoded(line, f"{where}:{number}"), field, f"{where}:{number}")


def _unpacked(file: Path) -> Iterator[tuple[str, str]]:
    try:
        with zipfile.ZipFile(file) as archive:
            members = sorted(n for n in archive.namelist() if n.endswith(".jsonl") and not n.startswith("__MACOSX"))
            chosen = [n for n in members if "validation" in n] or members
            for name in chosen:
                yield name, archive.read(name).decode("utf-8")
    except (zipfile.BadZipFile, UnicodeDecodeError, OSError) as error:
        raise SourceError(f"cannot be unpacked: {error}", where=str(file)) from None


def _text(item: Any, field: str, where: str) -> str:
    if isinstance(item, str):
        return item
    for name in (field, *(USUAL if field == USUAL[0] else ())):
        if isinstance(item, dict) and isinstance(item.get(name), str):
            text: str = item[name]
            return text
    known = [k for k, v in item.items() if isinstance(v, str)] if isinstance(item, dict) else []
    raise SourceError(
        f"this document has no text field {field!r}",
        where=where,
        fix=f"name one of its fields: --set field={known[0]}" if known else "give texts, or objects with a text field",
    )


def _decoded(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SourceError(f"not JSON: {error}", where=where) from None
