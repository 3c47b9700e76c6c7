"""A Python function as a model: `./mine.py:generate` takes the prompt and returns the answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from leadline.core import registry
from leadline.core.answers import Answer, Completion, Failure, Sent
from leadline.core.contracts import BatchUnit, ModelCard, ModelProvider, Tokenizer
from leadline.core.errors import LeadlineError, UsageError
from leadline.core.lengths import parse_length
from leadline.core.seeds import digest_prompt
from leadline.core.types import Document, Frame, Probe
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import open_tokenizer


class FunctionProvider(ModelProvider):
    """`./mine.py:generate?window=8k`: calls `generate(prompt)`, which returns the answer as a text."""

    summary: ClassVar[str] = "a Python function from prompt to answer, as ./mine.py:generate"

    function: str = Field("", description="FILE.py:NAME of the function; filled in from the model's name")
    window: Annotated[int, BeforeValidator(parse_length)] | None = Field(
        None, description="the context window the function claims, in tokens"
    )
    tokenizer: str = Field("whitespace", description="whitespace, bytes, or a tokenizer.json or model folder")
    parallel: bool = Field(False, description="call the function from many threads at once")

    def open(self, name: str) -> FunctionModel:
        path = self.function or name
        function = registry.find("models", path)
        if not callable(function):
            raise UsageError(f"{path} is not a function", where="model", fix="give a function from prompt to answer")
        return FunctionModel(path, function, self)


def sent_text(document: Document, probe: Probe, prompt: str, **decoding: int) -> Sent:
    """The record of a prompt that was given to a model as one text."""
    return Sent(
        form="completion",
        prefix=document.prefix_place(probe),
        characters=len(prompt),
        digest=digest_prompt(prompt),
        decoding={**decoding},
    )


class FunctionModel:
    """A function behind the interface of models."""

    def __init__(self, path: str, function: Callable[[str], Any], options: FunctionProvider) -> None:
        self._path = path
        self._function = function
        self._options = options
        self.tokenizer: Tokenizer = open_tokenizer(options.tokenizer)
        self.frame: Frame = completion_frame()
        self.asked_per: BatchUnit = "probe" if options.parallel else "document"

    @property
    def card(self) -> ModelCard:
        return ModelCard(
            name=self._path,
            window=self._options.window,
            window_is_hard=False,
            fingerprints={"tokenizer": self.tokenizer.fingerprint},
        )

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        return [self._answer(document, probe) for probe in probes]

    def _answer(self, document: Document, probe: Probe) -> Answer:
        prompt = document.prompt_text(probe)
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
        return Answer(sent_text(document, probe, prompt), outcome, time.perf_counter() - began)

    def close(self) -> None:
        pass
