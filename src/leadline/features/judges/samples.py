"""What judges grade, and what people label: the answers of a run with their evidence, what rules decide, known cases.

The evidence, with some of the text around it, is on the record: no document is built again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from leadline.core.answers import Completion
from leadline.core.drafts import Draft, DraftQuestion
from leadline.core.errors import UsageError
from leadline.core.records import Record
from leadline.core.seeds import digest_text, rng
from leadline.core.types import Cell
from leadline.features.judges.admission import KNOWN_CASES
from leadline.features.judges.prompt import (
    ALLOWANCE,
    JudgedSample,
    answer_text,
    decide,
    make_prompt,
    rubric_fits,
)
from leadline.features.judges.results import JudgedAnswer, judged_answers
from leadline.features.judges.rubric import Rubric, load_rubric
from leadline.features.judges.verdicts import (
    LABELS,
    LabelStrata,
    label_key,
    labels_locked,
    read_draw,
    read_label_rows,
    read_verdicts,
    write_draw,
    write_labels,
)
from leadline.results.run import kind_of
from leadline.run.documents import first_rows
from leadline.run.estimate import Cost
from leadline.run.plan import Plan
from leadline.run.recording import EVIDENCE_MARGIN
from leadline.store.manifest import Manifest, read_manifest
from leadline.store.runs import read_records


@dataclass(slots=True)
class JudgeResult:
    """The result of one call. `sent` counts verdicts asked for now, `kept` the earlier ones."""

    by_rule: int = 0
    sent: int = 0
    kept: int = 0
    failed: int = 0
    not_gradable: int = 0
    """Samples without targets."""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class VerdictRequest:
    """One verdict to ask a judge for. `make` builds the sample when its turn has come."""

    cell: Cell
    question: str
    targets: tuple[str, ...]
    answer: str
    make: Callable[[], JudgedSample]
    known_case: str = ""
    expected: bool | None = None


def known_case_requests() -> Iterator[VerdictRequest]:
    for case in KNOWN_CASES:
        sample = case.sample
        yield VerdictRequest(
            case.cell, sample.question, sample.targets, digest_text(sample.answer), partial(_itself, sample),
            case.kind, case.right,
        )  # fmt: skip


class AnswersToJudge:
    """The answers of a run, with what a judge needs to see of each."""

    def __init__(self, folder: Path, manifest: Manifest, rubric: Rubric, result: JudgeResult | None = None) -> None:
        kinds = {title: kind_of(task) for title, task in manifest.tasks.items()}
        self.rubric = rubric
        result = result or JudgeResult()
        answered = [
            record
            for record in read_records(folder)
            if not record.failed
            and isinstance(record.outcome, Completion)
            and kinds.get(record.cell.task, "answer") != "logprob"
        ]
        self.records = [record for record in answered if rubric_fits(rubric, record.question.targets)]
        result.not_gradable = len(answered) - len(self.records)
        self._decided: set[str] = set()

    def decide(self) -> Iterator[tuple[Record, str, float]]:
        """What rules decide: the record, the rule and the value."""
        for record in self.records:
            ruled = decide(record)
            if ruled is not None:
                self._decided.add(record.cell.key)
                yield record, ruled.rule, ruled.value

    def to_judge(self) -> Iterator[VerdictRequest]:
        for record in self.records:
            if record.cell.key not in self._decided:
                yield VerdictRequest(
                    record.cell, record.question.text, record.question.targets, answer_digest(record),
                    partial(judged_sample, record),
                )  # fmt: skip


def judged_sample(record: Record) -> JudgedSample:
    question = record.question
    return JudgedSample(question.text, question.targets, answer_text(record), question.match, record.evidence)


def answer_digest(record: Record) -> str:
    assert isinstance(record.outcome, Completion)
    return digest_text(record.outcome.text)


# --- drawing samples to label


@dataclass(frozen=True, slots=True)
class LabelDraw:
    """Samples to label by hand, and the strata they come from."""

    keys: tuple[str, ...]
    draw: LabelStrata


def draw_labels(folder: Path | str, count: int, rubric: str) -> LabelDraw:
    """Draws samples over verdicts and lengths: from every stratum at least two, the rest in proportion.

    Samples on which judges differ are strata of their own. A second draw keeps the strata of the first and adds to it.
    """
    records = {record.cell.key: record for record in read_records(folder)}
    verdicts = [v for v in read_verdicts(folder).values() if v.rubric_digest == rubric]
    earlier = read_draw(Path(folder))
    strata = {s.key: _stratum(s) for s in judged_answers(verdicts, records) if s.rule is None}
    if earlier is not None and earlier.rubric == rubric:
        strata |= {key: stratum for key, stratum in earlier.strata.items() if key in strata}
    groups: dict[str, list[str]] = {}
    for key, stratum in strata.items():
        groups.setdefault(stratum, []).append(key)
    draw = rng(0, "labels", rubric)
    for keys in groups.values():
        draw.shuffle(keys)
    keys = [key for stratum, size in _allocate(groups, count).items() for key in groups[stratum][:size]]
    draw.shuffle(keys)
    return LabelDraw(tuple(keys), LabelStrata(rubric, strata))


def write_label_draw(folder: Path, rubric: Rubric, count: int) -> int:
    """Writes the drawn answers to labels.csv and returns their number. Labels that are there stay."""
    drawn = draw_labels(folder, count, rubric.digest)
    if not drawn.keys:
        raise UsageError(
            f"no answers were judged by the rubric {rubric.title}",
            where=str(folder),
            fix="grade first: leadline judge RUN --with MODEL",
        )
    answers = AnswersToJudge(folder, read_manifest(folder), rubric)
    records = {record.cell.key: record for record in answers.records}
    rows = []
    for key in drawn.keys:
        record, sample = records[key], judged_sample(records[key])
        row = {
            "id": key,
            "question": sample.question,
            "targets": "\n".join(sample.targets),
            "evidence": "\n\n".join(sample.evidence),
            "answer": sample.answer,
            "answer_digest": answer_digest(record),
        }
        rows.append(row)
    with labels_locked(folder):
        path = folder / LABELS
        kept = {label_key(row): row for row in (read_label_rows(path) if path.exists() else [])}
        rows = [row | {"label": kept.pop(label_key(row), {}).get("label", "")} for row in rows]
        labelled = [row for row in kept.values() if row.get("label")]
        write_labels(folder, [*rows, *({k: row.get(k, "") for k in rows[0]} for row in labelled)])
        write_draw(folder, drawn.draw)
    return len(rows)


def _stratum(sample: JudgedAnswer) -> str:
    values = [verdict.value or 0.0 for verdict in sample.verdicts.values()]
    verdict = "differ" if len(set(values)) > 1 else "right" if values[0] >= 1 else "wrong" if not values[0] else "part"
    return f"{verdict} {sample.record.cell.length}"


def _allocate(groups: Mapping[str, Sequence[str]], count: int) -> dict[str, int]:
    """The number of samples of each stratum: two, or all of a smaller one; then in proportion to the rest."""
    order = sorted(groups, key=lambda stratum: -len(groups[stratum]))
    sizes = dict.fromkeys(groups, 0)
    for stratum in order:
        if sum(sizes.values()) + min(2, len(groups[stratum])) <= count:
            sizes[stratum] = min(2, len(groups[stratum]))
    while sum(sizes.values()) < min(count, sum(map(len, groups.values()))):
        room = [s for s in order if sizes[s] < len(groups[s])]
        sizes[max(room, key=lambda s: (len(groups[s]) / (sizes[s] + 1), s))] += 1
    return sizes


# --- cost


def judge_cost(plan: Plan) -> Cost:
    """The most that one judge of a plan costs, in the tokens of the tested model: rules may decide many answers."""
    rubric, encode, seed = load_rubric(plan.spec.judges.rubric), plan.fitter.tokenizer.encode, plan.spec.seed

    def tokens(sample: JudgedSample) -> int:
        return len(encode(make_prompt(rubric, sample).text))

    known = [tokens(case.sample) for case in KNOWN_CASES]
    total = Cost(len(known), sum(known), sum(known), ALLOWANCE * len(known))
    for title, task in plan.tasks.items():
        if task.request != "answer":
            continue
        drafts = [task.write(row, seed=seed) for row in first_rows(plan.spec, title, task)]
        sizes = [tokens(_typical(draft, q)) + q.allowance for draft in drafts for q in draft.questions[:1]]
        count = plan.costs[title].requests
        prompt = round(sum(sizes) / len(sizes)) * count
        total += Cost(count, prompt, prompt, ALLOWANCE * count)
    return total


def _typical(draft: Draft, question: DraftQuestion) -> JudgedSample:
    """A sample as a judge will see it, without an answer."""
    around = "word " * (2 * EVIDENCE_MARGIN // 5)
    texts = [fact.text for fact in draft.facts if fact.id in question.facts]
    targets = question.targets or ("target",)
    return JudgedSample(question.text, targets, "", question.match, tuple(f"{text} {around}" for text in texts))


def _itself(sample: JudgedSample) -> JudgedSample:
    return sample
