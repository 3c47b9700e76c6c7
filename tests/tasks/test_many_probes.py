"""One document of 128k tokens answers fifty probes at each of two lengths, and truth is counted again at each cut."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import Any

import pytest

from leadline.core import registry
from leadline.core.errors import UsageError
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell, Document, Probe
from leadline.text.chat import completion_frame
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import WhitespaceTokenizer

LENGTHS = (1 << 16, 1 << 17)
PROBES = 50


def nested(name: str, **options: Any) -> Document:
    task = registry.task(TaskSpec(name=name, options={"placement": "anywhere", "per_document": PROBES, **options}))
    cells = [Cell(name, length, None, sample) for length in LENGTHS for sample in range(PROBES)]
    document = task.document(cells, seed=2, fitter=Fitter(WhitespaceTokenizer(), completion_frame()))
    for length in LENGTHS:
        probes = [p for p in document.probes if p.cell.length == length]
        assert len({p.question.text for p in probes}) == PROBES
        assert all(len(document.prompt_ids(p)) == length - p.question.allowance for p in probes)
    return document


def sent(document: Document, probe: Probe) -> str:
    return document.text[document.body_start_characters : probe.cut_characters]


@pytest.mark.slow
def test_graphwalks() -> None:
    document = nested("graphwalks")
    for length in LENGTHS:
        probes = [p for p in document.probes if p.cell.length == length]
        after, before = defaultdict(set), defaultdict(set)
        for source, target in re.findall(r"(\w+) -> (\w+)", sent(document, probes[0])):
            after[source].add(target)
            before[target].add(source)
        for probe in probes:
            assert set(probe.question.targets) == walked(probe, after, before)


def walked(probe: Probe, after: dict[str, set[str]], before: dict[str, set[str]]) -> set[str]:
    if probe.question.labels["operation"] == "parents":
        [node] = set(re.findall(r"leads to (\w+)", probe.question.text))
        return before[node] - {node}
    [node] = set(re.findall(r"reached from (\w+)", probe.question.text))
    seen, level = {node}, {node}
    for _ in range(int(probe.question.labels["hops"])):
        level = {t for n in level for t in after[n]} - seen
        seen |= level
    return level


@pytest.mark.slow
def test_aggregate() -> None:
    document = nested("aggregate")
    for length in LENGTHS:
        probes = [p for p in document.probes if p.cell.length == length]
        lines = [line.split(" | ") for line in sent(document, probes[0]).splitlines() if " | " in line]
        records = [(user, date.split()[1], topic) for user, date, _, topic in lines]
        topics = Counter(topic for *_, topic in records)
        for probe in probes:
            assert set(probe.question.targets) == counted(probe, records, topics)


def counted(probe: Probe, records: list[tuple[str, str, str]], topics: Counter[str]) -> set[str]:
    operation, question = probe.question.labels["operation"], probe.question.text
    if operation in ("most", "least"):
        best = (max if operation == "most" else min)(topics.values())
        return {topic for topic, times in topics.items() if times == best}
    if operation == "compare":
        [(one, other)] = re.findall(r"messages about (\w+) more common than messages about (\w+)", question)
        more = topics[one] - topics[other]
        return {"more common" if more > 0 else "less common" if more < 0 else "same frequency"}
    wanted = [re.search(rf"{before} (\w+)", question) for before in ("(?:did|that)", "written in", "about")]
    named = [found[1] if found else None for found in wanted]
    return {str(sum(all(w in (None, have) for w, have in zip(named, record, strict=True)) for record in records))}


@pytest.mark.parametrize("needles", [2, 8])
def test_mrcr(needles: int) -> None:
    document = nested("mrcr", needles=needles)
    for probe in document.probes:
        text = sent(document, probe)
        items = [probe.question.targets[0], *probe.question.mistakes["wrong ordinal"]]
        places = sorted((text.index(item.removeprefix(f"{probe.question.code_word} ")), item) for item in items)
        assert len(places) == needles
        assert places[probe.question.ordinal - 1][1] == probe.question.targets[0]


@pytest.mark.parametrize(
    ("name", "options", "depths", "samples"),
    [
        ("aggregate", {"placement": "depth"}, 11, 100),
        ("mrcr", {"needles": 1}, 11, 200),
        ("vt", {"letters": 3, "chains": 64, "hops": 32}, 11, 1),
    ],
)
def test_more_questions_than_one_document_has_names_for_are_an_error_that_says_so(
    name: str, options: dict[str, Any], depths: int, samples: int
) -> None:
    task = registry.task(TaskSpec(name=name, options=options))
    cells = [Cell(name, 1 << 20, n / 10, sample) for n in range(depths) for sample in range(samples)]
    with pytest.raises(UsageError) as error:
        task.write(cells, seed=0)
    assert "fewer" in error.value.fix


@pytest.mark.slow
def test_a_conversation_has_items_of_its_own_when_most_kinds_and_topics_are_asked_for() -> None:
    task = registry.task(TaskSpec(name="mrcr", options={"placement": "anywhere", "needles": 1, "per_document": 256}))
    cells = [Cell("mrcr", 200_000, None, sample) for sample in range(1280)]
    document = task.document(cells, seed=0, fitter=Fitter(WhitespaceTokenizer(), completion_frame()))
    assert {len(document.prompt_ids(p)) + p.question.allowance for p in document.probes} == {200_000}


@pytest.mark.slow
def test_programs_of_four_million_tokens_have_names_left_for_the_chain() -> None:
    task = registry.task(TaskSpec(name="code_run"))
    draft = task.write([Cell("code_run", 4_000_000, 0.5, 0)], seed=0)
    assert len(draft.facts) == 4
