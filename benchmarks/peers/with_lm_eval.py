"""The same prompts through lm-evaluation-harness: a task of its own kind over a local file, chat, exact match.

Called by ../server_requests.py as  with_lm_eval.py URL PROMPTS CHARACTERS WORKERS FOLDER.
"""

# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import json
import sys
from pathlib import Path

TASK = """
task: leadline_bench
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{prompt}}}}"
doc_to_target: "{{{{target}}}}"
generation_kwargs: {{until: [], max_gen_toks: 8, do_sample: false}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""


def main(url: str, prompts: int, characters: int, workers: int, folder: Path) -> None:
    import lm_eval
    from lm_eval.tasks import TaskManager

    filler = "word " * (characters // 5)
    with (folder / "data.jsonl").open("w") as out:
        for number in range(prompts):
            out.write(json.dumps({"prompt": f"{number} {filler} 4711321", "target": "4711321"}) + "\n")
    (folder / "leadline_bench.yaml").write_text(TASK.format(data=folder / "data.jsonl"))
    settings = {
        "model": "fake", "base_url": f"{url}/chat/completions", "num_concurrent": workers, "max_retries": 3,
        "tokenized_requests": False, "max_length": 10_000_000,
    }  # fmt: skip
    lm_eval.simple_evaluate(
        model="local-chat-completions",
        model_args=settings,
        tasks=["leadline_bench"],
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        apply_chat_template=True,
        bootstrap_iters=0,
    )


if __name__ == "__main__":
    url, prompts, characters, workers, folder = sys.argv[1:]
    main(url, int(prompts), int(characters), int(workers), Path(folder))
