"""Chat templates: the text that a model's template puts around a user turn and between the turns of a conversation, and
thinking in its output."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from leadline.core.errors import LeadlineError, TokenizerError
from leadline.core.files import parse_json, read_text
from leadline.core.seeds import digest
from leadline.core.turns import TurnRole, Turns
from leadline.core.types import Frame, Tool

RENDER_SECONDS = 10.0
"""The limit of processor time. Chat templates take milliseconds."""
WAIT_SECONDS = 120.0
"""The limit by the clock, for a machine so busy that the renderer hardly runs."""

# --- rendering ----------------------------------------------------------------------------------


def render(source: str, values: Mapping[str, Any], *, where: str) -> str:
    """A template rendered in a process of its own, in a sandbox with bounded memory and time."""
    reply = _rendered(source, json.dumps(values))
    if "text" not in reply:
        raise TokenizerError(
            f"the chat template does not render: {reply.get('error', 'no reply')}",
            where=where,
            fix="give template=FILE, or api=completions",
        )
    return reply["text"]


@lru_cache(maxsize=256)
def _rendered(source: str, values: str) -> Mapping[str, str]:
    return _renderer().ask(f'{{"source": {json.dumps(source)}, "values": {values}, "seconds": {RENDER_SECONDS}}}')


class _TemplateRenderer:
    """The process that renders templates: started when the first one is needed, kept, and started again if it dies."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = os.getpid()

    def ask(self, request: str) -> dict[str, str]:
        with self._lock:
            if self._owner != os.getpid():  # a fork: the pipes belong to the parent
                self._process, self._owner = None, os.getpid()
            process = self._process = self._process or self._start()
            timer = threading.Timer(WAIT_SECONDS, process.kill)
            timer.start()
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(request + "\n")
                process.stdin.flush()
                reply: dict[str, str] = json.loads(process.stdout.readline())
                return reply
            except (OSError, ValueError):  # it was killed, or ended by itself
                self._end()
                return {"error": f"it takes more than {RENDER_SECONDS:g} s or too much memory"}
            finally:
                timer.cancel()

    def _start(self) -> subprocess.Popen[str]:
        # -P: a jinja2.py in the current folder must not be imported instead of the library.
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "leadline.text.template_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def _end(self) -> None:
        if self._process is not None and self._owner == os.getpid():
            self._process.kill()
            self._process.communicate()
        self._process = None

    def close(self) -> None:
        with self._lock:
            self._end()


@cache
def _renderer() -> _TemplateRenderer:
    renderer = _TemplateRenderer()
    atexit.register(renderer.close)
    return renderer


# --- templates ----------------------------------------------------------------------------------

