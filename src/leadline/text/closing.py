"""What follows a document when a question is put to it: the question, the end of the template, the answer prefix."""

from __future__ import annotations

from leadline.core.types import Frame, Question


def closing_of(question: Question, frame: Frame) -> tuple[str, str]:
    """What ends the user's turn, and everything from there to where the answer begins."""
    prefix = question.answer_prefix
    if frame.prefill:
        tail = question.text + ("" if frame.after else _gap(question))
        return tail, tail + frame.after + prefix
    tail = (question.text + _gap(question) + prefix).rstrip()
    return tail, tail + frame.after


def _gap(question: Question) -> str:
    """A line break where no template parts the question from the beginning of its answer."""
    text, prefix = question.text, question.answer_prefix
    return "\n" if text and prefix and not (text[-1].isspace() or prefix[0].isspace()) else ""
