"""The public API: its names, its Run, and plugins from files that import nothing but `leadline`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import leadline
from leadline.core.errors import UsageError
from leadline.store.manifest import read_manifest
from support.reading_server import Planted, ReadingServer

DOCS = Path(__file__).parents[2] / "docs" / "python-api.md"
NAMES = [
    "Answer", "Cell", "Completion", "Document", "Draft", "DraftQuestion", "Fact", "FactTask", "Failure", "Frame",
    "LeadlineError", "Model", "ModelCard", "ModelProvider", "Plan", "Probe", "Question", "Record", "Run",
    "RunComparison", "RunFigure", "Score", "Scorer", "Sent", "Source", "Spec", "Task", "TextSource", "Tokenizer",
    "completion_frame", "load_run", "measure", "open_source", "open_tokenizer", "plan", "rng",
]  # fmt: skip

PLUGINS = """
import re
import leadline

def last_number(prompt: str) -> str:
    found = re.findall(r"[0-9]{7,}", prompt)
    return found[-1] if found else "none"

def broken(prompt: str) -> str:
    raise RuntimeError("no weights")

def tale() -> str:
    return "It was a dark night on the coast. The sea was calm and nobody spoke. " * 500

class Echo(leadline.ModelProvider):
    answer: str = "nothing"

    def open(self, name: str) -> "EchoModel":
        return EchoModel(self.answer)

class EchoModel:
    asked_per = "document"

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokenizer = leadline.open_tokenizer("whitespace")
        self.frame = leadline.completion_frame()
        self.card = leadline.ModelCard(name="echo")

    def answer(self, document, probes):
        sent = leadline.Sent("completion", "none")
        return [leadline.Answer(sent, leadline.Completion(self.text), 0.0) for _ in probes]

    def close(self):
        pass
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PLUGINS)
    return tmp_path


def spec(model: str = "sim:perfect", **more: object) -> leadline.Spec:
    values = {"model": model, "tasks": "niah", "lengths": "1k,2k", "depths": 2, "samples": 2, **more}
    return leadline.Spec.model_validate(values)


# --- names


def test_importing_the_package_loads_nothing_and_its_public_names_are_these() -> None:
    script = "import sys, leadline; sys.exit(len([m for m in sys.modules if m.startswith('leadline')]) - 1)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    assert leadline.__all__ == NAMES
    assert dir(leadline) == sorted([*NAMES, "__version__"])
    assert all(getattr(leadline, name) is not None for name in dir(leadline))
    with pytest.raises(AttributeError):
        _ = leadline.nonsense


def test_every_public_name_is_in_the_docs_and_no_other() -> None:
    assert re.findall(r"^\| `(\w+)", DOCS.read_text(), re.MULTILINE) == sorted(
        NAMES, key=lambda name: (name.lower(), name)
    )


# --- checks


def test_measure_checks_a_server_first_and_warns_of_what_it_finds(tmp_path: Path) -> None:
    with ReadingServer(Planted(model="other"), window=4096) as server:
        asked = spec(f"openai:fake?base_url={server.base_url}", lengths="1k", depths=1, samples=1)
        with pytest.warns(UserWarning, match="name of the model: 'fake' was asked for and 'another-model-7b' answers"):
            run = leadline.measure(asked, tmp_path / "run")
        assert run.totals.done == 1
        assert any("another-model-7b" in note for note in run.manifest.model["notes"])
        unchecked = leadline.measure(asked, tmp_path / "unchecked", checks=False)  # warnings are errors here
        assert unchecked.totals.done == 1


# --- Run


def test_a_measured_run_and_a_loaded_one_say_the_same(tmp_path: Path) -> None:
    assert leadline.plan(spec()).cost.requests == 8
    run = leadline.measure(spec("sim:cliff?window=1500"), tmp_path / "run")
    loaded = leadline.load_run(tmp_path / "run")
    assert run.totals == loaded.totals
    assert (run.totals.planned, run.totals.done, run.progress.status) == (8, 8, "finished")
    assert run.table.whole == loaded.table.whole
    assert run.verdict.headline == loaded.verdict.headline
    assert [r.cell for r in run.records] == [r.cell for r in loaded.records]
    assert "8 of 8 samples" in repr(run)


