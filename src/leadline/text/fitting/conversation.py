"""Conversations as bodies: the turns of a draft as the chat template writes them.

`frame` is always that of a conversation (`Frame.for_conversation`).
"""

from __future__ import annotations

from dataclasses import replace

from leadline.core.contracts import Tokenizer
from leadline.core.drafts import Draft, PieceBank
from leadline.core.errors import UsageError
from leadline.core.seeds import digest
from leadline.core.turns import ENDS, PLAIN_TURNS, Turns, stripped
from leadline.core.types import Document, Frame
from leadline.text.fitting.verbatim import verbatim_document


def rendered_draft(draft: Draft, frame: Frame) -> Draft:
    """The draft with the template's text at the boundaries of turns."""
    turns = _turns(frame)
    opening = turns.before if frame.form == "completion" else ""  # a chat template's is part of the frame
    return replace(
        draft,
        head=opening + turns.rendered(draft.head, draft.id),
        facts=tuple(replace(fact, text=turns.rendered(fact.text, draft.id)) for fact in draft.facts),
        questions=tuple(replace(q, text=_question(q.text, turns, draft)) for q in draft.questions),
        one_end=True,
    )


def verbatim_conversation(draft: Draft, tokenizer: Tokenizer, frame: Frame) -> Document:
    """A conversation that is sent as it is: its head has all turns before the question."""
    turns = _turns(frame)
    if turns.strips:
        draft = replace(
            draft,
            head=stripped(draft.head),
            questions=tuple(replace(question, text=stripped(question.text)) for question in draft.questions),
        )
    rendered = rendered_draft(draft, frame)
    opening = frame.before + (turns.before if frame.form == "completion" else "")
    document = replace(verbatim_document(rendered, tokenizer, frame), conversation=True)
    start = min(len(tokenizer.encode(opening)), len(document.ids))
    marks = sum(map(draft.head.count, ENDS))
    if any(len(document.turns(probe)) != marks + 1 for probe in document.probes):
        raise UsageError(
            "a text of this conversation has what the chat template writes between turns",
            where=draft.id,
            fix="leave this sample out, or use another template with template=FILE",
        )
    return replace(document, body_start=start, body_start_characters=len(opening))


def _question(text: str, turns: Turns, draft: Draft) -> str:
    """The last turn. Where it is the only one, the frame has the white space before it."""
    rendered = turns.rendered(text, draft.id)
    return rendered if draft.head or draft.filler is not None else rendered.lstrip()


def rendered_bank(bank: PieceBank, frame: Frame) -> PieceBank:
    """The pieces as the template writes them. A text must not have the template's own words for a turn."""
    turns = _turns(frame)
    marks, signs = turns.marks(), {text.strip() for _, _, text in turns.between}
    for piece in bank.pieces:
        if any(sign in piece for sign in signs):
            raise UsageError(
                f"a text of the haystack {bank.name!r} has what the chat template writes between turns",
                where=repr(piece[:60]),
                fix="use another haystack, or api=completions",
            )
    pieces = [piece.translate(marks) for piece in bank.pieces]
    return replace(bank, digest=digest([bank.digest, pieces]), pieces=pieces, spaced=True)


def _turns(frame: Frame) -> Turns:
    return frame.turns or PLAIN_TURNS
