"""RULER's own files and tables: graded as it grades them, asked as they stand, written as it writes them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leadline.core import registry
from leadline.core.errors import SourceError, UsageError
from leadline.core.spec import TaskSpec
from leadline.results.score_files import mean_of_tasks, read_table, summarise
from leadline.store.ruler_files import family_of_task, find_predictions, new_tokens, split_question
from leadline.store.runs import read_records
from leadline.text.tokenizers import WhitespaceTokenizer
from support.commands import Say

TABLE = Path(__file__).parents[3] / "shared" / "facts" / "ruler_table.csv"
"""All rows of RULER's published table, where the machine has them."""

# Public rows of RULER's leaderboard. The last two disagree with themselves.
ROWS = """model,claimed,effective,4K,8K,16K,32K,64K,128K,avg,wavg_inc,wavg_dec
Gemini-1.5-pro,1M,>128K,96.7,95.8,96.0,95.9,95.9,94.4,95.8,95.5,96.1
GPT-4-1106-preview,128K,64K,96.6,96.3,95.2,93.2,87.0,81.2,91.6,89.0,94.1
Llama3.1 (70B),128K,64K,96.5,95.8,95.4,94.8,88.4,66.6,89.6,85.5,93.7
LWM (7B),1M,<4K,82.3,78.4,73.7,69.1,68.1,65.0,72.8,69.9,75.7
DBRX (36B/132B),32K,8K,95.1,93.8,83.6,63.1,2.4,0.0,56.3,38.0,74.7
EXAONE-4.0-1.2B* (1.2B),64K,32K,87.0,86.7,88.8,81.1,77.4,-,84.2,TBD,TBD
Qwen2.5-14B-Instruct-1M* (14B),1M,>128K,97.5,97.1,94.6,94.9,94.9,92.2,95.7,TBD,TBD
"""


# --- tables ---


