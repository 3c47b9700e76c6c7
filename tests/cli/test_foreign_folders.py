"""A run folder from someone else runs no code: Python files that its manifest or records name are not imported."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leadline.core.spec import make_spec
from leadline.run.measure import measure
from support.commands import Say

CODE = "from pathlib import Path\n\nPath(__file__).with_name('ran').touch()\n\n\ndef mine(*_):\n    return 1.0\n"
JUDGE = "sim:judge?seed=1"
OPTIONS = tuple("scorers haystack distractors needles templates documents questions corpus tokenizer".split())
"""Options of tasks that may name a file, whether or not the task of the run has them."""
FIELD = tuple[str | int, ...]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    task = {"name": "niah", "options": {"haystack": "noise", "keys": 1, "scorers": ["match.all"]}}
    values = {"model": "sim:decay?window=1k", "tasks": [task], "lengths": "512", "depths": 2, "samples": 3}
    return measure(make_spec(values), tmp_path_factory.mktemp("runs") / "run").folder


@pytest.fixture
def planted(tmp_path: Path) -> str:
    (tmp_path / "planted.py").write_text(CODE)
    return "./planted.py:mine"


def ran(folder: Path) -> bool:
    return (folder / "ran").exists()


def leaves(value: Any, path: FIELD = ()) -> Iterator[FIELD]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from leaves(inner, (*path, number))
    else:
        yield path


def fields_of(recorded: Path) -> list[FIELD]:
    manifest = json.loads((recorded / "manifest.json").read_text())
    found = [path for path in leaves(manifest) if path[0] != "sessions"]
    options: list[FIELD] = [("spec", "tasks", 0, "options", name) for name in OPTIONS]
    options += [("tasks", "niah", "options", name) for name in OPTIONS]
    return list(dict.fromkeys([*found, *options, ("spec", "tasks", 0, "name"), ("records", "scores")]))


def plant(recorded: Path, run: Path, field: FIELD, name: str) -> None:
    """A copy of the run in which one field names the file; lists keep their form."""
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(recorded, run)
    if field == ("records", "scores"):
        manifest = json.loads((run / "manifest.json").read_text())
        for task in (manifest["spec"]["tasks"][0], manifest["tasks"]["niah"]):
            task["options"].pop("scorers", None)
        (run / "manifest.json").write_text(json.dumps(manifest))
        lines = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
        for line in lines:
            line["scores"] = {name: next(iter(line["scores"].values()))}
        (run / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return
    manifest = json.loads((run / "manifest.json").read_text())
    inside = manifest
    for key in field[:-1]:
        inside = inside[key]
    if isinstance(inside, dict):
        inside[field[-1]] = [name] if field[-1] == "scorers" else name
    else:
        inside[field[-1]] = name
    (run / "manifest.json").write_text(json.dumps(manifest))


NAMING: list[FIELD] = [
    ("spec", "model"), ("spec", "tasks", 0, "name"), ("spec", "tasks", 0, "options", "scorers"),
    ("spec", "tasks", 0, "options", "haystack"), ("tasks", "niah", "options", "scorers"), ("records", "scores"),
]  # fmt: skip
"""Where names of plugins are; all other fields follow in the slow test."""


def test_rescore_and_judge_import_no_file_that_a_run_folder_names(
    recorded: Path, tmp_path: Path, planted: str, say: Say
) -> None:
    run, refused = tmp_path / "run", 0
    for field in NAMING:
        for words in (["rescore", str(run)], ["judge", str(run), "--with", JUDGE, "--min-accuracy", "0"]):
            plant(recorded, run, field, planted)
            code, _, err = say(*words)
            assert not ran(tmp_path), f"{words[0]} imported the file named by {field}"
            if "planted.py" in err and code == 64:
                refused += 1
                assert "--trust" in err
                assert "runs its code" in err or "run its code" in err
    assert refused == 2  # scorers of the manifest and of the records; nothing else of a folder is opened again


SCORERS: FIELD = ("tasks", "niah", "options", "scorers")


def test_a_scorer_that_the_user_names_again_or_trusts_is_imported(
    recorded: Path, tmp_path: Path, planted: str, say: Say
) -> None:
    run = tmp_path / "run"
    for words in (["--scorer", planted], ["--scorer", f"{tmp_path}/planted.py:mine"], ["--trust"]):
        plant(recorded, run, SCORERS, planted)
        assert say("rescore", str(run), *words).code == 0, words
        assert ran(tmp_path)
        (tmp_path / "ran").unlink()
    (tmp_path / "other.py").write_text(f"# another file\n{CODE}".replace("mine", "other").replace("ran", "other"))
    plant(recorded, run, SCORERS, planted)
    assert say("rescore", str(run), "--scorer", "./other.py:other").code == 64  # naming one file trusts no other
    assert not ran(tmp_path)


def test_a_name_that_only_decoding_reveals_is_not_imported(
    recorded: Path, tmp_path: Path, planted: str, say: Say
) -> None:
    run = tmp_path / "run"
    hidden = "function:x?function=.%2Fplanted%2Epy%3Amine"
    for model in (hidden, "./planted.py:mine?window=1k", "ray:./planted.py:mine"):
        plant(recorded, run, ("spec", "model"), model)
        say("judge", str(run), "--with", JUDGE, "--min-accuracy", "0")
        assert not ran(tmp_path), model


@pytest.mark.slow
def test_no_command_that_takes_a_run_folder_imports_a_file_that_it_names(
    recorded: Path, tmp_path: Path, planted: str, say: Say
) -> None:
    run, base = tmp_path / "run", tmp_path / "base"
    shutil.copytree(recorded, base)
    folder = str(run)
    commands = [
        ["report", folder, "--json"],
        ["report", folder, str(base), "--json"],
        ["report", folder, "--data", "rows.csv", "--json"],
        ["compare", str(base), folder, "--anyway"],
        ["compare", folder, str(base), "--gate", "--anyway"],
        ["watch", folder],
        ["log", folder, "--to", "tensorboard:logs"],
        ["correlate", folder, str(base)],
        ["summarize", folder],
        ["score", folder],
        ["rescore", folder],
        ["judge", folder],
        ["judge", folder, "--with", JUDGE, "--min-accuracy", "0"],
        ["judge", folder, "--label", "5"],
        ["run", "niah", "--model", "sim:perfect?window=1k", "--lengths", "512", "--out", folder, "--no-figure"],
        ["plan", "niah", "--model", "sim:perfect?window=1k", "--lengths", "512", "--out", folder, "--json"],
        [
            "plan",
            "niah",
            "--model",
            "sim:perfect?window=1k",
            "--lengths",
            "512",
            "--noise-from",
            folder,
            "--detect",
            "5pt",
        ],
        ["card", folder],
        ["badge", folder],
        ["board", folder, str(base)],
        ["certify", str(base), folder],
        ["certify", folder, str(base)],
        *(["export", folder, "--as", form] for form in ("every-eval-ever", "hf-eval-results", "inspect", "lm-eval")),
    ]
    for field in fields_of(recorded):
        for words in commands:
            plant(recorded, run, field, planted)
            say(*words)
            assert not ran(tmp_path), f"{words[0]} imported the file named by {field}"
