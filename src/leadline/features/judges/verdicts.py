"""Verdicts of judges: a file of their own in the run folder, one verdict per line.

Written and resumed as records are: whole lines with one system call each, an incomplete last line is cut off, and what
has a verdict is not asked for again. The key of a verdict is a digest of the probe, the answer, the rubric with every
word of it, the judge's identity and its decoding, so that another judge or another rubric never reuses one. Labels by
people lie beside them in a CSV file that can be edited with anything.
"""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from leadline.core.errors import StoreError, UsageError
from leadline.core.files import MAX_FIELD, exclusive, read_inside
from leadline.core.seeds import digest
from leadline.core.types import Cell
from leadline.store.files import AppendFile, replace_file
from leadline.store.lock import Lock
from leadline.store.runs import DecodeError, encode, encode_pretty

VERDICTS = "verdicts.jsonl"
VERDICTS_LOCK = "verdicts.lock"
LABELS = "labels.csv"
LABEL_LOG = "labels.jsonl"
"""Every label given on a page, in order: what was acknowledged stays, whatever happens to labels.csv."""
DRAW = "labels.draw.json"
MAX_VERDICT_BYTES = 1 << 30
RULE = "rule"
"""The name of the judge on verdicts that a rule gave."""

VerdictStatus = Literal["judged", "unparsed", "failed"]


class JudgeVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One verdict, of a judge or of a rule, on one answer or on a known case (`known_case`, in files `canary`)."""

    version: int = 1
    key: str
    cell: Cell
    judge: str
    """The model string, or `rule`."""
    identity: str = ""
    """A digest of everything about the judge that can change a verdict."""
    families: tuple[str, ...] = ()
    own_family: bool = False
    """Whether the judge is of the tested model's family. The user had to allow that."""
    rubric: str
    rubric_digest: str
    answer: str
    """A digest of the answer that was graded."""
    status: VerdictStatus = "judged"
    value: float | None = None
    """0 to 1; None where there is no verdict."""
    items: dict[str, str | int] = {}
    reason: str = ""
    """The judge's reason, the name of the rule, or why there is no verdict."""
    reply: str = ""
    """The last reply, where it could not be read."""
    known_case: str = msgspec.field(default="", name="canary")
    expected: bool | None = None
    replies: int = 0
    """1, or 2 where the first could not be read."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    estimated_prompt: int = 0
    """Our own count of the prompt tokens of replies whose server gave no counts."""
    estimated_completion: int = 0
    """The whole allowance of these."""
    evidence: int = 0
    """Pieces of evidence that the judge saw."""
    started: float = 0.0
    seconds: float = 0.0


_decoder = msgspec.json.Decoder(JudgeVerdict)


def verdict_key(*, cell: str, question: str, targets: Sequence[str], answer: str, rubric: str, judge: str) -> str:
    """`judge` is the judge's identity, which covers its decoding."""
    return digest([cell, question, list(targets), answer, rubric, judge], 24)


def read_verdicts(folder: Path | str) -> dict[str, JudgeVerdict]:
    """The newest verdict under each key, in the order they were written. Lines that cannot be read are left out."""
    return {verdict.key: verdict for verdict in every_verdict(folder)}


def every_verdict(folder: Path | str) -> Iterator[JudgeVerdict]:
    """All that were written, also those that a later one replaced."""
    path = Path(folder) / VERDICTS
    try:
        data = read_inside(path, MAX_VERDICT_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"cannot read the verdicts: {error.strerror}", where=str(path)) from None
    for line in data.split(b"\n"):
        try:
            yield _decoder.decode(line)
        except DecodeError:
            continue


class VerdictWriter:
    """The one writer of a run's verdicts; safe to call from many threads."""

    def __init__(self, folder: Path) -> None:
        self._lock = Lock(folder, VERDICTS_LOCK)
        try:
            self._file = AppendFile(folder / VERDICTS)
            data = read_inside(self._file.path, MAX_VERDICT_BYTES)
            self._file.cut(data.rfind(b"\n") + 1)
            self.kept = read_verdicts(folder)
        except BaseException:
            self._lock.release()
            raise

    def append(self, verdict: JudgeVerdict) -> None:
        """When this returns, the verdict survives the death of this process."""
        self._file.append(encode(verdict))
        self.kept[verdict.key] = verdict

    def is_done(self, key: str) -> bool:
        """A failed request is no verdict: it is asked again."""
        return key in self.kept and self.kept[key].status != "failed"

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        try:
            self._file.close()
        finally:
            self._lock.release()

    def __enter__(self) -> VerdictWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- labels by people

