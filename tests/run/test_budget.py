"""Budgets: a run stops before it costs more, keeps what it has, and goes on with a higher one; plans show money."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline.core.money import Rates, Tariff
from leadline.core.spec import make_spec
from leadline.core.types import Reading
from leadline.features.judges.verdicts import read_verdicts
from leadline.results.run import load_run
from leadline.run.measure import plan
from leadline.run.money import money
from leadline.store.runs import RECORDS, read_records
from support.commands import CommandResult, Say
from support.fake_server import FakeServer, Faults
from support.leadline_process import start, write_haystack
from support.scripted_judge import verdict_in

KEY = "not-a-secret-not-a-secret-x"
PRICES = """
date = 2026-11-01
[models.fake]
input = 1000.0
output = 2000.0
cached = 100.0
write = 1250.0
tiers.batch = {factor = 0.5}
"""


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(kind="vllm", window=8192, faults=Faults(delay_seconds=0.005), sockets=True) as running:
        yield running


def words(server: FakeServer, tmp_path: Path, command: str = "run") -> list[str]:
    (tmp_path / "prices.toml").write_text(PRICES)
    return [
        command, "niah", "--set", "keys=1", "--model", f"openai:fake?base_url={server.base_url}&tokenizer=bytes",
        "--lengths", "1000,2000", "--depths", "3", "--samples", "4", *(["--no-figure"] if command == "run" else []),
        "--set", f"haystack={write_haystack(tmp_path)}", "--out", str(tmp_path / "run"),
        "--prices", str(tmp_path / "prices.toml"),
    ]  # fmt: skip


@pytest.mark.slow
def test_a_run_stops_before_its_budget_is_exceeded_and_continues_with_a_higher_one(
    say: Say, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    asked = words(server, tmp_path)
    stopped = say(*asked, "--budget", "15usd")
    assert stopped.code == 75
    assert "the budget of 15.00 usd is reached" in stopped.err
    assert "higher --budget" in stopped.err
    first = load_run(tmp_path / "run")
    assert 0 < first.totals.done < 24
    assert 12 < first.money <= 15
    again = say(*asked, "--budget", "15usd")  # nothing more is spent
    assert (again.code, load_run(tmp_path / "run").totals.done) == (75, first.totals.done)
    whole = say(*asked, "--budget", "1000usd", "--json")
    assert whole.code == 0, whole.err
    found = load_run(tmp_path / "run")
    assert found.totals.done == 24
    assert sum(r.attempts for r in read_records(tmp_path / "run")) == 24, "nothing was asked twice"
    assert json.loads(whole.out)["money"] == pytest.approx(found.money)
    totals = found.totals
    assert found.money == pytest.approx((totals.prompt_tokens * 1000 + totals.completion_tokens * 2000) / 1e6)
    page = say("report", str(tmp_path / "run"))
    assert (tmp_path / "run" / "report.html").exists()
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and KEY.encode() in p.read_bytes()]
    assert not [said for said in (stopped, again, whole, page) if KEY in said.out + said.err]


@pytest.mark.slow
def test_the_key_is_not_in_the_title_of_a_process(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.faults = Faults(delay_seconds=0.2)
    running = start(*words(server, tmp_path))
    titles = b""
    while running.poll() is None and len(server.requests) < 20:
        titles += b"".join(title(process) for process in Path("/proc").glob("[0-9]*/cmdline"))
        time.sleep(0.05)
    titles += b"".join(title(process) for process in Path("/proc").glob("[0-9]*/cmdline"))
    running.kill()
    running.communicate()
    assert b"niah" in titles
    assert KEY.encode() not in titles


def title(process: Path) -> bytes:
    with contextlib.suppress(OSError):
        return process.read_bytes()
    return b""


def test_without_receipts_money_is_by_our_own_counts_and_says_so(say: Say, server: FakeServer, tmp_path: Path) -> None:
    server.faults = Faults(without_usage=True)
    said = say(*words(server, tmp_path), "--budget", "10usd")
    assert said.code == 75
    run = load_run(tmp_path / "run")
    assert 0 < run.money <= 10
    assert "by our own token counts" in run.paid


def test_a_plan_has_the_money_of_every_reading_mode_side_by_side(say: Say, server: FakeServer, tmp_path: Path) -> None:
    asked = words(server, tmp_path, "plan")
    found = json.loads(say(*asked, "--json").out)
    by = found["money_by_reading"]
    assert found["money"] == by["fresh"]
    total = found["total"]
    assert by["fresh"] == pytest.approx((total["prompt_tokens"] * 1000 + total["output_tokens"] * 2000) / 1e6)
    assert by["nested"] < by["shared"] < by["fresh"]
    assert by["until, at least"] < by["fresh"]
    shown = say(*asked, "--budget", "5usd").out
    assert "this grid read fresh " in shown
    assert "prices of 2026-11-01" in shown
    assert "the budget of 5.00 usd ends it after about" in shown
    assert "the budget of 0.01 usd ends it after less than 1%" in say(*asked, "--budget", "0.01usd").out
    until = say(*asked, "--until", "effective", "--budget", "0.01usd").out
    assert "the budget of 0.01 usd pays for less than 1% of the most it may ask" in until
    batch = json.loads(say(*asked, "--tier", "batch", "--json").out)
    assert batch["money"] == pytest.approx(found["money"] / 2)


@pytest.mark.parametrize("reading", ["shared", "nested"])
@pytest.mark.parametrize("task", ["niah", "worlds"])
def test_all_but_the_first_question_of_a_document_are_planned_at_the_price_of_cached_tokens(
    task: str, reading: Reading
) -> None:
    values = {"model": "sim:perfect?tokenizer=bytes", "tasks": [task], "lengths": [6000, 12000], "depths": [0.0, 1.0]}
    made = plan(make_spec({**values, "samples": 8, "reading": reading}))
    free_cache = Tariff("sim", Rates(1e6, 0.0, cached=0.0))
    assert money(made, free_cache, reading) == pytest.approx(made.cost.tokens_read)


def test_a_path_in_the_folder_of_nobody_is_a_usage_error_of_every_command(say: Say, tmp_path: Path) -> None:
    nobody = "~nobody-of-that-name/file"
    asked, run = ["niah", "--lengths", "1024", "--model", "sim:perfect"], str(tmp_path / "run")
    assert say("run", *asked, "--depths", "1", "--samples", "1", "--out", run, "--no-figure").code == 0
    for command in (
        ["plan", *asked, "--prices", nobody],
        ["plan", *asked, "--set", f"haystack={nobody}"],
        ["plan", "niah", "--lengths", "1024", "--model", f"hf:{nobody}"],
        ["build", "niah", "--lengths", "1024", "--tokenizer", nobody, "--chat", "-o", str(tmp_path / "built.jsonl")],
        ["report", run, "--prices", nobody],
        ["log", run, "--to", f"tensorboard:{nobody}"],
    ):
        said = say(*command)
        assert (said.code, "this system has no user 'nobody-of-that-name'" in said.err) == (64, True), command


def wrong(say: Say, *words: str) -> CommandResult:
    said = say(*words)
    assert said.code in (64, 66), said.out
    assert "fix:" in said.err
    return said


def test_bad_prices_and_budgets_are_refused_before_anything_is_asked(
    say: Say, server: FakeServer, tmp_path: Path
) -> None:
    asked = words(server, tmp_path)
    without = asked[:-2]
    assert "a budget needs prices" in wrong(say, *without, "--budget", "3usd").err
    assert "a tier needs prices" in wrong(say, *without, "--tier", "batch").err
    assert "unknown tier 'night'" in wrong(say, *asked, "--tier", "night").err
    assert "the budget is in eur and the prices are in usd" in wrong(say, *asked, "--budget", "3eur").err
    assert "is not a budget" in wrong(say, *asked, "--budget", "much").err
    assert "cannot read the file" in wrong(say, *without, "--prices", str(tmp_path / "none.toml")).err
    assert not server.completions
    assert not (tmp_path / "run").exists()


def test_answers_that_were_replaced_are_still_paid_for_also_after_rescoring(
    say: Say, server: FakeServer, tmp_path: Path
) -> None:
    assert say(*words(server, tmp_path)).code == 0
    once, records = load_run(tmp_path / "run"), tmp_path / "run" / RECORDS
    records.write_bytes(2 * records.read_bytes())  # every cell was asked twice
    twice = load_run(tmp_path / "run")
    assert twice.money == pytest.approx(2 * once.money)
    assert twice.totals.done == once.totals.done == 24
    assert say("rescore", str(tmp_path / "run")).code == 0
    assert load_run(tmp_path / "run").money == pytest.approx(2 * once.money)
    stopped = say(*words(server, tmp_path), "--samples", "5", "--budget", f"{1.5 * once.money:.2f}usd")
    assert stopped.code == 75
    assert load_run(tmp_path / "run").totals.done == 24


# --- judges


JUDGE_PRICES = """
[models.judge-of-another-lineage]
input = 100.0
output = 200.0
"""


@pytest.fixture
def judge() -> Iterator[FakeServer]:
    with FakeServer(answer=verdict_in) as running:
        yield running


def judged_words(server: FakeServer, judge: FakeServer, tmp_path: Path) -> list[str]:
    """A run whose spec has a judge."""
    (tmp_path / "prices.toml").write_text(PRICES + JUDGE_PRICES)
    (tmp_path / "spec.toml").write_text(
        f"""
