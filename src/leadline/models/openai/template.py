"""How a server wraps one user turn: asked of the server itself, read from a template, or measured.

vLLM and llama.cpp render a marked conversation and show the text. For others the template of the model's folder, or
one that the user names, says what the text should be, and the receipts of two tiny requests what it really takes;
where no text can be had, the receipts alone tell (`Frame.extra_tokens`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from leadline.core.contracts import Tokenizer
from leadline.core.digest import digest
from leadline.core.errors import ServerError, TokenizerError
from leadline.core.types import Frame
from leadline.models.openai.discovery import ServerFacts, ask_json
from leadline.models.openai.http import HttpClient
from leadline.models.openai.tokenizer import ServerTokenizer
from leadline.text.chat import ChatTemplate, completion_frame, opens_thinking

Messages = list[dict[str, str]]
_BEGUN = "\u2063begun-answer\u2063"
_MEASURED = "the server adds {} tokens to every prompt by its receipts; their text is not known"
_OTHER_TOKENIZER = (
    "our tokenizer is not the server's: on two short texts its counts differ from ours by {} and {} tokens"
)
_PROBES = (
    "Which of these words is the longest?",
    "A second, longer text: 1234567 plus 89, in Zürich, at 10:45; what is it about? "
    "It is about counting the same text twice, here and there, and comparing the two counts.",
)


@dataclass(frozen=True, slots=True)
class ServerTemplate(ChatTemplate):
    """A chat template that the server applies for us, so that we see what it will really do."""

    ask: Callable[[Messages], str] = field(default=lambda messages: "")
    begin_answer: bool = False
    """Whether to render with a begun answer, as the requests will have: templates may write that differently."""

    def render(self, messages: Messages, *, thinking: bool | None = None) -> str:
        if not self.begin_answer:
            return self.ask(messages)
        text = self.ask([*messages, {"role": "assistant", "content": _BEGUN}])
        before, found, after = text.rpartition(_BEGUN)
        if not found or after.strip():
            raise TokenizerError("the server does not continue a begun answer", where=self.where, fix="give prefill=no")
        return before


@dataclass(frozen=True, slots=True)
class FrameFinder:
    """Finds the frame of one server."""

    client: HttpClient
    facts: ServerFacts
    tokenizer: Tokenizer
    chat_fields: Mapping[str, Any]
    """What every chat request carries, such as chat_template_kwargs."""
    thinking: bool | None
    template: Path | None
    """The file or folder with the template that the user named, or the folder of the model."""
    complete: Callable[[str, str], int | None]
    """(user text, answer prefix) -> the prompt's tokens by the receipt of one tiny request, or None without one."""

    def chat(self, prefill: bool) -> tuple[Frame, tuple[str, ...]]:
        """The frame of a chat, and what a reader must know about how it was found."""
        if self.facts.kind in ("llamacpp", "vllm"):
            frame = self._rendered(prefill)
            if frame is not None:
                return frame, ()
        template = ChatTemplate.load(self.template) if self.template is not None else None
        if template is not None:
            return self._measured(template.frame(thinking=self.thinking, prefill=prefill))
        return self._measured(Frame("", "", "chat", prefill, fingerprint=""))

    def completion(self) -> tuple[Frame, tuple[str, ...]]:
        """The frame of a plain completion: what the server puts before the text by itself."""
        if self.facts.kind == "plain":
            return self._measured(completion_frame())
        server = ServerTokenizer(self.client, self.facts)
        plain, special = server.encode("a").tolist(), server.special_ids("a")
        added = special[: len(special) - len(plain)]
        if not added:
            return completion_frame(), ()
        bos = server.decode(added)
        if self.tokenizer.encode(bos).tolist() == added:
            return completion_frame(bos), ()
        return replace(completion_frame(), extra_tokens=len(added)), (f"the server begins every text with {bos!r}",)

    # --- shown by the server ---

    def _rendered(self, prefill: bool) -> Frame | None:
        """The frame as the server renders it, or None when what it shows is not what it counts."""
        render = self._by_llamacpp if self.facts.kind == "llamacpp" else self._by_vllm
        template = ServerTemplate("", where=self.client.root_url, ask=render, begin_answer=prefill)
        try:
            frame = template.frame(thinking=self.thinking, prefill=prefill)
        except ServerError:
            return None  # a server too old to show it
        frame = replace(frame, fingerprint=digest([frame.before, frame.after, frame.system, prefill, self.thinking]))
        return frame if self._agrees(frame) else None

    def _agrees(self, frame: Frame) -> bool:
        """Whether the frame's text has the very tokens that the server makes of the same conversation."""
        prefix = " The answer is" if frame.prefill else ""
        messages = conversation(_PROBES[0], prefix)
        ours = self.tokenizer.encode(frame.before + _PROBES[0] + frame.after + prefix).tolist()
        server = ServerTokenizer(self.client, self.facts)
        if self.facts.kind == "vllm":
            theirs = server.chat_ids({**self.chat_fields, **_render_fields(messages), "messages": messages})
        else:
            theirs = server.special_ids(self._apply_template(messages))
        return list(ours) == list(theirs)

    def _by_llamacpp(self, messages: Messages) -> str:
        """The server strips a leading beginning-of-text from the template and adds it when it tokenises."""
        text = self._apply_template(messages)
        server = ServerTokenizer(self.client, self.facts)
        plain, special = server.encode(text), server.special_ids(text)
        return server.decode(special[: len(special) - len(plain)]) + text if len(special) > len(plain) else text

    def _apply_template(self, messages: Messages) -> str:
        body = msgspec.json.encode({**self.chat_fields, "messages": messages})
        return str(ask_json(self.client, "POST", f"{self.client.root_url}/apply-template", body).get("prompt", ""))

    def _by_vllm(self, messages: Messages) -> str:
        server = ServerTokenizer(self.client, self.facts)
        return server.decode(server.chat_ids({**self.chat_fields, **_render_fields(messages), "messages": messages}))

    # --- measured ---

    def _measured(self, frame: Frame) -> tuple[Frame, tuple[str, ...]]:
        """The frame with the tokens that receipts show beyond it. Two texts, because one proves nothing."""
        prefix = " The answer is" if frame.prefill and frame.form == "chat" else ""
        one, two = (self._beyond(frame, text, prefix) for text in _PROBES)
        extra, notes = 0, tuple[str, ...]()
        if one is None or two is None:
            notes = ("the server counts no tokens: whatever it adds to a prompt is left out of every length",)
        elif one != two:
            known = bool(frame.before or frame.after)
            extra, notes = 0 if known else max(one, 0), (_OTHER_TOKENIZER.format(one, two),)
        else:
            extra, notes = one, ((_MEASURED.format(one),) if one else ())
        fingerprint = digest([frame.fingerprint, frame.form, frame.prefill, extra])
        return replace(frame, extra_tokens=extra, fingerprint=fingerprint), notes

    def _beyond(self, frame: Frame, text: str, prefix: str) -> int | None:
        """Tokens that the server counts beyond those we know of."""
        theirs = self.complete(text, prefix)
        ours = len(self.tokenizer.encode(frame.before + text + frame.after + prefix))
        return None if theirs is None else theirs - ours


def conversation(text: str, prefix: str = "") -> Messages:
    """One user turn, and the answer begun where there is a prefix for it."""
    user = [{"role": "user", "content": text}]
    return [*user, {"role": "assistant", "content": prefix}] if prefix else user


def continues_with(kind: str) -> dict[str, bool]:
    """What a request says, beside its messages, so that this kind of server continues a begun answer."""
    if kind == "vllm":
        return {"continue_final_message": True, "add_generation_prompt": False}
    return {"continue_final_message": True} if kind == "sglang" else {}


def _render_fields(messages: Sequence[dict[str, str]]) -> dict[str, bool]:
    return continues_with("vllm") if messages[-1]["role"] == "assistant" else {}


def can_begin_answer(frame: Frame, thinking: bool | None) -> bool:
    """A begun answer would stand inside the thinking of a template that opens it, and forestall that of others."""
    return not thinking and not opens_thinking(frame.after)
