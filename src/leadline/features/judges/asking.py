"""Grading recorded answers with judges. Nothing is asked of the tested model again.

    judge_run(folder, ["openai:...", "hf:..."])

Each judge first has to pass the known cases. Then it grades every answer that no rule decides and that has no verdict
of this judge yet. Requests, retries and stopping are those of a run; a verdict is written before the next question is
asked, so only requests in flight can be lost.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from leadline.core import registry
from leadline.core.answers import NO_CREDIT_FIX, Completion, Failure, Outcome
from leadline.core.contracts import Model, Remote
from leadline.core.drafts import Draft, DraftQuestion
from leadline.core.errors import Interrupted, JudgeRefused, RunStopped, TokenizerError, UsageError
from leadline.core.secrets import holds_secret, redact, redact_used
from leadline.core.seeds import digest
from leadline.core.spec import Limits, Spec, TaskSpec
from leadline.core.types import Cell, Document, Probe, Question
from leadline.core.workers import start_workers, within_file_limit
from leadline.features.judges.admission import KNOWN_CASE, MIN_ACCURACY, families
from leadline.features.judges.correction import KnownCase, known_cases
from leadline.features.judges.payments import JudgePayments, estimated_tokens, judge_tariffs
from leadline.features.judges.prompt import (
    ALLOWANCE,
    JudgedSample,
    JudgePrompt,
    make_prompt,
    parse_reply,
    plain_answers,
)
from leadline.features.judges.rubric import Rubric, load_rubric, reply_schema
from leadline.features.judges.samples import (
    AnswersToJudge,
    JudgeResult,
    VerdictRequest,
    answer_digest,
    known_case_requests,
)
from leadline.features.judges.verdicts import RULE, JudgeVerdict, VerdictWriter, verdict_key
from leadline.results.run import format_model
from leadline.run.events import Listener, Note, StepProgress, ignore
from leadline.run.interrupt import NO_CREDIT, RESUME, Breaker, Stop, stopping_on_signals
from leadline.run.money import budget_of
from leadline.run.plan import asked_at_once, open_model
from leadline.run.retry import Asked, Retrier
from leadline.store.files import SYNC_SECONDS
from leadline.store.manifest import read_manifest
from leadline.store.prices import save_prices
from leadline.text.fitting import Fitter

REPLY_CHARACTERS = 2000


Prepared = tuple[str, VerdictRequest, JudgedSample, JudgePrompt]
"""A verdict to ask for: its key, the request, what the judge sees of the answer, and the prompt."""
Graded = tuple[JudgeVerdict, Outcome]
"""A verdict, and what the judge's last reply was."""


def judge_run(
    folder: Path | str,
    judges: Sequence[str],
    *,
    rubric: str = "answer",
    own_family: bool = False,
    min_accuracy: float = MIN_ACCURACY,
    limits: Limits | None = None,
    listen: Listener = ignore,
    stop: Stop | None = None,
) -> JudgeResult:
    """Grades every answer of the run with every judge. Raises JudgeRefused for a judge that may not grade. The listener
    gets the progress of each judge and notes for the user; `stop` ends it from another thread. No task or model of the
    run is opened: the records have all that a judge is shown."""
    folder = Path(folder)
    manifest, rules = read_manifest(folder), load_rubric(rubric)
    tested = (str(manifest.spec["model"]), str(manifest.model.get("name", "")))
    for name in judges:
        check_judge(name, tested, allowed=own_family)
    limits = limits or Limits()
    tariffs = judge_tariffs(limits, judges)
    result = JudgeResult()
    with VerdictWriter(folder) as writer:
        if tariffs:
            save_prices(folder, tariffs)
        answers = AnswersToJudge(folder, manifest, rules, result)
        for number, name in enumerate(judges):
            with _opened(name, limits) as judge:
                own = _check_family((name, judge.model.card.name), tested, allowed=own_family)
                tariff = tariffs.get(name)
                paying = JudgePayments(tariff, budget_of(limits, folder, tested[0], tariff), str(folder))
                grader = _Grader(judge, rules, writer, own, limits, listen, paying, (stop or Stop()).inner())
                grader.run("known cases", list(known_case_requests()), result)
                grader.check_accuracy(min_accuracy)
                if number == 0:  # a judge that cannot be asked leaves no verdicts of rules alone
                    _apply_rules(answers, writer, result)
                graded = grader.run("answers", answers.to_judge(), result)
                result.sent += graded
        result.kept = sum(1 for v in writer.kept.values() if v.judge != RULE and not v.known_case) - result.sent
    for note in _notes_on(result):
        listen(Note(note))
    return result


