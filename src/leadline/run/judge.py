"""Grading recorded answers with judges. Nothing is asked of the tested model again.

    judge_run(folder, ["openai:...", "hf:..."])

For each judge: its known cases first, which it has to pass; then every answer that no rule decides and that has no
verdict of this judge yet. Requests, retries and stopping are those of a run; a verdict is written before the next
question is asked, so only requests in flight can be lost.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from leadline.core import registry
from leadline.core.contracts import Model, Remote, Replicated, Task, Tokenizer
from leadline.core.digest import digest, digest_text
from leadline.core.errors import Interrupted, JudgeRefused, LeadlineError, RunStopped, UsageError
from leadline.core.secrets import holds_secret, redact, redact_used
from leadline.core.spec import Limits, Spec, make_spec
from leadline.core.types import (
    Cell,
    Completion,
    Document,
    Draft,
    Failure,
    Frame,
    Match,
    Probe,
    Question,
    Record,
)
from leadline.results.run import format_model, kind_of
from leadline.run.documents import jobs
from leadline.run.plan import open_model
from leadline.run.retry import Asked, Retrier
from leadline.run.stopping import RESUME, Stop, is_server_failure, stopping_on_signals
from leadline.scorers.judges.canaries import CANARIES, CANARY, FLOOR
from leadline.scorers.judges.prompt import (
    ALLOWANCE,
    JudgedSample,
    JudgePrompt,
    ParsedReply,
    answer_text,
    evidence_in,
    make_prompt,
    parse_reply,
)
from leadline.scorers.judges.rubric import Rubric, load_rubric, reply_schema
from leadline.scorers.judges.rules import RULE, decide, families, plain_answers, rubric_fits
from leadline.store.files import SYNC_SECONDS
from leadline.store.manifest import Manifest, read_manifest
from leadline.store.runs import read_records
from leadline.store.verdicts import JudgeVerdict, VerdictWriter, verdict_key
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import open_tokenizer

REPLY_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class JudgeProgress:
    """Where a judge is: `total` answers take a judge, `done` of them have its verdict."""

    judge: str
    phase: str
    done: int
    total: int
    unparsed: int = 0
    failed: int = 0


Listener = Callable[[JudgeProgress], None]


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


def judge_run(
    folder: Path | str,
    judges: Sequence[str],
    *,
    rubric: str = "answer",
    own_family: bool = False,
    floor: float = FLOOR,
    limits: Limits | None = None,
    listen: Listener | None = None,
) -> JudgeResult:
    """Grades every answer of the run with every judge. Raises JudgeRefused for a judge that may not grade."""
    folder = Path(folder)
    manifest, rules = read_manifest(folder), load_rubric(rubric)
    for name in judges:
        _refuse_secret(name)
        _check_family(name, (), manifest, own_family)
    result = JudgeResult()
    with VerdictWriter(folder) as writer:
        answers = AnswersToJudge(folder, manifest, rules, result)
        _apply_rules(answers, writer, result)
        for name in judges:
            with _opened(name, limits or Limits()) as judge:
                own = _check_family(name, (judge.model.card.name,), manifest, own_family)
                grader = _Grader(judge, rules, writer, own, limits or Limits(), listen or (lambda progress: None))
                grader.run("known cases", list(_canary_jobs(judge, rules)), result)
                grader.check_floor(floor)
                graded = grader.run("answers", answers.to_judge(), result)
                result.sent += graded
        result.kept = sum(1 for v in writer.kept.values() if v.judge != RULE and not v.canary) - result.sent
    return result


# --- which judge may grade


def _refuse_secret(name: str) -> None:
    if holds_secret(name):
        raise UsageError(
            "the judge's name contains a secret, and names are written to disk",
            where=redact(name),
            fix="set secrets in the environment, such as OPENAI_API_KEY",
        )


def _check_family(name: str, said: Sequence[str], manifest: Manifest, allowed: bool) -> bool:
    """Whether the judge is of the tested model's family; raises unless that was asked for."""
    tested = families(str(manifest.spec["model"]), str(manifest.model.get("name", "")))
    shared = [family for family in families(name, *said) if family in tested]
    if shared and not allowed:
        raise JudgeRefused(
            f"{format_model(name)} is of the family of the tested model ({shared[0]}): judges prefer their own mistakes",
            where="--with",
            fix="choose a judge of another family, or add --own-family: the report will then say so",
        )
    return bool(shared)


