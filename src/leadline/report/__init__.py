"""Floor 3: records to tables, figures and pages. Never imports run or models."""

from __future__ import annotations

from pathlib import Path


def write_heatmap(folder: Path | str) -> Path:
    """Draws the heatmap of a run into its folder as png, svg and pdf; says where the png is."""
    from leadline.report.charts.heatmap import heatmap
    from leadline.report.charts.render import write_figure
    from leadline.results.run import load_run

    run = load_run(folder)
    png, *_ = write_figure(heatmap(run), run.folder / "heatmap")
    return png
