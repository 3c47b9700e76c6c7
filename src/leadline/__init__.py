"""Leadline: how much of a context window can a language model really use?

    import leadline

    spec = leadline.Spec(model="sim:perfect", tasks="niah", lengths="1k,4k", depths=5)
    summary = leadline.measure(spec)
    for record in leadline.read_records(summary.folder):
        print(record.cell.length, record.cell.depth, record.score)

Names are loaded when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leadline.core.errors import LeadlineError
    from leadline.core.spec import Spec
    from leadline.core.types import Record
    from leadline.run.measure import measure, plan
    from leadline.run.plan import Plan
    from leadline.run.summary import Summary
    from leadline.store.runs import read_records

    __version__: str

__all__ = ["LeadlineError", "Plan", "Record", "Spec", "Summary", "measure", "plan", "read_records"]

_HOMES = {
    "LeadlineError": "leadline.core.errors",
    "Plan": "leadline.run.plan",
    "Record": "leadline.core.types",
    "Spec": "leadline.core.spec",
    "Summary": "leadline.run.summary",
    "measure": "leadline.run.measure",
    "plan": "leadline.run.measure",
    "read_records": "leadline.store.runs",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("leadline")
    if name not in _HOMES:
        raise AttributeError(f"module 'leadline' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
