"""Two replicas of a model as Ray actors on this machine: the same records, and none lost when replicas die."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ray = pytest.importorskip("ray")

from leadline.core.answers import Failure  # noqa: E402
from leadline.core.contracts import Forecasting, LogprobModel, SeveralDocuments  # noqa: E402
from leadline.core.errors import RunStopped, ServerError, SourceError  # noqa: E402
from leadline.core.records import Record  # noqa: E402
from leadline.core.spec import make_spec  # noqa: E402
from leadline.core.types import TokenNLL  # noqa: E402
from leadline.models.ray import cluster  # noqa: E402
from leadline.models.ray.cluster import Reservation  # noqa: E402
from leadline.models.ray.model import RayLogprobModel, RayModel, replicas_of  # noqa: E402
from leadline.results.totals import Totals  # noqa: E402
from leadline.run.measure import measure_spec  # noqa: E402
from leadline.run.plan import prepare  # noqa: E402
from leadline.store.runs import read_records  # noqa: E402
from support import mortal_model  # noqa: E402

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("default")]

GRID = {"model": "sim:perfect", "tasks": "niah", "lengths": "1k,2k", "depths": 3, "samples": 2, "reading": "shared"}


@pytest.fixture(scope="module")
def slots() -> Iterator[Reservation]:
    ray.init(address="local", num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False)
    ray.cloudpickle.register_pickle_by_value(mortal_model)
    made = Reservation(2)
    yield made
    made.release()
    ray.shutdown()


def replicas(slots: Reservation, folder: Path) -> RayModel:
    return replicas_of(partial(mortal_model.MortalModel, folder), slots, 2)


def run(slots: Reservation, folder: Path, out: str = "run") -> Totals:
    """A whole run, asked of two copies."""
    return measure_spec(make_spec(GRID), folder / out, open_model=lambda spec: replicas(slots, folder)).run.totals


def content(record: Record) -> tuple[Any, ...]:
    return record.cell, record.document, record.sent, record.outcome, record.scores


def test_a_run_over_two_replicas_has_the_records_of_a_run_in_this_process(slots: Reservation, tmp_path: Path) -> None:
    with prepare(make_spec(GRID), lambda spec: mortal_model.MortalModel(tmp_path)) as plan:
        assert plan.at_once == 1
    measure_spec(make_spec(GRID), tmp_path / "one", open_model=lambda spec: mortal_model.MortalModel(tmp_path))
    for log in tmp_path.glob("asked-*"):
        log.unlink()
    assert run(slots, tmp_path, "two").done == 12
    one, two = ({r.cell.key: content(r) for r in read_records(tmp_path / name)} for name in ("one", "two"))
    assert one == two
    logs = [log.read_text().splitlines() for log in tmp_path.glob("asked-*")]
    assert sum(map(len, logs)) == 4  # a document's questions stay together
    assert len(logs) == 2  # and both replicas worked


def test_the_document_of_a_replica_that_died_is_asked_of_another(slots: Reservation, tmp_path: Path) -> None:
    (tmp_path / "kill").touch()
    totals = run(slots, tmp_path)
    assert (totals.done, totals.failed, totals.retried) == (12, 0, 0)
    assert not (tmp_path / "kill").exists()


def test_a_replica_that_died_is_restarted(slots: Reservation, tmp_path: Path) -> None:
    model = replicas(slots, tmp_path)
    assert isinstance(model, RayLogprobModel)
    ids = np.arange(9, dtype=np.int32)
    for end in ("kill", "lost", "kill", "lost", "kill"):  # more often than there are slots
        (tmp_path / end).touch()
        found = model.nll(ids, spans=[(1, 3)])
        assert isinstance(found, TokenNLL)
        assert found.spans[0].tolist() == [36.0, 36.0]
        assert not (tmp_path / end).exists()
    assert model.replicas == 2
    model.close()


def test_a_document_that_kills_every_replica_fails_and_the_run_stops_when_none_is_left(
    slots: Reservation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "MAX_RESTARTS", 2)
    (tmp_path / "plague").touch()
    with pytest.raises(RunStopped, match="all 2 replicas have died"):
        run(slots, tmp_path)
    failed = list(read_records(tmp_path / "run"))
    assert failed
    assert all(isinstance(r.outcome, Failure) and r.outcome.why == "server" for r in failed)
    (tmp_path / "plague").unlink()
    assert run(slots, tmp_path).done == 12  # and goes on where it stopped


def test_an_exception_of_the_model_reaches_the_user_unchanged(slots: Reservation, tmp_path: Path) -> None:
    (tmp_path / "confused").touch()
    with pytest.raises(RuntimeError, match="a defect of the model"):
        run(slots, tmp_path)
    (tmp_path / "sick").touch()
    with pytest.raises(SourceError, match="this one does not open") as caught:
        replicas(slots, tmp_path)
    assert caught.value.fix == "cure it"


def test_a_replica_that_differs_is_left_out_and_named(slots: Reservation, tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    model = replicas(slots, tmp_path)
    assert model.replicas == 1
    assert "1 of 2 replicas could not be opened" in model.card.notes[-1]
    assert "dtype is" in model.card.notes[-1]
    model.close()


def test_replicas_have_the_abilities_of_the_model(slots: Reservation, tmp_path: Path) -> None:
    model = replicas(slots, tmp_path)
    assert isinstance(model, LogprobModel)
    assert isinstance(model, SeveralDocuments)
    assert isinstance(model, Forecasting)
    words = model.forecast([[(1, 2, 3)], [(1, 2, 3)]])
    assert words[0] == "2 documents"
    assert "2 share" in words[1]
    assert model.card.notes == ("a test", "2 replicas through Ray, 1 processor each")
    model.close()


def test_a_call_that_waits_for_a_replica_fails_when_the_model_is_closed(slots: Reservation, tmp_path: Path) -> None:
    model = replicas(slots, tmp_path)
    for _ in range(2):
        model._pool._take()
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            model.forecast([])
        except RunStopped as error:
            errors.append(error)

    waiting = threading.Thread(target=ask)
    waiting.start()
    model.close()
    waiting.join(120)
    assert len(errors) == 1
    again = replicas(slots, tmp_path)  # the slots are free again
    assert again.replicas == 2
    again.close()


def test_a_full_cluster_is_an_error(slots: Reservation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "PLACEMENT_SECONDS", 0.5)
    with pytest.raises(ServerError, match="other jobs are using it"):
        Reservation(1)
