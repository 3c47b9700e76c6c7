"""The tokenizer, chat template and frames of a model's folder, for models that run on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from leadline.core.contracts import BatchUnit
from leadline.core.errors import TokenizerError, UsageError
from leadline.core.files import expand_path
from leadline.core.types import Frame, Tool
from leadline.text.chat import NO_TOOLS_FIX, ChatTemplate, adds_bos, can_prefill, completion_frame, special_token
from leadline.text.tokenizers import FileTokenizer, find_tokenizer_file

_ANSWER_MARK = "\u2063answer\u2063"


class TextOptions(Protocol):
    """The user's options for them."""

    @property
    def tokenizer(self) -> str: ...

    @property
    def template(self) -> str: ...

    @property
    def form(self) -> Literal["auto", "chat", "completion"]: ...

    @property
    def thinking(self) -> Literal["on", "off"] | None: ...


class FolderTexts:
    """The tokenizer, chat template and frames of a model: its own, or those that the user named."""

    asked_per: BatchUnit = "document"

    def __init__(self, options: TextOptions, folder: Path) -> None:
        self._text_options = options
        self._folder = expand_path(options.tokenizer) if options.tokenizer else folder
        named = expand_path(options.template) if options.template else self._folder
        self._template = ChatTemplate.load(named, self._folder) if named.exists() else None
        if options.template and self._template is None:
            raise TokenizerError(f"there is no chat template at {named}", where="template")
        self.tokenizer: FileTokenizer = FileTokenizer(find_tokenizer_file(self._folder))
        adds = special_token(self._folder, "bos_token") if adds_bos(self._folder) else ""
        self.plain: Frame = completion_frame(adds)
        self.frame: Frame = self._find_frame()

    def _find_frame(self) -> Frame:
        options, template = self._text_options, self._template
        if options.form == "chat" and template is None:
            raise UsageError(
                "this model has no chat template", where=str(self._folder), fix="give template=FILE or form=completion"
            )
        if template is None or options.form == "completion":
            return self.plain
        thinking = None if options.thinking is None else options.thinking == "on"
        frame = template.frame(thinking=thinking, prefill=True)
        return frame if can_prefill(frame, thinking) else template.frame(thinking=thinking, prefill=False)

    def tool_frame(self, tools: Sequence[Tool]) -> Frame:
        if self._template is None:
            raise TokenizerError("this model has no chat template", where=str(self._folder), fix=NO_TOOLS_FIX)
        thinking = None if self._text_options.thinking is None else self._text_options.thinking == "on"
        return self._template.tool_frame(tools, thinking=thinking)

    def end_of_turn(self) -> list[int]:
        """The marker that the template puts after an assistant's answer, if it is a single special token."""
        if self._template is None:
            return []
        turn = {"role": "user", "content": "?"}
        try:
            whole = self._template.render([turn, {"role": "assistant", "content": _ANSWER_MARK}, turn])
        except TokenizerError:
            return []  # a template for one turn only
        first = self.tokenizer.encode(whole.partition(_ANSWER_MARK)[2].lstrip())[:1].tolist()
        return [token for token in first if self.tokenizer.is_special(token)]

    def close(self) -> None:
        pass
