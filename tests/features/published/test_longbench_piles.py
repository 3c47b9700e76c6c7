"""LongBench's pile-shaped data sets at an exact length: what a sample needs stands at its depth, and nowhere else."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from leadline.core import registry
from leadline.core.errors import LeadlineError
from leadline.core.spec import TaskSpec, make_spec
from leadline.core.types import Cell, Document, Probe
from leadline.features.published.longbench_piles import WITH_EVIDENCE, LongBenchPile, PileName, open_pile
from leadline.run.measure import measure
from leadline.store.runs import read_records
from leadline.text.chat import completion_frame
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import WhitespaceTokenizer
from support.published_data import pile_row, write_rows

SHARED = Path(__file__).parents[4] / "shared" / "data" / "golden"
DATASETS = get_args(PileName)
LENGTH = 3000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in DATASETS:
        write_rows(tmp_path / f"{name}.jsonl", [pile_row(name, number) for number in range(120)])
    return tmp_path


def task_of(folder: Path, dataset: str, **options: object) -> LongBenchPile:
    spec = TaskSpec(name="longbench_pile", options={"dataset": dataset, "data": str(folder), **options})
    task = registry.task(spec)
    assert isinstance(task, LongBenchPile)
    return task


def document_of(task: LongBenchPile, cells: list[Cell]) -> Document:
    tokens = WhitespaceTokenizer()
    document = task.document(cells, seed=5, fitter=Fitter(tokens, completion_frame()))
    for probe in document.probes:
        ids = document.prompt_ids(probe)
        assert len(ids) == probe.cell.length - probe.question.allowance
        assert np.array_equal(tokens.encode(document.prompt_text(probe)), ids)
    return document


def cells_of(task: LongBenchPile, reading: str, sample: int = 0) -> list[Cell]:
    depths: tuple[float | None, ...] = (0.1, 0.5, 0.9) if task.has_depth else (None,)
    length = 2 * LENGTH if task.dataset == "repobench-p" else LENGTH  # all snippets of a sample are needed
    lengths = (length, 2 * length) if reading == "nested" else (length,)
    if reading == "fresh":
        return [Cell(task.dataset, length, depths[-1], sample)]
    return [Cell(task.dataset, length, depth, sample) for length in lengths for depth in depths]


def assert_evidence(dataset: str, prompt: str, probe: Probe) -> None:
    """By reading the prompt alone."""
    [target] = probe.question.targets
    body, _, asked = prompt.rpartition("\n\n") if dataset in ("trec", "lsht") else (prompt, "", prompt)
    if dataset in ("trec", "lsht"):
        mark = "Type: " if dataset == "trec" else "类别："
        solved = re.findall(rf"item (\d+) .*\n{mark}{target}$", body, re.MULTILINE)
        assert len(solved) == 1  # one demonstration of the class
        assert f"what is asked {probe.question.labels['source_id']}" not in body
        assert asked.strip().endswith(mark.strip())
    elif "retrieval" in dataset:
        number = re.findall(r"the summary of item (\d+)", prompt)[0]
        found = re.findall(rf"(\S+ ?\d+)[:：] ?item {number} ", prompt)
        assert found == [target]
    elif dataset == "repobench-p":
        number = re.findall(r"^c = C(\d+)$", prompt, re.MULTILINE)[0]
        assert prompt.count(f"class C{number}:") == 1
        assert prompt.count(f"class C{int(number) + 11}:") == 1  # the last of its snippets
    elif dataset == "dureader":
        number = re.findall(r"灯塔(\d+)号由谁看管", prompt)[0]
        assert prompt.count(f"灯塔{number}号由第") == 2  # both articles, once each
        assert "文章" not in prompt.partition("标题")[2].partition("\n\n请")[0]  # numbers of articles are left out
    elif dataset == "passage_count":
        whole = set(re.findall(r"^Paragraph: (item \d+) ", prompt, re.MULTILINE))
        assert len(whole) - 1 <= int(target) <= len(whole) + 1  # one may have lost its beginning
        assert len(whole) < prompt.count("Paragraph: ")


@pytest.mark.slow
@pytest.mark.parametrize("reading", ["fresh", "shared", "nested"])
@pytest.mark.parametrize("dataset", DATASETS)
def test_a_pile_has_the_exact_length_and_its_evidence_once_at_the_depth(
    folder: Path, dataset: str, reading: str
) -> None:
    task = task_of(folder, dataset)
    document = document_of(task, cells_of(task, reading))
    for probe in document.probes:
        prompt = document.prompt_text(probe)
        assert_evidence(dataset, prompt, probe)
        facts = document.planted(probe)
        assert bool(facts) == (dataset in WITH_EVIDENCE)
        for fact in facts:
            assert fact.depth_asked == probe.cell.depth
            assert fact.depth == pytest.approx(fact.depth_asked, abs=0.12)


def test_a_shorter_pile_is_the_beginning_of_a_longer_one(folder: Path) -> None:
    task = task_of(folder, "passage_count")
    document = document_of(task, cells_of(task, "nested"))
    short, long = sorted(document.probes, key=lambda probe: probe.cell.length)
    assert document.text[: long.cut_characters].startswith(document.text[: short.cut_characters])
    assert int(short.question.targets[0]) <= int(long.question.targets[0])


@pytest.mark.slow
def test_code_and_few_shot_piles_take_no_chat_template(folder: Path) -> None:
    for dataset in DATASETS:
        task = task_of(folder, dataset)
        draft = task.write(cells_of(task, "fresh"), seed=0)
        assert draft.templated == dataset.startswith(("passage", "dureader"))


@pytest.mark.slow
def test_a_perfect_reader_gets_full_marks_and_the_official_score_decides(folder: Path) -> None:
    tasks = [{"name": "longbench_pile", "label": name, "dataset": name, "data": str(folder)} for name in DATASETS]
    spec = make_spec({"model": "sim:perfect", "tasks": tasks, "lengths": "3k", "samples": 2, "depths": 2})
    measure(spec, folder / "run")
    records = list(read_records(folder / "run"))
    assert {r.cell.task for r in records} == set(DATASETS)
    for record in records:
        assert next(iter(record.scores)) == "longbench"
        assert record.score is not None
        assert record.score > (0.9 if record.cell.task == "repobench-p" else 0.999999)  # it ends in a full stop
        assert "sample_id" not in record.question.labels  # the sample is not the published one


@pytest.mark.slow
def test_train_and_test_have_no_item_in_common(folder: Path) -> None:
    for dataset in DATASETS:
        train, test = (set(open_pile(folder, dataset, split).bank.pieces) for split in ("train", "test"))
        bodies = [{re.sub(r"^\S+ ?\d+[:：]", "", piece) for piece in side} for side in (train, test)]
        assert bodies[0]
        assert not bodies[0] & bodies[1]


def test_a_text_without_items_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    write_rows(tmp_path / "trec.jsonl", [pile_row("trec", 0), pile_row("samsum", 1)])
    with pytest.raises(LeadlineError, match="sample 2 of trec") as caught:
        task_of(tmp_path, "trec").sources()
    assert "trec.jsonl" in str(caught.value.where)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the golden files")
def test_the_real_paragraphs_make_piles(tmp_path: Path) -> None:
    with tarfile.open(SHARED / "longbench_data.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    task = {"name": "longbench_pile", "dataset": "passage_retrieval_zh", "data": str(tmp_path)}
    spec = make_spec(
        {"model": "sim:perfect", "tasks": [task], "lengths": "4k", "samples": 2, "depths": 3, "reading": "shared"}
    )
    measure(spec, tmp_path / "run")
    records = list(read_records(tmp_path / "run"))
    assert len(records) == 6
    assert all(r.score == 1.0 and r.prompt_tokens == r.cell.length - r.question.allowance for r in records)
