"""What judges said about the answers of a run: means, agreement, errors on known cases, labels by people.

A mean is naive (what the judge said) and, where there are labels by people, corrected; without labels it is called
uncorrected. It is never shown alone: beside it are the agreement of judges, the share of yes of each judge, and its
errors on the known cases. A reply without a verdict (`unparsed`) stays in the denominator as not right.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from leadline.core.answers import Completion
from leadline.core.errors import UsageError
from leadline.core.records import Record
from leadline.core.seeds import digest_text
from leadline.core.types import Cell
from leadline.features.judges.agreement import Agreement, agreement
from leadline.features.judges.correction import (
    Corrected,
    KnownCase,
    KnownCases,
    RoganGladen,
    Trend,
    corrected_mean,
    known_cases,
    rogan_gladen,
    trend,
)
from leadline.features.judges.verdicts import (
    LABELS,
    RULE,
    JudgeVerdict,
    LabelStrata,
    parse_label,
    read_draw,
    read_label_rows,
    read_verdicts,
)
from leadline.results.run import format_model
from leadline.stats.intervals import Estimate, mean_interval
from leadline.store.runs import read_records

UNPARSED = "unparsed"
RESAMPLES = 1000
PANEL = "median of all judges"
PART_LABELS = 10
"""With fewer labels at a length or depth its mean is not corrected: the interval would say nothing."""


@dataclass(frozen=True, slots=True)
class JudgeScore:
    """One judge, or the median of all, over all answers of the run or over one length or depth of it."""

    name: str
    families: tuple[str, ...]
    own_family: bool
    graded: int
    """Answers with a verdict of this judge."""
    unparsed: int
    failed: int
    yes_rate: float
    """The share of answers that it called right, among those sent to it."""
    naive: Estimate | None
    corrected: Corrected | None
    rogan_gladen: RoganGladen | None
    known: KnownCases | None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    requests: int = 0
    seconds: float = 0.0
    by_length: Mapping[int, JudgeScore] = field(default_factory=dict)
    by_depth: Mapping[float, JudgeScore] = field(default_factory=dict)


@dataclass(slots=True)
class JudgedAnswer:
    """One answer with all verdicts about it."""

    record: Record
    rule: JudgeVerdict | None = None
    verdicts: dict[str, JudgeVerdict] = field(default_factory=dict)
    """By the judge's identity."""

    @property
    def key(self) -> str:
        return self.record.cell.key


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The number of samples of one cell that all judges graded, and the number on which they differ."""

    samples: int
    differ: int


@dataclass(frozen=True, slots=True)
class RubricResults:
    """All verdicts of one rubric on a run."""

    rubric: str
    answers: int
    """Answers that can be judged: those that rules decided, and those that were sent."""
    by_rule: Mapping[str, int]
    sent: int
    judges: tuple[JudgeScore, ...]
    panel: JudgeScore | None
    """The median of all judges, where there are several."""
    agreement: Agreement | None
    by_length: Mapping[int, Agreement]
    by_depth: Mapping[float, Agreement]
    disagreement: Mapping[tuple[int, float | None], Disagreement]
    trend: Trend | None
    """How the agreement changes with every doubling of the length."""
    labels: int
    human: Estimate | None
    """The labels' own mean."""

    @property
    def is_corrected(self) -> bool:
        return any(score.corrected is not None for score in self.judges)


def read_judged(folder: Path | str, labels: Path | None = None) -> list[RubricResults]:
    """What judges said, one entry for each rubric that a judge has used; empty where nothing was judged.

    `labels` is a file of labels in place of the run's own.
    """
    folder = Path(folder)
    verdicts = read_verdicts(folder)
    if not verdicts:
        return []
    by_rubric: dict[str, list[JudgeVerdict]] = {}
    for verdict in verdicts.values():
        by_rubric.setdefault(verdict.rubric_digest, []).append(verdict)
    kept = {record.cell.key: record for record in read_records(folder)}
    file = labels or (folder / LABELS if (folder / LABELS).exists() else None)
    known_labels = read_labels(file, kept) if file is not None else {}
    if labels is not None and not known_labels:
        raise UsageError(
            "no label in this file belongs to an answer of the run",
            where=str(labels),
            fix="the column id has the keys of samples, as `leadline judge RUN --label 40` writes them",
        )
    draw = read_draw(folder)  # labels from another file may be those of the draw; strata do no harm to others
    used = [
        group
        for group in by_rubric.values()
        if any(verdict.judge != RULE for verdict in group) and not all(verdict.known_case for verdict in group)
    ]
    return [_judged(group, kept, known_labels, draw) for group in used]


def read_labels(path: Path, records: Mapping[str, Record]) -> dict[str, float]:
    """Labels by the key of their sample. A label of another answer than the one on the record is left out."""
    by_sample: dict[str, float] = {}
    for number, row in enumerate(read_label_rows(path), 2):
        label = parse_label(row["label"], f"{path}, line {number}")
        record = records.get(row["id"])
        if label is None or record is None or not isinstance(record.outcome, Completion):
            continue
        if row.get("answer_digest", "") in ("", digest_text(record.outcome.text)):
            by_sample[row["id"]] = label
    return by_sample


