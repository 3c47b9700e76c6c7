"""Key tokens that another model found: read from the records of its run, as stretches of the documents' text."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from leadline.core.errors import SourceError
from leadline.core.types import Measured
from leadline.store.runs import read_records

Marks = tuple[tuple[int, int], ...]


def evaluator_marks(folder: Path, document: str, length: int) -> Marks:
    """The key tokens of a document at a length, as characters, by the evaluator's run."""
    found = _marks(folder).get((document, length))
    if found is None:
        raise SourceError(
            f"the evaluator's run has no key tokens for document {document} at length {length:,}",
            where=str(folder),
            fix="run longppl with the evaluator on the same documents, lengths, samples and seed first",
        )
    return found


@cache
def _marks(folder: Path) -> dict[tuple[str, int], Marks]:
    return {
        (record.cluster, record.cell.length): record.outcome.marks
        for record in read_records(folder)
        if isinstance(record.outcome, Measured) and "key_tokens" in record.outcome.numbers
    }
