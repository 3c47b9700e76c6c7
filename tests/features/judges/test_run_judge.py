"""Grading a run with judges: rules first, known cases, retries, resuming, families, and what the report says."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from leadline.core.errors import JudgeRefused, RunStopped, StoreError
from leadline.core.spec import Limits, make_spec
from leadline.features.judges.asking import judge_run
from leadline.features.judges.report import judged_notes
from leadline.features.judges.results import read_judged
from leadline.features.judges.rubric import load_rubric
from leadline.features.judges.samples import draw_labels
from leadline.features.judges.verdicts import VERDICTS, VerdictWriter, read_verdicts
from leadline.models.openai.http import HttpReply, HttpRequest, served_by
from leadline.run.measure import measure
from leadline.store.runs import read_records
from support.fake_server import FakeServer, FakeServerProcess, Faults, Reply
from support.judged_runs import copy_run, read_lines, record_run, write_lines
from support.leadline_process import call, start
from support.scripted_judge import part, verdict_in

GOOD = "sim:judge?seed=1"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with right, wrong and refused answers at three lengths; most right ones are in a sentence."""
    task = {"name": "niah", "haystack": "noise"}
    return record_run(
        tmp_path_factory.mktemp("runs"), bare_every=4, model="sim:decay?window=1k&noise=0.1", tasks=[task]
    )


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    return copy_run(recorded, tmp_path)


def served(server: FakeServer | FakeServerProcess) -> str:
    return f"openai:judge-of-another-lineage?base_url={server.base_url}&tokenizer=bytes"


def test_a_judge_grades_what_rules_do_not_decide_and_asks_nothing_of_the_tested_model(run: Path) -> None:
    records = (run / "records.jsonl").read_bytes()
    result = judge_run(run, [GOOD])
    (judged,) = read_judged(run)
    assert judged.answers == 120
    assert judged.sent + sum(judged.by_rule.values()) == 120
    assert result.by_rule == sum(judged.by_rule.values()) > 10
    assert set(judged.by_rule) <= {"exact match", "empty", "refused", "cut off"}
    assert result.sent == judged.sent > 20
    (score,) = judged.judges
    assert (score.graded, score.unparsed, score.failed) == (judged.sent, 0, 0)
    # A simulated judge without errors says what substring matching says.
    truth = [record.score or 0.0 for record in read_records(run)]
    assert score.naive is not None
    assert score.naive.mean == pytest.approx(sum(truth) / len(truth), abs=0.02)
    assert (run / "records.jsonl").read_bytes() == records


def test_the_judge_never_sees_the_document(run: Path) -> None:
    with FakeServer(answer=verdict_in, keep_bodies=True) as server:
        judge_run(run, [served(server)], min_accuracy=0)
    prompts = [r.body["messages"][0]["content"] for r in server.completions if "The code of" in str(r.body)]
    by_key = {record.question.text: record for record in read_records(run)}
    assert len(prompts) > 40
    for prompt in prompts[20:]:  # after the known cases
        code = prompt.partition("The code of this sample is ")[2][:8]
        record = by_key[part(prompt, code, "question")]
        assert part(prompt, code, "target") == record.question.targets[0]
        evidence = part(prompt, code, "evidence 1")
        assert record.question.targets[0] in evidence
        assert 60 < len(evidence) < 700
        assert len(prompt) < 4000
    heads = {prompt.partition("The code of")[0] for prompt in prompts}
    assert len(heads) == 1  # so that a server caches it
    schemas = [
        r.body["response_format"]["json_schema"]["schema"] for r in server.completions if "schema" in str(r.body)
    ]
    assert schemas
    assert list(schemas[0]["properties"])[:2] == ["id", "reason"]


@pytest.mark.slow
def test_the_judge_sees_the_text_around_the_evidence_of_a_model_that_was_allowed_to_think(tmp_path: Path) -> None:
    spec = {
        "model": "sim:perfect?tokenizer=bytes",
        "tasks": [{"name": "niah", "haystack": "noise"}],
        "lengths": "2k,3k",
    }
    run = record_run(tmp_path, bare_every=0, **spec, allowance="300")
    result = judge_run(run, [GOOD])
    assert result.sent == len(list(read_records(run)))


