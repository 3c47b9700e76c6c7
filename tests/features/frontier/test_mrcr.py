"""The i-th of several alike: what is asked, that nothing but reading answers it, and that mistakes are recovered."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from leadline.cli.main import run_command as run_command
from leadline.core import registry
from leadline.core.answers import Completion
from leadline.core.errors import SourceError
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell, Document, Probe
from leadline.features.frontier.mrcr import KINDS, ORDINALS, Mrcr, item_bank, request
from leadline.features.published.openai_datasets import bin_of
from leadline.features.published.report import published_scores
from leadline.results.run import load_run
from leadline.scorers.mrcr import MRCR, MRCR_STRICT
from leadline.stats.intervals import mean_interval
from leadline.text.chat import completion_frame
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import WhitespaceTokenizer
from support.chat_templates import TEMPLATES
from support.fitting import fit
from support.published_data import mrcr_row

DEPTHS = tuple(n / 10 for n in range(11))


def opened(**options: object) -> Mrcr:
    task = registry.task(TaskSpec(name="mrcr", options=options))
    assert isinstance(task, Mrcr)
    return task


def written(task: Mrcr, cells: list[Cell]) -> Document:
    return fit(task.write(cells, seed=2), WhitespaceTokenizer(), completion_frame())


def items_of(document: Document, probe: Probe) -> list[str]:
    return [turn.text for turn in document.turns(probe) if turn.role == "assistant"]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("needles", [2, 4, 8])
def test_one_long_reading_answers_fifty_questions(needles: int) -> None:
    cells = [Cell("mrcr", 16_000, n / 50, 0) for n in range(51)]
    document = written(opened(needles=needles), cells)
    assert len(document.probes) == 51
    assert len({probe.question.targets for probe in document.probes}) == 51
    assert len(document.facts) == -(-51 // needles) * needles
    for probe in document.probes:
        [fact] = document.planted(probe)
        assert abs(fact.depth - (probe.cell.depth or 0.0)) < 0.01
        assert probe.question.targets[0].removeprefix(probe.question.code_word).strip() in items_of(document, probe)


def test_ordinals_of_a_depth_are_those_of_items_that_stand_anywhere() -> None:
    task = opened(needles=4, lines=3)
    seen: dict[float, Counter[int]] = {}
    for depth in (0.0, 0.5, 1.0):
        for sample in range(40):
            [question] = task.write([Cell("mrcr", 4000, depth, sample)], seed=2).questions
            seen.setdefault(depth, Counter())[question.ordinal] += 1
    assert seen[0.0] == Counter({1: 40})
    assert seen[1.0] == Counter({4: 40})
    assert set(seen[0.5]) == {1, 2, 3, 4}
    assert seen[0.5][2] + seen[0.5][3] > 20


def test_items_of_one_kind_and_topic_have_no_line_in_common_but_their_first() -> None:
    document = written(opened(needles=8), [Cell("mrcr", 9000, 0.5, 3)])
    [probe] = document.probes
    alike = [probe.question.targets[0], *probe.question.mistakes["wrong ordinal"]]
    lines = Counter(line for text in alike for line in text.split("\n")[1:])
    assert len(alike) == 8
    assert max(lines.values()) == 1


def test_train_and_test_have_no_topic_or_line_in_common() -> None:
    train, test = item_bank("train"), item_bank("test")
    assert not set(train.topics) & set(test.topics)
    assert not set(train.beginnings) & set(test.beginnings)
    assert len(test.topics) > 100
    assert len(test.beginnings) * len(test.ends) > 50_000
    assert {request(kind, "x")[6:8] for kind in KINDS} == {"a ", "an"}
    assert len(ORDINALS) > 10


def test_a_reader_that_does_not_count_gets_its_share_and_no_more() -> None:
    """The first item of the conversation, the last, the longest; and the first or last of the right kind and topic."""
    task = opened(needles=4, lines=4)
    scores: dict[str, list[float]] = {}
    for sample in range(8):
        document = written(task, [Cell("mrcr", 3000, depth, sample) for depth in DEPTHS])
        for probe in document.probes:
            items = items_of(document, probe)
            texts = (probe.question.targets[0], *probe.question.mistakes["wrong ordinal"])
            alike = sorted((text.split(" ", 1)[1] for text in texts), key=items.index)
            answers = {"first": items[0], "last": items[-1], "longest": max(items, key=len),
                       "first alike": alike[0], "last alike": alike[-1]}  # fmt: skip
            for reader, text in answers.items():
                value = MRCR_STRICT.score(probe.question, Completion(f"{probe.question.code_word} {text}")).value
                scores.setdefault(reader, []).append(value)
    means = {reader: sum(values) / len(values) for reader, values in scores.items()}
    assert max(means[reader] for reader in ("first", "last", "longest")) < 0.12
    assert max(means[reader] for reader in ("first alike", "last alike")) < 0.40


def test_copying_another_item_scores_little_by_the_published_rule() -> None:
    document = written(opened(needles=8), [Cell("mrcr", 6000, depth, 0) for depth in DEPTHS])
    for probe in document.probes:
        others = [
            MRCR.score(probe.question, Completion(text)).value for text in probe.question.mistakes["wrong ordinal"]
        ]
        assert max(others) < 0.6
        assert sum(others) / len(others) < 0.35


def test_what_is_not_there_is_one_more_or_of_another_pair() -> None:
    task = opened(needles=2, absent=0.5)
    document = written(task, [Cell("mrcr", 6000, depth, 1) for depth in DEPTHS])
    absent = [probe for probe in document.probes if probe.question.absent]
    assert 3 <= len(absent) <= 8
    assert len({probe.question.ordinal for probe in absent}) > 1
    for probe in absent:
        asked = probe.question.text.split("the ", 1)[1].split(" that you wrote")[0]
        ordinal, _, what = asked.partition(" ")
        wanted = [turn for turn in document.turns(probe) if turn.text.endswith(f" {what}.")]
        assert len(wanted) == (2 if ordinal == "third" else 0)
        assert not document.planted(probe)


@pytest.mark.slow
def test_a_model_that_copies_the_wrong_item_is_found_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "mrcr", "--model", "sim:perfect?mistake=0.25&seed=3", "--set", "needles=4", "--set", "lines=3",
                 "--lengths", "2500", "--depths", "11", "--samples", "20", "--reading", "shared",
                 "--out", str(tmp_path / "r"), "--no-figure"]  # fmt: skip
    assert run_command(arguments) == 0
    assert "wrong ordinal" in capsys.readouterr().out
    run = load_run(tmp_path / "r")
    records = list(run.records)
    assert len(records) == 220
    assert {record.detail for record in records} == {"", "wrong ordinal"}
    wrong = [float(record.detail == "wrong ordinal") for record in records]
    assert mean_interval(wrong, [record.cluster for record in records]).interval.holds(0.25)
    assert all(record.scores["mrcr.strict"].value == 1 - value for record, value in zip(records, wrong, strict=True))
    assert all(record.scores["mrcr"].value < 1 for record, value in zip(records, wrong, strict=True) if value)


@pytest.mark.slow
def test_a_model_that_invents_items_is_found_out(tmp_path: Path) -> None:
    arguments = ["run", "mrcr", "--model", "sim:perfect?invents=0.2&seed=5", "--set", "absent=0.5", "--set", "lines=3",
                 "--lengths", "2500", "--depths", "11", "--samples", "20", "--reading", "shared",
                 "--out", str(tmp_path / "r"), "--no-figure"]  # fmt: skip
    assert run_command(arguments) == 0
    [rates] = load_run(tmp_path / "r").absent
    assert rates.false_alarms is not None
    assert rates.false_alarms.interval.holds(0.2)
    assert rates.accuracy is not None
    assert rates.accuracy.mean == 1


# --- OpenAI's own data ---


@pytest.fixture
def published(tmp_path: Path) -> Path:
    import pyarrow
    import pyarrow.parquet

    rows = [mrcr_row(number) for number in range(4)]
    (tmp_path / "data").mkdir()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows[:2]), tmp_path / "data" / "2needle_0.parquet")
    (tmp_path / "data" / "more.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[2:]))
    return tmp_path / "data"


@pytest.mark.parametrize("family", [*TEMPLATES, "plain"])
def test_published_messages_are_sent_as_they_are(published: Path, family: str) -> None:
    template = TEMPLATES.get(family)
    fitter = Fitter(WhitespaceTokenizer(), template.frame() if template else completion_frame())
    task = registry.task(TaskSpec(name="mrcr_dataset", options={"data": str(published)}))
    assert task.max_samples() == 4
    for sample in range(4):
        document = task.document([Cell("mrcr_dataset", 4096, None, sample)], seed=0, fitter=fitter)
        [probe] = document.probes
        messages = next(
            json.loads(str(row["prompt"])) for row in map(mrcr_row, range(4)) if row["answer"] in probe.question.targets
        )
        assert [(t.role, t.text.strip()) for t in document.turns(probe)] == [
            (m["role"], m["content"].strip()) for m in messages
        ]
        if template is not None:
            assert document.prompt_text(probe) == template.render(messages)
        assert probe.prompt_tokens == len(WhitespaceTokenizer().encode(document.prompt_text(probe)))
        assert probe.question.ordinal == 2
        assert [text[4:10] for text in probe.question.mistakes["wrong ordinal"]] == ["Poem 0", "Poem 3"]
        assert probe.question.labels["bin"] == "below 4k"


def test_published_samples_that_are_too_long_are_left_out_and_counted(published: Path, tmp_path: Path) -> None:
    arguments = ["run", "mrcr_dataset", "--model", "sim:perfect?tokenizer=bytes", "--set", f"data={published}",
                 "--set", "needles=2", "--lengths", "300,4k", "--samples", "9", "--out", str(tmp_path / "r"),
                 "--no-figure"]  # fmt: skip
    assert run_command(arguments) == 0
    run = load_run(tmp_path / "r")
    found = [one for one in published_scores(run) if one.group == "all"]
    assert [(one.length, one.score.n if one.score else 0, one.not_sent) for one in found] == [(300, 0, 2), (4096, 2, 0)]
    assert {r.failure_class for r in run.records if r.cell.length == 4096} == {"correct"}


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [(4095, "below 4k"), (4096, "bin 1: 4k to 8k"), (8192, "bin 1: 4k to 8k"), (8193, "bin 2: 8k to 16k"),
     (1048576, "bin 8: 512k to 1m"), (1048577, "above 1M")],
)  # fmt: skip
def test_the_bins_are_the_published_ones(tokens: int, expected: str) -> None:
    assert bin_of(tokens) == expected


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"prompt": "[]"}, "not a list of messages"), ({"answer": "other"}, "does not begin with"),
     ({"prompt": '[{"role": "system", "content": "x"}]'}, "has the role 'system'"), ({"n_needles": None}, "n_needles"),
     ({"prompt": '[{"role": "assistant", "content": "x"}]'}, "begin and end with a user's turn")],
)  # fmt: skip
def test_a_row_of_another_kind_is_an_error_that_names_its_line(
    tmp_path: Path, change: dict[str, object], problem: str
) -> None:
    rows = [mrcr_row(0), mrcr_row(1) | change]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(SourceError, match=problem) as error:
        registry.task(TaskSpec(name="mrcr_dataset", options={"data": str(tmp_path / "rows.jsonl")})).sources()
    assert error.value.where.endswith("rows.jsonl:2")
