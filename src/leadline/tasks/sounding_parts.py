"""One document in the making: what is read of it for the metrics asked for, and what becomes of it for every cell.

The document is the first passage, read once for all anchors, cuts and losses. LongPPL's short contexts are passages of
their own, since they begin elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.contracts import Continuation, Surprise
from leadline.core.seeds import rng
from leadline.core.soundings import Passage, Reckoning, Sounded
from leadline.core.types import UNIT, Cell, Frame, Measured, Planted, Probe
from leadline.tasks.anchors import Anchor, place_anchors
from leadline.tasks.evaluators import evaluator_marks
from leadline.tasks.surprises import gain_numbers, key_numbers, key_tokens, loss_numbers
from leadline.text.plain import PlainText

if TYPE_CHECKING:
    from leadline.core.contracts import Nats
    from leadline.core.types import Ids
    from leadline.tasks.log_probs import LogProbs

NATS = "nats a token"
ANYWHERE = (0.1, 0.6)
"""Where an anchor is drawn when the grid has no depths: the range of the definition."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some of a cell's numbers, from the surprise at some passages by their number."""

    passages: tuple[int, ...]
    made: Callable[[Mapping[int, Surprise]], Measured]


class Sounding:
    def __init__(
        self, task: LogProbs, name: str, text: PlainText, plain: Frame, separator: Ids, cells: Sequence[Cell], seed: int
    ) -> None:
        self._task = task
        self._name = name
        self._text = text
        self._plain = plain
        self._separator = separator
        self._cells = cells
        self._seed = seed
        self._continuations: list[Continuation] = []
        self._asides: list[Passage] = []
        self._parts: dict[str, list[Part]] = {c.key: [] for c in cells}
        self._anchors: dict[str, Anchor] = {}
        # Whatever is scored of the document itself is one span: its own tokens, less a first one with nothing before.
        self._first = max(text.before, 1)

    def document(self) -> Sounded:
        task, longppl = self._task, "longppl" in self._task.metrics
        losses = not {"mean_nll", "tail_loss", "tail_vs_head"}.isdisjoint(task.metrics)
        if longppl and not task.evaluator:
            self._lay_short_contexts()
        for length in sorted({c.length for c in self._cells}):
            here = [c for c in self._cells if c.length == length]
            own = self._text.cut(length)
            if not {"retrieval_gain", "retrieval_nll"}.isdisjoint(task.metrics):
                self._add_gains(own, here)
            of_document = self._parts[here[0].key]  # numbers of the whole document stand with its first cell
            if losses:
                of_document.append(self._loss(own))
            if longppl:
                of_document.append(self._evaluated_keys(own, length) if task.evaluator else self._own_keys(own))
        spans = ((self._first, len(self._text.ids)),) if losses or longppl else ()
        passages = (Passage(self._text.ids, tuple(self._continuations), spans), *self._asides)
        return self._finished(passages)

    # --- gain ---

    def _add_gains(self, own: PlainText, cells: Sequence[Cell]) -> None:
        task = self._task
        draw = rng(self._seed, "anchor", self._name)
        depths = [draw.uniform(*ANYWHERE) if c.depth is None else c.depth for c in cells]
        for cell, anchor in zip(
            cells, place_anchors(own.own, depths, query=task.query, answer=task.answer), strict=True
        ):
            self._anchors[cell.key] = anchor
            self._parts[cell.key].append(self._gain(own, anchor))

    def _gain(self, own: PlainText, anchor: Anchor) -> Part:
        task, start = self._task, anchor.at + self._task.query
        repeated = own.own[anchor.at : start + task.answer]
        after = self._continue(len(own.ids), np.concatenate([self._separator, repeated]), len(self._separator))
        alone = self._continue(own.before, repeated, 0)
        place = {"distance": float(own.tokens - start), "ambiguous": float(anchor.ambiguous)}
        utf8 = own.utf8(start, start + task.answer)

        def made(found: Mapping[int, Surprise]) -> Measured:
            nats = found[0].continuations
            return Measured({**gain_numbers(nats[after], nats[alone], utf8), **place})

        return Part((0,), made)

    def _continue(self, cut: int, ids: Ids, separator: int) -> int:
        """A continuation whose answer is scored; says its number."""
        self._continuations.append(Continuation(cut, ids.astype(np.int32), separator + self._task.query))
        return len(self._continuations) - 1

    # --- losses ---

    def _loss(self, own: PlainText) -> Part:
        utf8, tail = own.utf8(self._first - own.before, own.tokens), self._task.tail
        return Part((0,), lambda found: Measured(loss_numbers(self._scored(found, own), utf8, tail)))

    def _scored(self, found: Mapping[int, Surprise], own: PlainText) -> Nats:
        """Surprise at the document's tokens up to a cut, from the first that can be scored."""
        return found[0].spans[0][: len(own.ids) - self._first]

    # --- LongPPL ---

    def _lay_short_contexts(self) -> None:
        """Tokens from short + step on, `step` at a time, after no more than short + step tokens before them."""
        task, text = self._task, self._text
        for start in range(task.step, text.tokens - task.short, task.step):
            stop = min(start + task.short + task.step, text.tokens)
            ids = np.concatenate([text.ids[: text.before], text.own[start:stop]])
            self._asides.append(Passage(ids, spans=((text.before + task.short, len(ids)),)))

    def _own_keys(self, own: PlainText) -> Part:
        begin = self._task.short + self._task.step
        needed = [n for n in range(len(self._asides)) if begin + n * self._task.step < own.tokens]

        def made(found: Mapping[int, Surprise]) -> Measured:
            whole = self._scored(found, own)[begin - (self._first - own.before) :]
            short = np.concatenate([found[n + 1].spans[0] for n in needed] or [whole[:0]])[: len(whole)]
            keys = key_tokens(whole[: len(short)], short)
            marks = tuple(own.characters(begin + k, begin + k + 1) for k in keys.tolist()) if own.ends else ()
            return Measured(key_numbers(whole[keys]), marks)

        return Part((0, *(n + 1 for n in needed)), made)

    def _evaluated_keys(self, own: PlainText, length: int) -> Part:
        marks = evaluator_marks(Path(self._task.evaluator), self._name, length)
        scored = self._first - own.before
        keys = [t - scored for t in own.tokens_in(marks) if t >= scored]
        return Part((0,), lambda found: Measured(key_numbers(self._scored(found, own)[keys]), marks))

    # --- the document ---

    def _finished(self, passages: tuple[Passage, ...]) -> Sounded:
        nested = len({c.length for c in self._cells}) > 1
        return Sounded(
            id=f"{self._name}/{'nested' if nested else self._cells[0].length}",
            cluster=self._name,
            frame=self._plain,
            text=self._plain.before + self._text.text,
            ids=self._text.ids,
            body_start=self._text.before,
            body_start_characters=len(self._plain.before),
            facts=tuple(self._planted(cell) for cell in self._cells if cell.key in self._anchors),
            probes=tuple(map(self._probe, self._cells)),
            passages=passages,
            reckonings={key: _together(parts) for key, parts in self._parts.items()},
        )

    def _planted(self, cell: Cell) -> Planted:
        anchor, task = self._anchors[cell.key], self._task
        end = anchor.at + task.query + task.answer
        return Planted(
            cell.key, self._text.words(anchor.at, end), anchor.at, end, anchor.depth_asked, round(anchor.depth, 6)
        )

    def _probe(self, cell: Cell) -> Probe:
        """What stood where, in the words of a question: the stretch repeated, and how it goes on."""
        own, anchor = self._text.cut(cell.length), self._anchors.get(cell.key)
        start = 0 if anchor is None else anchor.at
        asked = 0 if anchor is None else self._task.query
        answer = 0 if anchor is None else self._task.answer
        question = own.words(start, start + asked) if asked else ""
        labels = {UNIT: NATS, "document": str(self._text.number)}
        if own.tokens < cell.length:
            labels["short"] = "true"
        return Probe(
            cell=cell,
            cut=len(own.ids),
            cut_characters=len(self._plain.before) + len(own.text),
            tail=self._task.separator + question,
            closing_ids=own.own[start : start + asked],
            prompt_tokens=len(own.ids) + asked,
            question=question,
            answer_prefix="",
            targets=(own.words(start + asked, start + asked + answer),) if answer else (),
            distractors=(),
            facts=(cell.key,) if anchor else (),
            allowance=answer,
            scorers=self._task.metrics,
            labels=labels,
            body_tokens=own.tokens,
        )


def _together(parts: Sequence[Part]) -> Reckoning:
    """All parts of a cell's numbers as one rule. A cell may have none of its own, and then has no numbers."""
    passages = tuple(sorted({n for part in parts for n in part.passages}))

    def numbers(surprises: Sequence[Surprise]) -> Measured:
        found = dict(zip(passages, surprises, strict=True))
        made = [part.made(found) for part in parts]
        return Measured(
            {name: number for one in made for name, number in one.numbers.items()},
            tuple(mark for one in made for mark in one.marks),
        )

    return Reckoning(passages, numbers)
