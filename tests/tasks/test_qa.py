"""Questions over piles of documents: the answer stands at its depth, in its own document, and nowhere else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

from leadline.core.answers import Completion
from leadline.core.errors import LengthError, SourceError
from leadline.core.spec import make_spec
from leadline.core.types import Cell, Document
from leadline.models.sim.model import REFUSALS
from leadline.run.measure import measure
from leadline.scorers.match import RULER_STRICT, RULER_V1
from leadline.store.runs import read_records
from leadline.tasks.qa import Questions
from leadline.tasks.question_files import TITLED, UNTITLED, open_corpus
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import ByteTokenizer, WhitespaceTokenizer
from support.fitting import fit
from support.question_data import BUILDERS, SQUAD, hotpot, squad
from support.toy_tokenizers import toy_tokenizer

WORDS = WhitespaceTokenizer()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("data")
    return {"squad": str(squad(folder / "squad.json")), "hotpot": str(hotpot(folder / "hotpot.json"))}


def written(task: Questions, *cells: Cell) -> Document:
    return fit(task.write(cells, seed=5), WORDS, completion_frame())


def one(task: Questions, length: int = 1500, depth: float = 0.5, sample: int = 0) -> Document:
    return written(task, Cell("qa", length, depth, sample))


def documents_in(document: Document) -> list[str]:
    """The documents of a prompt, heading and all; the last one may be cut."""
    body = document.text[document.body_start_characters :]
    return [part.strip() for part in re.split(r"(?=^Document:)", body, flags=re.MULTILINE) if part.strip()]


# --- what may be asked ---


def test_questions_come_with_their_answers_once_and_impossible_ones_are_left_out(files: dict[str, str]) -> None:
    both = [open_corpus(Path(files["squad"]), form=UNTITLED, split=side, most=0) for side in ("test", "train")]
    assert sum(len(corpus.questions) for corpus in both) == 144  # two of three for each of 72 paragraphs
    for corpus in both:
        for question in corpus.questions:
            assert len(set(question.answers)) == len(question.answers) == 1
            assert all(any(a in corpus.documents[d] for d in question.gold) for a in question.answers)


EXTRA = [
    {
        "title": "Odd",
        "paragraphs": [
            {
                "context": "Is the mill open? Yes. The mill of Odd grinds rye, and class P holds what it holds.",
                "qas": [
                    {"question": "Is the mill open?", "answers": [{"text": "Yes"}]},
                    {"question": "Which class holds what it holds?", "answers": [{"text": "P"}]},
                    {"question": "Does the mill of Odd grind rye or wheat?", "answers": [{"text": "rye"}]},
                    {"question": "What does the mill grind in winter?", "answers": [{"text": "barley"}]},
                    {"question": "On what do guides keep an eye?", "answers": [{"text": "the weather"}]},
                ],
            }
        ],
    }
]


def test_answers_that_say_little_or_stand_elsewhere_are_not_asked_for(tmp_path: Path) -> None:
    """yes; one letter; in the question; not in the document; in every other document of the file."""
    path = squad(tmp_path / "odd.json", extra=EXTRA)
    for side in ("test", "train"):
        corpus = open_corpus(path, form=UNTITLED, split=side, most=0)
        assert not [q for q in corpus.questions if q.answers[0] in ("Yes", "P", "rye", "barley", "the weather")]


def test_hotpot_questions_have_two_documents_and_no_yes_or_no(files: dict[str, str]) -> None:
    corpus = open_corpus(Path(files["hotpot"]), form=TITLED, split="test", most=0)
    assert corpus.questions
    assert all(len(q.gold) == 2 and q.answers != ("yes",) for q in corpus.questions)
    assert corpus.documents[corpus.questions[0].gold[0]].startswith("Document: ")


def test_of_many_questions_so_many_are_drawn_as_asked_for(files: dict[str, str]) -> None:
    few = open_corpus(Path(files["squad"]), form=UNTITLED, split="test", most=10)
    assert len(few.questions) == 10
    assert {q.text for q in few.questions} != {q.text for q in few.questions[:1]}


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"data": 3}', "not json"])
def test_a_file_in_another_format_says_so(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(SourceError, match="SQuAD"):
        one(Questions(data=str(path)))


def test_a_file_without_a_usable_question_says_so(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text('{"data": []}')
    with pytest.raises(SourceError, match="no question"):
        one(Questions(data=str(path)))


def test_data_that_is_not_here_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LEADLINE_CACHE", str(tmp_path))
    with pytest.raises(SourceError) as caught:
        one(Questions(data="squad"))
    assert "leadline sources pull squad" in caught.value.fix
    with pytest.raises(SourceError, match="no data file"):
        one(Questions(data="nowhere.json"))


# --- the pile ---


@pytest.mark.parametrize("name", ["squad", "hotpot"])
@pytest.mark.parametrize("depth", [0.0, 0.3, 0.7, 1.0])
def test_the_document_that_answers_stands_at_the_asked_depth(files: dict[str, str], name: str, depth: float) -> None:
    for sample in range(3):
        document = one(Questions(data=files[name], spread=0.1), 1500, depth, sample)
        [probe] = document.probes
        starts = [fact.depth for fact in document.planted(probe)]
        assert len(starts) == {"squad": 1, "hotpot": 2}[name]
        assert sum(starts) / len(starts) == pytest.approx(
            min(max(depth, 0.05), 0.95) if name == "hotpot" else depth, abs=0.06
        )
        assert probe.question.labels["hops"] == str(len(starts))


def test_the_answer_stands_in_its_own_document_and_in_no_other(files: dict[str, str]) -> None:
    for name in ("squad", "hotpot"):
        for sample in range(8):
            document = one(Questions(data=files[name]), 1500, 0.5, sample)
            [probe] = document.probes
            gold = {fact.text for fact in document.planted(probe)}
            for target in probe.question.targets:
                assert {text for text in documents_in(document) if target in text} <= gold
                assert document.text.count(target) >= 1


def test_no_document_stands_in_a_pile_twice(files: dict[str, str]) -> None:
    for sample in range(6):
        documents = documents_in(one(Questions(data=files["squad"]), 1500, 0.5, sample))
        assert len(documents) > 15
        assert len(set(documents)) == len(documents)


def test_documents_of_the_same_article_come_first_and_anywhere(files: dict[str, str]) -> None:
    """In a short pile most documents are of the town that is asked about; with related=false few are."""

    def of_the_town(related: bool) -> tuple[float, set[int]]:
        shares, places = [], set()
        for sample in range(8):
            document = one(Questions(data=files["squad"], related=related), 500, 1.0, sample)
            [probe] = document.probes
            town = probe.question.text.split(" of ")[-1].split()[0].rstrip("?")
            others = [text for text in documents_in(document) if text not in {f.text for f in document.facts}]
            hits = [number for number, text in enumerate(others) if town in text]
            shares.append(len(hits) / len(others))
            places.update(hits)
        return float(np.mean(shares)), places

    near, places = of_the_town(True)
    far, _ = of_the_town(False)
    assert near > 0.4 > 0.25 > far
    assert len(set(range(max(places) + 1)) - places) <= 1  # the document that is cut is one of the others


def test_too_few_documents_say_how_much_is_missing_unless_they_may_repeat(files: dict[str, str]) -> None:
    with pytest.raises(SourceError, match=r"missing") as caught:
        one(Questions(data=files["squad"]), 20_000)
    assert "repeat=true" in caught.value.fix
    document = one(Questions(data=files["squad"], repeat=True), 20_000)
    assert document.probes[0].prompt_tokens == 20_000 - 32


def test_a_length_that_cannot_hold_the_documents_has_a_floor(files: dict[str, str]) -> None:
    with pytest.raises(LengthError) as caught:
        one(Questions(data=files["squad"]), 80)
    assert caught.value.shortest is not None
    one(Questions(data=files["squad"]), caught.value.shortest + 200)


def test_samples_of_a_cell_ask_different_questions(files: dict[str, str]) -> None:
    asked = [one(Questions(data=files["squad"]), 1500, 0.5, sample).probes[0].question.text for sample in range(40)]
    assert len(set(asked)) == 40


# --- reading modes ---


@pytest.mark.parametrize("name", ["squad", "hotpot"])
@pytest.mark.parametrize("lengths", [(2000,), (1400, 2000)])
def test_many_questions_are_asked_over_one_pile_and_none_answers_another(
    files: dict[str, str], name: str, lengths: tuple[int, ...]
) -> None:
    cells = [Cell("qa", length, depth, 3) for length in lengths for depth in (0.0, 0.5, 1.0)]
    document = written(Questions(data=files[name]), *cells)
    assert [p.cell for p in document.probes] == cells
    assert len({p.question.text for p in document.probes}) == len(cells)
    for probe in document.probes:
        assert len(document.prompt_ids(probe)) == probe.cell.length - probe.question.allowance
        gold = {fact.text for fact in document.planted(probe)}
        for target in probe.question.targets:
            assert {text for text in documents_in(document) if target in text} <= gold
        assert all(fact.end <= probe.body_tokens for fact in document.planted(probe))
        assert probe.question.targets[0] in document.text[: probe.cut_characters]


@pytest.mark.parametrize("family", ["gpt2", "llama2", "digits", "bytes"])
def test_prompts_are_exact_in_other_tokenizers(files: dict[str, str], family: str) -> None:
    tokens = ByteTokenizer() if family == "bytes" else toy_tokenizer(family)
    for depth in (0.0, 0.6, 1.0):
        draft = Questions(data=files["squad"]).write([Cell("qa", 4096, depth, 1)], seed=2)
        document = fit(draft, tokens, completion_frame())
        [probe] = document.probes
        assert len(document.prompt_ids(probe)) == 4096 - 32
        assert np.array_equal(tokens.encode(document.prompt_text(probe)), document.prompt_ids(probe))


# --- scores, and without the document ---


def test_any_one_of_several_answers_is_right_and_a_refusal_is_not(files: dict[str, str]) -> None:
    [probe] = one(Questions(data=files["squad"])).probes
    question = msgspec.structs.replace(probe.question, targets=(*probe.question.targets, "the mason"))
    for scorer in (RULER_V1, RULER_STRICT):
        assert scorer.score(question, Completion(f" {question.targets[0]}")).value == 1
        assert scorer.score(question, Completion(" the mason")).value == 1
        assert all(scorer.score(question, Completion(words)).value == 0 for words in ("", *REFUSALS))


def test_without_the_document_the_same_questions_are_asked_and_nothing_else(files: dict[str, str]) -> None:
    cell = Cell("qa[no context]", 1500, 0.5, 2)
    read = one(Questions(data=files["squad"]), sample=2)
    bare = written(Questions(data=files["squad"], no_context=True), cell)
    [probe] = bare.probes
    assert (probe.question.text, probe.question.targets) == (
        read.probes[0].question.text,
        read.probes[0].question.targets,
    )
    assert bare.prompt_text(probe) == f"{probe.question.text}\nAnswer:"
    assert probe.question.labels["no_context"] == "true"
    assert probe.prompt_tokens == len(WORDS.encode(bare.prompt_text(probe)))
    assert not any(name in bare.prompt_text(probe) for name in BUILDERS)


def test_a_run_keeps_answers_from_memory_beside_the_others(files: dict[str, str], tmp_path: Path) -> None:
    tasks = [
        {"name": "qa_1", "options": {"data": files["squad"]}},
        {"name": "qa_1", "label": "qa_1[no context]", "options": {"data": files["squad"], "no_context": True}},
    ]
    spec = make_spec({"model": "sim:perfect", "tasks": tasks, "lengths": "1k", "depths": 3, "samples": 2})
    summary = measure(spec, tmp_path / "run")
    assert (summary.totals.done, summary.totals.failed, summary.totals.receipts.different) == (12, 0, 0)
    records = list(read_records(tmp_path / "run"))
    bare = {r.cell.sample: r for r in records if "no_context" in r.question.labels and r.cell.depth == 0.5}
    read = {r.cell.sample: r for r in records if "no_context" not in r.question.labels and r.cell.depth == 0.5}
    assert [bare[n].question.text for n in bare] == [read[n].question.text for n in bare]
    assert {r.score for r in bare.values()} == {0.0}
    assert max(r.score or 0 for r in read.values()) == 1.0  # a simulated model quotes the nearest sentence


# --- the real file, where it is ---


@pytest.mark.skipif(not SQUAD.is_file(), reason="the SQuAD file is not on this machine")
def test_real_questions_stand_alone_in_piles_of_real_documents() -> None:
    task = Questions(data=str(SQUAD), questions=300)
    seen = set()
    for sample in range(12):
        document = one(task, 4000, sample / 11, sample)
        [probe] = document.probes
        gold = {fact.text for fact in document.planted(probe)}
        for target in probe.question.targets:
            whole = re.compile(rf"(?<!\w){re.escape(target)}(?!\w)", re.IGNORECASE)
            assert {text for text in documents_in(document) if whole.search(text)} <= gold
        seen.add(probe.question.text)
        assert abs(document.facts[0].depth - sample / 11) < 0.05
    assert len(seen) == 12


def test_musique_is_read_with_its_supporting_paragraphs_as_evidence(tmp_path: Path) -> None:
    questions = json.loads(hotpot(tmp_path / "hotpot.json").read_text())
    lines = []
    for asked in questions:
        needed = {title for title, _ in asked["supporting_facts"]}
        paragraphs = [
            {"idx": n, "title": title, "paragraph_text": "".join(text), "is_supporting": title in needed}
            for n, (title, text) in enumerate(asked["context"])
        ]
        row = {"id": "2hop", "question": asked["question"], "answer": asked["answer"], "paragraphs": paragraphs}
        lines.append(json.dumps(row | {"answer_aliases": [], "answerable": True}))
    lines.append(json.dumps({"id": "x", "question": "No?", "answer": "no", "paragraphs": [], "answerable": False}))
    path = tmp_path / "musique.jsonl"
    path.write_text("\n".join(lines) + "\n")
    ours = open_corpus(path, form=TITLED, split="test", most=0)
    theirs = open_corpus(tmp_path / "hotpot.json", form=TITLED, split="test", most=0)
    assert ours.documents == theirs.documents
    assert [(q.text, q.answers, q.gold) for q in ours.questions] == [
        (q.text, q.answers, q.gold) for q in theirs.questions
    ]
