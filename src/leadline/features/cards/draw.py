"""Cards and badges as SVG: nothing is loaded, so they work in a README, a model card and a post."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from leadline import __version__
from leadline.core.format import format_length, format_percent, format_percent_range, sanitise
from leadline.features.cards.verdict import COLOURS, window_use
from leadline.report.colours import accuracy_scale, colour_at
from leadline.report.page import template
from leadline.results.run import Run

PACKAGE = "leadline.features.cards"
LARGE_CHARACTERS = 20
"""The most characters of an interval in large letters, where the effective length is not decided."""
VALUE_SIZE, VALUE_WIDTH, BOLD_WIDTH = 32, 332, 0.65
"""The value's largest letters, the space left of the map, and a bold letter's width as a share of its height."""
MAP_LEFT, MAP_TOP, MAP_WIDTH, MAP_HEIGHT = 372, 92, 396, 230


@dataclass(frozen=True, slots=True)
class MapCell:
    x: float
    y: float
    width: float
    height: float
    colour: str
    title: str


def card_svg(run: Run) -> str:
    """Name, claimed window, effective length with its interval or that it is not decided, a small map, and origin."""
    use = window_use(run)
    model, _, options = run.label.partition("?")
    is_range = use.value == use.use and use.interval and run.totals.done and len(use.interval) <= LARGE_CHARACTERS
    value, interval = (use.interval, "") if is_range else (use.value, use.interval)
    overall = run.table.whole
    accuracy = "" if overall.mean is None else f"{format_percent(overall.mean)}% of answers right"
    if overall.interval is not None:
        accuracy += f" (95%: {format_percent_range(overall.interval)}%)"
    return template("card.svg", PACKAGE).render(
        name=sanitise(model, 44),
        claimed=f"claims {format_length(run.window)} tokens" if run.window else "states no window",
        options=sanitise(options.replace("&", " "), 60),
        use=use.use,
        colour=COLOURS[use.use],
        value=sanitise(value, 30),
        value_size=min(VALUE_SIZE, int(VALUE_WIDTH / (BOLD_WIDTH * max(1, len(value))))),
        interval=sanitise(interval, 52),
        accuracy=accuracy,
        tasks=sanitise(", ".join(run.titles), 52),
        reading=f"{run.reading} reading, {run.totals.done:,} answers",
        origin=f"Leadline {__version__} · {run.manifest.created[:10]} · {run.manifest.digest[:12]}",
        cells=_map(run),
        columns=_columns(run),
        left=MAP_LEFT,
        bottom=MAP_TOP + MAP_HEIGHT,
    )


def badge_svg(run: Run) -> str:
    """`context | 32k of 128k`, in the colour of the verdict."""
    use = window_use(run)
    value = sanitise(use.value, 28)
    left, right = 58, 14 + round(6.6 * len(value))
    return template("badge.svg", PACKAGE).render(
        value=value,
        title=f"{use.use}. {use.interval}",
        colour=COLOURS[use.use],
        left=left,
        right=right,
        width=left + right,
    )


def _map(run: Run) -> list[MapCell]:
    """Accuracy by length and depth, over all tasks; one row where no task has depths."""
    sums: dict[tuple[int, float], list[float]] = defaultdict(list)
    for cell, tally in run.table.cells.items():
        if tally.mean is not None:
            sums[cell.length, -1.0 if cell.depth is None else cell.depth].append(tally.mean)
    depths = sorted({depth for _, depth in sums if depth >= 0}) or [-1.0]
    lengths = sorted({length for length, _ in sums})
    width, height = MAP_WIDTH / max(1, len(lengths)), MAP_HEIGHT / len(depths)
    cells = []
    for column, length in enumerate(lengths):
        for row, depth in enumerate(depths):
            means = sums.get((length, depth))
            if means:
                mean = sum(means) / len(means)
                at = "" if depth < 0 else f", depth {100 * depth:.0f}%"
                title = f"{format_length(length)}{at}: {format_percent(mean)}%"
                x, y = MAP_LEFT + column * width, MAP_TOP + row * height
                cells.append(MapCell(x, y, width - 2, height - 2, colour_at(accuracy_scale(), mean), title))
    return cells


def _columns(run: Run) -> list[dict[str, Any]]:
    """The names of the lengths below the map; at most eight of them."""
    lengths = sorted({cell.length for cell, tally in run.table.cells.items() if tally.mean is not None})
    width, every = MAP_WIDTH / max(1, len(lengths)), max(1, -(-len(lengths) // 8))
    return [
        {"x": MAP_LEFT + (n + 0.5) * width, "text": format_length(length)}
        for n, length in enumerate(lengths) if n % every == 0
    ]  # fmt: skip
