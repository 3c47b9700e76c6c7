"""The run folders of every suite in miniature, and run folders written before, are what they were.

What depends on documents and prompts is stored apart from what depends on what a simulated model answers, so that one
can be blessed without the other: `LEADLINE_BLESS=1 pytest tests/golden/test_golden_runs.py -k answers`.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from golden.doors import Question, TaskSpec, make_spec, registry, say
from golden.freeze import COMMANDS, write_quick
from golden.tools import check, check_names, digest, frozen_labels, json_of, numbers, rounded, thaw, write_haystack

PUBLISHED = ("longbench", "longbench-e", "longbench-mini", "longbench-v2", "infinitebench")
"""Suites of published data, which has to be downloaded: tests/tasks/test_published.py has their documents."""
SUITES = [name for name in registry.names("suites") if name not in (*PUBLISHED, "ruler-original")]  # need files
MODEL = "sim:decay?window=2k"
LENGTHS: dict[str, tuple[int, ...]] = {"ruler-1m": (2048,), "ruler": (1536, 2560), "ruler-quick": (1536, 2560)}
OTHER_LENGTHS = (1024, 1536)


class Sides(NamedTuple):
    """Digests of the records of one run, by task."""

    documents: dict[str, str]
    answers: dict[str, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("golden")
    write_haystack(place / "golden-haystack.txt")
    return place


@pytest.fixture(autouse=True)
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LEADLINE_CACHE", str(folder / "cache"))


# --- suites -------------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_asks_what_it_asked(suite: str) -> None:
    spec = make_spec({"model": MODEL, **registry.find("suites", suite).values})
    check("suites", suite, spec.identity())


def test_the_suites_are_those_that_were_frozen() -> None:
    check_names("suites", SUITES)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("suite", SUITES)
def test_the_documents_of_a_suite_in_miniature_are_those_that_were_frozen(suite: str) -> None:
    check("suite_documents", suite, run_of(suite).documents)


@pytest.mark.parametrize("suite", SUITES)
def test_the_answers_to_a_suite_in_miniature_are_those_that_were_frozen(suite: str) -> None:
    check("suite_answers", suite, run_of(suite).answers)


@cache
def run_of(suite: str) -> Sides:
    """The suite by a spec file, with few samples, short texts, and a haystack that does not come with Python."""
    spec = make_spec({"model": MODEL, **registry.find("suites", suite).values})
    lines = [
        f"lengths = {json.dumps(LENGTHS.get(suite, OTHER_LENGTHS))}",
        f"depths = {json.dumps(spec.depths[:2])}",
        "samples = 1",
        f'reading = "{spec.reading}"',
    ]
    for task in spec.tasks:
        options = {**task.options, **_data(task)}
        lines += ["[[tasks]]", f'name = "{task.name}"', f'label = "{task.label}"']
        lines += [f"{key} = {json.dumps(value)}" for key, value in options.items()]
    Path(f"{suite}.toml").write_text("\n".join(lines) + "\n")
    code = say(["run", f"{suite}.toml", "--model", MODEL, "--no-figure", "--json", "--out", f"suite-{suite}"])
    assert code == 0
    return sides_of(Path(f"suite-{suite}"))


def _data(asked: TaskSpec) -> dict[str, Any]:
    task = registry.task(asked)
    own: dict[str, Any] = {"haystack": "golden-haystack.txt"} if getattr(task, "haystack", "") == "prose" else {}
    return own | ({"short": 256, "step": 64} if "short" in type(task).model_fields else {})


def sides_of(run: Path) -> Sides:
    """Records in the order of their cells, without clocks and without the words of notes."""
    records = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    records.sort(key=lambda r: json.dumps(r["cell"], sort_keys=True))
    documents: dict[str, list[Any]] = {}
    answers: dict[str, list[Any]] = {}
    for record in records:
        task, sent = record["cell"]["task"], record["sent"]
        question = msgspec.convert(record["question"], Question)
        documents.setdefault(task, []).append(
            {key: record[key] for key in ("cell", "reading", "document", "cluster", "facts", "body_tokens",
                                          "prompt_tokens")}
            | {"question": question.text, "answer_prefix": question.answer_prefix, "targets": question.targets,
               "allowance": question.allowance, "labels": frozen_labels(question)}
            | {"ours": record["receipt"]["ours"], "scorers": sorted(record["scores"]) if _answered(record) else []}
            | {"sent": [sent.get(key) for key in ("form", "prefix", "characters", "digest", "decoding")]}
        )  # fmt: skip
        answers.setdefault(task, []).append(
            [record["cell"], numbers(record["outcome"], keep=frozenset({"text", "finish", "why", "kind"})),
             {name: rounded(float(score["value"])) for name, score in record["scores"].items()},
             record["failure_class"], record["detail"], record["receipt"]["theirs"], record["attempts"]]
        )  # fmt: skip
    return Sides({t: digest(v) for t, v in documents.items()}, {t: digest(v) for t, v in answers.items()})


def _answered(record: dict[str, Any]) -> bool:
    """Which numbers a measure has may depend on the model: LongPPL has none where no token needs the far context."""
    return bool(record["outcome"]["kind"] == "completion")


# --- folders that were written before -----------------------------------------------------------


OTHER_VERSIONS = frozenset({"fresh", "until", "until-cell", "shared", "nested", "ruler-quick", "trap"})
"""Runs of tasks and scorers that have changed on purpose since: their folders open, but are not continued."""


def _without_new_fields(manifest: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Fields that the manifest has got since may be added, at their top or in `frame`, as long as they are empty; and
    what a model says about itself."""
    frame, new = manifest["frame"], {**manifest, **manifest["frame"]}.items()
    assert not any(value for name, value in new if name not in before and name not in before["frame"])
    kept = {name: value for name, value in manifest.items() if name in before}
    model = {name: value for name, value in manifest["model"].items() if name in before["model"]}
    return kept | {"frame": {name: value for name, value in frame.items() if name in before["frame"]}, "model": model}


