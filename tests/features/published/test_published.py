"""LongBench, LongBench v2 and InfiniteBench as tasks: on small files in their exact format, and on the real ones."""

from __future__ import annotations

import json
import re
import tarfile
import zipfile
from collections import Counter
from itertools import accumulate, product
from pathlib import Path
from typing import Any

import pytest

from leadline.cli.main import run_command
from leadline.core import registry
from leadline.core.answers import Completion, Failure
from leadline.core.drafts import Filler
from leadline.core.errors import LeadlineError, SourceError, UnknownName
from leadline.core.records import Record
from leadline.core.spec import TaskSpec, make_spec
from leadline.core.types import Cell, Document
from leadline.features.published.benchmark_files import INFINITEBENCH, LONGBENCH, BenchmarkSample
from leadline.features.published.dataset_tasks import INFINITEBENCH_TEXTS
from leadline.features.published.longbench import LongBench, mini_samples, sample_digest
from leadline.features.published.report import published_scores
from leadline.results.comparability import mixed_variants
from leadline.results.run import load_run
from leadline.run.measure import measure
from leadline.store.runs import read_records
from leadline.tasks.templates import with_templates
from leadline.text.chat import completion_frame
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import ByteTokenizer, WhitespaceTokenizer
from support.exact_lengths import opened
from support.published_data import infinitebench_row, longbench_row, longbench_v2_row, write_rows

SHARED = Path(__file__).parents[4] / "shared" / "data" / "golden"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_rows(tmp_path / "hotpotqa.jsonl", [longbench_row(n, 200 + 400 * n) for n in range(5)])
    return tmp_path


def run(tmp_path: Path, task: dict[str, Any], model: str = "sim:perfect", **values: Any) -> list[Record]:
    spec = make_spec({"model": model, "tasks": [task], "lengths": "8k", "samples": 1000} | values)
    measure(spec, tmp_path / "run")
    return list(read_records(tmp_path / "run"))


def test_every_sample_of_the_file_is_asked_once(folder: Path) -> None:
    records = run(folder, {"name": "longbench_dataset", "dataset": "hotpotqa", "data": str(folder)})
    assert {r.question.labels["sample_id"] for r in records} == {f"{n:048x}" for n in range(5)}
    assert all(r.score == 1.0 and r.scores["longbench"].explanation == "qa_f1" for r in records)
    assert {r.question.labels["bin"] for r in records} == {"0-4k"}
    assert all(f"Who keeps lamp {int(r.question.labels['sample_id'], 16)}?" in r.question.text for r in records)


def test_questions_about_one_text_are_one_cluster(tmp_path: Path) -> None:
    rows = [longbench_row(n, 400) for n in range(6)]
    for row in rows[:4]:
        row["context"] = rows[0]["context"]
    write_rows(tmp_path / "hotpotqa.jsonl", rows)
    task = {"name": "longbench_dataset", "dataset": "hotpotqa", "data": str(tmp_path)}
    records = run(tmp_path, task, model="sim:flaky?rate=0")
    assert sorted(Counter(r.cluster for r in records).values()) == [1, 1, 4]
    [score] = [one for one in published_scores(load_run(tmp_path / "run")) if one.group == "all"]
    assert score.score is not None
    assert (score.score.n, score.score.n_clusters) == (6, 3)


def test_a_few_samples_are_the_first_of_all(folder: Path) -> None:
    task = {"name": "longbench_dataset", "dataset": "hotpotqa", "data": str(folder)}
    few, all_ = (
        [
            r.question.labels["sample_id"]
            for r in sorted(run(folder / str(n), task, samples=n), key=lambda r: r.cell.sample)
        ]
        for n in (2, 5)
    )
    assert few == all_[:2]


@pytest.mark.parametrize("fit", ["middle", "refuse", "drop"])
def test_a_prompt_that_is_too_long_is_cut_failed_or_left_out_and_never_looks_whole(folder: Path, fit: str) -> None:
    task = {"name": "longbench_dataset", "dataset": "hotpotqa", "data": str(folder), "fit": fit}
    records = run(folder, task, lengths="1k")
    long = [r for r in records if int(r.question.labels["words"]) > 950]
    assert len(long) == 3
    for record in long:
        if fit == "middle":
            assert record.question.labels["fit"] == "middle"
            assert record.prompt_tokens <= 1024 - 32 < record.prompt_tokens + int(record.question.labels["tokens_cut"])
            assert record.score is not None
        else:
            assert isinstance(record.outcome, Failure)
            assert record.outcome.why == ("context_length" if fit == "refuse" else "left_out")
            assert record.score is None
    assert all("fit" not in r.question.labels and r.score == 1.0 for r in records if r not in long)


