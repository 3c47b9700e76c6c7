"""Whatever a registered task is, it keeps these promises. A new one is tested without a line of its own."""

from __future__ import annotations

import atexit
import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from leadline.core import registry
from leadline.core.answers import Completion
from leadline.core.contracts import Task, Tokenizer
from leadline.core.errors import LengthError, SourceError, UsageError
from leadline.core.format import format_list
from leadline.core.spec import TaskSpec, make_spec
from leadline.core.types import Cell, Document, Probe
from leadline.features.frontier.mrcr import ORDINALS
from leadline.models.sim.model import REFUSALS
from leadline.run.documents import depths_of
from leadline.run.measure import measure
from leadline.stats.effective import effective_length
from leadline.stats.observations import observations
from leadline.store.runs import read_records
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import ByteTokenizer, WhitespaceTokenizer
from support.agent_readers import recall_fact, solve_call, solve_item
from support.fiction_reader import read_answer
from support.fitting import fit
from support.question_data import hotpot, squad
from support.toy_tokenizers import FAMILIES, SMALL_PROSE, toy_tokenizer


def asks_questions(name: str) -> bool:
    """Tasks for log-probabilities have no drafts."""
    return registry.task(TaskSpec(name=name)).request == "answer"


TASKS = [name for name in registry.names("tasks") if asks_questions(name)]
PLACEMENTS = ("depth", "anywhere")
PLAIN_PROSE = ("qa_1", "qa_2")
COMPUTED = ("math_calc", "code_run", "aggregate", "ladder", "embed", "tool_calls")
COUNTED = ("cwe", "fwe", "math_calc", "graphwalks", "aggregate", "copy_words")
"""The answer is worked out from the text that is sent, so there is none without a document."""
"""The answer follows from the text and does not stand in it."""
FEW_ANSWERS = ("aggregate", "worlds")
"""Small numbers, or one of a few names."""
LISTS = ("cwe", "fwe")
"""One list has its frequent words around one depth only."""
SEED = 11


