"""Weights & Biases: one run for each series of checkpoints, numbers over our own step, with the figures.

W&B drops values that are logged at a lower step than its counter, so checkpoints measured late, or into the training's
own run, would be lost. Numbers are logged against `leadline/step` instead, which charts use as their x axis.
"""

from __future__ import annotations

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from leadline.core.contracts import Tracker, TrackerEntry
from leadline.core.errors import MissingExtra, TrackerError
from leadline.core.seeds import digest_text

if TYPE_CHECKING:
    from wandb import Run

STEP = "leadline/step"
LOGGED = "leadline_logged"
"""The key of the run's config with the digest of each logged step."""


class WandB(Tracker):
    """A project, as PROJECT or ENTITY/PROJECT; by default WANDB_PROJECT or leadline."""

    summary: ClassVar[str] = "Weights & Biases: wandb:ENTITY/PROJECT?mode=online|offline"

    mode: Literal["", "online", "offline"] = Field("", description="by default WANDB_MODE, else online")
    run_id: str = Field("", description="log into this existing run, such as the training's")
    dir: str = Field("", description="where local files go; by default WANDB_DIR or ./wandb")

    def check(self, destination: str) -> None:
        if find_spec("wandb") is None:
            raise MissingExtra("wandb", "wandb", where=f"wandb:{destination}")

    def write(self, destination: str, entry: TrackerEntry) -> str:
        self.check(destination)
        import wandb

        online = (self.mode or os.environ.get("WANDB_MODE") or "online") == "online"
        if online and not _logged_in(wandb):
            raise TrackerError(
                "not logged in to Weights & Biases",
                where=f"wandb:{destination}",
                fix="run `wandb login`, set WANDB_API_KEY, or add ?mode=offline and `wandb sync` later",
            )
        entity, _, project = destination.rpartition("/")
        own: dict[str, Any] = {} if self.run_id else {"name": entry.name, "job_type": "leadline"}
        if self.dir:
            Path(self.dir).mkdir(parents=True, exist_ok=True)
        quiet = wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True, save_code=False)
        try:
            run = wandb.init(
                entity=entity or None,
                project=project or os.environ.get("WANDB_PROJECT") or "leadline",
                id=self.run_id or f"leadline-{digest_text(entry.name)}",
                resume="allow",
                mode=self.mode or None,
                dir=self.dir or None,
                reinit="create_new",
                settings=quiet,
                **own,
            )
            try:
                _log(run, entry)
            finally:
                run.finish()
        except (wandb.errors.Error, OSError) as error:
            message = str(error).strip().partition("\n")[0][:300]
            fix = "run `leadline log RUN --to ...` again, or add ?mode=offline: the run itself is complete"
            raise TrackerError(f"Weights & Biases: {message}", where=f"wandb:{destination}", fix=fix) from None
        return str(run.settings.sync_dir if run.offline else run.url)


def _log(run: Run, entry: TrackerEntry) -> None:
    import wandb

    logged: dict[str, Any] = dict(run.config.get(LOGGED) or {})
    if logged.get(str(entry.step)) == entry.digest:
        return
    run.define_metric(STEP, hidden=True)
    run.define_metric("leadline*", step_metric=STEP)
    with tempfile.TemporaryDirectory() as temporary:
        pictures = {}
        for name, png in entry.figures.items():
            path = Path(temporary) / f"{name}.png"
            path.write_bytes(png)
            pictures[f"leadline/{name}"] = wandb.Image(str(path), caption=entry.verdict)
        run.log({STEP: entry.step, **entry.numbers, **pictures})
    if entry.page is not None:
        run.log({STEP: entry.step, "leadline/report": wandb.Html(entry.page.read_text("utf-8"), inject=False)})
    logged[str(entry.step)] = entry.digest
    about = {f"leadline_{name}": text for name, text in entry.facts.items()}
    run.config.update({**about, LOGGED: logged}, allow_val_change=True)
    run.summary["leadline/verdict"] = entry.verdict


def _logged_in(wandb: Any) -> bool:
    """Whether a key is known. Never prompts for one."""
    try:
        return bool(wandb.login(prompt=False, verify=False))
    except wandb.errors.Error:
        return False
