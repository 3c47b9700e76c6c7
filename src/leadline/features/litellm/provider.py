"""`litellm:` models of the providers that have no adapter here, by the litellm library (extra `litellm`).

    litellm:mistral/mistral-large-latest        litellm:bedrock/NAME?tokenizer=FOLDER

The library has no exact count of a prompt, so lengths are estimates, or those of the tokenizer that is named, and every
record is counted by its receipt. Parameters that a model does not take are never dropped in silence.
"""

from __future__ import annotations

import json
import os
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from leadline.core.contracts import ModelProvider
from leadline.core.errors import MissingExtra, UsageError
from leadline.core.lengths import parse_length
from leadline.core.secrets import remember, secret_in
from leadline.features.litellm.model import LiteLLMModel
from leadline.text.tokenizers import ApproximateTokenizer, open_tokenizer

EXAMPLE = "litellm:mistral/mistral-large-latest"
LOCAL_TABLE = "LITELLM_LOCAL_MODEL_COST_MAP"
"""With this set, the library does not download its table of models when it is imported."""


def _json_object(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


class LiteLLM(ModelProvider):
    """Any model of litellm's providers."""

    summary: ClassVar[str] = "any other hosted model, by the litellm library; counted by receipts"

    tokenizer: str = Field("", description="PATH or tiktoken:NAME that lengths are counted in; else they are estimates")
    base_url: str = Field("", description="URL of the API, where it is not the provider's own")
    thinking: str | None = Field(None, description="effort of thinking: off, minimal, low, medium, high")
    window: Annotated[int, BeforeValidator(parse_length)] | None = Field(
        None, description="context window, where litellm's table does not have it"
    )
    max_tokens: int | None = Field(None, ge=1, description="output tokens instead of the task's (thinking needs more)")
    temperature: float | None = Field(0.0, description="0 is greedy, where the model allows it")
    timeout: float = Field(600.0, gt=0, le=1e6, description="seconds for a whole request")
    extra: Annotated[dict[str, Any], BeforeValidator(_json_object)] = Field(
        {}, description='further arguments of litellm.completion, as JSON: {"top_p": 1}'
    )

    @model_validator(mode="after")
    def _has_no_secret(self) -> LiteLLM:
        """Options are part of the model's name, which is written to every record."""
        if secret := secret_in({"base_url": self.base_url, "extra": self.extra}):
            remember(secret)
            fix = "put it into the environment variable that litellm reads for this provider"
            raise UsageError("an option looks like a secret, and options are written to disk", where="model", fix=fix)
        if "drop_params" in self.extra:
            what = "drop_params would drop what a model does not take without a word"
            raise UsageError(what, where="extra", fix="leave it out; temperature= (empty) sends no temperature")
        return self

    def open(self, name: str) -> LiteLLMModel:
        if not name:
            raise UsageError("no model is named", where="litellm:", fix=f"write {EXAMPLE}")
        library = _library(name)
        try:
            _, provider, *_ = library.get_llm_provider(model=name)
        except Exception as error:
            fix = f"write litellm:PROVIDER/NAME, such as {EXAMPLE}"
            raise UsageError(f"litellm knows no provider of {name!r}", where=f"litellm:{name}", fix=fix) from error
        missing = [] if self.base_url else library.validate_environment(model=name).get("missing_keys") or []
        if missing:
            names = " and ".join(f"${variable}" for variable in missing)
            fix = "".join(f"export {variable}=... " for variable in missing).rstrip()
            raise UsageError(f"there is no key: {names} not set", where=f"litellm:{name}", fix=fix)
        tokenizer = open_tokenizer(self.tokenizer) if self.tokenizer else ApproximateTokenizer()
        return LiteLLMModel(
            library, name, str(provider), self.model_dump(), tokenizer, self.window or _window(library, name)
        )


def _library(name: str) -> Any:
    """The library, quiet and without its download at import."""
    before = os.environ.get(LOCAL_TABLE)
    os.environ.setdefault(LOCAL_TABLE, "True")
    try:
        import litellm
    except ImportError as error:
        if error.name != "litellm":
            raise
        raise MissingExtra("litellm", "litellm", where=f"litellm:{name}") from None
    finally:
        if before is None:
            os.environ.pop(LOCAL_TABLE, None)
    litellm.suppress_debug_info = True
    return litellm


def _window(library: Any, name: str) -> int | None:
    """Of litellm's table; None where it does not have the model."""
    try:
        window = library.get_model_info(name).get("max_input_tokens")
    except Exception:  # a class of its own in every version
        return None
    return window if type(window) is int and window > 0 else None
