"""A frozen set of answers gets the scores, the failure class and the detail that it was frozen with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from golden.doors import Completion, Failure, Question, Receipt, Score, classify, registry
from golden.tools import check, check_names, rounded

UUID = "3f2b8c1e-9d47-4a60-b1c5-7e0f6a9d2b34"
OTHER_UUID = "a81d0c77-25e3-4f9b-8c1d-0b6e4f3a9912"


class Asked(NamedTuple):
    """A question of one family, as much of it as scorers look at."""

    targets: tuple[str, ...]
    family: Any
    question: str = "Which number was given for misty-harbor?"
    distractors: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    prefix: str = ""


PROBES = {
    "number": Asked(("7301846",), "needle", distractors=("4418209",), labels=(("value_kind", "numbers"),)),
    "number after a prefix": Asked(("7301846",), "needle", distractors=("4418209",),
                                   labels=(("value_kind", "numbers"),), prefix=" The number is"),
    "four numbers": Asked(("7301846", "1250933", "9086617", "3344120"), "needle", "Which numbers were given?",
                          ("5550001",), (("value_kind", "numbers"),)),
    "uuid": Asked((UUID,), "needle", "Which code was given?", (OTHER_UUID,), (("value_kind", "uuids"),)),
    "words": Asked(("quiet-lantern",), "needle", "Which name was given?", ("amber-valley",),
                   (("value_kind", "words"),)),
    "own": Asked(("the red bicycle",), "needle", "What did Anna lose?", (), (("form", "own"),)),
    "tracing": Asked(("VABCD", "VEFGH", "VIJKL"), "tracing", "Which variables hold 48213?", ("VMNOP", "VQRST"),
                     (("hops", "2"), ("chains", "2"), ("demonstration", "VZZZZ VYYYY 12345"))),
    "common words": Asked(("table", "river", "candle", "window"), "counting", "Which 4 words are the most common?", (),
                          (("demonstration", "apple stone chair"),)),
    "question": Asked(("Calder Innesson", "Innesson"), "questions", "Who built the bridge of Arden?",
                      ("Dorrit Larkinson",), (("hops", "1"),)),
    "year": Asked(("1504",), "questions", "When was the bridge of Arden finished?", ("1510",), (("hops", "1"),)),
    "yes or no": Asked(("no",), "questions", "Was the bridge finished?"),
    "unicode": Asked(("Zoë Grünewald", "東京"), "questions", "Who wrote it, and where?", ("Łódź",)),
}  # fmt: skip


class Said(NamedTuple):
    text: str
    finish: str = "stop"
    thinking: str = ""


def answers_to(asked: Asked) -> Iterator[tuple[str, Said]]:
    """The same ways to answer for every family."""
    right, first = ", ".join(asked.targets), asked.targets[0]
    foreign = asked.distractors[0] if asked.distractors else "nothing of the kind"
    yield "right", Said(f" {right}.")
    yield "right in other letters", Said(f"**{right.upper()}**")
    yield "right with a foreign value", Said(f"{right}, {foreign}")
    yield "only the first", Said(f"It is {first}.")
    yield "the first twice", Said(f"{first}, {first}")
    yield "the first, cut off", Said(f"{right[: len(first) + 4]}", "length")
    yield "a beginning, cut off", Said(f"The answer is {first[: max(3, len(first) // 2)]}", "length")
    yield "a beginning, finished", Said(f"The answer is {first[: max(3, len(first) // 2)]}")
    yield "foreign", Said(f"The answer is {foreign}.")
    yield "echo", Said(asked.question)
    yield "right inside a word", Said(f"x{first}y")


SAME_FOR_ALL = {
    "empty": Said(""),
    "white space": Said(" \n\t\u200b"),
    "only thinking": Said("", "stop", "Let me look for it."),
    "thinking used it up": Said("", "length", "Let me look for it again and again"),
    "not found": Said("I could not find that in the text."),
    "none": Said("None."),
    "refusal": Said("I'm sorry, but I can't help with that request."),
    "as a language model": Said("As an AI language model I must decline."),
    "content filter": Said("The", "content_filter"),
    "before any value": Said("Let me go through the text step by step and then", "length"),
    "loop": Said("the text says that " * 40),
    "loop, cut off": Said("the text says that " * 40, "length"),
    "another number": Said("9999999"),
    "stop words": Said("the, of, and, to"),
    "demonstration": Said("VZZZZ VYYYY apple"),
    "off its way, cut off": Said("Once upon a time there lived a miller " * 6, "length"),
}

DRESSED = {
    "commas in a number": Said("7,301,846"),
    "a point in a number": Said("7301846.0"),
    "a point after a number": Said("7301846."),
    "a space in a number": Said("7 301 846"),
    "full-width digits": Said("７３０１８４６"),
    "invisible characters": Said("730\u200b1846"),
    "arabic digits": Said("٧٣٠١٨٤٦"),
    "terminal colours": Said("\x1b[31m7301846\x1b[0m"),
    "markdown and LaTeX": Said(r"$\boxed{7301846}$"),
    "JSON": Said('{"answer": "7301846"}'),
    "a list of candidates": Said("1) 4418209\n2) 7301846\n3) 1111111"),
    "thinking in the text": Said("<think>4418209? no</think> 7301846"),
    "right, with hidden thinking": Said("7301846", "stop", "4418209?"),
    "one digit missing": Said("730184"),
    "one digit more": Said("73018467"),
    "negative": Said("-7301846"),
    "lone surrogate": Said("\ud800 7301846"),
}


def cases() -> Iterator[tuple[str, str, Asked, Said]]:
    for name, asked in PROBES.items():
        for how, said in answers_to(asked):
            yield name, how, asked, said
    for how, said in SAME_FOR_ALL.items():
        for name in ("number", "number after a prefix", "common words", "question"):
            yield name, how, PROBES[name], said
    for how, said in DRESSED.items():
        yield "number", how, PROBES["number"], said


SCORERS = tuple(name for name in registry.names("scorers") if name.startswith(("match.", "ruler.")))
"""Scorers of published data sets and of features have golden files of their own, beside their tests."""


def question_of(asked: Asked) -> Question:
    labels: dict[str, Any] = dict(asked.labels)
    return Question(
        asked.question,
        answer_prefix=asked.prefix, targets=asked.targets, distractors=asked.distractors, allowance=24,
        scorers=SCORERS,
        match="any" if asked.family == "questions" else "all", family=asked.family,
        value_kind=labels.get("value_kind"), demonstration=tuple(labels.get("demonstration", "").split()),
    )  # fmt: skip


def graded(asked: Asked, said: Said) -> dict[str, Any]:
    """The value of every scorer, and the class when each of them comes first."""
    question, completion = question_of(asked), Completion(text=said.text, finish=said.finish, thinking=said.thinking)
    scores: dict[str, Score] = {name: registry.scorer(name).score(question, completion) for name in question.scorers}
    classes = {name: classify(question, completion, {name: scores[name]}, Receipt(1000, 1000)) for name in scores}
    distinct = {" | ".join(classed) for classed in classes.values()}
    return {
        "scores": {name: rounded(float(score.value)) for name, score in scores.items()},
        "class": distinct.pop() if len(distinct) == 1 else {name: " | ".join(c) for name, c in classes.items()},
    }


@pytest.mark.parametrize("name", PROBES)
def test_frozen_answers_get_the_scores_and_the_class_they_had(name: str) -> None:
    found = {how: graded(asked, said) for probe, how, asked, said in cases() if probe == name}
    check("scores", name, found)


def test_the_answers_and_the_scorers_are_those_that_were_frozen() -> None:
    assert len(list(cases())) > 150
    check_names("scores", list(PROBES))
    check("scorers", "names", list(SCORERS))


def test_samples_without_an_answer_and_short_receipts_get_the_class_they_had() -> None:
    question, right = question_of(PROBES["number"]), Completion("7301846", "stop")
    kinds: Any = ("connection", "timeout", "rate_limited", "server", "malformed", "empty_body", "refused_request",
                  "context_length", "out_of_memory", "unsupported")  # fmt: skip
    failed = {why: " | ".join(classify(question, Failure(why, "."), {}, Receipt(1000, None))) for why in kinds}
    short = {
        f"{theirs} of {ours}": " | ".join(classify(question, right, {"match.all": Score(1.0)}, Receipt(ours, theirs)))
        for ours, theirs in ((1000, 1000), (1000, 937), (1000, 936), (1000, 935), (10_000, 9800), (10_000, 9799),
                             (1000, 1200), (1000, None))
    }  # fmt: skip
    check("failures", "no answer", failed)
    check("failures", "receipts", short)
