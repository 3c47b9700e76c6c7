"""Trackers: real stores are written and read back; a step that is logged again is there once, as it is now."""

from __future__ import annotations

import glob
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leadline.core import registry
from leadline.core.contracts import Tracker, TrackerEntry
from leadline.core.errors import MissingExtra, TrackerError, UnknownName, UsageError


def pixel() -> bytes:
    """The smallest PNG there is."""
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 6, 0, 0, 0)),
        (b"IDAT", zlib.compress(bytes(5))),
        (b"IEND", b""),
    )
    framed = (struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d)) for kind, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


PIXEL = pixel()
ENTRY = TrackerEntry(
    name="hf:out/checkpoint",
    step=1000,
    at=1_763_208_000.0,
    numbers={"leadline/effective_length": 43_000.0, "leadline/accuracy": 0.75, "leadline_task_length/niah/4k": 1.0},
    figures={"heatmap": PIXEL},
    facts={"model": "hf:out/checkpoint-1000", "digest": "5f1d"},
    verdict="hf:out/checkpoint-1000 can use about 43k of the 128k tokens it claims.",
)


def write(to: str, entry: TrackerEntry) -> str:
    book, place = registry.tracker(to)
    return book.write(place, entry)


# --- every tracker ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", registry.names("trackers"))
def test_a_tracker_says_what_it_is_and_explains_its_options(name: str) -> None:
    found = registry.find("trackers", name)
    assert issubclass(found, Tracker)
    assert f"{name}:" in found.summary
    assert all(f.description for f in found.model_fields.values())


@pytest.mark.parametrize("name", registry.names("trackers"))
def test_a_missing_package_names_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = registry.find("trackers", name).__module__
    monkeypatch.setattr(f"{module}.find_spec", lambda package: None)
    with pytest.raises(MissingExtra) as error:
        write(f"{name}:place", ENTRY)
    assert f'pip install -e ".[{name}]"' in error.value.fix


def test_wrong_words_are_usage_errors() -> None:
    with pytest.raises(UnknownName) as error:
        registry.tracker("mlfow:place")
    assert "did you mean 'mlflow'?" in error.value.fix
    with pytest.raises(UnknownName) as error:
        registry.tracker("mlflow:place?experimnt=x")
    assert "did you mean 'experiment'?" in error.value.fix
    with pytest.raises(UsageError):
        registry.tracker("mlflow")


# --- MLflow, a real folder store ----------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of a folder store that the tracker writes to as well."""
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=str(tmp_path / "mlruns"))


def runs_in(store: Any, experiment: str) -> list[Any]:
    return list(store.search_runs([store.get_experiment_by_name(experiment).experiment_id]))


@pytest.mark.slow
def test_mlflow_keeps_the_steps_of_a_line_in_one_run(store: Any, tmp_path: Path) -> None:
    to = f"mlflow:{tmp_path / 'mlruns'}?experiment=ctx"
    write(to, ENTRY)
    write(to, replace(ENTRY, step=2000, numbers={"leadline/accuracy": 0.5}))
    write(to, replace(ENTRY, name="another line"))
    runs = {run.info.run_name: run for run in runs_in(store, "ctx")}
    assert set(runs) == {"hf:out/checkpoint", "another line"}
    run = runs["hf:out/checkpoint"]
    history = store.get_metric_history(run.info.run_id, "leadline/accuracy")
    assert sorted((m.step, m.value) for m in history) == [(1000, 0.75), (2000, 0.5)]
    assert run.data.metrics["leadline_task_length/niah/4k"] == 1.0
    assert run.data.tags["leadline.digest"] == "5f1d"
    assert "43k" in run.data.tags["leadline.verdict"]
    assert run.info.status == "FINISHED"
    (picture,) = store.list_artifacts(run.info.run_id, "leadline/step-1000")
    assert picture.path == "leadline/step-1000/heatmap.png"
    assert picture.file_size == len(PIXEL)


@pytest.mark.slow
def test_mlflow_leaves_alone_what_says_the_same_and_shows_what_changed(store: Any, tmp_path: Path) -> None:
    to = f"mlflow:{tmp_path / 'mlruns'}"
    for _ in range(2):
        write(to, ENTRY)
    (run,) = runs_in(store, "leadline")
    assert len(store.get_metric_history(run.info.run_id, "leadline/accuracy")) == 1
    write(to, replace(ENTRY, at=ENTRY.at + 60, numbers={"leadline/accuracy": 0.8}))
    (run,) = runs_in(store, "leadline")
    assert run.data.metrics["leadline/accuracy"] == 0.8


def test_mlflow_logs_beside_the_loss_and_leaves_the_training_going(store: Any, tmp_path: Path) -> None:
    training = store.create_run(store.create_experiment("training"))
    store.log_metric(training.info.run_id, "loss", 1.5, step=1000)
    write(f"mlflow:{tmp_path / 'mlruns'}?run_id={training.info.run_id}", ENTRY)
    run = store.get_run(training.info.run_id)
    assert (run.data.metrics["loss"], run.data.metrics["leadline/accuracy"]) == (1.5, 0.75)
    assert run.info.status == "RUNNING"


