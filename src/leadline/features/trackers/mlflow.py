"""MLflow: one run for each series of checkpoints, numbers by step, figures as artifacts.

Needs only the client (mlflow-skinny). MLflow metrics cannot be deleted, so a tag for each step holds the digest of the
logged entry: the same entry is not logged again, and of a changed one MLflow shows the latest value.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from leadline.core.contracts import Tracker, TrackerEntry
from leadline.core.errors import MissingExtra, TrackerError
from leadline.core.seeds import digest_text

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

BATCH_SIZE = 1000
"""The most metrics that MLflow accepts in one request."""
HTTP_DEFAULTS = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "30", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}
"""Environment defaults: with its own, MLflow retries for minutes."""


class MLflow(Tracker):
    """A tracking server, a database or a folder. The address is MLflow's tracking URI, by default
    MLFLOW_TRACKING_URI."""

    summary: ClassVar[str] = "MLflow: mlflow:http://127.0.0.1:5000?experiment=NAME, or mlflow:./mlruns for a folder"

    experiment: str = Field("", description="created if missing; by default MLFLOW_EXPERIMENT_NAME or leadline")
    run_id: str = Field("", description="log into this existing run, such as the training's")

    def check(self, destination: str) -> None:
        if find_spec("mlflow") is None:
            raise MissingExtra("mlflow-skinny", "mlflow", where=f"mlflow:{destination}")

    def write(self, destination: str, entry: TrackerEntry) -> str:
        self.check(destination)
        for name, value in HTTP_DEFAULTS.items():
            os.environ.setdefault(name, value)
        if _is_folder(destination):
            # MLflow refuses its folder store unless it is enabled explicitly.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        try:
            client = MlflowClient(tracking_uri=destination or None)
            run_id = self.run_id or self._run(client, entry)
            _log(client, run_id, entry, own_run=not self.run_id)
        except (MlflowException, OSError) as error:
            message = str(error).strip().partition("\n")[0][:300]
            raise TrackerError(
                f"MLflow: {message}", where=f"mlflow:{destination}", fix=_fix(destination, message)
            ) from None
        return f"MLflow run {run_id}"

    def _run(self, client: MlflowClient, entry: TrackerEntry) -> str:
        """The run with the earlier steps of this series, or a new one."""
        name = self.experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "leadline"
        existing = client.get_experiment_by_name(name)
        experiment = existing.experiment_id if existing else client.create_experiment(name)
        series = digest_text(entry.name)
        runs = client.search_runs([experiment], f"tags.`leadline.line` = '{series}'", max_results=1)
        if runs:
            return str(runs[0].info.run_id)
        created = client.create_run(experiment, run_name=entry.name, tags={"leadline.line": series})
        return str(created.info.run_id)


def _log(client: MlflowClient, run_id: str, entry: TrackerEntry, *, own_run: bool) -> None:
    from mlflow.entities import Metric, RunTag

    mark = f"leadline.step.{entry.step}"
    if client.get_run(run_id).data.tags.get(mark) == entry.digest:
        return
    at = int(entry.at * 1000)
    metrics = [Metric(name, value, at, entry.step) for name, value in entry.numbers.items()]
    for start in range(0, len(metrics), BATCH_SIZE):
        client.log_batch(run_id, metrics=metrics[start : start + BATCH_SIZE])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, png in entry.figures.items():
            (folder / f"{name}.png").write_bytes(png)
        if entry.page is not None:
            shutil.copy(entry.page, folder / "report.html")
        client.log_artifacts(run_id, temporary, f"leadline/step-{entry.step}")
    facts = {**{f"leadline.{name}": text for name, text in entry.facts.items()}, "leadline.verdict": entry.verdict}
    tags = [RunTag(name, text[:4000]) for name, text in facts.items() if text]
    # Last, so that an incomplete entry is not marked as logged.
    client.log_batch(run_id, tags=[*tags, RunTag(mark, entry.digest)])
    if own_run:
        client.set_terminated(run_id)


def _is_folder(destination: str) -> bool:
    return destination.startswith("file:") or ("://" not in destination and destination not in ("", "databricks", "uc"))


def _fix(destination: str, message: str) -> str:
    if "unsupported URI" in message and "sqlite" in destination:
        return 'a database needs more than the client: pip install mlflow, or "sqlalchemy" and "alembic"'
    again = "run `leadline log RUN --to ...` again: the run itself is complete"
    if destination.startswith("http"):
        return f"check that the tracking server is reachable, then {again}"
    return f"check the path, then {again}"
