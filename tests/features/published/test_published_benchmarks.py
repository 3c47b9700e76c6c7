"""Official scores of LongBench, InfiniteBench and BABILong, from published predictions where they are at hand."""

from __future__ import annotations

import csv
import json
import math
import pickle
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from leadline.core.types import Question

pytest.importorskip("jieba")

from leadline.core.answers import Completion
from leadline.core.errors import SourceError, UnknownName
from leadline.features.published import chinese
from leadline.features.published import longbench_scorers as longbench
from leadline.features.published.benchmark_files import INFINITEBENCH, LONGBENCH, open_longbench
from leadline.features.published.chinese import chinese_words
from leadline.features.published.grade import grade_published
from leadline.features.published.prediction_files import Benchmark, read_prediction_files, recognise
from leadline.features.published.results import read_printed_table
from leadline.scorers.overlap import (
    common_length,
    common_subsequence,
    edit_similarity,
    rouge_l,
    rouge_lsum_google,
    stem,
)
from support.commands import Say

SHARED = Path(__file__).parents[4] / "shared"
MISFITS = {("longbook_sum_eng", 9.06), ("longbook_qa_chn", 15.49), ("code_debug", 15.48)}
"""YaRN-Mistral's cells that do not follow from its own files, and what the files give."""


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def unpack(name: str) -> Path:
        archive = SHARED / "data" / "golden" / f"{name}.tar.xz"
        if not archive.is_file():
            pytest.skip("the published predictions are not at hand")
        folder = tmp_path_factory.mktemp(name.replace("_", "-"))
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        return folder / name

    return unpack


@pytest.mark.slow
@pytest.mark.parametrize("model", ["llama2-7b-chat-4k", "llama3-8b-instruct"])
def test_longbench_scores_equal_the_published_ones(golden: Callable[[str], Path], model: str) -> None:
    folder = golden("longbench") / "pred" / model
    scores = grade_published("longbench", read_prediction_files("longbench", [folder]).answers)
    published = json.loads((folder / "result.json").read_text())
    assert {s.task: s.score for s in scores} == {task: published[task] for task in LONGBENCH}


@pytest.mark.parametrize(
    ("model", "task", "rouge_l"),
    [
        ("llama3-8b-instruct", "gov_report", 24.45), ("llama2-7b-chat-4k", "gov_report", 18.89),
        ("llama3-8b-instruct", "multi_news", 19.08), ("llama3-8b-instruct", "qmsum", 21.14),
        ("llama3-8b-instruct", "samsum", 41.11),
    ],
)  # fmt: skip
def test_googles_rouge_l_on_the_same_texts_is_as_measured_with_its_package(
    golden: Callable[[str], Path], model: str, task: str, rouge_l: float
) -> None:
    file = golden("longbench") / "pred" / model / f"{task}.jsonl"
    scores = []
    for answer in read_prediction_files("longbench", [file]).answers:
        question = Question("", targets=tuple(answer.reference), match="any", dataset=task)
        scores.append(longbench.GOOGLE.score(question, Completion(answer.prediction)).value)
    assert round(100 * sum(scores) / len(scores), 2) == rouge_l


def test_longbench_e_scores_equal_the_published_ones(golden: Callable[[str], Path]) -> None:
    folder = golden("longbench_e") / "pred_e" / "allam"
    answers = read_prediction_files("longbench-e", [folder]).answers
    scores = grade_published("longbench-e", answers, backend="levenshtein", fine_bins=True)
    published = json.loads((folder / "result.json").read_text())
    wanted = {(t, b): v for t, bins in published.items() for b, v in bins.items() if not math.isnan(v)}
    assert len(wanted) == 38
    assert {(s.task, s.group): s.score for s in scores} == wanted


@pytest.mark.slow
def test_infinitebench_scores_equal_the_published_ones(golden: Callable[[str], Path]) -> None:
    folder = golden("infinitebench") / "results"
    with (SHARED / "facts" / "infinitebench_table.csv").open() as file:
        table = list(csv.DictReader(file))
    other = set()
    for model in list(table[0])[1:]:
        files = [f for f in sorted((folder / model).glob("*.jsonl")) if f.stem.removeprefix("preds_") in INFINITEBENCH]
        scores = {
            s.task: s.score
            for s in grade_published("infinitebench", read_prediction_files("infinitebench", files).answers)
        }
        for row in table:
            score, published = scores.get(row["task"]), row[model]
            if score is None:
                continue
            same = score < 5 if published == "<5" else score == float(published)
            other |= set() if same else {(row["task"], score)}
    assert other == MISFITS


