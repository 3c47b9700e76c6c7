"""Invented people, firms and towns: every question has one answer, told once, hop by hop."""

from __future__ import annotations

import random
import re
from itertools import pairwise
from pathlib import Path

import pytest

from leadline.core.seeds import Split
from leadline.core.spec import make_spec
from leadline.core.types import Cell, Document
from leadline.run.measure import measure
from leadline.store.runs import read_records
from leadline.tasks.qa_fiction import (
    KINDS,
    RELATIONS,
    TRADES,
    Fiction,
    NamePool,
    Relation,
    draw_path,
    pool,
    world,
    world_size,
)
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import WhitespaceTokenizer
from support.fiction_reader import read_answer
from support.fitting import fit

WORDS = WhitespaceTokenizer()


def one(task: Fiction, length: int = 2000, depth: float = 0.5, sample: int = 0) -> Document:
    return fit(task.write([Cell("qa", length, depth, sample)], seed=9), WORDS, completion_frame())


def documents_in(document: Document) -> list[str]:
    body = document.text[document.body_start_characters :]
    return [part.strip() for part in re.split(r"(?=^Document:)", body, flags=re.MULTILINE) if part.strip()]


# --- names ---


@pytest.mark.parametrize("kind", ["last", "place", "river"])
def test_no_name_stands_inside_another_and_the_sides_share_none(kind: NamePool) -> None:
    test, train = pool(kind, "test"), pool(kind, "train")
    assert not set(test) & set(train)
    everything = "\n".join((*test, *train)).lower()
    for name in (*test[:1500], *train[:300]):
        assert everything.count(name.lower()) == 1, name


def test_there_are_names_enough_for_a_million_tokens_on_both_sides() -> None:
    size = world_size(1 << 20)
    sides: tuple[Split, ...] = ("test", "train")
    for side in sides:
        assert len(pool("first", side)) * len(pool("last", side)) > 5 * size
        assert len(pool("last", side)) * len(TRADES) > 2 * size // 3


# --- the world ---


def test_a_world_has_the_documents_it_says_each_about_somebody_else() -> None:
    made = world("test", 512)
    assert len(made.documents) == len(set(made.documents)) == 512
    assert sum(len(made.entities[kind]) for kind in KINDS) == 512
    assert world("test", 512) is made
    assert not made.names & world("train", 512).names


def test_worlds_grow_with_the_length_and_lengths_share_them() -> None:
    sizes = [world_size(1 << power) for power in range(9, 21)]
    assert sizes == sorted(sizes)
    assert world_size(1024) == world_size(4096) == 512
    assert all(larger <= 2 * smaller for smaller, larger in pairwise(sizes))


def test_a_world_fills_its_length_even_when_a_token_is_a_word() -> None:
    for length in (4096, 32_768):
        words = sum(len(text.split()) for text in world("test", world_size(length)).documents)
        assert words > length


# --- questions ---


@pytest.mark.parametrize("hops", [1, 2, 3, 6])
def test_relations_lead_on_from_one_another(hops: int) -> None:
    for seed in range(50):
        path = draw_path(hops, random.Random(seed))
        assert len(path) == hops
        assert all(first.to == second.of for first, second in pairwise(path))
        assert "river" not in [relation.to for relation in path[:-1]]


@pytest.mark.parametrize("hops", [1, 2, 4])
def test_the_answer_is_told_once_and_every_hop_in_a_document_of_its_own(hops: int) -> None:
    for sample in range(8):
        document = one(Fiction(hops=hops), sample=sample)
        [probe] = document.probes
        gold = [fact.text for fact in document.planted(probe)]
        assert len(set(gold)) == hops
        assert document.text.count(probe.question.targets[0]) == 1
        assert sum(probe.question.targets[0] in text for text in gold) == 1
        assert probe.question.targets[0] not in probe.question.text
        assert probe.question.labels["relation"].count(".") == hops


