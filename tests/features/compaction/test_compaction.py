"""`compaction`: facts of every kind and age, compactors as plugins, and recall at retained tokens."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from leadline.core import registry
from leadline.core.answers import Failure
from leadline.core.errors import UnknownName, UntrustedFile, UsageError
from leadline.core.spec import TaskSpec, make_spec
from leadline.core.types import Cell, Question
from leadline.features.compaction.compactors import (
    CompactionFailed,
    Compactor,
    messages_of,
    split_in_parts,
    tail_of,
    text_of_messages,
    without_tools,
)
from leadline.features.compaction.false_memories import false_memory
from leadline.features.compaction.report import compaction_results, compaction_section
from leadline.report.page import page
from leadline.results.run import Run, load_run
from leadline.run.measure import measure
from leadline.text.chat import completion_frame
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import WhitespaceTokenizer
from support.agent_readers import recall_fact

TESTS = str(Path(__file__).parents[2])
READER = """
import hashlib, re, sys
sys.path.insert(0, {tests!r})
from support.agent_readers import recall_fact

def reads(prompt):
    return recall_fact(prompt) or "not known"

def forgets_identifiers(prompt):
    '''One ticket in five is given as another one.'''
    value = recall_fact(prompt)
    lost = int(hashlib.sha256(prompt.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF < 0.2
    if lost and re.fullmatch(r"[A-Z][A-Z]-\\d+", value):
        return "ZZ-00000"
    return value or "not known"

def keeps_all(text, tokens):
    return text

def keeps_all_messages(messages, tokens):
    assert sorted(set(message["role"] for message in messages)) == ["assistant", "tool", "user"]
    return messages

def returns_numbers(text, tokens):
    return [1, 2]

def keeps_nothing_of_it(text, tokens):
    return "The session was long."
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(READER.format(tests=TESTS))
    return path


def run_of(tmp_path: Path, model: str, *tasks: dict[str, Any], depths: int = 3, samples: int = 12) -> Run:
    named = [{"name": "compaction", "label": f"compaction[{n}]", "haystack": "agent", **t} for n, t in enumerate(tasks)]
    spec = make_spec({"model": model, "tasks": named, "lengths": [2000], "depths": depths, "samples": samples})
    return load_run(measure(spec, tmp_path / "run").folder)


@pytest.mark.parametrize("count", [36, pytest.param(500, marks=pytest.mark.slow)])
def test_another_solver_finds_every_fact_in_the_prompt_and_no_place_gives_it_away(count: int) -> None:
    fitter, oldest, newest = Fitter(WhitespaceTokenizer(), completion_frame()), 0, 0
    task = registry.task(TaskSpec(name="compaction", options={"haystack": "noise"}))
    for sample in range(count):
        cell = Cell("compaction", 900, (sample // 6 % 3) / 2, sample)
        document = task.document([cell], seed=2, fitter=fitter)
        [probe] = document.probes
        assert (recall_fact(document.prompt_text(probe)),) == probe.question.targets
        kind = probe.question.labels["operation"]
        starts = {fact.id: fact.start for fact in document.facts}
        alike = [fact for fact in document.facts if _kind(fact.text) == _kind_of(document, probe.question.facts[0])]
        assert len(alike) == 3, kind
        places = sorted(starts[fact.id] for fact in alike)
        oldest += starts[probe.question.facts[0]] == places[0]
        newest += starts[probe.question.facts[0]] == places[-1]
    assert oldest / count < 0.62
    assert newest / count < 0.62


def _kind(text: str) -> str:
    return " ".join(re.sub(r"\S+-\S+", "", text).split()[:2])


def _kind_of(document: Any, name: str) -> str:
    [text] = [fact.text for fact in document.facts if fact.id == name]
    return _kind(text)


@pytest.mark.slow
def test_a_compactor_that_keeps_everything_or_nothing_has_the_whole_recall_or_none(tmp_path: Path, mine: Path) -> None:
    run = run_of(
        tmp_path, f"{mine}:reads", {}, {"compactor": f"{mine}:keeps_all"},
        {"compactor": f"{mine}:keeps_nothing_of_it"}, {"compactor": "compact:tail", "keep": 0.3},
        {"compactor": "compact:drop-tools"},
    )  # fmt: skip
    results = compaction_results(list(run.records))
    recall = {found.compactor.rpartition(":")[2]: found for found in results.recalls}
    assert recall["none"].recall.mean == recall["keeps_all"].recall.mean == 1.0
    assert recall["keeps_nothing_of_it"].recall.mean == 0.0
    assert 0 < recall["tail"].recall.mean < 1
    assert recall["tail"].retained <= 600 < recall["none"].retained
    assert all(found.false.mean == 0 for found in recall.values())
    ages = results.by_age["compact:tail"]
    assert ages[0.0].mean < ages[1.0].mean == 1.0  # the tail has what is new
    section = compaction_section([run], ["x"])
    assert section is not None
    [figure] = section.figures
    assert "none, " in figure.draw(False).alternative
    assert "Recall after compaction" in page([run])
    assert compaction_section([run, run], ["a", "b"]) is not None


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sim:perfect", "sim:cliff?window=1500"])
def test_simulated_models_answer_from_what_was_retained(tmp_path: Path, mine: Path, model: str) -> None:
    run = run_of(
        tmp_path, model, {}, {"compactor": f"{mine}:keeps_all"}, {"compactor": f"{mine}:keeps_nothing_of_it"},
        {"compactor": "compact:tail", "keep": 0.3},
    )  # fmt: skip
    results = compaction_results(list(run.records))
    recall = {found.compactor.rpartition(":")[2]: found for found in results.recalls}
    assert recall["keeps_nothing_of_it"].recall.mean == recall["keeps_nothing_of_it"].false.mean == 0.0
    tail = results.by_age["compact:tail"]
    assert tail[0.0].mean == 0.0
    if model == "sim:perfect":
        assert recall["none"].recall.mean == recall["keeps_all"].recall.mean == tail[1.0].mean == 1.0
    else:  # 2,000 tokens are beyond the cliff, and 600 are not
        whole = recall["none"].recall.interval
        assert whole.low <= recall["keeps_all"].recall.mean <= whole.high
        assert recall["none"].recall.mean < 0.5 < tail[1.0].mean


def test_what_was_retained_of_the_evidence_is_on_the_record(tmp_path: Path, mine: Path) -> None:
    run = run_of(tmp_path, "sim:perfect", {"compactor": "compact:tail", "keep": 0.3}, samples=12)
    kept = [record for record in run.records if record.facts]
    assert 0 < len(kept) < run.totals.asked
    for record in run.records:
        assert record.scores["match.all"].value == bool(record.facts)
    assert all(0 < fact.start < fact.end <= record.body_tokens for record in kept for fact in record.facts)


@pytest.mark.slow
def test_forgotten_identifiers_are_recovered_as_false_memories_of_that_kind(tmp_path: Path, mine: Path) -> None:
    run = run_of(tmp_path, f"{mine}:forgets_identifiers", {"haystack": "noise"}, depths=5, samples=60)
    results = compaction_results(list(run.records))
    kinds = results.by_kind["none"]
    assert kinds["identifier"].interval.holds(0.8)
    assert {kind for kind, found in kinds.items() if found.mean < 1} == {"identifier"}
    [recall] = results.recalls
    assert recall.false.mean == pytest.approx(1 - recall.recall.mean)


FALSE = [
    ({"targets": ("BC-12345",), "distractors": ("DG-55555",)}, "BC-12345", 0),
    ({"targets": ("BC-12345",), "distractors": ("DG-55555",)}, "not known", 0),
    ({"targets": ("BC-12345",), "distractors": ("DG-55555",)}, "It is DG-55555.", 1),
    ({"targets": ("BC-12345",)}, "Perhaps BC-12354", 1),
    ({"targets": ("/srv/elm/oak.toml",)}, "/srv/elm/ash.toml", 1),
    ({"targets": ("/srv/elm/oak.toml",)}, "in a file", 0),
    ({"targets": ("40123",)}, "port 8080", 1),
    ({"targets": ("elm",), "distractors": ("oak",)}, "the oak driver", 1),
    ({"targets": ("elm",), "distractors": ("oak",)}, "the ash driver", 0),
]
"""Worked by hand: a made-up word cannot be told from other words, so only planted ones count."""


@pytest.mark.parametrize(("question", "answer", "false"), FALSE)
def test_a_false_memory_is_another_value_that_is_stated(question: dict[str, Any], answer: str, false: int) -> None:
    assert bool(false_memory(Question("?", **question), answer)) == bool(false)


# --- compactors ---

SESSION = 'user: please begin\n{"tool": "sh"}\nresult 1\nassistant: done. It works.\n$ ls\na b c\nuser: thanks\n'


def test_tools_are_dropped_and_the_tail_is_kept() -> None:
    assert without_tools(SESSION) == "user: please begin\nassistant: done. It works.\nuser: thanks"
    assert tail_of("One two. Three four. Five six.", 4, WhitespaceTokenizer()) == "Three four. Five six."
    assert tail_of("a /srv/b.toml. c", 99, WhitespaceTokenizer()) == "a /srv/b.toml. c"
    assert "".join(split_in_parts(SESSION, 3)) == SESSION


def test_a_session_becomes_messages_and_a_session_again(mine: Path) -> None:
    messages = messages_of(SESSION)
    assert [message["role"] for message in messages] == ["user", "tool", "assistant", "tool", "user"]
    assert messages[2]["content"] == "done. It works.\n"
    assert text_of_messages(messages) == SESSION
    whole = Compactor(f"{mine}:keeps_all_messages", 10).compact(SESSION, WhitespaceTokenizer())
    assert whole.text == SESSION.strip()
    with pytest.raises(CompactionFailed, match="not of messages"):
        Compactor(f"{mine}:returns_numbers", 10).compact(SESSION, WhitespaceTokenizer())


def test_rounds_compact_what_was_kept_with_what_is_new() -> None:
    compactor = Compactor("compact:tail", keep=3, rounds=3)
    found = compactor.compact("a1 a2 a3.\nb1 b2 b3.\nc1 c2 c3.\n", WhitespaceTokenizer())
    assert (found.text, found.rounds, found.before, found.tokens) == ("c1 c2 c3.", 3, 9, 3)


PROGRAMS = {
    "import sys; print(sys.stdin.read()[:40])": "",
    "import sys; sys.exit('no disk')": "ended with status 1: no disk",
    "pass": "returned nothing",
    "import sys; t = sys.stdin.read(); print(t + t)": "returned more than it got",
    "import time; time.sleep(60)": "took more than 0.5 s",
}


@pytest.mark.parametrize(("program", "problem"), PROGRAMS.items())
def test_a_program_compacts_or_says_why_not(program: str, problem: str, tmp_path: Path) -> None:
    script = tmp_path / "compact.py"
    script.write_text(program)
    seconds = 0.5 if "sleep" in program else 60.0
    compactor = Compactor("none", 10, command=f"{sys.executable} {script}", timeout=seconds)
    if not problem:
        assert compactor.compact(SESSION, WhitespaceTokenizer()).text == SESSION[:40].strip()
        return
    with pytest.raises(CompactionFailed, match=problem):
        compactor.compact(SESSION, WhitespaceTokenizer())


def test_a_program_that_is_not_there_fails_the_sample_and_loses_nothing(tmp_path: Path, mine: Path) -> None:
    run = run_of(tmp_path, f"{mine}:reads", {}, {"command": "./no-such-program"}, depths=1, samples=2)
    failed = [r for r in run.records if isinstance(r.outcome, Failure)]
    assert {r.outcome.why for r in failed if isinstance(r.outcome, Failure)} == {"compaction"}
    assert (len(failed), run.totals.asked) == (2, 4)
    section = compaction_section([run], ["x"])
    assert section is not None
    assert "2 sessions could not be compacted" in str(section.parts)


def test_a_model_writes_the_summary_by_the_stated_prompt(tmp_path: Path, mine: Path) -> None:
    mine.write_text(
        mine.read_text()
        + '\ndef sums_up(prompt):\n    assert "Its context is nearly full" in prompt\n    return prompt[200:900]\n'
    )
    run = run_of(
        tmp_path, f"{mine}:reads", {"compactor": "compact:prompt", "compactor_model": f"{mine}:sums_up",
        "compactor_price": "2/10"}, depths=1, samples=2,
    )  # fmt: skip
    assert [r.question.labels["compactor"] for r in run.records] == ["compact:prompt"] * 2
    assert all(int(r.question.labels["retained"]) < 900 for r in run.records)
    for labels in (r.question.labels for r in run.records):
        read, written = int(labels["compactor_read"]), int(labels["compactor_written"])
        assert read > int(labels["session"]) > written > 0, "the prompt is around the session"
        assert float(labels["compactor_money"]) == pytest.approx((2 * read + 10 * written) / 1e6, rel=1e-4)
    [recall] = compaction_results(list(run.records)).recalls
    assert recall.money is not None
    section = compaction_section([run], ["x"])
    assert section is not None
    assert "of money" in str(section.parts)


def test_wrong_names_are_refused_before_anything_is_asked() -> None:
    for options, error in (
        ({"compactor": "compact:tale"}, UnknownName),
        ({"compactor": "compact:prompt"}, UsageError),
        ({"compactor": "./none.py:x"}, UsageError),
        ({"compactor_price": "cheap"}, UsageError),
    ):
        with pytest.raises(error):
            registry.task(TaskSpec(name="compaction", options=options))


def test_a_program_that_a_foreign_folder_names_is_not_run(tmp_path: Path) -> None:
    with registry.names_of_folder(tmp_path), pytest.raises(UntrustedFile):
        Compactor("none", 10, command="true").compact(SESSION, WhitespaceTokenizer())
