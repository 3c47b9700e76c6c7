"""Grades prediction files made elsewhere, with intervals: of RULER by its evaluator and stricter, and of LongBench,
InfiniteBench and BABILong by their rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from leadline.core import registry
from leadline.core.answers import Completion
from leadline.core.errors import UnknownName
from leadline.core.records import Score
from leadline.core.types import Match, Question
from leadline.features.published import infinitebench_scorers as infinitebench
from leadline.features.published import longbench_scorers as longbench
from leadline.features.published.benchmark_files import E_BINS, INFINITEBENCH, LONGBENCH
from leadline.features.published.harness_logs import HarnessLog, LoggedAnswer
from leadline.features.published.prediction_files import Benchmark, PublishedAnswer
from leadline.scorers.match import ALL as MATCH_ALL
from leadline.scorers.match import ANY as MATCH_ANY
from leadline.scorers.match import RULER_STRICT, RULER_V1
from leadline.scorers.normalise import post_process
from leadline.scorers.overlap import EditBackend
from leadline.stats.intervals import Estimate, mean_interval
from leadline.store.ruler_files import Prediction, RulerFile, family_of_task, read_predictions, split_question

# --- RULER


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
    """Whole tokens only, and 0 beside another value of the same kind."""


def grade(files: Iterable[RulerFile]) -> list[GradedTask]:
    """One result per task and length; several files of one are its chunks."""
    ordered = sorted(files, key=lambda f: (f.task, f.length or 0))
    graded = []
    for (task, length), chunks in groupby(ordered, key=lambda f: (f.task, f.length)):
        predictions = [p for chunk in chunks for p in read_predictions(chunk.path)]
        if predictions:
            graded.append(_graded(task, length, predictions))
    return graded


def grade_logs(logs: Iterable[HarnessLog]) -> list[GradedTask]:
    """One result per task and length of the logs of another harness. Answers to one sample are one document."""
    tasks: dict[tuple[str, int | None], list[LoggedAnswer]] = {}
    for log in logs:
        for task in log.tasks:
            tasks.setdefault((task.task, task.length), []).extend(task.answers)
    return [
        _graded_answers(
            task, length, [a.question for a in answers], [a.text for a in answers], [str(a.id) for a in answers]
        )
        for (task, length), answers in sorted(tasks.items(), key=lambda item: (item[0][0], item[0][1] or 0))
        if answers
    ]


def headline_score(answer: LoggedAnswer) -> Score:
    """The score that a run would show for this answer."""
    if answer.question.scorers:
        return registry.scorer(answer.question.scorers[0]).score(answer.question, Completion(answer.text))
    return (MATCH_ALL if answer.question.match == "all" else MATCH_ANY).score(answer.question, Completion(answer.text))


def _graded(task: str, length: int | None, predictions: Sequence[Prediction]) -> GradedTask:
    questions = [_question(task, prediction) for prediction in predictions]
    names = [str(number) for number in range(len(predictions))]  # every sample of RULER has its own document
    return _graded_answers(task, length, questions, [p.pred for p in predictions], names)


def _graded_answers(
    task: str, length: int | None, questions: Sequence[Question], texts: Sequence[str], names: Sequence[str]
) -> GradedTask:
    answers = [Completion(text) for text in texts]
    own = questions[0].scorers  # of a question that Leadline wrote, the headline first and the strictest last
    first, last = (registry.scorer(own[0]), registry.scorer(own[-1])) if own else (RULER_V1, RULER_STRICT)
    published = [first.score(p, a).value for p, a in zip(questions, answers, strict=True)]
    strict = [last.score(p, a).value for p, a in zip(questions, answers, strict=True)]
    return GradedTask(
        task=task,
        length=length,
        metric=own[0] if own else "string_match_part" if questions[0].match == "any" else "string_match_all",
        score=round(sum(published) / len(published) * 100, 2),
        nulls=sum(not post_process(text) for text in texts),
        published=mean_interval(published, names),
        strict=mean_interval(strict, names),
    )


def _question(task: str, prediction: Prediction) -> Question:
    family = family_of_task(task)
    text = split_question(prediction.input)[1].strip()
    match: Match = "any" if family == "questions" else "all"
    return Question(text, targets=tuple(prediction.outputs), match=match, family=family)


# --- LongBench, InfiniteBench, BABILong

FORK_BINS = ((4000, "0-4k"), (8000, "4-8k"), (16000, "8-16k"), (32000, "16-32k"), (None, "32k+"))
"""Finer bins that some forks of LongBench-E print."""


@dataclass(frozen=True, slots=True)
class PublishedScore:
    """One task, or one group of its answers. `score` is what the official script prints, to its digits."""

    task: str
    group: str
    metric: str
    score: float
    official: Estimate
    strict: Estimate | None = None
    """Without the credit that the official rule gives for a list of guesses; None where it gives none."""


@dataclass(frozen=True, slots=True)
class _Graded:
    task: str
    groups: tuple[str, ...]
    metric: str
    official: float
    strict: float | None


def grade_published(
    benchmark: Benchmark,
    answers: Iterable[PublishedAnswer],
    *,
    backend: EditBackend = "difflib",
    compensated: bool = False,
    fine_bins: bool = False,
) -> list[PublishedScore]:
    """The official score of every task (and length bin, difficulty, domain), with intervals."""
    rule = _RULES[benchmark]
    options = _Options(backend, compensated, FORK_BINS if fine_bins else E_BINS)
    cells: dict[tuple[str, str], list[_Graded]] = {}
    for answer in answers:
        graded = rule(answer, options)
        for group in graded.groups:
            cells.setdefault((graded.task, group), []).append(graded)
    digits = 1 if benchmark in ("longbench-v2", "babilong") else 2
    return [_summarise(task, group, graded, digits) for (task, group), graded in cells.items()]


@dataclass(frozen=True, slots=True)
class _Options:
    backend: EditBackend
    compensated: bool
    bins: tuple[tuple[int | None, str], ...]


def _summarise(task: str, group: str, graded: list[_Graded], digits: int) -> PublishedScore:
    names = [str(number) for number in range(len(graded))]  # every sample has a document of its own
    official = [g.official for g in graded]
    strict = [g.strict for g in graded if g.strict is not None]
    return PublishedScore(
        task,
        group,
        graded[0].metric,
        round(100 * sum(official) / len(official), digits),
        mean_interval(official, names),
        mean_interval(strict, names) if strict else None,
    )


def _longbench(answer: PublishedAnswer, options: _Options) -> _Graded:
    return _longbench_in(answer, options, ("",))


def _longbench_e(answer: PublishedAnswer, options: _Options) -> _Graded:
    length = int(answer.groups["length"] or 0)
    name = next(name for end, name in options.bins if end is None or length < end)
    return _longbench_in(answer, options, (name,))


def _longbench_in(answer: PublishedAnswer, options: _Options, groups: tuple[str, ...]) -> _Graded:
    task = LONGBENCH.get(answer.task)
    if task is None:
        raise UnknownName("task of LongBench", answer.task, LONGBENCH, where=answer.where)
    value = longbench.score(task, answer.prediction, answer.reference, answer.classes, options.backend)
    gamed = task.metric in ("count", "retrieval", "retrieval_zh", "classification")
    strict = longbench.strict_score(task, answer.prediction, answer.reference, answer.classes) if gamed else None
    metric = f"{task.metric}[{options.backend}]" if task.metric == "code_similarity" else task.metric
    return _Graded(task.name, groups, metric, value, strict)


def _longbench_v2(answer: PublishedAnswer, options: _Options) -> _Graded:
    letter = longbench.v2_choice(answer.prediction)
    missed = longbench.V2_COMPENSATION if options.compensated else 0.0
    value = missed if letter is None else float(letter == answer.reference)
    groups = ("", *(answer.groups[name] for name in ("difficulty", "length", "domain")))
    return _Graded(answer.task, groups, "accuracy[compensated]" if options.compensated else "accuracy", value, None)


def _infinitebench(answer: PublishedAnswer, options: _Options) -> _Graded:
    task = INFINITEBENCH.get(answer.task)
    if task is None:
        raise UnknownName("task of InfiniteBench", answer.task, INFINITEBENCH, where=answer.where)
    value = infinitebench.RULES[task.metric](answer.prediction, answer.reference)
    return _Graded(task.name, ("",), task.metric, value, None)


def _babilong(answer: PublishedAnswer, options: _Options) -> _Graded:
    if answer.task not in longbench.BABILONG_LABELS:
        raise UnknownName("task of BABILong", answer.task, longbench.BABILONG_LABELS, where=answer.where)
    value = longbench.babilong(answer.task, answer.prediction, answer.reference, answer.question)
    return _Graded(answer.task, (answer.groups["length"],), "label", value, None)


_RULES: dict[Benchmark, Callable[[PublishedAnswer, _Options], _Graded]] = {
    "longbench": _longbench,
    "longbench-e": _longbench_e,
    "longbench-v2": _longbench_v2,
    "infinitebench": _infinitebench,
    "babilong": _babilong,
}