COLUMNS = ("id", "question", "targets", "evidence", "answer", "label", "answer_digest")
LABEL_WORDS = {
    **dict.fromkeys(("yes", "y", "right", "correct", "true"), 1.0),
    **dict.fromkeys(("partial", "partly", "p", "half"), 0.5),
    **dict.fromkeys(("no", "n", "wrong", "incorrect", "false"), 0.0),
}


class LabelStrata(msgspec.Struct, frozen=True):
    """The stratum of every sample when the labels were drawn. Not in the CSV file: labelling is blind."""

    rubric: str
    strata: dict[str, str]
    """From the key of a sample to its stratum."""


LabelKey = tuple[str, str]
"""The id of a sample and the digest of its answer."""


class GivenLabel(msgspec.Struct, frozen=True):
    """A label given on a page, a line of labels.jsonl."""

    id: str
    answer_digest: str
    label: str
    before: str
    """The label that it replaced. An editor that was opened earlier may still save that one."""


def label_key(row: Mapping[str, str]) -> LabelKey:
    return row["id"], row.get("answer_digest", "")


@contextmanager
def labels_locked(folder: Path) -> Iterator[None]:
    """Held while labels are read and written, by one process and thread at a time; others wait."""
    with _label_guard, exclusive(folder):
        yield


_label_guard = threading.Lock()
"""A lock of a folder holds between processes and between opened files; this one makes threads wait in turn."""


def add_label(folder: Path, key: LabelKey, label: str) -> list[dict[str, str]]:
    """Saves a label: appended to labels.jsonl first, then put into labels.csv. Returns the rows. KeyError if labels.csv
    has no such row."""
    with labels_locked(folder):
        rows = read_label_rows(folder / LABELS)
        row = next((row for row in rows if label_key(row) == key), None)
        if row is None:
            raise KeyError(key)
        log = AppendFile(folder / LABEL_LOG)
        try:
            log.cut(_whole_lines(folder / LABEL_LOG))
            log.append(encode(GivenLabel(*key, label, row.get("label", ""))))
        finally:
            log.close()  # synced: the label is acknowledged after this
        row["label"] = label
        write_labels(folder, rows)
        return rows


def _whole_lines(path: Path) -> int:
    """Bytes up to the end of the last whole line."""
    return read_inside(path).rfind(b"\n") + 1


def given_labels(folder: Path) -> dict[LabelKey, GivenLabel]:
    """The newest label of every answer that was labelled on a page."""
    try:
        lines = read_inside(folder / LABEL_LOG).split(b"\n")
    except OSError:
        return {}
    newest: dict[LabelKey, GivenLabel] = {}
    for line in lines:
        try:
            label = _label_decoder.decode(line)
        except DecodeError:
            continue
        newest[label.id, label.answer_digest] = label
    return newest


_label_decoder = msgspec.json.Decoder(GivenLabel)


def _newest_label(written: str, page_label: GivenLabel | None) -> str:
    """The newer one of the label in the file and that of a page. A file saved by an editor that was opened before the
    page's label has the label before it, or none; any other label was written by hand later."""
    stale = page_label is not None and written in ("", page_label.before)
    return page_label.label if page_label is not None and stale else written


def write_labels(folder: Path, rows: Sequence[Mapping[str, str]]) -> Path:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    path = folder / LABELS
    replace_file(path, text.getvalue().encode("utf-8", "replace"))
    return path


def read_label_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a file of labels, each with its newest label, of the file or of a page. `id` and `label` are needed,
    other columns may be missing."""
    try:
        text = (read_inside(path) if path.name == LABELS else path.read_bytes()).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read the labels: {why}", where=str(path), fix="write one with --label 40") from None
    csv.field_size_limit(MAX_FIELD)  # answers may be long
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if not {"id", "label"} <= set(reader.fieldnames or ()):
        raise UsageError(
            "a file of labels needs the columns id and label", where=str(path), fix="write one with --label 40"
        )
    rows = [{k: v or "" for k, v in row.items() if k is not None} for row in reader]
    page_labels = given_labels(path.parent) if path.name == LABELS else {}
    return [row | {"label": _newest_label(row["label"], page_labels.get(label_key(row)))} for row in rows]


def parse_label(text: str, where: str) -> float | None:
    """A label as a score: yes, no, partial, or a number from 0 to 1; None where it is empty."""
    word = text.strip().casefold()
    if not word:
        return None
    try:
        value = LABEL_WORDS[word] if word in LABEL_WORDS else float(word)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UsageError(f"{text!r} is not a label", where=where, fix="write yes, no, partial or a number from 0 to 1")
    return value


def write_draw(folder: Path, draw: LabelStrata) -> None:
    replace_file(folder / DRAW, encode_pretty(draw))


def read_draw(folder: Path) -> LabelStrata | None:
    try:
        return msgspec.json.decode(read_inside(folder / DRAW), type=LabelStrata)
    except (OSError, *DecodeError):
        return None
