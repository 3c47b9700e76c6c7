"""Many models by one spec: a run each, nobody suffers for another, and all of it stops and goes on as one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from leadline.core.errors import Interrupted, RunStopped
from leadline.core.spec import Spec, make_spec
from leadline.results.run import load_run
from leadline.run.events import (
    Answered,
    Event,
    ManyModelsEvent,
    ModelEnded,
    ModelRun,
    ModelRunResult,
    ModelStarted,
    Started,
)
from leadline.run.interrupt import Stop
from leadline.run.many_models import _ModelPool, measure_all
from leadline.run.measure import measure
from leadline.store.manifest import MANIFEST
from leadline.store.runs import RECORDS, read_records


def spec_for(model: str, **limits: int) -> Spec:
    values = {"model": model, "tasks": "niah", "lengths": "1k,2k", "depths": 2, "samples": 2, "limits": limits}
    return make_spec(values)


def model_runs(folder: Path, *models: str) -> list[ModelRun]:
    return [ModelRun(model, spec_for(model), folder / str(n)) for n, model in enumerate(models)]


def test_every_model_has_the_run_it_would_have_alone(tmp_path: Path) -> None:
    models = ("sim:perfect", "sim:cliff?window=1500")
    events: list[ManyModelsEvent] = []
    outcomes = measure_all(model_runs(tmp_path, *models), listen=events.append)
    for outcome in outcomes:
        assert outcome.run is not None
        assert outcome.run.totals.done == 8
        measure(outcome.model_run.spec, tmp_path / "alone" / outcome.model_run.folder.name)
        alone, listed = (
            {r.cell.key: (r.sent, r.outcome, r.scores) for r in read_records(folder)}
            for folder in (tmp_path / "alone" / outcome.model_run.folder.name, outcome.model_run.folder)
        )
        assert alone == listed
    kinds = [type(event) for event in events if not isinstance(event, Answered)]
    assert kinds == [ModelStarted, Started, ModelEnded] * 2  # one after another


def test_a_model_that_fails_is_told_with_its_reason_and_the_others_go_on(tmp_path: Path) -> None:
    listed = model_runs(tmp_path, "sim:nobody", "no-such-provider:x", "sim:perfect?limit=1500", "sim:perfect")
    *lost, good = measure_all(listed)
    assert [o.error is not None and o.run is None for o in lost] == [True] * 3
    assert ["nobody" in str(lost[0].error), "no-such-provider" in str(lost[1].error)] == [True, True]
    assert good.run is not None
    assert good.run.totals.done == 8


def test_a_folder_with_a_damaged_manifest_is_the_outcome_of_its_model_alone(tmp_path: Path) -> None:
    listed = model_runs(tmp_path, "sim:perfect", "sim:cliff?window=1500")
    listed[0].folder.mkdir()
    (listed[0].folder / MANIFEST).write_text("{")
    damaged, good = measure_all(listed)
    assert "the manifest is damaged" in str(damaged.error)
    assert good.run is not None
    assert good.run.totals.done == 8


@pytest.mark.parametrize("defect", [ZeroDivisionError, SystemExit])
def test_what_a_strange_model_raises_is_its_own_outcome(tmp_path: Path, defect: type[BaseException]) -> None:
    complete = measure(spec_for("sim:perfect"), tmp_path / "complete").folder

    def fall(model_run: ModelRun, listen: Callable[[Event], None], stop: Stop) -> ModelRunResult:
        if model_run.name == "sim:strange":
            raise defect("a stranger's defect")
        return ModelRunResult(model_run, load_run(complete))

    found = _ModelPool(model_runs(tmp_path, "sim:strange", "sim:perfect"), fall).run(1, lambda event: None)
    assert str(found["sim:strange"].error).startswith(f"{defect.__name__}: a stranger's defect")
    assert found["sim:perfect"].run is not None


def test_models_that_are_whole_are_not_opened_again_and_others_go_on(tmp_path: Path) -> None:
    listed = model_runs(tmp_path, "sim:perfect", "sim:cliff?window=1500")
    measure_all(listed)
    records = listed[1].folder / RECORDS
    records.write_text("".join(records.read_text().splitlines(keepends=True)[:5]))
    events: list[ManyModelsEvent] = []
    first, second = measure_all(listed, listen=events.append)
    assert (first.was_complete, second.was_complete) == (True, False)
    assert first.run is not None
    assert first.run.totals.done == 8
    assert sum(isinstance(event, Answered) for event in events) == 3


def test_models_run_side_by_side_where_there_is_room(tmp_path: Path) -> None:
    meeting = threading.Barrier(2, timeout=120)
    complete = measure(spec_for("sim:perfect"), tmp_path / "complete").folder

    def meet(model_run: ModelRun, listen: Callable[[Event], None], stop: Stop) -> ModelRunResult:
        meeting.wait()  # alone it would wait in vain
        return ModelRunResult(model_run, load_run(complete))

    listed = model_runs(tmp_path, "sim:a", "sim:b", "sim:c", "sim:d")
    found = _ModelPool(listed, meet).run(2, lambda event: None)
    assert all(outcome.error is None for outcome in found.values())
    assert found.keys() == {"sim:a", "sim:b", "sim:c", "sim:d"}


def test_an_interrupt_stops_all_runs_and_begins_no_more(tmp_path: Path) -> None:
    begun: list[str] = []

    def wait(model_run: ModelRun, listen: Callable[[Event], None], stop: Stop) -> ModelRunResult:
        begun.append(model_run.name)
        if len(begun) == 2:
            signal.raise_signal(signal.SIGINT)  # handled by the main thread, which listens
        assert stop.wait(10)
        raise RunStopped("stopped in good order")

    ended: list[ManyModelsEvent] = []
    with pytest.raises(Interrupted):
        _ModelPool(model_runs(tmp_path, "sim:a", "sim:b", "sim:c"), wait).run(2, ended.append)
    assert sorted(begun) == ["sim:a", "sim:b"]
    assert sum(isinstance(event, ModelEnded) for event in ended) == 2


def test_a_part_can_stop_alone_and_stops_with_the_whole() -> None:
    whole = Stop()
    first, second = whole.inner(), whole.inner()
    first.because(RunStopped("its server died"))
    assert (first.is_set, second.is_set, whole.is_set) == (True, False, False)
    whole.because(Interrupted("interrupted"))
    assert second.is_set
    assert str(first.error) == "its server died"
    assert whole.inner().is_set  # one that begins too late, too


def test_servers_in_a_list_need_no_ray(tmp_path: Path) -> None:
    listed = [ModelRun("one", spec_for("sim:perfect", ray=2), tmp_path / "one")]
    (outcome,) = measure_all(listed)
    assert outcome.error is None
