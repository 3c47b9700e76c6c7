"""Chat templates: the text that a model's template puts around a user turn and between the turns of a conversation, and
thinking in its output."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, wraps
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range

from leadline.core.errors import LeadlineError, TokenizerError
from leadline.core.files import parse_json, read_text
from leadline.core.seeds import digest
from leadline.core.turns import TurnRole, Turns
from leadline.core.types import Frame

MAX_STEPS = 200_000
"""Passes through loops and macros, and numbers of ranges. Chat templates need a few for each turn."""
MAX_SIZE = 1_000_000
"""Of a number or text that a template may compute with. Chat templates need thousands."""

# --- rendering ----------------------------------------------------------------------------------


def render(source: str, values: Mapping[str, Any], *, where: str) -> str:
    """A template rendered in a sandbox, with the extensions that chat templates use, in a bounded number of steps."""
    try:
        return _environment().from_string(source).render({**values, _STEPS: _StepLimit()})
    except Exception as error:  # a template can raise anything: TypeError, ZeroDivisionError, RecursionError ...
        reason = str(error) or type(error).__name__
        raise TokenizerError(
            f"the chat template does not render: {reason}", where=where, fix="give template=FILE, or api=completions"
        ) from None


_STEPS = "steps left"
"""The name of the limit among the values of a template, which no template can write: it has a space."""


class _StepLimit:
    """Ends a template after MAX_STEPS passes through its loops and macros."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def take(self, steps: int) -> bool:
        self._left -= steps
        if self._left < 0:
            raise jinja2.TemplateError(f"it does not end within {MAX_STEPS:,} steps")
        return True


@jinja2.pass_context
def _step(context: jinja2.runtime.Context, value: bool) -> bool:
    """A filter that the parser puts at the beginning of every loop, macro and condition of a loop."""
    return bool(context[_STEPS].take(1))


@jinja2.pass_context
def _counted_range(context: jinja2.runtime.Context, *bounds: int) -> range:
    numbers = safe_range(*bounds)
    context[_STEPS].take(len(numbers))
    return numbers


class _Sandbox(ImmutableSandboxedEnvironment):
    """Also refuses to make texts and numbers of any size: 'x' * 10**12, 9 ** 9 ** 9, 'x'.center(10**12)."""

    intercepted_binops = frozenset(("*", "**"))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """With steps counted: jinja2 itself bounds no loop, and a trace function would belong to the whole thread."""
        tree = super()._parse(source, name, filename)
        for node in list(tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock))):
            step = nodes.Filter(nodes.Const(True), "step", [], [], None, None)
            node.body.insert(0, nodes.ExprStmt(step))
            if isinstance(node, nodes.For) and node.test is not None:
                node.test = nodes.And(step, node.test)
        tree.set_environment(self)
        return tree

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        repeats = any(isinstance(x, (str, bytes, list, tuple)) for x in (left, right))
        sizes = [len(x) if isinstance(x, (str, bytes, list, tuple)) else abs(x) for x in (left, right)]
        if max(sizes) > (64 if operator == "**" else MAX_SIZE) or (repeats and sizes[0] * sizes[1] > MAX_SIZE):
            raise SecurityError(f"{operator} with large operands")
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_large(*args, **kwargs)
        return super().call(__context, __obj, *args, **kwargs)


def _refuse_large(*args: Any, **kwargs: Any) -> None:
    if any(isinstance(value, (int, float)) and abs(value) > MAX_SIZE for value in (*args, *kwargs.values())):
        raise SecurityError("a call with a large number")


class _Generation(Extension):
    """Accepts {% generation %}, which marks the assistant's part for training and has no effect on a prompt."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it so)

    def parse(self, parser: Any) -> Any:
        parser.stream.expect("name:generation")
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@cache
def _environment() -> _Sandbox:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation])

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def to_json(value: Any, **settings: Any) -> str:
        return json.dumps(value, **{"ensure_ascii": False, **settings})

    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    environment.globals["range"] = _counted_range
    environment.filters["tojson"] = to_json
    environment.filters["step"] = _step
    for name in ("center", "indent", "format"):  # those that take a width
        environment.filters[name] = _bounded(environment.filters[name])
    return environment


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        _refuse_large(*args, **kwargs)
        return function(*args, **kwargs)

    return bounded


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
            "tools": None, "documents": None,
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
            fingerprint=digest([self.source, self.bos, self.eos, thinking, prefill]),
            system=self._default_system_text(before, thinking),
            turns=turns,
            no_turns=problem,
        )

    def _turns(self, thinking: bool | None) -> tuple[Turns | None, str]:
        """What the template writes around the turns of a conversation, or why that cannot be said."""
        try:
            before, *between, after = self._between(_EXCHANGE, thinking)
            padded = self._between(_EXCHANGE, thinking, " \n")
        except LeadlineError as error:
            return None, error.what
        if between[:2] != between[2:]:
            return None, "the chat template writes the turns of a conversation differently by their place"
        found = dict(zip(pairwise(_EXCHANGE), between, strict=True))
        for roles in self.further_turns:
            try:
                texts = self._between(roles, thinking)
            except TokenizerError:
                continue
            found = dict(zip(pairwise(roles), texts[1:-1], strict=True)) | found
        joints = tuple((role, following, text) for (role, following), text in found.items())
        return Turns(before, after, joints, strips=padded == [before, *between, after]), ""

    def _between(self, roles: tuple[TurnRole, ...], thinking: bool | None, padding: str = "") -> list[str]:
        """The texts before, between and after the turns of a conversation. `padding` is put around each turn, and
        expected around it."""
        marks = [f"\u2063turn-{number}\u2063" for number in range(len(roles))]
        turns = [
            {"role": role, "content": f"{padding}{mark}{padding}"} for role, mark in zip(roles, marks, strict=True)
        ]
        rest, found = self.render(turns, thinking=thinking), list[str]()
        for mark in marks:
            text, written, rest = rest.partition(mark)
            if not written or (found and not text):
                raise TokenizerError("the chat template does not write every turn of a conversation", where=self.where)
            found.append(text)
        return [*found, rest]

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
