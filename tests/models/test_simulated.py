"""Simulated models answer from the probe, the same in any order, and fail in the way their archetype says."""

from __future__ import annotations

import dataclasses
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from leadline.core.answers import Completion, Failure
from leadline.core.errors import UnknownName, UsageError
from leadline.core.records import FailureClass, Receipt
from leadline.core.types import Cell, Document, ValueKind
from leadline.models.sim.model import ARCHETYPES, NEVER_RIGHT, Simulated, needed_values
from leadline.scorers.failure import classify
from leadline.scorers.match import ALL, ANY, RULER_STRICT
from leadline.tasks.niah import Needle
from leadline.tasks.niah_own import OwnNeedle
from leadline.text.chat import completion_frame
from support.fitting import fit
from support.simulated_grid import WORDS, needle_documents, open_simulated, reply, scored, text_document

KINDS: tuple[ValueKind, ...] = ("words", "numbers", "uuids")
PLAIN = Needle(haystack="noise", keys=4)


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return needle_documents(PLAIN, [400, 800], [0.0, 0.5, 1.0], 8)


# --- reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize("haystack", ["noise", "prose"])
@pytest.mark.parametrize("key_kind", KINDS)
@pytest.mark.parametrize("value_kind", KINDS)
def test_a_perfect_model_reads_every_kind_of_needle(haystack: str, key_kind: ValueKind, value_kind: ValueKind) -> None:
    model = open_simulated("sim:perfect")
    for counts in ({"keys": 1}, {"keys": 4}, {"values": 4}, {"queries": 4}, {"keys": 5, "queries": 2, "values": 2}):
        task = Needle(haystack=haystack, key_kind=key_kind, value_kind=value_kind, **counts)
        for document in needle_documents(task, [700], [0.4], 2):
            probe, completion = document.probes[0], reply(model, document)
            assert RULER_STRICT.score(probe.question, completion).value == 1.0, (
                probe.question.text,
                probe.question.targets,
                completion.text,
            )


def test_every_question_of_a_shared_and_of_a_nested_document_is_answered() -> None:
    model = open_simulated("sim:perfect")
    depths = (0.0, 0.25, 0.5, 0.75, 1.0)
    shared = [Cell("niah", 900, depth, 0) for depth in depths]
    nested = [Cell("niah", length, depth, 0) for length in (300, 600, 900) for depth in depths]
    for cells in (shared, nested):
        document = fit(Needle(haystack="noise").draft(cells, seed=3), WORDS, completion_frame())
        answers = model.answer(document, document.probes)
        for probe, answer in zip(document.probes, answers, strict=True):
            assert isinstance(answer.outcome, Completion)
            assert ALL.score(probe.question, answer.outcome).value == 1.0


def test_a_needle_of_the_users_own_is_answered_with_one_of_its_answers() -> None:
    task = OwnNeedle(
        haystack="prose",
        needle="The keeper of the northern lighthouse paints his boat blue every spring.",
        question="Which colour does the keeper of the lighthouse give his boat?",
        answers=("blue", "azure"),
    )
    for document in needle_documents(task, [900], [0.0, 0.5, 1.0], 1):
        assert reply(open_simulated("sim:perfect"), document).text == " blue."


def test_each_target_is_drawn_by_the_depth_of_its_own_fact() -> None:
    task = Needle(haystack="noise", values=4, spread=1.0)
    [document] = needle_documents(task, [1000], [0.5], 1)
    [probe] = document.probes
    assert [v.text for v in needed_values(document, probe)] == list(probe.question.targets)
    assert [v.depths for v in needed_values(document, probe)] == [(f.depth,) for f in document.planted(probe)]
    model = open_simulated("sim:recency?window=500")
    seen = [
        t for t, f in zip(probe.question.targets, document.planted(probe), strict=True) if (1 - f.depth) * 1000 <= 500
    ]
    answer = reply(model, document).text
    assert [t for t in probe.question.targets if t in answer] == seen
    assert 0 < len(seen) < 4


def test_without_facts_the_cells_depth_counts_or_all_depths() -> None:
    for depth in (None, 0.25):
        document = text_document("fire water fire", "Which word is most common?", targets=("fire",), depth=depth)
        assert [v.depths for v in needed_values(document, document.probes[0])] == [(depth,)]


