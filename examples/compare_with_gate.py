"""Two checkpoints on the same prompts, and a gate that fails the build on a loss. Exit status 1: lost, or undecided."""

from __future__ import annotations

import sys
from pathlib import Path

import leadline

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/example-gate")
models = {"base": "sim:cliff?window=5k", "candidate": "sim:cliff?window=3k"}


def measured(name: str) -> leadline.Run:
    spec = leadline.Spec(model=models[name], tasks="niah", lengths="2k,4k", depths=5, samples=8)
    return leadline.measure(spec, folder / name)


base, candidate = measured("base"), measured("candidate")
comparison = candidate.compare(base, gate="overall >= -3; length:* >= -10")
print(comparison.to_pandas()[["scope", "name", "base", "candidate", "change", "verdict"]])
for warning in comparison.warnings:
    print("note:", warning)
if comparison.gate:
    print("gate:", comparison.gate.verdict)
sys.exit(0 if comparison.passed else 1)