@cache
def question_file(name: str) -> str:
    """A small file of questions in the format that a task reads."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    return str((squad if name == "qa_1" else hotpot)(folder / f"{name}.json"))


@cache
def made(name: str, placement: str = "depth") -> Task:
    """The task with the small prose in place of all of it, and skipped where it needs data that is not here."""
    options: dict[str, object] = {"placement": placement}
    if "prose" in registry.task(TaskSpec(name=name)).model_dump(mode="json").values():
        options["haystack"] = SMALL_PROSE
    if name in PLAIN_PROSE:
        options |= {"data": question_file(name), "repeat": True}
    try:
        task = registry.task(TaskSpec(name=name, options=options))
        task.sources()
    except SourceError as error:
        pytest.skip(f"{name} needs data: {error.what}")
    return task


def written(name: str, cells: Sequence[Cell], placement: str = "depth", tokens: Tokenizer | None = None) -> Document:
    return fit(made(name, placement).write(cells, seed=SEED), tokens or WhitespaceTokenizer(), completion_frame())


@cache
def one(name: str, length: int = 3000, placement: str = "depth", sample: int = 0, depth: float = 0.4) -> Document:
    """Written once for all promises that are tested on it."""
    return written(name, [Cell(name, length, depth if placement == "depth" else None, sample)], placement)


def assert_exact(document: Document, tokens: Tokenizer) -> None:
    for probe in document.probes:
        ids = document.prompt_ids(probe)
        assert len(ids) == probe.prompt_tokens == probe.cell.length - probe.question.allowance
        assert np.array_equal(tokens.encode(document.prompt_text(probe)), ids)


def right_answer(probe: Probe) -> str:
    if probe.question.answer_form:
        return probe.question.answer_form.format(answer=", ".join(probe.question.targets))
    return f" {format_list(probe.question.targets[:1] if probe.question.match == 'any' else probe.question.targets)}."


# --- the same coordinates, the same document ---


@pytest.mark.quick_cases(placement=("depth",))
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("name", TASKS)
def test_the_same_coordinates_give_the_same_document_in_any_order(name: str, placement: str) -> None:
    depths = (0.0, 0.7) if made(name, placement).has_depth else (None,)
    places = [(depth, sample) for depth in depths for sample in range(2)][:3]

    def prompts(order: list[tuple[float | None, int]]) -> dict[tuple[float | None, int], str]:
        return {
            (depth, sample): written(name, [Cell(name, 2000, depth, sample)], placement).text for depth, sample in order
        }

    first, again = prompts(places), prompts(places[::-1])
    assert first == again
    assert len(set(first.values())) == len(places)


@pytest.mark.parametrize("name", TASKS)
def test_samples_differ_in_answer_text_and_place(name: str) -> None:
    one_answer = name == "niah_own"  # the sentence is the user's
    documents = [one(name, 2000, "anywhere", sample) for sample in range(6)]
    assert len({d.probes[0].question.targets for d in documents}) >= (
        1 if one_answer else 3 if name in FEW_ANSWERS else 6
    )
    places = {d.facts[0].start for d in documents if d.facts}
    assert not documents[0].facts or len(places) >= 4
    assert len({haystack_of(d) for d in documents}) == (6 if says_anything(name) else 1)


def haystack_of(document: Document) -> frozenset[str]:
    """The sentences or lines that were not planted."""
    body = document.text[document.body_start_characters :]
    for fact in document.facts:
        body = body.replace(fact.text, "")
    return frozenset(line for line in re.split(r"\n|(?<=[.,]) |(?= [+-])", body)[:-1] if line.strip())


def says_anything(name: str) -> bool:
    """A haystack of noise is the same few lines for everybody, and repeated words have no sentence."""
    return getattr(made(name), "haystack", "") != "noise" and name != "copy_words"


# --- exactly as long as asked ---

LENGTHS = (2600, 5003)


@pytest.mark.quick_cases(family=("gpt2", "whitespace"))
@pytest.mark.parametrize("family", [*FAMILIES, "bytes", "whitespace"])
@pytest.mark.parametrize("name", TASKS)
def test_a_prompt_is_exactly_as_long_as_asked_in_every_kind_of_tokenizer(name: str, family: str) -> None:
    tokens: Tokenizer = (
        ByteTokenizer()
        if family == "bytes"
        else toy_tokenizer(family)
        if family in FAMILIES
        else (WhitespaceTokenizer())
    )
    scale = {"bytes": 5}.get(family, 2 if family in FAMILIES else 1)  # toy vocabularies are small
    depth = 0.3 if made(name).has_depth else None
    for length in LENGTHS:
        assert_exact(written(name, [Cell(name, scale * length, depth, 1)], tokens=tokens), tokens)


@pytest.mark.quick_cases(length=(1024,))
@pytest.mark.parametrize("length", [1024, 20_000])
@pytest.mark.parametrize("name", TASKS)
def test_a_prompt_is_exactly_as_long_as_asked_from_short_to_long(name: str, length: int) -> None:
    task = made(name)
    if "repeat" in type(task).model_fields:  # the small prose is small
        task = task.model_copy(update={"repeat": True})
    document = fit(task.write([Cell(name, length, 0.6, 3)], seed=SEED), WhitespaceTokenizer(), completion_frame())
    assert_exact(document, WhitespaceTokenizer())
    if name not in COMPUTED:
        assert_answer_is_in_the_text_alone(document, document.probes[0])


@pytest.mark.parametrize("name", TASKS)
def test_a_length_that_cannot_be_is_an_error_with_the_shortest_that_can(name: str) -> None:
    with pytest.raises(LengthError) as caught:
        one(name, 30)
    assert caught.value.shortest is not None
    shortest = length = caught.value.shortest
    assert shortest > 30
    for _ in range(8):  # what was estimated at one length may be a little more at the next
        document, higher = tried(name, length)
        if document is not None:
            break
        assert higher is not None
        assert higher > length
        length = higher
    assert document is not None
    assert length < 3 * shortest
    assert_exact(document, WhitespaceTokenizer())


def tried(name: str, length: int) -> tuple[Document | None, int | None]:
    """The document, or the shortest that the error gives."""
    try:
        return one(name, length), None
    except LengthError as error:
        return None, error.shortest


@pytest.mark.quick_cases(placement=("depth",))
@pytest.mark.parametrize("reading", ["shared", "nested"])
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("name", TASKS)
def test_one_document_answers_all_its_cells_where_the_task_says_so(name: str, placement: str, reading: str) -> None:
    task = made(name, placement)
    if reading not in task.readings:
        pytest.skip(f"{name} cannot be read {reading}")
    spec = make_spec({"model": "sim:perfect", "tasks": [name], "lengths": "4k", "depths": "0.1,0.5,0.9"})
    lengths = (4096,) if reading == "shared" else (3000, 5000, 9000)
    cells = [Cell(name, length, depth, 2) for length in lengths for depth in depths_of(spec, task)]
    if name in LISTS and placement == "depth":
        with pytest.raises(UsageError, match="several depths"):
            written(name, cells, placement)
        return
    document = written(name, cells, placement)
    assert [p.cell for p in document.probes] == cells
    assert_exact(document, WhitespaceTokenizer())
    assert len({p.question.text for p in document.probes}) == len(cells) or reading == "nested"
    for probe in document.probes:
        if name not in COMPUTED:
            assert_answer_is_in_the_text_alone(document, probe)
        assert all(fact.end <= probe.body_tokens for fact in document.planted(probe))


# --- the answer ---


def assert_answer_is_in_the_text_alone(document: Document, probe: Probe) -> None:
    before = document.text[: document.body_start_characters].lower()
    body = document.text[document.body_start_characters : probe.cut_characters]
    present = [target.removeprefix(probe.question.code_word).strip() in body for target in probe.question.targets]
    assert any(present) if probe.question.match == "any" else all(present)
    assert not any(target.lower() in before + probe.user_suffix.lower() for target in probe.question.targets)


@pytest.mark.quick_cases(placement=("depth",))
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("name", [name for name in TASKS if name not in COMPUTED])
def test_the_answer_stands_in_the_document_and_nowhere_else(name: str, placement: str) -> None:
    for sample in range(3):
        document = one(name, 3000, placement, sample)
        assert_answer_is_in_the_text_alone(document, document.probes[0])


@pytest.mark.quick_cases(placement=("depth",))
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("name", TASKS)
def test_every_fact_stands_at_its_recorded_position(name: str, placement: str) -> None:
    document = one(name, placement=placement)
    ends = [0, *(WhitespaceTokenizer().ends(document.text) or [])]
    for fact in document.facts:
        start, end = ends[document.body_start + fact.start], ends[document.body_start + fact.end]
        assert document.text[start:end].strip() == fact.text.strip()
    assert {fact.id for fact in document.planted(document.probes[0])} == set(document.probes[0].question.facts)


@pytest.mark.quick_cases(placement=("depth",))
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("name", TASKS)
def test_the_answer_can_be_found_in_the_text(name: str, placement: str) -> None:
    """Each family is read again by the rules of its kind, from the text and the question alone."""
    for sample in range(3):
        document, other = (one(name, 3000, placement, number) for number in (sample, sample + 3))
        [probe] = document.probes
        READERS[probe.question.family](document, probe)
        if probe.question.family in ("needle", "tracing") and name != "niah_own":
            assert not any(target in body_of(other, other.probes[0]) for target in probe.question.targets)


def body_of(document: Document, probe: Probe) -> str:
    return document.text[document.body_start_characters : probe.cut_characters]


def read_needles(document: Document, probe: Probe) -> None:
    """Each target stands in its own fact, beside a key that the question names and nothing else mentions."""
    facts = [fact.text for fact in document.planted(probe)]
    body, asked = body_of(document, probe), set(re.findall(r"[\w-]*(?:\d|[a-z]-[a-z])[\w-]*", probe.question.text))
    assert len(facts) == len(probe.question.targets)
    for fact, target in zip(facts, probe.question.targets, strict=True):
        assert target in fact
        assert body.count(target) == fact.count(target)
    told = (
        [fact.text for fact in document.facts] if "failures" in probe.question.labels else facts
    )  # a job has several lines
    for key in asked:
        assert body.count(key) == sum(fact.count(key) for fact in told) > 0
    described = probe.question.labels.get("match") == "paraphrase" or probe.question.labels.get("form") == "own"
    assert asked or described or re.search("pass key|sequence of digits", probe.question.text)


def follow_chain(document: Document, probe: Probe) -> None:
    """The variables that hold the value are exactly those that a walk over the assignments reaches."""
    assigned = re.findall(r"LET (\w+) = (\w+)\.", body_of(document, probe))
    value = re.search(r"\d{5}", probe.question.text)
    assert value is not None
    held = {value[0]}
    for _ in assigned:
        held |= {name for name, source in assigned if source in held}
    assert held - {value[0]} == set(probe.question.targets)


def count_words(document: Document, probe: Probe) -> None:
    """The targets are the most frequent words, each more frequent than any other."""
    counts = Counter(re.findall(r"[a-z]+", body_of(document, probe)))
    ranked = counts.most_common()
    most = len(probe.question.targets)
    assert {word for word, _ in ranked[:most]} == set(probe.question.targets)
    assert ranked[most - 1][1] > ranked[most][1]


def read_documents(document: Document, probe: Probe) -> None:
    """An accepted answer stands in the planted documents and in no other document of the pile."""
    planted = [fact.text for fact in document.planted(probe)]
    rest = body_of(document, probe)
    for text in planted:
        assert text in rest
        rest = rest.replace(text, "")
    assert any(target in text for target in probe.question.targets for text in planted)
    assert not any(re.search(rf"\b{re.escape(target)}\b", rest) for target in probe.question.targets)
    if "relation" in probe.question.labels:  # invented documents can be read by rules
        assert read_answer(body_of(document, probe), probe.question.text) in probe.question.targets


def work_out(document: Document, probe: Probe) -> None:
    """The answer is worked out again: the largest number, every sum, the value that the program returns."""
    body = body_of(document, probe)
    if "largest" in probe.question.text:
        assert probe.question.targets == (str(max(map(int, re.findall(r"\d+", body)))),)
    elif "after each operation" in probe.question.text:
        steps = [int(step.replace(" ", "")) for step in re.findall(r"[+-] \d+", body)]
        assert list(map(int, probe.question.targets)) == np.cumsum(steps).tolist()
    else:
        functions = dict(re.findall(r"def (\w+)\(x\):\n    return (.+)", body))
        name, value = re.findall(r"(func_\d+)\((\d+)\)", probe.question.text)[0]
        total, inner = int(value), functions[name]
        while True:
            called, sign, step = re.fullmatch(r"(\w+)(?:\(x\))? ([+-]) (\d+)", inner).groups()  # type: ignore[union-attr]
            total += int(sign + step)
            if called == "x":
                break
            inner = functions[called]
        assert probe.question.targets == (str(total),)


def read_conversation(document: Document, probe: Probe) -> None:
    """The item that was asked for is the answer to the i-th request of its kind and topic."""
    *turns, last = document.turns(probe)
    found = re.search(r"the (\w+) (.+) about (.+) that you wrote.* with (\w+) and a space", last.text)
    assert found is not None
    ordinal, kind, topic, code = found.groups()
    exchanges = list(zip(turns[0::2], turns[1::2], strict=True))
    assert {(a.role, b.role) for a, b in exchanges} == {("user", "assistant")}
    alike = [item.text for asked, item in exchanges if re.fullmatch(rf"Write an? {kind} about {topic}\.", asked.text)]
    assert len(alike) == int(probe.question.labels["needles"])
    assert probe.question.targets == (f"{code} {alike[ORDINALS.index(ordinal)]}",)
    assert len(set(alike)) == len(alike)


def walk(document: Document, probe: Probe) -> None:
    """The answer is walked again along the edges of the text; the facts are the edges that the walk needs."""
    edges = set(re.findall(r"(\w+) -> (\w+)", body_of(document, probe)))
    node = re.search(r"(?:from|leads to|parents of) (\w+)", probe.question.text)
    assert node is not None
    if probe.question.labels["operation"] == "parents":
        assert {a for a, b in edges if b == node[1]} == set(probe.question.targets)
        return
    seen, level = {node[1]}, {node[1]}
    for _ in range(int(probe.question.labels["hops"])):
        needed = {(a, b) for a, b in edges if a in level}
        assert needed <= {(a, b) for f in document.planted(probe) for a, b in re.findall(r"(\w+) -> (\w+)", f.text)}
        level = {b for _, b in needed} - seen
        seen |= level
    assert level == set(probe.question.targets)


def count_records(document: Document, probe: Probe) -> None:
    """The records are counted again, by the words of the question."""
    lines = [line.split(" | ") for line in body_of(document, probe).splitlines() if " | " in line]
    topics = re.findall(r"(delivery|billing|password|praise|cancellation|hours)", probe.question.text)
    user = re.search(r"(?:did|that) ([A-Z]\w+) (?:write|wrote)", probe.question.text)
    month = re.search(r"written in (\w+)", probe.question.text)
    if probe.question.facts:
        assert user is not None
        assert {fact.text.split(" | ")[0] for fact in document.planted(probe)} == {user[1]}
    counts = Counter(line[3] for line in lines)
    if probe.question.labels["operation"] in ("most", "least"):
        best = (max if probe.question.labels["operation"] == "most" else min)(counts[t] for t in counts)
        assert set(probe.question.targets) == {t for t in counts if counts[t] == best}
    elif probe.question.labels["operation"] == "compare":
        one, two = (counts[t] for t in topics)
        assert probe.question.targets == (
            "more common" if one > two else "less common" if one < two else "same frequency",
        )
    else:
        found = [line for line in lines if user is None or line[0] == user[1]]
        found = [line for line in found if not topics or line[3] == topics[0]]
        found = [line for line in found if month is None or line[1].split()[1] == month[1]]
        assert probe.question.targets == (str(len(found)),)


def copy_text(document: Document, probe: Probe) -> None:
    """The text to copy is one word over and over, and the planted one once."""
    [fact] = document.planted(probe)
    counts = Counter(probe.question.targets[0].split()[:-1])  # the last word may be cut
    assert counts.pop(fact.text) == 1
    assert len(counts) == 1


def relive(document: Document, probe: Probe) -> None:
    """The story is lived again from the sentences of the text, and the question answered from its end."""
    place: dict[str, str] = {}
    owner: dict[str, str] = {}
    lying: dict[str, str] = {}
    seen: dict[str, list[str]] = {}
    gave: dict[tuple[str, str], str] = {}
    people = "|".join({fact.text.split()[0] for fact in document.facts})
    filler = "over|up|down|hold|of|to|the|on"
    done = rf"\b({people}) (\w+) (?:(?:{filler}) )*([a-z]+(?: [a-z]+)??)(?: behind| on)?(?: to ({people}))?\."
    for who, verb, what, other in re.findall(done, body_of(document, probe)):
        if verb in ("went", "walked", "moved"):
            place[who] = what
        elif verb in ("picked", "took", "got"):
            owner[what] = who
        elif verb in ("put", "left", "dropped"):
            lying[what] = place[owner.pop(what)]
        else:
            owner[what], gave[what, other] = other, who
        for thing, holder in owner.items():
            path = seen.setdefault(thing, [])
            path.extend([place[holder]] if path[-1:] != [place[holder]] else [])
    found = re.search(rf"\b({people})\b", probe.question.text)
    person = found[1] if found else ""
    thing = next((t for t in seen if f"the {t} " in probe.question.text), "")
    carried = {t for t, holder in owner.items() if holder == person}
    operation = probe.question.labels["operation"]
    if operation in ("list", "count"):
        assert set(probe.question.targets) == (carried if operation == "list" else {NUMBERS[len(carried)]})
    elif operation in ("one fact", "yes or no"):
        here = {"yes" if f"the {place[person]} " in probe.question.text else "no"}
        assert set(probe.question.targets) == ({place[person]} if operation == "one fact" else here)
    elif operation == "giver":
        assert probe.question.targets == (gave[thing, person],)
    else:
        assert probe.question.targets == (seen[thing][-1 if operation == "two facts" else -2],)


NUMBERS = ("zero", "one", "two", "three", "four")


def climb(document: Document, probe: Probe) -> None:
    """The question is found by its number and solved again."""
    lines = dict(re.findall(r"Question (\d{7}): (.+)", body_of(document, probe)))
    [fact] = document.planted(probe)
    key, text = re.findall(r"Question (\d{7}): (.+)", fact.text)[0]
    assert lines[key] == text
    assert body_of(document, probe).count(key) == 1
    assert (text if probe.question.labels["operation"] == "solve" else key) in probe.question.text
    numbers = [int(n) for n in re.findall(r"\d+", text)]
    solved = str(max(numbers) if "Largest" in text else min(numbers))
    assert probe.question.targets == ((text,) if probe.question.labels["operation"] == "retrieve" else (solved,))


def solve(document: Document, probe: Probe) -> None:
    assert probe.question.targets == (solve_item(document.prompt_text(probe)),)


def make_call(document: Document, probe: Probe) -> None:
    assert solve_call(document.prompt_text(probe)) == json.loads(probe.question.targets[0])


def recall(document: Document, probe: Probe) -> None:
    assert probe.question.targets == (recall_fact(document.prompt_text(probe)),)


READERS = {
    "memory": recall,
    "items": solve,
    "calls": make_call,
    "ladder": climb,
    "worlds": relive,
    "records": count_records,
    "walks": walk,
    "mrcr": read_conversation,
    "": work_out,
    "copying": copy_text,
    "needle": read_needles,
    "tracing": follow_chain,
    "counting": count_words,
    "questions": read_documents,
}


@pytest.mark.parametrize("name", TASKS)
def test_a_perfect_model_answers_right_with_the_document_and_not_without_it(name: str) -> None:
    document = one(name)
    [probe] = document.probes
    assert scored(document, probe) == dict.fromkeys(probe.question.scorers, 1.0)
    if name not in COUNTED:
        task = made(name).model_copy(update={"no_context": True})
        alone = fit(task.write([probe.cell], seed=SEED), WhitespaceTokenizer(), completion_frame())
        assert alone.probes[0].question.targets == probe.question.targets
        assert set(scored(alone, alone.probes[0]).values()) == {0.0}


def scored(document: Document, probe: Probe) -> dict[str, float]:
    """The scores of `sim:perfect`."""
    model = registry.provider(registry.ModelName.parse("sim:perfect")).open("perfect")
    [answer] = model.answer(document, [probe])
    assert isinstance(answer.outcome, Completion)
    return {s: registry.scorer(s).score(probe.question, answer.outcome).value for s in probe.question.scorers}


@pytest.mark.parametrize("name", TASKS)
def test_the_right_answer_scores_one_and_a_refusal_nothing(name: str) -> None:
    for sample in range(3):
        [probe] = one(name, sample=sample).probes
        assert probe.question.scorers
        for scorer in probe.question.scorers:
            found = registry.scorer(scorer)
            assert found.score(probe.question, Completion(right_answer(probe))).value == 1.0
            for refusal in ("", *REFUSALS):
                assert found.score(probe.question, Completion(refusal)).value == 0.0


# --- what is planted in a model is found again ---


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", TASKS)
def test_the_effective_length_of_a_model_is_found_again(name: str, tmp_path: Path) -> None:
    """A model that reads up to 1,500 tokens and not beyond does so whatever it is asked."""
    task = made(name)
    options: dict[str, object] = {"haystack": SMALL_PROSE} if getattr(task, "haystack", "") == SMALL_PROSE else {}
    if name in PLAIN_PROSE:
        options = {"data": question_file(name), "repeat": True}
    asked = {"name": name, "placement": "anywhere", **options}
    spec = make_spec({"model": "sim:cliff?window=1500", "tasks": [asked], "lengths": "1k,2k", "samples": 6})
    measure(spec, tmp_path / "run")
    found = effective_length(observations(read_records(tmp_path / "run")))
    assert found.largest_measured == 1024
    assert found.bound == "crossing"
    assert found.low <= 1500 <= found.high


# --- suites ---


@pytest.mark.parametrize("name", registry.names("suites"))
def test_a_suite_names_tasks_that_there_are_with_options_they_have(name: str) -> None:
    spec = make_spec({**registry.find("suites", name).values, "model": "sim:perfect"})
    for asked in spec.tasks:
        assert spec.reading in ("auto", *registry.task(asked).readings)
