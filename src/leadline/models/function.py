"""A Python function as a model: `./mine.py:generate` takes the prompt and returns the answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from leadline.core import registry
from leadline.core.contracts import AskedPer, ModelCard, ModelProvider, Tokenizer
from leadline.core.errors import LeadlineError, UsageError
from leadline.core.records import Answer, Completion, Failure, Sent
from leadline.core.seeds import digest_text
from leadline.core.spec import parse_length
from leadline.core.types import Document, Frame, Probe
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import open_tokenizer


class FunctionProvider(ModelProvider):
    """`./mine.py:generate?window=8k`: calls `generate(prompt)`, which returns the answer as a text."""

    summary: ClassVar[str] = "a Python function from prompt to answer, as ./mine.py:generate"

    function: str = Field("", description="FILE.py:NAME of the function; filled in from the model's name")
    window: int | None = Field(None, ge=1, description="the context window the function claims, in tokens")
    tokenizer: str = Field("whitespace", description="whitespace, bytes, or a tokenizer.json or model folder")
    parallel: bool = Field(False, description="call the function from many threads at once")

    @field_validator("window", mode="before")
    @classmethod
    def _window(cls, value: Any) -> Any:
        return parse_length(value) if isinstance(value, str) else value

    def open(self, name: str) -> FunctionModel:
        path = self.function or name
        function = registry.find("models", path)
        if not callable(function):
            raise UsageError(f"{path} is not a function", where="model", fix="give a function from prompt to answer")
        return FunctionModel(path, function, self)


class FunctionModel:
    def __init__(self, path: str, function: Callable[[str], Any], options: FunctionProvider) -> None:
        self._path = path
        self._function = function
        self._options = options
        self.tokenizer: Tokenizer = open_tokenizer(options.tokenizer)
        self.frame: Frame = completion_frame()
        self.asked_per: AskedPer = "probe" if options.parallel else "document"

    @property
    def card(self) -> ModelCard:
        return ModelCard(
            name=self._path,
            window=self._options.window,
            window_is_hard=False,
            fingerprints={"tokenizer": self.tokenizer.fingerprint},
        )

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        return [self._answer(document.prompt_text(probe), probe, document.frame) for probe in probes]

    def _answer(self, prompt: str, probe: Probe, frame: Frame) -> Answer:
        prefix: Literal["prefill", "appended"] = "prefill" if frame.prefill else "appended"
        sent = Sent(
            form="completion",
            prefix=prefix if probe.answer_prefix else "none",
            characters=len(prompt),
            digest=digest_text(prompt),
        )
        began = time.perf_counter()
        outcome: Completion | Failure
        try:
            text = self._function(prompt)
        except LeadlineError:
            raise
        except Exception as error:
            outcome = Failure("server", f"{type(error).__name__}: {error}")
        else:
            if not isinstance(text, str):
                raise UsageError(
                    f"{self._path} returned {type(text).__name__}", where="model", fix="return the answer as a str"
                )
            outcome = Completion(text)
        return Answer(sent, outcome, time.perf_counter() - began)

    def close(self) -> None:
        pass
