"""What judges said about the answers of a run: means, agreement, errors on known cases, labels by people.

A judged mean is never shown alone. Beside it are how often judges agree, how often each says yes, what it makes of the
known cases, and the mean corrected with labels by people; without labels it is called uncorrected. A reply without a
verdict (`unparsed`) stays in the denominator as not right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline.core.errors import UsageError
from leadline.core.records import Completion, Record
from leadline.core.seeds import digest_text
from leadline.results.judged_means import JudgedAnswer, JudgeScore, judge_score, mean_of, panel_score
from leadline.stats.agreement import Agreement, agreement
from leadline.stats.intervals import Estimate
from leadline.stats.judged import Trend, trend
from leadline.store.runs import read_records
from leadline.store.verdicts import (
    LABELS,
    RULE,
    Draw,
    JudgeVerdict,
    parse_label,
    read_draw,
    read_label_rows,
    read_verdicts,
)

UNPARSED = "unparsed"
RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Samples of one place of the map that all judges graded, and on how many they differ."""

    samples: int
    differ: int


@dataclass(frozen=True, slots=True)
class Judged:
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
    labels_used: str = ""

    @property
    def is_corrected(self) -> bool:
        return any(score.corrected is not None for score in self.judges)


def read_judged(
    folder: Path | str, labels: Path | None = None, records: Iterable[Record] | None = None
) -> list[Judged]:
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
    kept = {record.cell.key: record for record in (records if records is not None else read_records(folder))}
    file = labels or (folder / LABELS if (folder / LABELS).exists() else None)
    given = read_labels(file, kept) if file is not None else {}
    if labels is not None and not given:
        raise UsageError(
            "no label in this file belongs to an answer of the run",
            where=str(labels),
            fix="the column id has the keys of samples, as `leadline judge RUN --label 40` writes them",
        )
    draw = read_draw(folder) if labels is None else None
    used = [v for v in by_rubric.values() if any(one.judge != RULE for one in v) and not all(one.canary for one in v)]
    return [_judged(found, kept, given, draw, str(file or "")) for found in used]


def read_labels(path: Path, records: Mapping[str, Record]) -> dict[str, float]:
    """Labels by the key of their sample. A label of another answer than the one on the record is left out."""
    found: dict[str, float] = {}
    for number, row in enumerate(read_label_rows(path), 2):
        label = parse_label(row["label"], f"{path}, line {number}")
        record = records.get(row["id"])
        if label is None or record is None or not isinstance(record.outcome, Completion):
            continue
        if row.get("answer_digest", "") in ("", digest_text(record.outcome.text)):
            found[row["id"]] = label
    return found


def _judged(
    verdicts: Sequence[JudgeVerdict],
    records: Mapping[str, Record],
    labels: Mapping[str, float],
    draw: Draw | None,
    labels_used: str,
) -> Judged:
    samples = judged_answers(verdicts, records)
    names = {v.identity: v for v in verdicts if v.judge != RULE}
    ruled = [s for s in samples if s.rule is not None]
    sent = [s for s in samples if s.rule is None]
    labels = {key: label for key, label in labels.items() if key in {s.key for s in sent}}
    strata = draw.strata if draw is not None else {}
    graders = _graders(sent)
    both = [s for s in sent if len(s.verdicts) > 1 and len(s.verdicts) == len(graders)]
    ratings = [_ratings(s, graders) for s in both]
    return Judged(
        rubric=verdicts[0].rubric,
        answers=len(samples),
        by_rule=Counter(s.rule.reason for s in ruled if s.rule is not None),
        sent=len(sent),
        judges=tuple(
            judge_score(first, samples, [v for v in verdicts if v.identity == identity], labels, strata)
            for identity, first in names.items()
        ),
        panel=panel_score(samples, len(graders), labels, strata) if len(graders) > 1 else None,
        agreement=_agreement(ratings),
        by_length=_agreement_by(both, ratings, lambda s: s.record.cell.length),
        by_depth=_agreement_by(both, ratings, lambda s: s.record.cell.depth),
        disagreement=_disagreements(both, ratings),
        trend=_agreement_trend(both, ratings),
        labels=len(labels),
        human=mean_of([s for s in sent if s.key in labels], lambda s: labels[s.key]),
        labels_used=labels_used,
    )


def judged_answers(verdicts: Sequence[JudgeVerdict], records: Mapping[str, Record]) -> list[JudgedAnswer]:
    """Answers with verdicts about exactly this answer: one that was asked again needs a new verdict."""
    found: dict[str, JudgedAnswer] = {}
    for verdict in verdicts:
        record = records.get(verdict.cell.key)
        if verdict.canary or record is None or not isinstance(record.outcome, Completion):
            continue
        if verdict.answer != digest_text(record.outcome.text):
            continue
        sample = found.setdefault(verdict.cell.key, JudgedAnswer(record))
        if verdict.judge == RULE:
            sample.rule = verdict
        elif verdict.status != "failed":
            sample.verdicts[verdict.identity] = verdict
    return [s for s in found.values() if s.rule is not None or s.verdicts]


# --- agreement


def _graders(sent: Sequence[JudgedAnswer]) -> list[str]:
    return list(dict.fromkeys(identity for s in sent for identity in s.verdicts))


def _ratings(sample: JudgedAnswer, graders: Sequence[str]) -> tuple[str, ...]:
    """What each judge said; no verdict is a label of its own."""
    return tuple(_label(sample.verdicts[identity]) for identity in graders)


def _label(verdict: JudgeVerdict) -> str:
    return UNPARSED if verdict.value is None else f"{verdict.value:.3g}"


def _agreement(ratings: Sequence[tuple[str, ...]]) -> Agreement | None:
    return agreement(ratings, resamples=RESAMPLES) if ratings else None


def _agreement_by(
    samples: Sequence[JudgedAnswer], ratings: Sequence[tuple[str, ...]], place: Callable[[JudgedAnswer], Any]
) -> dict[Any, Agreement]:
    places = sorted({place(s) for s in samples if place(s) is not None})
    return {
        at: agreement([r for s, r in zip(samples, ratings, strict=True) if place(s) == at], resamples=RESAMPLES)
        for at in places
    }


def _disagreements(
    samples: Sequence[JudgedAnswer], ratings: Sequence[tuple[str, ...]]
) -> dict[tuple[int, float | None], Disagreement]:
    found: dict[tuple[int, float | None], Disagreement] = {}
    for sample, row in zip(samples, ratings, strict=True):
        place = (sample.record.cell.length, sample.record.cell.depth)
        before = found.get(place, Disagreement(0, 0))
        found[place] = Disagreement(before.samples + 1, before.differ + (len(set(row)) > 1))
    return found


def _agreement_trend(samples: Sequence[JudgedAnswer], ratings: Sequence[tuple[str, ...]]) -> Trend | None:
    agree = [float(len(set(row)) == 1) for row in ratings]
    return trend(agree, [s.record.cell.length for s in samples], [s.record.cluster for s in samples])
