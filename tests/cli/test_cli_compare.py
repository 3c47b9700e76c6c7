"""`leadline compare`: exit codes, refusals and what is written for build servers."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from leadline.api import load_run
from leadline.cli.main import run_command
from leadline.core.records import Record
from leadline.core.seeds import digest_prompt
from leadline.store.runs import read_records
from support.fake_kinds import BOS, TEMPLATE
from support.fake_server import FakeServer

ASK = ["--lengths", "512,1k", "--depths", "3", "--samples", "12", "--no-figure"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name, model in {"good": "sim:perfect", "same": "sim:perfect?seed=3", "bad": "sim:cliff?window=600"}.items():
        task = "niah"
        assert run_command(["run", task, "--model", model, *ASK, "--out", str(folder / name)]) == 0
    assert (
        run_command(["run", "niah", "--model", "sim:perfect", *ASK, "--seed", "9", "--out", str(folder / "seed")]) == 0
    )
    return folder


@pytest.mark.parametrize(("candidate", "code"), [("same", 0), ("bad", 1)])
def test_the_exit_code_is_the_result_of_the_gate(runs: Path, candidate: str, code: int) -> None:
    words = ["compare", str(runs / "good"), str(runs / candidate), "--gate", "overall >= -5; length:* >= -9"]
    assert run_command(words) == code


@pytest.mark.slow
def test_questions_without_their_document_are_in_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(
        """
        lengths = "512,1k"
        depths = 3
        samples = 3
        tasks = [{name = "niah"}, {name = "qa_fiction_1"}, {name = "qa_fiction_1", label = "alone", no_context = true}]
        """
    )
    folders = []
    for window in ("2k", "600"):
        folders.append(str(tmp_path / window))
        words = ["run", str(spec), "--model", f"sim:cliff?window={window}", "--no-figure", "--out", folders[-1]]
        assert run_command(words) == 0
    capsys.readouterr()
    assert run_command(["compare", *folders, "--json"]) == 0
    shown = capsys.readouterr()
    assert "18 questions without a document left out" in shown.err
    found = {d["name"]: d for d in json.loads(shown.out)["differences"]}
    base, candidate = map(load_run, folders)
    means = [run.table.whole.estimate.mean for run in (base, candidate) if run.table.whole.estimate]
    assert means == [1.0, 0.5]
    assert [found["overall"]["base"], found["overall"]["candidate"]] == pytest.approx(means)
    assert "task:alone" not in found
    in_python = candidate.compare(base).differences
    assert {d.name: d.estimate.mean for d in in_python.differences} == {
        name: d["estimate"]["mean"] for name, d in found.items()
    }


def test_too_few_prompts_for_a_narrow_margin_are_undecided(runs: Path) -> None:
    assert run_command(["compare", str(runs / "good"), str(runs / "same"), "--gate", "overall >= -0.1"]) == 2


def test_a_comparison_names_the_length_that_was_lost(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", str(runs / "good"), str(runs / "bad"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    verdicts = {d["name"]: d["verdict"] for d in found["differences"]}
    assert verdicts["length:1k"] == "worse"
    assert verdicts["length:512"] == "not significant"
    assert found["pairs"] == 72


def test_the_gate_is_written_as_junit_and_markdown(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gate.xml"
    words = ["compare", str(runs / "good"), str(runs / "bad"), "--gate", "overall >= -5", "--junit", str(file)]
    assert run_command([*words, "--markdown"]) == 1
    suite = ElementTree.parse(file).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    assert suite.get("name") == "sim:perfect -> sim:cliff?window=600"
    about = {p.get("name"): p.get("value") for p in suite.iter("property")}
    assert about == {"base": f"sim:perfect, {runs / 'good'}", "candidate": f"sim:cliff?window=600, {runs / 'bad'}"}
    assert [case.get("classname") for case in suite.iter("testcase")] == ["leadline.gate"]
    said = capsys.readouterr().out
    assert "### Leadline gate: fail" in said
    assert f"- base: sim:perfect, {runs / 'good'}".replace("_", "\\_") in said
    assert said.count("- candidate: sim:cliff?window=600") == 1


@pytest.mark.slow
def test_the_gate_of_the_page_passes_for_equal_models_with_the_samples_it_names(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "gates.md").read_text(encoding="utf-8")
    gate = re.findall(r"leadline compare BASE CANDIDATE --gate \"([^\"]*>=[^\"]*)\"", text)[0]
    samples = re.findall(r"^\| `--samples` \|.* (\d+) \|$", text, re.MULTILINE)[0]
    assert re.search(r"^\| passes, of 100 pairs .* 95 \|$", text, re.MULTILINE)
    grid = ["--lengths", "512,640,768,1k", "--depths", "11", "--samples", samples, "--no-figure"]
    for name in ("base", "candidate"):
        model = "sim:perfect?tokenizer=bytes"
        assert run_command(["run", "niah_single", "--model", model, *grid, "--out", str(tmp_path / name)]) == 0
    assert run_command(["compare", str(tmp_path / "base"), str(tmp_path / "candidate"), "--gate", gate]) == 0


@pytest.mark.parametrize("flags", [["--junit", "gate.xml"], ["--strict"]])
def test_what_is_about_a_gate_needs_one(runs: Path, flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", str(runs / "good"), str(runs / "same"), *flags]) == 64
    assert f"{flags[0]} is about a gate" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "errors", "skipped"), [([], "0", "1"), (["--strict"], "1", "0")])
def test_an_undecided_check_is_an_error_in_junit_only_if_asked(
    runs: Path, tmp_path: Path, options: list[str], errors: str, skipped: str
) -> None:
    file = tmp_path / "gate.xml"
    words = ["compare", str(runs / "good"), str(runs / "same"), "--gate", "overall >= -0.1", "--junit", str(file)]
    assert run_command([*words, *options]) == 2
    suite = ElementTree.parse(file).getroot()
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("0", errors, skipped)


def test_both_runs_have_distinct_names_above_the_table(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", str(runs / "good"), str(runs / "bad")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:3] == [
        f"base       sim:perfect, {runs / 'good'}",
        f"candidate  sim:cliff?window=600, {runs / 'bad'}",
        "",
    ]
    assert run_command(["compare", str(runs / "good"), str(runs / "seed"), "--anyway", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    good = {"name": "sim:perfect (good)", "model": "sim:perfect", "run": str(runs / "good"), "truncated": 0}
    assert found["base"] == good
    assert found["candidate"]["name"] == "sim:perfect (seed)"
    assert [words.partition(":")[0] for words in found["differing"]] == ["seed differs (0 / 9)"]


def test_runs_with_different_settings_are_refused_and_the_setting_is_named(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", str(runs / "good"), str(runs / "seed")]
    assert run_command(words) == 64
    assert "seed differs" in capsys.readouterr().err
    assert run_command([*words, "--anyway"]) == 0


def test_a_folder_without_a_run_is_a_clear_error(runs: Path, tmp_path: Path) -> None:
    assert run_command(["compare", str(runs / "good"), str(tmp_path)]) >= 64


# --- two engines of one model


def ask_server(server: FakeServer, out: Path, options: str) -> list[Record]:
    model = f"openai:fake?base_url={server.base_url}&prefill=no&{options}"
    grid = ["--lengths", "1k", "--depths", "2", "--samples", "2", "--no-figure", "--out", str(out)]
    assert run_command(["run", "niah", "--model", model, *grid]) == 0
    return list(read_records(out))


def template_folder(folder: Path, template: str) -> Path:
    folder.mkdir()
    config = {"chat_template": template, "bos_token": BOS, "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model behind two engines, each of which gives its template and tokenizer in its own way."""
    folder = tmp_path_factory.mktemp("engines")
    own = template_folder(folder / "own", TEMPLATE)
    other = template_folder(folder / "other", TEMPLATE.replace("{{ m.content }}", "Hello. {{ m.content }}"))
    with FakeServer(kind="vllm", window=4096, keep_bodies=True) as server:
        records = ask_server(server, folder / "vllm", "tokenizer=server")
        seen = {record.cell.key: record.prompt_digest for record in records}
        sent = {digest_prompt(text) for text in prompts_of(server)}
        assert set(seen.values()) <= sent
        assert len(set(seen.values())) == 4
    with FakeServer(kind="plain", window=4096) as server:
        ask_server(server, folder / "plain", f"tokenizer=bytes&template={own}")
        ask_server(server, folder / "greeting", f"tokenizer=bytes&template={other}&allow_tokenizer_mismatch=true")
    return folder


