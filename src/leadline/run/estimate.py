"""What a plan costs in requests and tokens, and its memory and time on this machine. Lengths are exact, so the prompt
tokens of every request are known before it is sent; the output is the maximum. `leadline.run.money` has the prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from leadline.core.contracts import Forecasting, Model, Task
from leadline.core.spec import Spec
from leadline.core.types import Cell, Document
from leadline.run.documents import count_documents, depths_of, first_rows, planned_documents, samples_of
from leadline.text.fitting import Fitter

CLOSING = 64
"""Tokens of a question with its template, for the forecast of memory, which need not be exact."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a task or a whole run costs; exact, since lengths are exact."""

    requests: int = 0
    prompt_tokens: int = 0
    """Sum over all prompts; what a provider bills."""
    tokens_read: int = 0
    """Tokens to read when the common prefix of a document is read once: in process, or with a prefix cache."""
    output_tokens: int = 0
    """The maximum: every answer as long as allowed."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.tokens_read + other.tokens_read,
            self.output_tokens + other.output_tokens,
        )

    def scaled(self, share: float) -> Cost:
        """The approximate cost of this share of it."""
        counts = (self.requests, self.prompt_tokens, self.tokens_read, self.output_tokens)
        return Cost(*(round(share * count) for count in counts))

    def seconds(self, tokens_per_second: float) -> float:
        """The time at a reading speed. Generated tokens count like read ones, which is right for short answers."""
        return (self.tokens_read + self.output_tokens) / tokens_per_second


def allowances(spec: Spec, title: str, task: Task, extra: Mapping[int, int]) -> dict[int, int]:
    """By length: the tokens an answer may have, from drafts, which need no tokenizer, and `extra` for thinking."""
    if task.request == "logprobs":
        return dict.fromkeys(spec.lengths, 0)
    largest: dict[int, int] = {}
    for row in first_rows(spec, title, task):
        for question in task.write(row, seed=spec.seed).questions:
            length = question.cell.length
            largest[length] = max(largest.get(length, 0), question.allowance + extra.get(length, 0))
    return largest


def cost_of(spec: Spec, task: Task, allowed: Mapping[int, int], built: Sequence[Document]) -> Cost:
    """`built` are documents of the task: how long their questions are says what a shared document adds per probe."""
    if task.request == "logprobs":
        return _logprob_cost(spec, task, built)
    prompts, closing = prompts_of(task, allowed, built)
    alone = prompts.pop(0, 0)
    probes = len(depths_of(spec, task)) * samples_of(spec, task)
    total = sum(prompts.values()) * probes
    cost = Cost(
        requests=probes * len(prompts),
        prompt_tokens=total,
        tokens_read=_tokens_read(spec, task, total, list(prompts.values()), probes, closing),
        output_tokens=sum(tokens for length, tokens in allowed.items() if length) * probes,
    )
    if 0 not in allowed:
        return cost
    samples = samples_of(spec, task)
    return cost + Cost(samples, samples * alone, samples * alone, samples * allowed[0])


def prompts_of(task: Task, allowed: Mapping[int, int], built: Sequence[Document]) -> tuple[dict[int, int], int]:
    """By length, the tokens of a prompt and the tokens at its end that belong to one question."""
    probes = [p for d in built for p in d.probes]
    closing = max((p.prompt_tokens - p.cut_tokens for p in probes), default=0)
    prompts = {length: length - allowance for length, allowance in allowed.items()}
    if 0 in prompts:
        prompts[0] = max((p.prompt_tokens for p in probes if not p.cell.length), default=0)
    if task.no_context:  # the question alone, whatever the length
        prompts = dict.fromkeys(prompts, max((p.prompt_tokens for p in probes), default=0))
    return prompts, closing


def _logprob_cost(spec: Spec, task: Task, built: Sequence[Document]) -> Cost:
    """One request per document, with tokens in proportion to those of one that was built."""
    tried = max(built, key=lambda d: len(d.ids))
    share = sum(p.tokens for p in tried.passages) / max(p.cell.length for p in tried.probes)
    once = spec.reading == "nested"
    fresh = 1 if task.depth_independent or spec.reading != "fresh" else len(depths_of(spec, task))
    lengths = [max(spec.lengths)] if once else list(spec.lengths)
    tokens = round(share * sum(lengths)) * spec.samples * fresh
    return Cost(len(lengths) * spec.samples * fresh, tokens, tokens, 0)


def _tokens_read(spec: Spec, task: Task, total: int, prompts: list[int], probes: int, closing: int) -> int:
    if spec.reading == "fresh":
        return total
    read_once, rows = sum(prompts) if spec.reading == "shared" else max(prompts), count_documents(spec, task)
    documents = rows * (len(prompts) if spec.reading == "shared" else 1)
    return read_once * rows + (probes * len(prompts) - documents) * closing


def forecast(
    spec: Spec, tasks: dict[str, Task], model: Model, allowed: dict[str, dict[int, int]], fitter: Fitter
) -> tuple[str, ...]:
    """Memory and time on this machine, for a model in process; raises when a document cannot fit."""
    if not isinstance(model, Forecasting):
        return ()

    def probe(cell: Cell) -> tuple[int, int, int]:
        new = allowed[cell.task][cell.length]
        return max(cell.length - new, CLOSING), CLOSING, new

    planned = [document.cells for document in planned_documents(spec, tasks)]
    unchanged = {title: _unchanged_before(spec, title, task, fitter) for title, task in tasks.items()}
    kept = [0] * len(planned)
    for i, (before, cells) in enumerate(pairwise(planned), 1):
        a, b = before[0], cells[0]
        if len(cells) == 1 and (a.task, a.length, a.sample) == (b.task, b.length, b.sample):
            kept[i] = int(unchanged[b.task] * (b.depth or 0.0) * probe(b)[0])
    return model.forecast([[probe(c) for c in cells] for cells in planned], kept)


def _unchanged_before(spec: Spec, title: str, task: Task, fitter: Fitter) -> float:
    """The share of the text before a fact that a document has in common with that of the next depth, in `fresh`:
    nearly all where facts are planted in one haystack. From two of the shortest documents."""
    depths = depths_of(spec, task)
    if spec.reading != "fresh" or task.depth_independent or len(depths) < 2 or not depths[-2]:
        return 0.0
    cells = [Cell(title, min(filter(None, spec.lengths)), depth, 0) for depth in depths[-2:]]
    a, b = (task.document((cell,), seed=spec.seed, fitter=fitter).ids for cell in cells)
    size = min(len(a), len(b))
    common = int((a[:size] != b[:size]).argmax()) if (a[:size] != b[:size]).any() else size
    return min(1.0, common / (depths[-2] * len(a)))