def _judged(
    verdicts: Sequence[JudgeVerdict],
    records: Mapping[str, Record],
    labels: Mapping[str, float],
    draw: LabelStrata | None,
) -> RubricResults:
    samples = judged_answers(verdicts, records)
    names = {v.identity: v for v in verdicts if v.judge != RULE}
    ruled = [s for s in samples if s.rule is not None]
    sent = [s for s in samples if s.rule is None]
    labels = {s.key: labels[s.key] for s in sent if s.key in labels}
    strata = draw.strata if draw is not None else {}
    graders = list(dict.fromkeys(identity for s in sent for identity in s.verdicts))
    both = [s for s in sent if len(s.verdicts) > 1 and len(s.verdicts) == len(graders)]
    ratings = [tuple(_rating(s.verdicts[identity]) for identity in graders) for s in both]
    return RubricResults(
        rubric=verdicts[0].rubric,
        answers=len(samples),
        by_rule=Counter(s.rule.reason for s in ruled if s.rule is not None),
        sent=len(sent),
        judges=tuple(
            _with_own_name(
                judge_score([first], samples, [v for v in verdicts if v.identity == identity], labels, strata),
                identity,
                [v.judge for v in names.values()].count(first.judge),
            )
            for identity, first in names.items()
        ),
        panel=judge_score([names[i] for i in graders], samples, [], labels, strata) if len(graders) > 1 else None,
        agreement=_agreement(both, ratings) if ratings else None,
        by_length=_agreement_by(both, ratings, lambda s: s.record.cell.length),
        by_depth=_agreement_by(both, ratings, lambda s: s.record.cell.depth),
        disagreement=_disagreements(both, ratings),
        trend=trend(
            [float(len(set(row)) == 1) for row in ratings],
            [s.record.cell.length for s in both],
            [s.record.cluster for s in both],
        ),
        labels=len(labels),
        human=mean_of([s for s in sent if s.key in labels], lambda s: labels[s.key]),
    )


def _with_own_name(score: JudgeScore, identity: str, namesakes: int) -> JudgeScore:
    """Judges of one name that are not the same, such as two versions of a rubric's prompt, show their identities."""
    return replace(score, name=f"{score.name} ({identity[:6]})") if namesakes > 1 else score


def judged_answers(verdicts: Sequence[JudgeVerdict], records: Mapping[str, Record]) -> list[JudgedAnswer]:
    """Answers with verdicts about exactly this answer: one that was asked again needs a new verdict."""
    by_cell: dict[str, JudgedAnswer] = {}
    for verdict in verdicts:
        record = records.get(verdict.cell.key)
        if verdict.known_case or record is None or not isinstance(record.outcome, Completion):
            continue
        if verdict.answer != digest_text(record.outcome.text):
            continue
        sample = by_cell.setdefault(verdict.cell.key, JudgedAnswer(record))
        if verdict.judge == RULE:
            sample.rule = verdict
        elif verdict.status != "failed":
            sample.verdicts[verdict.identity] = verdict
    return [s for s in by_cell.values() if s.rule is not None or s.verdicts]


# --- means of a judge ---------------------------------------------------------------------------


def judge_score(
    judges: Sequence[JudgeVerdict],
    samples: Sequence[JudgedAnswer],
    verdicts: Sequence[JudgeVerdict],
    labels: Mapping[str, float],
    strata: Mapping[str, str],
) -> JudgeScore:
    """The score of one judge, or of the median of several over the answers that all of them graded, with the same at
    every length and depth. `judges` has a verdict of each; `verdicts` are all of a single judge's own, those of known
    cases too."""

    def parts(coordinate: Callable[[Cell], Any]) -> dict[Any, JudgeScore]:
        values = sorted({at for s in samples if (at := coordinate(s.record.cell)) is not None})
        graded = [v for v in verdicts if not v.known_case]
        scores = {}
        for at in values:
            here = [s for s in samples if coordinate(s.record.cell) == at]
            scores[at] = _score(judges, here, [v for v in graded if coordinate(v.cell) == at], labels, strata)
        return {at: _without_few_labels(part) for at, part in scores.items()}

    by_length, by_depth = parts(lambda cell: cell.length), parts(lambda cell: cell.depth)
    return replace(_score(judges, samples, verdicts, labels, strata), by_length=by_length, by_depth=by_depth)


def _without_few_labels(part: JudgeScore) -> JudgeScore:
    labels = part.corrected.labels if part.corrected is not None else 0
    few = labels < min(PART_LABELS, part.graded)
    return replace(part, corrected=None, rogan_gladen=None) if few else part