def prompts_of(server: FakeServer) -> list[str]:
    """The text that the model behind the server reads, as its template has it."""
    return [
        f"{BOS}<|im_start|>user\n{request.body['messages'][0]['content']}<|im_end|>\n<|im_start|>assistant\n"
        for request in server.completions
    ]


@pytest.mark.slow
def test_engines_that_read_the_same_text_are_compared_without_a_warning(
    engines: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prints = [json.loads((engines / n / "manifest.json").read_text())["fingerprints"] for n in ("vllm", "plain")]
    assert prints[0]["model.template"] != prints[1]["model.template"]
    assert prints[0]["model.tokenizer"] != prints[1]["model.tokenizer"]
    capsys.readouterr()
    assert run_command(["compare", str(engines / "vllm"), str(engines / "plain")]) == 0
    said = capsys.readouterr()
    assert "template" not in said.err
    assert "tokenizer" not in said.err
    assert "all with the same text" in said.out


def test_prompts_with_another_text_are_counted(engines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run_command(["compare", str(engines / "plain"), str(engines / "greeting"), "--json"]) == 0
    said = capsys.readouterr()
    assert "text of 4 of 4 paired prompts differs" in said.err
    found = json.loads(said.out)
    assert (found["same_text"], found["other_text"]) == (0, 4)
    assert any("chat template" in line for line in found["differing"])


def test_a_run_without_digests_is_compared_by_its_fingerprints(
    engines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old"
    shutil.copytree(engines / "plain", old)
    lines = [json.loads(line) for line in (old / "records.jsonl").read_text().splitlines()]
    for line in lines:
        del line["prompt_digest"]
    (old / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    capsys.readouterr()
    assert run_command(["compare", str(engines / "vllm"), str(old)]) == 0
    said = capsys.readouterr()
    assert "tokenizer differs" in said.err
    assert "same text" not in said.out


def test_junit_is_written_into_a_new_folder_and_markdown_escapes_names_of_tasks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text('lengths = "512,1k"\ntasks = [{name = "niah", label = "a|b"}, {name = "passkey"}]\ndepths = 2')
    run = ["run", str(spec), "--model", "sim:perfect", "--samples", "2", "--no-figure", "--out", str(tmp_path / "run")]
    assert run_command(run) == 0
    capsys.readouterr()
    junit = tmp_path / "new" / "folder" / "gate.xml"
    words = ["compare", str(tmp_path / "run"), str(tmp_path / "run"), "--gate", "task:* >= -99", "--markdown"]
    assert run_command([*words, "--junit", str(junit)]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| task:a")]
    assert len(rows) == 2, "one in the table of the gate, one in that of the differences"
    assert all(row.startswith("| task:a\\|b | 100.0 | 100.0 | +0.0 |") for row in rows)
    assert "task:a|b (task:* >= -99)" in [case.get("name") for case in ElementTree.parse(junit).iter("testcase")]
