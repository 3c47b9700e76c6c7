"""Conversations: how a chat template writes several turns, and turns in the texts of a draft.

A task writes a conversation as texts with marks at the boundaries of turns. The fitter puts the template's own text in
their place, so that a conversation is a body like any other: pieces, facts, cuts, tokens. A boundary has two marks, one
that ends a turn and one that begins the next, because the next turn may be in another piece: white space of the
template before a turn must stand with its first word, as tokenizers join them.

    opens("user") + "Write a poem." + closes("user") | opens("assistant") + "Tall reeds ..." + closes("assistant")
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from leadline.core.errors import TokenizerError

TurnRole = Literal["user", "assistant", "tool"]
_FOLLOWS: tuple[tuple[TurnRole, TurnRole], ...] = (
    ("user", "assistant"),
    ("assistant", "user"),
    ("user", "user"),
    ("assistant", "tool"),
    ("tool", "assistant"),
    ("tool", "user"),
)
"""The turns that may follow each other. The first two are those of every conversation."""
_FIRST_MARK = 0xE0A0  # private use: no text has these characters


USER: TurnRole = "user"
ASSISTANT: TurnRole = "assistant"


class Turn(NamedTuple):
    role: TurnRole
    text: str


def closes(role: TurnRole, following: TurnRole) -> str:
    """The mark after the text of a turn."""
    return chr(_FIRST_MARK + 2 * _FOLLOWS.index((role, following)))


def opens(role: TurnRole, after: TurnRole) -> str:
    """The mark before the text of a turn that is not the first."""
    return chr(_FIRST_MARK + 2 * _FOLLOWS.index((after, role)) + 1)


def joined(turns: Sequence[Turn]) -> str:
    """Turns as one text with marks between them."""
    texts = [turns[0].text] if turns else []
    for before, turn in pairwise(turns):
        texts += [closes(before.role, turn.role), opens(turn.role, before.role), turn.text]
    return "".join(texts)


def stripped(text: str) -> str:
    """The text without white space around its turns, as some templates write them."""
    return _AROUND_MARKS.sub(r"\1", text.strip())


@dataclass(frozen=True, slots=True)
class Turns:
    """What a chat template writes around the turns of a conversation that begins and ends with a user's."""

    before: str
    after: str
    """From the end of the last turn to where the answer begins."""
    between: tuple[tuple[TurnRole, TurnRole, str], ...]
    """TurnRole, following role, and the text from the end of one turn to the beginning of the next."""
    strips: bool = False
    """Whether white space around the text of a turn is removed."""

    @classmethod
    def load(cls, values: Mapping[str, Any]) -> Turns:
        """From a manifest."""
        return cls(**{**values, "between": tuple((a, b, text) for a, b, text in values["between"])})

    def marks(self) -> Mapping[int, str]:
        """The template's text for every mark, for `str.translate`."""
        return _marks(self.between)

    def rendered(self, text: str, where: str) -> str:
        """A text with the template's own text in place of the marks."""
        plain = text.translate(self.marks())
        for role, following in _FOLLOWS if any(map(plain.__contains__, ENDS)) else ():
            if closes(role, following) in plain:
                raise TokenizerError(
                    f"the chat template takes no {following} turn after a turn of the {role}",
                    where=where,
                    fix="use api=completions, or another template with template=FILE",
                )
        return plain

    def split(self, text: str) -> list[Turn]:
        """The turns of a rendered conversation, from the text of the first to that of the last."""
        turns: list[Turn] = []
        role, start = USER, 0
        while True:
            ends = [
                (at, -len(joint), following)
                for of, following, joint in self.between
                if of == role and (at := text.find(joint, start)) >= 0
            ]
            if not ends:
                return [*turns, Turn(role, text[start:])]
            end, size, following = min(ends)
            turns.append(Turn(role, text[start:end]))
            role, start = following, end - size


@cache
def _marks(between: tuple[tuple[TurnRole, TurnRole, str], ...]) -> Mapping[int, str]:
    written = {}
    for role, following, text in between:
        head = text.rstrip(" ")
        written[ord(closes(role, following))] = head
        written[ord(opens(following, role))] = text[len(head) :]
    return written


ENDS = tuple(closes(*pair) for pair in _FOLLOWS)
_AROUND_MARKS = re.compile(rf"\s*([{chr(_FIRST_MARK)}-{chr(_FIRST_MARK + 2 * len(_FOLLOWS))}])\s*")
PLAIN_TURNS = Turns(
    before="User: ",
    after="\n\nAssistant:",
    between=(
        ("user", "assistant", "\n\nAssistant: "),
        ("assistant", "user", "\n\nUser: "),
        ("user", "user", "\n\nUser: "),
        ("assistant", "tool", "\n\nTool: "),
        ("tool", "assistant", "\n\nAssistant: "),
        ("tool", "user", "\n\nUser: "),
    ),
)
"""A conversation without chat template, for completions."""