def _notes_on(result: JudgeResult) -> Iterator[str]:
    yield from result.notes
    if result.not_gradable:
        yield f"{result.not_gradable:,} answers have no targets, so this rubric cannot grade them"


# --- which judge may grade


def check_judges(spec: Spec, *, has_prices: bool = False) -> None:
    """Before a run, raises for judges of its spec that cannot grade, as far as names show, or that have no price."""
    load_rubric(spec.judges.rubric)
    if not has_prices:
        judge_tariffs(spec.limits, spec.judges.models)
    for name in spec.judges.models:
        check_judge(name, (spec.model,), allowed=spec.judges.own_family)


def check_judge(name: str, tested: Sequence[str], *, allowed: bool) -> None:
    if holds_secret(name):
        raise UsageError(
            "the judge's name contains a secret, and names are written to disk",
            where=redact(name),
            fix="set secrets in the environment, such as OPENAI_API_KEY",
        )
    registry.provider(registry.ModelName.parse(name))
    _check_family((name,), tested, allowed=allowed)


def _check_family(names: Sequence[str], tested: Sequence[str], *, allowed: bool) -> bool:
    """Whether the judge is of the tested model's family; raises unless that was asked for."""
    shared = [family for family in families(*names) if family in families(*tested)]
    if shared and not allowed:
        raise JudgeRefused(
            f"{format_model(names[0])} is of the tested model's family ({shared[0]}): judges prefer their own mistakes",
            where="the judge's name",
            fix="choose a judge of another family, or allow it: --own-family, in a spec own_family = true",
        )
    return bool(shared)


@dataclass(frozen=True)
class OpenJudge:
    name: str
    model: Model
    identity: str


def _open(name: str, limits: Limits) -> Model:
    """A judge's prompt need not have an exact length, so any tokenizer will do."""
    limits = limits.model_copy(update={"allow_tokenizer_mismatch": True})
    spec = Spec(model=name, tasks=(TaskSpec(name="judge"),), lengths=(1,), limits=limits)
    try:
        return open_model(spec)
    except TokenizerError:
        if "tokenizer=" in name or not name.startswith("openai:"):
            raise
        return open_model(spec.model_copy(update={"model": f"{name}{'&' if '?' in name else '?'}tokenizer=whitespace"}))


@contextmanager
def _opened(name: str, limits: Limits) -> Iterator[OpenJudge]:
    model = _open(name, limits)
    try:
        card = model.card
        said = [format_model(name), card.name, card.fingerprints, registry.plugin_digest(name), ALLOWANCE]
        yield OpenJudge(name, model, digest(said))
    finally:
        model.close()


# --- asking


def _apply_rules(answers: AnswersToJudge, writer: VerdictWriter, result: JudgeResult) -> None:
    rubric = answers.rubric
    for record, rule, value in answers.decide():
        answer = answer_digest(record)
        key = _key(record.cell, record.question.text, record.question.targets, answer, rubric, RULE)
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