def test_a_run_gives_frames_figures_pages_and_lengths(tmp_path: Path) -> None:
    run = leadline.measure(spec("sim:cliff?window=1500"), tmp_path / "run")
    assert len(run.to_pandas()) == 8
    assert list(run.to_pandas("cells")["planned"]) == [2] * 4
    bundle = run.heatmap()._repr_mimebundle_()
    assert bundle["image/png"].startswith(b"\x89PNG")
    assert "layer" in str(bundle["application/vnd.vegalite.v5+json"])
    assert run.curves().save(tmp_path / "curves.svg").read_text().startswith("<svg")
    with pytest.raises(UsageError, match="cannot write"):
        run.heatmap().save(tmp_path / "map.gif")
    assert run.report(tmp_path / "page.html").stat().st_size > 1000
    effective = run.effective_length(0.5, task="niah")
    assert effective is not None
    assert 1024 <= effective.length <= 2048
    assert str(effective).startswith("not decided (95%: ")  # four answers a length
    with pytest.raises(UsageError, match="two questions"):
        run.effective_length(0.5, share=0.9)
    header, first, second = str(run.table).splitlines()
    assert header.split() == ["task", "length", "planned", "answered", "failed", "mean", "95%", "interval"]
    assert first.split()[:6] == ["niah", "1k", "4", "4", "0", "100%"]
    assert second.split()[:6] == ["niah", "2k", "4", "4", "0", "0%"]


def test_a_plan_is_printed_in_a_few_lines() -> None:
    assert str(leadline.plan(spec("sim:perfect", depths=5, samples=8))).splitlines() == [
        "sim:perfect",
        "niah: 80 requests, 117,760 prompt tokens, 117,760 tokens read (fresh), at most 5,120 output tokens",
        "simulated: its profile is planted, not measured",
    ]


def test_two_runs_are_compared_and_judged(tmp_path: Path) -> None:
    asked = {"depths": 5, "samples": 8}
    base = leadline.measure(spec("sim:perfect", **asked), tmp_path / "base")
    worse = leadline.measure(spec("sim:cliff?window=1500", **asked), tmp_path / "worse")
    comparison = worse.compare(base, gate="overall >= -5")
    assert comparison.gate is not None
    assert (comparison.gate.verdict, comparison.passed) == ("fail", False)
    first, second = str(comparison).splitlines()
    assert first.startswith("Worse: ")
    assert second == "fail: overall"
    assert set(comparison.to_pandas()["scope"]) == {"overall", "length", "depth"}
    other = leadline.measure(spec(seed=3), tmp_path / "other")
    with pytest.raises(UsageError, match="did not ask the same"):
        worse.compare(other)


# --- plugins from files


def test_a_function_is_a_model(plugins: Path) -> None:
    run = leadline.measure(spec("./mine.py:last_number?window=4k", tasks=["niah_single"]), "run")
    assert run.window == 4096
    assert run.totals.classes["correct"] >= 6
    assert "model.code" in read_manifest(plugins / "run").fingerprints


def test_an_error_of_a_function_is_a_failure(plugins: Path) -> None:
    run = leadline.measure(spec("./mine.py:broken", limits={"breaker": 100}), "run")
    assert run.totals.messages == {"server": "RuntimeError: no weights"}
    assert run.totals.failed == 8


def test_a_provider_from_a_file_takes_options(plugins: Path) -> None:
    run = leadline.measure(spec("./mine.py:Echo?answer=yes"), "run")
    assert {r.outcome.text for r in run.records if isinstance(r.outcome, leadline.Completion)} == {"yes"}
    with pytest.raises(UsageError, match="unknown"):
        leadline.measure(spec("./mine.py:Echo?colour=red"), "other")


def test_a_haystack_from_a_file_is_a_text(plugins: Path) -> None:
    tasks = [{"name": "niah", "haystack": "./mine.py:tale", "repeat": True}]
    run = leadline.measure(spec(tasks=tasks), "run")
    assert run.totals.done == 8
    assert "source../mine.py:tale" in run.manifest.fingerprints


def test_a_changed_plugin_is_another_run(plugins: Path) -> None:
    leadline.measure(spec("./mine.py:last_number"), "run")
    with (plugins / "mine.py").open("a") as file:
        file.write("# changed\n")
    with pytest.raises(leadline.LeadlineError, match=r"model\.code"):
        leadline.measure(spec("./mine.py:last_number"), "run")


@pytest.mark.parametrize("model", ["./mine.py:nothing", "./nowhere.py:last_number"])
def test_a_plugin_that_is_not_there_is_named(plugins: Path, model: str) -> None:
    with pytest.raises(UsageError, match=r"unknown name|no such file"):
        leadline.measure(spec(model), "run")


def test_the_program_in_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    exec(program, {"__name__": "docs"})
    assert (tmp_path / "heatmap.png").exists()
