"""Finds plugins by name: entry points, for built-in and third-party plugins alike, and `file.py:Name`."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl

from leadline.core.answers import Completion
from leadline.core.contracts import ModelProvider, Options, Scorer, Source, Task, Tracker
from leadline.core.errors import UnknownName, UntrustedFile, UsageError
from leadline.core.installed import entry_points_of
from leadline.core.records import Score
from leadline.core.seeds import digest_bytes
from leadline.core.spec import TaskSpec, validated
from leadline.core.types import Question

OptionsT = TypeVar("OptionsT", bound=Options)
PluginKind = Literal[
    "tasks", "models", "scorers", "sources", "suites", "trackers", "report_sections", "pages", "model_checks",
    "after_run", "prompt_formats",
]  # fmt: skip


@cache
def _points(kind: PluginKind) -> Mapping[str, EntryPoint]:
    return {p.name: p for p in entry_points_of(f"leadline.{kind}")}


def names(kind: PluginKind) -> list[str]:
    return sorted(_points(kind))


def find(kind: PluginKind, name: str) -> Any:
    """The object an entry point names, or `NAME` of `FILE.py:NAME`."""
    file = plugin_file(name)
    if file is not None:
        return _from_file(file, name.rpartition(":")[2])
    point = _points(kind).get(name)
    if point is None:
        raise UnknownName(kind.removesuffix("s").replace("_", " "), name, names(kind))
    return point.load()


def every(kind: PluginKind) -> dict[str, Any]:
    """All plugins of a kind, by name and in the order of their names."""
    return {name: find(kind, name) for name in names(kind)}


def plugin_file(name: str) -> Path | None:
    """The file of a plugin given as `FILE.py:NAME`, possibly with `?key=value` after it."""
    path, colon, _ = name.partition("?")[0].rpartition(":")
    return Path(path) if colon and path.endswith(".py") else None


def plugin_digest(name: str) -> str:
    """The digest of a plugin's code given as `FILE.py:NAME`, which has no version; empty for all others."""
    file = plugin_file(name)
    return digest_bytes(file.read_bytes()) if file is not None else ""


@dataclass(frozen=True, slots=True)
class _FolderTrust:
    """Which files may be imported while the names of a run folder are resolved."""

    folder: str
    allowed: frozenset[str]


_folder_trust: ContextVar[_FolderTrust | None] = ContextVar("folder_trust", default=None)


@contextmanager
def names_of_folder(folder: Path | str, named: Iterable[str] = (), *, trust: bool = False) -> Iterator[None]:
    """Inside, names come from a run folder, which may come from a stranger: a file is imported only if the user gave it
    too (`named`), or trusts the folder."""
    allowed = frozenset(os.path.realpath(file) for file in map(plugin_file, named) if file is not None)
    previous = _folder_trust.set(None if trust else _FolderTrust(str(folder), allowed))
    try:
        yield
    finally:
        _folder_trust.reset(previous)


def _refuse_untrusted(path: Path) -> None:
    trust = _folder_trust.get()
    if trust is not None and os.path.realpath(path) not in trust.allowed:
        raise UntrustedFile(path, trust.folder)


def refuse_foreign_command(command: str) -> None:
    """Raises while names are resolved from a run folder that the user does not trust."""
    trust = _folder_trust.get()
    if trust is not None:
        raise UntrustedFile(Path(command), trust.folder)


def task(spec: TaskSpec) -> Task:
    """The task a spec names, with its options. Scorers given as an option must exist."""
    instance = _configured(find("tasks", spec.name), spec.options, Task, where=f"task {spec.name}")
    for name in instance.scorers:
        scorer(name)
    return instance


@dataclass(frozen=True, slots=True)
class FunctionScorer:
    """A plain function of question and completion as a scorer. It returns a Score or a number."""

    name: str
    function: Callable[[Question, Completion], Score | float]

    def score(self, question: Question, completion: Completion) -> Score:
        value = self.function(question, completion)
        return value if isinstance(value, Score) else Score(float(value))


def scorer(name: str) -> Scorer:
    """A scorer by name or as `file.py:Name`: an object with `score`, a class of such objects, or a function."""
    plugin = find("scorers", name)
    try:
        instance: Any = plugin() if isinstance(plugin, type) else plugin
    except TypeError as error:
        raise UsageError(f"cannot be made without arguments: {error}", where=f"scorer {name}") from None
    if callable(getattr(instance, "score", None)):
        scoring: Scorer = instance
        return scoring
    if callable(instance):
        return FunctionScorer(scorer_title(name), instance)
    raise UsageError(
        f"{instance!r} is not a scorer",
        where=f"scorer {name}",
        fix="give a class with score(question, completion), or a function",
    )