def test_a_table_is_summarized_as_published_and_rows_that_disagree_are_named(say: Say, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(ROWS)
    found = {row["name"]: row for row in json.loads(say("summarize", "table.csv", "--json").out)}
    assert [name for name, row in found.items() if not row["consistent"]] == [
        "EXAONE-4.0-1.2B* (1.2B)",
        "Qwen2.5-14B-Instruct-1M* (14B)",
    ]
    assert found["EXAONE-4.0-1.2B* (1.2B)"]["disagreements"] == [
        "effective length is printed as 32K; the scores give 16k"
    ]
    assert "95.7; the scores give 95.2" in found["Qwen2.5-14B-Instruct-1M* (14B)"]["disagreements"][0]
    assert found["DBRX (36B/132B)"]["effective_own"] == "16k"  # 85 % of 95.1 is 80.8
    assert (found["LWM (7B)"]["effective"], found["LWM (7B)"]["effective_tokens"]) == ("below 4k", None)
    shown = say("summarize", "table.csv")
    assert shown.code == 0
    assert "wAvg inc" in shown.out
    assert "Qwen2.5-14B-Instruct-1M" in shown.err


def test_models_are_ranked_by_both_weighted_averages_and_tasks_are_not(say: Say, tmp_path: Path) -> None:
    """RULER's table ranks by wAvg (inc) and (dec); the order of these five is the published one in both."""
    (tmp_path / "table.csv").write_text("\n".join(ROWS.splitlines()[:6]) + "\n")
    rows = json.loads(say("summarize", "table.csv", "--json").out)
    assert [(row["rank_inc"], row["rank_dec"]) for row in rows] == [(n, n) for n in range(1, 6)]
    (tmp_path / "twins.csv").write_text("model,4k,8k\na,90,80\nb,80,90\nc,90,80\n")
    rows = json.loads(say("summarize", "twins.csv", "--json").out)
    assert [(row["rank_inc"], row["rank_dec"]) for row in rows] == [(2, 1), (1, 3), (2, 1)]
    assert "rank inc" in say("summarize", "twins.csv").out
    (tmp_path / "tasks.csv").write_text("task,4k,8k\nvt,90,80\ncwe,80,90\n")
    assert "rank" not in say("summarize", "tasks.csv").out


@pytest.mark.skipif(not TABLE.is_file(), reason="the published table is not on this machine")
def test_every_row_of_the_published_table_is_reproduced_or_named() -> None:
    wrong = {s.row.name for s in map(summarise, read_table(TABLE).rows) if s.disagreements}
    assert wrong == {
        "Qwen2.5-14B-Instruct-1M* (14B)", "Qwen3-14B* (14B)", "Qwen3-32B* (32B)", "Qwen2.5-7B-Instruct-1M* (7B)",
        "Qwen3-8B* (8B)", "Qwen3-4B* (4B)", "EXAONE-4.0-1.2B* (1.2B)",
    }  # fmt: skip
    with TABLE.open() as file:
        assert len(read_table(TABLE).rows) == len(list(csv.DictReader(file)))


def test_tasks_of_one_model_have_a_mean_and_shares_are_read_as_percent(tmp_path: Path) -> None:
    path = tmp_path / "tasks.csv"
    path.write_text("task;4096;8192\nniah_single_1;1.0;0.9\nvt;0.8;0.5\n")
    table = read_table(path)
    assert table.of_tasks
    mean = summarise(mean_of_tasks(table.rows))
    assert mean.row.scores == {4096: pytest.approx(90.0), 8192: pytest.approx(70.0)}
    assert (str(mean.effective), str(mean.effective_own)) == ("4k", "4k")
    assert mean.averages.increasing == pytest.approx((90 + 2 * 70) / 3)


@pytest.mark.parametrize(
    ("text", "error"),
    [("", SourceError), ("model,a\nx,1\n", UsageError), ("model,4k\nx,\n", SourceError),
     ("model,4k\nx,abc\n", UsageError), ("model,4k\nx,101\n", UsageError)],
)  # fmt: skip
def test_a_wrong_table_is_refused_with_the_reason(tmp_path: Path, text: str, error: type[Exception]) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(error):
        read_table(path)


# --- predictions ---


def predictions(folder: Path, task: str, rows: list[tuple[str, list[str]]], name: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name or task}.jsonl").open("w") as file:
        for pred, outputs in rows:
            line = {"index": 3, "pred": pred, "input": "text\nWhich one?", "outputs": outputs, "others": {},
                    "truncation": -1, "length": 4000}  # fmt: skip
            file.write(json.dumps(line) + "\n")


def test_predictions_get_rulers_own_numbers_and_stricter_ones_with_intervals(say: Say, tmp_path: Path) -> None:
    """string_match_all for needles, string_match_part for questions; rounded as its evaluator does; nulls counted."""
    pred = tmp_path / "4096" / "pred"
    predictions(
        pred, "niah_multivalue", [("1111111 and 2222222", ["1111111", "2222222", "3333333"]), ("\x00\n", ["1"])]
    )
    predictions(pred, "qa_1", [("I know nothing", ["no", "Paris"]), ("PARIS.", ["Paris", "Paris"]), ("", ["Rome"])])
    found = {row["task"]: row for row in json.loads(say("score", "4096", "--json").out)["tasks"]}
    needles, questions = found["niah_multivalue"], found["qa_1"]
    assert (needles["metric"], needles["score"], needles["nulls"]) == ("string_match_all", 33.33, "1/2")
    assert (questions["metric"], questions["score"], questions["nulls"]) == ("string_match_part", 66.67, "1/3")
    assert questions["ruler.strict"]["mean"] == pytest.approx(1 / 3)  # "no" in "know" is no answer
    assert questions["ruler.v1"]["low"] < 2 / 3 < questions["ruler.v1"]["high"]
    assert {row["length"] for row in found.values()} == {4096}


def test_chunks_of_a_task_are_one_and_lengths_make_a_mean(say: Say, tmp_path: Path) -> None:
    for length, right in ((4096, 4), (8192, 1)):
        rows = [("7" if n < right else "8", ["7"]) for n in range(4)]
        predictions(tmp_path / str(length) / "pred", "vt", rows[:2], "vt-0")
        predictions(tmp_path / str(length) / "pred", "vt", rows[2:], "vt-1")
        predictions(tmp_path / str(length) / "pred", "fwe", rows)
    said = json.loads(say("score", ".", "--json").out)
    assert [(row["task"], row["length"], row["score"]) for row in said["tasks"]] == [
        ("fwe", 4096, 100.0), ("fwe", 8192, 25.0), ("vt", 4096, 100.0), ("vt", 8192, 25.0),
    ]  # fmt: skip
    assert said["mean"]["scores"] == {"4096": 100.0, "8192": 25.0}
    assert said["mean"]["effective"] == "4k"
    assert "95 %" in say("score", ".").out


def test_a_file_of_an_unknown_task_is_refused(say: Say, tmp_path: Path) -> None:
    predictions(tmp_path, "poems", [("x", ["x"])])
    said = say("score", "poems.jsonl")
    assert (said.code, "not a task of RULER" in said.err) == (64, True)
    (tmp_path / "vt.jsonl").write_text('{"index": 1}\n')
    assert "vt.jsonl:1" in say("score", "vt.jsonl").err


@pytest.mark.parametrize(
    ("task", "family", "tokens"),
    [("niah_single_1", "needle", 128), ("vt", "tracing", 30), ("cwe", "counting", 120), ("fwe", "counting", 50),
     ("qa_2", "questions", 32), ("ruler_qa_squad", "questions", 32), ("qa_fiction_1", "questions", 32)],
)  # fmt: skip
def test_a_tasks_name_decides_its_metric_and_its_answer_tokens(task: str, family: str, tokens: int) -> None:
    assert (family_of_task(task), new_tokens(task)) == (family, tokens)


def test_task_and_length_are_read_from_the_path(tmp_path: Path) -> None:
    path = tmp_path / "llama" / "synthetic" / "131072" / "pred"
    predictions(path, "niah_single_2", [("x", ["x"])], "niah_single_2-17")
    [found] = find_predictions([tmp_path])
    assert (found.task, found.length) == ("niah_single_2", 131072)


# --- prompts ---


def prompts(folder: Path, length: int, task: str, count: int = 3, prefix: str = " Answer:") -> Path:
    path = folder / str(length) / "data" / task / "validation.jsonl"
    path.parent.mkdir(parents=True)
    with path.open("w") as file:
        for number in range(count):
            text = f"Read.\n\nDocument 1:\nThe capital of Freedonia{number} is Glorp{number}. It is large.\n\n"
            line = {"index": 5, "input": f"{text}Question: What is the capital of Freedonia{number}?",
                    "outputs": [f"Glorp{number}"], "length": length - 7, "answer_prefix": prefix}  # fmt: skip
            file.write(json.dumps(line) + "\n")
    return path


def test_rulers_prompts_are_sent_unchanged_and_scored_as_ruler_does(say: Say, tmp_path: Path) -> None:
    prompts(tmp_path / "data", 4096, "qa_1")
    prompts(tmp_path / "data", 8192, "qa_1")
    said = say("run", "--prompts", "data", "--model", "sim:perfect", "--out", "run", "--no-figure", "--keep-prompts")
    assert said.code == 0, said.err
    records = list(read_records(tmp_path / "run"))
    assert sorted((r.cell.task, r.cell.length, r.cell.sample) for r in records) == [
        ("qa_1", length, sample) for length in (4096, 8192) for sample in range(3)
    ]
    for record in records:
        assert record.score == 1.0
        assert list(record.scores)[1:] == ["ruler.v1", "ruler.strict"]
        assert record.question.allowance == 32
        assert record.receipt.ok
        assert record.question.text == f"Question: What is the capital of Freedonia{record.cell.sample}?"
        assert record.question.labels["index"] == "5"
    kept = [p.read_text() for p in (tmp_path / "run" / "prompts").iterdir()]
    assert all(text.endswith("? Answer:") and text.startswith("Read.\n\nDocument 1:") for text in kept)
    assert records[0].prompt_tokens == len(WhitespaceTokenizer().encode(kept[0]))


def test_prompts_that_do_not_form_a_grid_are_refused(say: Say, tmp_path: Path) -> None:
    prompts(tmp_path, 4096, "qa_1")
    prompts(tmp_path, 8192, "vt", 2)
    ask = ("run", "--prompts", ".", "--model", "sim:perfect", "--no-figure")
    assert "no file for length" in say(*ask).err
    prompts(tmp_path, 8192, "qa_1", 2)
    prompts(tmp_path, 4096, "vt")
    assert "the first 2 of each are used" in say(*ask, "--out", "run").err
    assert "leave out the task" in say("run", "niah", *ask[1:]).err


def test_prompts_that_contain_a_chat_template_are_noted(say: Say, tmp_path: Path) -> None:
    path = prompts(tmp_path, 4096, "qa_1")
    path.write_text(path.read_text().replace('?"', '?<|im_end|>\\n<|im_start|>assistant\\n"'))
    said = say("run", "--prompts", str(path), "--model", "sim:perfect", "--no-figure", "--out", "run")
    assert "already contain a chat template" in said.err


def test_a_question_is_the_last_line_of_a_prompt() -> None:
    assert split_question("a\nb\n\nWhich?\n") == ("a\nb\n\n", "Which?\n")
    assert split_question("Which?") == ("", "Which?")


# --- building ---


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_prompts_and_answers_are_written_without_a_model(say: Say, tmp_path: Path) -> None:
    said = say(
        "build", "qa_fiction_1", "-o", "out/prompts.jsonl", "--tokenizer", "whitespace", "--lengths", "1k,2k",
        "--depths", "3", "--samples", "2",
    )  # fmt: skip
    assert said.code == 0, said.err
    rows = lines(tmp_path / "out" / "prompts.jsonl")
    assert len(rows) == len({row["id"] for row in rows}) == 12
    for row in rows:
        whole = row["prompt"] + row["answer_prefix"]
        assert len(whole.split()) == row["prompt_tokens"] == row["length"] - row["answer_tokens"]
        assert row["targets"][0] in row["prompt"]
        assert row["any_target_will_do"]
        assert row["facts"][0]["depth_asked"] == row["depth"]
    about = json.loads((tmp_path / "out" / "prompts.jsonl.about.json").read_text())
    assert about["spec"]["lengths"] == [1024, 2048]
    assert "model" not in about["spec"]


def test_prompts_are_written_in_rulers_layout_and_can_be_run(say: Say, tmp_path: Path) -> None:
    made = (
        "build",
        "--tokenizer",
        "whitespace",
        "--as",
        "ruler",
        "-o",
        "root",
        "--lengths",
        "1k",
        "--samples",
        "2",
    )
    assert say(*made[:1], "niah_single_1", *made[1:], "--set", "placement=anywhere").code == 0
    path = tmp_path / "root" / "1024" / "niah_single_1" / "validation.jsonl"
    rows = lines(path)
    assert [row["index"] for row in rows] == [0, 1]
    for row in rows:
        assert list(row) == ["index", "input", "outputs", "length", "length_w_model_temp", "answer_prefix",
                             "token_position_answer"]  # fmt: skip
        assert (
            row["length"]
            == row["length_w_model_temp"]
            == 1024
            == len((row["input"] + row["answer_prefix"]).split()) + 128
        )
        before = row["input"][: row["input"].index(row["outputs"][0])]
        assert row["token_position_answer"] == len(before.split())
    said = say("run", "--prompts", "root", "--model", "sim:perfect", "--out", "run", "--no-figure")
    assert said.code == 0, said.err
    assert {record.score for record in read_records(tmp_path / "run")} == {1.0}


def test_the_position_of_an_answer_is_that_of_the_first_one_asked_for(say: Say, tmp_path: Path) -> None:
    """RULER's niah.py: the tokens of the input before the first place of outputs[0], which may come after others."""
    made = ("--tokenizer", "bytes", "--as", "ruler", "-o", "root", "--lengths", "4k", "--samples", "4")
    assert say("build", "niah_multiquery", *made, "--set", "placement=anywhere").code == 0
    rows = lines(tmp_path / "root/4096/niah_multiquery/validation.jsonl")
    for row in rows:
        assert row["token_position_answer"] == len(row["input"].partition(row["outputs"][0])[0].encode())
    assert any(min(map(row["input"].index, row["outputs"])) < row["token_position_answer"] for row in rows)


def test_invented_questions_are_written_under_names_that_rulers_predictor_takes(say: Say, tmp_path: Path) -> None:
    made = ("--tokenizer", "whitespace", "--as", "ruler", "-o", "root", "--lengths", "2k", "--samples", "1")
    said = say("build", "qa_fiction_1", *made, "--depths", "1")
    assert said.code == 0
    assert (tmp_path / "root/2048/qa_1/validation.jsonl").is_file()
    assert "qa_fiction_1 is written as qa_1" in said.err
    said = say("build", "passkey", *made, "--depths", "1")
    assert "predictor refuses passkey" in said.err


def test_prompts_and_predictions_of_other_programs_keep_what_they_say(say: Say, tmp_path: Path) -> None:
    """lm-eval's rows have `gen_prefix` and `max_length`; RULER's evaluator falls back on `output`."""
    row = {"input": "Misty-harbor: 7654321.\nWhich number?", "outputs": ["7654321"], "gen_prefix": "The number is"}
    folder = tmp_path / "niah_single_1"
    folder.mkdir()
    (folder / "validation.jsonl").write_text(json.dumps(row | {"max_length": 4096}) + "\n")
    assert say("run", "--prompts", "niah_single_1", "--model", "sim:perfect", "--out", "run", "--no-figure").code == 0
    [record] = read_records(tmp_path / "run")
    assert (record.question.answer_prefix, record.cell.length) == (" The number is", 4096)
    (tmp_path / "vt.jsonl").write_text('{"pred": "ABCDE", "output": "ABCDE"}\n{"pred": "x", "output": ["ABCDE"]}\n')
    assert json.loads(say("score", "vt.jsonl", "--json").out)["tasks"][0]["score"] == 50.0


def test_a_chat_template_counts_only_on_request(say: Say, tmp_path: Path) -> None:
    assert "chat template" in say("build", "passkey", "-o", "x.jsonl", "--tokenizer", "bytes", "--chat").err
    assert "either --tokenizer" in say("build", "passkey", "-o", "x.jsonl").err
    unknown = say("build", "passkey", "-o", "x", "--tokenizer", "bytes", "--as", "rulers")
    assert "did you mean 'ruler'" in unknown.err.lower()
    assert not (tmp_path / "x.jsonl").exists()


# --- training and testing ---

DRAWN = [
    "niah", "niah_multikey_2", "niah_multikey_3", "vt", "cwe", "fwe", "qa_fiction_1", "qa_fiction_2", "passkey", "kv",
    "lines",
]  # fmt: skip


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("task", DRAWN)
def test_training_prompts_share_no_answer_with_test_prompts(say: Say, tmp_path: Path, task: str) -> None:
    """Answers, and whatever else of the vocabulary the questions name, are on one side of the split only."""
    rows = {}
    for split in ("test", "train"):
        said = say(
            "build", task, "-o", f"{split}.jsonl", "--tokenizer", "bytes", "--lengths", "7000", "--samples", "8",
            "--split", split, "--set", "placement=anywhere",
            *(("--set", "haystack=noise") if task == "niah" else ()),
        )  # fmt: skip
        assert said.code == 0, said.err
        rows[split] = lines(tmp_path / f"{split}.jsonl")
        assert {row["split"] for row in rows[split]} == {split}
    answers = {split: {target for row in found for target in row["targets"]} for split, found in rows.items()}
    assert len(answers["test"]) >= 8
    assert not answers["test"] & answers["train"]
    assert not {row["digest"] for row in rows["test"]} & {row["digest"] for row in rows["train"]}
    for one, other in (("test", "train"), ("train", "test")):
        text = "\n".join(row["prompt"] for row in rows[other])
        assert not [answer for answer in answers[one] if answer in text.split()]


def test_every_registered_task_has_a_split() -> None:
    for name in registry.names("tasks"):
        assert "split" in type(registry.task(TaskSpec(name=name))).model_fields


def test_ablations_sweep_any_option_of_these_tasks(say: Say, tmp_path: Path) -> None:
    said = say(
        "run", "qa_fiction_1", "--set", "hops=1,3", "--model", "sim:perfect", "--lengths", "2k", "--depths", "2",
        "--samples", "1", "--out", "run", "--no-figure",
    )  # fmt: skip
    assert said.code == 0, said.err
    records = list(read_records(tmp_path / "run"))
    assert {r.cell.task for r in records} == {"qa_fiction_1[hops=1]", "qa_fiction_1[hops=3]"}
    assert {r.question.labels["hops"] for r in records} == {"1", "3"}
    assert float(np.mean([r.score or 0 for r in records])) == 1.0


def test_no_context_asks_each_question_without_its_document_too(say: Say, tmp_path: Path) -> None:
    ask = ("run", "qa_fiction_1", "--no-context", "--model", "sim:perfect", "--lengths", "1k", "--depths", "2",
           "--samples", "2", "--no-figure")  # fmt: skip
    said = say(*ask, "--out", "run")
    assert said.code == 0, said.err
    scores: dict[str, set[float | None]] = {}
    for record in read_records(tmp_path / "run"):
        scores.setdefault(record.cell.task, set()).add(record.score)
    assert scores == {"qa_fiction_1": {1.0}, "qa_fiction_1[no context]": {0.0}}
    assert "[no context]" in said.out
    assert "none of the tasks asks questions over documents" in say("run", "niah", *ask[2:]).err
    planned = json.loads(say("plan", *ask[1:-1], "--json").out)["tasks"]
    assert planned["qa_fiction_1[no context]"]["prompt_tokens"] < 4 * 40 < planned["qa_fiction_1"]["prompt_tokens"]


def test_published_predictions_are_graded_with_intervals_a_mean_and_notes(say: Say, tmp_path: Path) -> None:
    rows = {"qasper": ('{"pred": "The Eiffel Tower, Paris.", "answers": ["eiffel tower"]}', ""),
            "passage_count": ('{"pred": "1 2 3 4", "answers": ["3"]}', "gi")}  # fmt: skip
    for task, (row, junk) in rows.items():
        (tmp_path / f"{task}.jsonl").write_text(f"{row}{junk}\n", encoding="utf-8")
    said = say("score", str(tmp_path), "--as", "longbench")
    assert said.code == 0
    assert "mean of tasks: 52.50" in said.out
    assert "passage_count.jsonl:1:" in said.err
    found = json.loads(say("score", str(tmp_path), "--as", "longbench", "--json").out)
    assert {t["task"]: (t["score"], t["strict"] and t["strict"]["mean"]) for t in found["tasks"]} == {
        "qasper": (80.0, None),
        "passage_count": (25.0, 0.0),
    }
    assert found["means"] == {"": 52.5}


def test_a_prediction_whose_length_is_no_number_is_named_by_its_line(say: Say, tmp_path: Path) -> None:
    row = {"pred": "Paris", "answers": ["Paris"], "length": 4000}
    lines = [json.dumps(row), json.dumps(row | {"length": "\x00"})]
    (tmp_path / "qasper.jsonl").write_text("\n".join(lines))
    said = say("score", str(tmp_path), "--as", "longbench-e")
    assert said.code == 66
    assert "length is no whole number" in said.err
    assert "qasper.jsonl:2" in said.err


@pytest.mark.parametrize("output", ["", "."])
def test_prompts_without_a_file_to_go_to_are_refused_before_any_is_made(say: Say, output: str) -> None:
    said = say("build", "niah", "-o", output, "--tokenizer", "whitespace", "--lengths", "1k")
    assert said.code == 64
    assert "prompts.jsonl" in said.err
