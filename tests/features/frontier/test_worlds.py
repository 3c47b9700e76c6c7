"""Stories among other text: later sentences override earlier ones, and one text answers dozens of questions."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest

from leadline.core import registry
from leadline.core.answers import Completion
from leadline.core.spec import TaskSpec, make_spec
from leadline.core.types import Cell, Document
from leadline.features.frontier.worlds import NUMBERS, PLACES, QUESTION_KINDS, THINGS, make_story
from leadline.features.published.longbench_scorers import BABILONG_LABELS, babilong
from leadline.run.measure import measure
from leadline.scorers.answer_sets import names_only
from leadline.stats.intervals import mean_interval
from leadline.store.runs import read_records
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import WhitespaceTokenizer
from support.fitting import fit
from support.golden_answers import golden_folder


def written(cells: list[Cell], **options: object) -> Document:
    task = registry.task(TaskSpec(name="worlds", options={"haystack": "noise", **options}))
    return fit(task.write(cells, seed=3), WhitespaceTokenizer(), completion_frame())


def test_one_text_answers_dozens_of_questions() -> None:
    cells = [Cell("worlds", 8192, None, n) for n in range(56)]
    document = written(cells, placement="anywhere", per_document=56)
    assert len({p.question.text for p in document.probes}) == 56
    assert len({p.cut_characters for p in document.probes}) == 1
    operations = [p.question.labels["operation"] for p in document.probes]
    assert {operations.count(name) for name in operations} == {8}
    assert all(document.planted(p) for p in document.probes)


def test_the_last_part_of_a_story_is_around_the_depth_and_overrides_what_came_before() -> None:
    cells = [Cell("worlds", 6000, depth, n) for depth in (0.5, 0.9) for n in range(7)]
    document = written(cells, per_document=7, spread=0.1)
    for probe in document.probes:
        assert max(fact.depth for fact in document.planted(probe)) == pytest.approx(probe.cell.depth, abs=0.08)
    where = [p for p in document.probes if p.question.labels["operation"] == "one fact"]
    assert all(p.question.mistakes["stale fact"] for p in where)
    for probe in where:
        name = probe.question.text.split(" is ")[1].split()[0]
        told = [f for f in document.facts if f.text.startswith(name) and f.text[:-1].split()[-1] in PLACES]
        assert max(told, key=lambda f: f.start).text[:-1].split()[-1] == probe.question.targets[0]


@pytest.mark.slow
def test_every_story_has_an_answer_to_every_question_and_no_label_hides_in_another() -> None:
    for seed in range(50):
        story = make_story(("Ana", "Bert", "Cleo", "Dora"), THINGS[:4], 5, 13, random.Random(seed))
        found = {kind: story.answer(kind, random.Random(seed)) for kind in QUESTION_KINDS}
        assert all(answer and not set(answer.targets) & set(answer.stale) for answer in found.values())
    for labels in (PLACES, THINGS, NUMBERS):
        assert not any(a != b and a in b for a in labels for b in labels)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "share"), [("sim:perfect?mistake=0.2", 0.2), ("sim:perfect?mistake=0.6", 0.6)])
def test_a_planted_share_of_stale_facts_is_recovered(tmp_path: Path, model: str, share: float) -> None:
    task = {"name": "worlds", "haystack": "noise", "placement": "anywhere", "ask": ["person", "thing"]}
    spec = {"model": model, "tasks": [{**task, "per_document": 40}], "lengths": "4k", "samples": 200}
    measure(make_spec({**spec, "reading": "shared"}), tmp_path / "run")
    records = list(read_records(tmp_path / "run"))
    stale = [float(r.detail == "stale fact") for r in records]
    found = mean_interval(stale, [r.cluster for r in records])
    assert found.interval.low <= share <= found.interval.high
    assert all(r.failure_class == "distractor" for r in records if r.detail == "stale fact")


def test_questions_may_be_about_somebody_the_text_does_not_mention(tmp_path: Path) -> None:
    task = {"name": "worlds", "haystack": "noise", "placement": "anywhere", "absent": 0.5, "ask": ["person", "thing"]}
    spec = {"tasks": [task], "lengths": "2k", "samples": 20}
    for model, right in (("sim:perfect", 1.0), ("sim:perfect?invents=1", 0.5)):
        measure(make_spec({**spec, "model": model}), tmp_path / model[-3:])
        records = list(read_records(tmp_path / model[-3:]))
        missing = [r for r in records if r.question.absent]
        assert len(missing) == 10
        assert sum(r.score or 0 for r in records) / 20 == right
    assert {r.failure_class for r in missing} == {"false_alarm"}


# --- BABILong's rule ---


@pytest.mark.parametrize(
    ("answer", "official", "strict"),
    [
        ("The {right}.", 1.0, 1.0),
        ("It is in the {right}. Before that it was in the {other}.", 1.0, 0.0),
        ("The {right} or the {other}.", 0.0, 0.0),
        ("The {right}s.", 1.0, 0.0),
        ("The {other}.", 0.0, 0.0),
        ("I do not know. The {right}.", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_exactly_the_right_labels_count(answer: str, official: float, strict: float) -> None:
    [probe] = written([Cell("worlds", 2000, 0.5, 0)]).probes
    said = Completion(answer.format(right=probe.question.targets[0], other=probe.question.distractors[0]))
    assert registry.scorer("babilong").score(probe.question, said).value == official
    assert registry.scorer("babilong.strict").score(probe.question, said).value == strict


def test_published_answers_get_the_published_scores() -> None:
    expected = {("qa1", "0k"): 100.0, ("qa1", "1M"): 57.0, ("qa2", "128k"): 31.0, ("qa3", "64k"): None,
                ("qa4", "512k"): 74.0, ("qa5", "16k"): 89.3}  # fmt: skip
    files = sorted(golden_folder("babilong").rglob("*.csv"))
    assert len(files) == 55
    for path in files:
        task, length = path.name.split("_")[:2]
        if (task, length) not in expected:
            continue
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines(keepends=True)))
        scores = [names_only(r["output"], r["question"], r["target"], BABILONG_LABELS[task]) for r in rows]
        assert scores == [babilong(task, r["output"], r["target"], r["question"]) for r in rows]
        if expected[task, length] is not None:
            assert round(100 * sum(scores) / len(scores), 1) == expected[task, length]
