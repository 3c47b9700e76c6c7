"""What judges grade, and what people label: the answers of a run with their evidence, what rules decide, known cases.

The evidence is cut from the document that was sent, which is built again: its text is not in the run folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from leadline.core import registry
from leadline.core.contracts import Task, Tokenizer
from leadline.core.drafts import Draft, Question
from leadline.core.errors import LeadlineError, UntrustedFile, UsageError
from leadline.core.records import Completion, Record
from leadline.core.seeds import digest_text, rng
from leadline.core.spec import Spec, make_spec
from leadline.core.types import Cell, Document, Frame, Match
from leadline.features.judges.admission import KNOWN_CASES
from leadline.features.judges.prompt import (
    ALLOWANCE,
    AROUND_CHARACTERS,
    JudgedSample,
    answer_text,
    decide,
    evidence_in,
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
from leadline.run.allowance import Allowances, extra_allowance, first_allowances, read_allowances
from leadline.run.costs import Cost
from leadline.run.documents import first_rows, planned_documents
from leadline.run.plan import Plan
from leadline.store.manifest import Manifest, read_manifest
from leadline.store.runs import read_records
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import open_tokenizer


@dataclass(slots=True)
class JudgeResult:
    """What one call did. `sent` counts verdicts asked for now, `kept` those that were there."""

    by_rule: int = 0
    sent: int = 0
    kept: int = 0
    failed: int = 0
    not_gradable: int = 0
    """Samples without targets."""
    without_surroundings: int = 0
    """Samples whose evidence was shown without the text around it, because the document could not be rebuilt."""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class VerdictRequest:
    """One verdict to ask a judge for. `make` builds the sample when its turn has come."""

    cell: Cell
    question: str
    targets: tuple[str, ...]
    answer: str
    make: Callable[[], JudgedSample]
    canary: str = ""
    expected: bool | None = None


def canary_requests() -> Iterator[VerdictRequest]:
    for case in KNOWN_CASES:
        sample = case.sample
        yield VerdictRequest(
            case.cell, sample.question, sample.targets, digest_text(sample.answer), partial(_itself, sample),
            case.kind, case.right,
        )  # fmt: skip


class AnswersToJudge:
    """The answers of a run, with what a judge needs to see of each."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        rubric: Rubric,
        result: JudgeResult | None = None,
        *,
        named: Sequence[str] = (),
        trust: bool = False,
    ) -> None:
        """Files of tasks and models are imported if they are `named` by the user or the folder is trusted."""
        kinds = {title: kind_of(task) for title, task in manifest.tasks.items()}
        self.rubric = rubric
        self._result = result or JudgeResult()
        self._evidence = _EvidenceFinder(
            folder, manifest, self._result, partial(registry.names_of_folder, folder, named, trust=trust)
        )
        found = [
            record
            for record in read_records(folder)
            if not record.failed
            and isinstance(record.outcome, Completion)
            and kinds.get(record.cell.task, "answer") != "logprob"
        ]
        self.records = [record for record in found if rubric_fits(rubric, record.targets)]
        self._result.not_gradable = len(found) - len(self.records)
        self._decided: set[str] = set()

    def decide(self) -> Iterator[tuple[Record, str, float]]:
        """What rules decide: the record, the rule and the value."""
        for record in self.records:
            match: Match = "all" if len(record.targets) < 2 else self._evidence.match(record)
            ruled = decide(record, match)
            if ruled is not None:
                self._decided.add(record.cell.key)
                yield record, ruled.rule, ruled.value

    def to_judge(self) -> Iterator[VerdictRequest]:
        for record in self.records:
            if record.cell.key not in self._decided:
                yield VerdictRequest(
                    record.cell, record.question, record.targets, answer_digest(record), partial(self.sample, record)
                )  # fmt: skip

    def sample(self, record: Record) -> JudgedSample:
        match, evidence = self._evidence.of(record)
        return JudgedSample(record.question, record.targets, answer_text(record), match, evidence)


def answer_digest(record: Record) -> str:
    assert isinstance(record.outcome, Completion)
    return digest_text(record.outcome.text)