def test_junk_after_a_line_is_read_and_named_by_line_and_column(golden: Callable[[str], Path]) -> None:
    file = golden("infinitebench") / "results" / "yarn-mistral" / "preds_longbook_qa_chn.jsonl"
    junk, version = read_prediction_files("infinitebench", [file]).notes
    assert ":189:102: ignored 'gi'" in junk
    assert version == "longbook_qa_chn: 189 predictions for 175 samples: the data are of another version"


def test_longbench_v2_scores_equal_the_published_ones(golden: Callable[[str], Path]) -> None:
    answers = read_prediction_files("longbench-v2", [golden("longbench_v2")]).answers
    scores = {s.group: s for s in grade_published("longbench-v2", answers)}
    assert (scores[""].official.n, round(scores[""].official.mean * 288)) == (288, 91)
    assert (scores["easy"].score, scores["hard"].score) == (35.0, 29.8)
    assert sum(longbench.v2_choice(a.prediction) is None for a in answers) == 17


def test_babilong_scores_equal_the_measured_table(golden: Callable[[str], Path]) -> None:
    answers = read_prediction_files("babilong", [golden("babilong")]).answers
    scores = {(s.task, s.group): s.score for s in grade_published("babilong", answers)}
    lengths = ("0k", "4k", "16k", "32k", "128k", "512k", "1M")
    assert [scores["qa1", n] for n in lengths] == [100.0, 99.5, 91.3, 77.2, 66.0, 61.0, 57.0]
    assert [scores["qa3", n] for n in lengths] == [87.0, 70.0, 44.9, 29.7, 21.0, 21.0, 30.0]
    assert [scores["qa5", n] for n in lengths] == [97.4, 94.2, 89.3, 82.4, 62.0, 67.0, 67.0]


# --- without any data at hand ------------------------------------------------------------------------


