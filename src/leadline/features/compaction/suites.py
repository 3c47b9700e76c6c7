"""`agents` and `agents-quick`: what agents do with long contexts. Tasks of other features are left out where these are
not installed."""

from __future__ import annotations

from typing import Any

from leadline.core.spec import Suite

COMPACTORS = ("none", "compact:tail", "compact:drop-tools")


def _tasks() -> list[dict[str, Any]]:
    compacted = [
        {"name": "compaction", "label": f"compaction[compactor={name}]", "options": {"compactor": name}}
        for name in COMPACTORS
    ]
    return [{"name": "tool_calls"}, {"name": "agent_log"}, *compacted]


AGENTS = Suite(
    name="agents",
    summary="tool calls, first failures in a log, and facts after compaction: 8k to 128k",
    values={"tasks": _tasks(), "lengths": "8k,32k,128k", "depths": 5, "samples": 12},
    optional=("tool_calls", "agent_log"),
)
AGENTS_QUICK = Suite(
    name="agents-quick",
    summary="the same at 4k and 16k with 6 samples",
    values={"tasks": _tasks(), "lengths": "4k,16k", "depths": 3, "samples": 6},
    optional=("tool_calls", "agent_log"),
)