model = "openai:fake?base_url={server.base_url}&tokenizer=bytes"
tasks = [{{name = "niah", keys = 1, haystack = "{write_haystack(tmp_path)}"}}]
lengths = [1000, 2000]
depths = 3
samples = 4
judges = {{models = ["{judge_name(judge)}"], min_accuracy = 0}}
"""
    )
    out = ["--out", str(tmp_path / "run"), "--no-figure"]
    return ["run", str(tmp_path / "spec.toml"), *out, "--prices", str(tmp_path / "prices.toml")]


def judge_name(judge: FakeServer) -> str:
    return f"openai:judge-of-another-lineage?base_url={judge.base_url}&tokenizer=bytes"


def verdict_money(folder: Path) -> float:
    return sum(100 * v.prompt_tokens + 200 * v.completion_tokens for v in read_verdicts(folder).values()) / 1e6


def test_the_money_of_judges_is_shown_apart_from_that_of_the_model(
    say: Say, server: FakeServer, judge: FakeServer, tmp_path: Path
) -> None:
    said = say(*judged_words(server, judge, tmp_path))
    assert said.code == 0, said.err
    run = load_run(tmp_path / "run")
    (name,) = run.judge_money
    assert name.startswith("openai:judge-of-another-lineage")
    assert run.judge_money[name] == pytest.approx(verdict_money(tmp_path / "run"))
    assert run.judge_money[name] > 0.1
    assert run.money == pytest.approx((run.totals.prompt_tokens * 1000 + run.totals.completion_tokens * 2000) / 1e6)
    page = say("report", str(tmp_path / "run"))
    for shown in (said.out, page.out):
        assert f"money     {run.money:.2f} usd (prices of 2026-11-01)" in shown
        assert f"money     {run.judge_money[name]:.2f} usd for judges (" in shown
    assert "money of judges, apart" in (tmp_path / "run" / "report.html").read_text()


def test_a_budget_counts_judges_and_goes_on_with_a_higher_one(
    say: Say, server: FakeServer, judge: FakeServer, tmp_path: Path
) -> None:
    assert say(*words(server, tmp_path)).code == 0
    alone = load_run(tmp_path / "run").money
    asked = judged_words(server, judge, tmp_path)
    limit = alone + 2.0
    stopped = say(*asked, "--budget", f"{limit:.2f}usd", "--workers", "2")
    assert stopped.code == 75, stopped.out + stopped.err
    assert f"the budget of {limit:.2f} usd is reached" in stopped.err
    run = load_run(tmp_path / "run")
    assert run.money == pytest.approx(alone)
    assert 0 < sum(run.judge_money.values()) <= 2.0
    done = len(read_verdicts(tmp_path / "run"))
    whole = say(*asked, "--budget", "1000usd")
    assert whole.code == 0, whole.err
    assert len(read_verdicts(tmp_path / "run")) > done
    spent = alone + sum(load_run(tmp_path / "run").judge_money.values())
    (tmp_path / "run" / "records.jsonl").write_bytes(b"")  # the verdicts are still paid for
    again = say(*asked, "--budget", f"{spent - alone + 1:.2f}usd")
    assert again.code == 75
    assert load_run(tmp_path / "run").money <= 1


def test_a_judge_whose_server_counts_nothing_is_paid_by_our_own_counts_and_the_report_says_so(
    say: Say, server: FakeServer, judge: FakeServer, tmp_path: Path
) -> None:
    judge.faults = Faults(without_usage=True)
    assert say(*words(server, tmp_path)).code == 0
    run = load_run(tmp_path / "run")
    stopped = say(*judged_words(server, judge, tmp_path), "--budget", f"{run.money + 2:.2f}usd", "--workers", "1")
    assert stopped.code == 75, stopped.out + stopped.err
    run = load_run(tmp_path / "run")
    assert 1 < sum(run.judge_money.values()) <= 2
    assert run.paid_to_judges.endswith("by our own token counts)")
    assert not any(v.prompt_tokens for v in read_verdicts(tmp_path / "run").values()), "receipts are not made up"


def test_judging_later_stops_before_its_budget_is_exceeded_and_continues_with_a_higher_one(
    say: Say, server: FakeServer, judge: FakeServer, tmp_path: Path
) -> None:
    assert say(*words(server, tmp_path)).code == 0
    alone, folder = load_run(tmp_path / "run").money, tmp_path / "run"
    (tmp_path / "prices.toml").write_text(PRICES + JUDGE_PRICES)
    grading = ["judge", str(folder), "--with", judge_name(judge), "--min-accuracy", "0"]
    assert "a budget needs prices" in wrong(say, *grading, "--budget", "3usd").err
    assert "no effect without judges" in wrong(say, "judge", str(folder), "--budget", "3usd").err
    grading += ["--prices", str(tmp_path / "prices.toml")]
    stopped = say(*grading, "--budget", f"{alone + 2:.2f}usd", "--workers", "2")
    assert stopped.code == 75, stopped.err
    assert f"the budget of {alone + 2:.2f} usd is reached" in stopped.err
    done = len(read_verdicts(folder))
    assert 0 < verdict_money(folder) <= 2.0
    assert say(*grading, "--budget", "1000usd").code == 0
    assert len(read_verdicts(folder)) > done


def test_a_plan_counts_judges_against_the_budget(
    say: Say, server: FakeServer, judge: FakeServer, tmp_path: Path
) -> None:
    asked = ["plan", *(word for word in judged_words(server, judge, tmp_path)[1:] if word != "--no-figure")]
    found = json.loads(say(*asked, "--json").out)
    judges = sum(one["money"] for one in found["judges"].values())
    assert judges > 1
    whole = found["money"] + judges
    limit = found["money"] + judges / 2  # enough for the model alone
    assert f"ends it after about {limit / whole:.0%}" in say(*asked, "--budget", f"{limit:.2f}usd").out
    (tmp_path / "prices.toml").write_text(PRICES)  # a judge that is priced by flags needs no entry
    assert say(*asked, "--judge-price-in", "1", "--judge-price-out", "2").code == 0


def test_a_judge_without_a_price_is_refused_before_anything_is_asked(
    say: Say, server: FakeServer, judge: FakeServer, tmp_path: Path
) -> None:
    asked = judged_words(server, judge, tmp_path)
    (tmp_path / "prices.toml").write_text(PRICES)
    assert "unknown model 'judge-of-another-lineage'" in wrong(say, *asked).err
    assert not server.completions


def test_report_and_judge_take_prices_and_a_tier(
    say: Say, server: FakeServer, judge: FakeServer, tmp_path: Path
) -> None:
    folder, prices = str(tmp_path / "run"), str(tmp_path / "prices.toml")
    plain = words(server, tmp_path)
    assert say(*plain[: plain.index("--prices")]).code == 0
    (tmp_path / "prices.toml").write_text(PRICES + JUDGE_PRICES)
    assert "money" not in json.loads(say("report", folder, "--json").out)
    full = json.loads(say("report", folder, "--prices", prices, "--json").out)["money"]
    half = json.loads(say("report", folder, "--prices", prices, "--tier", "batch", "--json").out)["money"]
    assert full > 0
    assert half == pytest.approx(full / 2)
    assert "a tier needs prices" in wrong(say, "report", folder, "--tier", "batch").err
    assert "unknown tier 'night'" in wrong(say, "report", folder, "--prices", prices, "--tier", "night").err
    graded = say("judge", folder, "--with", judge_name(judge), "--min-accuracy", "0", "--prices", prices, "--json")
    assert graded.code == 0, graded.err
    assert sum(json.loads(graded.out)["judge_money"].values()) == pytest.approx(verdict_money(tmp_path / "run"))
    later = say("judge", folder)  # the prices of the verdicts are kept
    assert f"money     {verdict_money(tmp_path / 'run'):.2f} usd for judges (" in later.out


def designed(server: FakeServer, tmp_path: Path, budget: str) -> list[str]:
    (tmp_path / "prices.toml").write_text(PRICES)
    return [
        "run", "niah", "--set", "keys=1", "--model", f"openai:fake?base_url={server.base_url}&tokenizer=bytes",
        "--lengths", "1000,2000,4000,8000", "--depths", "2", "--set", "haystack=noise", "--no-figure",
        "--prices", str(tmp_path / "prices.toml"), "--budget", budget, "--out", str(tmp_path / "run"),
    ]  # fmt: skip


def test_without_samples_a_budget_is_a_design_that_says_what_it_cannot_tell(
    say: Say, server: FakeServer, tmp_path: Path
) -> None:
    done = say(*designed(server, tmp_path, "30usd"))
    assert done.code == 0, done.err
    assert "a budget of 30.00 usd cannot tell anything about 8000" in done.err
    assert "the budget is used up" in done.out
    run = load_run(tmp_path / "run")
    assert 0 < run.money <= 30
    assert max(record.cell.length for record in run.records) < 8000
    ended = next(line for line in done.out.splitlines() if line.startswith("budget "))
    assert "used up; " in ended
    more = say(*designed(server, tmp_path, "60usd"))
    assert more.code == 0, more.err
    assert run.money < load_run(tmp_path / "run").money <= 60


def test_with_samples_a_budget_is_a_limit_of_the_grid_that_was_asked_for(
    say: Say, server: FakeServer, tmp_path: Path
) -> None:
    done = say(*designed(server, tmp_path, "30usd"), "--samples", "9")
    assert done.code == 75
    assert "the budget of 30.00 usd is reached" in done.err