def test_run_again_nothing_is_asked_twice_and_another_judge_or_rubric_reuses_nothing(run: Path) -> None:
    first = judge_run(run, [GOOD])
    lines = (run / VERDICTS).read_bytes()
    assert judge_run(run, [GOOD]).sent == 0
    assert (run / VERDICTS).read_bytes() == lines
    assert judge_run(run, ["sim:judge?seed=2"]).sent == first.sent
    assert judge_run(run, [GOOD], rubric="scale").sent == first.sent
    keys = [json.loads(line)["key"] for line in (run / VERDICTS).read_bytes().splitlines()]
    assert len(set(keys)) == len(keys)


def test_a_changed_answer_needs_a_new_verdict(run: Path) -> None:
    judge_run(run, [GOOD])
    before = read_judged(run)[0]
    lines = (run / "records.jsonl").read_bytes().splitlines()
    sent = {v.cell.key for v in read_verdicts(run).values() if v.judge != "rule" and not v.known_case}
    changed = next(line for line in map(json.loads, lines) if _key(line["cell"]) in sent)
    changed["outcome"]["text"] = "It is something else altogether, I would say."
    (run / "records.jsonl").write_bytes(b"\n".join(lines) + b"\n" + json.dumps(changed).encode() + b"\n")
    assert read_judged(run)[0].sent == before.sent - 1
    assert judge_run(run, [GOOD]).sent == 1


def _key(cell: dict[str, object]) -> str:
    return f"{cell['task']}/{cell['length']}/{cell['depth']:.4f}/{cell['sample']}"


# --- replies


def asked_of(run: Path, answer: Callable[[str], str | Reply], **settings: object) -> FakeServer:
    with FakeServer(answer=answer, keep_bodies=True) as server:
        judge_run(run, [served(server)], min_accuracy=0, **settings)  # type: ignore[arg-type]
    return server


def test_a_reply_that_cannot_be_read_is_asked_once_more_and_is_then_unparsed_in_the_denominator(run: Path) -> None:
    server = asked_of(run, lambda prompt: "GRADE: C, the answer is CORRECT" if "code of this" in prompt else "ok")
    (judged,) = read_judged(run)
    (score,) = judged.judges
    assert score.unparsed == score.graded == judged.sent
    assert score.yes_rate == 0
    assert score.known is not None
    assert score.known.unparsed == 20
    found = [v for v in read_verdicts(run).values() if v.status == "unparsed"]
    assert all(v.replies == 2 and v.reply.startswith("GRADE") and v.value is None for v in found)
    again = [r for r in server.completions if "A first reply could not be used" in str(r.body)]
    assert len(again) == len(found)
    assert any("Replies without a verdict" in note for note in judged_notes(judged))


def test_a_second_reply_that_can_be_read_counts(run: Path) -> None:
    asked_of(run, lambda prompt: verdict_in(prompt) if "A first reply could not" in prompt else "Well ...")
    (judged,) = read_judged(run)
    assert judged.judges[0].unparsed == 0
    assert {v.replies for v in read_verdicts(run).values() if v.judge != "rule"} == {2}


def test_a_server_without_schemas_is_asked_without(run: Path) -> None:
    with FakeServer(Faults(refuse_schemas=True), answer=verdict_in, keep_bodies=True) as server:
        judge_run(run, [served(server)], min_accuracy=0)
    with_schema = [r for r in server.completions if "response_format" in r.body]
    assert 1 <= len(with_schema) <= 16 + 1  # those in flight when the first was refused
    assert read_judged(run)[0].judges[0].failed == 0


def test_a_judge_that_is_away_stops_the_grading_and_keeps_what_it_said(run: Path) -> None:
    with FakeServer(answer=verdict_in, sockets=True) as server:
        name = served(server)
        judge_run(run, [name], min_accuracy=0)
    kept = (run / VERDICTS).read_bytes().splitlines(keepends=True)
    (run / VERDICTS).write_bytes(b"".join(kept[:-30]))
    port = int(name.partition("127.0.0.1:")[2].partition("/")[0])
    silent = FakeServer(answer=lambda prompt: Reply(None if "The code of" in prompt else "ok"), port=port, sockets=True)
    with silent, pytest.raises(RunStopped, match="in a row"):
        judge_run(run, [name], min_accuracy=0, limits=Limits(attempts=1, breaker=5, workers=1))
    assert (run / VERDICTS).read_bytes().startswith(b"".join(kept[:-30]))
    assert read_judged(run)[0].judges[0].failed >= 5


