"""MLflow: one run for each line of checkpoints, numbers by step, pictures as artifacts.

Needs the client alone (mlflow-skinny). Metrics in MLflow can be added and never taken back, so a tag for each step
holds a digest of what was logged: the same entry again is left alone, and of a changed one the later value is shown.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from leadline.core.digest import digest_text
from leadline.core.errors import MissingExtra, TrackerError
from leadline.core.trackers import Tracker, TrackerEntry

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

AT_ONCE = 1000
"""Metrics that MLflow takes in one request."""
PATIENCE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "30", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}
"""Unless the environment says otherwise: MLflow's own retries keep a command waiting for minutes."""


class MLflow(Tracker):
    """A tracking server, a database or a folder. The place is MLflow's tracking URI; none is MLFLOW_TRACKING_URI."""

    summary: ClassVar[str] = "MLflow: mlflow:http://127.0.0.1:5000?experiment=NAME, or mlflow:./mlruns for a folder"

    experiment: str = Field("", description="made where it is missing; by default MLFLOW_EXPERIMENT_NAME or leadline")
    run_id: str = Field("", description="log into this run, as that of the training, in place of one of our own")

    def check(self, place: str) -> None:
        if find_spec("mlflow") is None:
            raise MissingExtra("mlflow-skinny", "mlflow", where=f"mlflow:{place}")

    def write(self, place: str, entry: TrackerEntry) -> str:
        self.check(place)
        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        if _is_folder(place):
            # MLflow refuses its folder store unless told that it is wanted. Whoever names a folder wants it.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        try:
            client = MlflowClient(tracking_uri=place or None)
            run_id = self.run_id or self._run(client, entry)
            _log(client, run_id, entry, ours=not self.run_id)
        except (MlflowException, OSError) as error:
            words = str(error).strip().partition("\n")[0][:300]
            raise TrackerError(f"MLflow: {words}", where=f"mlflow:{place}", fix=_fix(place, words)) from None
        return f"MLflow run {run_id}"

    def _run(self, client: MlflowClient, entry: TrackerEntry) -> str:
        """The run that holds the earlier steps of this line, or a new one."""
        name = self.experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "leadline"
        known = client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else client.create_experiment(name)
        line = digest_text(entry.name)
        found = client.search_runs([experiment], f"tags.`leadline.line` = '{line}'", max_results=1)
        if found:
            return str(found[0].info.run_id)
        made = client.create_run(experiment, run_name=entry.name, tags={"leadline.line": line})
        return str(made.info.run_id)


def _log(client: MlflowClient, run_id: str, entry: TrackerEntry, *, ours: bool) -> None:
    from mlflow.entities import Metric, RunTag

    mark = f"leadline.step.{entry.step}"
    if client.get_run(run_id).data.tags.get(mark) == entry.digest:
        return
    at = int(entry.at * 1000)
    metrics = [Metric(name, value, at, entry.step) for name, value in entry.numbers.items()]
    for start in range(0, len(metrics), AT_ONCE):
        client.log_batch(run_id, metrics=metrics[start : start + AT_ONCE])
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name, png in entry.figures.items():
            (folder / f"{name}.png").write_bytes(png)
        if entry.page is not None:
            shutil.copy(entry.page, folder / "report.html")
        client.log_artifacts(run_id, made, f"leadline/step-{entry.step}")
    facts = {**{f"leadline.{name}": text for name, text in entry.facts.items()}, "leadline.verdict": entry.verdict}
    tags = [RunTag(name, text[:4000]) for name, text in facts.items() if text]
    client.log_batch(run_id, tags=[*tags, RunTag(mark, entry.digest)])  # last: only what is whole is marked as logged
    if ours:
        client.set_terminated(run_id)


def _is_folder(place: str) -> bool:
    return place.startswith("file:") or ("://" not in place and place not in ("", "databricks", "uc"))


def _fix(place: str, words: str) -> str:
    if "unsupported URI" in words and "sqlite" in place:
        return 'a database needs more than the client: pip install mlflow, or "sqlalchemy" and "alembic"'
    if place.startswith("http"):
        return "see that the tracking server answers there, and `leadline log RUN --to ...` again: the run is whole"
    return "see the place, then `leadline log RUN --to ...` again: the run is whole"
