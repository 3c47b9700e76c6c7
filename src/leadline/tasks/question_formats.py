"""Question files in the formats of SQuAD, HotpotQA (also 2WikiMultihopQA) and MuSiQue, read into one form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from leadline.core.files import decode_json, read_bytes


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