@dataclass(frozen=True)
class OpenJudge:
    name: str
    model: Model
    identity: str

    @property
    def at_once(self) -> int | None:
        """How many samples an in-process model takes at once; None for a server."""
        if self.model.grain == "probe":
            return None
        return self.model.replicas if isinstance(self.model, Replicated) else 1


@contextmanager
def _opened(name: str, limits: Limits) -> Iterator[OpenJudge]:
    model = open_model(Spec(model=name, tasks=("judge",), lengths=(1,), limits=limits))  # type: ignore[arg-type]
    try:
        card = model.card
        said = [format_model(name), card.name, card.fingerprints, registry.plugin_digest(name), ALLOWANCE]
        yield OpenJudge(name, model, digest(said))
    finally:
        model.close()


# --- what is graded


@dataclass(frozen=True, slots=True)
class _Job:
    """One sample for a judge. `make` builds the sample when its turn has come."""

    cell: Cell
    question: str
    targets: tuple[str, ...]
    answer: str
    make: Callable[[], JudgedSample]
    canary: str = ""
    expected: bool | None = None


def _canary_jobs(judge: OpenJudge, rubric: Rubric) -> Iterator[_Job]:
    for canary in CANARIES:
        sample = canary.sample
        yield _Job(
            canary.cell, sample.question, sample.targets, digest_text(sample.answer), lambda s=sample: s,  # type: ignore[misc]
            canary.kind, canary.right,
        )  # fmt: skip


class AnswersToJudge:
    """The answers of a run, with what a judge needs to see of each."""

    def __init__(self, folder: Path, manifest: Manifest, rubric: Rubric, result: JudgeResult | None = None) -> None:
        kinds = {title: kind_of(task) for title, task in manifest.tasks.items()}
        self.rubric = rubric
        self._result = result or JudgeResult()
        self._evidence = _EvidenceFinder(manifest, self._result)
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

    def to_judge(self) -> Iterator[_Job]:
        for record in self.records:
            if record.cell.key not in self._decided:
                yield _Job(
                    record.cell, record.question, record.targets, answer_digest(record), lambda r=record: self.sample(r)  # type: ignore[misc]
                )  # fmt: skip

    def sample(self, record: Record) -> JudgedSample:
        match, evidence = self._evidence.of(record)
        return JudgedSample(record.question, record.targets, answer_text(record), match, evidence)


def answer_digest(record: Record) -> str:
    assert isinstance(record.outcome, Completion)
    return digest_text(record.outcome.text)


def _apply_rules(answers: AnswersToJudge, writer: VerdictWriter, result: JudgeResult) -> None:
    rubric = answers.rubric
    for record, rule, value in answers.decide():
        answer = answer_digest(record)
        key = _key(record.cell, record.question, record.targets, answer, rubric, RULE)
        result.by_rule += 1
        if not writer.is_done(key):
            writer.append(
                JudgeVerdict(
                    key=key, cell=record.cell, judge=RULE, rubric=rubric.title, rubric_digest=rubric.digest,
                    answer=answer, value=value, reason=rule,
                )
            )  # fmt: skip


def _key(cell: Cell, question: str, targets: Sequence[str], answer: str, rubric: Rubric, judge: str) -> str:
    return verdict_key(
        cell=cell.key, question=question, targets=targets, answer=answer, rubric=rubric.digest, judge=judge
    )


