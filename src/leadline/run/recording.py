"""From an answer to a record: with scores unless it is a failure, and always with a failure class. And from a record
to another: the saved answer graded again, by other scorers or by a new version of the same ones."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np

from leadline.core import registry
from leadline.core.contracts import Scorer
from leadline.core.errors import LeadlineError, UsageError
from leadline.core.records import (
    SLACK_TOKENS,
    Completion,
    Failure,
    FailureClass,
    Measurement,
    Outcome,
    PlantedRecord,
    Receipt,
    Record,
    Score,
)
from leadline.core.secrets import redact, redact_used
from leadline.core.seeds import digest
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell, Document, Match, Probe, QuestionFamily, Reading, ValueKind
from leadline.run.retry import Asked
from leadline.scorers.failure import FEWER_TOKENS_READ, classify
from leadline.scorers.match import abstention
from leadline.store.manifest import Manifest, read_manifest
from leadline.store.runs import every_record, locked, replace_records


def receipt_for(probe: Probe, outcome: Outcome, cacheable: int = 0) -> Receipt:
    """Our count and the model's own, which failures and measurements do not have.

    A count that is short, but not when the cached tokens are added, is that of a server that leaves those out.
    """
    ours = probe.prompt_tokens
    if not isinstance(outcome, Completion) or outcome.prompt_tokens is None:
        return Receipt(ours, None, cacheable=cacheable)
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


class Recorder:
    """Makes the records of one run. Looks up each scorer once."""

    def __init__(self, model: str, reading: Reading) -> None:
        self._model = model
        self._reading = reading
        self._scorers: dict[str, Scorer] = {}

    def record(self, document: Document, asked: Asked, *, cacheable: int = 0) -> Record:
        """`cacheable` are the first tokens of the prompt that were asked before, so that a server may keep them."""
        probe, answer = asked.probe, asked.answer
        outcome = _without_secrets(answer.outcome)
        receipt = receipt_for(probe, outcome, cacheable)
        graded = graded_part(outcome, probe.allowance) if isinstance(outcome, Completion) else outcome
        scores, failure_class, detail = self._grade(probe, document, graded, receipt)
        sent = answer.sent
        if graded is not outcome:
            sent = msgspec.structs.replace(sent, notes=(*sent.notes, CUT_NOTE))
        return Record(
            cell=probe.cell,
            reading=self._reading,
            document=document.id,
            cluster=document.cluster,
            model=self._model,
            question=probe.question,
            answer_prefix=probe.answer_prefix,
            targets=probe.targets,
            facts=tuple(PlantedRecord(f.id, f.start, f.end, f.depth_asked, f.depth) for f in document.planted(probe)),
            body_tokens=probe.body_tokens,
            prompt_tokens=probe.prompt_tokens,
            allowance=probe.allowance,
            sent=sent,
            outcome=outcome,
            receipt=receipt,
            scores=scores,
            failure_class=failure_class,
            detail=detail,
            labels=dict(probe.labels),
            prompt_digest=document.prompt_digest(probe),
            attempts=asked.attempts,
            started=asked.started,
            seconds=answer.seconds,
        )

    def malformed(self, record: Record, why: str) -> Record:
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
        self, probe: Probe, document: Document, outcome: Outcome, receipt: Receipt
    ) -> tuple[dict[str, Score], FailureClass, str]:
        """Scores, failure class and its detail."""
        if isinstance(outcome, Measurement):
            # A metric may have no number in one document, such as LongPPL if no token needs the far context.
            return {n: Score(outcome.numbers[n]) for n in probe.scorers if n in outcome.numbers}, "measured", ""
        if isinstance(outcome, Completion) and receipt.short:
            return {}, "input_truncated", FEWER_TOKENS_READ  # not a measurement of this length, so without scores
        scores = (
            {}
            if isinstance(outcome, Failure)
            else {registry.scorer_title(name): self._score(name, probe, outcome) for name in probe.scorers}
        )
        read = document.text[document.body_start_characters : probe.cut_characters]
        return scores, *classify(probe, outcome, scores, receipt, read)

    def regraded(self, record: Record, names: Sequence[str]) -> Record:
        """The record with the scores of these scorers. Its failure class stays unless right and wrong have changed."""
        outcome = record.outcome
        if not isinstance(outcome, Completion) or not record.scores:
            return record
        probe, outcome = probe_of_record(record), graded_part(outcome, record.allowance)
        scores = {registry.scorer_title(name): self._score(name, probe, outcome) for name in names}
        made = msgspec.structs.replace(record, scores=scores)
        before, after = (next(iter(found.values())).value for found in (record.scores, scores))
        if record.failed or _degree(before) == _degree(after):
            return made
        failure_class, detail = classify(probe, outcome, scores, record.receipt, "")
        return msgspec.structs.replace(made, failure_class=failure_class, detail=detail)

    def _score(self, name: str, probe: Probe, completion: Completion) -> Score:
        scorer = self._scorers.get(name)
        if scorer is None:
            scorer = self._scorers[name] = registry.scorer(name)
        score = abstention(probe, completion) if probe.absent else scorer.score(probe, completion)
        if not math.isfinite(score.value):
            raise LeadlineError(
                f"scorer {name!r} gave {score.value}", where=probe.cell.key, fix="a score is a number from 0 to 1"
            )
        return score


def _without_secrets(outcome: Outcome) -> Outcome:
    """Servers may quote the request in their errors, including the key."""
    if isinstance(outcome, Failure):
        return msgspec.structs.replace(outcome, message=redact(outcome.message))
    if isinstance(outcome, Completion):
        named = ("text", "thinking", "finish", "model", "system_fingerprint")
        return msgspec.structs.replace(outcome, **{name: redact_used(getattr(outcome, name)) for name in named})
    return outcome


# --- saved answers graded again


def scorer_fingerprints(names: Iterable[str]) -> dict[str, str]:
    """Of each scorer its version, and for one in a file a digest of its code: what its numbers depend on."""
    found = {}
    for name in names:
        title = registry.scorer_title(name)
        if code := registry.plugin_digest(name):
            found[f"scorer.{title}.code"] = code
        elif version := str(getattr(registry.scorer(name), "version", "")):
            found[f"scorer.{title}.version"] = version
    return found


def bare_probe(
    cell: Cell,
    question: str,
    targets: Sequence[str],
    match: Match,
    *,
    family: QuestionFamily = "",
    value_kind: ValueKind | None = None,
    demonstration: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    opening: str = "",
    absent: bool | None = None,
) -> Probe:
    """As much of a probe as scorers look at, for an answer that was given before."""
    return Probe(
        cell=cell, cut=0, cut_characters=0, tail="", closing_ids=np.empty(0, np.int32), prompt_tokens=0,
        question=question, answer_prefix="", targets=tuple(targets), distractors=(), facts=(), allowance=0, scorers=(),
        match=match, family=family, value_kind=value_kind, demonstration=tuple(demonstration),
        labels=labels or {}, opening=opening, absent=absent,
    )  # fmt: skip


def probe_of_record(record: Record) -> Probe:
    labels = record.labels
    # Any one target is enough for questions and for a needle of the user's own.
    any_one = "match.any" in record.scores or labels.get("family") == "questions" or labels.get("form") == "own"
    kinds: dict[str, ValueKind] = {kind: kind for kind in get_args(ValueKind)}
    families: dict[str, QuestionFamily] = {family: family for family in get_args(QuestionFamily)}
    return bare_probe(
        record.cell,
        record.question,
        record.targets,
        "any" if any_one else "all",
        family=families.get(labels.get("family", ""), ""),
        value_kind=kinds.get(labels.get("value_kind", "")),
        demonstration=labels.get("demonstration", "").split(),
        labels=labels,
        opening=labels.get("opening", ""),
        absent={"true": True, "false": False}.get(labels.get("absent", "")),
    )


def _degree(value: float) -> int:
    """0 for wrong, 1 for partly right, 2 for right."""
    return 2 if value >= 1 - 1e-9 else int(value > 0)


@dataclass(frozen=True, slots=True)
class Rescored:
    """What rescoring a run changed: its new manifest, and the means by task before and after, each of one scorer."""

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
    """
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
        made = [recorder.regraded(r, names[r.cell.task]) if r.cell.task in names else r for r in records]
        changed = _with_scorers(manifest, names, set_by_user=bool(scorers))
        saved = replace_records(folder, changed, made)
        after = _newest(made)
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
    return list({registry.scorer_title(name): name for name in reversed(names)}.values())[::-1]


def _with_scorers(manifest: Manifest, names: Mapping[str, Sequence[str]], *, set_by_user: bool) -> Manifest:
    """The manifest of the run as if it had been asked with these scorers."""
    kept = {name: value for name, value in manifest.fingerprints.items() if not name.startswith("scorer.")}
    every = dict.fromkeys(name for found in names.values() for name in found)
    spec, tasks = deepcopy(manifest.spec), deepcopy(manifest.tasks)
    if set_by_user:
        wanted = [TaskSpec.model_validate(asked) for asked in spec["tasks"]]
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
    return {task: (first[task], sum(found) / len(found)) for task, found in values.items()}
