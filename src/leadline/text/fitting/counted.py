"""Documents of an exact length for a model whose tokenizer is not public, by its provider's counts of whole prompts.

A local tokenizer lays a document out; its length in that tokenizer follows from the share that earlier documents had,
and is meant to fall some tokens short of what is asked. The provider counts the prompt, which may be laid out again,
and dots before the question, of a token each, fill what is missing. At most MOST_COUNTS counts are made for a
question; most documents take two or three. Several questions of one length begin at the same place of their document,
so that the length of each follows from that of one and from their sizes, which a few counts give together. What is
then still off is on the record, and the model's receipt decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from leadline.core.contracts import Tokenizer
from leadline.core.drafts import Draft
from leadline.core.seeds import digest
from leadline.core.types import Cell, Document, Planted, Probe
from leadline.text.fitting.question_sizes import QuestionSizes, different_parts

Count = Callable[[Document, Probe], int | None]
"""The provider's count of a question; None where it gives none."""
LayOut = Callable[[Draft], Document]
MOST_COUNTS = 5
"""The most counts for one question."""
AIM = 3
AIM_OF_MANY = 6
"""Tokens by which a text should be short: in a document with one question, and with several of different sizes. More
where earlier documents missed their expected length by more, as lists with newly drawn entries do."""
FEWEST_DOTS, MOST_DOTS = 20, 160
"""A document is laid out again if it would need more dots than five times its aim, within these bounds."""
DOTS = (" .", " ,", " a", " -", ".")
"""One of them is a token in every tokenizer we know. The first document of a model finds it, with at most as many
further counts."""
TRIED_DOTS = 16
MOST_AT_JOINT = 2
"""Tokens that dots may lose or gain next to a question. More means that the question has another size than expected."""
FIRST_SHARE = 1.25
"""The provider's tokens for each of the local tokenizer's, before anything was counted."""
WEIGHT = 0.3
"""The weight of the last document in the share that is expected of the next one."""


class CountedQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """The results of a question's counts."""

    correction: int
    dots: int = 0
    off: int | None = 0
    """Tokens beyond the intended ones; None if it could not be counted."""


class CountedDraft(msgspec.Struct, frozen=True):
    """The results of a document's counts. With them it is laid out again unchanged, without counting."""

    draft: str
    dots: str
    questions: dict[str, CountedQuestion]
    """By the key of their cells."""


