"""Needles that do not match literally, that are told in pieces, or that have distractors which are nearly right."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from leadline.core.contracts import Tokenizer
from leadline.core.errors import UsageError
from leadline.core.registry import task as find_task
from leadline.core.spec import TaskSpec, make_spec
from leadline.core.types import Cell, Document
from leadline.run.measure import measure
from leadline.scorers.trivial_readers import mean_scores, trivial_scores
from leadline.stats.intervals import mean_interval
from leadline.store.runs import read_records
from leadline.tasks.niah import OPTION_TASKS, PREFIX, QUESTIONS, KeyedNeedles, Needle
from leadline.tasks.niah_forms import (
    ASSOCIATION_WORDINGS,
    HALF,
    PARAPHRASE_WORDINGS,
    NeedleForms,
    associations,
    content_words,
    lexical_overlap,
    paraphrases,
    split_value,
)
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import ByteTokenizer, WhitespaceTokenizer
from support.fitting import fit
from support.toy_tokenizers import FAMILIES, SMALL_PROSE, toy_tokenizer

FORMS: list[dict[str, Any]] = [
    {"order": "shuffled", "haystack": "prose", "repeat": False},
    {"match": "paraphrase"},
    {"match": "association"},
    {"pieces": 2},
    {"pieces": 3, "value_kind": "uuids"},
    {"hard": "qualifier"},
    {"hard": "near_miss"},
    {"hard": "contradiction"},
]


def needle(**options: object) -> KeyedNeedles:
    task = Needle if "order" in options else NeedleForms
    return task.model_validate({"haystack": SMALL_PROSE, "repeat": True, **options})


def document(task: KeyedNeedles, *cells: Cell, tokens: Tokenizer | None = None) -> Document:
    return fit(task.write(cells, seed=1), tokens or WhitespaceTokenizer(), completion_frame())


def without_placeholders(*texts: str) -> str:
    return re.sub(r"\{\w+\}", " ", " ".join(texts))


def named(options: Mapping[str, object]) -> str:
    return " ".join(f"{key}={value}" for key, value in options.items())


# --- the tables ---


def test_no_association_is_given_away_by_a_word() -> None:
    asked = content_words(without_placeholders(*QUESTIONS, PREFIX) + " number numbers word words code codes person")
    said = content_words(without_placeholders(*ASSOCIATION_WORDINGS))
    entries = associations()
    assert len(entries) >= 300
    assert len({e.clue for e in entries}) == len(entries)
    for entry in entries:
        concept, clue = content_words(entry.concept), content_words(entry.clue)
        assert not clue & (concept | asked), entry
        assert not said & (concept | asked), entry


def test_enough_associations_can_stand_in_one_document() -> None:
    """88 needles are those of a nested reading of eight lengths and eleven depths."""
    alone = {e.concept for e in associations() if not e.groups}
    groups = {group for e in associations() for group in e.groups}
    assert len(alone) + len(groups) >= 88


def test_no_place_says_which_association_is_asked_for_and_nobody_asks_for_those_at_the_ends() -> None:
    task = needle(match="association", haystack="noise")
    before: set[int] = set()
    for sample in range(6):
        text = document(task, *(Cell("niah", 12000, depth / 10, sample) for depth in range(11)))
        at_ends = [fact for fact in text.facts if "#before" in fact.id or "#after" in fact.id]
        assert len(text.facts) - len(at_ends) == 11
        before.add(len([fact for fact in at_ends if "#before" in fact.id]))
        unasked = {entry.concept for fact in at_ends for entry in associations() if f" {entry.clue}" in fact.text}
        assert unasked
        assert not any(concept in probe.question.text for probe in text.probes for concept in unasked)
    assert len(before) > 3


def test_paraphrases_have_no_word_on_both_sides() -> None:
    pairs = [pair for section in paraphrases().values() for pair in section]
    said = content_words(" ".join(said for said, _ in pairs) + without_placeholders(*PARAPHRASE_WORDINGS))
    asked = content_words(" ".join(asked for _, asked in pairs) + without_placeholders(*QUESTIONS, PREFIX) + " number")
    assert not said & asked
    for side in (0, 1):
        assert len({pair[side] for pair in pairs}) == len(pairs)


def test_the_overlap_counts_words_and_not_their_endings() -> None:
    assert lexical_overlap("Which number belongs to misty-harbor?", "The numbers kept for misty-harbor") == 0.75
    assert lexical_overlap("Who was in London?", "set a wristwatch by Big Ben") == 0.0


# --- documents ---


@pytest.mark.parametrize(
    ("match", "least", "most"), [("literal", 0.4, 1.0), ("paraphrase", 0, 0), ("association", 0, 0)]
)
def test_the_overlap_is_on_the_record(match: str, least: float, most: float) -> None:
    for sample in range(20):
        [probe] = document(needle(match=match), Cell("niah", 1024, 0.5, sample)).probes
        assert least <= float(probe.question.labels["overlap"]) <= most
        assert probe.question.labels["match"] == match


@pytest.mark.slow
@pytest.mark.parametrize("options", FORMS, ids=named)
def test_every_form_is_as_long_as_asked_in_every_kind_of_tokenizer(options: dict[str, Any]) -> None:
    made: list[tuple[Tokenizer, int]] = [(toy_tokenizer(f), 2) for f in FAMILIES]
    for tokens, scale in [*made, (ByteTokenizer(), 5), (WhitespaceTokenizer(), 1)]:
        for depth in (0.0, 0.4, 1.0):
            found = document(needle(**options), Cell("niah", scale * 1203, depth, 1), tokens=tokens)
            [probe] = found.probes
            whole = tokens.encode(found.prompt_text(probe))
            assert len(whole) == scale * 1203 - probe.question.allowance
            assert np.array_equal(whole, found.prompt_ids(probe))


@pytest.mark.parametrize("options", [form for form in FORMS if "order" not in form], ids=named)
@pytest.mark.parametrize("lengths", [(4000,), (3000, 6000)])
def test_one_document_answers_all_depths_and_lengths(options: dict[str, Any], lengths: tuple[int, ...]) -> None:
    cells = [Cell("niah", length, depth, 2) for length in lengths for depth in (0.0, 0.5, 1.0)]
    found = document(needle(**options), *cells)
    for probe in found.probes:
        body = found.text[found.body_start_characters : probe.cut_characters]
        [target] = probe.question.targets
        assert body.count(target) == (0 if "pieces" in options else 1)
        planted = found.planted(probe)
        assert len(planted) == max(options.get("pieces", 1), 1)
        assert all(fact.end <= probe.body_tokens for fact in planted)
    assert len({p.question.text for p in found.probes}) == len(cells)


@pytest.mark.slow
@pytest.mark.parametrize("options", FORMS, ids=named)
def test_readers_that_ignore_the_question_are_at_chance(options: dict[str, Any]) -> None:
    found = mean_scores(trivial_scores(needle(**{"haystack": "prose", "repeat": False, **options}), "niah", samples=8))
    assert all(value <= 0.4 for value in found.values()), found
    assert found["only"] == 0.0


@pytest.mark.parametrize("kind", ["numbers", "uuids"])
@pytest.mark.parametrize("pieces", [2, 3])
def test_a_value_in_pieces_needs_all_of_them(kind: str, pieces: int) -> None:
    task = needle(pieces=pieces, value_kind=kind, spread=0.6)
    found = document(task, Cell("niah", 4000, 0.5, 0))
    [probe] = found.probes
    [target] = probe.question.targets
    told = split_value(target, task.value_kind, pieces)
    assert ("" if kind == "numbers" else "-").join(told) == target
    assert probe.question.mistakes == {HALF: told}
    planted = found.planted(probe)
    for fact, piece in zip(planted, told, strict=True):
        assert piece in fact.text
        assert target not in fact.text
    assert planted[-1].depth - planted[0].depth == pytest.approx(0.6, abs=0.05)


def test_words_have_two_pieces_and_no_three() -> None:
    assert split_value("misty-harbor", "words", 2) == ("misty", "harbor")
    with pytest.raises(UsageError, match="three parts"):
        find_task(TaskSpec(name="niah_forms", options={"pieces": 3, "value_kind": "words"}))


@pytest.mark.parametrize(
    "options",
    [
        {"match": "association", "pieces": 2},
        {"pieces": 2, "hard": "near_miss"},
        {"hard": "qualifier", "haystack": "needles"},
    ],
)
def test_forms_that_exclude_each_other_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        find_task(TaskSpec(name="niah_forms", options=options))


@pytest.mark.parametrize("depth", [0.0, 0.3, 1.0])
def test_the_later_mention_is_the_one_that_counts(depth: float) -> None:
    for sample in range(4):
        found = document(needle(hard="contradiction"), Cell("niah", 1500, depth, sample))
        [probe] = found.probes
        [[stale]] = probe.question.mistakes.values()
        assert found.text.index(stale) < found.text.index(probe.question.targets[0])
        assert "later mention counts" in found.text[: found.body_start_characters]


def test_hard_distractors_are_nearly_the_key() -> None:
    found = document(needle(hard="near_miss"), Cell("niah", 1500, 0.5, 0))
    keys = [re.findall(r"[a-z]+-[a-z]+", fact.text)[0] for fact in found.facts]
    first, *others = (key.split("-") for key in keys)
    assert len(set(keys)) == 4
    assert all(sum(a == b for a, b in zip(first, other, strict=True)) == 1 for other in others)
    found = document(needle(hard="qualifier"), Cell("niah", 1500, 0.5, 0))
    keys = [re.findall(r"([a-z]+-[a-z]+) at the \w+ \w+", fact.text)[0] for fact in found.facts]
    assert len(set(keys)) == 1


# --- planted profiles ---


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("options", "failure_class", "detail"),
    [
        ({"pieces": 2}, "wrong", HALF),
        ({"hard": "contradiction"}, "distractor", "stale fact"),
        ({"hard": "near_miss"}, "distractor", "near-miss key"),
        ({"hard": "qualifier"}, "distractor", "same key, another qualifier"),
    ],
)
def test_a_planted_share_of_mistakes_is_recovered(
    options: dict[str, Any], failure_class: str, detail: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run") / "run"
    spec = make_spec(
        {
            "model": "sim:perfect?mistake=0.3",
            "tasks": [{"name": "niah_forms", "options": {"haystack": "noise", **options}}],
            "lengths": "600,900",
            "depths": "0.2,0.5,0.8",
            "samples": 20,
        }
    )
    measure(spec, folder)
    records = list(read_records(folder))
    shown = [float((r.failure_class, r.detail) == (failure_class, detail)) for r in records]
    found = mean_interval(shown, [r.cluster for r in records])
    assert found.interval.low <= 0.3 <= found.interval.high
    assert sum(shown) == sum(r.failure_class != "correct" for r in records)


# --- the order of the haystack ---


@pytest.mark.parametrize("haystack", ["prose", SMALL_PROSE], ids=["generated", "file"])
def test_a_shuffled_haystack_has_the_same_sentences_in_another_order(haystack: str) -> None:
    made = [
        document(needle(haystack=haystack, repeat=False, order=order), Cell("niah", 4000, 0.5, 0))
        for order in ("coherent", "shuffled")
    ]
    told = [re.split(r"(?<=[.!?])\s+", d.text[d.body_start_characters :]) for d in made]
    coherent, shuffled = told
    assert len(set(coherent) & set(shuffled)) > 0.9 * len(set(coherent))
    places = [coherent.index(sentence) for sentence in shuffled if sentence in coherent]
    neighbours = sum(b == a + 1 for a, b in pairwise(places))
    assert neighbours < 0.1 * len(places)
    assert made[0].probes[0].question.targets == made[1].probes[0].question.targets
    assert haystack != "prose" or not re.search(r"[a-z][.!?][A-Z][a-z]", made[1].text)


def test_a_shuffled_haystack_is_not_read_nested() -> None:
    with pytest.raises(UsageError, match="another order at each length"):
        needle(order="shuffled").write([Cell("niah", n, 0.5, 0) for n in (2000, 4000)], seed=0)


def test_there_are_no_more_keys_than_qualifiers() -> None:
    assert len(NeedleForms(hard="qualifier", keys=40).write([Cell("niah", 4096, 0.5, 0)], seed=0).facts) == 40
    with pytest.raises(ValueError, match="40 qualifiers"):
        NeedleForms(hard="qualifier", keys=41)


# --- which task has which option ---


def test_without_an_option_needles_are_paraphrased() -> None:
    plain, paraphrased = (
        document(needle(**form), Cell("niah", 1024, 0.5, 0)) for form in ({}, {"match": "paraphrase"})
    )
    assert plain.text == paraphrased.text
    assert plain.probes[0].question.labels["match"] == "paraphrase"


@pytest.mark.parametrize(
    ("task", "option", "value", "named"),
    [
        ("niah", "hard", "near_miss", "niah_forms"),
        ("niah_single_1", "match", "literal", "niah_forms"),
        ("niah", "needle", "A fact.", "niah_own"),
        ("niah_forms", "language", "de", "niah"),
        ("niah_forms", "answers", ["18"], "niah_own"),
        ("niah_own", "keys", 4, "niah"),
        ("niah_own", "pieces", 2, "niah_forms"),
    ],
)
def test_an_option_of_another_needle_task_is_refused_with_the_name_of_that_task(
    task: str, option: str, value: object, named: str
) -> None:
    with pytest.raises(UsageError) as refused:
        find_task(TaskSpec(name=task, options={option: value}))
    assert refused.value.what == f"{option} is an option of the task {named}"
    assert refused.value.where == f"task {task}"
    assert refused.value.fix.startswith(f"name {named} in place of this task")


def test_every_option_has_the_task_that_takes_it() -> None:
    for option, name in OPTION_TASKS.items():
        assert option in type(find_task(TaskSpec(name=name))).model_fields
