"""`leadline run` and `leadline plan` with a list of models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leadline.cli.main import run_command
from leadline.console.progress import ManyModelsListener, ProgressLines
from leadline.core.errors import LeadlineError
from leadline.run.events import ModelEnded, ModelRun, ModelRunResult, Started, Stopping
from leadline.store.manifest import read_manifest
from leadline.store.runs import read_records
from leadline.store.submissions import read_submission
from support.commands import Say

LIST = """
models = ["sim:perfect", {name = "short sight", model = "sim:cliff?window=1500"}]
"""
ASKED = """
tasks = ["niah"]
lengths = "1k,2k"
depths = 2
samples = 2
"""


def write(folder: Path, text: str, name: str = "release.toml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measured")
    assert run_command(["run", write(folder, LIST + ASKED), "--out", str(folder / "out")]) == 0
    return folder


def test_a_spec_with_a_list_of_models_gives_a_run_for_each_and_one_page(measured: Path) -> None:
    out = measured / "out"
    assert sorted(p.name for p in out.iterdir()) == ["report.html", "short-sight", "sim-perfect"]
    assert all(len(list(read_records(out / name))) == 8 for name in ("short-sight", "sim-perfect"))
    page = (out / "report.html").read_text()
    assert '<th scope="row">sim:perfect</th>' in page
    assert '<th scope="row">short sight</th>' in page
    named, plain = (read_manifest(out / name) for name in ("short-sight", "sim-perfect"))
    assert (named.name, named.spec["model"]) == ("short sight", "sim:cliff?window=1500")
    assert plain.name == ""


@pytest.mark.slow
def test_the_common_folder_of_a_suite_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, 'models = ["sim:perfect", "sim:decay"]', "models.toml")
    words = ["plan", "ruler-quick", "--models", "models.toml", "--lengths", "1k", "--samples", "1", "--json"]

    def folder() -> Path:
        assert run_command(words) == 0
        return Path(json.loads(capsys.readouterr().out)["models"][0]["folder"]).parent

    assert folder().name.startswith("models-ruler-quick-")


def test_models_are_shown_side_by_side_by_effective_length(measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", str(measured / "release.toml"), "--out", str(measured / "out"), "--no-figure"]
    assert run_command(words) == 0
    printed = capsys.readouterr()
    assert printed.err.count("measured already") == 2
    assert printed.out.index("sim:perfect") < printed.out.index("short sight")
    assert printed.out.splitlines()[1].startswith("| fresh "), "the reading mode is in the corner"
    assert f"leadline compare {measured}" in printed.out.replace("\n", "")


def test_a_model_that_fails_is_named_at_the_end_and_the_exit_code_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = write(tmp_path, 'models = ["sim:nobody", "sim:perfect"]', "models.toml")
    grid = ["--lengths", "1k", "--depths", "1", "--samples", "1", "--out", str(tmp_path / "out")]
    assert run_command(["run", "niah", "--models", models, *grid, "--json"]) == 1
    printed = capsys.readouterr()
    bad, good = json.loads(printed.out)["models"]
    assert "nobody" in bad["error"]
    assert (good["error"], good["done"]) == ("", 1)
    assert "1 of 2 models incomplete: sim:nobody" in printed.err


def test_failed_samples_fail_the_command_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = write(tmp_path, 'models = ["sim:flaky?rate=1"]', "models.toml")
    grid = ["--lengths", "1k", "--depths", "1", "--samples", "2", "--attempts", "1", "--out", str(tmp_path / "out")]
    assert run_command(["run", "niah", "--models", models, *grid]) == 1
    assert "2 failed samples" in capsys.readouterr().err


def test_a_model_option_overrides_the_list_of_a_spec(measured: Path, tmp_path: Path) -> None:
    words = ["run", str(measured / "release.toml"), "--model", "sim:decay", "--no-figure"]
    assert run_command([*words, "--out", str(tmp_path / "one")]) == 0
    assert len(list(read_records(tmp_path / "one"))) == 8


def test_folders_of_a_list_have_no_brackets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = write(tmp_path, 'models = [{name = "[a] and [b]", model = "sim:perfect"}]' + ASKED)
    words = ["run", spec, "--set", "keys=1,2", "--no-figure"]
    assert run_command(words) == 0
    (run,) = (tmp_path / "runs").glob("*/*/")
    assert run.name == "a-and-b"
    assert run.parent.name.startswith("models-niah-keys=1-")


def test_shards_divide_the_models(measured: Path, tmp_path: Path) -> None:
    words = ["run", str(measured / "release.toml"), "--no-figure", "--out", str(tmp_path / "out"), "--shard"]
    assert run_command([*words, "2/2"]) == 0
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["short-sight"]
    assert run_command([*words, "1/2"]) == 0
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_shards_are_merged_into_a_submission_whatever_its_name(measured: Path, tmp_path: Path) -> None:
    submission = tmp_path / "scores[1].json"
    words = ["run", str(measured / "release.toml"), "--no-figure", "--out", str(measured / "out")]
    for shard in ("1/2", "2/2"):
        assert run_command([*words, "--submission", str(submission), "--shard", shard]) == 0
    assert [entry.name for entry in read_submission(submission).entries] == ["sim:perfect", "short sight"]


@pytest.mark.slow
def test_a_plan_of_a_list_is_a_plan_of_each_and_of_all(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", str(measured / "release.toml"), "--out", str(measured / "out"), "--price-in", "1000"]
    assert run_command([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    named = [(p["name"], p["model"], p["already_done"]) for p in found["models"]]
    assert named == [("sim:perfect", "sim:perfect", 8), ("short sight", "sim:cliff?window=1500", 8)]
    tokens = sum(p["total"]["prompt_tokens"] for p in found["models"])
    assert found["total"] == {
        "requests": 16, "prompt_tokens": tokens, "tokens_read": tokens, "output_tokens": 1024,
        "seconds": None, "money": pytest.approx(tokens / 1000), "already_done": 16, "failed_before": 0,
    }  # fmt: skip
    assert run_command(words) == 0
    shown = capsys.readouterr().out
    assert "short sight (sim:cliff?window=1500)" in shown
    last = shown.partition("all 2 models\n")[2]
    assert f"{tokens:,}" in last
    assert f"money   {tokens / 1000:,.2f} in the currency of the prices" in last
    prices = tmp_path / "prices.toml"
    models = "".join(f"[models.{name}]\ninput = 1000\noutput = 0\n" for name in ("perfect", "cliff"))
    prices.write_text(f'date = 2026-11-01\nsource = "a test"\ncurrency = "eur"\n{models}')
    assert run_command([*words[:-2], "--prices", str(prices)]) == 0
    assert f"money   {tokens / 1000:,.2f} eur\n" in capsys.readouterr().out.partition("all 2 models\n")[2]
    assert "done    16 samples" in last


@pytest.mark.parametrize(
    ("text", "words", "complaint"),
    [
        ('model = "sim:perfect"' + LIST + ASKED, [], "either model or models"),
        (LIST + ASKED, ["--until", "effective"], "--until cannot be used with a list"),
        (LIST + ASKED + 'until = "effective"', [], "--until cannot be used with a list"),
        (LIST + ASKED, ["--shard", "3/3"], "no models"),
        (LIST + ASKED, ["--shard", "4/3"], "not a shard"),
        (ASKED, ["--model", "sim:perfect", "--shard", "1/2"], "--shard needs a list of models"),
        (ASKED, ["--model", "sim:perfect", "--models", "x.toml"], "exclude each other"),
        ("models = []" + ASKED, [], "the list of models is empty"),
        (ASKED, ["--models", "nowhere.toml"], "cannot read"),
    ],
)
def test_wrong_lists_and_options_are_refused(
    text: str, words: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["run", write(tmp_path, text), "--out", str(tmp_path / "out"), *words]) == 64
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_spec_is_refused_as_a_list_of_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", "niah", "--models", write(tmp_path, LIST + ASKED)]) == 64
    assert "a list of models must contain nothing else" in capsys.readouterr().err


@pytest.mark.slow
def test_a_submission_is_written_for_the_list_of_a_spec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = write(tmp_path, LIST + ASKED)
    file = tmp_path / "scores" / "submission.json"
    words = ["--out", str(tmp_path / "out"), "--submission", str(file)]
    assert run_command(["run", spec, *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["submission"] == str(file)
    assert [entry.name for entry in read_submission(file).entries] == ["sim:perfect", "short sight"]
    assert run_command(["run", spec, *words]) == 0
    assert "higher is better" in capsys.readouterr().out
    assert run_command(["run", write(tmp_path, ASKED), "--model", "sim:perfect", *words]) == 64
    assert "--models FILE" in capsys.readouterr().err


def test_models_with_the_same_score_have_the_same_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = 'models = ["sim:perfect", {name = "again", model = "sim:perfect"}, "sim:cliff?window=1"]\n'
    words = ["--out", str(tmp_path / "out"), "--submission", str(tmp_path / "scores.json")]
    assert run_command(["run", write(tmp_path, models + ASKED), *words]) == 0
    shown = capsys.readouterr().out.partition("rank")[2].splitlines()
    places = [line.split()[0] for line in shown if line.split()[:1] and line.split()[0].isdigit()]
    assert places == ["1", "1", "3"]


# --- progress -----------------------------------------------------------------------------------


def started(folder: str, planned: int = 10, done: int = 0) -> Started:
    return Started(Path(folder), planned, done, 0, (planned - done) * 100, 0, notes=("float32 on cpu",))


def test_models_that_wait_are_counted_and_those_that_failed_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline.console.progress.ProgressLines", lambda: ProgressLines(lambda text: None))
    listener = ManyModelsListener(4)
    listener.hear(started("a"))
    assert (listener.progress().planned, listener.counter.tokens) == (40, 4000)
    listener.hear(started("b", done=4))
    assert (listener.progress().planned, listener.progress().done) == (40, 4)
    failed = ModelRun("c", None, tmp_path)  # type: ignore[arg-type]
    listener.hear(ModelEnded(ModelRunResult(failed, error=LeadlineError("no such model"))))
    assert (listener.progress().planned, listener.counter.tokens) == (30, 2600)
    assert listener.progress().describe().startswith("1 of 4 models, 4 of 30 samples")


def test_a_note_of_several_runs_is_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("leadline.console.progress.ProgressLines", lambda: ProgressLines(said.append))
    monkeypatch.setattr("leadline.console.progress.say", said.append)
    model_run = ModelRun("a", None, tmp_path)  # type: ignore[arg-type]
    with ManyModelsListener(2) as listener:
        for event in (started("a"), started("b"), Stopping("interrupted"), Stopping("interrupted")):
            listener.hear(event)
        listener.hear(ModelEnded(ModelRunResult(model_run, was_complete=True)))
    assert sum("float32" in line for line in said) == 1
    assert sum("stopping" in line for line in said) == 1
    assert "a: measured already" in said


@pytest.mark.parametrize(
    ("patterns", "names"),
    [(["short sight"], ["short sight"]), (["sim:*"], ["sim:perfect", "short sight"]), (["*perfect"], ["sim:perfect"])],
)
def test_some_models_of_a_list_can_be_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], patterns: list[str], names: list[str]
) -> None:
    words = ["plan", write(tmp_path, LIST + ASKED), "--json"]
    assert run_command([*words, *(word for one in patterns for word in ("--include-model", one))]) == 0
    assert [model["name"] for model in json.loads(capsys.readouterr().out)["models"]] == names


def test_a_model_that_is_not_in_the_list_is_named_with_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["run", write(tmp_path, LIST + ASKED), "--include-model", "short sigt"]) == 64
    assert "did you mean 'short sight'?" in capsys.readouterr().err
    assert run_command(["run", "niah", "--model", "sim:perfect", "--include-model", "x"]) == 64
    assert "needs a list of models" in capsys.readouterr().err


def test_an_unknown_option_of_one_model_is_refused_before_any_is_measured(say: Say, tmp_path: Path) -> None:
    (tmp_path / "models.json").write_text(json.dumps(["sim:perfect", "sim:cliff?windw=8k"]))
    said = say("run", "niah", "--models", "models.json", "--lengths", "1k", "--out", str(tmp_path / "out"))
    assert said.code == 64
    assert "unknown key 'windw'" in said.err
    assert "did you mean 'window'?" in said.err
    assert not (tmp_path / "out").exists()