def test_nothing_is_found_in_an_empty_document() -> None:
    document = text_document("", "Which number belongs to misty-harbor?", targets=("4821907",))
    probe, completion = document.probes[0], reply(open_simulated("sim:perfect"), document)
    scores = {"match.all": ALL.score(probe.question, completion)}
    assert classify(probe.question, completion, scores, Receipt(10, 10))[0] == "not_found"


def test_a_mistake_is_a_distractor_or_else_a_misread_value() -> None:
    model = open_simulated("sim:cliff?window=100")
    for keys, expected in ((4, "distractor"), (1, "wrong")):
        task = Needle(haystack="noise", keys=keys)
        found = set()
        for document in needle_documents(task, [400], [0.5], 30):
            probe, completion = document.probes[0], reply(model, document)
            found.add(
                classify(probe.question, completion, {"s": ALL.score(probe.question, completion)}, Receipt(1, 1))[0]
            )
        assert expected in found


# --- answering ----------------------------------------------------------------------------------


def test_answers_are_the_same_in_any_order_and_from_many_threads(documents: list[Document]) -> None:
    name = "sim:decay?window=600&slope=1"
    straight = {d.id: reply(open_simulated(name), d) for d in documents}
    mixed = documents * 3
    random.Random(1).shuffle(mixed)
    model = open_simulated(name)
    with ThreadPoolExecutor(8) as pool:
        for document, completion in zip(mixed, pool.map(lambda d: reply(model, d), mixed), strict=True):
            assert completion == straight[document.id]


def test_another_seed_errs_on_other_samples(documents: list[Document]) -> None:
    one, same, other = (open_simulated(f"sim:decay?window=600&seed={seed}") for seed in (1, 1, 2))
    first = [scored(one, d) for d in documents]
    assert first == [scored(same, d) for d in documents]
    assert first != [scored(other, d) for d in documents]


def test_with_one_seed_a_weaker_model_errs_where_the_stronger_does_and_more(documents: list[Document]) -> None:
    weaker, stronger = open_simulated("sim:decay?window=400"), open_simulated("sim:decay?window=1600")
    pairs = [(scored(weaker, d), scored(stronger, d)) for d in documents]
    assert all(low <= high for low, high in pairs)
    assert any(low < high for low, high in pairs)


def test_the_receipt_is_counted_from_what_was_sent(documents: list[Document]) -> None:
    model = open_simulated("sim:perfect")
    for document in documents[::7]:
        probe = document.probes[0]
        answer = model.answer(document, [dataclasses.replace(probe, prompt_tokens=1)])[0]
        assert isinstance(answer.outcome, Completion)
        assert answer.outcome.prompt_tokens == len(WORDS.encode(document.prompt_text(probe)))
        assert answer.sent.characters == len(document.prompt_text(probe))


def test_an_answer_never_exceeds_its_allowance(documents: list[Document]) -> None:
    for name in ("sim:wanders", "sim:perfect"):
        document = documents[0]
        short = dataclasses.replace(
            document.probes[0], question=msgspec.structs.replace(document.probes[0].question, allowance=1)
        )
        completion = reply(open_simulated(name), document, short)
        assert (len(WORDS.encode(completion.text)), completion.completion_tokens) == (1, 1)
        assert (completion.finish == "length") is (name == "sim:wanders")


def test_a_wrong_answer_is_wrong_in_the_ways_of_real_models() -> None:
    model = open_simulated("sim:cliff?window=100")
    classes = set()
    for document in needle_documents(PLAIN, [400], [0.5], 40):
        probe, completion = document.probes[0], reply(model, document)
        score = ALL.score(probe.question, completion)
        assert score.value == 0.0
        classes.add(classify(probe.question, completion, {"match.all": score}, Receipt(1, 1))[0])
    assert classes - {"refused"} == {"distractor", "not_found", "wrong"}


