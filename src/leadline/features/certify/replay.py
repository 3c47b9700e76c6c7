"""Prompts that the candidate lost, as files, and asking one of them again, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from leadline.core.answers import Completion, Failure
from leadline.core.errors import SourceError, UsageError
from leadline.core.format import sanitise
from leadline.core.records import Record
from leadline.core.spec import make_spec
from leadline.core.types import Document, Probe
from leadline.features.certify.rounds import Certification
from leadline.run.documents import planned_documents
from leadline.run.plan import Plan, prepare
from leadline.run.recording import Recorder
from leadline.run.retry import Asked, LogprobAdapter
from leadline.store.runs import read_records, slug

VERSION = 1


class LostPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt that the base answered better, with all that is needed to ask it again."""

    version: int = VERSION
    spec: dict[str, Any]
    """Without the model: tasks, lengths, depths, samples, seed."""
    cell: str
    prompt_digest: str
    prompt: str
    ids: tuple[int, ...]
    targets: tuple[str, ...]
    base_model: str
    candidate_model: str
    base_answer: str
    candidate_answer: str
    base_score: float
    candidate_score: float
    first_difference: int
    """The first character at which the answers differ."""
    first_token: int = 0
    """The first token of the answers that differs, in the base's tokenizer."""


def write_failures(certification: Certification, folder: Path) -> list[Path]:
    """A JSON file for every prompt with a lower score in the candidate."""
    runs = certification.base, certification.candidate
    old, new = ({r.cell.key: r for r in read_records(run.folder) if not r.failed} for run in runs)
    lost = {key for key in old.keys() & new.keys() if (new[key].score or 0.0) < (old[key].score or 0.0)}
    if not lost:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    spec = {k: v for k, v in certification.base.manifest.spec.items() if k != "model"}
    written = []
    with prepare(make_spec({**spec, "model": certification.base.model}), planning=True) as plan:
        for document, probe in _documents(plan, lost):
            key = probe.cell.key
            texts = tuple(_answer(side[key]) for side in (old, new))
            prompt = LostPrompt(
                spec=spec, cell=key, prompt_digest=document.prompt_digest(probe), prompt=document.prompt_text(probe),
                ids=tuple(document.prompt_ids(probe).tolist()), targets=old[key].question.targets,
                base_model=certification.base.model, candidate_model=certification.candidate.model,
                base_answer=texts[0], candidate_answer=texts[1], base_score=old[key].score or 0.0,
                candidate_score=new[key].score or 0.0, first_difference=_first_difference(*texts),
                first_token=_first_difference(*(plan.model.tokenizer.encode(text).tolist() for text in texts)),
            )  # fmt: skip
            path = folder / f"{slug(key.replace('/', '-'))}.json"
            path.write_bytes(msgspec.json.format(msgspec.json.encode(prompt), indent=1))
            written.append(path)
    return written


def read_failure(path: Path) -> LostPrompt:
    try:
        return msgspec.json.decode(path.read_bytes(), type=LostPrompt)
    except OSError as error:
        fix = "name a file that --keep-failures wrote"
        raise SourceError(f"cannot be read: {error.strerror}", where=str(path), fix=fix) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SourceError(
            f"is not a lost prompt: {error}",
            where=str(path),
            fix="name a file that --keep-failures wrote",
        ) from None


@dataclass(frozen=True, slots=True)
class Replayed:
    answer: str
    score: float | None
    problem: str = ""
    first_token: int | None = None
    """The first token that differs from the base's answer; None where the answers are equal."""


def replay(prompt: LostPrompt, model: str) -> Replayed:
    """Asks the model this prompt, after a check that it is the same to the byte."""
    with prepare(make_spec({**prompt.spec, "model": model}, where="replay")) as plan:
        matches = list(_documents(plan, {prompt.cell}))
        if not matches or matches[0][0].prompt_digest(matches[0][1]) != prompt.prompt_digest:
            raise UsageError(
                "this model's prompt is not the one in the file: its tokenizer or template differs",
                where=prompt.cell,
                fix="give the model the tokenizer and template of the base (tokenizer=FOLDER, template=FILE)",
            )
        document, probe = matches[0]
        [answer] = LogprobAdapter(plan.model).answer(document, [probe])
        if isinstance(answer.outcome, Failure):
            return Replayed("", None, f"{answer.outcome.why}: {answer.outcome.message}")
        record = Recorder(model, plan.spec.reading).record(document, Asked(probe, answer, 1, 0.0))
        now = _answer(record)
        tokens = [plan.model.tokenizer.encode(text).tolist() for text in (prompt.base_answer, now)]
        first = None if now == prompt.base_answer else _first_difference(*tokens)
        return Replayed(now, record.score, first_token=first)


def _documents(plan: Plan, keys: set[str]) -> Iterator[tuple[Document, Probe]]:
    """The documents of these cells, built anew, with the probe of each."""
    for planned in planned_documents(plan.spec, plan.tasks):
        if not keys.isdisjoint(cell.key for cell in planned.cells):
            document = planned.document(plan.spec.seed, plan.fitter)
            yield from ((document, probe) for probe in document.probes if probe.cell.key in keys)


def _answer(record: Record) -> str:
    return sanitise(record.outcome.text, None) if isinstance(record.outcome, Completion) else ""


def _first_difference(a: Sequence[object], b: Sequence[object]) -> int:
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