class _Grader:
    """One judge at work on one run."""

    def __init__(
        self,
        judge: OpenJudge,
        rubric: Rubric,
        writer: VerdictWriter,
        own: bool,
        limits: Limits,
        listen: Listener,
        paying: JudgePayments,
        stop: Stop,
    ) -> None:
        self._paying = paying
        self._judge = judge
        self._rubric = rubric
        self._writer = writer
        self._own = own
        self._limits = limits
        self._listen = listen
        self._fitter = Fitter(judge.model.tokenizer, judge.model.frame)
        self._families = families(judge.name, judge.model.card.name)
        self._is_remote = isinstance(judge.model, Remote)
        self._stop = stop
        self._retrier = Retrier(judge.model, limits, self._stop, lambda waiting: None)
        self._breaker = Breaker(limits.breaker)
        self._turn = threading.Lock()
        self._done = self._unparsed = self._failed = 0

    def run(self, phase: str, wanted: Iterable[VerdictRequest], result: JudgeResult) -> int:
        """Asks for every missing verdict; returns the number of requests."""
        missing = [(key, request) for request in wanted if not self._writer.is_done(key := self._key(request))]
        self._done = self._unparsed = self._failed = 0
        queue = iter(missing)
        workers = min(asked_at_once(self._judge.model, self._limits), len(missing))
        if self._is_remote:
            workers = within_file_limit(workers, self._note)
        where = f"{self._judge.name}, {phase}"
        with stopping_on_signals(self._stop, Interrupted("interrupted", where=where, fix=RESUME)):
            for thread in start_workers(partial(self._work, queue), workers, self._note):
                while thread.is_alive():
                    thread.join(SYNC_SECONDS)
                    self._writer.sync()
                    self._listen(StepProgress(self._describe(phase, len(missing)), self._done, len(missing)))
        result.failed += self._failed
        if self._stop.error is not None:
            raise self._stop.error
        return len(missing)

    def _note(self, text: str) -> None:
        self._listen(Note(text))

    def _describe(self, phase: str, total: int) -> str:
        text = f"{format_model(self._judge.name)}: {phase} {self._done:,} of {total:,}"
        text += f", {self._unparsed:,} unparsed" if self._unparsed else ""
        return text + (f", {self._failed:,} failed" if self._failed else "")

    def check_accuracy(self, min_accuracy: float) -> None:
        """Raises unless the judge knows right from wrong on the known cases."""
        keys = {self._key(request) for request in known_case_requests()}
        verdicts = [verdict for key, verdict in self._writer.kept.items() if key in keys]
        if any(verdict.status == "failed" for verdict in verdicts):
            raise RunStopped(
                "the judge did not answer all known cases",
                where=self._judge.name,
                fix=f"check the judge, then {RESUME}",
            )
        known = known_cases([KnownCase(v.known_case, bool(v.expected), v.value) for v in verdicts])
        rates = {
            "right answers accepted": (known.accepted, known.right),
            "wrong answers rejected": (known.rejected, known.wrong),
        }
        for name, (good, cases) in rates.items():
            if good < min_accuracy * cases:
                raise JudgeRefused(
                    f"this judge fails the known cases: {good} of {cases} {name}, "
                    f"{known.unparsed} of {len(verdicts)} replies without a verdict",
                    where=format_model(self._judge.name),
                    fix=f"choose another judge; --min-accuracy 0 grades all the same (the minimum is {min_accuracy:g})",
                )

    # --- in the workers

    def _work(self, queue: Iterator[tuple[str, VerdictRequest]]) -> None:
        graded: Graded | None = None
        try:
            while (following := self._next(queue, graded)) is not None:
                graded = self._grade(*following)
                if graded is None:
                    return
        except BaseException as error:
            self._stop.because(error)

    def _next(self, queue: Iterator[tuple[str, VerdictRequest]], graded: Graded | None) -> Prepared | None:
        """Stores a verdict and prepares the next request, under one lock; None when there is no more."""
        with self._turn:
            if graded is not None:
                self._writer.append(graded[0])
                self._count(*graded)
            key, request = ("", None) if self._stop.is_set else next(queue, ("", None))
            if request is None:
                return None
            return key, request, (sample := request.make()), make_prompt(self._rubric, sample)

    def _grade(self, key: str, request: VerdictRequest, sample: JudgedSample, prompt: JudgePrompt) -> Graded | None:
        """The verdict after one reply, or after a second one if the first has none; None when the run stops."""
        judge, rubric = self._judge, self._rubric
        verdict = JudgeVerdict(
            key=key, cell=request.cell, judge=judge.name, identity=judge.identity,
            families=self._families, own_family=self._own, rubric=rubric.title,
            rubric_digest=rubric.digest, answer=request.answer, known_case=request.known_case,
            expected=request.expected, evidence=len(sample.evidence), status="unparsed",
        )  # fmt: skip
        asked_prompt = prompt
        while True:
            most = self._paying.reserve(asked_prompt.text, ALLOWANCE, self._stop)
            response = None if self._stop.is_set else self._ask(request, sample, asked_prompt)
            if response is None:
                return None
            before = verdict
            verdict, problem = _with_reply(verdict, response, asked_prompt)
            self._paying.pay(most, before, verdict)
            if verdict.status != "unparsed" or verdict.replies == 2:
                return verdict, response.answer.outcome
            asked_prompt = prompt.again(problem)

    def _ask(self, request: VerdictRequest, sample: JudgedSample, prompt: JudgePrompt) -> Asked | None:
        document, probe = self._document(request.cell, prompt)
        probe = replace(probe, schema=reply_schema(prompt.items))
        if not self._is_remote:  # a simulated judge starts from the probe's target
            expected = plain_answers(sample, prompt.items, request.expected)
            target = json.dumps({"id": prompt.code, "reason": "by its words", **expected})
            probe = replace(probe, question=msgspec.structs.replace(probe.question, targets=(target,)))
        responses = self._retrier.ask(document, [probe])
        return responses[0] if responses else None

    def _document(self, cell: Cell, prompt: JudgePrompt) -> tuple[Document, Probe]:
        """The prompt as a document with one probe. For a server nothing is tokenized: it counts itself."""
        model = self._judge.model
        if not self._is_remote:
            question = DraftQuestion(
                cell=cell, text=prompt.sample, answer_prefix="", targets=(), allowance=ALLOWANCE, scorers=()
            )
            document = self._fitter.fit(Draft(KNOWN_CASE, KNOWN_CASE, prompt.head, None, (), (question,)))
            return document, document.probes[0]
        text, nothing = model.frame.before + prompt.head, np.zeros(0, np.int32)
        probe = Probe(
            cell=cell, question=Question(prompt.sample, allowance=ALLOWANCE), cut=0, cut_characters=len(text),
            user_suffix=prompt.sample, suffix_ids=nothing, prompt_tokens=0,
        )  # fmt: skip
        return Document(cell.key, cell.key, model.frame, text, nothing, 0, 0, (), (probe,)), probe

    def _key(self, request: VerdictRequest) -> str:
        return _key(request.cell, request.question, request.targets, request.answer, self._rubric, self._judge.identity)

    def _count(self, verdict: JudgeVerdict, outcome: Outcome) -> None:
        self._done += 1
        self._unparsed += verdict.status == "unparsed"
        self._failed += verdict.status == "failed"
        if self._breaker.note(outcome):
            what, fix = f"{self._limits.breaker} requests in a row got no answer from the judge", "check the judge"
            if isinstance(outcome, Failure) and outcome.why == "no_credit":
                what, fix = NO_CREDIT, NO_CREDIT_FIX
            self._stop.because(
                RunStopped(
                    f"{what}; the last one: {verdict.reason}", where=self._judge.name, fix=f"{fix}, then {RESUME}"
                )
            )


