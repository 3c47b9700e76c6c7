"""Readers that understand nothing are right no more often than by chance, in every family and every operation.

Each reader answers a few hundred generated questions. How often it is right is compared with how often a guess among
the candidates would be, by the one-sided binomial interval; where readers name several nodes, each node is a trial.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, exp, lgamma, log, log1p
from typing import Any

import pytest

from leadline.core import registry
from leadline.core.answers import Completion
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell, Probe
from leadline.features.frontier.aggregate import TOPICS
from leadline.scorers.match import abstention
from leadline.scorers.trivial_readers import planted_sentences, trivial_answers, value_pattern
from leadline.text.chat import completion_frame
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import WhitespaceTokenizer

DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
CONFIDENCE = 0.999
"""One-sided. There are about 200 comparisons with fixed seeds."""
WORD = re.compile(r"[a-z]+")
NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Asked:
    """A question with the text that it is about, and what the readers of `tasks show` say."""

    probe: Probe
    text: str
    trivial: Mapping[str, str]

    @property
    def operation(self) -> str:
        return self.probe.question.labels.get("operation", "")

    @property
    def candidates(self) -> list[str]:
        """What looks like an answer, in the order of the text."""
        return [found[0] for found in value_pattern(self.probe.question).finditer(self.text)]


def asked(name: str, samples: int, length: int, **options: Any) -> list[Asked]:
    task = registry.task(TaskSpec(name=name, options=options))
    fitter = Fitter(WhitespaceTokenizer(), completion_frame())
    turns = len(getattr(task, "asked", getattr(task, "ask", getattr(task, "steps", "?"))))
    turns = turns if name in ("graphwalks", "worlds", "ladder") and not options.get("absent") else 1
    found = []
    for sample in range(samples):
        depth = DEPTHS[sample // turns % len(DEPTHS)] if task.has_depth else None
        document = task.document([Cell(name, length, depth, sample)], seed=1, fitter=fitter)
        [probe] = document.probes
        text = document.text[document.body_start_characters : probe.cut_characters]
        found.append(Asked(probe, text, trivial_answers(text, probe.question, planted_sentences(task))))
    return found


# --- readers ---

Reader = Callable[[Asked], str]


def built_in(name: str) -> Reader:
    return lambda one: one.trivial[name]


def given(choose: Callable[[Asked], Sequence[str]]) -> Reader:
    """A reader that chooses as many candidates as are wanted, in the form that the question asks for."""

    def read(one: Asked) -> str:
        size = 1 if one.probe.question.match == "any" else max(len(set(one.probe.question.targets)), 1)
        answer = ", ".join(list(dict.fromkeys(choose(one)))[:size])
        return one.probe.question.answer_form.format(answer=answer) if one.probe.question.answer_form else answer

    return read


def rarest(one: Asked) -> Sequence[str]:
    return [name for name, _ in Counter(one.candidates).most_common()[::-1]]


def sides(one: Asked) -> tuple[Counter[str], Counter[str]]:
    words = one.text.replace("...", "").split()
    return Counter(words[::3]), Counter(words[2::3])


def only_left(one: Asked) -> Sequence[str]:
    left, right = sides(one)
    return [name for name, _ in left.most_common()[::-1] if name not in right]


def only_right(one: Asked) -> Sequence[str]:
    left, right = sides(one)
    return [name for name, _ in right.most_common()[::-1] if name not in left]


READERS: dict[str, Reader] = {
    **{name: built_in(name) for name in ("first", "last", "only", "most frequent", "needle form")},
    "rarest": given(rarest),
    "most frequent word": given(lambda one: [w for w, _ in Counter(WORD.findall(one.text)).most_common(1)]),
    "last number": given(lambda one: NUMBER.findall(one.text)[-1:]),
}
NODE_READERS = {"only on the left": given(only_left), "only on the right": given(only_right)}


def constant(answer: str) -> Reader:
    return lambda one: (
        one.probe.question.answer_form.format(answer=answer) if one.probe.question.answer_form else answer
    )


# --- chance ---


@dataclass
class Trials:
    """How often a reader was right, and would be by chance."""

    right: int = 0
    count: int = 0
    expected: float = 0.0

    def add(self, right: int, count: int, chance: float) -> None:
        self.right, self.count, self.expected = self.right + right, self.count + count, self.expected + count * chance

    @property
    def is_above_chance(self) -> bool:
        share = self.expected / max(self.count, 1)
        return chance_of_more(self.right, self.count, share) < 1 - CONFIDENCE


def chance_of_more(right: int, count: int, share: float) -> float:
    """The probability of `right` or more in `count` trials."""
    if right == 0 or share >= 1:
        return 1.0

    def density(k: int) -> float:
        ways = lgamma(count + 1) - lgamma(k + 1) - lgamma(count - k + 1)
        return exp(ways + k * log(share) + (count - k) * log1p(-share))

    return sum(density(k) for k in range(right, count + 1))


def is_right(one: Asked, answer: str) -> bool:
    if one.probe.question.absent:
        return abstention(one.probe.question, Completion(answer)).value == 1.0
    return registry.scorer(one.probe.question.scorers[0]).score(one.probe.question, Completion(answer)).value == 1.0


def compared(
    questions: Sequence[Asked], chance: Callable[[Asked], float], readers: Mapping[str, Reader]
) -> dict[tuple[str, str], Trials]:
    """Trials by operation and reader."""
    found: dict[tuple[str, str], Trials] = defaultdict(Trials)
    for one in questions:
        share = chance(one)
        for name, reader in readers.items():
            found[one.operation, name].add(is_right(one, reader(one)), 1, share)
    return found


def assert_at_chance(found: Mapping[tuple[str, str], Trials]) -> None:
    above = {key: trials for key, trials in found.items() if trials.is_above_chance}
    assert not above


def one_of_the_candidates(one: Asked) -> float:
    wanted = 1 if one.probe.question.match == "any" else max(len(set(one.probe.question.targets)), 1)
    return 1 / max(comb(len(set(one.candidates)), wanted), 1)


def majority(questions: Sequence[Asked]) -> dict[str, float]:
    """The share of the commonest answer, by operation."""
    answers: dict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for one in questions:
        answers[one.operation][one.probe.question.targets] += 1
    return {name: max(found.values()) / found.total() for name, found in answers.items()}


# --- the families ---


def test_a_reader_that_knows_something_is_found_out() -> None:
    found = compared(asked("niah_single", 30, 600, haystack="noise"), lambda _: 0.25, READERS)
    assert {name for (_, name), trials in found.items() if trials.is_above_chance} >= {"first", "last", "last number"}
    assert not Trials(30, 100, 25.0).is_above_chance
    assert Trials(42, 100, 25.0).is_above_chance


STRUCTURES = [{}, {"match": "paraphrase"}, {"match": "association"}, {"pieces": 2}, {"hard": "qualifier"},
              {"hard": "near_miss"}, {"hard": "contradiction"}, {"keys": 6, "value_kind": "uuids"}]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("options", STRUCTURES, ids=str)
def test_needles(options: dict[str, Any]) -> None:
    name = "niah_forms" if {"match", "pieces", "hard"} & set(options) else "niah"
    questions = asked(name, 100, 600, haystack="noise", **options)
    assert_at_chance(compared(questions, lambda _: 1 / options.get("keys", 4), READERS))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["niah", "kv", "lines", "worlds"])
def test_questions_without_an_answer(name: str) -> None:
    share, haystack = 0.3, {"haystack": "noise"} if name in ("niah", "worlds") else {}
    questions = asked(name, 25, 600, absent=share, **haystack)
    present = [one for one in questions if not one.probe.question.absent]
    assert len(questions) - len(present) == pytest.approx(share * len(questions), abs=5)
    chance = {"niah": lambda _: 0.25}.get(name, one_of_the_candidates)
    if name != "worlds":
        assert_at_chance(compared(present, chance, READERS))
    reply = compared(questions, lambda _: share, {"abstains": constant("not there")})
    totals = Trials(*(sum(getattr(t, f) for t in reply.values()) for f in ("right", "count", "expected")))
    assert not totals.is_above_chance
    assert totals.right >= len(questions) - len(present)


@pytest.fixture(scope="module")
def stories() -> list[Asked]:
    return asked("worlds", 7 * 50, 600, haystack="noise")


@pytest.mark.slow
def test_worlds(stories: list[Asked]) -> None:
    questions = stories
    closed = {"count": 1 / 3, "yes or no": 1 / 2}
    assert {one.operation for one in questions} >= set(closed)

    def chance(one: Asked) -> float:
        return closed.get(one.operation) or one_of_the_candidates(one)

    readers = {**READERS, **{answer: constant(answer) for answer in ("yes", "no", "zero", "one", "two", "three")}}
    assert_at_chance(compared(questions, chance, readers))


@pytest.mark.slow
def test_the_giver_is_one_of_several_and_every_number_is_equally_likely(stories: list[Asked]) -> None:
    for one in stories:
        if one.operation == "giver":
            assert len(set(one.candidates)) >= 2
    shares = majority([one for one in stories if one.operation in ("count", "yes or no")])
    assert shares["count"] < 0.5
    assert shares["yes or no"] < 0.7


@pytest.mark.slow
def test_graphwalks() -> None:
    questions = asked("graphwalks", 4 * 60, 700)
    found: dict[tuple[str, str], Trials] = defaultdict(Trials)
    for one in questions:
        targets, nodes = set(one.probe.question.targets), set(one.candidates)
        for name, reader in {**READERS, **NODE_READERS}.items():
            named = set(re.findall(r"\w+", reader(one).partition("[")[2]))
            found[one.operation, name].add(len(named & targets), len(named & nodes), len(targets) / len(nodes))
    assert_at_chance(found)
    assert sum(trials.count for trials in found.values()) > 5000
    empty = compared(questions, lambda _: 0.1, {"empty list": constant("")})
    assert_at_chance(empty)
    assert sum(trials.right for trials in empty.values()) > 10


@pytest.mark.slow
def test_ladder() -> None:
    questions = asked("ladder", 4 * 50, 900)
    assert_at_chance(compared(questions, one_of_the_candidates, READERS))
    copies = [one for one in questions if one.operation == "retrieve"]
    for name in ("first", "last", "most frequent"):
        scorer = registry.scorer("ladder")
        values = [scorer.score(one.probe.question, Completion(READERS[name](one))).value for one in copies]
        assert sum(values) / len(values) < 0.25  # the partial credit of copying another question


NUMBERS_ASKED = ("count", "user", "period")


@pytest.mark.slow
@pytest.mark.parametrize("topics", ["given", "inferred"])
def test_aggregate(topics: str) -> None:
    questions = asked("aggregate", 6 * 50, 1800, topics=topics)
    shares = majority(questions)
    assert all(shares[name] < 0.25 for name in NUMBERS_ASKED)

    def chance(one: Asked) -> float:
        if one.operation in NUMBERS_ASKED:
            return shares[one.operation]
        return 0.5 if one.operation == "compare" else len(one.probe.question.targets) / len(TOPICS)

    constants = (*TOPICS, "more common", "less common", "same frequency", "0", "1", "2", "5")
    readers = {**READERS, **{answer: constant(answer) for answer in constants}}
    found = compared(questions, chance, readers)
    if topics == "given":  # the written topics can be counted: that is the task
        assert found.pop(("most", "most frequent")).is_above_chance
        assert found.pop(("least", "rarest")).is_above_chance
    assert_at_chance(found)


@pytest.mark.slow
def test_aggregate_around_a_depth() -> None:
    questions = asked("aggregate", 120, 1000, placement="depth")
    share = majority(questions)["user"]
    assert share < 0.25
    assert_at_chance(compared(questions, lambda _: share, {**READERS, **{str(n): constant(str(n)) for n in range(9)}}))


@pytest.mark.slow
@pytest.mark.parametrize("needles", [2, 4])
def test_mrcr(needles: int) -> None:
    questions = asked("mrcr", 120, 1500, needles=needles)
    found: dict[tuple[str, str], Trials] = defaultdict(Trials)
    for one in questions:
        alike = [one.probe.question.targets[0], *one.probe.question.mistakes["wrong ordinal"]]
        placed = sorted(alike, key=lambda text: one.text.index(text.partition(" ")[2]))
        for name, item in (("first of its kind", placed[0]), ("last of its kind", placed[-1])):
            found["", name].add(is_right(one, item), 1, 1 / needles)
    assert_at_chance(found)


@pytest.mark.slow
def test_agent_log() -> None:
    questions = asked("agent_log", 60, 700)
    failed = re.compile(r"\[[\w-]+\] \$ ([\w-]+) -> exit [1-9]|`([\w-]+)` ended with status [1-9]"
                        r'|"command": "([\w-]+)", "exit_status": [1-9]')  # fmt: skip

    def commands(one: Asked) -> list[str]:
        return [next(filter(None, groups)) for groups in failed.findall(one.text)]

    readers = {
        "first that failed": lambda one: commands(one)[0],
        "last that failed": lambda one: commands(one)[-1],
        "most frequent": lambda one: Counter(commands(one)).most_common(1)[0][0],
    }
    assert_at_chance(compared(questions, lambda _: 1 / 2, readers))  # of two jobs
    assert_at_chance(compared(questions, lambda one: 1 / len(set(commands(one))), READERS))