@dataclass
class ProviderCounts:
    """The counts of one model, and their results. Used by many threads."""

    count: Count
    tokenizer: Tokenizer
    sizes: QuestionSizes
    shares: dict[tuple[str, int], float] = field(default_factory=dict)
    """By task and length, the provider's tokens for each of the local tokenizer's."""
    misses: dict[str, float] = field(default_factory=dict)
    """By task, the tokens by which a second layout missed its expected length."""
    dots: str = ""
    """The dots that are used; empty before the first document."""
    counts: list[int] = field(default_factory=list)
    """Counts that each document took."""
    known: dict[str, CountedDraft] = field(default_factory=dict)
    """Documents that were counted before, by the digest of their questions."""
    keep: Callable[[CountedDraft], None] | None = None
    """Keeps one for the next start of the run."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expected_share(self, task: str, length: int) -> float:
        known = self.shares.get((task, length))
        if known is not None:
            return known
        near = sorted(self.shares, key=lambda key: (key[0] != task, abs(key[1] - length)))
        return self.shares[near[0]] if near else FIRST_SHARE

    def learn(self, task: str, length: int, share: float) -> None:
        with self._lock:
            before = self.shares.get((task, length))
            self.shares[task, length] = share if before is None else (1 - WEIGHT) * before + WEIGHT * share

    def aim(self, task: str, questions: int) -> int:
        return max(AIM if questions == 1 else AIM_OF_MANY, min(MOST_DOTS // 5, round(1.5 * self.misses.get(task, 0.0))))

    def missed(self, task: str, tokens: int) -> None:
        with self._lock:
            before = self.misses.get(task)
            self.misses[task] = tokens if before is None else (1 - WEIGHT) * before + WEIGHT * tokens

    def fit(self, draft: Draft, lay_out: LayOut, extra: Mapping[int, int]) -> Document:
        """The draft as a document whose prompts have the asked length by the provider's count. `extra` is what the
        layout adds to the allowances of a length."""
        sizes = [(q.cell.key, q.allowance + extra.get(q.cell.length, 0)) for q in draft.questions]
        # A task may lay out a cell twice: a session, and what a compactor kept of it.
        name = digest(
            [sizes, draft.filler is None, draft.head, [dict(item) for item in draft.kept.items] if draft.kept else []]
        )
        fit = _CountedFit(self, draft, lay_out)
        known = self.known.get(name)
        if known is not None and known.questions.keys() == {key for key, _ in sizes}:
            return fit.as_before(known)
        document = fit.verbatim() if draft.filler is None else fit.fitted()
        counted = CountedDraft(name, self.dots, fit.found())
        with self._lock:
            self.counts.append(fit.counts)
            is_exact = all(not question.off for question in counted.questions.values())
            if is_exact or self.keep is not None:  # the first documents of a plan may be tried again
                self.known[name] = counted
            if self.keep is not None:
                self.keep(counted)
        return document


class _CountedFit:
    """One document. `corrections` are, by cell, tokens of the prompt beyond those in the local tokenizer."""

    def __init__(self, provider: ProviderCounts, draft: Draft, lay_out: LayOut) -> None:
        self.provider = provider
        self.draft = draft
        self.lay_out = lay_out
        self.counts = 0
        self.corrections: dict[Cell, int] = {}
        self.settled: dict[Cell, tuple[int, int | None]] = {}
        """The dots before a question, and the tokens by which it is still off."""
        self.most_dots = FEWEST_DOTS
        self.spread = 0
        """Of the dots, those that a question may need beyond the longest one."""
        self.parts: dict[Cell, str] = {}
        """The parts that differ between the questions of the document."""

    def _laid_out(self) -> Document:
        questions = tuple(
            msgspec.structs.replace(q, correction=self.corrections.get(q.cell, 0)) for q in self.draft.questions
        )
        return self.lay_out(replace(self.draft, questions=questions))

    def _off(self, document: Document, probe: Probe) -> int | None:
        """Tokens of a question beyond the intended ones; None if it cannot be counted."""
        if probe.not_asked is not None and self.draft.filler is not None:
            return None
        self.counts += 1
        tokens = self.provider.count(document, probe)
        return None if tokens is None else tokens - probe.prompt_tokens

    def found(self) -> dict[str, CountedQuestion]:
        return {
            q.cell.key: CountedQuestion(self.corrections.get(q.cell, 0), *self.settled.get(q.cell, (0, 0)))
            for q in self.draft.questions
        }

    def as_before(self, known: CountedDraft) -> Document:
        """The document as it was laid out by its counts."""
        self.corrections = {q.cell: known.questions[q.cell.key].correction for q in self.draft.questions}
        document = self._laid_out()
        if self.draft.filler is None:
            return document
        self.provider.dots = self.provider.dots or known.dots

        def again(probe: Probe) -> Probe:
            counted = known.questions[probe.cell.key]
            return self._noted(counted.off, self._with_dots(probe, counted.dots, known.dots))

        probes = tuple(p if p.not_asked is not None else again(p) for p in document.probes)
        return _in_counted_tokens(replace(document, probes=probes))

    # --- texts that are sent as they are

    def verbatim(self) -> Document:
        """Counted, and cut or refused by that count where the draft has a limit."""
        for _ in range(MOST_COUNTS):
            document = self._laid_out()
            differences = {probe.cell: self._off(document, probe) for probe in document.probes}
            off = {cell: tokens for cell, tokens in differences.items() if tokens}
            if not off:
                break
            for cell, tokens in off.items():
                self.corrections[cell] = self.corrections.get(cell, 0) + tokens
            if self.draft.on_overflow == "send":
                document = self._laid_out()  # the same text, with the count that is now known
                break
        return document

    # --- documents

    def fitted(self) -> Document:
        task = self.draft.questions[0].cell.task_family
        aim = self.provider.aim(task, len(self.draft.questions))
        self.most_dots = max(FEWEST_DOTS, 5 * aim)
        self._expect(aim)
        if len(self.draft.questions) > 1:
            self._end_alike()
        known: dict[Cell, int | None] = {}
        for attempt in range(MOST_COUNTS - 1):
            document = self._laid_out()
            known = {probe.cell: self._off(document, probe) for probe in self._longest(document).values()}
            self._learn(document, known)
            for off in known.values() if attempt else ():
                self.provider.missed(task, abs((off or -aim) + aim))
            last = attempt == MOST_COUNTS - 2
            if last or all(off is None or self.spread - self.most_dots <= off <= 0 for off in known.values()):
                break
            self._correct(document, known, aim)
        probes = self._settled_alike(document, known)
        probes |= {p.cell: self._settled(document, p, known) for p in document.probes if p.cell not in probes}
        return _in_counted_tokens(replace(document, probes=tuple(probes[p.cell] for p in document.probes)))

    # --- several questions that end one document at one place

    def _end_alike(self) -> None:
        """Lets all questions of a length begin at the same place, so that they differ in nothing but themselves, and
        finds their sizes."""
        document = self._laid_out()
        longest: dict[int, int] = {}
        for probe in document.probes:
            longest[probe.cell.length] = max(longest.get(probe.cell.length, 0), _local_need(probe))
        for probe in document.probes:
            self.corrections[probe.cell] += longest[probe.cell.length] - _local_need(probe)
        probes = [probe for probe in document.probes if probe.not_asked is None]
        if len(probes) < 2:
            return
        parts = different_parts([probe.user_suffix for probe in probes])
        self.parts = {probe.cell: part for probe, part in zip(probes, parts, strict=True)}
        self.counts += self.provider.sizes.learn(parts)
        needs = [need for probe in document.probes if (need := self._need(probe)) is not None]
        self.spread = max(self.most_dots // 2, max(needs, default=0) - min(needs, default=0))
        self.most_dots += self.spread

    def _need(self, probe: Probe) -> int | None:
        """Tokens of a question's length besides the document, as far as they differ between questions."""
        size = self.provider.sizes.known.get(self.parts.get(probe.cell, "?"))
        return None if size is None else size + probe.question.allowance

    def _longest(self, document: Document) -> dict[int, Probe]:
        """The largest question of every length. It is counted."""
        longest: dict[int, Probe] = {}
        for probe in document.probes:
            best = longest.get(probe.cell.length)
            if best is None or (self._need(probe) or 0) >= (self._need(best) or 0):
                longest[probe.cell.length] = probe
        return longest

    def _settled_alike(self, document: Document, known: Mapping[Cell, int | None]) -> dict[Cell, Probe]:
        """The questions whose length follows from that of the longest one, if the count of another one agrees."""
        off: int | None = None
        dots: dict[Cell, int] = {}
        for longest in self._longest(document).values():
            off, most = known[longest.cell], self._need(longest)
            alike = [p for p in document.probes if p.cut_characters == longest.cut_characters and p.not_asked is None]
            if off is None or most is None or len(alike) < 2:
                continue
            if off:
                self._choose_dots(document, longest, off)
            lacking = {p.cell: most - off - need for p in alike if (need := self._need(p)) is not None}
            if all(0 <= count <= max(MOST_DOTS, self.most_dots) for count in lacking.values()):
                dots |= lacking
        lacking_most_first = sorted((p for p in document.probes if p.cell in dots), key=lambda p: -dots[p.cell])
        for checked in (lacking_most_first[0], lacking_most_first[-1]) if lacking_most_first else ():
            off = self._off(document, self._with_dots(checked, dots[checked.cell]))
            if not off:
                break
            if abs(off) > MOST_AT_JOINT:
                return {}
            dots = {cell: max(0, count - off) for cell, count in dots.items()}
        if off != 0:
            return {}
        self.settled |= {cell: (count, 0) for cell, count in dots.items()}
        return {p.cell: self._with_dots(p, dots[p.cell]) for p in document.probes if p.cell in dots}

    # --- each question by itself

    def _expect(self, aim: int) -> None:
        for question in self.draft.questions:
            target = question.cell.length - question.allowance
            share = self.provider.expected_share(question.cell.task_family, question.cell.length)
            self.corrections[question.cell] = target - round((target - aim) / share)

    def _learn(self, document: Document, known: Mapping[Cell, int | None]) -> None:
        for probe in document.probes:
            off = known.get(probe.cell)
            if off is not None:
                laid_out = max(1, probe.prompt_tokens - probe.correction)
                share = (probe.prompt_tokens + off) / laid_out
                self.provider.learn(probe.cell.task_family, probe.cell.length, share)

    def _correct(self, document: Document, known: Mapping[Cell, int | None], aim: int) -> None:
        """The next layout of every length with fewer tokens, in those of the local tokenizer."""
        for probe in self._longest(document).values():
            off = known[probe.cell]
            if off is None:
                continue
            share = (probe.prompt_tokens + off) / max(1, probe.prompt_tokens - probe.correction)
            less = round((off + aim) / share)
            for cell in self.corrections:
                if cell.length == probe.cell.length:
                    self.corrections[cell] += less

    def _settled(self, document: Document, probe: Probe, known: Mapping[Cell, int | None]) -> Probe:
        """The question with as many dots before it as it lacks tokens."""
        if probe.not_asked is not None:
            return probe
        counts = MOST_COUNTS - (self.counts if len(document.probes) == 1 else 1)
        off = known[probe.cell] if probe.cell in known else self._off(document, probe)
        if off:
            self._choose_dots(document, probe, off)
        dots, best = 0, (0, off)
        while off and counts > 0 and 0 <= dots - off <= max(MOST_DOTS, self.most_dots):
            dots, counts = dots - off, counts - 1
            off = self._off(document, self._with_dots(probe, dots))
            if off is not None and abs(off) < abs(best[1] or 0):
                best = (dots, off)
        self.settled[probe.cell] = best
        return self._noted(best[1], self._with_dots(probe, best[0]))

    def _choose_dots(self, document: Document, probe: Probe, off: int) -> None:
        """Once for a model: the first of DOTS that are a token each."""
        provider = self.provider
        for dots in DOTS if not provider.dots else ():
            provider.dots = dots
            tokens = provider.count(document, self._with_dots(probe, TRIED_DOTS))
            if tokens is not None and abs(tokens - probe.prompt_tokens - off - TRIED_DOTS) <= 1:
                return

    def _with_dots(self, probe: Probe, count: int, dots: str = "") -> Probe:
        if not count:
            return probe
        text = (dots or self.provider.dots) * count
        ids = np.concatenate([self.provider.tokenizer.encode(text), probe.suffix_ids]).astype(np.int32)
        correction = probe.prompt_tokens - probe.cut - len(ids)
        return replace(probe, user_suffix=text + probe.user_suffix, suffix_ids=ids, correction=correction)

    def _noted(self, off: int | None, probe: Probe) -> Probe:
        if off is None:
            note = "its length is an estimate: the prompt could not be counted"
            return replace(probe, notes=(*probe.notes, note))
        if not off:
            return probe
        note = f"by the provider's count {abs(off)} tokens {'longer' if off > 0 else 'shorter'} than asked"
        tokens, correction = probe.prompt_tokens + off, probe.correction + off
        return replace(probe, prompt_tokens=tokens, correction=correction, notes=(*probe.notes, note))


def _local_need(probe: Probe) -> int:
    return len(probe.suffix_ids) + probe.question.allowance


def _in_counted_tokens(document: Document) -> Document:
    """With the positions of facts in the provider's tokens, as far as the whole prompt's count gives them."""
    longest = max(document.probes, key=lambda probe: probe.cut)
    share = longest.prompt_tokens / max(1, longest.prompt_tokens - longest.correction)
    facts = tuple(_scaled(fact, share) for fact in document.facts)
    probes = tuple(replace(p, body_tokens=round(p.body_tokens * share)) for p in document.probes)
    return replace(document, facts=facts, probes=probes)


def _scaled(fact: Planted, share: float) -> Planted:
    return replace(fact, start=round(fact.start * share), end=round(fact.end * share))
