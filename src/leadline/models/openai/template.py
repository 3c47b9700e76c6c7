"""The text that a server puts around one user turn: rendered by the server, read from a template file, or measured.

vLLM and llama.cpp render a conversation on request. For other servers the template comes from the model's folder or
from the user, and is checked against the prompt tokens that the server counts for two short requests. Without any
template those counts alone give the number of added tokens (`Frame.extra_tokens`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from leadline.core.contracts import Tokenizer
from leadline.core.errors import ServerError, TokenizerError
from leadline.core.seeds import digest
from leadline.core.turns import Turn, TurnRole
from leadline.core.types import Frame, Tool
from leadline.models.openai.discovery import ServerInfo, ask_json
from leadline.models.openai.http import HttpClient
from leadline.models.openai.tokenizer import ALLOW_MISMATCH, ServerTokenizer
from leadline.text.chat import ChatTemplate, checked_tool_frame, completion_frame

Messages = list[dict[str, str]]
_PREFILL_MARK = "\u2063begun-answer\u2063"
_MEASURED = "by its own counts the server adds {} tokens to every prompt; their text is not known"
_OTHER_TOKENIZER = (
    "our tokenizer is not the server's: on two short texts its counts differ from ours by {} and {} tokens"
)
_PROBES = (
    "Which of these words is the longest?",
    "A second text, 1234567 plus 89.25, at 10:45: naïve Übergröße, 數據 日本 한국 русский, camelCaseWord, "
    "https://example.org/a?b=c; what is it about?",
)
ALLOWED_DIFFERENCE = 2
"""Tokens: the ends of a text may merge with a template whose text is not known."""


@dataclass(frozen=True, slots=True)
class ServerTemplate(ChatTemplate):
    """A chat template that the server applies."""

    ask: Callable[[Messages], str] = field(default=lambda messages: "")
    prefill: bool = False
    """Render with a prefilled answer, as in the requests: templates may write that differently."""
    further_turns: ClassVar[tuple[tuple[TurnRole, ...], ...]] = ()

    def render(self, messages: Messages, *, thinking: bool | None = None) -> str:
        if not self.prefill:
            return self.ask(messages)
        text = self.ask([*messages, {"role": "assistant", "content": _PREFILL_MARK}])
        before, mark, after = text.rpartition(_PREFILL_MARK)
        if not mark or after.strip():
            raise TokenizerError(
                "the server does not continue a prefilled answer", where=self.where, fix="give prefill=no"
            )
        return before


@dataclass(frozen=True, slots=True)
class FrameFinder:
    """Finds the frame of one server."""

    client: HttpClient
    server: ServerInfo
    tokenizer: Tokenizer
    chat_fields: Mapping[str, Any]
    """Fields of every chat request, such as chat_template_kwargs."""
    thinking: bool | None
    template: Path | None
    """The file or folder with the template: named by the user, or the model's folder."""
    count_prompt: Callable[[str, str], int | None]
    """(user text, answer prefix) -> prompt tokens as the server counts them in one request; None where it does not."""
    allow_mismatch: bool
    """Use a tokenizer that is not the server's."""

    def chat(self, prefill: bool) -> tuple[Frame, tuple[str, ...]]:
        """The frame of a chat, and notes on how it was found."""
        if self.server.kind in ("llamacpp", "vllm"):
            frame = self._rendered(prefill)
            if frame is not None:
                return frame, ()
        template = ChatTemplate.load(self.template) if self.template is not None else None
        if template is not None:
            return self._measured(template.frame(thinking=self.thinking, prefill=prefill))
        return self._measured(Frame("", "", "chat", prefill, fingerprint=""))

    def with_tools(self, tools: Sequence[Tool]) -> Frame:
        """The frame of a chat with tools declared: as the server renders it, or from the template."""
        declaring = replace(self, chat_fields={**self.chat_fields, "tools": list(tools)})
        if self.server.kind in ("llamacpp", "vllm"):
            frame, plain = declaring._rendered(prefill=False), self._rendered(prefill=False)
            if frame is not None and plain is not None:
                return checked_tool_frame(frame, plain, self.client.root_url)
        template = ChatTemplate.load(self.template) if self.template is not None else None
        if template is None:
            raise TokenizerError(
                "the server's chat template is not known, and so not how many tokens the tools take",
                where=self.client.root_url,
                fix="give template=FOLDER with the model's chat template, or --set declare=text",
            )
        return template.tool_frame(tools, thinking=self.thinking)

    def completion(self) -> tuple[Frame, tuple[str, ...]]:
        """The frame of a completion: the special tokens that the server puts before the text."""
        if self.server.kind == "plain":
            return self._measured(completion_frame())
        remote = ServerTokenizer(self.client, self.server)
        added = remote.added_ids("a")
        if not added:
            return completion_frame(), ()
        bos = remote.decode(added)
        if self.tokenizer.encode(bos).tolist() == added:
            return completion_frame(bos), ()
        return replace(completion_frame(), extra_tokens=len(added)), (f"the server begins every text with {bos!r}",)

    def _rendered(self, prefill: bool) -> Frame | None:
        """The frame as the server renders it; None where the rendered text and its token ids disagree."""
        render = self._by_llamacpp if self.server.kind == "llamacpp" else self._by_vllm
        template = ServerTemplate("", where=self.client.root_url, ask=render, prefill=prefill)
        try:
            frame = template.frame(thinking=self.thinking, prefill=prefill)
        except ServerError:
            return None  # an old server without this endpoint
        frame = replace(frame, fingerprint=digest([frame.before, frame.after, frame.system, prefill, self.thinking]))
        return frame if self._agrees(frame) else None

    def _agrees(self, frame: Frame) -> bool:
        """Whether the frame's text has the same token ids as the server's rendering of the conversation."""
        prefix = " The answer is" if frame.prefill else ""
        messages = conversation(_PROBES[0], prefix)
        ours = self.tokenizer.encode(frame.before + _PROBES[0] + frame.after + prefix).tolist()
        remote = ServerTokenizer(self.client, self.server)
        if self.server.kind == "vllm":
            theirs = remote.chat_ids({**self.chat_fields, **_render_fields(messages), "messages": messages})
        else:
            theirs = remote.special_ids(self._apply_template(messages))
        return list(ours) == list(theirs)

    def _by_llamacpp(self, messages: Messages) -> str:
        """The server strips a leading beginning-of-text token from the template and adds it when tokenising."""
        text = self._apply_template(messages)
        remote = ServerTokenizer(self.client, self.server)
        added = remote.added_ids(text)
        return remote.decode(added) + text if added else text

    def _apply_template(self, messages: Messages) -> str:
        body = msgspec.json.encode({**self.chat_fields, "messages": messages})
        return str(ask_json(self.client, "POST", f"{self.client.root_url}/apply-template", body).get("prompt", ""))

    def _by_vllm(self, messages: Messages) -> str:
        remote = ServerTokenizer(self.client, self.server)
        return remote.decode(remote.chat_ids({**self.chat_fields, **_render_fields(messages), "messages": messages}))

    def _measured(self, frame: Frame) -> tuple[Frame, tuple[str, ...]]:
        """The frame with the tokens that the server counts beyond it. Two texts, to notice a different tokenizer."""
        prefix = " The answer is" if frame.prefill and frame.form == "chat" else ""
        theirs = [self.count_prompt(text, prefix) for text in _PROBES]
        ours = [len(self.tokenizer.encode(frame.before + text + frame.after + prefix)) for text in _PROBES]
        extra, notes = 0, tuple[str, ...]()
        short, long = ((theirs[i] or 0) - ours[i] for i in (0, 1))
        if self.server.offline_reason:
            pass  # its note says that this is not known
        elif None in theirs or theirs[0] == theirs[1]:  # a placeholder, if it is the same for any text
            notes = ("the server reports no token counts: what it adds to a prompt is not part of any length",)
        elif short == long:
            extra, notes = short, ((_MEASURED.format(short),) if short else ())
        elif abs(short - long) > ALLOWED_DIFFERENCE and not self.allow_mismatch:
            raise TokenizerError(
                _OTHER_TOKENIZER.format(short, long),
                where=f"openai:{self.server.model}",
                fix=f"give tokenizer=FOLDER with this model's tokenizer.json, or {ALLOW_MISMATCH}",
            )
        else:
            has_template = bool(frame.before or frame.after)
            extra, notes = 0 if has_template else max(short, 0), (_OTHER_TOKENIZER.format(short, long),)
        fingerprint = digest([frame.fingerprint, frame.form, frame.prefill, extra])
        return replace(frame, extra_tokens=extra, fingerprint=fingerprint), notes


def conversation(content: str | Sequence[Turn], prefix: str = "") -> Messages:
    """One user turn or several turns, followed by the prefilled answer if there is a prefix."""
    turns = [Turn("user", content)] if isinstance(content, str) else content
    messages = [{"role": str(turn.role), "content": turn.text} for turn in turns]
    return [*messages, {"role": "assistant", "content": prefix}] if prefix else messages


def prefill_fields(kind: str) -> dict[str, bool]:
    """The request fields with which this kind of server continues a prefilled answer."""
    if kind == "vllm":
        return {"continue_final_message": True, "add_generation_prompt": False}
    return {"continue_final_message": True} if kind == "sglang" else {}


def _render_fields(messages: Sequence[dict[str, str]]) -> dict[str, bool]:
    return prefill_fields("vllm") if messages[-1]["role"] == "assistant" else {}
