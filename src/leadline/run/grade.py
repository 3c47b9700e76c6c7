"""Grades prediction files of RULER: the numbers of its evaluator, and stricter ones with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from leadline.core.types import Cell, Completion, Match, Probe
from leadline.run.recording import bare_probe
from leadline.scorers.normalise import post_process
from leadline.scorers.ruler import STRICT, V1
from leadline.stats.intervals import Estimate, mean_interval
from leadline.store.ruler_files import Prediction, RulerFile, family_of_task, read_predictions, split_question


@dataclass(frozen=True, slots=True)
class GradedTask:
    """One task at one length. `score` and `nulls` are what RULER's evaluator prints."""

    task: str
    length: int | None
    metric: str
    score: float
    nulls: int
    published: Estimate
    """The same score from 0 to 1, with its interval."""
    strict: Estimate
    """Whole words only, further candidates penalised."""


def grade(files: Iterable[RulerFile]) -> list[GradedTask]:
    """One result per task and length; several files of one are its chunks."""
    ordered = sorted(files, key=lambda f: (f.task, f.length or 0))
    found = []
    for (task, length), chunks in groupby(ordered, key=lambda f: (f.task, f.length)):
        predictions = [p for chunk in chunks for p in read_predictions(chunk.path)]
        if predictions:
            found.append(_graded(task, length, predictions))
    return found


def _graded(task: str, length: int | None, predictions: Sequence[Prediction]) -> GradedTask:
    probes = [_probe(task, length, number, p) for number, p in enumerate(predictions)]
    answers = [Completion(p.pred) for p in predictions]
    names = [str(number) for number in range(len(predictions))]  # every sample of RULER has its own document
    published = [V1.score(p, a).value for p, a in zip(probes, answers, strict=True)]
    strict = [STRICT.score(p, a).value for p, a in zip(probes, answers, strict=True)]
    return GradedTask(
        task=task,
        length=length,
        metric="string_match_part" if probes[0].match == "any" else "string_match_all",
        score=round(sum(published) / len(published) * 100, 2),
        nulls=sum(not post_process(p.pred) for p in predictions),
        published=mean_interval(published, names),
        strict=mean_interval(strict, names),
    )


def _probe(task: str, length: int | None, number: int, prediction: Prediction) -> Probe:
    family = family_of_task(task)
    question = split_question(prediction.input)[1].strip()
    match: Match = "any" if family == "questions" else "all"
    return bare_probe(Cell(task, length or 0, None, number), question, prediction.outputs, match, family=family)