def test_a_judge_whose_account_has_no_credit_stops_the_grading_at_once_and_keeps_what_it_said(run: Path) -> None:
    server, asked = FakeServer(answer=verdict_in), 0

    def reply(request: HttpRequest) -> HttpReply:
        nonlocal asked
        asked += b"The code of" in (request.body or b"")
        if asked > 10:
            return HttpReply(402, b'{"error": {"message": "Insufficient Balance"}}', "application/json")
        return server.handle(request)

    with served_by(reply) as url, pytest.raises(RunStopped, match=r"has no credit.*Insufficient Balance") as raised:
        judge_run(run, [f"openai:judge?base_url={url}"], min_accuracy=0, limits=Limits(workers=1))
    assert asked == 11
    assert raised.value.fix.startswith("add credit to the account of this key")
    assert len((run / VERDICTS).read_bytes().splitlines()) >= 10


def test_a_hosted_judge_needs_no_tokenizer(run: Path) -> None:
    with FakeServer(answer=verdict_in) as server:
        judge_run(run, [f"openai:judge?base_url={server.base_url}"], min_accuracy=0)
    assert read_judged(run)[0].judges[0].failed == 0


# --- who may grade


def test_a_judge_of_the_tested_models_family_is_refused_unless_asked_for_and_is_marked(run: Path) -> None:
    with pytest.raises(JudgeRefused, match="family"):
        judge_run(run, ["sim:perfect"])
    assert not (run / VERDICTS).exists()
    judge_run(run, ["sim:perfect"], own_family=True)
    (judged,) = read_judged(run)
    assert judged.judges[0].own_family
    assert any("own family" in note for note in judged_notes(judged))


@pytest.mark.parametrize("options", ["specificity=0.1", "sensitivity=0.1", "garbled=0.9"])
def test_a_judge_that_fails_the_known_cases_is_refused_with_the_reason(run: Path, options: str) -> None:
    with pytest.raises(JudgeRefused, match="known cases") as refused:
        judge_run(run, [f"sim:judge?{options}"])
    assert "--min-accuracy" in refused.value.fix
    assert not [v for v in read_verdicts(run).values() if v.judge != "rule" and not v.known_case]


# --- several judges, agreement, labels


def test_where_rules_decide_everything_a_judge_and_the_median_have_the_same_mean(run: Path) -> None:
    lines = read_lines(run)
    for line in lines:
        if line["cell"]["length"] == 512:
            line["outcome"]["text"] = line["question"]["targets"][0]
    write_lines(run, lines)
    judge_run(run, [GOOD, "sim:judge?seed=2"])
    (judged,) = read_judged(run)
    assert judged.panel is not None
    parts = [score.by_length[512] for score in (*judged.judges, judged.panel)]
    assert [part.graded for part in parts] == [0, 0, 0]
    first, *others = [part.naive.mean for part in parts if part.naive is not None]
    assert first > 0.9
    assert others == [first, first]


def test_agreement_is_reported_overall_by_length_and_depth_and_a_fall_with_length_is_said(run: Path) -> None:
    judge_run(run, [GOOD, "sim:judge?seed=2&guesses_beyond=1k"])
    (judged,) = read_judged(run)
    assert judged.agreement is not None
    assert set(judged.by_length) == {512, 1024, 2048}
    assert set(judged.by_depth) == {0.0, 0.25, 0.5, 0.75, 1.0}
    assert judged.by_length[512].raw.value == 1.0
    assert judged.by_length[2048].raw.value < 0.75
    assert sum(found.samples for found in judged.disagreement.values()) == judged.sent
    assert judged.trend is not None
    assert judged.trend.falls
    assert any("may be the judges'" in note for note in judged_notes(judged))
    assert judged.panel is not None


