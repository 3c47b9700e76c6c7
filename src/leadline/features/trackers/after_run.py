"""Trackers at the end of a run, as its spec names them: the entry point of `leadline.after_run`."""

from __future__ import annotations

from pathlib import Path

from leadline.core import registry
from leadline.core.contracts import TrackerEntry
from leadline.core.errors import LeadlineError
from leadline.core.format import sanitise
from leadline.core.spec import Spec
from leadline.results.run import load_run
from leadline.run.after_run import AfterRun
from leadline.run.events import Listener, Note
from leadline.run.interrupt import Stop


class Trackers(AfterRun):
    def wants(self, spec: Spec) -> bool:
        return bool(spec.log.to)

    def check(self, spec: Spec, listen: Listener, *, has_prices: bool = False) -> None:
        """Raises for unknown trackers, options and steps. Problems that the user may still fix before the end become
        notes."""
        from leadline.features.trackers.entry import step_of  # imports altair

        for location in spec.log.to:
            registry.tracker(location)
        step_of(spec.model, spec.log.step)
        for location in spec.log.to:
            try:
                tracker, target = registry.tracker(location)
                tracker.check(target)
            except LeadlineError as error:
                listen(Note(_not_logged(location, error)))

    def run(self, folder: Path, spec: Spec, listen: Listener, stop: Stop) -> None:
        """Errors become notes, because the run itself is complete and `leadline log` can write it later."""
        from leadline.features.trackers.entry import tracker_entry, write_entry

        entry: TrackerEntry | None = None
        for location in spec.log.to:
            try:
                entry = entry or tracker_entry(load_run(folder), spec.log.step, spec.log.run_name)
                where = write_entry(location, entry)
            except Exception as error:  # of a tracker's own package
                listen(Note(_not_logged(location, error)))
            else:
                listen(Note(f"logged step {entry.step} of {entry.name} to {where}"))


def _not_logged(location: str, error: Exception) -> str:
    what = getattr(error, "what", f"{type(error).__name__}: {error}")
    fix = getattr(error, "fix", "")
    return f"not logged to {location}: {sanitise(what)}" + (f"; fix: {sanitise(fix)}" if fix else "")


TRACKERS = Trackers()
