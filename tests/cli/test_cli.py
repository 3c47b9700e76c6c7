"""The command line: help, commands, and clear errors with exit codes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import leadline
from leadline.cli.demo import FULL_LENGTHS, SPEC
from leadline.core.spec import make_spec
from leadline.store.runs import RECORDS
from support.commands import Say
from support.fake_server import FakeServer, Faults
from support.leadline_process import PROGRAM, write_haystack

RUN = ("run", "niah", "--model", "sim:perfect?tokenizer=bytes", "--depths", "3", "--samples", "1", "--no-figure")


# --- starting -----------------------------------------------------------------------------------


def test_the_help_has_a_full_sentence_for_each_command(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = say("--help").out.partition("Measure:")[2].split("\n")
    commands = [line for line in lines if line.startswith("  ")]
    assert len(commands) > 15
    assert all(line.endswith(".") and not line.endswith("...") for line in commands)


def test_without_arguments_the_help_is_shown(say: Say) -> None:
    said = say()
    assert said.code == 64
    assert "Usage: leadline" in said.err


# --- run, plan, demo ----------------------------------------------------------------------------


def test_a_run_shows_counts_receipts_and_its_folder(say: Say) -> None:
    said = say(*RUN, "--lengths", "1k,2k")
    assert said.code == 0
    assert "samples   6 planned, 6 answered, 0 failed" in said.out
    assert "receipts  6 equal, 0 different, 0 not given" in said.out
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("niah-sim-perfect-")
    assert f"records   {folder}" in said.out
    assert said.out.splitlines()[-1].startswith("next      ")
    assert said.out.splitlines()[-1].endswith(f" report {folder}  # a page with every answer")
    assert "next  " not in say(*RUN, "--lengths", "1k,2k", "--json").out
    again = say(*RUN, "--lengths", "1k,2k")
    assert "resuming: 6 of 6 samples have an answer" in again.err


@pytest.mark.slow
def test_the_folder_of_a_suite_has_its_name(say: Say) -> None:
    suite = ("ruler-quick", "--model", "sim:perfect", "--lengths", "512,1k", "--samples", "1", "--depths", "1")
    planned = json.loads(say("plan", *suite, "--json").out)["folder"]
    assert planned.startswith("runs/ruler-quick-sim-perfect-")
    assert say("run", *suite, "--no-figure").code == 0
    assert [str(path) for path in Path("runs").iterdir()] == [planned]
    assert json.loads(say("plan", *suite, "--json", "--out", "mine").out)["folder"] == "mine"
    one = json.loads(say("plan", *suite, "--task", "niah", "--json").out)["folder"]
    assert one.startswith("runs/niah-sim-perfect-"), "its tasks were replaced"


def test_a_pipe_has_whole_lines_unless_columns_says_how_wide_it_is(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    piped = say(*RUN, "--lengths", "1k,2k").out
    assert max(map(len, piped.splitlines())) > 80
    monkeypatch.setenv("COLUMNS", "80")
    narrow = say("report", str(next(Path("runs").iterdir()))).out
    assert max(len(line) for line in narrow.splitlines() if "/" not in line) <= 80


def test_a_score_of_zero_is_shown_with_the_classes_of_its_answers(say: Say) -> None:
    said = say("run", "niah", "--model", "sim:refuses?tokenizer=bytes", *RUN[4:], "--lengths", "1k")
    assert "answers   0 correct, 3 refused" in said.out


@pytest.mark.parametrize(("reading", "harder"), [("fresh", False), ("shared", True), ("nested", True)])
def test_a_reading_harder_than_the_published_protocol_says_so_in_terminal_and_picture(
    say: Say, reading: str, harder: bool
) -> None:
    said = say(*RUN, "--lengths", "1k,2k", "--reading", reading, "--out", "here")
    say("report", "here")
    picture = " ".join(Path("here/heatmap.svg").read_text(encoding="utf-8").split())
    for text in (" ".join(said.out.split()), picture):
        assert ("not comparable with published results" in text) == harder


def test_the_demo_reads_as_published_results_do_with_three_samples_a_cell() -> None:
    spec, full = make_spec(SPEC), make_spec(SPEC | {"lengths": FULL_LENGTHS})
    assert (spec.reading, min(spec.lengths), max(spec.lengths)) == ("fresh", 256, 4096)
    assert spec.samples >= 3
    assert (full.lengths[:-1], full.lengths[-1]) == (spec.lengths, 8192)


def test_run_draws_a_heatmap(say: Say) -> None:
    said = say(*RUN[:-1], "--lengths", "1k,2k", "--out", "here")
    assert said.code == 0
    assert Path("here/heatmap.png").read_bytes().startswith(b"\x89PNG")
    assert "heatmap   here/heatmap.png" in said.out


def test_json_is_the_only_output_on_stdout(say: Say) -> None:
    said = say(*RUN, "--lengths", "1k", "--json", "--out", "here")
    found = json.loads(said.out)
    assert (found["folder"], found["planned"], found["done"], found["failed"]) == ("here", 3, 3, 0)
    assert found["receipts"] == {"equal": 3, "different": 0, "not_given": 0, "largest_difference": 0}
    assert found["classes"] == {"correct": 3}
    assert found["report"]["lengths"][0]["mean"] == 1.0
    assert "run: here" in said.err


def test_plan_counts_and_sends_nothing(say: Say) -> None:
    words = ("plan", *RUN[1:-1], "--lengths", "1k,2k", "--tokens-per-second", "1000", "--price-in", "2")
    found = json.loads(say(*words, "--price-out", "10", "--json").out)
    total = found["total"]
    assert total == {"requests": 6, "prompt_tokens": 8832, "tokens_read": 8832, "output_tokens": 384}
    assert found["seconds"] == pytest.approx((8832 + 384) / 1000)
    assert found["money"] == pytest.approx((8832 * 2 + 384 * 10) / 1e6)
    assert not Path("runs").exists()
    shown = say(*words).out
    assert "8,832" in shown
    assert "time    9.2 s" in shown
    assert "money   0.02 in the currency of the prices" in shown
    cheap = say("plan", *RUN[1:-1], "--lengths", "1k", "--price-in", "0.01").out
    assert "money   2.9e-05 in the currency" in cheap, "little is not nothing"


def test_plan_takes_the_options_of_a_run(say: Say) -> None:
    words = (*RUN[1:-3], "--until", "effective")
    said = say("plan", *words, "--lengths", "1k,2k", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert (found["until"], found["total"]["requests"]) == ("effective", 2 * 3 * 100)
    assert "the maximum costs" in say("plan", *words, "--lengths", "1k").out


def test_the_samples_of_a_spec_are_the_maximum_of_a_stopping_rule(say: Say) -> None:
    Path("spec.toml").write_text(
        'tasks = ["niah"]\nmodel = "sim:decay?tokenizer=bytes"\nlengths = "1k"\nsamples = 4\ndepths = 2'
    )
    said = say("run", "spec.toml", "--until", "cell +-0.01", "--no-figure")
    assert said.code == 0, said.err
    assert "2 of 2 cells are wider than +-0.01 at 4 samples" in said.out


def test_a_base_with_another_seed_is_refused_before_any_request(say: Say) -> None:
    assert say(*RUN, "--lengths", "1k", "--out", "base").code == 0
    rule = ("--until", "verdict 0.95", "--base", "base", "--gate", "overall >= -1")
    said = say(*RUN, "--lengths", "1k", "--seed", "1", "--out", "new", *rule)
    assert said.code == 64
    assert "seed differs (0 / 1)" in said.err
    assert not Path("new").exists()


def test_plan_counts_samples_that_are_already_answered(say: Say) -> None:
    say(*RUN, "--lengths", "1k")
    found = json.loads(say("plan", *RUN[1:-1], "--lengths", "1k", "--json").out)
    assert found["already_done"] == 3


def test_demo_needs_no_options(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    from leadline.cli import demo

    smaller = {**demo.SIMULATED, "lengths": "1k,2k", "depths": 2, "samples": 1}
    monkeypatch.setattr(demo, "SIMULATED", smaller)
    monkeypatch.setattr(demo, "_real_model_is_here", lambda: False)
    said = say("demo", "--out", "demo")
    assert said.code == 0
    assert "heatmap   demo/heatmap.png" in said.out
    assert said.out.splitlines()[-1].startswith("page      demo/report.html")
    assert Path("demo/heatmap.png").exists()
    assert "</html>" in Path("demo/report.html").read_text(encoding="utf-8")


def test_the_whole_window_of_a_simulated_demo_is_refused(say: Say) -> None:
    said = say("demo", "--simulated", "--full")
    assert said.code == 64
    assert "--full is for the real model" in said.err


# --- catalogue ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name"), [("tasks", "niah"), ("models", "openai"), ("models", "sim"), ("sources", "noise")]
)
def test_catalogues_list_and_show(say: Say, kind: str, name: str) -> None:
    listed = json.loads(say(kind, "--json").out)
    assert name in [entry["name"] for entry in listed]
    assert all(entry["summary"] and "cannot be loaded" not in entry["summary"] for entry in listed)
    assert name in say(kind).out
    assert json.loads(say(kind, "show", name, "--json").out)["name"] == name
    assert say(kind, "show", name).code == 0


def test_a_task_is_shown_with_its_options_and_their_help(say: Say) -> None:
    options = {o["name"]: o for o in json.loads(say("tasks", "show", "niah", "--json").out)["options"]}
    assert options["keys"]["default"] == 0
    assert options["keys"]["help"]
    assert "keys planted" in say("tasks", "show", "niah").out


def test_a_suite_is_shown_with_one_task_per_line_and_json_may_precede_the_name(say: Say) -> None:
    lines = say("suites", "show", "ruler").out.splitlines()
    assert "tasks    niah_single_1 fixed_allowance=True placement=anywhere" in lines
    assert "         vt fixed_allowance=True placement=anywhere" in lines
    assert say("suites", "--json", "show", "ruler").out == say("suites", "show", "ruler", "--json").out


def test_a_source_may_be_a_path(say: Say, tmp_path: Path) -> None:
    path = write_haystack(tmp_path)
    assert json.loads(say("sources", "show", str(path), "--json").out)["pieces"] == 600


def test_suites_are_listed_even_if_there_are_none(say: Say) -> None:
    assert say("suites").code == 0


# --- bad input ----------------------------------------------------------------------------------

SIM = ("--model", "sim:perfect?tokenizer=bytes", "--lengths", "1k")
BAD = {
    "unknown task": (("run", "niha", *SIM), 64, "did you mean 'niah'"),
    "a suite where a task is shown": (("tasks", "show", "ruler"), 64, "leadline suites show ruler"),
    "unknown command": (("rnu",), 64, "did you mean 'run'?"),
    "unknown flag": (("run", "niah", *SIM, "--sampels", "3"), 64, "did you mean --samples?"),
    "a flag's wrong type": (("run", "niah", *SIM, "--samples", "three"), 64, "--samples"),
    "unknown option": (("run", "niah", *SIM, "--set", "kyes=3"), 64, "did you mean 'keys'?"),
    "unknown provider": (("run", "niah", "--model", "opnai:m"), 64, "did you mean 'openai'?"),
    "no provider": (("run", "niah", "--model", "gpt-5"), 64, "or PROVIDER:NAME"),
    "unknown model option": (("run", "niah", "--model", "sim:perfect?windw=3"), 64, "did you mean 'window'?"),
    "unknown simulated model": (("run", "niah", "--model", "sim:perfct"), 64, "did you mean 'perfect'?"),
    "length below the floor": (("run", "niah", *SIM[:2], "--lengths", "90"), 65, "shortest length"),
    "length above the window": (
        ("run", "niah", "--model", "sim:perfect?tokenizer=bytes&limit=2k", "--lengths", "4k"), 65, "2,048",
    ),
    "depth outside": (("run", "niah", *SIM, "--depths", "-1"), 64, "depths run from 0"),
    "unreadable source": (("run", "niah", *SIM, "--set", "haystack=/no/such/file.txt"), 66, "/no/such/file.txt"),
    "source too short": (("run", "niah", *SIM[:2], "--lengths", "8k", "--set", "haystack=short.txt"), 66, "missing"),
    "no tokenizer there": (("run", "niah", "--model", "sim:perfect?tokenizer=/no/such"), 66, "/no/such"),
    "no server there": (
        ("run", "niah", "--model", "openai:m?base_url=http://127.0.0.1:9/v1&tokenizer=bytes"), 69, "127.0.0.1:9",
    ),
    "a gate that nothing judges": (("run", "niah", *SIM, "--gate", "overall >= -1"), 64, '--until "verdict 0.95"'),
    "a base nothing judges": (("run", "niah", *SIM, "--until", "effective", "--base", "x"), 64, "leadline compare"),
    "not a run": (("report", "nowhere"), 74, "holds no run"),
    "no such file": (("run", "none.toml", *SIM), 64, "none.toml"),
    "a file that is not TOML": (("run", "bad.toml", *SIM), 64, "not TOML"),
    "a folder in the way": (("run", "niah", *SIM, "--out", "full"), 73, "holds no run"),
    "a folder that cannot be": (("run", "niah", *SIM, "--out", "short.txt/run"), 74, "short.txt"),
    "a plugin that does not import": (("run", "bad.py:Mine", *SIM), 64, "it must be importable"),
    "a plugin without the name": (("run", "good.py:Mien", *SIM), 64, "did you mean 'Mine'?"),
    "an option of another tool": (("run", "niah", *SIM, "--limit", "5"), 64, "--samples N"),
    "a batch size": (("run", "niah", *SIM, "--batch_size", "8"), 64, "did you mean --workers N for a server"),
    "a device": (("run", "niah", *SIM, "--device", "cpu"), 64, "did you mean --model hf:NAME?device=cpu?"),
    "an engine that is not installed": (("run", "niah", "--model", "vllm:some/model"), 69, "pip install"),
    "a list with a wrong task": (("run", "niah,vtt", *SIM), 64, "unknown suite or task 'vtt'"),
    "a short option of another tool": (("run", "niah", "-m", "sim:perfect"), 64, "did you mean --model?"),
    "no samples": (("run", "niah", *SIM, "--samples", "0"), 64, "must be at least 1, got 0"),
    "unknown reading mode": (("run", "niah", *SIM, "--reading", "freshh"), 64, "did you mean 'fresh'?"),
    "far too many depths": (("run", "niah", *SIM, "--depths", str(2**63)), 64, "1 to 10,000 depths"),
    "an infinite timeout": (("run", "niah", *SIM, "--timeout", "1e400"), 64, "must be at most 1,000,000"),
    "a submission of one model": (("run", "niah", *SIM, "--submission", "x.json"), 64, "add --models FILE"),
    "a list where one is needed": (("run", "niah", *SIM, "--reading", "fresh,shared"), 64, "reading"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_three_lines_and_an_exit_code(say: Say, case: str) -> None:
    Path("short.txt").write_text("Only one sentence. And another.")
    Path("bad.toml").write_text("model = ")
    Path("bad.py").write_text("import nothing_of_this_name")
    Path("good.py").write_text("from leadline.tasks.niah import Needle\nclass Mine(Needle):\n    pass\n")
    Path("full").mkdir()
    Path("full/thesis.tex").write_text("")
    words, code, said = BAD[case]
    found = say(*words)
    assert found.code == code, found.err
    assert found.err.splitlines()[0].startswith("error: ")
    assert said in found.err
    assert "Traceback" not in found.err
    assert found.out == ""
    assert not list(Path().glob(f"**/{RECORDS}"))


@pytest.mark.slow
def test_a_server_that_answers_with_a_web_page_is_named(say: Say) -> None:
    with FakeServer(Faults(html=1.0, attempts=None)) as server:
        model = f"openai:m?base_url={server.base_url}&tokenizer=bytes"
        found = say("run", "niah", "--model", model, "--lengths", "1k")
    assert found.code == 69
    assert found.err.startswith("error: ")
    assert server.base_url in found.err


def test_an_unexpected_error_is_code_70_and_its_traceback_is_for_debugging(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object, **named: object) -> None:
        raise ZeroDivisionError("\x1b[31mred")

    monkeypatch.setattr("leadline.run.measure.prepare", broken)
    found = say(*RUN, "--lengths", "1k")
    assert found.code == 70
    assert "unexpected ZeroDivisionError" in found.err
    assert "Traceback" not in found.err
    assert "\x1b" not in found.err
    assert "Traceback" in say(*RUN, "--lengths", "1k", debug=True).err


def test_an_error_of_the_disk_is_not_reported_as_a_bug(say: Say) -> None:
    assert say(*RUN, "--lengths", "1k", "--out", "run").code == 0
    said = say("compare", "run", "run", "--gate", "overall >= -1", "--junit", "run")
    assert said.code == 74
    note = "note:  both runs are the folder run: nothing can differ"
    assert said.err.splitlines()[:3] == [note, "error: Is a directory", "where: run"]


def test_the_page_of_a_read_only_run_can_be_written_elsewhere(say: Say) -> None:
    assert say(*RUN, "--lengths", "1k", "--out", "run").code == 0
    Path("run/heatmap.png").mkdir()
    said = say("report", "run", "-o", "page.html")
    assert said.code == 0, said.err
    assert Path("page.html").exists()
    assert "no heatmap was written to the run's folder" in said.err
    assert say("report", "run").code == 74


def test_the_program_has_exit_codes_a_version_and_accepts_debug_anywhere() -> None:
    wrong = subprocess.run([str(PROGRAM), "run", "niha", "--debug"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 64
    assert "Traceback" in wrong.stderr
    version = subprocess.run([str(PROGRAM), "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.strip() == leadline.__version__


@pytest.mark.slow
@pytest.mark.parametrize("command", [("report", "run"), (*RUN[:-1], "--lengths", "1k", "--out", "run")])
def test_files_are_written_although_the_reader_of_stdout_has_gone(say: Say, command: tuple[str, ...]) -> None:
    assert say(*RUN, "--lengths", "1k", "--out", "run").code == 0
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([str(PROGRAM), *command], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr
    assert Path("run/heatmap.png").exists()
    assert Path("run/report.html").exists() == (command[0] == "report")


def test_a_report_as_json_writes_the_samples_and_refuses_what_it_would_not_draw(say: Say) -> None:
    assert say(*RUN, "--lengths", "1k", "--out", "run").code == 0
    said = say("report", "run", "--json", "--data", "rows.csv")
    assert json.loads(said.out)["planned"] == len(Path("rows.csv").read_text().splitlines()) - 1
    refused = say("report", "run", "--json", "-o", "page.html")
    assert refused.code == 64
    assert "--json draws nothing" in refused.err
    assert not Path("page.html").exists()