class _EvidenceFinder:
    """The evidence of a sample with some text around it, from the document built again.

    The offsets on the record say whether it is the same document; where it is not, or cannot be built without the
    tested model, the evidence is shown without its surroundings, or not at all if the task has changed.
    """

    def __init__(self, manifest: Manifest, result: JudgeResult) -> None:
        self._manifest = manifest
        self._result = result
        self._rows: dict[str, tuple[Task, tuple[Cell, ...]]] = {}
        self._seed = 0
        self._fitter: Fitter | None = None
        self._drafts: dict[tuple[Cell, ...], Draft] = {}
        self._documents: dict[tuple[Cell, ...], Document] = {}
        try:
            spec = make_spec({k: v for k, v in manifest.spec.items()}, where="manifest")
            tasks = {t.title: registry.task(t) for t in spec.tasks}
            self._seed = spec.seed
            same = {t for t, task in tasks.items() if manifest.tasks.get(t, {}).get("version") == task.version}
            for job in jobs(spec, tasks):
                if job.cells[0].task in same and job.task.request == "answer":
                    self._rows |= {cell.key: (job.task, job.cells) for cell in job.cells}
            tokenizer = _tokenizer_of(spec, manifest)
            if tokenizer is not None and manifest.frame:
                self._fitter = Fitter(tokenizer, Frame(**manifest.frame))
        except (LeadlineError, TypeError, KeyError) as error:
            result.notes.append(f"judges see no evidence: the tasks of this run cannot be opened again ({error})")

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
            self._drafts = {cells: task.write(cells, seed=self._seed)}  # records of one document follow each other
        return self._drafts[cells]

    def _document(self, record: Record) -> Document | None:
        """The document as it was sent; None if it cannot be built, or has the facts at other places."""
        row = self._rows.get(record.cell.key)
        if row is None or self._fitter is None:
            return None
        task, cells = row
        if cells not in self._documents:
            try:
                self._documents = {cells: task.document(cells, seed=self._seed, fitter=self._fitter)}
            except LeadlineError:
                return None
        document = self._documents[cells]
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


# --- asking


