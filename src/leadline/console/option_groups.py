"""The options of `leadline run` and `leadline plan` in groups, for their help."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

OPTION_GROUPS = {
    "What": (
        "task", "set_", "templates", "no_context", "prompts", "lengths", "depths", "samples", "reading", "seed",
    ),
    "Model": ("model", "serve", "thinking", "allowance", "ray"),
    "Server": ("workers", "attempts", "timeout", "rate_limit_wait", "anyway", "checks"),
    "Stopping": ("until", "time", "base", "gate", "detect", "like"),
    "Cost": (
        "prices", "tier", "budget", "tokens_per_second", "price_in", "price_out", "price_cached", "price_write",
        "judge_price_in", "judge_price_out",
    ),
    "Lists of models": ("models", "include_model", "shard", "submission"),
    "Output": ("out", "json_", "figure", "page", "keep_prompts", "judges", "log_to", "step", "run_name"),
}  # fmt: skip


class GroupedCommand(TyperCommand):
    """A command whose help has its options under the headings of `OPTION_GROUPS`; the rest under `Options`."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        left = {p.name: record for p in self.get_params(ctx) if (record := p.get_help_record(ctx)) is not None}
        arguments = [p.name for p in self.params if p.param_type_name == "argument" and p.name in left]
        for heading, names in {"Arguments": arguments, **OPTION_GROUPS, "Options": list(left)}.items():
            if records := [left.pop(name) for name in names if name in left]:
                with formatter.section(heading):
                    formatter.write_dl(records)
