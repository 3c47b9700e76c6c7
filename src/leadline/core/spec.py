"""The spec of a run: model, tasks, lengths, depths, samples. A TOML file and command-line flags give the same one.

Every field but `limits`, `judges` and `log` is part of the run's identity, because those cannot change an answer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from leadline.core.errors import LeadlineError, OptionElsewhere, UnknownName, UsageError
from leadline.core.files import parse_json, parse_toml, read_text
from leadline.core.format import format_given
from leadline.core.lengths import AUTO, parse_depths, parse_length, parse_lengths
from leadline.core.seeds import digest
from leadline.core.types import Reading

ModelT = TypeVar("ModelT", bound=BaseModel)
Option = Any  # any TOML value: str, int, float, bool, list, table

MAX_SAMPLES = 1_000_000
MAX_SAMPLES_UNTIL = 100
"""Samples per cell where a stopping rule decides and none are given."""


# --- the spec


class FrozenModel(BaseModel):
    """Immutable; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TaskSpec(FrozenModel):
    """A task by name, with the options that differ from its defaults. `label` names it in tables."""

    name: str
    options: dict[str, Option] = {}
    label: str = ""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if isinstance(value, Mapping):
            # A [[tasks]] table may list options next to the name.
            known = {"name", "options", "label"}
            extra = {k: v for k, v in value.items() if k not in known}
            options = {**dict(value.get("options") or {}), **extra}
            return {**{k: v for k, v in value.items() if k in known}, "options": options}
        return value

    @property
    def title(self) -> str:
        """The name in tables and records: the label if given, else the name; `Name` for `file.py:Name`."""
        return self.label or self.name.rpartition(":")[2]


class Limits(FrozenModel):
    """Concurrency and retries. None of these can change a result."""

    workers: int = Field(16, ge=1, le=1024, description="concurrent requests to a server")
    timeout: float = Field(600.0, gt=0, le=1e6, description="seconds until a request times out")
    attempts: int = Field(6, ge=1, le=1000, description="attempts per sample before it counts as failed")
    rate_limit_wait: float = Field(
        3600.0,
        ge=0,
        le=1e6,
        description="seconds that a server's rate limit (429) is waited for while it answers nothing",
    )
    breaker: int = Field(20, ge=1, description="consecutive failed samples after which the run stops")
    ray: int | None = Field(None, ge=0, le=65536, description="Ray replicas of an in-process model; 0: all that fit")
    allow_tokenizer_mismatch: bool = Field(False, description="measure although the tokenizer is not the server's")
    prices: str = Field("", description="file of prices: our TOML, or LiteLLM's table")
    tier: str = Field("", description="tier of these prices, such as batch")
    budget: str = Field("", description="money after which the run stops, such as 20usd; needs prices")
    batch: bool = Field(False, description="ask by the provider's batches, at a lower price, within a day")
    repeats: float | None = Field(
        None,
        ge=0,
        le=1,
        description="share of the questions that is asked twice to see how answers differ; "
        "by default a tenth, 20 to 200, where a model has no greedy decoding",
    )
    time: str = Field("", description="time in which the run ends, such as 10min; it asks what it can tell by then")


class Judging(FrozenModel):
    """Judges that grade the answers at the end of a run. They change no answer, so they are no part of its identity."""

    models: tuple[str, ...] = ()
    rubric: str = Field("answer", description="answer, key_points, scale, or a TOML file")
    own_family: bool = Field(False, description="allow a judge of the tested model's family")
    min_accuracy: float = Field(0.6, ge=0, le=1, description="minimum accuracy of a judge on known cases")

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: Any) -> Any:
        models = [value] if isinstance(value, str) else value
        return {"models": models} if isinstance(models, (list, tuple)) else value


class Logging(FrozenModel):
    """Experiment trackers that the result is written to at the end of a run; no part of its identity."""

    to: tuple[str, ...] = ()
    """`TRACKER:DESTINATION`, such as `mlflow:http://127.0.0.1:5000` or `tensorboard:logs`."""
    step: str = Field("0", description="a number, or auto to read it from the model's name")
    run_name: str = Field("", description="the name of the series; by default the model without its step")

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: Any) -> Any:
        trackers = [value] if isinstance(value, str) else value
        return {"to": trackers} if isinstance(trackers, (list, tuple)) else value

    @field_validator("step", mode="before")
    @classmethod
    def _step_as_text(cls, value: Any) -> Any:
        return str(value) if type(value) is int else value


def _as_list(tasks: Any) -> Any:
    return [tasks] if isinstance(tasks, (str, Mapping)) else tasks


def _parse_allowance(value: Any) -> Any:
    return value if value in ("", "auto", None) else str(parse_length(value))


