"""The question before the document, after it or both, and sweeps over wordings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from leadline.cli.main import run_command as run_command
from leadline.core import registry
from leadline.core.contracts import Tokenizer
from leadline.core.errors import UsageError
from leadline.core.records import Record
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell, Document
from leadline.results.run import load_run
from leadline.store.runs import read_records
from leadline.tasks.niah import WORDINGS, Needle
from leadline.tasks.wording import WordedTask
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import ByteTokenizer, WhitespaceTokenizer
from support.fitting import fit
from support.toy_tokenizers import FAMILIES, SMALL_PROSE, toy_tokenizer

REMINDER = "Now answer the question that was asked before the text."


def document(tokens: Tokenizer | None = None, name: str = "niah", length: int = 2600, **options: object) -> Document:
    task = registry.task(TaskSpec(name=name, options=options))
    return fit(task.write([Cell(name, length, 0.4, 0)], seed=1), tokens or WhitespaceTokenizer(), completion_frame())


@pytest.mark.parametrize("name", ["niah", "kv", "vt", "lines", "qa_fiction_1"])
def test_the_question_stands_where_it_is_asked_for(name: str) -> None:
    made = {at: document(name=name, question_at=at, split="test") for at in ("after", "before", "both")}
    question = made["after"].probes[0].question.text
    for at, found in made.items():
        [probe] = found.probes
        assert probe.question.text == question
        assert (question in found.text[: found.body_start_characters]) == (at != "after")
        assert (question in probe.user_suffix) == (at != "before")
        assert (REMINDER in probe.user_suffix) == (at == "before")
        assert probe.question.labels["question_at"] == at
        assert probe.question.targets == made["after"].probes[0].question.targets


@pytest.mark.parametrize("at", ["after", "before", "both"])
def test_a_conversation_ends_with_a_turn_of_the_user(at: str) -> None:
    found = document(name="mrcr", question_at=at)
    last = found.turns(found.probes[0])[-1]
    assert last.role == "user"
    assert last.text.strip() == (REMINDER if at == "before" else found.probes[0].question.text.strip())


@pytest.mark.slow
@pytest.mark.parametrize("at", ["before", "both"])
def test_such_prompts_are_as_long_as_asked_in_every_kind_of_tokenizer(at: str) -> None:
    made: list[tuple[Tokenizer, int]] = [(toy_tokenizer(f), 2) for f in FAMILIES]
    for tokens, scale in [*made, (ByteTokenizer(), 5), (WhitespaceTokenizer(), 1)]:
        found = document(tokens, length=scale * 1201, question_at=at, haystack=SMALL_PROSE)
        [probe] = found.probes
        whole = tokens.encode(found.prompt_text(probe))
        assert len(whole) == scale * 1201 - probe.question.allowance
        assert np.array_equal(whole, found.prompt_ids(probe))


def test_a_question_before_the_document_is_not_for_documents_with_several() -> None:
    cells = [Cell("niah", 2000, depth, 0) for depth in (0.2, 0.8)]
    with pytest.raises(UsageError, match="document of its own"):
        Needle(question_at="both").write(cells, seed=0)
    assert len(Needle(question_at="after").write(cells, seed=0).questions) == 2


# --- wordings ---


def test_a_number_stands_for_one_of_the_default_texts() -> None:
    task = registry.task(TaskSpec(name="niah", options={"wording": "2"}))
    assert isinstance(task, WordedTask)
    assert task.wordings == len(WORDINGS) == 5
    assert task.texts("needle") == (WORDINGS[1],)
    made = document(haystack="noise", wording=2)
    assert all("stands beside the number" in fact.text for fact in made.facts)
    assert made.probes[0].question.labels["wording"] == "1"
    with pytest.raises(UsageError, match="there is no wording 6"):
        registry.task(TaskSpec(name="niah", options={"wording": 6}))
    with pytest.raises(UsageError, match="there is no wording all"):
        registry.task(TaskSpec(name="niah", options={"wording": "all"}))


@pytest.mark.slow
def test_the_spread_over_wordings_is_beside_the_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    command = "run niah --model sim:decay?window=1k --set wording=all --set haystack=noise --lengths 512,1k --depths 3"
    assert run_command([*command.split(), "--samples", "4", "--no-figure", "--out", str(folder)]) in (0, 1)
    printed = capsys.readouterr().out
    assert "spread over wordings" in printed
    assert "(no. " in printed
    records = list(read_records(folder))
    by_wording: dict[str, list[Record]] = {r.cell.task: [] for r in records}
    for record in records:
        by_wording[record.cell.task].append(record)
    assert sorted(by_wording) == [f"niah[wording={n}]" for n in range(1, 6)]
    assert len({tuple(r.question.targets for r in sorted(rs, key=lambda r: r.cell)) for rs in by_wording.values()}) == 1
    assert run_command(["report", str(folder), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    [*lengths, whole] = shown["wordings"]
    assert [one["length"] for one in lengths] == [512, 1024]
    means = {t: 100 * sum(r.score or 0 for r in rs) / len(rs) for t, rs in by_wording.items()}
    assert whole["percent_by_wording"] == pytest.approx({str(n): means[f"niah[wording={n}]"] for n in range(1, 6)})
    assert whole["lowest_percent"] == pytest.approx(min(means.values()))
    assert whole["mean"]["percent"] == pytest.approx(sum(means.values()) / 5)
    assert whole["standard_deviation_percent"] == pytest.approx(float(np.std(list(means.values()), ddof=1)))
    assert run_command(["report", str(folder), "-o", str(tmp_path / "page.html")]) == 0
    assert "Spread over wordings" in (tmp_path / "page.html").read_text()
    assert load_run(folder).wordings[-1].length is None


def test_without_a_sweep_over_wordings_nothing_is_said_of_them(tmp_path: Path) -> None:
    command = "run niah --model sim:perfect --set keys=1,2 --set haystack=noise --lengths 512 --depths 2 --no-figure"
    assert run_command([*command.split(), "--out", str(tmp_path / "run")]) in (0, 1)
    assert load_run(tmp_path / "run").wordings == []
