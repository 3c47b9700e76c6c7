"""Log-probabilities of both sides after the same tokens: of prompts, of the base's answers, from cache and afresh.

A few prompts of every length are cut at positions spread over them and in the base's own answer, and each side lists
the tokens it expects there. Each side's numbers go to a file of its own, a line for a prompt, so they stream, a stopped
command continues, and sides can be measured one after the other.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from leadline.core.answers import Completion, Failure
from leadline.core.contracts import Model, NextTokenModel, TimedModel
from leadline.core.seeds import seed_of
from leadline.core.types import Cell, Document, NextToken, Probe
from leadline.run.documents import planned_documents
from leadline.run.plan import Plan
from leadline.stats.drift import DriftSummary, TokenDrift, summarise_drift, token_drift
from leadline.store.runs import read_records

PROMPTS_PER_LENGTH = 4
CUTS = 12
"""Positions in a prompt."""
ANSWER_CUTS = 12
"""Tokens of the base's answer, from the first."""
CANDIDATES = 20
"""Likeliest tokens that are compared at each position."""
FRESH_PROMPTS = 2
"""Prompts of a side that are read from its cache and afresh."""
TIMED_TOKENS = 32
FIRST_BUCKET = 1024
"""Positions below it are one bucket; each further one is twice as long."""
ANSWER_BUCKETS = ((1, "answer token 1"), (4, "answer tokens 2 to 4"), (ANSWER_CUTS, "answer tokens from 5"))


class PromptDrift(msgspec.Struct, frozen=True, omit_defaults=True):
    """The numbers of one side for one prompt."""

    cell: str
    length: int
    prompt_tokens: int
    cuts: tuple[int, ...]
    after: tuple[NextToken, ...] = ()
    cached: tuple[NextToken, ...] = ()
    """At the end of the prompt, from the cache."""
    fresh: tuple[NextToken, ...] = ()
    first_seconds: float | None = None
    tokens_per_second: float | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class SideDrift:
    """The file of one side."""

    prompts: tuple[PromptDrift, ...]

    @property
    def problem(self) -> str:
        """Why there are no log-probabilities; empty if there are."""
        if any(prompt.after for prompt in self.prompts):
            return ""
        return next((prompt.problem for prompt in self.prompts if prompt.problem), "no prompt was asked")


def drift_file(folder: Path) -> Path:
    """Beside the run of a side."""
    return folder.with_name(f"{folder.name}-logprobs.jsonl")


def read_drift(folder: Path) -> SideDrift:
    """Empty for a side without drift, such as a finished run. A torn last line is left out."""
    path, prompts = drift_file(folder), []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            prompts.append(msgspec.json.decode(line, type=PromptDrift))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return SideDrift(tuple(prompts))


def chosen_cells(cells: Sequence[Cell], seed: int, count: int = PROMPTS_PER_LENGTH) -> list[Cell]:
    """`count` prompts of every length, spread over tasks and depths; the same for both sides."""
    drawn = sorted((c for c in cells if c.sample == 0), key=lambda cell: seed_of(seed, "drift", cell.key))
    lengths = sorted({cell.length for cell in drawn})
    return [cell for length in lengths for cell in [c for c in drawn if c.length == length][:count]]


def measure_drift(
    folder: Path, plan: Plan, cells: Sequence[Cell], base_folder: Path, say: Callable[[str], None]
) -> None:
    """Asks a side about the chosen prompts that its file does not have yet."""
    model = plan.model
    known = {prompt.cell for prompt in read_drift(folder).prompts}
    wanted = {cell.key for cell in chosen_cells(cells, plan.spec.seed)} - known
    answers = {
        r.cell.key: r.outcome.text for r in read_records(base_folder)
        if r.cell.key in wanted and isinstance(r.outcome, Completion) and not r.failed
    }  # fmt: skip
    began = said = time.monotonic()
    with drift_file(folder).open("ab") as file:
        for number, (document, probe) in enumerate(_documents(plan, set(answers)), 1):
            compared = ask_prompt(model, document, probe, answers[probe.cell.key], fresh=number <= FRESH_PROMPTS)
            if isinstance(model, TimedModel) and not compared.problem:
                compared = _with_times(model, document, probe, compared)
            file.write(msgspec.json.encode(compared) + b"\n")
            file.flush()
            if compared.problem and not compared.after:
                say(f"no log-probabilities: {compared.problem}")
                return
            if time.monotonic() - said > 10:
                said = time.monotonic()
                say(f"log-probabilities of {number} of {len(answers)} prompts, {said - began:.0f} s")


