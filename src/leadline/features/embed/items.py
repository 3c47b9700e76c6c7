"""The items that `embed` plants: rows of a file, or generated ones that no model has memorised.

    {"question": "...", "answer": "42"}                                 any: also a list of accepted answers
    {"question": "...", "answer": "... #### 42"}                        as GSM8K has them: the number after ####
    {"question": "...", "choices": ["...", ...], "answer": 1}           as MMLU has them: an index, a letter or the text
    {"question": "...", "choices": {"text": [...], "label": [...]}, "answerKey": "A"}      as ARC has them
    {"context": "...", "question": "...", "answers": {"text": [...]}}   as SQuAD has them

A CSV has the same columns, with the choices in A, B, C ... Every row may also have `scorer`, the name of a scorer,
`group`, by which results are broken down, and `id`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from leadline.core import registry
from leadline.core.errors import SourceError, UnknownName
from leadline.core.files import delimiter_of, parse_json, read_text, table_rows
from leadline.core.format import format_list
from leadline.core.seeds import Split, digest, rng, split_of
from leadline.features.embed.choices import LETTERS, ChoiceRow, choices_of, right_letters
from leadline.tasks.qa_fiction import pool
from leadline.tasks.words import WORDS

AnswerKind = Literal["number", "choice", "text"]
ItemSource = Literal["all", "arithmetic", "ordering", "logic"]
ANSWERS = ("answer", "answers", "answerKey")
FIX = "every row needs question and answer; see docs/embed.md for the forms"
KEPT_FILES = 16
_NUMBER_LIKE = re.compile(r"[-+]?[\d,]*\.?\d+")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class EvalItem:
    """A short question with its answer."""

    id: str
    text: str
    kind: AnswerKind
    targets: tuple[str, ...]
    group: str = ""
    choices: tuple[str, ...] = ()
    scorer: str = ""
    distractors: tuple[str, ...] = ()


# --- files ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ItemFile:
    """All items of a file, in an order that is drawn from its content: many files are sorted."""

    name: str
    digest: str
    items: tuple[EvalItem, ...]


def read_items(path: Path) -> ItemFile:
    """The items of a JSONL or CSV file. Raises for the first row that is not one, with its line."""
    try:
        state = path.stat()
    except OSError:
        return _read_once(path, 0, 0)  # which says what is wrong with it
    return _read_once(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=KEPT_FILES)
def _read_once(path: Path, mtime_ns: int, size: int) -> ItemFile:
    """A file that was changed is read again."""
    if path.suffix.lower() not in (".jsonl", ".json", ".csv", ".tsv"):
        raise SourceError(f"{path.name} is not a .jsonl or .csv file", where=str(path), fix=FIX)
    text = read_text(path, fix="give the path of a .jsonl or .csv file with --set data=FILE")
    rows = _json_rows(text, path) if path.suffix.lower() in (".jsonl", ".json") else _table_rows(text, path)
    read = [_item(row, number, where) for number, (row, where) in enumerate(rows, 1)]
    if not read:
        raise SourceError("the file has no rows", where=str(path), fix=FIX)
    letters = iter(right_letters([choices for _, choices in read if choices]))
    items = [replace(item, targets=next(letters)) if choices else item for item, choices in read]
    key = digest([[item.text, item.kind, list(item.targets), item.scorer] for item in items])
    rng("items", key).shuffle(items)
    return ItemFile(path.name, key, tuple(items))


def _json_rows(text: str, path: Path) -> Iterator[tuple[Mapping[str, Any], str]]:
    if text.lstrip()[:1] == "[":
        values = [(value, f"{path}, item {n}") for n, value in enumerate(parse_json(text, str(path)), 1)]
    else:
        lines = [(line, f"{path}:{n}") for n, line in enumerate(text.split("\n"), 1) if line.strip()]
        values = [(parse_json(line, where), where) for line, where in lines]
    for value, where in values:
        if not isinstance(value, dict):
            raise SourceError("the row is not a JSON object", where=where, fix=FIX)
        yield value, where


def _table_rows(text: str, path: Path) -> Iterator[tuple[Mapping[str, Any], str]]:
    rows = table_rows(text, str(path), delimiter=delimiter_of(text))
    number, header = next(rows, (1, []))
    columns = [name.strip() for name in header]
    where = f"{path}:{number}"
    wanted = {"question": ("question",), "answer": ANSWERS}
    for name, names in wanted.items():
        if not any(column in names for column in columns):
            known = ", ".join(columns) or "none"
            raise SourceError(f"there is no column {name}; columns: {known}", where=where, fix=FIX)
    for name in columns:
        if name and columns.count(name) > 1:
            raise SourceError(f"two columns are called {name}", where=f"{where}, {name}", fix="rename or remove one")
    letters = sorted(name for name in columns if len(name) == 1 and name in LETTERS)
    for letter, present in zip(LETTERS, letters, strict=False):
        if letter != present:
            raise SourceError(
                f"there is a column {present} and none {letter}",
                where=f"{where}, {present}",
                fix="the columns of the choices are A, B, C ... without a gap",
            )
    for number, cells in rows:
        where = f"{path}:{number}"
        if len(cells) != len(columns):
            raise SourceError(f"{len(cells)} cells in a table of {len(columns)} columns", where=where, fix=FIX)
        row: dict[str, Any] = {name: cell for name, cell in zip(columns, cells, strict=True) if cell.strip()}
        filled = [letter for letter in letters if letter in row]
        if filled != letters[: len(filled)]:
            empty = next(letter for letter in letters if letter not in row)
            raise SourceError(
                f"choice {empty} is empty and choice {filled[-1]} is not",
                where=f"{where}, {empty}",
                fix=f"fill in {empty}, or move the later choices and the answer up by one",
            )
        choices = [row.pop(letter) for letter in filled]
        if choices:
            row["choices"] = choices
        elif "choices" in row:
            raise SourceError(
                "choices are in one cell",
                where=f"{where}, choices",
                fix="give them the columns A, B, C ..., or use JSONL",
            )
        yield row, where


def _item(row: Mapping[str, Any], number: int, where: str) -> tuple[EvalItem, ChoiceRow | None]:
    """The item of a row. The targets of one with choices are known only when the whole file is read."""
    question = _text(row, "question", where)
    context = _text(row, "context", where) if row.get("context") else ""
    choices = choices_of(row, where, FIX)
    scorer = _scorer(row, where)
    field, answers = _answers(row, where)
    where = f"{where}, {field}"
    kind: AnswerKind = "text"
    if choices:
        kind = "choice"
    elif not all(answers):
        raise SourceError("the answer is empty", where=where, fix=FIX)
    elif any("####" in answer for answer in answers):
        kind, answers = "number", tuple(_number(answer.rsplit("####", 1)[-1].strip(), where) for answer in answers)
    elif all(_NUMBER_LIKE.fullmatch(answer) for answer in answers):
        kind, answers = "number", tuple(_number(answer, where) for answer in answers)
    texts = choices.texts if choices else ()
    lines = [f"Passage: {context}", f"Question: {question}"] if context else [question]
    lines += [f"{letter}) {choice}" for letter, choice in zip(LETTERS, texts, strict=False)]
    group = str(row.get("group") or row.get("subject") or "")
    name = str(row.get("id") or number)
    item = EvalItem(name, "\n".join(lines), kind, answers, group, texts, scorer)
    return item, ChoiceRow(choices, answers, where) if choices else None


def _number(answer: str, where: str) -> str:
    """A number in plain digits. Raises for a comma that separates no thousands: 3,5 may be 3.5, or two numbers."""
    if not answer:
        raise SourceError("the answer is empty", where=where, fix=FIX)
    if not _NUMBER_LIKE.fullmatch(answer):
        raise SourceError(
            f"what follows #### is not a number: {answer[:40]!r}", where=where, fix="write digits, such as #### 1042"
        )
    if "," in answer and not _THOUSANDS.fullmatch(answer):
        raise SourceError(
            f"the answer {answer!r} has a comma that separates no thousands",
            where=where,
            fix="write 3.5 for a decimal number, and a list with spaces: 3, 5",
        )
    return answer.replace(",", "")


def _text(row: Mapping[str, Any], name: str, where: str) -> str:
    value = row.get(name)
    if value is None:
        had = f"; it has {format_list(sorted(map(str, row))[:8])}" if row else ""
        raise SourceError(f"the row has no {name}{had}", where=f"{where}, {name}", fix=FIX)
    if not isinstance(value, str) or not value.strip():
        raise SourceError(f"{name} is not a text", where=f"{where}, {name}", fix=FIX)
    return value.strip()


def _answers(row: Mapping[str, Any], where: str) -> tuple[str, tuple[str, ...]]:
    """The name of the field, and the accepted answers."""
    name = next((name for name in ANSWERS if row.get(name) is not None), "answer")
    value = row.get(name)
    if isinstance(value, Mapping):
        value = value.get("text")
    values = value if isinstance(value, list) else [value]
    wrong = not values or any(v is None or isinstance(v, (bool, list, dict)) or v != v for v in values)
    if wrong:
        problem = "the row has no answer" if value is None else f"{name} is no text, number or list of texts"
        raise SourceError(problem, where=f"{where}, {name if value is not None else 'answer'}", fix=FIX)
    return name, tuple(dict.fromkeys(str(v).strip() for v in values))


def _scorer(row: Mapping[str, Any], where: str) -> str:
    name = row.get("scorer")
    if not name:
        return ""
    known = registry.names("scorers")
    if not isinstance(name, str) or name not in known:
        raise UnknownName("scorer", str(name), known, where=f"{where}, scorer")
    return name


# --- generated items ------------------------------------------------------------------------------

THINGS = ("apples", "bolts", "candles", "drums", "eggs", "flags", "gloves", "hats", "lamps", "maps", "nails", "pears")
PEOPLE = 5
LAMPS = 8
ON_CHAIN = 4


def generated_item(source: ItemSource, sample: int, seed: int, split: Split) -> EvalItem:
    """Drawn from the seed and the number of the sample alone: one item at every length and depth."""
    kinds = {"arithmetic": _arithmetic, "ordering": _ordering, "logic": _logic}
    name = list(kinds)[sample % len(kinds)] if source == "all" else source
    draw = rng(seed, "embed", name, sample)
    while True:
        item = kinds[name](draw, str(sample), split)
        if split_of(item.text) == split:
            return item


def _arithmetic(draw: random.Random, name: str, split: Split) -> EvalItem:
    person, thing = draw.choice(pool("last", split)), draw.choice(THINGS)
    boxes, each = draw.randint(3, 9), draw.randint(4, 12)
    more, fewer = draw.randint(5, 30), draw.randint(3, boxes * each)
    text = (
        f"{person} has {boxes} boxes with {each} {thing} in each. {person} buys {more} more {thing} and then gives "
        f"{fewer} of all the {thing} away. How many {thing} does {person} have now?"
    )
    return EvalItem(name, text, "number", (str(boxes * each + more - fewer),), "arithmetic")


def _ordering(draw: random.Random, name: str, split: Split) -> EvalItem:
    people = draw.sample(pool("last", split), PEOPLE)
    rank = draw.randrange(PEOPLE)
    pairs = [f"{people[n]} is taller than {people[n + 1]}." for n in range(PEOPLE - 1)]
    draw.shuffle(pairs)
    rank_name = ("tallest", "second tallest", "third tallest", "fourth tallest", "fifth tallest")[rank]
    text = f"{' '.join(pairs)} Of these five people, who is the {rank_name}?"
    others = tuple(person for person in people if person != people[rank])
    return EvalItem(name, text, "text", (people[rank],), "ordering", distractors=others)


def _logic(draw: random.Random, name: str, split: Split) -> EvalItem:
    """A chain of lamps that switch each other on, beside one whose first lamp stays off."""
    lamps = draw.sample(sorted(WORDS["nouns"]), LAMPS)
    on, off = lamps[:ON_CHAIN], lamps[ON_CHAIN:]
    rules = [
        f"The {first} lamp switches on the {second} lamp." for chain in (on, off) for first, second in pairwise(chain)
    ]
    draw.shuffle(rules)
    text = f"{' '.join(rules)} Only the {on[0]} lamp is switched on by hand. Which lamp goes on last?"
    return EvalItem(name, text, "text", (on[-1],), "logic", distractors=(*on[:-1], *off))
