"""Measure a model, print the verdict, and save a heatmap. Offline: the model is simulated."""

from __future__ import annotations

import sys
from pathlib import Path

import leadline

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/example-heatmap")

spec = leadline.Spec(
    model="sim:cliff?window=3k",  # or hf:FOLDER, or openai:NAME?base_url=http://127.0.0.1:8000/v1
    tasks="niah",
    lengths="1k,2k,4k",
    depths=5,
    samples=4,
)
print(f"{leadline.plan(spec).cost.requests} requests")

run = leadline.measure(spec, folder)  # the same call again only asks what is missing
print(run.verdict.headline)
print(f"{run.totals.done} answered, {run.totals.failed} failed, {run.totals.prompt_tokens:,} prompt tokens")

effective = run.effective_length(0.5)
if effective is not None:
    print(f"half of the answers are right up to {effective.length:,.0f} tokens")
print(run.to_pandas("cells").groupby("length")["mean"].mean())
print(run.heatmap().save(folder / "heatmap.png"))
