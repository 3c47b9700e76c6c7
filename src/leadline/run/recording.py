"""From an answer to a record: with scores unless it is a failure, and always with a failure class. And from a record
to another: the saved answer graded again, by other scorers or by a new version of the same ones."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from leadline.core import registry
from leadline.core.answers import Answer, Completion, Failure, Measurement, Outcome, Sent
from leadline.core.contracts import Scorer
from leadline.core.errors import LeadlineError, UnreadableRecord, UsageError
from leadline.core.records import SLACK_TOKENS, FailureClass, Needs, PlantedRecord, Receipt, Record, Score
from leadline.core.secrets import redact, redact_used
from leadline.core.seeds import digest
from leadline.core.spec import TaskSpec
from leadline.core.types import Document, Probe, Question, Reading
from leadline.run.retry import Asked
from leadline.scorers.failure import FEWER_TOKENS_READ, classify, value_of_another_line
from leadline.scorers.match import abstention
from leadline.store.manifest import MANIFEST, Manifest, read_manifest
from leadline.store.runs import AGAIN, RunWriter, every_record, locked, replace_records


def receipt_for(ours: int, outcome: Outcome, cacheable: int = 0, *, estimated: bool = False) -> Receipt:
    """Our count and the model's own, which failures and measurements do not have.

    A count that is short, but not when the cached tokens are added, is that of a server that leaves those out.
    """
    if not isinstance(outcome, Completion) or outcome.prompt_tokens is None:
        return Receipt(ours, None, cacheable=cacheable, estimated=estimated)
    if estimated:
        return Receipt(ours, outcome.prompt_tokens, cacheable=cacheable, estimated=True)
    plain = Receipt(ours, outcome.prompt_tokens, cacheable=cacheable)
    cached = (outcome.cached_tokens or 0) + (outcome.cache_write_tokens or 0)
    left_out = plain.short and abs(outcome.prompt_tokens + cached - ours) <= SLACK_TOKENS
    return Receipt(ours, outcome.prompt_tokens, cached, cacheable) if left_out else plain


GRADED_CHARACTERS_PER_TOKEN = 32
GRADED_CHARACTERS_AT_LEAST = 16_384
CUT_NOTE = "the answer is far longer than its allowance: only its beginning was graded"


def graded_part(completion: Completion, allowance: int) -> Completion:
    """The completion with as much of its text as `allowance` tokens can hold. A server that does not stop at the
    allowance may send megabytes, and grading takes seconds for each."""
    most = max(GRADED_CHARACTERS_AT_LEAST, GRADED_CHARACTERS_PER_TOKEN * allowance)
    if len(completion.text) <= most:
        return completion
    return msgspec.structs.replace(completion, text=completion.text[:most])


NO_ANSWER_YET = Failure("aborted", "there is no answer yet")


class Grade(NamedTuple):
    """The result of grading an answer. A failure, and a prompt that was not read as sent, have no scores."""

    scores: dict[str, Score]
    failure_class: FailureClass
    detail: str
    other_value: str


class Recorder:
    """Makes the records of one run. Looks up each scorer once."""

    def __init__(self, model: str, reading: Reading, *, estimated: bool = False) -> None:
        """`estimated` says that the lengths of prompts are estimates, so that no receipt can be compared with them."""
        self._model = model
        self._estimated = estimated
        self._reading = reading
        self._scorers: dict[str, Scorer] = {}

    def record(self, document: Document, response: Asked, *, cacheable: int = 0) -> Record:
        """`cacheable` are the first tokens of the prompt that were asked before, so that a server may keep them."""
        probe, answer = response.probe, response.answer
        outcome = _without_secrets(answer.outcome)
        receipt = receipt_for(probe.prompt_tokens, outcome, cacheable, estimated=self._estimated)
        read = document.text[document.body_start_characters : probe.cut_characters]
        grade = self.grade(probe.question, outcome, receipt, read, probe.cell.key)
        sent = answer.sent
        if probe.notes:
            sent = msgspec.structs.replace(sent, notes=(*sent.notes, *probe.notes))
        if isinstance(outcome, Completion) and graded_part(outcome, probe.question.allowance) is not outcome:
            sent = msgspec.structs.replace(sent, notes=(*sent.notes, CUT_NOTE))
        return Record(
            cell=probe.cell,
            reading=self._reading,
            document=document.id,
            cluster=document.cluster,
            model=self._model,
            question=probe.question,
            facts=tuple(PlantedRecord(f.id, f.start, f.end, f.depth_asked, f.depth) for f in document.planted(probe)),
            evidence=evidence_of(document, probe),
            needs=needs_of(document, probe),
            body_tokens=probe.body_tokens,
            prompt_tokens=probe.prompt_tokens,
            sent=sent,
            outcome=outcome,
            receipt=receipt,
            scores=grade.scores,
            failure_class=grade.failure_class,
            detail=grade.detail,
            other_value=grade.other_value,
            prompt_digest=document.prompt_digest(probe),
            preparation_seconds=document.preparation_seconds,
            attempts=response.attempts,
            started=response.started,
            seconds=answer.seconds,
        )

    def grade(self, question: Question, outcome: Outcome, receipt: Receipt, read: str, where: str) -> Grade:
        """The grade of an answer to a question about the text `read`."""
        graded = graded_part(outcome, question.allowance) if isinstance(outcome, Completion) else outcome
        # What the classes need of the document's text is on the record, so that it can be graded again without it.
        text = graded.text if isinstance(graded, Completion) else ""
        other_value = value_of_another_line(question, text, read) if text else ""
        return Grade(*self._grade(question, graded, receipt, other_value, where), other_value)

    def waiting(self, document: Document, probe: Probe, sent: Sent) -> Record:
        """The record of a question whose answer comes later."""
        return self.record(document, Asked(probe, Answer(sent, NO_ANSWER_YET, 0.0), 0, 0.0))

    def answered(self, record: Record, outcome: Outcome, read: str, **facts: Any) -> Record:
        """The record with the answer to its question about the text `read`; `facts` are further fields of it."""
        outcome = _without_secrets(outcome)
        receipt = receipt_for(record.prompt_tokens, outcome, estimated=self._estimated)
        grade = self.grade(record.question, outcome, receipt, read, record.cell.key)
        sent: Sent = facts.pop("sent", record.sent)
        if isinstance(outcome, Completion) and graded_part(outcome, record.question.allowance) is not outcome:
            sent = msgspec.structs.replace(sent, notes=(*sent.notes, CUT_NOTE))
        graded = {**facts, "sent": sent, "outcome": outcome, "receipt": receipt, **grade._asdict()}
        return msgspec.structs.replace(record, **graded)

    def append(self, record: Record, writer: RunWriter) -> Record:
        """Writes the record, with a failure in place of an answer that could not be read back. Returns the written
        record."""
        try:
            writer.append(record)
        except UnreadableRecord as error:
            record = self._malformed(record, error.what)
            writer.append(record)
        return record

    def _malformed(self, record: Record, why: str) -> Record:
        """A failure in the place of an answer that could not be read back from a file, such as a wrong type."""
        failure = Failure("malformed", f"the model's answer cannot be recorded: {why}")
        return msgspec.structs.replace(
            record,
            outcome=failure,
            receipt=Receipt(record.prompt_tokens, None),
            scores={},
            failure_class="error",
            detail=failure.why,
        )

    def _grade(
        self, question: Question, outcome: Outcome, receipt: Receipt, other_value: str, where: str
    ) -> tuple[dict[str, Score], FailureClass, str]:
        """Scores, failure class and its detail."""
        if isinstance(outcome, Measurement):
            # A metric may have no number in one document, such as LongPPL if no token needs the far context.
            return {n: Score(outcome.numbers[n]) for n in question.scorers if n in outcome.numbers}, "measured", ""
        if isinstance(outcome, Completion) and receipt.short:
            return {}, "input_truncated", FEWER_TOKENS_READ  # not a measurement of this length, so without scores
        scores = (
            {}
            if isinstance(outcome, Failure)
            else {registry.scorer_title(name): self._score(name, question, outcome, where) for name in question.scorers}
        )
        return scores, *classify(question, outcome, scores, receipt, other_value)

    def regraded(self, record: Record, names: Sequence[str] = ()) -> Record:
        """The record with the scores of these scorers, or of its own, and the failure class that follows from them."""
        if not isinstance(record.outcome, Completion) or not record.scores:
            return record
        question = msgspec.structs.replace(record.question, scorers=tuple(names) or record.question.scorers)
        graded = graded_part(record.outcome, question.allowance)
        scores, failure_class, detail = self._grade(
            question, graded, record.receipt, record.other_value, record.cell.key
        )
        return msgspec.structs.replace(
            record, question=question, scores=scores, failure_class=failure_class, detail=detail
        )

    def _score(self, name: str, question: Question, completion: Completion, where: str) -> Score:
        scorer = self._scorers.get(name)
        if scorer is None:
            scorer = self._scorers[name] = registry.scorer(name)
        score = abstention(question, completion) if question.absent else scorer.score(question, completion)
        if not math.isfinite(score.value):
            raise LeadlineError(
                f"scorer {name!r} gave {score.value}", where=where, fix="a score is a number from 0 to 1"
            )
        return score


EVIDENCE_MARGIN = 200
"""Characters of the document that a record keeps on either side of a fact."""
MAX_EVIDENCE_CHARACTERS = 4000
"""The most characters of the document that a record keeps. With many facts each has less text around it."""


def evidence_of(document: Document, probe: Probe) -> tuple[str, ...]:
    """The facts that the question needs, each with some of the text around it, cut at word ends."""
    facts = document.planted(probe)
    margin = EVIDENCE_MARGIN
    if facts:
        spare = MAX_EVIDENCE_CHARACTERS - sum(len(fact.text) for fact in facts)
        margin = max(0, min(margin, spare // (2 * len(facts))))
    kept: list[str] = []
    for fact in facts:
        excerpt = text_around(
            document.text, fact.text, start=document.body_start_characters, end=probe.cut_characters, margin=margin
        )
        if sum(map(len, kept)) + len(excerpt) > MAX_EVIDENCE_CHARACTERS:
            break
        kept.append(excerpt)
    return tuple(kept)


def needs_of(document: Document, probe: Probe) -> Needs | None:
    """The needs of a question by the positions of its evidence. Counts and absent facts need the whole document."""
    question = probe.question
    if probe.body_tokens and (question.whole_document or question.absent):
        return Needs(1, probe.body_tokens, probe.body_tokens)
    wanted = {*question.facts, *question.order_facts}
    places = sorted((fact.start, fact.end) for fact in document.facts if fact.id in wanted)
    if not places:
        return None
    last = max(end for _, end in places)
    tokens, reached = 0, places[0][0]
    for start, end in places:
        tokens += max(0, end - max(start, reached))
        reached = max(reached, end)
    return Needs(len(places), last - places[0][0], tokens)


def text_around(text: str, fact: str, *, start: int, end: int, margin: int = EVIDENCE_MARGIN) -> str:
    """The fact with up to `margin` characters on either side, cut at word ends; the fact alone where the text does not
    have it between `start` and `end`."""
    end = min(end, len(text))
    at = text.find(fact, start, end)
    if at < 0:
        return fact.strip()
    first, last = max(start, at - margin), min(end, at + len(fact) + margin)
    before, after = text[first:at], text[at + len(fact) : last]
    before = before[before.find(" ") + 1 :] if first > start else before
    after = after[: after.rfind(" ")] if last < end and " " in after else after
    return f"{before}{fact}{after}".strip()


TEXTS_OF_COMPLETIONS = ("text", "thinking", "finish", "model", "system_fingerprint")


def _without_secrets(outcome: Outcome) -> Outcome:
    """Servers may quote the request in their errors, including the key."""
    if isinstance(outcome, Failure):
        return msgspec.structs.replace(outcome, message=redact(outcome.message))
    if isinstance(outcome, Completion):
        texts = {name: getattr(outcome, name) for name in TEXTS_OF_COMPLETIONS}
        shown = {name: redacted for name, text in texts.items() if (redacted := redact_used(text)) != text}
        return msgspec.structs.replace(outcome, **shown) if shown else outcome
    return outcome


# --- saved answers graded again


def scorer_fingerprints(names: Iterable[str]) -> dict[str, str]:
    """The version of each scorer, and for a scorer in a file the digest of its code: its numbers depend on them."""
    fingerprints = {}
    for name in names:
        title = registry.scorer_title(name)
        if code := registry.plugin_digest(name):
            fingerprints[f"scorer.{title}.code"] = code
        elif version := str(getattr(registry.scorer(name), "version", "")):
            fingerprints[f"scorer.{title}.version"] = version
    return fingerprints


@dataclass(frozen=True, slots=True)
class Rescored:
    """The changes by rescoring a run: its new manifest, and the means by task before and after, each of one scorer."""

    manifest: Manifest
    saved_as: Path
    """The records as they were."""
    before: dict[str, tuple[str, float]]
    after: dict[str, tuple[str, float]]
    samples: int


def rescore(folder: Path, scorers: Sequence[str] = (), *, only: bool = False, trust: bool = False) -> Rescored:
    """Grades the saved answers of a run again, by the scorers given and those that it has (`only`: by those given).

    The records are replaced at once, and what they were is kept beside them. The scorers become part of the run's
    identity, so it can be resumed with the same ones. Scorers in files that only the folder names need `trust`.
    Questions that were asked again are graded alike.
    """
    if (folder / AGAIN / MANIFEST).exists():
        rescore(folder / AGAIN, scorers, only=only, trust=trust)
    with registry.names_of_folder(folder, scorers, trust=trust), locked(folder):
        manifest, records = read_manifest(folder), list(every_record(folder))  # replaced ones stay: they were paid for
        newest = _newest(records)
        tasks = {title: task for title, task in manifest.tasks.items() if task.get("kind") != "measure"}
        if not tasks:
            raise UsageError(
                "this run has log-probabilities and no answers to grade",
                where=str(folder),
                fix="give a run of questions",
            )
        names = {title: _scorers_of(title, task, newest, scorers, only=only) for title, task in tasks.items()}
        recorder = Recorder("", "fresh")
        regraded = [recorder.regraded(r, names[r.cell.task]) if r.cell.task in names else r for r in records]
        changed = _with_scorers(manifest, names, set_by_user=bool(scorers))
        saved = replace_records(folder, changed, regraded)
        after = _newest(regraded)
        return Rescored(changed, saved, _means(newest), _means(after), sum(bool(r.scores) for r in after))


def _newest(records: Iterable[Record]) -> list[Record]:
    """The last one of every cell."""
    return list({record.cell.key: record for record in records}.values())


def _scorers_of(
    title: str, task: Mapping[str, Any], records: Sequence[Record], first: Sequence[str], *, only: bool
) -> list[str]:
    own = task.get("options", {}).get("scorers") or next(
        (list(r.scores) for r in records if r.cell.task == title and r.scores), []
    )
    names = [*first, *(() if only and first else own)]
    by_title: dict[str, str] = {}
    for name in names:
        by_title.setdefault(registry.scorer_title(name), name)
    return list(by_title.values())


def _with_scorers(manifest: Manifest, names: Mapping[str, Sequence[str]], *, set_by_user: bool) -> Manifest:
    """The manifest of the run as if it had been asked with these scorers."""
    kept = {name: value for name, value in manifest.fingerprints.items() if not name.startswith("scorer.")}
    every = dict.fromkeys(name for scorers in names.values() for name in scorers)
    spec, tasks = deepcopy(manifest.spec), deepcopy(manifest.tasks)
    if set_by_user:
        wanted = [TaskSpec.model_validate(task_values) for task_values in spec["tasks"]]
        for task in (task for task in wanted if task.title in names):
            chosen = list(names[task.title])
            task.options["scorers"] = chosen
            tasks[task.title].setdefault("options", {})["scorers"] = chosen
            kept[f"task.{task.title}.scorers"] = json.dumps(chosen)
        spec["tasks"] = [task.model_dump(mode="json") for task in wanted]
    return msgspec.structs.replace(
        manifest, spec=spec, tasks=tasks, digest=digest(spec),
        fingerprints=dict(sorted((kept | scorer_fingerprints(every)).items())),
    )  # fmt: skip


def _means(records: Iterable[Record]) -> dict[str, tuple[str, float]]:
    """By task, the first scorer and its mean over answered samples."""
    values: dict[str, list[float]] = {}
    first: dict[str, str] = {}
    for record in records:
        if record.score is not None and not record.wants_logprobs:
            values.setdefault(record.cell.task, []).append(record.score)
            first.setdefault(record.cell.task, next(iter(record.scores)))
    return {task: (first[task], sum(scores) / len(scores)) for task, scores in values.items()}
