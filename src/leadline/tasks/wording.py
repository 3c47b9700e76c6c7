"""Prompt templates: the default texts of a task, and a user's own texts in their place.

A part is a text with named placeholders such as `{key}`, which each sample fills in. A user's text must have the
placeholders that the part needs, so that a question always names what it asks about.
"""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from leadline.core import registry
from leadline.core.contracts import Source, Task
from leadline.core.drafts import Draft
from leadline.core.errors import UnknownName, UsageError
from leadline.core.files import parse_json, parse_toml, read_text
from leadline.core.seeds import seed_of
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell, Match
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
    """Tokens for an answer of so many characters: `tokens`, RULER's fixed number, for answers as long as RULER's
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
    """Whether the document follows it: it must end in white space."""
    asks: bool = False
    """Whether it follows the document: it must begin with white space."""
    lines: bool = False
    """Whether a haystack is made of such lines: one key, then one value."""

    @property
    def placeholders(self) -> list[str]:
        return [*(name for need in self.needs for name in need.split("|")), *self.may]


class WordedTask(Task):
    """A task whose texts can be replaced: the option `wording`, or a file for `--templates`."""

    wording: dict[str, tuple[str, ...]] = Field(
        {},
        description="your own texts in place of the defaults, as printed by `tasks show NAME --template`; a number for "
        "one of several defaults, or all with --set for a sweep over them",
    )
    question_at: Literal["", "after", "before", "both"] = Field(
        "", description="the question stands after the document (the default), before it, or both"
    )

    later_options: ClassVar[frozenset[str]] = Task.later_options | {"question_at"}

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
        """What ends the prompt where the question stands before the document only."""
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
            question = replace(question, text=self.reminder(), asked=question.text)
        return _labelled(replace(draft, head=head, questions=(question,)), self.question_at)

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


def _labelled(draft: Draft, where: str) -> Draft:
    noted = [replace(q, labels={**q.labels, "question_at": where}) for q in draft.questions]
    return replace(draft, questions=tuple(noted))


def check_wording(parts: Mapping[str, PromptPart], given: Mapping[str, Sequence[str]], *, where: str) -> None:
    """Gate 1 for texts: known parts, known placeholders, none missing, white space where it is needed."""
    for name, texts in given.items():
        if name not in parts:
            raise UnknownName("part", name, parts, where=where)
        if not texts or len(texts) > 1 == len(parts[name].default):
            fix = "give one" if texts else "give one, or leave the part out"
            raise UsageError(f"there are {len(texts)} texts where one is used", where=f"{where}, {name}", fix=fix)
        for text in texts:
            _check(parts[name], text, f"{where}, {name}")


def _check(part: PromptPart, text: str, where: str) -> None:
    found = placeholders_of(text, where)
    for name in found:
        if name not in part.placeholders:
            raise UnknownName("placeholder", name, part.placeholders, where=where)
    for need in part.needs:
        if not any(name in found for name in need.split("|")):
            wanted = " or ".join(f"{{{name}}}" for name in need.split("|"))
            raise UsageError(f"the text lacks {wanted}", where=where, fix=f"add {wanted} to the text")
    problem, fix = _white_space(part, text)
    if part.lines and [name for name in found if name in ("key", "value")] != ["key", "value"]:
        problem, fix = "the haystack is made of such lines", "use {key} once, and after it {value} once"
    if problem:
        raise UsageError(f"{problem}: {text!r}", where=where, fix=fix)


def _white_space(part: PromptPart, text: str) -> tuple[str, str]:
    if part.planted and (text != text.strip() or (part.lines and "\n" in text)):
        return "planted text must have no white space around it", "remove it: line breaks are added as in the haystack"
    if part.opens and text and not text[-1].isspace():
        return "the instruction must end in white space", "end it with a line break or a space"
    if part.asks and not text[:1].isspace():
        return "the question must begin with white space", "begin it with a line break"
    return "", ""


def placeholders_of(text: str, where: str) -> list[str]:
    """The placeholder names of a text, in order. Anything but a plain name in braces is an error."""
    found = []
    try:
        for _, name, form, conversion in string.Formatter().parse(text):
            if name is None:
                continue
            if not name.isidentifier() or form or conversion:
                raise ValueError(f"{{{name}}} is not a plain name")
            found.append(name)
    except ValueError as error:
        raise UsageError(
            f"not a template: {error}", where=where, fix="placeholders are {name}; write {{ and }} for braces"
        ) from None
    return found


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


def answer_forms(found: Sequence[str]) -> dict[str, str]:
    """The placeholders for the answer of a demonstration: `a, b and c`, `a b c`, `1. a 2. b 3. c`."""
    return {
        "answer": listed(found),
        "spaced": " ".join(found),
        "numbered": " ".join(f"{number}. {one}" for number, one in enumerate(found, 1)),
    }


# --- template files: TOML or JSON with a section for each task ---
#
# ["niah_*"]                                   a pattern matches several tasks; an exact name takes precedence
# instruction = "Keep the {kinds} in mind.\n"
# question = ["\nWhich {kind} has {key}?", "\nWhat is the {kind} of {key}?"]      each sample uses one

Texts = dict[str, tuple[str, ...]]


def with_templates(tasks: Sequence[TaskSpec], path: Path) -> list[TaskSpec]:
    """The tasks with the texts of a file, by name or by label. Every section is checked, used or not."""
    sections = read_templates(path, [asked.title for asked in tasks])
    found = [(asked, registry.task(asked)) for asked in tasks]
    made, used = [], False
    for asked, task in found:
        own: Texts = {}
        exact = (asked.name, asked.title)
        for section in sorted(sections, key=lambda name: name in exact):  # an exact name comes last and wins
            if any(fnmatchcase(name, section) for name in exact):
                where = f"{path}, [{section}]"
                if not isinstance(task, WordedTask):
                    raise UsageError(f"{asked.name} has no texts to replace", where=where, fix="leave the section out")
                check_wording(task.parts(), sections[section], where=where)
                own |= sections[section]
        used = used or bool(own)
        options = {**asked.options, "wording": {**asked.options.get("wording", {}), **own}}
        made.append(asked.model_copy(update={"options": options}) if own else asked)
    if not used:
        raise UsageError(
            f"no section is about {', '.join(asked.name for asked in tasks)}",
            where=str(path),
            fix=f"sections are named after tasks; there is {', '.join(f'[{name}]' for name in sections) or 'none'}",
        )
    return made


def read_templates(path: Path, labels: Sequence[str] = ()) -> dict[str, Texts]:
    """The sections by name, which is a task, one of `labels` or a pattern, with every text in a tuple."""
    known = [*registry.names("tasks"), *labels]
    sections: dict[str, Texts] = {}
    for name, parts in _loaded(path).items():
        where = f"{path}, [{name}]"
        if not any(fnmatchcase(task, name) for task in known) and ".py:" not in name:
            raise UnknownName("task", name, known, where=str(path))
        if not isinstance(parts, Mapping):
            raise UsageError("a section holds texts by their names", where=where, fix='write instruction = "..."')
        sections[name] = {part: _texts(text, f"{where}, {part}") for part, text in parts.items()}
    return sections


def _loaded(path: Path) -> Mapping[str, Any]:
    fix = "`leadline tasks show NAME --template` prints a file to start from"
    parse = parse_json if path.suffix == ".json" else parse_toml
    loaded: Any = parse(read_text(path, error=UsageError, fix=fix), str(path), error=UsageError, fix=fix)
    if not isinstance(loaded, Mapping):
        raise UsageError("the file holds no sections", where=str(path), fix='write {"vt": {"question": "..."}}')
    return loaded


def _texts(given: Any, where: str) -> tuple[str, ...]:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UsageError("neither a text nor a list of texts", where=where, fix='write "..." or ["...", "..."]')
    return tuple(texts)


def template_of(name: str, task: WordedTask) -> str:
    """The texts of a task as a section of a template file, with a comment on placeholders."""
    lines = [f"[{_quoted(name)}]" if not name.replace("_", "").replace("-", "").isalnum() else f"[{name}]"]
    for part, about in task.parts().items():
        if about.placeholders:
            lines.append(f"# {_format_placeholders(about)}")
        texts = task.texts(part)
        if len(texts) == 1:
            lines.append(f"{part} = {_quoted(texts[0])}")
        else:
            lines += [f"{part} = [", *(f"  {_quoted(text)}," for text in texts), "]"]
    return "\n".join(lines) + "\n"


def _format_placeholders(part: PromptPart) -> str:
    needs = [" or ".join(f"{{{name}}}" for name in need.split("|")) for need in part.needs]
    may = [f"{{{name}}}" for name in part.may]
    said = [f"needs {', '.join(needs)}"] if needs else []
    return "; ".join([*said, *([f"may have {', '.join(may)}"] if may else [])])


def _quoted(text: str) -> str:
    """As a JSON string, which is also a TOML basic string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
