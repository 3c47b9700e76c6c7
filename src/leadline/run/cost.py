"""What a run costs, before it runs: requests, tokens, time, money. Exact where lengths are, since lengths are exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leadline.core.contracts import Task
from leadline.core.soundings import Measure, Sounded
from leadline.core.spec import Spec
from leadline.core.types import Document
from leadline.run.grid import depths_of, first_rows


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a task or a whole run."""

    requests: int = 0
    prompt_tokens: int = 0
    """Sum over all prompts as they are sent; what a provider bills."""
    tokens_read: int = 0
    """What has to be read when a document's common beginning is read once: in process, or from a prefix cache."""
    output_tokens: int = 0
    """At most: every answer as long as it may be."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.tokens_read + other.tokens_read,
            self.output_tokens + other.output_tokens,
        )

    def seconds(self, tokens_per_second: float) -> float:
        """At a speed of reading; writing counts as reading, which is right for short answers."""
        return (self.tokens_read + self.output_tokens) / tokens_per_second

    def money(self, price_in: float, price_out: float) -> float:
        """At prices per million tokens, without discounts for cached input."""
        return (self.prompt_tokens * price_in + self.output_tokens * price_out) / 1e6


def allowances(spec: Spec, title: str, task: Task) -> dict[int, int]:
    """By length: the tokens an answer may have, from drafts, which need no tokenizer."""
    if isinstance(task, Measure):
        return dict.fromkeys(spec.lengths, 0)
    found: dict[int, int] = {}
    for row in first_rows(spec, title, task):
        for question in task.write(row, seed=spec.seed).questions:
            length = question.cell.length
            found[length] = max(found.get(length, 0), question.allowance)
    return found


def cost_of(spec: Spec, task: Task, allowed: Mapping[int, int], built: Sequence[Document]) -> Cost:
    """`built` are documents of the task: how long their questions are says what a shared document adds per probe."""
    if isinstance(task, Measure):
        return _measure_cost(spec, task, built)
    closing = max((p.prompt_tokens - p.cut for d in built for p in d.probes), default=0)
    probes = len(depths_of(spec, task)) * spec.samples
    prompts = {length: length - allowance for length, allowance in allowed.items()}
    if task.no_context:  # the question alone, whatever the length
        prompts = dict.fromkeys(prompts, max((p.prompt_tokens for d in built for p in d.probes), default=0))
    total = sum(prompts.values()) * probes
    return Cost(
        requests=probes * len(prompts),
        prompt_tokens=total,
        tokens_read=_tokens_read(spec, total, list(prompts.values()), probes, closing),
        output_tokens=sum(allowed.values()) * probes,
    )


def _measure_cost(spec: Spec, task: Measure, built: Sequence[Document]) -> Cost:
    """Documents as requests, each with what it takes in proportion to one that was built."""
    tried = max((d for d in built if isinstance(d, Sounded)), key=lambda d: len(d.ids))
    share = sum(p.tokens for p in tried.passages) / max(p.cell.length for p in tried.probes)
    once = spec.reading == "nested"
    fresh = 1 if task.reads_once or spec.reading != "fresh" else len(depths_of(spec, task))
    lengths = [max(spec.lengths)] if once else list(spec.lengths)
    tokens = round(share * sum(lengths)) * spec.samples * fresh
    return Cost(len(lengths) * spec.samples * fresh, tokens, tokens, 0)


def _tokens_read(spec: Spec, total: int, prompts: list[int], probes: int, closing: int) -> int:
    if spec.reading == "fresh":
        return total
    read_once = sum(prompts) if spec.reading == "shared" else max(prompts)
    documents = spec.samples * (len(prompts) if spec.reading == "shared" else 1)
    return read_once * spec.samples + (probes * len(prompts) - documents) * closing
