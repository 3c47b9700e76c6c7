"""The public functions and the public `Run`: results from floor 2, with the figures, pages and comparisons of floor 3.

`leadline.results.run.Run` may not import `report`, so its subclass here adds what needs it. Nothing inside the package
imports this module. Charts and pandas take long to import, so methods import them when they are called.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from leadline.core.contracts import Model
from leadline.core.errors import UsageError
from leadline.core.spec import Spec
from leadline.results import run as results
from leadline.results.comparability import pair_runs
from leadline.results.sentences import format_comparison, format_gate
from leadline.results.summary import cell_table
from leadline.results.totals import refuse_unmeasured
from leadline.results.verdict import Verdict, effective_in, verdict
from leadline.run.events import Listener, ignore
from leadline.run.measure import check_model, measure_spec
from leadline.stats.compare import Comparison
from leadline.stats.compare import compare as compare_pairs
from leadline.stats.effective import EffectiveLength, Threshold
from leadline.stats.gate import GateResult, check_gate, parse_gate
from leadline.stats.observations import Failures
from leadline.store.export import COLUMNS, rows

if TYPE_CHECKING:
    import pandas as pd

    from leadline.report.charts.theme import Figure

VEGA_LITE = "application/vnd.vegalite.v5+json"


@dataclass(frozen=True, slots=True)
class RunFigure:
    """A figure that shows itself in a notebook and saves itself to a file."""

    figure: Figure

    def save(self, path: Path | str) -> Path:
        """Writes a png, svg or pdf, by the ending of the path."""
        from leadline.report.charts.render import FORMATS, write_figure

        path = Path(path)
        kind = path.suffix.removeprefix(".")
        if kind not in FORMATS:
            raise UsageError(f"cannot write {path.name}", where=str(path), fix=f"end it with .{', .'.join(FORMATS)}")
        return write_figure(self.figure, path.with_suffix(""), [kind])[0]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """The interactive definition for a notebook, or the png where it cannot draw that."""
        from leadline.report.charts.render import render

        figure = self.figure
        return {VEGA_LITE: figure.spec(), "image/png": render(figure, "png"), "text/plain": figure.alternative}


@dataclass(frozen=True, slots=True)
class RunComparison:
    """A candidate against a base run, prompt by prompt. `gate` is None where none was given."""

    differences: Comparison
    gate: GateResult | None
    warnings: tuple[str, ...]
    """Differences between the runs besides the model."""

    @property
    def passed(self) -> bool:
        return self.gate is not None and self.gate.verdict == "pass"

    def __str__(self) -> str:
        """The result, that of the gate, and the warnings, a line each."""
        gate = [] if self.gate is None else [format_gate(self.gate)]
        return "\n".join([format_comparison(self.differences), *gate, *self.warnings])

    def to_pandas(self) -> pd.DataFrame:
        """One row for the whole, every length, task and depth: both means, the change, and its interval."""
        import pandas as pd

        values = [
            {
                "scope": d.scope, "name": d.name, "base": d.base, "candidate": d.candidate,
                "change": d.estimate.mean, "low": d.estimate.interval.low, "high": d.estimate.interval.high,
                "p": d.p, "p_adjusted": d.adjusted, "verdict": d.verdict,
            }
            for d in self.differences.differences
        ]  # fmt: skip
        return pd.DataFrame(values)


class Run(results.Run):
    """A run folder, opened: tables, totals, verdict, figures, pages and comparisons."""

    @property
    def verdict(self) -> Verdict:
        """The verdict of the run, in sentences."""
        return verdict(self)

    def to_pandas(self, of: Literal["records", "cells"] = "records") -> pd.DataFrame:
        """One row per sample, or with "cells" one row per task, length and depth."""
        import pandas as pd

        if of == "cells":
            table = cell_table([self])
            return pd.DataFrame(table["rows"], columns=table["columns"])
        values = list(rows(self.records))
        return pd.DataFrame(values) if values else pd.DataFrame(columns=list(COLUMNS))

    def heatmap(self) -> RunFigure:
        """Length by depth, one panel per task."""
        from leadline.report.charts.heatmap import heatmap

        return RunFigure(heatmap(self))

    def curves(self) -> RunFigure:
        """Accuracy by length, one line per task."""
        from leadline.report.charts.curves import curves

        return RunFigure(curves(self))

    def effective_length(
        self, threshold: float | None = None, *, share: float | None = None, task: str | None = None
    ) -> EffectiveLength | None:
        """The longest prompt at which the score reaches a fixed `threshold` (by default RULER's 0.856), or a `share` of
        the score at the shortest length. None where fewer than two lengths have answers."""
        if threshold is not None and share is not None:
            raise UsageError("a threshold and a share are two questions", where="effective_length", fix="give one")
        wanted = Threshold(share=share) if share is not None else self.threshold
        if threshold is not None:
            wanted = Threshold(threshold)
        samples = self.table.counted
        if task is not None:
            samples = samples.take(samples.task == task)
        return effective_in(self, samples, wanted)

    def compare(self, base: results.Run, gate: str = "", *, failures: Failures = "excluded") -> RunComparison:
        """This run as the candidate against `base`. Raises UsageError when the two were not asked the same.

        `gate` has clauses such as "overall >= -1; task:* >= -3; effective >= -10%".
        """
        pairs, obstacles = pair_runs(base, self, failures=failures)
        refused = [str(o) for o in obstacles if o.severity == "refuse"]
        if refused:
            raise UsageError(
                "the runs did not ask the same thing: " + "; ".join(refused),
                where=f"{base.folder} and {self.folder}",
                fix="measure both with the same spec; only the model may differ",
            )
        clauses = parse_gate(gate) if gate else ()
        for run in (base, self) if clauses else ():
            refuse_unmeasured(run.folder, run.totals)
        result = check_gate(pairs, clauses) if clauses else None
        return RunComparison(compare_pairs(pairs), result, tuple(map(str, obstacles)))

    def report(self, path: Path | str | None = None) -> Path:
        """Writes the report page, by default report.html in the run's folder."""
        from leadline.report.page import write_page

        return write_page([self], self.folder / "report.html" if path is None else Path(path))

    def __repr__(self) -> str:
        return f"<Run {self.name}: {self.progress.describe()}>"


def load_run(folder: Path | str, failures: Failures = "excluded") -> Run:
    """Opens a run folder, finished or still growing. `failures` ("excluded" or "zero") says how samples without an
    answer enter the means."""
    return Run.open(folder, failures)


def measure(
    spec: Spec,
    out: Path | str | None = None,
    *,
    listen: Listener = ignore,
    keep_prompts: bool = False,
    checks: bool = True,
    base: Path | str | None = None,
    gate: str = "",
) -> Run:
    """Asks everything the spec wants that the folder does not have yet, and returns the run.

    The folder is `out`, by default one under runs/ that is named after the spec. `listen` is called with the events of
    the run (`leadline.run.events`). Failed samples are in the totals and are asked again by the next call. With
    `until` in the spec a stopping rule decides how many samples are asked; `base` and `gate` are for its rule
    `verdict`. Judges of the spec grade the answers at the end, and trackers get the result; an error of these is
    raised when everything is recorded.

    A server is first checked with about ten small requests, as `leadline run` does; each finding is a warning and a
    note in the manifest. `checks=False` leaves them out.
    """
    check = _check_and_warn if checks else None
    measured = measure_spec(spec, out, listen=listen, keep_prompts=keep_prompts, check=check, base=base, gate=gate)
    for error in measured.errors:
        raise error
    return Run.open(measured.run.folder)


def _check_and_warn(model: Model) -> Sequence[str]:
    """Findings are also warnings: a caller may not listen to events."""
    findings = check_model(model)
    for finding in findings:
        warnings.warn(finding, stacklevel=5)
    return findings
