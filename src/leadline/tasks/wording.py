"""Tasks and their texts: defaults, and a user's own texts in their place. Template files are read in templates.py.

A part is a text with named placeholders such as `{key}`, which each sample fills in. A user's text must have the
placeholders that the part needs, so that a question always names what it asks about.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, ClassVar, Literal

import msgspec
from pydantic import Field, field_validator, model_validator

from leadline.core.contracts import Source, Task
from leadline.core.drafts import Composer, Draft, DraftQuestion, Fact, Filler, OnOverflow
from leadline.core.errors import UnknownName, UsageError
from leadline.core.seeds import digest_text, rng, seed_of
from leadline.core.types import Cell, Match, document_name
from leadline.tasks.words import listed
from leadline.text.sources import TextSource, Unit, open_source

SCORERS: dict[Match, tuple[str, ...]] = {
    "all": ("match.all", "ruler.v1", "ruler.strict"),
    "any": ("match.any", "ruler.v1", "ruler.strict"),
}
"""The scorers of every task that asks questions, the headline first."""


REMINDER = "\n\nNow answer the question that was asked before the text."
RULER_ANSWER_CHARACTERS = 42
"""The longest answer of RULER's needle tasks: one UUID, or four numbers of seven digits in a sentence."""


JOINING_CHARACTERS = 8
"""" and ", a full stop and the end of the answer, besides two characters for each value."""


def answer_allowance(tokens: int, characters: int, enough_for: int = RULER_ANSWER_CHARACTERS) -> int:
    """Tokens for an answer of this number of characters: `tokens`, RULER's fixed number, for answers as long as RULER's
    (`enough_for`), and for a longer answer at least one for each character and for what joins its values, which is
    enough in every tokenizer."""
    return tokens if characters <= enough_for else max(tokens, characters + JOINING_CHARACTERS)


@dataclass(frozen=True, slots=True)
class PromptPart:
    """One text of a task, or several of which each sample draws one."""

    default: tuple[str, ...]
    needs: tuple[str, ...] = ()
    """Required placeholders; `a|b` means either."""
    may: tuple[str, ...] = ()
    """Optional placeholders."""
    planted: bool = False
    """Whether it is planted in the haystack: no white space around it."""
    opens: bool = False
    """Whether the document follows it: it should end in white space."""
    asks: bool = False
    """Whether it follows the document: it should begin with white space."""
    lines: bool = False
    """Whether a haystack is made of such lines: one key, then one value."""

    @property
    def placeholders(self) -> list[str]:
        return [*(name for need in self.needs for name in need.split("|")), *self.may]


Parts = dict[str, PromptPart]


