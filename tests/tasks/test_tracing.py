"""Chains of assignments: what is planted, where it stands, and what a wrong answer gives away."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from leadline.core import registry
from leadline.core.answers import Completion
from leadline.core.records import Receipt
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell, Document, Probe
from leadline.scorers.failure import ANOTHER_CHAIN, DEMONSTRATION, classify
from leadline.tasks.tracing import Tracing
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import WhitespaceTokenizer
from support.fitting import fit
from support.toy_tokenizers import SMALL_PROSE

ASSIGNMENT = re.compile(r"LET ([A-Z]+) = ([A-Z]+|\d+)\.")
ANYWHERE = Tracing(placement="anywhere")


def laid_out(task: Tracing, cells: Sequence[Cell]) -> Document:
    return fit(task.draft(cells, seed=5), WhitespaceTokenizer(), completion_frame())


def one(task: Tracing, length: int = 2000, depth: float | None = None, sample: int = 0) -> Document:
    return laid_out(task, [Cell("vt", length, depth, sample)])


def body(document: Document, probe: Probe) -> str:
    return document.text[document.body_start_characters : probe.cut_characters]


def holders(text: str, value: str) -> list[str]:
    """Followed by hand: everything that holds a value, in the order of the text."""
    held = [value]
    for name, source in ASSIGNMENT.findall(text):
        if source in held:
            held.append(name)
    return held[1:]


def asked_value(probe: Probe) -> str:
    found = re.search(r"\d{5}", probe.question.text)
    assert found is not None
    return found[0]


# --- the parameters of the paper ---


def test_the_preset_is_the_paper_s_one_chain_of_four_hops_in_noise_with_30_tokens() -> None:
    task = registry.task(TaskSpec(name="vt", options={"placement": "anywhere"}))
    assert isinstance(task, Tracing)
    document = one(task)
    [probe] = document.probes
    assignments = ASSIGNMENT.findall(body(document, probe))
    assert len(assignments) == len(probe.question.targets) == 5
    assert all(re.fullmatch("[A-Z]{5}", name) for name in probe.question.targets)
    assert 10_000 <= int(asked_value(probe)) < 99_999
    assert probe.question.allowance == 30
    assert probe.question.scorers[:2] == ("match.all", "ruler.v1")
    others = {line for line in body(document, probe).splitlines() if line and not ASSIGNMENT.fullmatch(line)}
    assert len(others) <= 2  # the one line of noise, and a beginning of it


@pytest.mark.parametrize(("chains", "hops", "letters"), [(1, 4, 5), (3, 2, 5), (5, 8, 4), (2, 1, 3), (4, 12, 7)])
def test_the_targets_are_what_a_reader_who_follows_the_chain_finds(chains: int, hops: int, letters: int) -> None:
    task = Tracing(chains=chains, hops=hops, letters=letters, placement="anywhere")
    for sample in range(4):
        document = one(task, sample=sample)
        [probe] = document.probes
        text = body(document, probe)
        assert holders(text, asked_value(probe)) == list(probe.question.targets)
        assert len(probe.question.targets) == hops + 1
        assert len(ASSIGNMENT.findall(text)) == chains * (hops + 1)
        assert len(probe.question.distractors) == (chains - 1) * (hops + 1)
        assert {len(name) for name in probe.question.targets} == {letters}


def test_every_name_and_value_of_a_document_is_its_own() -> None:
    document = one(Tracing(chains=8, letters=3, placement="anywhere"), length=4000)
    names = [name for name, _ in ASSIGNMENT.findall(document.text)]
    values = [source for _, source in ASSIGNMENT.findall(document.text) if source.isdigit()]
    assert len(set(names)) == len(names) == 9 * 5
    assert len(set(values)) == len(values) == 9


# --- the demonstration ---


def test_the_demonstration_is_solved_right_and_shares_no_name_and_no_value_with_the_document() -> None:
    seen = set()
    for sample in range(6):
        document = one(ANYWHERE, length=3000, sample=sample)
        [probe] = document.probes
        head = document.text[: document.body_start_characters]
        *names, value = probe.question.demonstration
        assert holders(head, value) == names
        assert f"{', '.join(names[:-1])} and {names[-1]}." in head
        assert not set(names) & set(probe.question.targets)
        assert value != asked_value(probe)
        seen.add(value)
    assert len(seen) == 6


def test_without_a_demonstration_nothing_but_the_instruction_stands_before_the_text() -> None:
    document = one(Tracing(demonstration=False, placement="anywhere"))
    assert "LET" not in document.text[: document.body_start_characters]
    assert "demonstration" not in document.probes[0].question.labels


# --- where the chain stands ---


@pytest.mark.parametrize("depth", [0.0, 0.3, 0.5, 0.9, 1.0])
def test_the_chain_stands_in_order_in_a_band_around_the_depth(depth: float) -> None:
    document = one(Tracing(), length=12_000, depth=depth)
    places = [fact.depth for fact in document.planted(document.probes[0])]
    low = min(max(depth - 0.1, 0.0), 0.8)
    assert places == sorted(places)
    assert all(low - 0.01 <= place <= low + 0.21 for place in places)
    assert places[-1] - places[0] > 0.1


def test_anywhere_the_chain_spreads_over_the_whole_text() -> None:
    places = [
        fact.depth for sample in range(40) for fact in one(ANYWHERE, length=4000, sample=sample).facts
    ]  # 200 of them, uniform
    shares = [sum(low <= p < low + 0.25 for p in places) / len(places) for low in (0.0, 0.25, 0.5, 0.75)]
    assert all(0.15 < share < 0.35 for share in shares)
    document = one(ANYWHERE, length=4000)
    assert [f.start for f in document.facts] == sorted(f.start for f in document.facts)


def test_assignments_hide_in_prose_too() -> None:
    document = one(Tracing(haystack=SMALL_PROSE, placement="anywhere"))
    [probe] = document.probes
    assert holders(body(document, probe), asked_value(probe)) == list(probe.question.targets)


# --- several questions to one document ---


@pytest.mark.parametrize("lengths", [(6000,), (3000, 6000, 12_000)])
def test_each_depth_has_a_chain_of_its_own_that_the_cut_holds_whole(lengths: tuple[int, ...]) -> None:
    cells = [Cell("vt", length, depth, 0) for length in lengths for depth in (0.1, 0.5, 0.9)]
    document = laid_out(Tracing(), cells)
    assert len({probe.question.targets for probe in document.probes}) == len(cells)
    for probe in document.probes:
        assert holders(body(document, probe), asked_value(probe)) == list(probe.question.targets)
        assert set(probe.question.distractors).isdisjoint(probe.question.targets)
        assert len(probe.question.distractors) == 5 * (len(cells) - 1)


# --- what a wrong answer gives away ---


def test_copying_the_demonstration_and_naming_another_chain_are_told_apart() -> None:
    document = one(Tracing(chains=2, placement="anywhere"))
    [probe] = document.probes

    def classed(names: Sequence[str]) -> tuple[str, str]:
        answer = Completion(" ".join(names), finish="stop")
        scores = {name: registry.scorer(name).score(probe.question, answer) for name in probe.question.scorers}
        return classify(probe.question, answer, scores, Receipt(probe.prompt_tokens, probe.prompt_tokens))

    assert classed(probe.question.targets) == ("correct", "")
    assert classed(probe.question.demonstration[:5]) == ("distractor", DEMONSTRATION)
    assert classed(probe.question.distractors) == ("distractor", ANOTHER_CHAIN)
    assert classed([*probe.question.targets[:3], *probe.question.distractors[:2]]) == ("partial", ANOTHER_CHAIN)


def test_training_draws_names_that_testing_never_does() -> None:
    names = {
        split: {
            name
            for sample in range(20)
            for name in one(Tracing(split=split, chains=3, letters=3, placement="anywhere"), sample=sample)
            .probes[0]
            .question.targets
        }
        for split in ("test", "train")
    }
    assert names["test"].isdisjoint(names["train"])