def scorer_title(name: str) -> str:
    """The name on records: of `file.py:Name` the last part."""
    return name.rpartition(":")[2]


def source(name: str) -> Source:
    """A haystack by name or file. Paths of texts and mixtures are read in leadline.text.sources."""
    plugin = find("sources", name)
    haystack: Source = plugin() if callable(plugin) else plugin
    return haystack


@dataclass(frozen=True, slots=True)
class ModelName:
    """`PROVIDER:NAME?key=value&key=value` or `FILE.py:NAME?key=value`, parsed. A file is its own provider."""

    provider: str
    name: str
    options: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> ModelName:
        head, _, query = text.partition("?")
        provider, colon, name = head.partition(":")
        if not colon:
            raise UsageError(
                f"{text!r} has no provider",
                where="model",
                fix="write PROVIDER:NAME, as in sim:perfect, hf:FOLDER, openai:NAME?base_url=http://127.0.0.1:8000/v1 "
                "or ./mine.py:generate",
            )
        if plugin_file(head) is not None:
            provider, name = head, head.rpartition(":")[2]
        return cls(provider, name, dict(parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)))


SERVERS = frozenset({"vllm", "sglang", "llamacpp", "llama.cpp", "ollama", "lmstudio", "tgi", "litellm"})
"""Kinds of servers that other tools name as providers."""


def provider(name: ModelName) -> ModelProvider:
    """The provider with its options, not yet opened. A function of a file is wrapped in the provider `function`."""
    if name.provider in SERVERS and name.provider not in names("models"):
        fix = f"write openai:{name.name}?base_url=http://127.0.0.1:8000/v1 with the address of the server"
        raise UsageError(f"{name.provider} is a kind of server, not a provider", where="model", fix=fix)
    plugin = find("models", name.provider)
    options: Mapping[str, Any] = name.options
    is_provider = isinstance(plugin, ModelProvider) or (isinstance(plugin, type) and issubclass(plugin, ModelProvider))
    if plugin_file(name.provider) is not None and not is_provider and callable(plugin):
        plugin, options = find("models", "function"), {**options, "function": name.provider}
    return _configured(plugin, options, ModelProvider, where=f"model {name.provider}:{name.name}")


def tracker(text: str) -> tuple[Tracker, str]:
    """The tracker of `TRACKER:DESTINATION?key=value`, with its options, and the destination."""
    if ":" not in text.partition("?")[0]:
        raise UsageError(
            f"{text!r} is not TRACKER:DESTINATION",
            where="tracker",
            fix=f"for example mlflow:http://127.0.0.1:5000 or tensorboard:logs; known: {', '.join(names('trackers'))}",
        )
    name = ModelName.parse(text)
    plugin = find("trackers", name.provider)
    return _configured(plugin, name.options, Tracker, where=f"tracker {name.provider}:{name.name}"), name.name


def _configured(plugin: Any, options: Mapping[str, Any], kind: type[OptionsT], *, where: str) -> OptionsT:
    if isinstance(plugin, kind):  # a preset: an instance with other defaults
        cls, values = type(plugin), {**plugin.model_dump(exclude_unset=True), **options}
    elif isinstance(plugin, type) and issubclass(plugin, kind):
        cls, values = plugin, dict(options)
    else:
        raise UsageError(f"{plugin!r} is not a {kind.__name__}", where=where, fix=f"name a subclass of {kind.__name__}")
    return validated(cls, values, where=where)


def _from_file(path: Path, attribute: str) -> Any:
    _refuse_untrusted(path)
    if not path.is_file():
        raise UsageError("no such file", where=str(path), fix="write ./FILE.py:NAME")
    module_name = f"leadline_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None  # a .py path always has a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:  # compiled here: Python's own cache misses a change within a second that keeps the file's size
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
    except Exception as error:
        raise UsageError(
            f"{type(error).__name__}: {error}", where=str(path), fix="fix the error in this file: it must be importable"
        ) from error
    if not hasattr(module, attribute):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise UnknownName("name", attribute, public, where=str(path))
    return getattr(module, attribute)
