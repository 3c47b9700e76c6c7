"""Questions over documents, read from files in the formats of SQuAD, HotpotQA and MuSiQue.

A question is kept only if its own documents answer it and no others: every accepted answer occurs in them, none occurs
in the question, and few other documents contain one (those are left out of the pile). Trivial answers (yes, no, a
single letter) are left out, because substring matching finds them by chance.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.drafts import Filler, PieceBank, SegmentSize
from leadline.core.errors import SourceError, UsageError
from leadline.core.seeds import Split, bulk_rng, digest, rng, split_of

if TYPE_CHECKING:
    from leadline.core.types import Indices
import msgspec

from leadline.core.files import decode_json, read_bytes

# --- Question files in the formats of SQuAD, HotpotQA (also 2WikiMultihopQA) and MuSiQue, read into one form ---


@dataclass(frozen=True, slots=True)
class FileDocument:
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class RawQuestion:
    text: str
    answers: tuple[str, ...]
    gold: tuple[FileDocument, ...]
    related: tuple[FileDocument, ...]


class _SquadAnswer(msgspec.Struct):
    text: str


class _SquadQuestion(msgspec.Struct):
    question: str
    answers: list[_SquadAnswer] = []
    is_impossible: bool = False


class _Paragraph(msgspec.Struct):
    context: str
    qas: list[_SquadQuestion]


class _Article(msgspec.Struct):
    paragraphs: list[_Paragraph]
    title: str = ""


class _Squad(msgspec.Struct):
    data: list[_Article]


class _HotpotQuestion(msgspec.Struct):
    question: str
    answer: str
    context: list[tuple[str, list[str]]]
    supporting_facts: list[tuple[str, int]]


class _MusiqueParagraph(msgspec.Struct):
    title: str
    paragraph_text: str
    is_supporting: bool = False


class _MusiqueQuestion(msgspec.Struct):
    question: str
    answer: str
    paragraphs: list[_MusiqueParagraph]
    answerable: bool = True


def read_questions(path: Path) -> Iterator[RawQuestion]:
    """SQuAD is an object with `data`, HotpotQA (and 2WikiMultihopQA) a list of questions with `context`, MuSiQue a
    question with its `paragraphs` on every line."""
    what, fix = "not in the format of SQuAD, HotpotQA or MuSiQue", "see docs/questions.md for the fields that are read"
    text = read_bytes(path, fix=fix)
    if text.lstrip()[:1] == b"[":
        return _from_hotpot(decode_json(text, list[_HotpotQuestion], str(path), what=what, fix=fix))
    if _is_musique(text):
        return _from_musique(
            [
                decode_json(line, _MusiqueQuestion, f"{path}:{number}", what=what, fix=fix)
                for number, line in enumerate(text.split(b"\n"), 1)
                if line.strip()
            ]
        )
    return _from_squad(decode_json(text, _Squad, str(path), what=what, fix=fix))


def _from_squad(file: _Squad) -> Iterator[RawQuestion]:
    for article in file.data:
        title = article.title.replace("_", " ")
        documents = tuple(FileDocument(title, p.context) for p in article.paragraphs)
        for document, paragraph in zip(documents, article.paragraphs, strict=True):
            for question in paragraph.qas:
                if question.answers and not question.is_impossible:
                    answers = tuple(a.text for a in question.answers)
                    yield RawQuestion(question.question, answers, (document,), documents)


def _is_musique(text: bytes) -> bool:
    try:
        msgspec.json.decode(text.lstrip().split(b"\n", 1)[0], type=_MusiqueQuestion)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _from_musique(questions: list[_MusiqueQuestion]) -> Iterator[RawQuestion]:
    for question in questions:
        if question.answerable:
            documents = tuple(FileDocument(p.title, p.paragraph_text) for p in question.paragraphs)
            gold = tuple(d for d, p in zip(documents, question.paragraphs, strict=True) if p.is_supporting)
            yield RawQuestion(question.question, (question.answer,), gold, documents)


def _from_hotpot(questions: list[_HotpotQuestion]) -> Iterator[RawQuestion]:
    for question in questions:
        documents = {title: FileDocument(title, "".join(sentences)) for title, sentences in question.context}
        gold = tuple(documents[t] for t in dict.fromkeys(t for t, _ in question.supporting_facts) if t in documents)
        yield RawQuestion(question.question, (question.answer,), gold, tuple(documents.values()))


# --- the files ---


@dataclass(frozen=True, slots=True)
class DocumentPile:
    """Documents of a bank in random order. Those in `first` are taken before those in `then`.

    What is taken is shuffled, so that its position does not reveal which list it came from; the order therefore depends
    on the number taken. With `prefix_stable` a shorter pile is the beginning of a longer one and both lists are mixed.
    """

    bank: PieceBank
    first: Indices
    then: Indices
    seed: int
    repeat: bool = False
    prefix_stable: bool = False

    @property
    def limit(self) -> int | None:
        return None if self.repeat else len(self.first) + len(self.then)

    def arrange(self, count: int) -> Indices:
        taken = self._taken(count)
        if self.prefix_stable or len(taken) < 3:
            return taken
        # The last one stays last, so that one document more leaves the set of the others unchanged.
        mixed, last = taken[:-1], taken[-1:]
        return np.concatenate([mixed[np.argsort(bulk_rng(self.seed, "places").random(len(mixed)))], last])

    def _taken(self, count: int) -> Indices:
        draw = bulk_rng(self.seed, "pile")
        if self.prefix_stable:
            order = draw.permutation(np.concatenate([self.first, self.then]))
        else:
            order = np.concatenate([draw.permutation(self.first), draw.permutation(self.then)])
        return np.resize(order, count) if self.repeat else order[:count]


@dataclass(frozen=True, slots=True)
class NumberedBank:
    """Pieces of a numbered pile: the numbers, the documents, and the words of some documents, for a last one that is
    cut off."""

    bank: PieceBank
    labels: int
    cuts: Mapping[tuple[int, ...], tuple[int, int]]
    """By a few documents in a row, their words as a range of pieces."""


@dataclass(frozen=True, slots=True)
class NumberedPile:
    """Numbered documents, the gold ones among them: `Document 1:`, `Document 2:` ... The last one may be cut off.

    The number is a piece of its own before each document, so that a bank of documents serves any order.
    """

    pieces: NumberedBank
    gold: tuple[int, ...]
    others: DocumentPile
    depths: tuple[float, ...] | None
    """Where the gold documents start, as shares of the text; None puts them anywhere."""

    @property
    def bank(self) -> PieceBank:
        return self.pieces.bank

    def least(self, counts: Indices) -> int:
        return int(counts[: len(self.gold)].sum() + counts[self._pieces(self.gold)].sum())

    def compose(self, segment_sizes: Sequence[SegmentSize], counts: Indices) -> list[Indices] | None:
        [room] = segment_sizes
        golds, labels = len(self.gold), self.pieces.labels
        fixed, numbers = int(counts[self._pieces(self.gold)].sum()), np.cumsum(counts[:labels])
        order = self.others.arrange(min(labels - golds - 1, room.tokens, self.others.limit or room.tokens))
        # Tokens of the gold documents and the first n others, with all their numbers.
        reach = np.concatenate(([0], np.cumsum(counts[self._pieces(order)]))) + fixed
        reach += numbers[golds - 1 : golds + len(order)]
        fits = int(np.searchsorted(reach, room.tokens, side="right")) - 1
        if fits == len(order) == self.others.limit and room.tokens > reach[-1] + int(counts.max(initial=0)):
            raise SourceError(
                f"{self.bank.name} has {int(reach[-1]):,} tokens of documents, and {room.tokens:,} are needed",
                where=self.bank.name,
                fix="set repeat=true, ask at shorter lengths, or give a file with more documents",
            )
        cuts = self._free_cuts(set(order[:fits].tolist()))
        first = room.retry % max(len(cuts), 1)
        for count in range(fits, max(fits - TRIED_COUNTS, -1), -1):
            left = room.tokens - int(reach[count])
            if left == 0:
                return [self._written(order[:count], counts, room)]
            left -= int(counts[golds + count])
            for low, high in cuts[first:] + cuts[:first]:
                ends = np.flatnonzero(np.cumsum(counts[low:high]) == left)
                if len(ends):
                    words = np.arange(low, low + int(ends[0]) + 1)
                    return [np.concatenate([self._written(order[:count], counts, room), [golds + count], words])]
        return None

    def _free_cuts(self, used: set[int]) -> list[tuple[int, int]]:
        """Documents to cut off: none that could answer the question, and first those that are not in the text."""
        free = {*self.others.first.tolist(), *self.others.then.tolist()}
        mine = [documents for documents in self.pieces.cuts if free.issuperset(documents)]
        return [self.pieces.cuts[d] for d in sorted(mine, key=lambda d: len(used.intersection(d)))]

    def _written(self, others: Indices, counts: Indices, room: SegmentSize) -> Indices:
        """The whole documents in their final order, each after its number."""
        draw = bulk_rng(self.others.seed, "slots", room.retry)
        placed: list[int] = draw.permutation(others).tolist()
        for number, gold in enumerate(self.gold):
            slot = int(draw.integers(len(placed) + 1))
            if self.depths is not None:
                starts = np.concatenate(([0], np.cumsum(counts[self._pieces(placed)])))
                slot = int(np.abs(starts - self.depths[number] * room.tokens).argmin())
            placed.insert(slot, gold)
        return np.stack([np.arange(len(placed)), self._pieces(placed)], axis=1).reshape(-1)

    def _pieces(self, documents: Sequence[int] | Indices) -> Indices:
        return np.asarray(documents, np.int64) + self.pieces.labels


LABELS = 8192
"""The most documents of a numbered pile."""
CUT_TEXTS, CUT_TOGETHER = 64, 3
"""Texts of CUT_TOGETHER documents each that can be cut off after any word, for the last document."""
TRIED_COUNTS = 4
COMMON_SHARE = 0.02
"""A question is dropped when more than this share of all documents contains one of its answers ..."""
COMMON_AT_LEAST = 2
"""... and more than this number."""
UNTITLED = "Document:\n{text}"
TITLED = "Document: {title}\n{text}"
"""How a document is printed; one without a title is always printed UNTITLED."""
_WORD = re.compile(r"\w+")
_SAYS_LITTLE = frozenset(("yes", "no", "true", "false", "none"))


@dataclass(frozen=True, slots=True)
class FileQuestion:
    """A question with the documents that answer it and those that belong to the same article or context."""

    text: str
    answers: tuple[str, ...]
    gold: tuple[int, ...]
    related: Sequence[int]
    holders: frozenset[int] = frozenset()
    """Other documents that contain an answer."""
    labels: Mapping[str, str] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    """The answers to choose from, where they are a closed list."""


@dataclass(frozen=True)
class QuestionCorpus:
    """The documents of a file as they are printed, and the usable questions about them. Also a Source."""

    name: str
    documents: tuple[str, ...]
    questions: tuple[FileQuestion, ...]

    @cached_property
    def digest(self) -> str:
        return digest([list(self.documents), [[q.text, list(q.answers), list(q.gold)] for q in self.questions]])

    @cached_property
    def bank(self) -> PieceBank:
        pieces = [document + "\n\n" for document in self.documents[: self.fillers]]
        return PieceBank(self.name, digest(pieces), pieces, contiguous=False, ending="\n\n")

    numbered: str = ""
    """What is printed before each document, with `{number}`; empty if documents have no numbers."""
    fillers: int | None = None
    """The number of documents, the first ones, that may fill a pile; None if all may."""

    @cached_property
    def numbered_bank(self) -> NumberedBank:
        labels = [self.numbered.format(number=n) for n in range(1, LABELS + 1)]
        pieces = [*labels, *self.bank.pieces]
        cuts: dict[tuple[int, ...], tuple[int, int]] = {}
        order = rng("cut", self.name).sample(range(len(self.documents)), len(self.documents))
        for row in list(zip(*(order[n:] for n in range(CUT_TOGETHER)), strict=False))[:CUT_TEXTS]:
            text = " ".join(self.documents[number] for number in row)
            words = re.findall(r"^\S+|\s+\S+", text)
            cuts[row] = (len(pieces), len(pieces) + len(words))
            pieces += words
        bank = PieceBank(self.name, digest(pieces), pieces, contiguous=False)
        return NumberedBank(bank, LABELS, cuts)

    @cached_property
    def sizes(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """For each question, the characters of the documents that answer it."""
        return np.array([sum(len(self.documents[d]) for d in q.gold) for q in self.questions], np.int64)

    def filler(self, *, seed: int) -> Filler:
        everything = np.arange(len(self.bank.pieces))
        return DocumentPile(self.bank, everything[:0], everything, seed, prefix_stable=True)


@cache
def open_corpus(path: Path, *, form: str, split: Split, most: int) -> QuestionCorpus:
    """The documents and questions of a file in one split, with at most `most` questions drawn from it (0: all)."""
    questions = _of_split(list(read_questions(path)), split)
    if most and len(questions) > most:
        questions = rng("questions", path.name).sample(questions, most)
    everything = dict.fromkeys(d for question in questions for d in (*question.gold, *question.related))
    numbers = {document: number for number, document in enumerate(everything)}
    bodies = [" ".join(document.text.split()) for document in numbers]
    kept = tuple(_keep(questions, numbers, bodies))
    if not kept:
        raise SourceError(
            f"no question of {path.name} can be used: an answer must occur in its own document and in few others",
            where=str(path),
            fix="give a file with more questions and documents",
        )
    numbered, form = split_number(form)
    printed = tuple(
        (UNTITLED if form == TITLED and not document.title else form).format(title=document.title, text=body)
        for document, body in zip(numbers, bodies, strict=True)
    )
    return QuestionCorpus(path.name, printed, kept, numbered)


def split_number(form: str) -> tuple[str, str]:
    """The text of a document in two parts: up to its title or text, if that has its number, and the rest."""
    if "{number}" not in form:
        return "", form
    start = min(form.index(name) for name in ("{title}", "{text}") if name in form)
    if form.rindex("{number}") > start or not form[:start].endswith("\n"):
        raise UsageError(
            "a number must stand on a line of its own before the document", where="document",
            fix="write Document {number}:\\n{text}",
        )  # fmt: skip
    return form[:start], form[start:]


# --- selection of questions ---------------------------------------------------------------------


def _of_split(questions: list[RawQuestion], split: Split) -> list[RawQuestion]:
    """Questions whose own documents are all in this split, with the related documents of this split."""
    split_of_text = cache(split_of)  # most documents belong to many questions
    related: dict[int, tuple[FileDocument, ...]] = {}  # an article's paragraphs are one tuple for all its questions
    kept = []
    for question in questions:
        if not question.gold or any(split_of_text(d.text) != split for d in question.gold):
            continue
        if id(question.related) not in related:
            related[id(question.related)] = tuple(d for d in question.related if split_of_text(d.text) == split)
        kept.append(RawQuestion(question.text, question.answers, question.gold, related[id(question.related)]))
    return kept


def _keep(
    questions: Iterable[RawQuestion], numbers: Mapping[FileDocument, int], bodies: Sequence[str]
) -> Iterator[FileQuestion]:
    """Questions that their own documents answer and few others could; each text once."""
    index = _WordIndex(bodies)
    most = max(COMMON_AT_LEAST, int(COMMON_SHARE * len(bodies)))
    related: dict[int, tuple[int, ...]] = {}
    seen: set[str] = set()
    for question in questions:
        text = " ".join(question.text.split())
        answers = tuple(dict.fromkeys(" ".join(a.split()) for a in question.answers))
        if text in seen or any(_says_little(a) or _phrase(a) in _phrase(text) for a in answers):
            continue
        seen.add(text)
        gold = tuple(numbers[d] for d in question.gold)
        holders = index.holders(answers, gold, most)
        if holders is None:
            continue
        if id(question.related) not in related:
            related[id(question.related)] = tuple(numbers[d] for d in question.related)
        yield FileQuestion(text, answers, gold, related[id(question.related)], holders)


def _says_little(answer: str) -> bool:
    return sum(c.isalnum() for c in answer) < 2 or answer.lower().strip(" .") in _SAYS_LITTLE


def _phrase(text: str) -> str:
    """The words with one space around each, for whole-word search."""
    return f" {' '.join(_WORD.findall(text.lower()))} "


class _WordIndex:
    """Finds the documents that contain a phrase."""

    def __init__(self, bodies: Sequence[str]) -> None:
        self._phrases = [_phrase(body) for body in bodies]
        self._places: dict[str, array[int]] = {}
        for number, phrase in enumerate(self._phrases):
            for word in set(phrase.split()):
                self._places.setdefault(word, array("I")).append(number)

    def holders(self, answers: Sequence[str], gold: tuple[int, ...], most: int) -> frozenset[int] | None:
        """The documents beyond `gold` that contain an answer; None if they are more than `most`, or if an answer occurs
        in no document of `gold`."""
        holding: set[int] = set()
        for answer in answers:
            in_gold = False
            for number in self._with(_phrase(answer)):
                if number in gold:
                    in_gold = True
                    continue
                holding.add(number)
                if len(holding) > most:
                    return None
            if not in_gold:
                return None
        return frozenset(holding)

    def _with(self, phrase: str) -> Iterator[int]:
        """The documents that contain a phrase, searched among those with its rarest word."""
        rarest = min((self._places.get(word, array("I")) for word in phrase.split()), key=len)
        return (number for number in rarest if phrase in self._phrases[number])