def _score(
    judges: Sequence[JudgeVerdict],
    samples: Sequence[JudgedAnswer],
    verdicts: Sequence[JudgeVerdict],
    labels: Mapping[str, float],
    strata: Mapping[str, str],
) -> JudgeScore:
    identities = [judge.identity for judge in judges]
    graded = [s for s in samples if s.rule is None and all(i in s.verdicts for i in identities)]
    ruled = [s for s in samples if s.rule is not None]
    known = [KnownCase(v.known_case, bool(v.expected), v.value) for v in verdicts if v.known_case]

    def value(sample: JudgedAnswer) -> float:
        if sample.rule is not None:
            return sample.rule.value or 0.0
        return float(median(sample.verdicts[i].value or 0.0 for i in identities))

    failed = sum(v.status == "failed" and not v.known_case for v in verdicts)
    # Rules alone are no result of a judge that graded nothing of what it was sent.
    idle = not graded and (failed > 0 or len(ruled) < len(samples))
    chosen = {s.key for s in (*graded, *(() if idle else ruled))}
    return JudgeScore(
        name=format_model(judges[0].judge) if len(judges) == 1 else PANEL,
        families=tuple(dict.fromkeys(family for judge in judges for family in judge.families)),
        own_family=any(judge.own_family for judge in judges),
        graded=len(graded),
        unparsed=sum(all(s.verdicts[i].status == "unparsed" for i in identities) for s in graded),
        failed=failed,
        yes_rate=sum(value(s) >= 1 for s in graded) / len(graded) if graded else math.nan,
        known=known_cases(known) if known else None,
        prompt_tokens=sum(v.prompt_tokens for v in verdicts),
        completion_tokens=sum(v.completion_tokens for v in verdicts),
        cached_tokens=sum(v.cached_tokens for v in verdicts),
        requests=sum(v.replies for v in verdicts),
        seconds=sum(v.seconds for v in verdicts),
        **_means([s for s in samples if s.key in chosen], value, labels, strata),
    )


def _means(
    samples: Sequence[JudgedAnswer],
    value: Callable[[JudgedAnswer], float],
    labels: Mapping[str, float],
    strata: Mapping[str, str],
) -> dict[str, Any]:
    """The naive mean and the corrected ones. What a rule decided is taken as known."""
    values = [value(s) for s in samples]
    clusters = [s.record.cluster for s in samples]
    known = [v if s.rule is not None else labels.get(s.key) for s, v in zip(samples, values, strict=True)]
    drawn = [RULE if s.rule is not None else strata.get(s.key, "") for s in samples]
    judged = [s for s in samples if s.rule is None]
    has_labels = any(s.key in labels for s in judged)
    corrected = corrected_mean(values, clusters, known, drawn) if has_labels else None
    return {
        "naive": mean_of(samples, value),
        "corrected": replace(corrected, labels=sum(s.key in labels for s in judged)) if corrected else None,
        "rogan_gladen": rogan_gladen(
            [value(s) for s in judged],
            [s.record.cluster for s in judged],
            [labels.get(s.key) for s in judged],
            [strata.get(s.key, "") for s in judged],
            decided=[(value(s), s.record.cluster) for s in samples if s.rule is not None],
        )
        if has_labels
        else None,
    }


def mean_of(samples: Sequence[JudgedAnswer], value: Callable[[JudgedAnswer], float]) -> Estimate | None:
    return mean_interval([value(s) for s in samples], [s.record.cluster for s in samples]) if samples else None


# --- agreement ----------------------------------------------------------------------------------


def _rating(verdict: JudgeVerdict) -> str:
    """What a judge said; no verdict is a rating of its own."""
    return UNPARSED if verdict.value is None else f"{verdict.value:.3g}"


def _agreement(samples: Sequence[JudgedAnswer], ratings: Sequence[tuple[str, ...]]) -> Agreement:
    return agreement(ratings, clusters=[s.record.cluster for s in samples], resamples=RESAMPLES)


def _agreement_by(
    samples: Sequence[JudgedAnswer], ratings: Sequence[tuple[str, ...]], coordinate: Callable[[JudgedAnswer], Any]
) -> dict[Any, Agreement]:
    values = sorted({coordinate(s) for s in samples if coordinate(s) is not None})
    rows = {at: [i for i, s in enumerate(samples) if coordinate(s) == at] for at in values}
    return {
        at: _agreement([samples[i] for i in indices], [ratings[i] for i in indices]) for at, indices in rows.items()
    }


def _disagreements(
    samples: Sequence[JudgedAnswer], ratings: Sequence[tuple[str, ...]]
) -> dict[tuple[int, float | None], Disagreement]:
    cells: dict[tuple[int, float | None], Disagreement] = {}
    for sample, row in zip(samples, ratings, strict=True):
        point = (sample.record.cell.length, sample.record.cell.depth)
        before = cells.get(point, Disagreement(0, 0))
        cells[point] = Disagreement(before.samples + 1, before.differ + (len(set(row)) > 1))
    return cells
