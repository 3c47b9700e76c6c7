"""A folder for lm-evaluation-harness: what it reads, with the prompts of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import leadline
from leadline.core.seeds import digest_prompt
from leadline.store.runs import read_records
from support.commands import Say


def built(say: Say, folder: Path, *words: str) -> dict[str, list[dict[str, Any]]]:
    made = say("build", "niah,vt", "--as", "lm-eval", "--model", "sim:perfect", "--lengths", "1k,2k", "--depths", "2",
               "--samples", "2", "-o", str(folder), *words)  # fmt: skip
    assert made.code == 0, made.err
    return {p.stem: [json.loads(line) for line in p.read_text().splitlines()] for p in sorted(folder.glob("*.jsonl"))}


def test_each_task_and_length_is_a_task_with_the_prompts_of_a_run(say: Say, tmp_path: Path) -> None:
    tasks = built(say, tmp_path / "tasks")
    assert list(tasks) == ["leadline_niah_1k", "leadline_niah_2k", "leadline_vt_1k", "leadline_vt_2k"]
    spec = leadline.Spec(model="sim:perfect", tasks=("niah", "vt"), lengths="1k,2k", depths=2, samples=2)
    run = leadline.measure(spec, tmp_path / "run")
    digests = {record.cell.key: record.prompt_digest for record in read_records(run.folder)}
    lines = {line["key"]: line for task in tasks.values() for line in task}
    assert {key: line["prompt_digest"] for key, line in lines.items()} == digests
    for line in lines.values():  # a completion: what is sent is the text and the begun answer
        assert digest_prompt(line["input"] + line["gen_prefix"]) == line["prompt_digest"]
        assert line["tokens"] == line["max_length"]


def test_the_yaml_names_files_that_are_there_and_the_scorers_of_the_task(say: Say, tmp_path: Path) -> None:
    tasks = built(say, tmp_path / "tasks")
    assert (tmp_path / "tasks" / "about.json").is_file()
    assert "lm_eval_task import" in (tmp_path / "tasks" / "utils.py").read_text()
    for name, lines in tasks.items():
        yaml = (tmp_path / "tasks" / f"{name}.yaml").read_text()
        fields = dict(line.split(": ", 1) for line in yaml.splitlines() if ": " in line)
        assert (fields["task"], fields["tag"]) == (name, "leadline")
        assert json.loads(fields["dataset_kwargs"]) == {"data": f"{name}.jsonl"}
        scorers = json.loads(lines[0]["leadline_question"])["scorers"]
        assert [metric["metric"] for metric in json.loads(fields["metric_list"])] == scorers
        generation = json.loads(fields["generation_kwargs"])
        assert generation["until"] == [], "lm-eval would end answers at an empty line"
        assert generation["max_gen_toks"] == max(line["answer_tokens"] for line in lines)


def test_a_conversation_is_refused(say: Say, tmp_path: Path) -> None:
    made = say("build", "mrcr", "--as", "lm-eval", "--model", "sim:perfect", "--lengths", "4k", "--samples", "1",
               "-o", str(tmp_path / "tasks"))  # fmt: skip
    assert made.code != 0
    assert "is a conversation" in made.err
    assert "leadline run" in made.err
    assert not list((tmp_path / "tasks").glob("*.jsonl")) if (tmp_path / "tasks").exists() else True


def test_an_unknown_format_is_named_with_those_there_are(say: Say, tmp_path: Path) -> None:
    made = say("build", "niah", "--as", "inspect-ai", "--tokenizer", "bytes", "-o", str(tmp_path / "x"))
    assert made.code == 64
    assert "unknown prompt format 'inspect-ai'" in made.err
    assert "known: jsonl, lm-eval, ruler" in made.err