class WordedTask(Task):
    """A task whose texts can be replaced: the option `wording`, or a file for `--templates`."""

    wording: dict[str, tuple[str, ...]] = Field(
        {},
        description="your own texts in place of the defaults, as printed by `tasks show NAME --template`; a number for "
        "one of several defaults, or all with --set for a sweep over them",
    )
    question_at: Literal["", "after", "before", "both"] = Field(
        "", description="put the question after the document (the default), before it, or both"
    )

    def parts(self) -> Mapping[str, PromptPart]:
        """Every text that the task uses with these options."""
        raise NotImplementedError

    @model_validator(mode="before")
    @classmethod
    def _numbered_wording(cls, data: Any) -> Any:
        """A number in place of texts is the default text of that number, from 1, of every part that has several."""
        number = data.get("wording") if isinstance(data, Mapping) else None
        if not isinstance(number, str | int) or isinstance(number, bool):
            return data
        plain = cls.model_validate({k: v for k, v in data.items() if k != "wording"})
        if not str(number).isdecimal() or not 1 <= int(number) <= plain.wordings:
            raise ValueError(f"there is no wording {number}: give texts by part, or 1 to {plain.wordings}")
        several = {name: part.default for name, part in plain.parts().items() if len(part.default) > 1}
        chosen = {name: (texts[(int(number) - 1) % len(texts)],) for name, texts in several.items()}
        return {**data, "wording": chosen}

    def reminder(self) -> str:
        """What ends the prompt where the question is before the document only."""
        return REMINDER

    @property
    def wordings(self) -> int:
        """How many default wordings there are: each text of a part is used in at least one of them."""
        return max((len(part.default) for part in self.parts().values()), default=1)

    def write(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        draft = super().write(cells, seed=seed)
        if self.question_at in ("", "after"):
            return draft if not self.question_at else _labelled(draft, "after")
        if len(draft.questions) > 1:
            raise UsageError(
                "a question before the document needs a document of its own",
                where=cells[0].task,
                fix="use --reading fresh, or question_at=after",
            )
        if self.no_context or draft.filler is None:
            raise UsageError("there is no document to ask before", where=cells[0].task, fix="leave out question_at")
        [question] = draft.questions
        head = f"{draft.head}{question.text.strip()}\n\n"
        if self.question_at == "before":
            question = msgspec.structs.replace(question, text=self.reminder(), question_before_document=question.text)
        return _labelled(replace(draft, head=head, questions=(question,)), self.question_at)

    def new_draft(
        self,
        cells: Sequence[Cell],
        filler: Filler | Composer,
        facts: Iterable[Fact],
        questions: Iterable[DraftQuestion],
        *,
        head: str | None = None,
        shared_end: bool = False,
        conversation: bool = False,
    ) -> Draft:
        """The document of these cells: `head`, by default the instruction, before the filler."""
        head = self.fill("instruction") if head is None else head
        name, cluster = document_name(cells), self.cluster(cells).name
        return Draft(
            name,
            cluster,
            head,
            filler,
            tuple(facts),
            tuple(questions),
            shared_end=shared_end,
            conversation=conversation,
        )

    @field_validator("wording", mode="before")
    @classmethod
    def _lists_of_texts(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {name: (text,) if isinstance(text, str) else text for name, text in value.items()}

    @model_validator(mode="after")
    def _wording_says_all(self) -> WordedTask:
        check_wording(self.parts(), self.wording, where="wording")
        return self

    @cached_property
    def _defaults(self) -> dict[str, tuple[str, ...]]:
        return {name: part.default for name, part in self.parts().items()}

    def texts(self, part: str) -> tuple[str, ...]:
        return self.wording.get(part) or self._defaults[part]

    def one_of(self, part: str, number: int, drawn: str) -> str:
        """The default text with this number, or one of the user's texts, chosen by a hash of `drawn`.

        The number is drawn in both cases, so a sample has the same keys, values and depths with other texts.
        """
        own = self.wording.get(part)
        return own[seed_of("wording", drawn) % len(own)] if own else self._defaults[part][number]

    def fill(self, part: str, **values: object) -> str:
        """The single text of a part, with its placeholders filled in."""
        return self.texts(part)[0].format(**values)


def verbatim_draft(
    head: str,
    question: DraftQuestion,
    *,
    text: str = "",
    on_overflow: OnOverflow = "send",
    conversation: bool = False,
    templated: bool = True,
) -> Draft:
    """A prompt that is sent as it is. `text` is given where several questions may be about the same one."""
    name, questions = document_name((question.cell,)), (question,)
    cluster = f"{question.cell.task}/{question.cell.length}/{digest_text(text)}" if text else name
    return Draft(name, cluster, head, None, (), questions, on_overflow, conversation=conversation, templated=templated)


def _labelled(draft: Draft, where: str) -> Draft:
    noted = [msgspec.structs.replace(q, labels={**q.labels, "question_at": where}) for q in draft.questions]
    return replace(draft, questions=tuple(noted))


def check_wording(parts: Mapping[str, PromptPart], wording: Mapping[str, Sequence[str]], *, where: str) -> None:
    """Gate 1 for texts: known parts, known placeholders, none missing. Texts are taken as they are; `white_space_notes`
    says where they meet the document without white space."""
    for name, texts in wording.items():
        if name not in parts:
            raise UnknownName("part", name, parts, where=where)
        if not texts or len(texts) > 1 == len(parts[name].default):
            fix = "give one" if texts else "give one, or leave the part out"
            raise UsageError(f"there are {len(texts)} texts where one is used", where=f"{where}, {name}", fix=fix)
        for text in texts:
            _check(parts[name], text, f"{where}, {name}")


def _check(part: PromptPart, text: str, where: str) -> None:
    placeholders = placeholders_of(text, where)
    for name in placeholders:
        if name not in part.placeholders:
            raise UnknownName("placeholder", name, part.placeholders, where=where)
    for need in part.needs:
        if not any(name in placeholders for name in need.split("|")):
            wanted = " or ".join(f"{{{name}}}" for name in need.split("|"))
            raise UsageError(f"the text lacks {wanted}", where=where, fix=f"add {wanted} to the text")
    problem, fix = "", ""
    if part.planted and (text != text.strip() or (part.lines and "\n" in text)):
        problem = "planted text must have no white space around it"
        fix = "remove it: line breaks are added as in the haystack"
    if part.lines and [name for name in placeholders if name in ("key", "value")] != ["key", "value"]:
        problem, fix = "the haystack is made of such lines", "use {key} once, and after it {value} once"
    if problem:
        raise UsageError(f"{problem}: {text!r}", where=where, fix=fix)


def white_space_notes(
    parts: Mapping[str, PromptPart], wording: Mapping[str, Sequence[str]], *, where: str
) -> list[str]:
    """A note for each text of the user's that joins the document without white space."""
    notes = []
    for name, texts in wording.items():
        part = parts[name]
        for text in texts:
            if part.opens and text and not text[-1].isspace():
                notes.append(f"{where}, {name}: the document follows it without white space: {text[-40:]!r}")
            if part.asks and not text[:1].isspace():
                notes.append(f"{where}, {name}: it follows the document without white space: {text[:40]!r}")
    return notes


def without_needs(parts: Mapping[str, PromptPart]) -> Parts:
    """The same parts with no placeholder required, as some published prompts leave the question out."""
    return {name: replace(part, needs=(), may=tuple(part.placeholders)) for name, part in parts.items()}


def placeholders_of(text: str, where: str) -> list[str]:
    """The placeholder names of a text, in order. Anything but a plain name in braces is an error."""
    names = []
    try:
        for _, name, form, conversion in string.Formatter().parse(text):
            if name is None:
                continue
            if not name.isidentifier() or form or conversion:
                raise ValueError(f"{{{name}}} is not a plain name")
            names.append(name)
    except ValueError as error:
        raise UsageError(
            f"not a template: {error}", where=where, fix="placeholders are {name}; write {{ and }} for braces"
        ) from None
    return names


def question_part(text: str) -> PromptPart:
    """The part for a question, which needs the placeholders that it has."""
    return PromptPart((text,), needs=tuple(dict.fromkeys(placeholders_of(text, "question"))), asks=True)


def question_parts(instruction: str, question: str, prefix: str | None = None, **planted: PromptPart) -> Parts:
    """The parts of a task with one text each; the prefix may have the placeholders that it has."""
    parts = {"instruction": PromptPart((instruction,), opens=True), **planted, "question": question_part(question)}
    if prefix is not None:
        parts["prefix"] = PromptPart((prefix,), may=tuple(placeholders_of(prefix, "prefix")))
    return parts


def serial(names: Sequence[str]) -> str:
    """`a`, `a, and b`, `a, b, and c`, as RULER lists keys."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])}, and {names[-1]}"


def noise_part(haystack: str) -> dict[str, PromptPart]:
    """The part for the repeated line of a haystack of noise; none for other haystacks."""
    if haystack != "noise":
        return {}
    return {"noise": PromptPart((noise_line().rstrip("\n"),), planted=True)}


def noise_line() -> str:
    return open_source("noise").filler(seed=0).bank.pieces[0]


def worded_source(task: WordedTask, haystack: str, *, unit: Unit, repeat: bool) -> Source:
    """The haystack of a task, with the line that the user gives for noise."""
    own = task.wording.get("noise")
    if not own or haystack != "noise":
        return open_source(haystack, unit=unit, repeat=repeat)
    return _noise_of(own[0])


@cache
def _noise_of(line: str) -> Source:
    lines = f"{line}\n"
    return TextSource("noise", lambda: lines * 64, lambda text: text.splitlines(keepends=True), repeat=True)


def filled_in(text: str, kept: Sequence[str], **values: object) -> str:
    """The text with some placeholders filled in and the others left as they are."""
    return text.format(**{name: f"{{{name}}}" for name in kept}, **values)


DEMONSTRATION = "{instruction}{document}{question}\n{prefix} {answer}.\n\nThat was an example. Now do the same with "


def demonstration_part(another: str) -> PromptPart:
    """The part for a solved example before the document. `another` is what follows it, as in "another text"."""
    return PromptPart(
        (f"{DEMONSTRATION}{another}.\n\n",),
        needs=("document", "question", "answer|spaced|numbered"),
        may=("instruction", "prefix"),
        opens=True,
    )


def answer_forms(answers: Sequence[str]) -> dict[str, str]:
    """The placeholders for the answer of a demonstration: `a, b and c`, `a b c`, `1. a 2. b 3. c`."""
    return {
        "answer": listed(answers),
        "spaced": " ".join(answers),
        "numbered": " ".join(f"{number}. {answer}" for number, answer in enumerate(answers, 1)),
    }


# --- questions whose answer is not in the document ---
#
# A model that always names something looks perfect in a needle test. With `absent=0.2` a fifth of the questions ask for
# what the document does not have, and the right answer is to say so (after OneRuler, arXiv 2503.01996, and the IDK task
# of Michelangelo, arXiv 2409.12640). Every question then says how to answer in that case, so that nothing in its form
# tells which kind it is.

ABSENT_CLAUSE = ' If the text does not say, answer "{reply}".'
ABSENT_REPLY = "not there"
ABSENT_PREFIX = "Answer:"
_GOLDEN_RATIO = 0.6180339887498949


class RetrievalTask(WordedTask):
    """A task whose questions may ask for what is not there.

    A subclass merges `absent_parts()` into its `parts()`. In `draft`, where `is_absent(cell, seed)`, it asks for
    something of the same form that the document does not have, and sets `absent=True` on that question. Everything else
    (how to answer, targets, scores) is done here.
    """

    absent: float = Field(
        0.0, ge=0, le=1, description="share of questions whose answer is not in the document; right is to say so"
    )

    absent_clause: ClassVar[str] = ABSENT_CLAUSE
    """What follows every question; `{reply}` is what to answer."""

    def absent_parts(self) -> dict[str, PromptPart]:
        """The texts for this option; none while it is not set."""
        if not self.absent:
            return {}
        return {
            "absent": PromptPart((self.absent_clause,), needs=("reply",), asks=True),
            "absent_reply": PromptPart((ABSENT_REPLY,)),
            "absent_prefix": PromptPart((ABSENT_PREFIX,)),
        }

    def is_absent(self, cell: Cell, seed: int) -> bool:
        """Whether the question of this cell has no answer. Over the samples of a length and depth the share is met to
        within one question, and a larger share contains a smaller one."""
        if not self.absent:
            return False
        first = rng(seed, "absent", cell.task_family, cell.length, cell.depth).random()
        return (first + cell.sample * _GOLDEN_RATIO) % 1 < self.absent

    def write(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        draft = super().write(cells, seed=seed)
        if not self.absent:
            return draft
        return replace(draft, questions=tuple(map(self._with_clause, draft.questions)))

    def _with_clause(self, question: DraftQuestion) -> DraftQuestion:
        reply = self.fill("absent_reply")
        asking = msgspec.structs.replace(
            question,
            text=question.text + self.fill("absent", reply=reply),
            answer_prefix=self.fill("absent_prefix") if question.answer_prefix else "",
            absent=bool(question.absent),
        )
        if not question.absent:
            return asking
        others = tuple(dict.fromkeys((*question.targets, *question.distractors)))
        return msgspec.structs.replace(
            asking, targets=(reply,), count_targets=None, match="any", facts=(), order_facts=(), distractors=others,
            mistakes={}, count_mistakes=None,
        )  # fmt: skip
