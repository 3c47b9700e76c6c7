"""What lm-evaluation-harness calls for the tasks of a folder written by `leadline build --as lm-eval`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from lm_eval.api.task import ConfigurableTask

from leadline.core.errors import SourceError
from leadline.core.files import read_text
from leadline.features.harness_tasks.grading import completion, grade_logged
from leadline.store.logged_questions import logged_question


def read_documents(path: Path) -> dict[str, Any]:
    """The prompts of one task, as the split `test`."""
    text = read_text(path, error=SourceError, fix="keep the .jsonl files beside the .yaml files, or build them again")
    return {"test": Dataset.from_list([json.loads(line) for line in text.splitlines() if line])}


def score_answer(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """The scores of a run for the answer to one prompt, by scorer."""
    where = str(doc.get("key", "a document"))
    question = logged_question(doc, where)
    if question is None:
        raise SourceError("this document has no question of Leadline", where=where, fix="build the folder again")
    fields = {**doc, "answer_prefix": doc["gen_prefix"]}
    grade = grade_logged(question, completion(results[0], fields), fields, str(doc["input"]))
    return {name: score.value for name, score in grade.scores.items()}


class LeadlineTask(ConfigurableTask):  # type: ignore[misc]
    """A task whose questions each have an allowance of their own, which is part of the prompt's length."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        super().__init__(config={key: value for key, value in (config or {}).items() if key != "class"})

    def construct_requests(self, doc: Any, ctx: Any, **kwargs: Any) -> Any:
        request = super().construct_requests(doc, ctx, **kwargs)
        context, generation = request.arguments
        request.arguments = (context, {**generation, "max_gen_toks": doc["answer_tokens"]})
        return request
