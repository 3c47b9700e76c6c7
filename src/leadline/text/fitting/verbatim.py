"""Texts that are sent as they are: nothing is filled in, their length is counted and may be cut to a limit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.contracts import Tokenizer
from leadline.core.drafts import Draft, Question
from leadline.core.errors import LengthError
from leadline.core.records import Failure, FailureKind
from leadline.core.types import Document, Frame, Probe

if TYPE_CHECKING:
    from leadline.core.types import Ids

RECUTS = 16
"""How often a text is cut shorter when its halves have more tokens together than apart."""


def verbatim_document(draft: Draft, tokenizer: Tokenizer, frame: Frame) -> Document:
    """The head of a draft and its questions, with nothing between them. `draft.overlong` decides about long ones."""
    probes = []
    for question in draft.questions:
        probe = _probe(draft, question, tokenizer, frame)
        limit = question.cell.length - question.allowance
        if draft.overlong != "send" and probe.prompt_tokens > limit:
            if draft.overlong == "middle":
                draft, question = cut_middle(draft, question, limit, tokenizer, frame)
                probe = _probe(draft, question, tokenizer, frame)
            else:
                kind: FailureKind = "left_out" if draft.overlong == "drop" else "context_length"
                problem = f"the prompt has {probe.prompt_tokens:,} tokens and {limit:,} are allowed"
                probe = replace(probe, not_asked=Failure(kind, problem))
        probes.append(probe)
    text = frame.before + draft.head
    ids = tokenizer.encode(text)
    return Document(
        id=draft.id,
        cluster=draft.cluster,
        frame=frame,
        text=text,
        tokens=ids,
        body_start=min(len(tokenizer.encode(frame.before)), len(ids)),
        body_start_characters=len(frame.before),
        facts=(),
        probes=tuple(probes),
    )


def _probe(draft: Draft, question: Question, tokenizer: Tokenizer, frame: Frame) -> Probe:
    text = frame.before + draft.head
    ids, start = tokenizer.encode(text), len(tokenizer.encode(frame.before))
    tail, closing = prompt_suffix(question, frame)
    prompt = tokenizer.encode(text + closing)
    cut = min(common_start(ids, prompt), len(prompt) - 1)
    return make_probe(
        question, text, tail, prompt[cut:], cut=cut, cut_characters=len(text), body=len(frame.before),
        prompt_tokens=len(prompt) + frame.extra_tokens, body_tokens=max(len(ids) - start, 0),
    )  # fmt: skip


def cut_middle(
    draft: Draft, question: Question, limit: int, tokenizer: Tokenizer, frame: Frame
) -> tuple[Draft, Question]:
    """Without the middle of head and question together, so that the whole prompt has at most `limit` tokens.

    As many tokens are kept at the start as at the end, as LongBench and InfiniteBench do it.
    """
    text = draft.head + question.text
    before = _probe(draft, question, tokenizer, frame).prompt_tokens
    keep = len(tokenizer.encode(text)) - (before - limit)
    for _ in range(RECUTS):
        if keep < 2:
            break
        start, stop = _halves(text, keep // 2, tokenizer)
        shorter, asked = _without(draft, question, start, stop)
        tokens = _probe(shorter, asked, tokenizer, frame).prompt_tokens
        if tokens <= limit:
            labels = {**asked.labels, "fit": "middle", "tokens_cut": str(before - tokens)}
            return shorter, replace(asked, labels=labels)
        keep -= tokens - limit
    raise LengthError(
        f"the template alone leaves no room for the text in {limit:,} tokens", where=draft.id, fix="use a longer length"
    )


def _without(draft: Draft, question: Question, start: int, stop: int) -> tuple[Draft, Question]:
    """Head and question without the characters from `start` to `stop` of both together."""
    size = len(draft.head)
    head = draft.head[:start] + draft.head[stop:]
    asked = question.text[: max(start - size, 0)] + question.text[max(stop - size, 0) :]
    return replace(draft, head=head), replace(question, text=asked)


def _halves(text: str, half: int, tokenizer: Tokenizer) -> tuple[int, int]:
    """The characters after the first `half` tokens and before the last `half` tokens."""
    ends = tokenizer.ends(text)
    if ends is not None:
        return int(ends[half - 1]), int(ends[len(ends) - half - 1])
    return _most(text, half, tokenizer), len(text) - _most(text, half, tokenizer, at_end=True)


def _most(text: str, tokens: int, tokenizer: Tokenizer, *, at_end: bool = False) -> int:
    """The most characters at the start or the end of a text that have at most this number of tokens."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        part = text[len(text) - middle :] if at_end else text[:middle]
        low, high = (middle, high) if len(tokenizer.encode(part)) <= tokens else (low, middle - 1)
    return low


def prompt_suffix(question: Question, frame: Frame) -> tuple[str, str]:
    """What ends the user's turn, and all of the prompt from there on: question, template and answer prefix."""
    text, prefix = question.text, question.answer_prefix
    # A line break where no template separates the question from the beginning of its answer.
    gap = "\n" if text and prefix and not (text[-1].isspace() or prefix[0].isspace()) else ""
    if frame.prefill:
        tail = text + ("" if frame.after else gap)
        return tail, tail + frame.after + prefix
    tail = (text + gap + prefix).rstrip()
    return tail, tail + frame.after


def make_probe(
    question: Question,
    text: str,
    tail: str,
    closing_ids: Ids,
    *,
    cut: int,
    cut_characters: int,
    body: int,
    prompt_tokens: int,
    body_tokens: int,
) -> Probe:
    """The probe of a question; `text` from character `body` to the cut is what targets may be counted in."""
    targets, mistakes = question.targets, question.mistakes
    read = text[body:cut_characters] if callable(targets) or callable(mistakes) else ""
    return Probe(
        cell=question.cell,
        cut=cut,
        cut_characters=cut_characters,
        tail=tail,
        closing_ids=closing_ids,
        prompt_tokens=prompt_tokens,
        question=(question.asked or question.text).strip(),
        answer_prefix=question.answer_prefix,
        targets=targets(read) if callable(targets) else targets,
        distractors=question.distractors,
        facts=question.facts,
        allowance=question.allowance,
        scorers=question.scorers,
        labels=question.labels,
        match=question.match,
        family=question.family,
        value_kind=question.value_kind,
        demonstration=question.demonstration,
        answer_form=question.answer_form,
        mistakes=mistakes(read) if callable(mistakes) else mistakes,
        opening=question.opening,
        absent=question.absent,
        body_tokens=body_tokens,
    )


def common_start(left: Ids, right: Ids) -> int:
    """The number of tokens that two texts begin with in common."""
    size = min(len(left), len(right))
    same = left[:size] == right[:size]
    return size if bool(np.all(same)) else int(same.argmin())
