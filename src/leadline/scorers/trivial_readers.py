"""The scores of readers that understand nothing: they answer by position or form, without reading the question.

    first          the first strings that look like an answer
    last           the last ones
    only           all of them, where there are no more than are asked for
    most frequent  those that occur most often
    needle form    the first that stand in a sentence of the form in which facts are planted

A task on which one of them scores high measures whether a model finds conspicuous text. `leadline tasks show NAME` says
what they score.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from leadline.core import registry
from leadline.core.answers import Completion
from leadline.core.contracts import Task
from leadline.core.types import Cell, Document, Question
from leadline.scorers.answer_forms import form_of
from leadline.text.chat import completion_frame
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import WhitespaceTokenizer

READERS = ("first", "last", "only", "most frequent", "needle form")
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
LENGTH = 2048
SAMPLES = 8
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_CAPITALISED = r"[A-Z][\w'-]+"
_SHAPES = {"walks": re.compile(r"\w+(?= ->)|(?<=-> )\w+")}


def value_pattern(question: Question) -> re.Pattern[str]:
    """Strings that look like an answer to the question: one of a few known answers that the question does not name, a
    node, a line to copy, or numbers, UUIDs, names or words of the targets' sizes."""
    form, targets = form_of(question), question.targets
    if question.family in ("worlds", "records") and question.distractors:
        question_text = question.text.partition("?")[0]
        known = sorted({*targets, *question.distractors} - {d for d in question.distractors if d in question_text})
        return re.compile(rf"\b(?:{'|'.join(map(re.escape, known))})\b")
    if question.family in _SHAPES:
        return _SHAPES[question.family]
    if question.family == "ladder":
        return re.compile(r"(?<=: )[A-Z].+\?" if not question.answer_form else r"\b\d{2,4}\b")
    letters = sorted({len(t) for t in targets})
    sizes = f"{{{letters[0]},{letters[-1]}}}" if letters else "+"
    if form == "numbers":
        return re.compile(rf"(?<![\w.-])\d{sizes}(?![\w-])")
    if form == "uuids":
        return re.compile(rf"\b{_UUID}\b")
    if form == "names":
        return re.compile(rf"\b[A-Z]{sizes}\b")
    if form == "pairs":
        return re.compile(r"(?<![\w-])[a-z]+(?:-[a-z]+)+(?![\w-])")
    if all(t.islower() and " " not in t for t in targets):
        return re.compile(rf"\b[a-z]{sizes}\b")
    words = max(len(t.split()) for t in targets)
    return re.compile(rf"\b{_CAPITALISED}(?: {_CAPITALISED}){{{words - 1}}}")


def trivial_answers(text: str, question: Question, sentences: Sequence[str] = ()) -> dict[str, str]:
    """What each reader says after reading `text`. `sentences` are patterns of planted sentences."""
    wanted = 1 if question.match == "any" else len(dict.fromkeys(question.targets))
    shape = value_pattern(question)
    seen = shape.findall(text)
    distinct = list(dict.fromkeys(seen))
    inside = [
        value for pattern in sentences for match in re.finditer(pattern, text) for value in shape.findall(match[0])
    ]
    answers = {
        "first": distinct[:wanted],
        "last": list(dict.fromkeys(reversed(seen)))[:wanted],
        "only": distinct if len(distinct) <= wanted else [],
        "most frequent": [value for value, _ in Counter(seen).most_common(wanted)],
        "needle form": list(dict.fromkeys(inside))[:wanted],
    }
    return {reader: _in_form(", ".join(values), question) for reader, values in answers.items()}


def _in_form(answer: str, question: Question) -> str:
    """In the form that the question asks for, which readers that understand nothing are given for free."""
    if "{answer}" in question.answer_form and answer:
        answer = question.answer_form.format(answer=answer)
    return f"{question.code_word} {answer}" if question.code_word else answer


def planted_sentences(task: Task) -> list[str]:
    """Patterns for the sentences that a task plants, from its own templates."""
    parts: Mapping[str, object] = task.parts() if hasattr(task, "parts") else {}
    texts = [text for name, part in parts.items() if getattr(part, "planted", False) for text in task.texts(name)]  # type: ignore[attr-defined]
    return [re.sub(r"\\\{\w+\\\}", r"[^\\n]{1,60}?", re.escape(text)) for text in texts]


def trivial_scores(
    task: Task, title: str, *, length: int = LENGTH, samples: int = SAMPLES, depths: Sequence[float] = DEPTHS
) -> dict[float | None, dict[str, float]]:
    """By depth: the mean score of each reader over fresh documents of the task, by its headline scorer."""
    fitter = Fitter(WhitespaceTokenizer(), completion_frame())
    sentences = planted_sentences(task)
    rows: dict[float | None, dict[str, float]] = {}
    for depth in depths if task.has_depth else (None,):
        cells = [Cell(title, length, depth, sample) for sample in range(samples)]
        scores = [_read(task.document([cell], seed=0, fitter=fitter), sentences) for cell in cells]
        rows[depth] = {reader: sum(score[reader] for score in scores) / samples for reader in READERS}
    return rows


def mean_scores(rows: Mapping[float | None, Mapping[str, float]]) -> dict[str, float]:
    """The mean of each reader over all depths."""
    return {reader: sum(row[reader] for row in rows.values()) / len(rows) for reader in READERS}


def _read(document: Document, sentences: Sequence[str]) -> dict[str, float]:
    [probe] = document.probes
    text = document.text[document.body_start_characters : probe.cut_characters]
    scorer = registry.scorer(probe.question.scorers[0])
    answers = trivial_answers(text, probe.question, sentences)
    return {reader: scorer.score(probe.question, Completion(answer)).value for reader, answer in answers.items()}
