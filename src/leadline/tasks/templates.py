"""Files of wordings: a section for each task, with texts in place of ours. TOML or JSON.

["niah_*"]                                   a pattern stands for every task it fits; an exact name comes first
instruction = "Keep the {kinds} in mind.\\n"
question = ["\\nWhich {kind} has {key}?", "\\nWhat is the {kind} of {key}?"]      each sample draws one
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from leadline.core import registry
from leadline.core.errors import UnknownName, UsageError
from leadline.core.spec import TaskSpec
from leadline.tasks.wording import Part, Worded, check_wording

Texts = dict[str, tuple[str, ...]]


def with_templates(tasks: Sequence[TaskSpec], path: Path) -> list[TaskSpec]:
    """The tasks with the wordings that a file has for them. Every section of it must be sound, asked for or not."""
    sections = read_templates(path)
    found = [(asked, registry.task(asked)) for asked in tasks]
    made, used = [], False
    for asked, task in found:
        own: Texts = {}
        for section in sorted(sections, key=lambda name: name == asked.name):  # the exact name last: it wins
            if fnmatchcase(asked.name, section):
                where = f"{path}, [{section}]"
                if not isinstance(task, Worded):
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


def read_templates(path: Path) -> dict[str, Texts]:
    """Section by section, with every text in a tuple. A section's name is that of a task, or a pattern of some."""
    known = registry.names("tasks")
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
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the templates: {error}", where=str(path)) from None
    try:
        loaded: Any = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:  # of either reader
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise UsageError(f"not {kind}: {error}", where=str(path), fix="`leadline tasks show NAME --template`") from None
    if not isinstance(loaded, Mapping):
        raise UsageError("the file holds no sections", where=str(path), fix='write {"vt": {"question": "..."}}')
    return loaded


def _texts(given: Any, where: str) -> tuple[str, ...]:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UsageError("neither a text nor a list of texts", where=where, fix='write "..." or ["...", "..."]')
    return tuple(texts)


def template_of(name: str, task: Worded) -> str:
    """The texts of a task as a section to start from, with what each may say."""
    lines = [f"[{_quoted(name)}]" if not name.replace("_", "").replace("-", "").isalnum() else f"[{name}]"]
    for part, about in task.parts().items():
        if about.placeholders:
            lines.append(f"# {_words(about)}")
        texts = task.texts(part)
        if len(texts) == 1:
            lines.append(f"{part} = {_quoted(texts[0])}")
        else:
            lines += [f"{part} = [", *(f"  {_quoted(text)}," for text in texts), "]"]
    return "\n".join(lines) + "\n"


def _words(part: Part) -> str:
    needs = [" or ".join(f"{{{name}}}" for name in need.split("|")) for need in part.needs]
    may = [f"{{{name}}}" for name in part.may]
    said = [f"needs {', '.join(needs)}"] if needs else []
    return "; ".join([*said, *([f"may have {', '.join(may)}"] if may else [])])


def _quoted(text: str) -> str:
    """A JSON string is a basic string of TOML, too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
