"""Leadline: how much of a context window can a language model really use?

    import leadline

    spec = leadline.Spec(model="sim:cliff?window=8k", tasks="niah", lengths="1k,4k,16k", depths=5)
    run = leadline.measure(spec)
    print(run.verdict.headline)
    run.heatmap().save("heatmap.png")

Every name is loaded when it is first used (PEP 562), so importing this package is quick. Plugins (tasks, scorers,
models, haystacks) need no other import; docs/python-api.md describes each name.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leadline.api import Run, RunComparison, RunFigure, load_run, measure
    from leadline.core.answers import Answer, Completion, Failure, Sent
    from leadline.core.contracts import Model, ModelCard, ModelProvider, Scorer, Source, Task, Tokenizer
    from leadline.core.drafts import Draft, DraftQuestion, Fact
    from leadline.core.errors import LeadlineError
    from leadline.core.records import Record, Score
    from leadline.core.seeds import rng
    from leadline.core.spec import Spec
    from leadline.core.types import Cell, Document, Frame, Probe, Question
    from leadline.run.measure import plan
    from leadline.run.plan import Plan
    from leadline.tasks.facts import FactTask
    from leadline.text.chat import completion_frame
    from leadline.text.sources import TextSource, open_source
    from leadline.text.tokenizers import open_tokenizer

    __version__: str

_MODULES = {
    "leadline.api": ("Run", "RunComparison", "RunFigure", "load_run", "measure"),
    "leadline.core.answers": ("Answer", "Completion", "Failure", "Sent"),
    "leadline.core.contracts": ("Model", "ModelCard", "ModelProvider", "Scorer", "Source", "Task", "Tokenizer"),
    "leadline.core.drafts": ("Draft", "DraftQuestion", "Fact"),
    "leadline.core.errors": ("LeadlineError",),
    "leadline.core.seeds": ("rng",),
    "leadline.core.records": ("Record", "Score"),
    "leadline.core.spec": ("Spec",),
    "leadline.core.types": ("Cell", "Document", "Frame", "Probe", "Question"),
    "leadline.run.measure": ("plan",),
    "leadline.run.plan": ("Plan",),
    "leadline.tasks.facts": ("FactTask",),
    "leadline.text.chat": ("completion_frame",),
    "leadline.text.sources": ("TextSource", "open_source"),
    "leadline.text.tokenizers": ("open_tokenizer",),
}  # fmt: skip
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Answer", "Cell", "Completion", "Document", "Draft", "DraftQuestion", "Fact", "FactTask", "Failure", "Frame",
    "LeadlineError", "Model", "ModelCard", "ModelProvider", "Plan", "Probe", "Question", "Record", "Run",
    "RunComparison", "RunFigure", "Score", "Scorer", "Sent", "Source", "Spec", "Task", "TextSource", "Tokenizer",
    "completion_frame", "load_run", "measure", "open_source", "open_tokenizer", "plan", "rng",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("leadline")
    if name not in _HOMES:
        raise AttributeError(f"module 'leadline' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