@pytest.mark.quick_cases(name=("fresh", "nested", "until", "trap"))
@pytest.mark.parametrize("name", ["fresh", "proxies", "until", "until-cell", "shared", "nested", "ruler-quick", "trap"])
def test_the_command_of_a_folder_written_before_finds_it_and_asks_nothing_or_says_what_changed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --out the folder is found by the digest of the spec; with another identity it would be refused."""
    monkeypatch.chdir(tmp_path)
    write_haystack(tmp_path / "golden-haystack.txt")
    if name == "ruler-quick":
        write_quick(tmp_path / "ruler-quick.toml")
    planned = json_of(capsys, "plan", *COMMANDS[name])
    place = thaw(name, tmp_path / planned["folder"])
    if name in OTHER_VERSIONS:
        frozen = {path: path.read_bytes() for path in place.iterdir() if path.is_file()}
        assert say(["run", *COMMANDS[name], "--no-figure"]) == 73
        assert "version is" in capsys.readouterr().err
        assert all(path.read_bytes() == content for path, content in frozen.items())
        return
    before = (place / "records.jsonl").read_bytes(), json.loads((place / "manifest.json").read_text())
    found = json_of(capsys, "run", *COMMANDS[name], "--no-figure")
    del found["report"]  # the same as that of `leadline report`, which test_golden_statistics compares
    after = (place / "records.jsonl").read_bytes(), json.loads((place / "manifest.json").read_text())
    assert after[0] == before[0]
    assert _without_new_fields(after[1], before[1]) == before[1] | {"sessions": after[1]["sessions"]}
    assert [p.name for p in (tmp_path / "runs").iterdir()] == [place.name]
    check("resumed", name, {"folder": place.name, "numbers": numbers(found, keep=frozenset({"outcome"}))})