def test_leaving_any_document_of_a_chain_out_leaves_no_answer() -> None:
    for sample in range(6):
        document = one(Fiction(hops=2, namesakes=0), sample=sample)
        [probe] = document.probes
        assert read_answer(document.text, probe.question.text) == probe.question.targets[0]
        for fact in document.planted(probe):
            assert read_answer(document.text.replace(fact.text, ""), probe.question.text) != probe.question.targets[0]


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda r: f"{r.of}.{r.name}")
def test_every_way_of_telling_a_relation_can_be_read(relation: Relation) -> None:
    wanted = f"{relation.of}.{relation.name}"
    asked = [
        d
        for d in (one(Fiction(), 900, sample=n) for n in range(70))
        if d.probes[0].question.labels["relation"] == wanted
    ]
    assert len(asked) >= 3
    assert all(read_answer(d.text, d.probes[0].question.text) == d.probes[0].question.targets[0] for d in asked)


def test_namesakes_tell_something_else_of_the_same_family_name() -> None:
    for sample in range(8):
        document = one(Fiction(namesakes=3), sample=sample)
        [probe] = document.probes
        others = [fact for fact in document.facts if "#namesake" in fact.id]
        assert len(others) == 3
        assert all(value not in probe.question.targets for value in probe.question.distractors)
        assert set(probe.question.distractors) <= {
            v for v in probe.question.distractors if any(v in f.text for f in others)
        }
        if probe.question.labels["relation"].startswith("person"):
            subject = re.search(r"([A-Z]\w+ [A-Z]\w+)(?: born| live| work)", probe.question.text)
            assert subject is not None
            assert all(subject[1].split()[1] in fact.text for fact in others)
            assert all(subject[1] not in fact.text for fact in others)


@pytest.mark.parametrize("depth", [0.0, 0.25, 0.75, 1.0])
def test_the_documents_of_a_chain_stand_around_the_asked_depth(depth: float) -> None:
    document = one(Fiction(hops=2, spread=0.2, namesakes=0), 4000, depth)
    places = sorted(fact.depth for fact in document.planted(document.probes[0]))
    low = min(max(depth - 0.1, 0.0), 0.8)
    assert places == pytest.approx([low, low + 0.2], abs=0.07)  # others may stand at the ends of the pile


def test_piles_differ_from_sample_to_sample_and_hold_no_document_twice() -> None:
    piles = [documents_in(one(Fiction(), 3000, sample=sample)) for sample in range(4)]
    assert all(len(set(pile)) == len(pile) > 40 for pile in piles)
    assert len(set(piles[0]) & set(piles[1])) < len(piles[0]) // 4


@pytest.mark.parametrize("lengths", [(4000,), (2000, 4000, 8000)])
def test_many_questions_over_one_pile_have_answers_of_their_own(lengths: tuple[int, ...]) -> None:
    cells = [Cell("qa", length, depth / 4, 1) for length in lengths for depth in range(5)]
    document = fit(Fiction(hops=2, namesakes=0).write(cells, seed=1), WORDS, completion_frame())
    assert len({probe.question.targets for probe in document.probes}) == len(cells)
    for probe in document.probes:
        assert len(document.prompt_ids(probe)) == probe.cell.length - probe.question.allowance
        assert document.text.count(probe.question.targets[0]) == 1
        assert all(fact.end <= probe.body_tokens for fact in document.planted(probe))


def test_training_and_testing_share_no_name() -> None:
    def names(split: Split) -> set[str]:
        """The family names, towns and rivers of questions and answers."""
        found: set[str] = set()
        for sample in range(30):
            [question] = Fiction(split=split, hops=2).write([Cell("qa", 2000, 0.5, sample)], seed=0).questions
            assert not callable(question.targets)
            found.update(re.findall(r"[A-Z]\w+", f"{question.text.partition('Question:')[2]} {question.targets[0]}"))
        return found - {"Which", "Who", "In", *TRADES, *pool("first", split)}

    test, train = names("test"), names("train")
    assert min(len(test), len(train)) > 30
    assert not test & train


def test_planted_lengths_are_found_again(tmp_path: Path) -> None:
    """A model that breaks down past 2k does so here, whatever it is asked."""
    spec = make_spec(
        {"model": "sim:cliff?window=2k", "tasks": ["qa_fiction_1"], "lengths": "1k,4k", "depths": 3, "samples": 5}
    )
    measure(spec, tmp_path / "run")
    scores: dict[int, list[float]] = {}
    for record in read_records(tmp_path / "run"):
        scores.setdefault(record.cell.length, []).append(record.score or 0.0)
    assert sum(scores[1024]) / 15 > 0.9
    assert sum(scores[4096]) / 15 < 0.3
