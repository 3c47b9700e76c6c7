"""`leadline judge` and `leadline agreement` as a user meets them: grade, label, correct, report; and wrong input."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import median

import pytest

from leadline.features.judges.results import read_judged
from leadline.report.page import write_page
from leadline.results.run import load_run
from leadline.store.runs import read_records
from support.commands import Say
from support.judged_runs import copy_run, record_run
from support.summhay import ARCHIVE, read_summhay

LENIENT, GUESSING = "sim:judge?seed=1&specificity=0.8", "sim:judge?seed=2&guesses_beyond=1k"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Right answers in a sentence, so that each takes a judge, and wrong ones, at three lengths."""
    task = {"name": "niah", "haystack": "noise", "keys": 1}
    return record_run(tmp_path_factory.mktemp("runs"), bare_every=8, model="sim:decay?window=1k", tasks=[task])


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    return copy_run(recorded, tmp_path)


def fill_in(path: Path) -> int:
    """What a person does: yes where the answer states the target."""
    with path.open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    for row in rows:
        row["label"] = "yes" if row["targets"] in row["answer"] else "no"
    with path.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.DictWriter(opened, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return len(rows)


def test_grade_label_and_report(run: Path, say: Say) -> None:
    code, out, _ = say("judge", str(run), "--with", LENIENT, "--with", GUESSING)
    assert code == 0
    assert "uncorrected" in out
    assert "part of the fall of" in out
    assert say("judge", str(run), "--label", "40").code == 0
    rows = (run / "labels.csv").read_text()
    assert "verdict" not in rows
    assert "sim:judge" not in rows
    assert fill_in(run / "labels.csv") == 40
    code, out, _ = say("judge", str(run), "--json")
    assert code == 0
    (judged,) = json.loads(out)["judged"]
    truth = [record.score or 0.0 for record in read_records(run)]
    mean = sum(truth) / len(truth)
    assert judged["corrected"]
    for judge in judged["judges"]:
        assert judge["corrected"]["low"] <= mean <= judge["corrected"]["high"]
        assert set(judge["by_length"]) == {"512", "1024", "2048"}
        assert set(judge["by_depth"]) == {"0", "0.25", "0.5", "0.75", "1"}
        assert sum(part["prompt_tokens"] for part in judge["by_length"].values()) < judge["prompt_tokens"]
    lenient = judged["judges"][0]
    assert lenient["naive"]["mean"] > mean + 0.04
    assert abs(lenient["corrected"]["mean"] - mean) < abs(lenient["naive"]["mean"] - mean)
    assert say("judge", str(run), "--label", "40").code == 0
    assert fill_in(run / "labels.csv") == 40  # drawing again keeps the draw and its labels


@pytest.mark.slow
def test_the_report_has_the_judges_in_the_terminal_on_the_page_and_as_json(run: Path, say: Say, tmp_path: Path) -> None:
    say("judge", str(run), "--with", LENIENT, "--with", f"{GUESSING}&garbled=0.1")
    judged = load_run(run)
    naked = write_page([judged], tmp_path / "before.html").read_text()
    terminal = say("report", str(run), "-o", str(tmp_path / "x.html")).out
    for part in ("naked", "terminal"):
        text = {"naked": naked, "terminal": terminal}[part]
        for wanted in (
            "same verdict", "Krippendorff", "AC1", "says yes", "unparsed", "tokens", "samples with different verdicts",
            "judged means by length and depth", "depth 25%", "known cases", "ncorrected", "may be the judges", "median",
        ):  # fmt: skip
            assert wanted in " ".join(text.split()), (part, wanted)
    say("judge", str(run), "--label", "40")
    fill_in(run / "labels.csv")
    corrected = write_page([judged], tmp_path / "after.html").read_text()
    assert "corrected with 40 labels by people" in corrected
    assert "Rogan-Gladen" in corrected
    assert "naive mean" in corrected
    assert "Uncorrected" not in corrected
    assert 'href="#judged-0"' in corrected
    assert json.loads(say("report", str(run), "--json").out)["judged"][0]["labels"] == 40


def test_a_run_without_verdicts_has_no_such_section(run: Path, say: Say, tmp_path: Path) -> None:
    assert "Judged answers" not in write_page([load_run(run)], tmp_path / "page.html").read_text()
    code, _, err = say("judge", str(run))
    assert code == 64
    assert "add --with MODEL" in err


def test_answers_that_rules_decided_leave_nothing_to_label(say: Say, tmp_path: Path) -> None:
    folder = str(tmp_path / "exact")
    asked = ("--lengths", "512", "--depths", "1", "--samples", "6", "--no-figure")
    assert say("run", "niah", "--model", "sim:perfect", *asked, "--out", folder).code == 0
    out = say("judge", folder, "--with", "sim:judge").out
    assert "Rules decided all 6 answers (6 exact match)" in out
    assert "--label" not in out
    code, _, err = say("judge", folder, "--label", "6")
    assert code == 0
    assert "rules decided all 6 answers: there is nothing for a judge to label" in err
    assert "grade first" not in err
    assert not (tmp_path / "exact" / "labels.csv").exists()


def test_when_every_answer_has_a_label_the_mean_is_theirs(run: Path, say: Say) -> None:
    say("judge", str(run), "--with", LENIENT)
    say("judge", str(run), "--label", "1000")
    fill_in(run / "labels.csv")
    (judged,) = read_judged(run)
    truth = [record.score or 0.0 for record in read_records(run)]
    corrected = judged.judges[0].corrected
    assert corrected is not None
    assert corrected.mean == pytest.approx(sum(truth) / len(truth))


def test_a_plan_counts_judges_apart(say: Say) -> None:
    words = ["plan", "niah", "--model", "sim:perfect", "--lengths", "4k", "--samples", "5", "--price-in", "1", "--json"]
    plain = json.loads(say(*words).out)
    found = json.loads(
        say(*words, "--judges", "sim:judge?seed=1", "--judges", "sim:judge?seed=2", "--judge-price-in", "2").out
    )
    assert found["total"] == plain["total"]
    assert found["money"] == plain["money"]
    assert len(found["judges"]) == 2
    for cost in found["judges"].values():
        assert cost["requests"] == plain["total"]["requests"] + 20  # the known cases
        assert 200 < cost["prompt_tokens"] / cost["requests"] < 1000  # never the document
        assert cost["money"] == pytest.approx(2 * cost["prompt_tokens"] / 1e6)


def test_judges_of_a_run_that_cannot_grade_are_refused_before_it_starts(say: Say, tmp_path: Path) -> None:
    words = [
        "run",
        "niah",
        "--model",
        "sim:decay",
        "--lengths",
        "512",
        "--samples",
        "1",
        "--out",
        str(tmp_path / "run"),
    ]
    for judge, said in (("sim:perfect", "family"), ("nonsense", "provider"), ("openai:x?api_key=sk-abcdefghij12", "")):
        code, _, err = say(*words, "--judges", judge)
        assert code != 0
        assert said in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("one.csv", b"id,a\n1,yes\n", "two raters"),
        ("empty.csv", b"", "no rows"),
        ("latin.csv", b"id,a,b\n1,\xe9,\xe8\n", "UTF-8"),
        ("long.csv", b"id,a,b\n1,yes,no,no\n", "4 cells"),
        ("twice.csv", b"id,a,a\n1,yes,no\n", "occurs twice"),
        ("blank.csv", b"id,a,b\n1,,\n", "nothing was rated"),
    ],
)
def test_ratings_that_cannot_be_compared_are_an_error_with_a_fix(
    say: Say, tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    code, _, err = say("agreement", str(tmp_path / name))
    assert code == 64
    assert said in err
    assert "fix:" in err


def test_missing_ratings_may_be_empty_or_nan(say: Say, tmp_path: Path) -> None:
    path = tmp_path / "ratings.csv"
    path.write_text("id,a,b\n1,1,1\n2,0,nan\n3,0,0\n4,1\n5,1,1\n")
    found = json.loads(say("agreement", str(path), "--json").out)
    assert found["agreement"]["raw"]["value"] == 1.0


@pytest.mark.skipif(not ARCHIVE.exists(), reason="the public labels are not here")
def test_labels_made_elsewhere_give_the_published_table(say: Say, tmp_path: Path) -> None:
    data = read_summhay()
    names = list(data.judges)
    path = tmp_path / "summhay.csv"
    with path.open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(["id", "summary", "human", *names])
        for n, (summary, human) in enumerate(zip(data.summaries, data.human, strict=True)):
            writer.writerow([n, summary, human, *(data.judges[name][n] for name in names)])
    code, out, _ = say("agreement", str(path), "--truth", "human", "--clusters", "summary", "--json")
    assert code == 0
    found = json.loads(out)
    assert round(found["agreement"]["krippendorff"]["value"], 3) == 0.457
    gemini = found["rater_quality"]["prompted_gemini-1.5-pro"]
    assert [round(gemini[k]["value"], 3) for k in ("raw", "cohen", "quadratic")] == [0.703, 0.548, 0.747]
    assert round(100 * gemini["bias"], 1) == 4.1
    human = sum(data.human) / len(data.human)
    naive = [values["naive"] for values in found["rater_quality"].values()]
    assert not any(values["low"] <= human <= values["high"] for values in naive)
    assert median(values["mean"] for values in naive) > human + 0.05


def test_a_judge_that_cannot_be_asked_leaves_nothing_to_report(run: Path, say: Say) -> None:
    gone = say("judge", str(run), "--with", "openai:gone?base_url=http://127.0.0.1:9/v1&tokenizer=whitespace")
    assert gone.code == 69
    shown = say("judge", str(run))
    assert shown.code == 64
    assert "no judge has graded this run yet" in shown.err
    assert "judged" not in say("report", str(run), "--json").out