def test_labels_are_drawn_over_verdicts_and_lengths_and_correct_a_lenient_judge(run: Path) -> None:
    judge_run(run, ["sim:judge?seed=3&specificity=0.6"], min_accuracy=0)
    (before,) = read_judged(run)
    assert not before.is_corrected
    assert any(note.startswith("Uncorrected") for note in judged_notes(before))
    drawn = draw_labels(run, 30, load_rubric("answer").digest)
    assert len(set(drawn.keys)) == 30
    records = {record.cell.key: record for record in read_records(run)}
    assert {records[key].cell.length for key in drawn.keys} == {512, 1024, 2048}
    assert len({drawn.draw.strata[key].partition(" ")[0] for key in drawn.keys}) == 2
    assert draw_labels(run, 30, load_rubric("answer").digest).keys == drawn.keys
    labels = run.parent / "labels.csv"
    rows = [f"{key},{'yes' if (records[key].score or 0) >= 1 else 'no'}" for key in drawn.keys]
    labels.write_text("\n".join(["id,label", *rows]) + "\n")
    (judged,) = read_judged(run, labels)
    (score,) = judged.judges
    truth = sum(record.score or 0.0 for record in records.values()) / len(records)
    assert score.naive is not None
    assert score.corrected is not None
    assert score.rogan_gladen is not None
    assert score.naive.mean > truth + 0.1
    assert abs(score.corrected.mean - truth) < abs(score.naive.mean - truth) / 2
    assert score.corrected.interval.holds(truth)
    assert score.rogan_gladen.interval.holds(truth)
    assert score.rogan_gladen.specificity < 0.8
    # A filled copy of the draw is weighed by its strata like the run's own file.
    (run / "labels.csv").write_bytes(labels.read_bytes())
    (own,) = read_judged(run)[0].judges
    assert (own.corrected, own.rogan_gladen) == (score.corrected, score.rogan_gladen)


# --- files


def test_a_torn_last_line_is_cut_off_and_asked_again(run: Path) -> None:
    judge_run(run, [GOOD])
    whole = (run / VERDICTS).read_bytes()
    (run / VERDICTS).write_bytes(whole[:-20])
    assert judge_run(run, [GOOD]).sent == 1
    assert sorted(read_verdicts(run)) == sorted(json.loads(line)["key"] for line in whole.splitlines())


def test_two_processes_do_not_judge_one_run_at_the_same_time(run: Path) -> None:
    with VerdictWriter(run), pytest.raises(StoreError):
        judge_run(run, [GOOD])


WORKERS = 8


@pytest.mark.slow
def test_killed_while_grading_no_verdict_is_lost_or_repeated_beyond_those_in_flight(run: Path) -> None:
    with FakeServerProcess(Faults(delay_seconds=0.03), answers="verdicts") as server:
        words = ["judge", str(run), "--with", served(server), "--workers", str(WORKERS), "--min-accuracy", "0"]
        draw, kept, kills = random.Random(5), list[bytes](), 5
        for _ in range(kills):
            process = start(*words)
            wanted = len(kept) + draw.randrange(2, 12)
            while len(_lines(run)) < wanted and process.poll() is None:
                time.sleep(0.01)
            process.kill()
            process.communicate()
            whole = [line for line in _lines(run) if line.endswith(b"}\n")]
            assert whole[: len(kept)] == kept
            kept = whole
        code, _, err = call(*words)
        assert code == 0, err
        lines = _lines(run)
        assert lines[: len(kept)] == kept
        keys = Counter(json.loads(line)["key"] for line in lines)
        assert set(keys.values()) == {1}
        judged = [v for v in read_verdicts(run).values() if v.judge != "rule"]
        assert all(v.status == "judged" for v in judged)
        (found,) = read_judged(run)
        assert len(judged) == found.sent + 20
        asked = Counter(r.digest for r in server.completions if r.tokens > 1000)
        assert len(asked) == len(judged)
        assert asked.total() - len(judged) <= kills * WORKERS


def _lines(folder: Path) -> list[bytes]:
    path = folder / VERDICTS
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []


def test_judges_in_a_spec_grade_at_the_end_of_a_run_and_are_no_part_of_its_identity(tmp_path: Path) -> None:
    values = {"model": "sim:decay?window=1k", "tasks": ["niah"], "lengths": "512", "samples": 2}
    plain, judged = make_spec(values), make_spec({**values, "judges": {"models": [GOOD], "rubric": "scale"}})
    assert plain.digest == judged.digest
    assert make_spec({**values, "judges": [GOOD]}).judges.models == (GOOD,)
    measure(judged, tmp_path / "run")
    assert read_judged(tmp_path / "run")[0].rubric.startswith("scale")
