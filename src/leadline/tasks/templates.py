"""Template files: a user's own texts for tasks, in TOML or JSON with a section for each task.

["niah_*"]                                   a pattern matches several tasks; an exact name takes precedence
instruction = "Keep the {kinds} in mind.\\n"
question = ["\\nWhich {kind} has {key}?", "\\nWhat is the {kind} of {key}?"]      each sample uses one
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from leadline.core import registry
from leadline.core.errors import UnknownName, UsageError
from leadline.core.files import parse_json, parse_toml, read_text
from leadline.core.spec import TaskSpec
from leadline.tasks.wording import PromptPart, WordedTask, check_wording, white_space_notes

Texts = dict[str, tuple[str, ...]]


def with_templates(tasks: Sequence[TaskSpec], path: Path) -> list[TaskSpec]:
    """The tasks with the texts of a file, by name or by label. Every section is checked, used or not."""
    sections = read_templates(path, [spec.title for spec in tasks])
    opened = [(spec, registry.task(spec)) for spec in tasks]
    specs, used = [], False
    for spec, task in opened:
        own: Texts = {}
        exact = (spec.name, spec.title)
        for section in sorted(sections, key=lambda name: name in exact):  # an exact name comes last and wins
            if any(fnmatchcase(name, section) for name in exact):
                where = f"{path}, [{section}]"
                if not isinstance(task, WordedTask):
                    raise UsageError(f"{spec.name} has no texts to replace", where=where, fix="leave the section out")
                check_wording(task.parts(), sections[section], where=where)
                own |= sections[section]
        used = used or bool(own)
        wording = spec.options.get("wording", {})
        if isinstance(task, WordedTask) and not isinstance(wording, Mapping):  # the number of a default wording
            wording = task.wording
        options = {**spec.options, "wording": {**wording, **own}}
        specs.append(spec.model_copy(update={"options": options}) if own else spec)
    if not used:
        raise UsageError(
            f"no section is about {', '.join(spec.name for spec in tasks)}",
            where=str(path),
            fix=f"sections are named after tasks; there is {', '.join(f'[{name}]' for name in sections) or 'none'}",
        )
    return specs


def template_notes(tasks: Sequence[TaskSpec], path: Path) -> list[str]:
    """What is unusual about the texts that tasks have from a file."""
    worded = [(spec, registry.task(spec)) for spec in tasks]
    return [
        note
        for spec, task in worded
        if isinstance(task, WordedTask)
        for note in white_space_notes(task.parts(), task.wording, where=f"{path}, [{spec.title}]")
    ]


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


def _texts(value: Any, where: str) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
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