# --- failing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("archetype", "expected"),
    [("refuses", "refused"), ("empty", "empty"), ("wanders", "wrong"), ("cuts-off", "cut_off")],
)
def test_a_failing_model_never_yields_a_score_and_is_called_by_name(
    archetype: str, expected: FailureClass, documents: list[Document]
) -> None:
    assert archetype in NEVER_RIGHT
    model = open_simulated(f"sim:{archetype}")
    others = [Needle(haystack="noise", value_kind="words"), Needle(haystack="noise", value_kind="uuids", values=3)]
    for document in [*documents, *(d for task in others for d in needle_documents(task, [400], [0.5], 6))]:
        probe, completion = document.probes[0], reply(model, document)
        scores = {
            "match.all": ALL.score(probe.question, completion),
            "ruler.strict": RULER_STRICT.score(probe.question, completion),
        }
        assert [s.value for s in scores.values()] == [0.0, 0.0]
        assert classify(probe.question, completion, scores, Receipt(1, 1))[0] == expected


@pytest.mark.parametrize("archetype", NEVER_RIGHT)
def test_a_failing_model_does_not_hit_the_answer_by_chance(archetype: str) -> None:
    body = "Rain fell. The best part of the long walk is the passage. Rain fell."
    document = text_document(body, "What is the best part of the long walk?", targets=("the passage",))
    probe = document.probes[0]
    for sample in range(20):
        moved = dataclasses.replace(probe, cell=Cell("hand", 100, None, sample))
        assert ANY.score(moved.question, reply(open_simulated(f"sim:{archetype}"), document, moved)).value == 0.0


def test_a_flaky_model_fails_some_requests_and_answers_when_asked_again(documents: list[Document]) -> None:
    model, perfect = open_simulated("sim:flaky?rate=0.3"), open_simulated("sim:perfect")
    attempts = []
    for document in documents:
        outcome, asked = model.answer(document, document.probes)[0].outcome, 1
        while isinstance(outcome, Failure) and asked < 50:
            assert outcome.transient
            outcome, asked = model.answer(document, document.probes)[0].outcome, asked + 1
        assert outcome == reply(perfect, document)
        attempts.append(asked)
    assert 0.1 < sum(a > 1 for a in attempts) / len(attempts) < 0.6


def test_a_prompt_past_the_limit_is_refused_as_servers_do(documents: list[Document]) -> None:
    model = open_simulated("sim:perfect?limit=400")
    assert model.card.window == 400
    assert model.card.window_is_hard
    for document in documents:
        outcome = model.answer(document, document.probes)[0].outcome
        if document.probes[0].cell.length > 400:
            assert isinstance(outcome, Failure)
            assert outcome.why == "context_length"
        else:
            assert isinstance(outcome, Completion)


# --- names and options --------------------------------------------------------------------------


def test_options_are_read_from_the_models_name() -> None:
    model = open_simulated("sim:cliff?window=8k&high=0.9&seed=3&tokenizer=bytes")
    assert (model.card.name, model.card.window, model.card.window_is_hard) == ("sim:cliff", 8192, False)
    assert (model.options.high, model.options.seed, model.tokenizer.fingerprint) == (0.9, 3, "bytes")


def test_whatever_can_change_an_answer_changes_the_fingerprint_and_latency_does_not() -> None:
    same = open_simulated("sim:cliff").card.fingerprints
    assert open_simulated("sim:cliff?latency_seconds=0.5").card.fingerprints == same
    for other in ("sim:floor", "sim:cliff?window=100", "sim:cliff?seed=1", "sim:cliff?tokenizer=bytes"):
        assert open_simulated(other).card.fingerprints != same


def test_a_misspelt_archetype_and_option_are_errors_that_help() -> None:
    with pytest.raises(UnknownName, match="did you mean 'cliff'"):
        open_simulated("sim:clif")
    with pytest.raises(UnknownName, match="did you mean 'window'"):
        open_simulated("sim:cliff?windw=8000")
    with pytest.raises(UsageError, match="high"):
        open_simulated("sim:cliff?high=2")


def test_the_documentation_names_every_archetype_and_option() -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulated.md").read_text()
    for name in ARCHETYPES:
        assert f"`sim:{name}`" in page
    for option in Simulated.model_fields:
        assert f"`{option}`" in page
