"""Prompts as a folder for lm-evaluation-harness: `leadline build SUITE --as lm-eval`, then `--include_path FOLDER`.

It has no axis of length, so every task at every length is a task of its own, `leadline_niah_8k`, and all have the tag
`leadline`. A task is a YAML file and its prompts; `utils.py` beside them takes the grading from the installed Leadline.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from leadline.core.contracts import Task, Tokenizer
from leadline.core.errors import UsageError
from leadline.core.format import format_length
from leadline.core.types import Cell, Document, Probe
from leadline.features.harness_tasks.grading import sample_fields
from leadline.run.export_prompts import user_prompt
from leadline.store.runs import slug

TAG = "leadline"
UTILS = '''"""Written by `leadline build --as lm-eval`. lm-eval's Python needs leadline: pip install leadline."""

from pathlib import Path

from leadline.features.harness_tasks.lm_eval_task import LeadlineTask, read_documents, score_answer

__all__ = ["LeadlineTask", "documents", "score_answer"]


def documents(data, **_):
    return read_documents(Path(__file__).with_name(data))
'''


def lm_eval_name(cell: Cell) -> str:
    """`leadline_niah_8k`: lm-eval has tasks of its own called niah."""
    return f"{TAG}_{slug(cell.task)}_{format_length(cell.length).replace(',', '')}"


class LmEvalFolder:
    """A YAML file and a .jsonl for each task and length, and utils.py."""

    is_folder = True

    def notes(self, tasks: Mapping[str, Task]) -> Sequence[str]:
        return ()

    def path(self, output: Path, cell: Cell) -> Path:
        return output / f"{lm_eval_name(cell)}.jsonl"

    def line(self, document: Document, probe: Probe, task: Task, tokenizer: Tokenizer, index: int) -> bytes:
        if document.conversation or document.tools:
            raise UsageError(
                f"{probe.cell.task} is a conversation, and a task of lm-eval has one question",
                where="--as lm-eval",
                fix="leave this task out, or measure it with `leadline run`",
            )
        fields = sample_fields(document, probe)
        prefix = fields.pop("answer_prefix")
        # The names that lm-eval's own tasks of RULER have, so that readers of its logs know them.
        values = {
            "index": index,
            "key": probe.cell.key,
            "input": user_prompt(document, probe),
            "outputs": list(probe.question.targets),
            "gen_prefix": prefix,
            "max_length": probe.cell.length,
            "tokens": probe.prompt_tokens + probe.question.allowance,
            **fields,
        }
        return msgspec.json.encode(values) + b"\n"

    def beside(self, lines: Mapping[Path, Sequence[Probe]]) -> Mapping[str, str]:
        tasks = {f"{path.stem}.yaml": _yaml(path.stem, probes) for path, probes in lines.items()}
        return {**tasks, "utils.py": UTILS}


def _yaml(name: str, probes: Sequence[Probe]) -> str:
    """A value of JSON is one of YAML too."""
    scorers = list(dict.fromkeys(scorer for probe in probes for scorer in probe.question.scorers))
    metrics = [{"metric": scorer, "aggregation": "mean", "higher_is_better": True} for scorer in scorers]
    generation = {
        "do_sample": False, "temperature": 0.0, "until": [],
        "max_gen_toks": max(probe.question.allowance for probe in probes),
    }  # fmt: skip
    return (
        f"task: {name}\n"
        f"tag: {TAG}\n"
        "class: !function utils.LeadlineTask\n"
        "custom_dataset: !function utils.documents\n"
        f"dataset_kwargs: {json.dumps({'data': f'{name}.jsonl'})}\n"
        "test_split: test\n"
        "output_type: generate_until\n"
        "doc_to_text: input\n"
        "doc_to_target: outputs\n"
        + ("gen_prefix: gen_prefix\n" if any(p.question.answer_prefix for p in probes) else "")
        + 'target_delimiter: ""\n'
        "process_results: !function utils.score_answer\n"
        f"metric_list: {json.dumps(metrics)}\n"
        f"generation_kwargs: {json.dumps(generation)}\n"
        "metadata:\n"
        "  version: 1\n"
    )


LM_EVAL = LmEvalFolder()
