"""The batches of a run: one file for each in `batches/` of its folder, replaced whole, and beside it its questions with
all that their records need, until they are recorded: a document cannot always be made a second time as it was.

A batch is written before it is submitted, with its tag and the questions in it, and again with the provider's id. So a
batch without an id was submitted or not when the program died, which the provider is asked by the tag. A file that is
deleted is a batch that is forgotten: its questions are asked again.
"""

from __future__ import annotations

import gzip
import os
import re
import secrets
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from leadline.core.errors import StoreError
from leadline.core.files import read_inside
from leadline.core.records import Record
from leadline.core.secrets import redact_bytes
from leadline.store.files import remove_drafts, replace_file

FOLDER = "batches"
MOST_BYTES = 1 << 30
"""100,000 questions take some 60 MB."""
_NAME = re.compile(r"\d{4,}\.json")


class BatchItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question in a batch: the key of its cell, and how often it was asked with this."""

    cell: str
    attempt: int = 1
    tokens: tuple[int, int] = (0, 0)
    """Of the prompt, and at most of the answer."""


BatchStep = Literal["prepared", "submitted", "recorded", "refused"]


class SavedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as the run folder has it. `items` are by their name in the batch."""

    number: int
    tag: str
    step: BatchStep
    prepared: float
    id: str = ""
    submitted: float = 0.0
    message: str = ""
    items: dict[str, BatchItem]
    """Empty when nothing more comes of it."""
    questions: int = 0
    """How many there were then."""

    @property
    def is_open(self) -> bool:
        """Whether answers may still come of it."""
        return self.step in ("prepared", "submitted")


class BatchQuestion(msgspec.Struct, frozen=True):
    """A question by its name in a batch, with its record as far as that is known before the answer."""

    name: str
    record: Record
    start: int
    end: int
    """Characters of the document's text that it is about."""


class _DocumentText(msgspec.Struct, frozen=True):
    text: str


class BatchFolder:
    """The batches of one run. Used with the lock of the run's folder held."""

    def __init__(self, run: Path) -> None:
        self._folder = run / FOLDER
        if self._folder.is_dir():
            remove_drafts(self._folder)

    def path(self, batch: SavedBatch) -> Path:
        return self._folder / f"{batch.number:04}.json"

    def every(self) -> list[SavedBatch]:
        """In the order they were prepared. Raises StoreError for a file that cannot be read: its batch may be asked at
        the provider, and would be paid for twice."""
        if not self._folder.is_dir():
            return []
        paths = sorted(path for path in self._folder.iterdir() if _NAME.fullmatch(path.name))
        return [self._read(path) for path in paths]

    def _read(self, path: Path) -> SavedBatch:
        try:
            return msgspec.json.decode(read_inside(path, MOST_BYTES), type=SavedBatch)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            fix = "restore it, or delete it: its questions are then asked, and paid for, again"
            raise StoreError(f"a batch of this run cannot be read: {error}", where=str(path), fix=fix) from None

    def save(self, batch: SavedBatch) -> SavedBatch:
        try:
            self._folder.mkdir(exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make a folder: {error.strerror}", where=str(self._folder)) from None
        replace_file(self.path(batch), msgspec.json.encode(batch))
        return batch

    def forget(self, batch: SavedBatch) -> None:
        """The batch was never submitted."""
        self.path(batch).unlink(missing_ok=True)
        self.drop_questions(batch)

    def _questions(self, number: int) -> Path:
        return self._folder / f"{number:04}.questions.gz"

    def save_questions(self, number: int, questions: Iterable[tuple[str, BatchQuestion]]) -> None:
        """Each with the text of its document, which is written once for questions in a row."""
        path, before = self._questions(number), None
        draft = path.with_name(f".{path.name}.draft")
        try:
            self._folder.mkdir(exist_ok=True)
            with gzip.open(draft, "wb", compresslevel=1) as file:
                for text, question in questions:
                    if text is not before:
                        file.write(redact_bytes(msgspec.json.encode(_DocumentText(text))) + b"\n")
                        before = text
                    file.write(redact_bytes(msgspec.json.encode(question)) + b"\n")
            os.replace(draft, path)
        except OSError as error:
            raise StoreError(f"cannot write the questions of a batch: {error.strerror}", where=str(path)) from None

    def questions(self, batch: SavedBatch) -> Iterator[tuple[str, BatchQuestion]]:
        """Each with the part of its document's text that it is about."""
        path, text = self._questions(batch.number), ""
        try:
            with gzip.open(path, "rb") as file:
                for line in file:
                    if line.startswith(b'{"text"'):
                        text = msgspec.json.decode(line, type=_DocumentText).text
                    else:
                        question = msgspec.json.decode(line, type=BatchQuestion)
                        yield text[question.start : question.end], question
        except (OSError, EOFError, zlib.error, msgspec.DecodeError, UnicodeDecodeError) as error:
            fix = f"restore it, or delete {self.path(batch)}: its questions are then asked, and paid for, again"
            raise StoreError(f"the questions of a batch cannot be read: {error}", where=str(path), fix=fix) from None

    def drop_questions(self, batch: SavedBatch) -> None:
        self._questions(batch.number).unlink(missing_ok=True)


def new_tag(run_digest: str) -> str:
    """A name that no other batch has, of this run or another: what a provider is asked for after a crash."""
    return f"leadline-{run_digest[:8]}-{secrets.token_hex(6)}"


def prepared(number: int, tag: str, items: dict[str, BatchItem]) -> SavedBatch:
    return SavedBatch(number=number, tag=tag, step="prepared", prepared=time.time(), items=items)