def test_mlflow_keeps_the_page_where_it_was_asked_for(store: Any, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<!doctype html>")
    write(f"mlflow:{tmp_path / 'mlruns'}", replace(ENTRY, page=tmp_path / "page.html"))
    (run,) = runs_in(store, "leadline")
    names = {item.path for item in store.list_artifacts(run.info.run_id, "leadline/step-1000")}
    assert "leadline/step-1000/report.html" in names


def test_a_folder_is_written_to_without_any_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "")  # so that it is taken back after the test
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE")
    assert write(f"mlflow:{tmp_path / 'new'}", ENTRY).startswith("MLflow run ")


def test_a_tracking_server_that_is_not_there_is_told_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(TrackerError) as error:
        write("mlflow:http://127.0.0.1:9", ENTRY)
    assert error.value.exit_code == 76
    assert "tracking server" in error.value.fix


# --- TensorBoard, real event files --------------------------------------------------------------


def events_in(folder: Path) -> Iterator[Any]:
    """Every event of every file, by the framing of TFRecord: length, its checksum, the event, its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    for path in sorted(folder.glob("events.out.tfevents.*")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (size,) = struct.unpack_from("<Q", data, at)
            yield Event.FromString(data[at + 12 : at + 12 + size])
            at += 16 + size


def scalars_in(folder: Path) -> dict[tuple[str, int], list[float]]:
    found: dict[tuple[str, int], list[float]] = {}
    for event in events_in(folder):
        for value in event.summary.value:
            if value.WhichOneof("value") == "simple_value":
                found.setdefault((value.tag, event.step), []).append(value.simple_value)
    return found


def test_tensorboard_gets_scalars_the_picture_and_the_verdict(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    folder = Path(write(f"tensorboard:{tmp_path}", ENTRY))
    assert folder == tmp_path / "hf-out-checkpoint"
    assert scalars_in(folder) == {(name, 1000): [value] for name, value in ENTRY.numbers.items()}
    values = [v for event in events_in(folder) for v in event.summary.value]
    picture = next(v.image for v in values if v.tag == "leadline/heatmap")
    assert (picture.width, picture.height, picture.encoded_image_string) == (1, 1, PIXEL)
    assert any("43k of the 128k" in str(v.tensor) for v in values if v.tag.startswith("leadline/verdict"))
    assert {event.wall_time for event in events_in(folder) if event.HasField("summary")} == {ENTRY.at}


def test_tensorboard_shows_a_step_once_however_often_it_is_logged(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    to = f"tensorboard:{tmp_path}"
    folder = Path(write(to, ENTRY))
    (first,) = folder.iterdir()
    first.rename(first.with_name(first.name.replace("tfevents.", "tfevents.0")))  # as if written some time ago
    write(to, replace(ENTRY, step=2000))
    write(to, replace(ENTRY, numbers={"leadline/accuracy": 0.5}))
    found = scalars_in(folder)
    assert found["leadline/accuracy", 1000] == [0.5]
    assert found["leadline/accuracy", 2000] == [0.75]


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackerError) as error:
        write(f"tensorboard:{tmp_path / 'file'}", ENTRY)
    assert "folder" in error.value.fix


# --- Weights & Biases, offline ------------------------------------------------------------------


def wandb_records(folder: Path) -> Iterator[Any]:
    """The records of an offline run. The file is a log of blocks as LevelDB writes them, after seven bytes of its own:
    each part has a checksum, a size and a kind (1 whole, 2 first, 3 middle, 4 last)."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = glob.glob(str(folder / "wandb" / "offline-run-*" / "*.wandb"))
    data, at, held = Path(path).read_bytes(), 7, b""
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        held = (b"" if kind in (1, 2) else held) + data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            yield Record.FromString(held)


@pytest.fixture
def quiet_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "files"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_wandb_gets_numbers_over_our_own_step_and_the_picture(quiet_wandb: Path) -> None:
    where = write(f"wandb:team/project?mode=offline&dir={quiet_wandb}", ENTRY)
    assert Path(where).is_dir()
    records = list(wandb_records(quiet_wandb))
    for _ in range(300):  # a process of its own writes the file
        if {"run", "history", "metric"} <= {r.WhichOneof("record_type") for r in records}:
            break
        time.sleep(0.2)
        records = list(wandb_records(quiet_wandb))
    (run,) = [r.run for r in records if r.WhichOneof("record_type") == "run"]
    assert (run.entity, run.project, run.display_name) == ("team", "project", "hf:out/checkpoint")
    logged: dict[str, str] = {}
    for record in records:
        for item in record.history.item:
            logged[item.key or "/".join(item.nested_key)] = item.value_json
    assert logged["leadline/step"] == "1000"
    assert {name: float(logged[name]) for name in ENTRY.numbers} == ENTRY.numbers
    assert logged["leadline/heatmap/_type"] == '"image-file"'
    axes = {r.metric.glob_name: r.metric.step_metric for r in records if r.WhichOneof("record_type") == "metric"}
    assert axes["leadline*"] == "leadline/step"


def test_wandb_never_waits_for_a_key(quiet_wandb: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(TrackerError) as error:
        write("wandb:project", ENTRY)
    assert "mode=offline" in error.value.fix
