"""Checks of a gateway between Leadline and the model: texts changed on their way, and replies out of a store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os.path import commonprefix

from leadline.core.findings import Finding, NotMade, Ok
from leadline.doctor.counting import rewritten_texts
from leadline.doctor.examiner import CannotCheck, CheckReply, Examiner
from leadline.doctor.generating import long_answers
from leadline.doctor.reading import ask_place, is_found
from leadline.doctor.texts import PLACES, other_value, plant, short_length

GATEWAY_HEADERS = ("via", "x-cache", "x-served-by")
FOOTER = 12
"""Characters at the end of answers to different requests."""
MASKS = re.compile(r"\[[A-Z_ ]{4,}\]|<[A-Z_]{4,}>|\*{4,}|REDACTED|█")
PRIVATE = (
    (
        "The harbour master's address is mara.lindquist@example.org.",
        "What is the harbour master's address?",
        "lindqvist@",
    ),
    ("The number of the harbour office is +44 20 7946 0958.", "What is the number of the harbour office?", "7946"),
)


def check_rewriting(examiner: Examiner) -> Ok | Finding | NotMade:
    """A gateway that changes texts on their way, in either direction, or answers from a store of old replies."""
    examiner.need_server()
    fix = "ask the server without the gateway, or switch its cleaning, masking and caching of replies off"
    problems = [p for p in (rewritten_texts(examiner), _masked(examiner), _footer(examiner), _stale(examiner)) if p]
    named = [f"{name}: {examiner.headers[name]}" for name in GATEWAY_HEADERS if name in examiner.headers]
    passed = f" (headers: {', '.join(named)[:120]})" if named else ""
    if problems:
        return Finding("; ".join(problems) + passed, fix)
    return Ok(f"texts with odd spaces, addresses and markup arrive as they are{passed}")


def _masked(examiner: Examiner) -> str:
    """Whether private data comes back masked."""
    for fact, question, wanted in PRIVATE:
        said = examiner.ask(f"{fact}\n\n{question} Write it exactly as it stands in the text.", max_tokens=48)
        mask = MASKS.search(said.content)
        if mask and wanted not in said.content:
            return f"{fact.rpartition(' is ')[2]!r} comes back as {mask[0]!r}"
    return ""


def _footer(examiner: Examiner) -> str:
    """The same words at the end of answers to different requests that ended by themselves."""
    ended = [said.content for said in examiner.once(short_answers) if said.completion.finish == "stop"]
    if len(ended) < 3:
        return ""
    common = commonprefix([text[::-1] for text in ended])[::-1].strip()  # noqa: RUF071 (texts, not paths)
    return f"every answer ends with {common[:80]!r}" if len(common) >= FOOTER else ""


def short_answers(examiner: Examiner) -> list[CheckReply]:
    texts = ("Say hello.", "Name one colour.", "What is two plus two?", "Name a day of the week.")
    return [examiner.ask(text, max_tokens=128) for text in texts]


def _stale(examiner: Examiner) -> str:
    """Whether a question about a changed text gets the answer to the text before the change, or an old reply."""
    planted = plant(examiner, short_length(examiner))
    place = PLACES[2]
    value, new = planted.values[place], other_value(examiner, planted, place)
    first, second = ask_place(examiner, planted, place), ask_place(examiner, planted, place, new)
    if is_found(first, value) and is_found(second, value) and isinstance(second, CheckReply) and new not in second.text:
        return f"with {new} in place of {value} in the text the answer is still {value}"
    ids = [said.id for said in (*examiner.once(short_answers), *_long(examiner)) if said.id]
    if isinstance(first, CheckReply) and first.id:
        again = ask_place(examiner, planted, place)
        if isinstance(again, CheckReply) and again.id == first.id and ids.count(first.id) == 0:
            return f"a repeated request gets the same reply, with the same id {first.id[:40]!r}"
    return ""


def _long(examiner: Examiner) -> Sequence[CheckReply]:
    try:
        return tuple(examiner.once(long_answers).values())
    except CannotCheck:
        return ()