def ask_prompt(model: Model, document: Document, probe: Probe, answer: str, *, fresh: bool) -> PromptDrift:
    prompt = document.prompt_ids(probe)
    written = model.tokenizer.encode(answer)[:ANSWER_CUTS] if answer else prompt[:0]
    ids = np.concatenate([prompt, written])
    cuts = (*spread_cuts(len(prompt), probe.cell.key), *range(len(prompt), len(ids)))
    cell = probe.cell
    drift = PromptDrift(cell.key, cell.length, len(prompt), cuts)
    if not isinstance(model, NextTokenModel):
        return msgspec.structs.replace(drift, problem=f"{model.card.name} gives no log-probabilities")
    after = model.next_tokens(ids, cuts, CANDIDATES)
    if isinstance(after, Failure):
        return msgspec.structs.replace(drift, problem=after.message)
    drift = msgspec.structs.replace(drift, after=tuple(after))
    if not fresh:
        return drift
    ends = [max(1, len(prompt) - 8), len(prompt)]
    cached = model.next_tokens(prompt, ends, CANDIDATES)
    anew = model.next_tokens(prompt, ends, CANDIDATES, fresh=True)
    if isinstance(cached, Failure) or isinstance(anew, Failure):
        return drift
    return msgspec.structs.replace(drift, cached=tuple(cached), fresh=tuple(anew))


def spread_cuts(tokens: int, key: str) -> list[int]:
    """Ascending positions in a prompt, one at random in each of equal parts. The last tokens are the answer's."""
    edges = np.linspace(1, tokens, min(CUTS, max(1, tokens - 1)) + 1).astype(int).tolist()
    draw = random.Random(seed_of(0, "cuts", key))
    return sorted({draw.randrange(low, high) for low, high in pairwise(edges) if low < high})


def _with_times(model: TimedModel, document: Document, probe: Probe, compared: PromptDrift) -> PromptDrift:
    timed = model.time_answer(document.prompt_ids(probe), TIMED_TOKENS)
    if isinstance(timed, Failure):
        return compared
    return msgspec.structs.replace(compared, first_seconds=timed.first, tokens_per_second=timed.rate)


def _documents(plan: Plan, keys: set[str]) -> Iterator[tuple[Document, Probe]]:
    for planned in planned_documents(plan.spec, plan.tasks):
        if not keys.isdisjoint(cell.key for cell in planned.cells):
            document = planned.document(plan.spec.seed, plan.fitter)
            yield from ((document, probe) for probe in document.probes if probe.cell.key in keys)


# --- both sides ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drift:
    """The whole, and by position."""

    overall: DriftSummary
    buckets: tuple[DriftSummary, ...]
    problem: str = ""
    """The reason why nothing was compared."""


def compare_drift(base: SideDrift, candidate: SideDrift) -> Drift:
    """Compares positions of the same prompts with equal cuts."""
    theirs = {prompt.cell: prompt for prompt in candidate.prompts}
    positions: list[tuple[str, str, TokenDrift]] = []
    for prompt in base.prompts:
        other = theirs.get(prompt.cell)
        if other is None or other.cuts != prompt.cuts or not prompt.after or not other.after:
            continue
        for cut, ours, their in zip(prompt.cuts, prompt.after, other.after, strict=True):
            positions.append((bucket_of(cut, prompt.prompt_tokens), prompt.cell, token_drift(ours, their)))
    names = list(dict.fromkeys(name for name, _, _ in sorted(positions, key=lambda position: _order(position[0]))))
    problems = {"base": base.problem, "candidate": candidate.problem}
    problem = "; ".join(f"{role}: {why}" for role, why in problems.items() if why)
    return Drift(
        summarise_drift("overall", [(cell, drift) for _, cell, drift in positions]),
        tuple(summarise_drift(name, [(c, d) for bucket, c, d in positions if bucket == name]) for name in names),
        "" if positions else problem or "the sides were not asked about the same prompts",
    )


def bucket_of(cut: int, prompt_tokens: int) -> str:
    """By position in a prompt, in powers of two, or in the answer."""
    if cut >= prompt_tokens:
        number = cut - prompt_tokens + 1
        return next((name for last, name in ANSWER_BUCKETS if number <= last), ANSWER_BUCKETS[-1][1])
    high = FIRST_BUCKET
    while cut >= high:
        high *= 2
    low = 0 if high == FIRST_BUCKET else high // 2
    return f"tokens {low // 1024}k to {high // 1024}k"


def _order(name: str) -> tuple[int, int]:
    answers = [label for _, label in ANSWER_BUCKETS]
    return (1, answers.index(name)) if name in answers else (0, int(name.split()[1].removesuffix("k")))


@dataclass(frozen=True, slots=True)
class CacheDrift:
    """A side's answers from its cache against its own fresh readings."""

    role: str
    summary: DriftSummary
    cached_tokens: int | None
    """The most that came from the cache; None where the server does not say."""


def cache_drift(role: str, side: SideDrift) -> CacheDrift | None:
    """None where a side cannot be asked afresh."""
    pairs = [(p.cell, token_drift(a, b)) for p in side.prompts for a, b in zip(p.fresh, p.cached, strict=True)]
    if not pairs:
        return None
    reused = [after.cached for prompt in side.prompts for after in prompt.cached if after.cached is not None]
    return CacheDrift(role, summarise_drift(role, pairs), max(reused, default=None))


Times = Sequence[tuple[int, float]]
"""(length, a number) for every prompt."""


def times_of(side: SideDrift) -> tuple[Times, Times]:
    """Seconds to the first token, and tokens a second, by length."""
    first = [(p.length, p.first_seconds) for p in side.prompts if p.first_seconds is not None]
    rates = [(p.length, p.tokens_per_second) for p in side.prompts if p.tokens_per_second is not None]
    return first, rates
