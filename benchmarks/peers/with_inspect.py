"""The same prompts through inspect_ai: a dataset in memory, generate, substring score.

Called by ../server_requests.py as  with_inspect.py URL PROMPTS CHARACTERS WORKERS FOLDER.
"""

# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import sys

from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate


def main(url: str, prompts: int, characters: int, workers: int, folder: str) -> None:
    filler = "word " * (characters // 5)
    samples = [Sample(input=f"{number} {filler} 4711321", target="4711321") for number in range(prompts)]
    task = Task(dataset=MemoryDataset(samples), solver=generate(), scorer=includes())
    model = get_model("openai-api/fake/fake", base_url=url, api_key="none", config=GenerateConfig(max_tokens=8))
    (log,) = eval(task, model=model, max_connections=workers, max_samples=workers, display="none", log_dir=folder)
    if log.status != "success":
        sys.exit(f"inspect: {log.status} {log.error}")


if __name__ == "__main__":
    url, prompts, characters, workers, folder = sys.argv[1:]
    main(url, int(prompts), int(characters), int(workers), folder)