_USER = "\u2063user-turn\u2063"
_SYSTEM = "\u2063system-turn\u2063"
_EXCHANGE: tuple[TurnRole, ...] = ("user", "assistant", "user", "assistant", "user")


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A jinja2 chat template with the special tokens that it may use."""

    source: str
    bos: str = ""
    eos: str = ""
    where: str = "chat template"
    tools: tuple[Tool, ...] = ()
    """Tools that it declares."""

    further_turns: ClassVar[tuple[tuple[TurnRole, ...], ...]] = (
        ("user", "user"),
        ("user", "assistant", "tool", "assistant", "user"),
        ("user", "assistant", "tool", "user"),
    )
    """Turns that many templates refuse, and most conversations do without."""

    @classmethod
    def load(cls, path: Path, model: Path | None = None) -> ChatTemplate | None:
        """The template of a model folder, or None when it has none. A .jinja file is used with the special tokens of
        the model's folder, or of its own."""
        if path.is_file() and path.suffix != ".json":
            bos, eos = (special_token(model or path.parent, name) for name in ("bos_token", "eos_token"))
            return cls(read_text(path, error=TokenizerError), bos, eos, where=str(path))
        folder = path if path.is_dir() else path.parent
        config = _read_json(folder / "tokenizer_config.json")
        source = _template_text(config.get("chat_template"))
        if (folder / "chat_template.jinja").is_file():
            source = read_text(folder / "chat_template.jinja", error=TokenizerError)
        if not source:
            return None
        bos, eos = _token_text(config.get("bos_token")), _token_text(config.get("eos_token"))
        return cls(source, bos, eos, where=str(folder))

    def render(self, messages: list[dict[str, str]], *, thinking: bool | None = None) -> str:
        """Messages as the model reads them, up to where its answer begins."""
        values: dict[str, Any] = {
            "messages": messages, "add_generation_prompt": True, "bos_token": self.bos, "eos_token": self.eos,
            "tools": list(self.tools) or None, "documents": None,
        }  # fmt: skip
        if thinking is not None:
            values["enable_thinking"] = thinking
        return render(self.source, values, where=self.where)

    def frame(self, *, thinking: bool | None = None, prefill: bool = True) -> Frame:
        """The text around one user turn, and the system text that the template adds by default."""
        before, after = self._around([{"role": "user", "content": _USER}], thinking)
        turns, problem = self._turns(thinking)
        return Frame(
            before=before,
            after=after,
            form="chat",
            prefill=prefill,
            fingerprint=digest([self.source, self.bos, self.eos, thinking, prefill, *map(dict, self.tools)]),
            system=self._default_system_text(before, thinking),
            turns=turns,
            no_turns=problem,
        )

    def tool_frame(self, tools: Sequence[Tool], *, thinking: bool | None = None) -> Frame:
        """The frame with tools declared. Raises where the template leaves them out."""
        return checked_tool_frame(
            replace(self, tools=tuple(tools)).frame(thinking=thinking, prefill=False),
            self.frame(thinking=thinking, prefill=False),
            self.where,
        )

    def _turns(self, thinking: bool | None) -> tuple[Turns | None, str]:
        """The text that the template writes around the turns of a conversation, or the reason why it is unknown."""
        try:
            before, *between, after = self._between(_EXCHANGE, thinking)
            padded = self._between(_EXCHANGE, thinking, " \n")
        except LeadlineError as error:
            return None, error.what
        if between[:2] != between[2:]:
            return None, "the chat template writes the turns of a conversation differently by their place"
        joint_of = dict(zip(pairwise(_EXCHANGE), between, strict=True))
        for roles in self.further_turns:
            try:
                texts = self._between(roles, thinking)
            except TokenizerError:
                continue
            joint_of = dict(zip(pairwise(roles), texts[1:-1], strict=True)) | joint_of
        joints = tuple((role, following, text) for (role, following), text in joint_of.items())
        return Turns(before, after, joints, strips=padded == [before, *between, after]), ""

    def _between(self, roles: tuple[TurnRole, ...], thinking: bool | None, padding: str = "") -> list[str]:
        """The texts before, between and after the turns of a conversation. `padding` is put around each turn, and
        expected around it."""
        marks = [f"\u2063turn-{number}\u2063" for number in range(len(roles))]
        turns = [
            {"role": role, "content": f"{padding}{mark}{padding}"} for role, mark in zip(roles, marks, strict=True)
        ]
        rest, texts = self.render(turns, thinking=thinking), list[str]()
        for mark in marks:
            text, written, rest = rest.partition(mark)
            if not written or (texts and not text):
                raise TokenizerError("the chat template does not write every turn of a conversation", where=self.where)
            texts.append(text)
        return [*texts, rest]

    def _around(self, messages: list[dict[str, str]], thinking: bool | None) -> tuple[str, str]:
        before, separator, after = self.render(messages, thinking=thinking).partition(_USER)
        if not separator:
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
        opening, separator, closing = rendered.partition(_SYSTEM)
        if separator and before.startswith(opening) and before.endswith(closing):
            return before[len(opening) : len(before) - len(closing)]
        return ""


NO_TOOLS_FIX = "declare them in the text with --set declare=text, or give template=FILE with a template that has tools"


def checked_tool_frame(declared: Frame, plain: Frame, where: str) -> Frame:
    """The frame with tools, if it differs from the one without them."""
    if (declared.before, declared.after) == (plain.before, plain.after):
        raise TokenizerError("the chat template declares no tools", where=where, fix=NO_TOOLS_FIX)
    return declared


def tools_as_text(tools: Sequence[Tool]) -> str:
    """Tools and how to call them, for a prompt without chat template."""
    listed = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    form = '<tool_call>{"name": "NAME", "arguments": {...}}</tool_call>'
    return f"You can call these tools:\n{listed}\nTo call a tool, write {form} and nothing else.\n\n"


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
    loaded = parse_json(read_text(path, error=TokenizerError), str(path), error=TokenizerError)
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


NOT_PREFILLED = "the start of the answer is at the end of the user's turn: the answer is not prefilled"


def can_prefill(frame: Frame, thinking: bool | None) -> bool:
    """Not for thinking models: the prefix of the answer would be inside the thinking, or suppress it."""
    return not thinking and not opens_thinking(frame.after)