def table_subsequence(rows: str, columns: str) -> list[tuple[int, int]]:
    """The obvious table and its backtracking: up where the table grows along the row, left where it does not."""
    table = [[0] * (len(columns) + 1) for _ in range(len(rows) + 1)]
    for i, a in enumerate(rows, 1):
        for j, b in enumerate(columns, 1):
            table[i][j] = table[i - 1][j - 1] + 1 if a == b else max(table[i - 1][j], table[i][j - 1])
    found, i, j = [], len(rows), len(columns)
    while i and j:
        if rows[i - 1] == columns[j - 1]:
            found.append((i - 1, j - 1))
            i, j = i - 1, j - 1
        elif table[i - 1][j] > table[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return found


def test_the_quick_subsequence_is_the_one_the_table_gives() -> None:
    import random

    draw = random.Random(7)
    for _ in range(400):
        one = "".join(draw.choices("abcd", k=draw.randrange(0, 30)))
        other = "".join(draw.choices("abcde", k=draw.randrange(0, 30)))
        wanted = table_subsequence(one, other)
        assert common_subsequence(one, other) == wanted
        assert common_length(one, other) == len(wanted)


@pytest.mark.parametrize(
    ("metric", "prediction", "reference", "value"),
    [
        ("qa_f1", "The Eiffel Tower, Paris.", "eiffel tower", 0.8),
        ("qa_f1", "", "x", 0.0),
        ("count", "There are 7 or 8.", "7", 0.5),
        ("count", "none", "7", 0.0),
        ("retrieval", "Paragraph 3, 3, 4 and 5", "Paragraph 3", 0.5),
        ("rouge", "", "a b", 0.0),
        ("rouge", "a b. c", "a b. c", 1.0),
    ],
)
def test_metrics_by_hand(metric: str, prediction: str, reference: str, value: float) -> None:
    assert longbench.METRICS[metric](prediction, reference) == pytest.approx(value, abs=1e-7)


def test_guessing_a_list_of_numbers_earns_nothing_by_the_strict_rule() -> None:
    task = LONGBENCH["passage_count"]
    assert longbench.score(task, "1 2 3 4", ["3"]) == 0.25
    assert longbench.strict_score(task, "1 2 3 4", ["3"], None) == 0.0
    assert longbench.strict_score(task, "3. I counted 3.", ["3"], None) == 1.0


def test_both_edit_backends_are_offered_and_differ() -> None:
    assert edit_similarity("abcd efgh", "efgh abcd", "difflib") == edit_similarity(
        "abcd efgh", "efgh abcd", "levenshtein"
    )
    one, other = "for item in items: total += item.price", "total = sum(item.price for item in items)"
    assert edit_similarity(one, other, "difflib") != edit_similarity(one, other, "levenshtein")


def test_a_summary_of_several_lines_is_matched_line_by_line() -> None:
    assert rouge_lsum_google("b a\nc d", "a b\nc d") == pytest.approx(0.75)
    assert rouge_l("same words here", "same words here") == pytest.approx(1.0)


def test_a_null_answer_is_refused_by_line(tmp_path: Path) -> None:
    file = tmp_path / "qasper.jsonl"
    file.write_text('{"pred": "a", "answers": ["a"]}\n{"pred": null, "answers": ["a"]}\n')
    with pytest.raises(SourceError, match="pred is null") as caught:
        read_prediction_files("longbench", [file])
    assert caught.value.where.endswith("qasper.jsonl:2")


def test_a_file_of_no_task_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "qaspr.jsonl"
    file.write_text('{"pred": "a", "answers": ["a"]}\n')
    with pytest.raises(UnknownName, match="qaspr") as caught:
        grade_published("longbench", read_prediction_files("longbench", [file]).answers)
    assert "qasper" in caught.value.fix
    assert caught.value.where == f"{file}:1"


@pytest.mark.parametrize(
    ("word", "stemmed"),
    [
        ("running", "run"), ("relational", "relat"), ("skies", "sky"), ("happily", "happili"), ("agreed", "agre"),
        ("flies", "fli"), ("hopping", "hop"), ("falling", "fall"), ("geology", "geolog"), ("controll", "control"),
    ],
)  # fmt: skip
def test_words_are_stemmed_as_nltk_does(word: str, stemmed: str) -> None:
    assert stem(word) == stemmed


# --- bad input: an error with file and line, and nothing scored ----------------------------------------


def lines(path: Path, *rows: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


GOOD: dict[str, object] = {"pred": "a", "answers": ["a"], "all_classes": None, "length": 5}
V2: dict[str, object] = {
    "_id": "1", "answer": "A", "difficulty": "easy", "length": "short", "domain": "x", "response": "none"
}  # fmt: skip


@pytest.mark.parametrize(
    ("benchmark", "name", "rows", "where", "what"),
    [
        ("longbench", "qasper.jsonl", [GOOD, GOOD | {"answers": [None]}], ":2", "answers is not a list of texts"),
        ("longbench", "qasper.jsonl", [GOOD, GOOD | {"pred": None}], ":2", "pred is null"),
        ("longbench", "qasper.jsonl", [GOOD] * 201, ":201", "has 200 samples, and this is prediction 201"),
        ("longbench-e", "qasper_e.jsonl", [GOOD] * 225, ":225", "has 224 samples"),
        ("longbench-v2", "m.jsonl", [V2, V2 | {"_id": "2"}, V2], ":3", "sample 1 of longbench-v2 has a second"),
        ("longbench-v2", "m.jsonl", [V2, V2 | {"answer": None, "_id": "2"}], ":2", "answer is null"),
        (
            "infinitebench", "preds_passkey.jsonl",
            [{"id": 4, "prediction": "1", "ground_truth": "1"}, {"id": 4, "prediction": "1", "ground_truth": "1"}],
            ":2", "sample 4 of passkey has a second",
        ),
        (
            "infinitebench", "preds_passkey.jsonl",
            [{"id": 4, "prediction": "1", "ground_truth": [None]}], ":1", "ground truth is empty or null",
        ),
    ],
)  # fmt: skip
def test_a_bad_prediction_is_refused_by_file_and_line(
    tmp_path: Path, benchmark: Benchmark, name: str, rows: list[dict[str, object]], where: str, what: str
) -> None:
    file = lines(tmp_path / name, *rows)
    for place in (file, tmp_path):
        with pytest.raises(SourceError, match=what) as caught:
            read_prediction_files(benchmark, [place])
        assert caught.value.where == f"{file}{where}"


def test_a_prediction_for_a_sample_that_is_not_in_the_data_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    lines(data / "qasper.jsonl", *(GOOD | {"context": "c", "input": "i", "length": n} for n in (5, 6)))
    file = lines(tmp_path / "qasper.jsonl", GOOD, GOOD | {"length": 6})
    assert len(read_prediction_files("longbench", [file], data=data).answers) == 2
    lines(file, GOOD, GOOD | {"length": 7})
    with pytest.raises(SourceError, match="not in the data") as caught:
        read_prediction_files("longbench", [file], data=data)
    assert caught.value.where == f"{file}:2"
    lines(data / "passkey.jsonl", {"id": 0, "context": "c", "input": "i", "answer": ["1"]})
    file = lines(tmp_path / "passkey.jsonl", {"id": 1, "prediction": "1", "ground_truth": "1"})
    with pytest.raises(SourceError, match="not in the data"):
        read_prediction_files("infinitebench", [file], data=data)


@pytest.mark.parametrize("name", ["qasper.jsonl", "qasper.pickle"])
def test_a_pickle_is_refused_whatever_its_name(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(pickle.dumps([GOOD]))
    with pytest.raises(SourceError, match="a pickle can run any code") as caught:
        read_prediction_files("longbench", [file])
    assert caught.value.where == str(file)
    with pytest.raises(SourceError, match="a pickle can run any code"):
        open_longbench(file, "qasper")


def test_a_folder_with_missing_tasks_missing_answers_and_other_files_says_so(tmp_path: Path) -> None:
    lines(tmp_path / "qasper.jsonl", GOOD)
    lines(tmp_path / "lcc.jsonl", *[GOOD] * 500)
    lines(tmp_path / "lcc_step_by_step.jsonl", GOOD)
    read = read_prediction_files("longbench", [tmp_path])
    assert {answer.task for answer in read.answers} == {"qasper", "lcc"}
    other, some, missing = read.notes
    assert other.endswith("lcc_step_by_step.jsonl: left out, its name is no task of longbench")
    assert some == "qasper: 1 predictions for 200 samples: some are missing"
    assert missing.startswith("no predictions for narrativeqa, multifieldqa_en")


# --- tables of others ---------------------------------------------------------------------------------


def test_a_published_table_gets_the_error_bars_of_its_samples(tmp_path: Path) -> None:
    """87 of 100 and 435 of 500: intervals by hand, from Wilson's formula."""
    table = tmp_path / "table.csv"
    table.write_text("task,A,B,Avg\nRetrieve.KV,87.0,<5,1\nEn.MC,50,-,2\nCode speed,1,2,3\n")
    found = read_printed_table(table)
    assert found is not None
    assert (found.benchmark, found.left_out) == ("InfiniteBench", ("Code speed",))
    first, second = (one for one in found.scores if one.model == "A")
    assert (first.task, first.samples, second.samples) == ("kv_retrieval", 500, 229)
    assert first.interval is not None
    z, n, p = 1.959964, 500, 0.87
    centre, half = (p + z * z / 2 / n) / (1 + z * z / n), z * math.sqrt(p * (1 - p) / n + z * z / 4 / n / n)
    assert first.interval.low == pytest.approx(centre - half / (1 + z * z / n), abs=1e-6)
    assert next(one for one in found.scores if one.model == "B").interval is None  # `<5` is no number
    fewer = read_printed_table(table, samples=100)
    assert fewer is not None
    assert fewer.scores[0].interval is not None
    assert fewer.scores[0].interval.half_width > 2 * first.interval.half_width


@pytest.mark.parametrize(
    "text", ["model,Qasper,MF-en,lcc\nM,41,52,60\n", "task,samples,M\nqasper,,41\nMF-en,,52\nLCC,500,60\n"]
)
def test_tasks_may_be_rows_or_columns_and_have_the_names_of_papers(tmp_path: Path, text: str) -> None:
    table = tmp_path / "table.csv"
    table.write_text(text)
    found = read_printed_table(table)
    assert found is not None
    assert [(s.task, s.samples, s.score) for s in found.scores] == [
        ("qasper", 200, 41), ("multifieldqa_en", 150, 52), ("lcc", 500, 60)
    ]  # fmt: skip
    mean = found.mean("M")
    assert mean is not None
    by_hand = 1.96 / 3 * math.sqrt(0.41 * 0.59 / 200 + 0.52 * 0.48 / 150 + 0.6 * 0.4 / 500)
    assert mean[0] == pytest.approx(51)
    assert mean[1].half_width == pytest.approx(by_hand, rel=1e-3)
    assert any("difflib" in note for note in found.notes())


def test_the_result_file_of_longbench_e_has_the_samples_of_each_bin(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(
        '{"qasper": {"0-4k": 40.0, "4-8k": 30.5, "8k+": 20.0}, "lcc": {"0-4k": 60.0}}'
    )
    found = read_printed_table(tmp_path / "result.json")
    assert found is not None
    assert [s.samples for s in found.scores] == [100, 100, 24, 100]
    assert found.scores[2].task == "qasper 8k+"
    (tmp_path / "result.json").write_text("[1]")
    with pytest.raises(SourceError, match=r"not a result\.json of LongBench"):
        read_printed_table(tmp_path / "result.json")


def test_a_table_by_length_is_no_table_by_task(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("task,4k,8k\nniah,99,98\n")
    assert read_printed_table(tmp_path / "table.csv") is None


MIXED = [
    "会议讨论了人工智能在医疗领域的应用，并决定于二零二六年十一月启动试点项目。",
    "杭研大厦的小明硕士毕业于中国科学院计算所，后在日本京都大学深造",
    "乒乓球拍卖完了 abc123，一二三四五六七八九十！鐵路局",
    "The answer is 3.5% of C++ & T恤, A座-B座\r\n\t段落12\r",
    "。",
    "",
]


@pytest.mark.slow
def test_chinese_words_are_those_of_jieba() -> None:
    jieba = pytest.importorskip("jieba")
    tokenizer, draw = jieba.Tokenizer(), random.Random(5)
    characters = "".join(MIXED)
    drawn = ["".join(draw.choices(characters, k=draw.randrange(1, 40))) for _ in range(300)]
    for text in (*MIXED, *drawn):
        assert chinese_words(text) == list(tokenizer.cut(text, cut_all=False))


@pytest.mark.slow
def test_a_damaged_dictionary_in_the_cache_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    words = chinese_words(MIXED[0])
    monkeypatch.setenv("LEADLINE_CACHE", str(tmp_path))
    for damaged in (False, True):
        for cached in (chinese_words, chinese._cut, chinese._dictionary):
            cached.cache_clear()
        if damaged:
            (file,) = (tmp_path / "words").iterdir()
            file.write_bytes(file.read_bytes()[:-9])
        assert chinese_words(MIXED[0]) == words
        assert ("cannot be used" in caplog.text) == damaged
    chinese._dictionary.cache_clear()
    assert chinese._dictionary().scores["会议"] < 0  # from the file that was made anew
    assert caplog.text.count("cannot be used") == 1


def test_files_of_other_benchmarks_are_recognised_by_the_fields_of_their_first_line(say: Say, tmp_path: Path) -> None:
    lines = {
        "hotpotqa.jsonl": ("longbench", {"pred": "a", "answers": ["a"], "all_classes": None, "length": 9}),
        "v2.jsonl": (
            "longbench-v2",
            {"_id": "1", "domain": "x", "difficulty": "easy", "length": "short", "answer": "A", "pred": "A"},
        ),
        "preds_passkey.jsonl": ("infinitebench", {"id": 0, "prediction": "1", "ground_truth": ["1"]}),
    }
    for name, (benchmark, row) in lines.items():
        (tmp_path / name).write_text(json.dumps(row) + "\n")
        assert recognise([tmp_path / name]) == benchmark
        done = say("score", str(tmp_path / name), "--json")
        assert done.code == 0, done.err
        assert json.loads(done.out)["benchmark"] == benchmark
        assert f"graded as {benchmark}" in done.err
    (tmp_path / "niah.jsonl").write_text(json.dumps({"pred": "7", "outputs": ["7"]}) + "\n")
    assert recognise([tmp_path / "niah.jsonl"]) is None
    assert recognise([tmp_path / "absent.jsonl"]) is None


@pytest.mark.parametrize(
    ("task", "answer", "reference", "score"),
    [
        ("qa6", "Yes.", "yes", 1.0), ("qa6", "No, she is in the office.", "no", 1.0), ("qa6", "yes and no", "no", 0.0),
        ("qa7", "None", "none", 1.0), ("qa7", "none", "one", 0.0), ("qa7", "Two objects.", "two", 1.0),
        ("qa8", "The milk and the football", "football,milk", 1.0), ("qa8", "milk", "football,milk", 0.0),
        ("qa8", "nothing", "nothing", 1.0), ("qa10", "maybe", "maybe", 1.0), ("qa14", "the cinema", "cinema", 1.0),
        ("qa15", "She is afraid of wolf", "wolf", 1.0), ("qa16", "green or gray", "gray", 0.0),
        ("qa19", "n,e", "n,e", 1.0), ("qa19", "n,e", "e,n", 0.0), ("qa20", "thirsty", "thirsty", 1.0),
    ],
)  # fmt: skip
def test_answers_of_the_other_tasks_of_babilong_are_graded(
    task: str, answer: str, reference: str, score: float
) -> None:
    """The rule of `compare_answers` (booydar/babilong): whole words where a label is a part of another, as in qa7, and
    all of several things, as in qa8."""
    assert longbench.babilong(task, answer, reference, "Where is Julius?") == score


def test_every_task_of_babi_has_labels() -> None:
    assert set(longbench.BABILONG_LABELS) == {f"qa{number}" for number in range(1, 21)}
