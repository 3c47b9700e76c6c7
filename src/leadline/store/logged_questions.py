"""A question as part of a sample in another harness's log, so that the answer can be graded from the log alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from leadline.core.errors import SourceError
from leadline.core.types import Question

FIELD = "leadline_question"
"""The field of a sample's document or metadata. Its value is JSON text: harnesses change the types of nested values."""


def encode_question(question: Question) -> str:
    return msgspec.json.encode(question).decode()


def logged_question(fields: Mapping[str, Any], where: str) -> Question | None:
    """The question that these fields of a sample hold; None if the sample is not one of Leadline's."""
    text = fields.get(FIELD)
    if text is None:
        return None
    try:
        return msgspec.json.decode(str(text), type=Question)
    except msgspec.MsgspecError as error:
        raise SourceError(
            f"{FIELD} is not a question of this version of Leadline: {error}",
            where=where,
            fix="build the prompts again with this version, or grade with the one that built them",
        ) from None
