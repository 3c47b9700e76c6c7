"""The options of `leadline run` and `leadline plan` in groups, for their help."""

from __future__ import annotations

import textwrap
from typing import Any

from typer.core import TyperCommand

from leadline.core.errors import UsageError

OPTION_GROUPS = {
    "What": (
        "task", "set_", "templates", "no_context", "prompts", "lengths", "depths", "samples", "reading", "seed",
    ),
    "Model": ("model", "serve", "thinking", "allowance", "ray"),
    "Server": ("workers", "attempts", "timeout", "rate_limit_wait", "allow_tokenizer_mismatch", "checks", "repeats"),
    "Stopping": ("until", "time", "base", "gate", "detect", "noise_from"),
    "Cost": (
        "batch", "prices", "tier", "budget", "tokens_per_second", "price_in", "price_out", "price_cached",
        "price_write", "judge_price_in", "judge_price_out",
    ),
    "Lists of models": ("models", "include_model", "shard", "submission"),
    "Output": ("out", "json_", "figure", "page", "keep_prompts", "judges", "log_to", "step", "run_name"),
}  # fmt: skip

RARE = frozenset(
    {
        "templates", "prompts", "seed", "ray", "attempts", "timeout", "rate_limit_wait", "allow_tokenizer_mismatch",
        "base", "gate", "noise_from", "tier", "tokens_per_second", "price_in", "price_out", "price_cached",
        "price_write", "judge_price_in", "judge_price_out", "include_model", "shard", "submission", "keep_prompts",
        "step", "run_name", "repeats",
    }
)  # fmt: skip
"""Options that few runs need: the help names them, and docs/specs.md explains them."""


class GroupedCommand(TyperCommand):
    """A command whose help has its options under the headings of `OPTION_GROUPS`; the rest under `Options`. Rare ones
    are named at the end."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        models = [word for word in args if word == "--model" or word.startswith("--model=")]
        if len(models) > 1:
            fix = "write them into a file: --models FILE.toml with models = [...]; or run the command once for each"
            raise UsageError("--model is given twice, and a run has one model", where=str(ctx.command_path), fix=fix)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        parameters = self.get_params(ctx)
        rare = [max(p.opts, key=len) for p in parameters if p.name in RARE]
        shown = [p for p in parameters if p.name not in RARE]
        left = {p.name: record for p in shown if (record := p.get_help_record(ctx)) is not None}
        arguments = [p.name for p in self.params if p.param_type_name == "argument" and p.name in left]
        for heading, names in {"Arguments": arguments, **OPTION_GROUPS, "Options": list(left)}.items():
            if records := [left.pop(name) for name in names if name in left]:
                with formatter.section(heading):
                    formatter.write_dl(records)
        with formatter.section("Rarely needed (docs/specs.md)"):
            for line in textwrap.wrap(" ".join(rare), formatter.width - 2, break_on_hyphens=False):
                formatter.write(f"  {line}\n")