class _EvidenceFinder:
    """The evidence of a sample with some text around it, from the document built again.

    The offsets on the record say whether it is the same document; where it is not, or cannot be built without the
    tested model, the evidence is shown without its surroundings, or not at all if the task has changed.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        result: JudgeResult,
        guard: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._result = result
        self._guard = guard
        """Held whenever a name of the folder may be resolved; tasks open their haystacks when they write."""
        self._rows: dict[str, tuple[Task, tuple[Cell, ...]]] = {}
        self._seed = 0
        self._fitter: Fitter | None = None
        self._allowances: Allowances = {}
        self._drafts: dict[tuple[Cell, ...], Draft] = {}
        self._documents: dict[tuple[tuple[Cell, ...], int], Document] = {}
        """By the cells of a document and the extra allowance it was made with."""
        try:
            with guard():
                self._open(folder, manifest)
        except UntrustedFile:
            raise
        except (LeadlineError, TypeError, KeyError, ValueError, AttributeError) as error:
            result.notes.append(f"judges see no evidence: the tasks of this run cannot be opened again ({error})")

    def _open(self, folder: Path, manifest: Manifest) -> None:
        spec = make_spec(manifest.spec, where="manifest")
        tasks = {t.title: registry.task(t) for t in spec.tasks}
        self._seed = spec.seed
        self._allowances = first_allowances(spec.allowance, spec.lengths) | read_allowances(folder)
        same = {t for t, task in tasks.items() if manifest.tasks.get(t, {}).get("version") == task.version}
        for planned in planned_documents(spec, tasks):
            if planned.cells[0].task in same and planned.task.request == "answer":
                self._rows |= {cell.key: (planned.task, planned.cells) for cell in planned.cells}
        tokenizer = _tokenizer_of(spec, manifest)
        if tokenizer is not None and manifest.frame:
            self._fitter = Fitter(tokenizer, Frame.load(manifest.frame))
            self._fitter.share_text(spec.depths, manifest.added_depths)

    def match(self, record: Record) -> Match:
        draft = self._draft(record)
        for question in draft.questions if draft is not None else ():
            if question.cell.key == record.cell.key:
                return question.match
        return "any" if next(iter(record.scores), "").endswith("any") else "all"

    def of(self, record: Record) -> tuple[Match, tuple[str, ...]]:
        match = self.match(record)
        draft = self._draft(record)
        needed = [fact.id for fact in record.facts]
        if draft is None or not needed:
            return match, ()
        texts = {fact.id: fact.text for fact in draft.facts}
        document = self._document(record)
        if document is None:
            self._result.without_surroundings += 1
            return match, tuple(texts[id_].strip() for id_ in needed if id_ in texts)
        start = document.body_start_characters
        return match, tuple(evidence_in(document.text, texts[id_], start) for id_ in needed if id_ in texts)

    def _draft(self, record: Record) -> Draft | None:
        row = self._rows.get(record.cell.key)
        if row is None:
            return None
        task, cells = row
        if cells not in self._drafts:
            with self._guard():
                self._drafts = {cells: task.write(cells, seed=self._seed)}  # records of one document follow each other
        return self._drafts[cells]

    def _document(self, record: Record) -> Document | None:
        """The document as it was sent; None if it cannot be built, or has the facts at other places."""
        row = self._rows.get(record.cell.key)
        if row is None or self._fitter is None:
            return None
        draft, made = self._draft(record), (row[1], extra_allowance(record))
        if made not in self._documents:
            if self._allowances:
                self._fitter.extra_allowance = {**self._allowances, record.cell.length: made[1]}
            try:
                assert draft is not None
                with self._guard():
                    self._documents = {made: self._fitter.fit(draft)}
            except UntrustedFile:
                raise
            except LeadlineError:
                return None
        document = self._documents[made]
        places = {fact.id: fact.start for fact in document.facts}
        return document if all(places.get(fact.id) == fact.start for fact in record.facts) else None


def _tokenizer_of(spec: Spec, manifest: Manifest) -> Tokenizer | None:
    """The tested model's tokenizer, opened without the model; None where only the model itself has it."""
    name = registry.ModelName.parse(spec.model)
    provider = registry.provider(name)
    named = str(getattr(provider, "tokenizer", "") or (name.name if Path(name.name).is_dir() else ""))
    if not named or named == "server":
        return None
    try:
        tokenizer = open_tokenizer(named)
    except LeadlineError:
        return None
    return tokenizer if tokenizer.fingerprint == manifest.fingerprints.get("model.tokenizer") else None


# --- drawing samples to label


@dataclass(frozen=True, slots=True)
class LabelDraw:
    """Samples that are worth a label, and the strata they come from."""

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


def write_label_draw(folder: Path, rubric: Rubric, count: int, *, trust: bool = False) -> int:
    """Writes the drawn answers to labels.csv and returns their number. Labels that are there stay."""
    drawn = draw_labels(folder, count, rubric.digest)
    if not drawn.keys:
        raise UsageError(
            f"no answers were judged by the rubric {rubric.title}",
            where=str(folder),
            fix="grade first: leadline judge RUN --with MODEL",
        )
    answers = AnswersToJudge(folder, read_manifest(folder), rubric, trust=trust)
    records = {record.cell.key: record for record in answers.records}
    rows = []
    for key in drawn.keys:
        record, sample = records[key], answers.sample(records[key])
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
    """How many of each stratum: two, or all of a smaller one, then in proportion to what is left."""
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


def _typical(draft: Draft, question: Question) -> JudgedSample:
    """A sample as a judge will see it, without an answer."""
    around = "word " * (2 * AROUND_CHARACTERS // 5)
    texts = [fact.text for fact in draft.facts if fact.id in question.facts]
    targets = ("target",) if callable(question.targets) else question.targets
    return JudgedSample(question.text, targets, "", question.match, tuple(f"{text} {around}" for text in texts))


def _itself(sample: JudgedSample) -> JudgedSample:
    return sample