def _with_reply(verdict: JudgeVerdict, response: Asked, prompt: JudgePrompt) -> tuple[JudgeVerdict, str]:
    """The verdict with one more reply in it, and what is wrong with the reply."""
    outcome = response.answer.outcome
    verdict = msgspec.structs.replace(
        verdict,
        replies=verdict.replies + 1,
        started=verdict.started or response.started,
        seconds=verdict.seconds + response.answer.seconds,
    )
    if not isinstance(outcome, Completion):
        why = redact(f"{outcome.why}: {outcome.message}") if isinstance(outcome, Failure) else "no text"
        return msgspec.structs.replace(verdict, status="failed", reason=why), why
    text = redact_used(outcome.text)
    parsed = parse_reply(text, prompt)
    problem = parsed.problem + ("; it was cut off" if outcome.finish == "length" else "")
    good = parsed.value is not None
    verdict = msgspec.structs.replace(
        verdict,
        status="judged" if good else "unparsed",
        value=parsed.value,
        items=parsed.answers,
        reason=parsed.reason if good else problem,
        reply="" if good else text[:REPLY_CHARACTERS],
        prompt_tokens=verdict.prompt_tokens + (outcome.prompt_tokens or 0),
        completion_tokens=verdict.completion_tokens + (outcome.completion_tokens or 0),
        estimated_prompt=verdict.estimated_prompt + (outcome.prompt_tokens is None) * estimated_tokens(prompt.text),
        estimated_completion=verdict.estimated_completion + (outcome.completion_tokens is None) * ALLOWANCE,
        cached_tokens=verdict.cached_tokens + (outcome.cached_tokens or 0),
    )
    return verdict, problem
