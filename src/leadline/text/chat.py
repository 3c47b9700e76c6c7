"""Chat templates: the text that a model's template puts around one user turn, and thinking in its output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from leadline.core.digest import digest
from leadline.core.errors import TokenizerError
from leadline.core.types import Frame

# --- rendering ----------------------------------------------------------------------------------


def render(source: str, values: Mapping[str, Any], *, where: str) -> str:
    """A template rendered in a sandbox, with the extensions that chat templates use."""
    try:
        return _environment().from_string(source).render(values)
    except Exception as error:  # a template is a program: it can raise anything
        what = f"the chat template does not render: {str(error) or type(error).__name__}"
        raise TokenizerError(what, where=where, fix=_NO_TEMPLATE) from None


_NO_TEMPLATE = "give template=FILE, or ask without a template: api=completions for a server, form=completion for hf:"


class _Generation(Extension):
    """Accepts {% generation %}, which marks the assistant's part for training and has no effect on a prompt."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it so)

    def parse(self, parser: Any) -> Any:
        parser.stream.expect("name:generation")
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def to_json(value: Any, **settings: Any) -> str:
        return json.dumps(value, **{"ensure_ascii": False, **settings})

    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    environment.filters["tojson"] = to_json
    return environment


# --- templates ----------------------------------------------------------------------------------

_USER = "\u2063user-turn\u2063"
_SYSTEM = "\u2063system-turn\u2063"


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A jinja2 chat template with the special tokens that it may use."""

    source: str
    bos: str = ""
    eos: str = ""
    where: str = "chat template"

    @classmethod
    def load(cls, path: Path) -> ChatTemplate | None:
        """The template of a model folder (or a .jinja file), or None when it has none."""
        if path.is_file() and path.suffix != ".json":
            return cls(path.read_text(), where=str(path))
        folder = path if path.is_dir() else path.parent
        config = _read_json(folder / "tokenizer_config.json")
        source = _template_text(config.get("chat_template"))
        if (folder / "chat_template.jinja").is_file():
            source = (folder / "chat_template.jinja").read_text()
        if not source:
            return None
        bos, eos = _token_text(config.get("bos_token")), _token_text(config.get("eos_token"))
        return cls(source, bos, eos, where=str(folder))

    def render(self, messages: list[dict[str, str]], *, thinking: bool | None = None) -> str:
        """Messages as the model reads them, up to where its answer begins."""
        values: dict[str, Any] = {
            "messages": messages, "add_generation_prompt": True, "bos_token": self.bos, "eos_token": self.eos,
            "tools": None, "documents": None,
        }  # fmt: skip
        if thinking is not None:
            values["enable_thinking"] = thinking
        return render(self.source, values, where=self.where)

    def frame(self, *, thinking: bool | None = None, prefill: bool = True) -> Frame:
        """The text around one user turn, and the system text that the template adds by default."""
        before, after = self._around([{"role": "user", "content": _USER}], thinking)
        return Frame(
            before=before,
            after=after,
            form="chat",
            prefill=prefill,
            fingerprint=digest([self.source, self.bos, self.eos, thinking, prefill]),
            system=self._default_system_text(before, thinking),
        )

    def _around(self, messages: list[dict[str, str]], thinking: bool | None) -> tuple[str, str]:
        before, found, after = self.render(messages, thinking=thinking).partition(_USER)
        if not found:
            raise TokenizerError(
                "the chat template does not contain the user's text",
                where=self.where,
                fix="give template=FILE with a template that takes plain text, or api=completions",
            )
        return before, after

    def _default_system_text(self, before: str, thinking: bool | None) -> str:
        messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _USER}]
        try:
            rendered, _ = self._around(messages, thinking)
        except TokenizerError:
            return ""  # a template without a system role adds none
        opening, found, closing = rendered.partition(_SYSTEM)
        if found and before.startswith(opening) and before.endswith(closing):
            return before[len(opening) : len(before) - len(closing)]
        return ""


def completion_frame(bos: str = "") -> Frame:
    """No template: the prompt is the text, after the tokenizer's beginning-of-text token if it has one."""
    return Frame(before=bos, after="", form="completion", prefill=True, fingerprint=digest(["completion", bos]))


def special_token(folder: Path, name: str) -> str:
    """The text of `bos_token` or `eos_token` in a model folder; empty if it has none."""
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        text = _token_text(_read_json(folder / file).get(name))
        if text:
            return text
    return ""


def adds_bos(folder: Path) -> bool:
    """Whether the tokenizer begins a plain text with its beginning-of-text token."""
    config = _read_json(folder / "tokenizer_config.json")
    if "add_bos_token" in config:
        return bool(config["add_bos_token"])
    processor = _read_json(folder / "tokenizer.json").get("post_processor") or {}
    bos = _token_text(config.get("bos_token"))
    return bool(bos) and bos in json.dumps(processor, ensure_ascii=False)


def _template_text(value: Any) -> str:
    """The template; of several named ones that named `default`, or the first."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        named = {str(v.get("name")): str(v.get("template", "")) for v in value if isinstance(v, dict)}
        return named.get("default", next(iter(named.values()), ""))
    return ""


def _token_text(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("content", ""))
    return value if isinstance(value, str) else ""


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        loaded = json.loads(path.read_text())
    except (ValueError, OSError) as error:
        raise TokenizerError(f"not readable as JSON: {error}", where=str(path)) from None
    return loaded if isinstance(loaded, dict) else {}


# --- thinking -----------------------------------------------------------------------------------

TAGS: tuple[tuple[str, str], ...] = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
"""How models mark thinking: Qwen and DeepSeek, generic, Mistral, Seed, Cohere."""


def split_thinking(text: str, *, opened: bool | None = False) -> tuple[str, str]:
    """(thinking, answer). `opened` is True if the prompt ended inside the thinking, None if that is not known.

    Output that stops inside the thinking has no answer.
    """
    start = text.lstrip()
    for begin, end in TAGS:
        if start.startswith(begin) or (opened is not False and end in text):
            thinking, _, answer = start.removeprefix(begin).partition(end)
            return thinking.strip(), answer.lstrip()
    return (text.strip(), "") if opened else ("", text)


def opens_thinking(text: str) -> bool:
    """Whether the end of a prompt leaves the model inside its thinking."""
    return any(text.rfind(begin) > text.rfind(end) for begin, end in TAGS)