class _Grader:
    """One judge at work on one run."""

    def __init__(
        self, judge: OpenJudge, rubric: Rubric, writer: VerdictWriter, own: bool, limits: Limits, listen: Listener
    ) -> None:
        self._judge = judge
        self._rubric = rubric
        self._writer = writer
        self._own = own
        self._limits = limits
        self._listen = listen
        self._fitter = Fitter(judge.model.tokenizer, judge.model.frame)
        self._stop = Stop()
        self._retrier = Retrier(judge.model, limits, self._stop, lambda waiting: None)
        self._turn = threading.Lock()
        self._streak = self._done = self._unparsed = self._failed = 0

    def run(self, phase: str, wanted: Sequence[_Job] | Iterator[_Job], result: JudgeResult) -> int:
        """Asks for every verdict that is missing; returns how many were asked for."""
        missing = [job for job in wanted if not self._writer.is_done(self._key(job))]
        self._done = self._unparsed = self._failed = 0
        queue = iter(missing)
        workers = min(self._judge.at_once or self._limits.workers, len(missing))
        threads = [threading.Thread(target=self._work, args=(queue,), daemon=True) for _ in range(workers)]
        where = f"{self._judge.name}, {phase}"
        with stopping_on_signals(self._stop, Interrupted("interrupted", where=where, fix=RESUME)):
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(SYNC_SECONDS)
                    self._writer.sync()
                    self._listen(
                        JudgeProgress(
                            self._judge.name, phase, self._done, len(missing), self._unparsed, self._failed
                        )
                    )
        result.failed += self._failed
        if self._stop.error is not None:
            raise self._stop.error
        return len(missing)

    def check_floor(self, floor: float) -> None:
        """Raises unless the judge knows right from wrong on the known cases."""
        keys = {self._key(job) for job in _canary_jobs(self._judge, self._rubric)}
        found = [verdict for key, verdict in self._writer.kept.items() if key in keys]
        if any(verdict.status == "failed" for verdict in found):
            raise RunStopped(
                "the judge did not answer all known cases", where=self._judge.name, fix=f"check the judge, then {RESUME}"
            )
        for name, right in (("right answers accepted", True), ("wrong answers rejected", False)):
            cases = [verdict for verdict in found if verdict.expected is right]
            good = sum(verdict.value is not None and (verdict.value >= 0.5) is right for verdict in cases)
            if good < floor * len(cases):
                raise JudgeRefused(
                    f"this judge fails the known cases: {good} of {len(cases)} {name}, "
                    f"{sum(v.status == 'unparsed' for v in cases)} replies without a verdict",
                    where=format_model(self._judge.name),
                    fix=f"choose another judge; --floor 0 grades with it anyway (the floor is {floor:g})",
                )

    # --- in the workers

    def _work(self, queue: Iterator[_Job]) -> None:
        try:
            while not self._stop.is_set:
                with self._turn:
                    job = next(queue, None)
                    if job is None:
                        return
                    prompt = make_prompt(self._rubric, sample := job.make())
                verdict = self._grade(job, sample, prompt)
                if verdict is None:
                    return
                with self._turn:
                    self._writer.append(verdict)
                    self._count(verdict)
        except BaseException as error:
            self._stop.because(error)

    def _grade(self, job: _Job, sample: JudgedSample, prompt: JudgePrompt) -> JudgeVerdict | None:
        """The verdict after one reply, or after a second one if the first has none; None when the run stops."""
        verdict = self._blank(job, sample)
        parsed = ParsedReply({}, None)
        for attempt, asked_prompt in enumerate((prompt, None)):
            asked = self._ask(job, sample, asked_prompt or prompt.again(parsed.problem))
            if asked is None:
                return None
            outcome = asked.answer.outcome
            verdict.update(replies=attempt + 1, started=verdict["started"] or asked.started)
            verdict["seconds"] += asked.answer.seconds
            if isinstance(outcome, Failure):
                why = redact(f"{outcome.why}: {outcome.message}")
                verdict.update(status="failed", reason=why, server=is_server_failure(outcome))
                break
            assert isinstance(outcome, Completion)
            for name in ("prompt_tokens", "completion_tokens", "cached_tokens"):
                verdict[name] += getattr(outcome, name) or 0
            text = redact_used(outcome.text)
            parsed = parse_reply(text, prompt)
            if parsed.value is not None:
                verdict.update(value=parsed.value, items=parsed.answers, reason=parsed.reason)
                break
            problem = parsed.problem if outcome.finish != "length" else f"{parsed.problem}; it was cut off"
            verdict.update(status="unparsed", reason=problem, reply=text[:REPLY_CHARACTERS])
        if parsed.value is not None:
            verdict.update(status="judged", reply="")
        self._streak = self._streak + 1 if verdict.pop("server", False) else 0
        return JudgeVerdict(**verdict)

    def _blank(self, job: _Job, sample: JudgedSample) -> dict[str, object] | dict[str, int]:
        judge, rubric = self._judge, self._rubric
        return {
            "key": self._key(job), "cell": job.cell, "judge": judge.name, "identity": judge.identity,
            "families": families(judge.name, judge.model.card.name), "own_family": self._own, "rubric": rubric.title,
            "rubric_digest": rubric.digest, "answer": job.answer, "canary": job.canary, "expected": job.expected,
            "evidence": len(sample.evidence), "replies": 0, "prompt_tokens": 0, "completion_tokens": 0,
            "cached_tokens": 0, "started": 0.0, "seconds": 0.0,
        }  # fmt: skip

    def _ask(self, job: _Job, sample: JudgedSample, prompt: JudgePrompt) -> Asked | None:
        expected = plain_answers(sample, prompt.items, job.expected)
        document, probe = self._document(job.cell, prompt)
        probe = replace(
            probe,
            targets=(json.dumps({"id": prompt.code, "reason": "by its words", **expected}),),
            schema=reply_schema(prompt.items),
        )
        asked = self._retrier.ask(document, [probe])
        return asked[0] if asked else None

    def _document(self, cell: Cell, prompt: JudgePrompt) -> tuple[Document, Probe]:
        """The prompt as a document with one probe. For a server nothing is tokenized: it counts itself."""
        model = self._judge.model
        if not isinstance(model, Remote):
            question = Question(
                cell=cell, text=prompt.sample, answer_prefix="", targets=(), allowance=ALLOWANCE, scorers=()
            )
            document = self._fitter.fit(Draft(CANARY, CANARY, prompt.head, None, (), (question,)))
            return document, document.probes[0]
        text, nothing = model.frame.before + prompt.head, np.zeros(0, np.int32)
        probe = Probe(
            cell=cell, cut=0, cut_characters=len(text), tail=prompt.sample, closing_ids=nothing, prompt_tokens=0,
            question=prompt.sample, answer_prefix="", targets=(), distractors=(), facts=(), allowance=ALLOWANCE,
            scorers=(),
        )  # fmt: skip
        return Document(cell.key, cell.key, model.frame, text, nothing, 0, 0, (), (probe,)), probe

    def _key(self, job: _Job) -> str:
        return _key(job.cell, job.question, job.targets, job.answer, self._rubric, self._judge.identity)

    def _count(self, verdict: JudgeVerdict) -> None:
        self._done += 1
        self._unparsed += verdict.status == "unparsed"
        self._failed += verdict.status == "failed"
        if self._streak >= self._limits.breaker:
            self._stop.because(
                RunStopped(
                    f"{self._streak} requests in a row got no answer from the judge; the last one: {verdict.reason}",
                    where=self._judge.name,
                    fix=f"check the judge, then {RESUME}",
                )
            )
