"""The allowance of thinking models, found by asking: grown until fewer than 1 % of the answers are cut off.

Thinking needs an unknown number of tokens, and they are part of the length: prompt and allowance together fill it. The
first documents of each length are asked with a small allowance; while answers are cut off it is doubled and they are
asked again, as long as a document can be made in what is left of the length. Then everything else is asked, and what is
cut off there after all is asked again with more. What was found is kept in the run folder, so a resumed run goes on
with it. Each record says how much it was allowed beyond the task's own answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from leadline.core.answers import Completion
from leadline.core.drafts import EXTRA_ALLOWANCE
from leadline.core.errors import StoreError
from leadline.core.files import read_inside
from leadline.core.format import format_length
from leadline.core.lengths import AUTO
from leadline.core.records import Record
from leadline.core.types import Cell
from leadline.run.events import Answered, Event, Listener, Note, without_started
from leadline.store.files import replace_file
from leadline.store.runs import read_records
from leadline.text.fitting import Fitter

FILE = "allowances.json"
FIRST_TOKENS = 1024
CUT_SHARE = 0.01
"""If this share of a length's answers is cut off, the allowance is too small."""
FIRST_SHARE = 0.5
"""The largest share of a length that is allowed before anything is known."""
STEPS = 4
"""The number of smaller and smaller steps that are tried where twice the allowance leaves no room for a document."""

Allowances = dict[int, int]
"""By length: tokens beyond the task's own allowance."""
Fits = Callable[[int, int], bool]
"""(length, tokens beyond the task's own allowance) -> whether documents can be made in the rest of the length."""


def first_allowances(allowance: str, lengths: Collection[int]) -> Allowances:
    """The allowance before anything is known. A number given by the user holds for all lengths."""
    if not allowance:
        return {}
    if allowance != AUTO:
        return dict.fromkeys(lengths, int(allowance))
    return {length: min(FIRST_TOKENS, int(FIRST_SHARE * length)) for length in lengths}


def grown_allowance(length: int, tokens: int, fits: Fits) -> int:
    """Twice the allowance, or less where that leaves no room for a document; the same if no more fits."""
    step = tokens
    for _ in range(STEPS):
        if tokens + step < length and fits(length, tokens + step):
            return tokens + step
        step //= 2
    return tokens


def is_cut_off(record: Record) -> bool:
    """Whether the output ended because its allowance did."""
    return isinstance(record.outcome, Completion) and record.outcome.finish == "length" and not record.failed


@dataclass(frozen=True, slots=True)
class NextStep:
    """The cells to ask now, by key, with these allowances; empty at the end."""

    ask: frozenset[str]
    allowances: Allowances
    notes: tuple[str, ...] = ()


def next_step(cells: Collection[Cell], records: Mapping[str, Record], allowances: Allowances, fits: Fits) -> NextStep:
    """From the newest record of every cell. A step that was interrupted is the same again."""
    grown, ask, notes = dict(allowances), set[str](), []
    for length in sorted({cell.length for cell in cells}):
        here = [cell for cell in cells if cell.length == length]
        pilot = {cell.key for cell in here if cell.sample == 0}
        recorded = {cell.key: records[cell.key] for cell in here if cell.key in records}
        only_pilot = not recorded.keys() - pilot
        if only_pilot:
            ask |= pilot - recorded.keys()
        cut = {key for key, record in recorded.items() if is_cut_off(record)}
        again = set(recorded) if only_pilot else cut
        stale = {key for key in again if extra_allowance(recorded[key]) < grown[length]}
        answered = sum(not record.failed for record in recorded.values())
        if not stale and answered and len(cut) >= CUT_SHARE * answered:
            before, grown[length] = grown[length], grown_allowance(length, grown[length], fits)
            stale = again if grown[length] > before else set()
            notes.append(
                f"at {format_length(length)} {len(cut)} of {answered} answers are cut off with {before:,} tokens for "
                f"thinking: {format_growth(grown[length], len(stale))}"
            )
        ask |= stale
    if not ask:
        ask = {cell.key for cell in cells if cell.key not in records}
    return NextStep(frozenset(ask), grown, tuple(notes))


def find_allowance(
    cells: Sequence[Cell],
    fitter: Fitter,
    folder: Path,
    ask: Callable[[frozenset[str], Listener], None],
    fits: Fits,
    listen: Listener,
) -> None:
    """Asks every cell, in rounds until hardly an answer is cut off. A sample that fails in a round is not asked again
    in it; those that failed in an earlier start of the run are asked once more."""
    heard = listen
    lengths = {cell.key: cell.length for cell in cells}
    fitter.extra_allowance |= read_allowances(folder)
    tried: set[tuple[str, int]] = set()
    said: set[str] = set()
    while True:
        here = {key for key, _ in tried}
        by_key = ((record.cell.key, record) for record in read_records(folder))
        records = {key: record for key, record in by_key if record.is_final or key in here}
        step = next_step(cells, records, fitter.extra_allowance, fits)
        fitter.extra_allowance = step.allowances
        write_allowances(folder, step.allowances)
        for note in [note for note in step.notes if note not in said]:
            listen(Note(note))
            said.add(note)
        new = {(key, step.allowances[lengths[key]]) for key in step.ask} - tried
        if tried and not new:
            return
        tried |= new
        ask(frozenset(key for key, _ in new), _with_replaced(heard, records))
        if not new:
            return
        heard = without_started(listen)


def _with_replaced(listen: Listener, records: Mapping[str, Record]) -> Listener:
    """Adds to each answer the record that it replaces, so that a sample is counted once."""

    def heard(event: Event) -> None:
        if isinstance(event, Answered):
            event = replace(event, replaces=records.get(event.record.cell.key))
        listen(event)

    return heard


def format_growth(tokens: int, again: int) -> str:
    if not again:
        return "no document fits the length with more; measure longer lengths, or with less thinking"
    return f"{tokens:,} tokens from now on, and {again} asked again"


def extra_allowance(record: Record) -> int:
    """Tokens that the sample was allowed beyond the task's own allowance."""
    text = record.question.labels.get(EXTRA_ALLOWANCE, "")
    return int(text) if text.isdecimal() else 0


def read_allowances(folder: Path) -> Allowances:
    """The allowances that an earlier start of the run found; empty if there was none."""
    path = folder / FILE
    try:
        return msgspec.json.decode(read_inside(path), type=dict[int, int])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"the allowances cannot be read: {error}", where=str(path), fix="delete the file") from None


def write_allowances(folder: Path, allowances: Allowances) -> None:
    replace_file(folder / FILE, msgspec.json.encode(allowances))