def test_a_run_without_the_samples_left_out_is_complete(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = [
        "run", "longbench_dataset", "--set", "dataset=hotpotqa", "--set", f"data={folder}", "--set", "fit=drop",
        "--model", "sim:perfect", "--lengths", "1k", "--samples", "5", "--out", str(folder / "run"),
    ]  # fmt: skip
    assert run_command(call) == 0
    assert "left_out 3" in capsys.readouterr().out
    assert run_command(call) == 0  # and they are not asked again
    call[call.index("fit=drop")] = "fit=refuse"
    call[-1] = str(folder / "other")
    assert run_command(call) == 1


@pytest.mark.parametrize("tokenizer", [WhitespaceTokenizer(), ByteTokenizer()], ids=["whitespace", "bytes"])
def test_the_middle_is_cut_so_that_both_ends_are_as_long(folder: Path, tokenizer: Any) -> None:
    options = {"dataset": "hotpotqa", "data": str(folder)}
    task = registry.task(TaskSpec(name="longbench_dataset", options=options))
    fitter = Fitter(tokenizer, completion_frame())

    def document(length: int, sample: int) -> Document:
        return task.document([Cell("t", length, None, sample)], seed=0, fitter=fitter)

    sample = next(n for n in range(5) if document(100_000, n).probes[0].question.labels["words"] == "1800")
    whole, cut = document(100_000, sample), document(1024, sample)
    text, shorter = whole.prompt_text(whole.probes[0]), cut.prompt_text(cut.probes[0])
    assert 1024 - 32 - 2 <= cut.probes[0].prompt_tokens <= 1024 - 32
    start = next(n for n in range(len(shorter)) if text[n] != shorter[n])
    assert text.endswith(shorter[start:])
    first, last = (len(tokenizer.encode(part)) for part in (shorter[:start], shorter[start:]))
    assert abs(first - last) <= 16  # characters after the cut may be those that were cut


def test_a_data_set_is_read_from_an_archive_a_folder_or_a_file(folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "data.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(folder / "hotpotqa.jsonl", "data/hotpotqa.jsonl")
        file.writestr("data/hotpotqa_e.jsonl", json.dumps(longbench_row(9, 5000)) + "\n")
    for place, edition, count in (
        (archive, "v1", 5),
        (folder, "v1", 5),
        (folder / "hotpotqa.jsonl", "v1", 5),
        (archive, "e", 1),
    ):
        options = {"dataset": "hotpotqa", "data": str(place), "edition": edition}
        assert registry.task(TaskSpec(name="longbench_dataset", options=options)).max_samples() == count


@pytest.mark.parametrize(
    ("rows", "line", "what"),
    [
        ([longbench_row(0), {"input": "a", "context": "b", "answers": []}], ":2", "answers"),
        ([longbench_row(0), longbench_row(1, answers=[None])], ":2", "answers"),
        ([longbench_row(0, context=None)], ":1", "context"),
        ([longbench_row(0), "text"], ":2", "not a JSON object"),
        ([], "", "no samples"),
    ],
)
def test_a_file_of_another_version_is_an_error_with_its_line(tmp_path: Path, rows: Any, line: str, what: str) -> None:
    path = write_rows(tmp_path / "hotpotqa.jsonl", rows)
    task = registry.task(TaskSpec(name="longbench_dataset", options={"dataset": "hotpotqa", "data": str(path)}))
    with pytest.raises(SourceError, match=what) as caught:
        task.sources()
    assert str(caught.value.where).endswith(line)


def test_a_pickle_an_unknown_data_set_and_a_missing_file_are_errors(tmp_path: Path) -> None:
    (tmp_path / "longbench.pickle").write_bytes(b"\x80\x04.")
    for options, error, what in (
        ({"dataset": "hotpotqa", "data": str(tmp_path / "longbench.pickle")}, SourceError, "pickle"),
        ({"dataset": "hotpotqa", "data": str(tmp_path)}, SourceError, "no hotpotqa.jsonl"),
        ({"dataset": "hotpotq"}, UnknownName, "hotpotq"),
        ({"dataset": "musique", "edition": "e"}, UnknownName, "LongBench-E"),
    ):
        with pytest.raises(LeadlineError, match=what) as caught:
            registry.task(TaskSpec(name="longbench_dataset", options=options)).sources()
        assert isinstance(caught.value, error)


def test_every_data_set_has_a_prompt_that_names_its_question(tmp_path: Path) -> None:
    for name in LONGBENCH:
        write_rows(tmp_path / f"{name}.jsonl", [longbench_row(0, input="QUESTION")])
        options = {"dataset": name, "data": str(tmp_path)}
        draft = registry.task(TaskSpec(name="longbench_dataset", options=options)).write(
            [Cell(name, 9, None, 0)], seed=0
        )
        [question] = draft.questions
        assert ("QUESTION" in question.text) == (
            name not in ("gov_report", "multi_news", "vcsum", "passage_count", "lcc")
        )
        assert question.allowance == LONGBENCH[name].new_tokens


def test_longbench_v2_is_scored_by_its_letter_and_divided_as_published(tmp_path: Path) -> None:
    rows = [longbench_v2_row(n) for n in range(8)]
    path = tmp_path / "data.json"
    path.write_text(json.dumps(rows))
    task = registry.task(TaskSpec(name="longbench_v2", options={"data": str(path)}))
    document = task.document(
        [Cell("v2", 4096, None, 0)], seed=0, fitter=Fitter(WhitespaceTokenizer(), completion_frame())
    )
    [probe] = document.probes
    letter = probe.question.targets[0]

    def score(text: str, scorer: str = "longbench_v2") -> float:
        return registry.scorer(scorer).score(probe.question, Completion(text)).value

    assert score(f"**The correct answer is ({letter})**") == 1.0
    assert score("The correct answer is (X)") == score("I do not know") == 0.0
    assert score("I do not know", "longbench_v2.compensated") == 0.25
    assert probe.question.labels["difficulty"] in ("easy", "hard")
    rows[3]["answer"] = "E"
    path.with_name("broken.json").write_text(json.dumps(rows))
    with pytest.raises(SourceError, match="'E'") as caught:
        registry.task(TaskSpec(name="longbench_v2", options={"data": str(path.with_name("broken.json"))})).sources()
    assert "item 4" in str(caught.value.where)


KIMI_ASKS_FIRST = {
    "longbook_sum_eng", "longbook_choice_eng", "longbook_qa_eng", "longbook_qa_chn", "code_run", "code_debug",
    "longdialogue_qa_eng",
}  # fmt: skip
OPENED = {
    "gpt4": set(),
    "kimi": {"passkey", "number_string", "math_calc"},
    "claude2": {"passkey", "number_string", "math_calc", "longbook_qa_eng"},
    "yarn-mistral": set(INFINITEBENCH) - {"kv_retrieval", "math_find"},
}
"""From src/prompt.py of OpenBMB/InfiniteBench at 220fd2e."""


@pytest.mark.parametrize("family", ["gpt4", "kimi", "claude2", "yarn-mistral"])
def test_infinitebench_asks_in_the_order_of_its_families(tmp_path: Path, family: str) -> None:
    row = infinitebench_row(3) | {"context": "THE BOOK", "input": "Who?", "answer": ["Ann"]}
    for name in INFINITEBENCH:
        write_rows(tmp_path / f"{name}.jsonl", [row])
        options = {"dataset": name, "data": str(tmp_path), "family": family}
        task = registry.task(TaskSpec(name="infinitebench_dataset", options=options))
        draft = task.write([Cell(name, 99999, None, 0)], seed=0)
        prompt = draft.head + draft.questions[0].text
        if "Who?" in prompt:
            first = family == "kimi" and name in KIMI_ASKS_FIRST
            assert (prompt.index("Who?") < prompt.index("THE BOOK")) == first
        opening = INFINITEBENCH_TEXTS[name][2]
        assert bool(opening and prompt.endswith(opening)) == (name in OPENED[family]), name
        if name in ("longbook_choice_eng", "code_debug"):
            assert "B. Bo" in prompt
            assert draft.questions[0].reference == ["Ann", "A"]
        assert draft.questions[0].allowance == INFINITEBENCH[name].new_tokens


def test_the_mini_edition_asks_the_samples_that_minilongbench_chose(tmp_path: Path) -> None:
    rows = [longbench_row(n, 200 + n) for n in range(6)]
    write_rows(tmp_path / "hotpotqa.jsonl", rows)
    options = {"dataset": "hotpotqa", "data": str(tmp_path), "edition": "mini"}
    with pytest.raises(SourceError, match=r"0 of the \d+ samples of MiniLongBench") as caught:
        registry.task(TaskSpec(name="longbench_dataset", options=options)).sources()
    assert "hotpotqa.jsonl" in str(caught.value.where)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the golden files")
@pytest.mark.parametrize("name", ["multifieldqa_zh", "passage_retrieval_zh"])
def test_the_mini_edition_is_the_published_prompts_of_minilongbench(tmp_path: Path, name: str) -> None:
    """The contexts and questions of the samples chosen stand in the prompts that MiniLongBench published."""
    for archive in ("longbench_data", "minilongbench"):
        with tarfile.open(SHARED / f"{archive}.tar.xz") as file:
            file.extractall(tmp_path, filter="data")
    [published] = tmp_path.rglob(f"MiniLongBench_{name}.json")
    prompts = [row["origin_prompt"] for row in json.loads(published.read_text()).values()]
    options = {"dataset": name, "data": str(tmp_path / "longbench_data"), "edition": "mini"}
    task = registry.task(TaskSpec(name="longbench_dataset", options=options))
    assert isinstance(task, LongBench)
    samples = task.opened().samples
    assert len(samples) == len(prompts) == 15
    assert all(s.context in prompt and s.question in prompt for s, prompt in zip(samples, prompts, strict=True))


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the golden files")
def test_the_samples_of_minilongbench_are_all_among_those_of_longbench(tmp_path: Path) -> None:
    """Published predictions have the references and lengths of every sample, in the order of the data."""
    with tarfile.open(SHARED / "longbench.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    for name, chosen in mini_samples().items():
        rows = [
            json.loads(line)
            for line in (tmp_path / f"longbench/pred/llama3-8b-instruct/{name}.jsonl").read_text().splitlines()
        ]
        found = [
            sample_digest(BenchmarkSample("", "", "", r["answers"], groups={"length": str(r["length"])})) for r in rows
        ]
        assert [digest for digest in found if digest in chosen] == chosen


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the golden files")
def test_the_real_files_are_read_and_a_perfect_reader_gets_full_marks(tmp_path: Path) -> None:
    with tarfile.open(SHARED / "longbench_data.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    for name in ("multifieldqa_zh", "passage_retrieval_zh"):
        task = {"name": "longbench_dataset", "dataset": name, "data": str(tmp_path), "answer_tokens": 512}
        records = run(tmp_path / name, task, lengths="16k", samples=20)
        assert len(records) == 20
        assert all(r.score == 1.0 for r in records)


def test_a_template_file_has_a_section_for_each_data_set(folder: Path) -> None:
    templates = folder / "official.toml"
    templates.write_text('[hotpotqa]\nquestion = "\\n\\nQ: {input}\\nA:"\n[trec]\ninstruction = "Type?\\n"\n')
    tasks = [
        TaskSpec(name="longbench_dataset", label=name, options={"dataset": name, "data": str(folder)})
        for name in ("hotpotqa", "trec")
    ]
    first, second = with_templates(tasks, templates)
    assert first.options["wording"] == {"question": ("\n\nQ: {input}\nA:",)}
    assert second.options["wording"] == {"instruction": ("Type?\n",)}


# --- in the report ---------------------------------------------------------------------------------


def test_the_score_without_the_text_stands_beside_each_data_set(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that has read nothing but the question names the keeper it asks for in two of five."""
    model = folder / "model.py"
    model.write_text(
        "import re\n"
        "def generate(prompt: str) -> str:\n"
        "    number = int(re.search(r'Who keeps lamp (\\d+)', prompt)[1])\n"
        "    return f'Keeper {number}' if 'word0' in prompt or number < 2 else 'I do not know'\n"
    )
    call = [
        "run", "longbench_dataset", "--set", "dataset=hotpotqa", "--set", f"data={folder}", "--no-context",
        "--model", f"{model}:generate", "--lengths", "8k", "--samples", "5", "--out", str(folder / "run"),
    ]  # fmt: skip
    assert run_command(call) == 0
    shown = capsys.readouterr().out
    assert "no text" in shown
    [whole, bin_] = published_scores(load_run(folder / "run"))
    assert (whole.group, bin_.group) == ("all", "0-4k")
    assert whole.score is not None
    assert whole.memory is not None
    assert (whole.score.mean, whole.memory.mean, whole.memory.n) == (1.0, 0.4, 5)
    assert whole.memory.interval.low < 0.4 < whole.memory.interval.high
    assert run_command(["report", str(folder / "run"), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)["published"][0]
    assert values["score_without_text"]["percent"] == pytest.approx(40)
    assert run_command(["report", str(folder / "run")]) == 0
    page = (folder / "run" / "report.html").read_text()
    assert '<th scope="col">no text</th>' in page
    assert "<td>40.00 (11.8–76.9)</td>" in page


@pytest.mark.parametrize("family", ["gpt4", "kimi", "claude2"])
def test_without_its_text_a_question_is_still_asked(tmp_path: Path, family: str) -> None:
    write_rows(tmp_path / "longbook_qa_eng.jsonl", [infinitebench_row(7)])
    options = {"data": str(tmp_path), "family": family, "no_context": True}
    draft = registry.task(TaskSpec(name="infinitebench_dataset", options=options)).write(
        [Cell("q", 999, None, 0)], seed=0
    )
    assert "Who keeps lamp 7?" in draft.head + draft.questions[0].text
    assert "word0" not in draft.head + draft.questions[0].text


def test_two_variants_of_one_metric_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [longbench_row(n, 50, answers=[f"total += item.price * {n}"]) for n in range(4)]
    write_rows(tmp_path / "lcc.jsonl", rows)
    base = [
        "run", "longbench_dataset", "--set", "dataset=lcc", "--set", f"data={tmp_path}", "--model", "sim:perfect",
        "--lengths", "4k", "--samples", "4",
    ]  # fmt: skip
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    for folder in (first, second):
        assert run_command([*base, "--out", folder]) == 0
    assert run_command(["rescore", second, "--scorer", "longbench.levenshtein", "--only"]) == 0
    capsys.readouterr()
    assert run_command(["compare", first, second]) != 0
    assert "not graded alike" in capsys.readouterr().err
    assert run_command(["compare", first, second, "--anyway"]) == 0
    assert "variants of code similarity; on the same answers they differ by 1.4 to 3.2" in capsys.readouterr().err
    assert run_command(["report", first, second, "-o", str(tmp_path / "page.html")]) == 0
    assert "code similarity is not one metric here" in capsys.readouterr().err
    assert run_command(["report", first, "-o", str(tmp_path / "page.html")]) == 0
    assert "not one metric" not in capsys.readouterr().err


def test_only_different_variants_of_the_same_metric_are_named() -> None:
    assert mixed_variants([("gov_report", "rouge"), ("vcsum", "rouge_zh"), ("qasper", "qa_f1")]) == []
    [said] = mixed_variants([("gov_report", "rouge"), ("longbook_sum_eng", "summary"), ("lcc", "code_similarity")])
    assert said.startswith("ROUGE-L is not one metric here")
    assert "gov_report" in said
    assert "up to ten points" in said


@pytest.mark.parametrize("name", ["math_find", "code_run"])
@pytest.mark.parametrize("common", [True, False])
def test_all_depths_of_a_generated_task_can_have_one_haystack(name: str, common: bool) -> None:
    task = registry.task(TaskSpec(name=name, options={"common_haystack": common}))
    drafts = [task.write((Cell(name, 4096, depth, 0),), seed=0) for depth in (0.0, 0.5, 1.0)]
    fillers = [draft.filler for draft in drafts]
    orders = {tuple(f.arrange(50).tolist()) if isinstance(f, Filler) else f for f in fillers}
    assert len(orders) == (1 if common else 3)
    assert len({draft.cluster for draft in drafts}) == (1 if common else 3)
    assert len({draft.id for draft in drafts}) == 3


@pytest.mark.parametrize("tokenizer", ["whitespace", "bytes", "digits_and_breaks", "unigram"])
def test_every_number_of_a_sum_has_its_operator_and_no_number_of_a_list_is_cut(tokenizer: str) -> None:
    fitter = Fitter(opened(tokenizer), completion_frame())
    for name, sample in product(("math_calc", "math_find"), range(6)):
        task = registry.task(TaskSpec(name=name))
        cell = Cell(name, 1200 + 7 * sample, 0.5 if task.has_depth else None, sample)
        document = task.document([cell], seed=1, fitter=fitter)
        [probe] = document.probes
        body = document.text[document.body_start_characters : probe.cut_characters].rstrip(" .,-")
        if name == "math_find":
            assert all(re.fullmatch(r"[1-9]\d{3}", number) for number in re.findall(r"[^\s.,-]+", body))
        else:
            assert re.fullmatch(r"[+-] \d+(?: [+-] \d+)*", body)
            steps = [int(sign + number) for sign, number in re.findall(r"([+-]) (\d+)", body)]
            assert probe.question.targets == tuple(str(total) for total in accumulate(steps))