def _reading_or_auto(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    return AUTO if value == AUTO else validate(value)


class Spec(FrozenModel):
    """One run. `Limits` and `TaskSpec` hold the nested fields."""

    model: str
    tasks: Annotated[tuple[TaskSpec, ...], BeforeValidator(_as_list)] = Field(min_length=1)
    lengths: Annotated[tuple[int, ...], BeforeValidator(parse_lengths)] = ()
    """None are `auto`: the plan chooses those that fit the model."""
    depths: Annotated[tuple[float, ...], BeforeValidator(parse_depths)] = Field(
        (0.0, 0.25, 0.5, 0.75, 1.0), min_length=1
    )
    samples: int = Field(3, ge=1, le=MAX_SAMPLES, description="samples per cell, that is per length and depth")
    reading: Annotated[Reading, WrapValidator(_reading_or_auto), PlainSerializer(str)] = "fresh"
    """May be `auto` until the plan has chosen the cheapest."""
    seed: int = 0
    until: str = ""
    """A stopping rule. `samples` is then the maximum per cell instead of the exact number."""
    allowance: Annotated[str, BeforeValidator(_parse_allowance)] = ""
    """Tokens for thinking, beyond those of the task's answer and part of the length: a number, or auto to find it."""
    judges: Judging = Judging()
    log: Logging = Logging()
    limits: Limits = Limits()

    @model_validator(mode="wrap")
    @classmethod
    def _plain_errors(cls, values: Any, validate: ModelWrapValidatorHandler[Spec], info: ValidationInfo) -> Spec:
        """Errors of `Spec(...)` in Python are those of a spec file."""
        try:
            return validate(values)
        except ValidationError as error:
            raise plain_error(cls, error, where=(info.context or {}).get("where", "Spec")) from None

    @model_validator(mode="before")
    @classmethod
    def _maximum_of_a_rule(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and values.get("until") and "samples" not in values:
            return {**values, "samples": MAX_SAMPLES_UNTIL}
        return values

    @model_validator(mode="after")
    def _distinct_labels(self) -> Spec:
        titles = [t.title for t in self.tasks]
        twice = sorted({t for t in titles if titles.count(t) > 1})
        if twice:
            raise ValueError(f"two tasks are called {twice[0]!r}: give one of them another label")
        return self

    def identity(self) -> dict[str, Any]:
        """The spec without limits, judges and trackers, as plain values. An empty `until` or `allowance` is omitted."""
        aside = {"limits", "judges", "log", *(name for name in ("until", "allowance") if not getattr(self, name))}
        return self.model_dump(mode="json", exclude=aside) | ({} if self.lengths else {"lengths": AUTO})

    @property
    def digest(self) -> str:
        return digest(self.identity())


class SuiteSetting(FrozenModel):
    """A setting of a suite for `--set`: one option of the tasks it names, and of no other."""

    option: str
    tasks: tuple[str, ...]


class Suite(FrozenModel):
    """A named set of spec values, registered as an entry point of `leadline.suites`. Flags override the values."""

    name: str
    summary: str
    values: dict[str, Any]
    settings: dict[str, SuiteSetting] = {}
    optional: tuple[str, ...] = ()
    """Tasks that are left out where the feature that has them is not installed."""

    def values_with(self, known: Collection[str]) -> dict[str, Any]:
        """The values, without optional tasks that are not among the `known` ones."""
        left_out = set(self.optional) - set(known)
        tasks = [task for task in self.values.get("tasks", ()) if TaskSpec.model_validate(task).name not in left_out]
        return {**self.values, "tasks": tasks}


def load_spec(path: Path) -> dict[str, Any]:
    """The plain values of a TOML file. `make_spec` validates them together with the flags."""
    text = read_text(path, error=UsageError, fix="check the path; see docs/specs.md")
    unquoted = re.search(r"^\s*lengths\s*=\s*\[?[^\"'\n#]*\d[km]\b", text, re.MULTILINE | re.IGNORECASE)
    fix = 'a spec is TOML, such as tasks = "niah"; see docs/specs.md'
    if unquoted:
        fix = 'put lengths in quotes: lengths = "1k,2k"'
    return parse_toml(text, str(path), error=UsageError, fix=fix)


def make_spec(values: Mapping[str, Any], *, where: str = "spec") -> Spec:
    """A validated Spec. Unknown keys and wrong types raise one clear error."""
    return validated(Spec, values, where=where)


def validated(cls: type[ModelT], values: Mapping[str, Any], *, where: str) -> ModelT:
    """An instance of `cls`. Raises pydantic's first error in plain words."""
    require_utf8(values, where=where)
    try:
        return cls.model_validate(dict(values), context={"where": where})
    except ValidationError as error:
        raise plain_error(cls, error, where=where) from None


def require_utf8(value: Any, *, where: str) -> None:
    """Refuses text that UTF-8 cannot hold, such as an argument in another encoding: no file could keep it."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"{format_given(value)} is not UTF-8 text", where=where,
                fix="write it in UTF-8; give a file whose name is in another encoding a link with a plain name",
            ) from None  # fmt: skip
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            require_utf8(key, where=where)
            require_utf8(inner, where=f"{where}.{key}")
    elif isinstance(value, (list, tuple)):
        for inner in value:
            require_utf8(inner, where=where)


def plain_error(cls: type[BaseModel], error: ValidationError, *, where: str) -> LeadlineError:
    """The first of pydantic's errors about an instance of `cls`, in plain words."""
    first = error.errors()[0]
    kind, value = first["type"], first.get("input")
    limits = {k: f"{v:,.10g}" if isinstance(v, (int, float)) else v for k, v in first.get("ctx", {}).items()}
    *path, name = (str(p) for p in first["loc"] or ("",))
    key, model = ".".join([*path, name]), _model_at(cls, path)
    if kind == "extra_forbidden":
        elsewhere: Mapping[str, str] = getattr(model, "options_elsewhere", {})
        if name in elsewhere:
            return OptionElsewhere(name, elsewhere[name], where=where)
        return UnknownName("key", name, model.model_fields, where=".".join([where, *path]))
    if kind == "missing":
        return UsageError(f"{key!r} is missing", where=where, fix=f"add {key} = ...")
    if kind == "literal_error" and isinstance(value, str):
        return UnknownName(key, value, re.findall(r"'([^']*)'", limits["expected"]), where=where)
    expected = _EXPECTED.get(kind, "").format(**limits) or first["msg"].removeprefix("Value error, ")
    shown = f", got {format_given(value)}" if isinstance(value, (str, int, float, bool)) else ""
    field = model.model_fields.get(name)
    fix = f"{key}: {field.description}" if field and field.description else ""
    return UsageError(f"{key}: {expected}{shown}" if key else expected, where=where, fix=fix)


_EXPECTED = {
    **dict.fromkeys(("tuple_type", "list_type"), "expected a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "expected a table of keys and values"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "expected a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "expected a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "expected true or false"),
    "string_type": "expected text",
    "finite_number": "expected a finite number",
    "too_short": "expected at least {min_length} value",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
}
"""Pydantic's error types in plain words."""


def _model_at(cls: type[BaseModel], path: Sequence[str]) -> type[BaseModel]:
    """The model nested at `path`."""
    for name in path:
        field = cls.model_fields.get(name)
        inner = field.annotation if field else None
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            cls = inner
    return cls


# --- Lists of models, in a spec or in a file:
# models = ["hf:org/model", {name = "yarn 4", model = "hf:org/model?rope=yarn:4"}]

_FIX = 'write a .toml or .json file with models = ["hf:FOLDER", "sim:cliff"]; see docs/specs.md'


class NamedModel(msgspec.Struct, frozen=True):
    """A model of a list, and its name in tables."""

    name: str
    model: str


def read_models(path: Path) -> list[NamedModel]:
    """The list `models` of a TOML or JSON file; JSON may also be a plain list."""
    text = read_text(path, error=UsageError, fix=_FIX)
    parse = parse_toml if path.suffix == ".toml" else parse_json
    loaded = parse(text, str(path), error=UsageError, fix=_FIX)
    if isinstance(loaded, dict) and "models" in loaded and len(loaded) > 1:
        others = ", ".join(sorted(loaded.keys() - {"models"}))
        raise UsageError(
            f"a list of models must contain nothing else, but this file also has {others}",
            where=str(path),
            fix="remove them, or run the file as a spec: leadline run FILE.toml",
        )
    return parse_models(loaded.get("models") if isinstance(loaded, dict) else loaded, where=str(path))


def parse_models(items: Any, *, where: str) -> list[NamedModel]:
    if not isinstance(items, list) or not items:
        raise UsageError("the list of models is empty", where=where, fix='write models = ["hf:FOLDER", "sim:cliff"]')
    models = [_named_model(item, where) for item in items]
    names = [model.name for model in models]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two models are called {twice!r}", where=where, fix="give one of them another name")
    return models


def _named_model(item: Any, where: str) -> NamedModel:
    if isinstance(item, str):
        return NamedModel(item, item)
    if isinstance(item, Mapping) and isinstance(item.get("model"), str) and set(item) <= {"name", "model"}:
        return NamedModel(str(item.get("name", item["model"])), item["model"])
    raise UsageError(f"{item!r} is not a model", where=where, fix='write "hf:FOLDER" or {name = "...", model = "..."}')
